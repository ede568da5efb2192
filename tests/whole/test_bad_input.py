"""Bad input: exit code 2, one message with place and remedy, and no partial output."""

import json
import re

import pytest

RUN = ("run", "dataset=contest", "dataset.path=toy", "tokenizer=word")

# overrides of a run on a valid dataset -> pattern of the message
OVERRIDES = [
    (["retriever=bm26"], r"retriever=bm26: there is no such choice\. Did you mean 'bm25'"),
    (["gate=scor"], r"gate=scor: .*Did you mean 'score'"),
    (["tokenizer=kiwy"], r"tokenizer=kiwy: .*Did you mean 'kiwi'"),
    (["gat.threshold=3"], r"gat\.threshold is unknown here\. Did you mean 'gate\.threshold', which gate=score has"),
    (["gate.threshold=3"], r"gate=none does not have it\. Choose gate=score\."),  # gate=none takes no threshold
    (["top_kk=3"], r"top_kk is unknown here\. Did you mean 'top_k'"),
    (["retriever.k1=1.2"], r"Did you mean 'retriever\.bm25\.k1'"),
    (["gate=score", "gate.treshold=1"], r"gate\.treshold is unknown here\. Did you mean 'gate\.threshold'"),
    (["+foo=1"], r"foo is unknown here"),
    (["+query.mode=last"], r"query\.mode is unknown"),
    (["~gate"], r"gate is missing from the config"),
    (["top_k=0"], r"top_k=0 is too small: the minimum is 1"),
    (["depth=0"], r"depth=0 is too small"),
    (["top_k=10", "depth=5"], r"depth=5 is less than top_k=10"),
    (["top_k=three"], r"top_k='three' is not a whole number"),
    (["top_k=2.5"], r"top_k=2\.5 is not a whole number"),
    (["seed=-1"], r"seed=-1 is too small"),
    (["public=1.5"], r"public=1\.5 is too large"),
    (["public=nan"], r"public=nan is not a finite number"),
    (["format=jsn"], r"format='jsn' is not one of text, json\. Did you mean 'json'"),
    (["metrics=[modified_mpa@3]"], r"modified_mpa@3.*Did you mean 'modified_map@3'"),
    (["metrics=[ndcg@0]"], r"ndcg@0.*cut-off"),
    (["metrics=[ndcg@x]"], r"ndcg@x.*cut-off"),
    (["metrics=ndcg@10"], r"metrics='ndcg@10' is not a list of text"),
    (["objective=mapp"], r"mapp.*Did you mean"),
    (["gate=score", "gate.threshold=high"], r"gate\.threshold='high' is not a finite number"),
    (["gate=score", "gate.threshold=inf"], r"gate\.threshold=inf is not a finite number"),
    (["gate=score", "gate.signal=topscore"], r"gate: 'topscore' is not a gate signal.*Did you mean 'top_score'"),
    (["gate=score", "gate.source=dense"], r"gate\.source='dense' is not a component ranking"),
    (["gate=fitted"], r"gate\.file is missing\. Give it on the command line: gate\.file="),
    (["gate=fitted", "gate.file=none.json"], r"gate: none\.json: there is no such file"),
    (["gate=llm"], r"llm\.model is missing"),
    (["gate=auto", "gate.signals=[top_score,margn]"], r"gate: 'margn' is not a gate signal.*Did you mean 'margin'"),
    (["gate=auto", "gate.sources=[dense]"], r"gate\.sources='dense' is not a component ranking"),
    (["gate=auto", "gate.folds=1"], r"gate: folds=1: at least 2 is needed"),
    (
        ["gate=auto", "objective=abstention_f1", "metrics=[abstention_f1]"],
        r"objective=abstention_f1: a gate needs an objective that is a mean",
    ),
    (["select_on=privat"], r"select_on='privat' is not one of all, public"),
    (["gate=score", "gate.k=1"], r"gate: k=1 is too small"),
    (["retriever.bm25.variant=okapy"], r"variant.*'okapy'.*Did you mean 'okapi'"),
    (["retriever.bm25.k1=-1"], r"retriever\.bm25: k1"),
    (["retriever.bm25.b=2"], r"retriever\.bm25\.b=2 is too large: the maximum is 1"),
    (["retriever.bm25._target_=os.system"], r"_target_: 'os\.system' is not allowed"),
    (["dataset._target_=subprocess.run"], r"_target_: 'subprocess\.run' is not allowed"),
    (["+retriever.bm25.extra={_target_: os.getcwd}"], r"_target_: 'os\.getcwd' is not allowed"),
    (["+hydra.callbacks.x._target_=os.getcwd"], r"hydra\.callbacks\.x\._target_ is refused"),
    (
        ["tokenizer=char_ngram", "tokenizer.low=3", "tokenizer.high=2"],
        r"tokenizer\.high \(2\) is below tokenizer\.low \(3\)",
    ),
    (["tokenizer=snowball", "tokenizer.language=klingon"], r"klingon"),
    (["query.text=lastt"], r"query\.text='lastt' is not one of.*Did you mean 'last'"),
    (["query.text=file"], r"query\.file"),
    (["query.text=file", "query.file=nowhere.jsonl"], r"nowhere\.jsonl"),
    (["dataset.path=nowhere"], r"nowhere"),
    (["dataset.documents=toy/document.jsonl"], r"document\.jsonl.*(Did you mean|documents\.jsonl)"),
    (["top_k="], r"top_k is empty"),
    (["=3"], r"'=3' has no key"),
    (["experiment_name="], r"experiment_name"),
    (["tracking.uri=ftp://nowhere"], r"tracking\.uri=ftp://nowhere cannot be used"),
    (["outputs=toy/eval.jsonl"], r"toy/eval\.jsonl.*(Not a directory|File exists).*outputs=FOLDER"),
    (["store.path=toy/eval.jsonl"], r"toy/eval\.jsonl.*store\.path=FOLDER"),
    (["--no-such-flag"], r"--no-such-flag is not an option of `harness run`"),
]

# file of the dataset -> its new content -> pattern of the message
FILES = [
    ("documents.jsonl", '{"docid": "d1", "content": "가"', r"documents\.jsonl:1"),
    ("documents.jsonl", '[{"docid": "d1", "content": "가"}]', r"documents\.jsonl:1.*array"),
    ("documents.jsonl", "", r"documents\.jsonl"),
    (
        "documents.jsonl",
        '{"docid": "d1", "content": "가"}\n{"docid": "d1", "content": "나"}',
        r"documents\.jsonl:2.*d1",
    ),
    ("documents.jsonl", '{"docid": "", "content": "가"}', r"documents\.jsonl:1.*docid"),
    ("documents.jsonl", '{"docid": true, "content": "가"}', r"documents\.jsonl:1.*docid"),
    ("documents.jsonl", '{"docid": "d1", "contents": "가"}', r"documents\.jsonl:1.*Did you mean 'content"),
    ("documents.jsonl", '{"docid": "d1", "content": 5}', r"documents\.jsonl:1.*content"),
    ("documents.jsonl", b'{"docid": "d1", "content": "\xff"}', r"documents\.jsonl:1.*UTF-8"),
    ("eval.jsonl", '{"eval_id": 7, "msg": []}', r"eval\.jsonl:1"),
    ("eval.jsonl", '{"eval_id": 7, "msg": [{"role": "assistant", "content": "가"}]}', r"eval\.jsonl:1.*user"),
    ("eval.jsonl", '{"eval_id": 7, "msg": "가"}', r"eval\.jsonl:1.*msg"),
    ("eval.jsonl", '{"eval_id": NaN, "msg": [{"role": "user", "content": "가"}]}', r"eval\.jsonl:1"),
    ("qrels.jsonl", '{"eval_id": 7, "relevant": ["d9"]}', r"qrels\.jsonl:1.*d9"),
    ("qrels.jsonl", '{"eval_id": 8, "relevant": ["d1"]}', r"qrels\.jsonl:1.*8"),
    ("qrels.jsonl", '{"eval_id": 7, "relevant": {"d1": 0}}', r"qrels\.jsonl:1.*grade"),
    ("qrels.jsonl", '{"eval_id": 7, "relevant": {"d1": "high"}}', r"qrels\.jsonl:1"),
    ("qrels.jsonl", '{"eval_id": 7, "relevant": "d1"}', r"qrels\.jsonl:1.*relevant"),
    ("qrels.jsonl", '{"eval_id": 7, "relevant": ["d1"]}\n{"eval_id": "7", "relevant": []}', r"qrels\.jsonl:2"),
]

# predictions for `harness score` -> pattern of the message
PREDICTIONS = [
    ('{"eval_id": 7}', r"p\.jsonl:1.*topk"),
    ('{"eval_id": 7, "topk": "d1"}', r"p\.jsonl:1.*topk"),
    ('{"eval_id": 7, "topk": []}\n{"eval_id": 7, "topk": []}', r"p\.jsonl:2.*7"),
    ('{"eval_id": 99, "topk": []}', r"No predicted query is labelled"),
    ("7 Q0 d1 1 high run", r"p\.jsonl:1"),
    ("7 Q0 d1 1 nan run", r"p\.jsonl:1"),
    ("7 Q0 d1 1 1.0 run\n7 Q0 d1 2 0.5 run", r"p\.jsonl:2"),
    ("", r"p\.jsonl"),
    ("just words", r"p\.jsonl:1"),
]


def check(done, tmp_path, expected):
    assert done.code == 2, done.err
    assert "Traceback" not in done.err
    assert re.search(expected, done.err, re.S), done.err
    assert done.out == ""
    assert not list(tmp_path.glob("outputs/runs/*"))
    assert not list(tmp_path.rglob("*.unfinished"))


@pytest.mark.parametrize(("words", "expected"), OVERRIDES, ids=lambda value: value[0] if type(value) is list else "")
def test_bad_overrides(harness, toy, tmp_path, words, expected):
    check(harness(*RUN, "tracking=mlflow" if "tracking" in words[0] else "tracking=none", *words), tmp_path, expected)


@pytest.mark.parametrize(("name", "content", "expected"), FILES)
def test_bad_files(harness, toy, tmp_path, name, content, expected):
    (toy / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    check(harness(*RUN, "tracking=none"), tmp_path, expected)


@pytest.mark.parametrize(("content", "expected"), PREDICTIONS)
def test_bad_predictions(harness, toy, tmp_path, content, expected):
    (tmp_path / "p.jsonl").write_text(content)
    words = ("score", "dataset=contest", "dataset.path=toy", "predictions=p.jsonl", "tracking=none")
    check(harness(*words), tmp_path, expected)


def test_score_needs_predictions_and_labels(harness, toy, tmp_path):
    check(harness("score", "tracking=none"), tmp_path, "predictions is missing")
    (tmp_path / "p.jsonl").write_text('{"eval_id": 7, "topk": []}\n')
    (toy / "qrels.jsonl").unlink()
    words = ("dataset=contest", "dataset.path=toy", "predictions=p.jsonl", "tracking=none")
    check(harness("score", *words), tmp_path, r"no labels.*dataset\.qrels")


def test_search_needs_a_query(harness, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    check(harness("search"), tmp_path, "query is missing, and there is no standard input")
    check(harness("search", "query= "), tmp_path, "query is empty")


def test_an_unknown_verb_names_the_near_one(capsys):
    from harness.cli import main

    with pytest.raises(SystemExit) as end:
        main(["runn"])
    assert end.value.code == 2
    assert "Did you mean 'run'" in capsys.readouterr().err


@pytest.mark.slow
def test_bad_input_leaves_an_earlier_submission_alone(harness, toy, tmp_path):
    harness(*RUN, "format=json", "experiment_name=e")
    assert harness("export", "experiment_name=e", "submission=best.csv").code == 0
    before = (tmp_path / "best.csv").read_bytes()
    (toy / "documents.jsonl").write_text(json.dumps({"docid": "d1", "content": "바뀜"}) + "\n")
    (toy / "qrels.jsonl").unlink()
    done = harness("export", "experiment_name=e", "submission=best.csv")
    assert done.code == 2
    assert "documents have changed" in done.err
    assert (tmp_path / "best.csv").read_bytes() == before
