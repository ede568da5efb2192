"""A logged run is run again and predicts the same, or what differs is named; changed files are always found."""

import hashlib
import itertools
import json
import re
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from documents_folders import lines
from mlflow import MlflowClient
from search_server import SearchServer

from harness.commands.reproduce import Proof, bare_rows, reproduce, rows_sha256
from harness.config.check import Invocation
from harness.config.commands import ReproduceConfig
from harness.errors import BadInput
from harness.experiment.plan import Plan
from harness.recording import provenance
from harness.tracking.file_hashes import FILE_HASHES
from retrievers.base import Ranking

TOY = ("dataset=contest", "dataset.path=toy", "tokenizer=whitespace", "format=json")
LIGHT = "tracking.detail=light"  # no pictures, which take the most of a run's time


@pytest.fixture
def client(harness, tmp_path):
    return MlflowClient(f"sqlite:///{tmp_path / 'outputs' / 'mlflow.db'}")


@pytest.fixture
def run_id(logged):
    """A run on the toy data by words: '달의' and '모양은' find d3 for query 7; 물은 finds d2 for 3; nothing for 5."""
    return logged(("run", *TOY, LIGHT))[0].json["run_id"]


@pytest.fixture
def prove(tmp_path):
    """The command's function without the slow command line: prove(run_id) -> document."""
    nowhere = dict.fromkeys(("path", "documents", "queries", "qrels", "corpus", "qa"))

    def call(run_id, **values):
        config = {"run": run_id, "verify_only": False, "fresh": True, "data": nowhere, "format": "json", "allow": []}
        config["plugins"] = {"allow": []}
        config |= {"outputs": str(tmp_path / "outputs"), "store": {"path": str(tmp_path / "cache")}}
        config |= {"experiment_name": "retrieval", "metric": "modified_map@3", "select_on": "all"}
        config["tracking"] = {"_target_": "harness.tracking.mlflow_tracker.MlflowTracker"}
        answer = reproduce(ReproduceConfig.of(config | values), Invocation({}, ()))
        assert (answer.failed is not None) == (answer.document["reproduced"] is False)
        return answer.document

    return call


@contextmanager
def changed(*files):
    """Files that are put back."""
    before = [file.read_bytes() for file in files]
    yield
    for file, content in zip(files, before, strict=True):
        file.write_bytes(content)


def stored(run_id, name="predictions.jsonl"):
    [file] = Path("outputs/artifacts").glob(f"*/{run_id}/artifacts/{name}")
    return file


def edit_config(client, run_id, **values):
    """Write another config of a run, together with its hash, as only somebody who can write to the store's tags can."""
    config = yaml.safe_load(stored(run_id, "config.yaml").read_text("utf-8")) | values
    kept = {name: value for name, value in config.items() if value != "gone"}
    content = yaml.safe_dump(kept, sort_keys=False).encode()
    stored(run_id, "config.yaml").write_bytes(content)
    hashes = json.loads(client.get_run(run_id).data.tags[FILE_HASHES])
    hashes["config.yaml"] = hashlib.sha256(content).hexdigest()
    client.set_tag(run_id, FILE_HASHES, json.dumps(hashes))


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("retriever=hybrid_lexical", "tokenizer=word", "fusion=rrf"),
        ("retriever=dense", "encoder=lsa", "encoder.dimensions=16", "gate=score", "gate.threshold=0.1"),
        ("retriever=bm25", "tokenizer=char_ngram", "query.text=last", "gate=depth", "top_k=2"),
    ],
    ids=lambda words: "-".join(words[:2]),
)
def test_configurations_are_reproduced(harness, prove, toy, words):
    """In a cache that is thrown away: what the session's cache keeps has no part in it."""
    run = harness("run", *words, LIGHT, "format=json").json
    found = prove(run["run_id"])
    assert found["reproduced"] is True
    sha256 = rows_sha256(bare_rows(Path(run["files"]["predictions"])))
    assert found["predictions"] == {"then": sha256, "now": sha256}
    assert found["differences"] == {"queries": 0, "first": []}
    assert (found["metrics"]["compared"] >= 30, found["metrics"]["differ"]) == (True, [])
    assert not list(Path("outputs").glob("scratch-*"))


def test_it_says_so_and_believes_the_cache_on_request_alone(harness, run_id, client, monkeypatch):
    said = harness("reproduce", f"run={run_id}").text
    assert re.search(r"Reproduced: equal predictions \(sha256 [0-9a-f]{64}\), \d+ metrics equal\.\n$", said)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ equal", client.get_run(run_id).data.tags["reproduced"])
    monkeypatch.setattr("retrievers.lexical.bm25.BM25.search", None)
    assert harness("reproduce", f"run={run_id}", "fresh=false").code == 0
    done = harness("reproduce", f"run={run_id}")
    assert (done.code, "TypeError" in done.err) == (1, True)


def test_verify_only_runs_nothing(harness, prove, run_id, client, monkeypatch):
    monkeypatch.setattr("harness.experiment.steps.run_steps", None)
    found = prove(None, verify_only=True)
    assert (found["run_id"], found["reproduced"]) == (run_id, None), "without a name: the run that would be exported"
    assert found["predictions"]["now"] is None
    assert found["predictions"]["then"] == client.get_run(run_id).data.tags["predictions.sha256"]
    # By the documents shown: three modified measures, hit@1 and @3, recall@3, two precisions, f1, mrr, map and ndcg@3.
    assert found["metrics"]["compared"] >= 12
    assert "reproduced" not in client.get_run(run_id).data.tags
    assert "Verified: unchanged files, " in harness("reproduce", f"run={run_id}", "verify_only=true").out


CHANGES = [
    ("documents", "documents.jsonl", "100도", "101도"),
    ("queries", "eval.jsonl", "왜", "뭐"),
    ("labels", "qrels.jsonl", '"d3": 2', '"d3": 3'),
]


def test_changed_data_are_refused_by_name(prove, toy, run_id):
    for (part, file, old, new), verify_only in itertools.product(CHANGES, (True, False)):
        with changed(toy / file):
            text = (toy / file).read_text("utf-8")
            assert text.count(old) == 1
            (toy / file).write_text(text.replace(old, new), "utf-8")
            with pytest.raises(BadInput) as refused:
                prove(run_id, verify_only=verify_only)
        said = str(refused.value)
        assert f"the {part} have changed ({toy}: sha256 " in said
        assert not [other for other, *_ in CHANGES if other != part and f"the {other} have changed" in said]
        assert len(re.findall(r"[0-9a-f]{12}…", said)) == 2
    assert prove(run_id)["reproduced"]
    (toy / "qrels.jsonl").unlink()
    with pytest.raises(BadInput, match=r"the labels have changed \(.*: sha256 [0-9a-f]{12}… then, none now\)"):
        prove(run_id)


def test_data_that_moved_are_found_where_one_says(harness, toy, run_id):
    toy.rename(toy.with_name("20261"))
    assert re.search("cannot be read any more.*data.path=FOLDER", harness("reproduce", f"run={run_id}").refusal)
    assert harness("reproduce", f"run={run_id}", "data.path=20261/").code == 0
    refused = harness("reproduce", f"run={run_id}", "data.corpus=x").refusal
    assert re.search("data.corpus.*path, documents, queries, qrels", refused)


def test_other_predictions_are_shown_beside_those_of_the_run(harness, prove, run_id, client, monkeypatch):
    """A program that finds nothing: queries 7 and 3 have no document now, and of three right queries one is left."""
    nothing = lambda self, queries, k: Ranking.from_scores({query.query_id: {} for query in queries})  # noqa: E731
    monkeypatch.setattr("retrievers.lexical.bm25.BM25.search", nothing)
    found = prove(run_id)
    listed = [(one["query_id"], [doc for doc, _ in one["then"]], one["now"]) for one in found["differences"]["first"]]
    assert listed == [("7", ["d3"], []), ("3", ["d2"], [])]
    assert found["differences"]["queries"] == 2  # the third has no documents either way
    assert {"name": "modified_map_at_3", "then": 1.0, "now": 1 / 3} in found["metrics"]["differ"]
    assert client.get_run(run_id).data.tags["reproduced"].endswith(" different")
    done = harness("reproduce", f"run={run_id}")
    assert done.code == 1
    assert re.search(r"7  달의 모양은 왜 변해\? +d3 \(.*\) +no documents", done.out)
    assert "\n  Not reproduced: 2 queries with other predictions.\n" in done.out


@pytest.fixture
def service(harness, toy):
    """A run on a search service: (run id, its server, the address to allow)."""
    found = {"달의 모양은 왜 변해?": [("d3", 2.0)], "물은 몇 도에서 끓어?": [("d2", 1.0)]}
    with SearchServer(lambda query, k: found.get(query, [])) as server:
        words = ("retriever=fastapi", f"retriever.fastapi.url={server.url}", *TOY[:2], "format=json", LIGHT)
        yield harness("run", *words).json["run_id"], server, server.url.rpartition("/")[0]


def test_times_decide_nothing_and_are_told(harness, prove, service):
    """Each answer of the service takes another time, and reproducing asks it again."""
    run_id, _, address = service
    again = prove(run_id, allow=[address])
    assert again["reproduced"] is True
    assert {one["name"] for one in again["metrics"]["times"]} >= {"latency_p50_ms/fastapi", "ms_per_query"}
    said = harness("reproduce", f"run={run_id}", f"allow=[{address}]").text
    times = r"Times differ, as usual \(p50/fastapi \d+ → \d+ ms\)"
    assert re.search(rf"Reproduced: equal .* metrics equal\. {times}\.\n", said)


def test_nothing_is_sent_where_the_command_line_does_not_say_so(harness, prove, service, client, monkeypatch):
    """The config of a run may be of somebody who wants the secrets of whoever reproduces it."""
    monkeypatch.setenv("ONLY_MINE", "secret")
    run_id, server, address = service
    node = yaml.safe_load(stored(run_id, "config.yaml").read_text("utf-8"))["retriever"]["fastapi"]
    node["runtime"]["headers_env"] = {"X-Steal": "ONLY_MINE"}
    edit_config(client, run_id, retriever={"fastapi": node})
    asked = len(server.asked)
    for allow in ([], [address], ["ONLY_MINE"], ["http://127.0.0.1"]):
        with pytest.raises(BadInput, match="says where queries and secrets are sent") as refused:
            prove(run_id, allow=allow)
        named = {"retriever.fastapi.url": address, "retriever.fastapi.runtime.headers_env.X-Steal": "ONLY_MINE"}
        for key, value in named.items():
            assert (f"{key} is {value}" in str(refused.value)) == (value not in allow)
        assert f"'allow=[{address},ONLY_MINE]'" in str(refused.value)
    assert len(server.asked) == asked
    assert prove(run_id, verify_only=True)["wrong"] == []
    assert harness("reproduce", f"run={run_id}", f"allow=[{address},ONLY_MINE]").code == 0
    assert server.asked[-1].headers["X-Steal"] == "secret"
    Path("harness.yaml").write_text(f"allow: [{address}, ONLY_MINE]\n")
    assert "allow can only be given on the command line" in harness("reproduce", f"run={run_id}").refusal


def test_a_config_that_is_not_the_run_s_own_is_refused_before_anything_runs(prove, run_id, client, monkeypatch):
    monkeypatch.setattr("harness.experiment.steps.run_steps", None)
    edit_config(client, run_id, gate={"_target_": "harness.gates.gate.ScoreGate", "threshold": 99.0})
    for verify_only in (True, False):
        with pytest.raises(BadInput, match="its config is not the one that it ran with"):
            prove(run_id, verify_only=verify_only)


def test_a_number_that_is_not_the_logged_one_is_named(harness, prove, run_id, client):
    client.log_metric(run_id, "hit_at_3", 0.25)
    for verify_only in (True, False):
        differ = prove(run_id, verify_only=verify_only)["metrics"]["differ"]
        assert differ == [{"name": "hit_at_3", "then": 0.25, "now": 1.0}]
    done = harness("reproduce", f"run={run_id}", "verify_only=true")
    assert (done.code, bool(re.search("hit_at_3 +0.25 +1.0", done.out))) == (1, True)


def test_other_versions_are_told_and_do_not_refuse(harness, prove, run_id, client):
    others = {"version.numpy": "1.26.0", "git.commit": "0" * 40}
    for name, version in others.items():
        client.set_tag(run_id, name, version)
    found = prove(run_id)
    assert found["reproduced"] is True
    assert {name: pair["then"] for name, pair in found["versions"].items() if name != "git.dirty"} == others
    assert re.search(r"version.numpy +1.26.0 +\d", harness("reproduce", f"run={run_id}").out)


UNFIT = [
    ({"depth": "gone"}, "depth is missing"),
    ({"top_k": "three"}, "top_k='three' is not a whole number"),
    ({"gate": {"_target_": "os.system", "command": "touch hacked"}}, "os.system.*not allowed"),
    ({"gate": {"_target_": "gate/none", "more": {"_target_": "subprocess.Popen"}}}, "subprocess.Popen.*not allowed"),
    ({"retriever": 5}, "`retriever` is not a group of keys"),
    ({"dataset": {"_target_": "harness.data.source.Nowhere"}}, "no class 'Nowhere'"),
]


def test_a_config_that_does_not_fit_is_refused(prove, run_id, client):
    said = rf"The config of run {run_id[:8]} \(version .*, commit .*\) cannot be used here: .*"
    for values, expected in UNFIT:
        with changed(stored(run_id, "config.yaml")):
            edit_config(client, run_id, **values)
            with pytest.raises(BadInput, match=said + expected):
                prove(run_id)


def test_what_is_no_finished_run_is_refused(harness, prove, run_id, client):
    assert "run=0123456789: no such run" in harness("reproduce", "run=0123456789").refusal
    assert "no such experiment" in harness("reproduce", "experiment_name=x").refusal
    with pytest.raises(BadInput, match="keeps"):
        prove(run_id, tracking={"_target_": "harness.tracking.tracker.Tracker"})
    client.set_terminated(run_id, "FAILED")
    with pytest.raises(BadInput, match="is FAILED: only finished"):
        prove(run_id)
    other = client.create_run(client.get_run(run_id).info.experiment_id).info.run_id
    for verb, expected in [("sweep", "a sweep without a single best trial"), ("", "a program other than the harness")]:
        client.set_tag(other, "harness.verb", verb)
        with pytest.raises(BadInput, match=expected):
            prove(other)


def test_a_scored_file_is_verified_and_never_run(harness, prove, toy):
    rows = [{"eval_id": 7, "topk": ["d3", "d1"]}, {"eval_id": 3, "topk": ["d1"]}, {"eval_id": 5, "topk": []}]
    Path("made.csv").write_text(lines(rows))
    words = ("predictions=made.csv", "dataset=contest", "dataset.path=toy", "format=json")
    run_id = harness("score", *words).json["run_id"]
    with pytest.raises(BadInput, match="nothing to run again"):
        prove(run_id)
    found = prove(run_id, verify_only=True)
    assert (found["reproduced"], list(found["data"])) == (None, ["qrels"])
    assert (found["wrong"], found["metrics"]["compared"] > 40) == ([], True)
    (toy / "qrels.jsonl").write_text('{"eval_id": 7, "relevant": ["d1"]}\n')
    with pytest.raises(BadInput, match=r"the labels have changed \("):
        prove(run_id, verify_only=True)


@pytest.mark.slow
def test_trials_of_a_sweep_are_reproduced(harness, prove, toy):
    """The best trial is logged in full, the other one lightly: its rows hold no texts."""
    found = harness("sweep", *TOY, "gate=score", "gate.threshold=0,99").json
    assert len(found["top"]) == 2
    for trial in found["top"]:
        again = prove(trial["run_id"])
        assert (again["reproduced"], len(set(again["predictions"].values()))) == (True, 1)
        assert prove(trial["run_id"], verify_only=True)["metrics"]["compared"] > 10


def test_rewritten_queries_are_part_of_the_data_also_without_labels(harness, prove, toy):
    (toy / "qrels.jsonl").unlink()
    rows = [{"eval_id": k, "standalone_query": text} for k, text in ((7, "달의 모양"), (3, "물은 끓는다"), (5, "안녕"))]
    Path("new.jsonl").write_text(lines(rows))
    run_id = harness("run", *TOY, "query.text=file", "query.file=new.jsonl", LIGHT).json["run_id"]
    found = prove(run_id)
    assert (found["reproduced"], found["data"]["qrels"], found["metrics"]["compared"]) == (True, None, 0)
    Path("new.jsonl").write_text(lines([rows[0] | {"standalone_query": "달"}, *rows[1:]]))
    with pytest.raises(BadInput, match=r"query.file=.* has changed since"):
        prove(run_id)


def row(query_id, *topk):
    references = [{"score": 1.0} for _ in topk]
    return {"eval_id": query_id, "standalone_query": "q", "topk": list(topk), "answer": "", "references": references}


def test_the_first_ten_differences_are_listed():
    then = [row(i, "a") for i in range(12)]
    proof = Proof("r", {"then": rows_sha256(then), "now": None}, then)
    proof.check_repeated([row(0, "a"), *(row(i, "b") for i in range(1, 13))])
    assert proof.differences["queries"] == 12  # 1 to 11, and 12, which had no row
    assert [one["query_id"] for one in proof.differences["first"]] == [str(i) for i in range(1, 11)]
    assert len(proof.wrong) == 1


def test_metrics_may_differ_by_rounding_alone():
    proof = Proof("r", {})
    proof.check_metrics({"ndcg_at_3": 0.5, "seconds/index": 3.0}, {"ndcg@3": 0.5 + 9e-13, "mrr": 0.1})
    assert (proof.metrics, proof.wrong) == ({"compared": 1, "differ": [], "times": []}, [])
    proof.check_metrics({"ndcg_at_3": 0.5}, {"ndcg@3": 0.5 + 2e-12})
    assert [one["name"] for one in proof.metrics["differ"]] == ["ndcg_at_3"]


BM25, LSA = {"_target_": "retriever/bm25"}, {"_target_": "encoder/lsa"}
KIWI, STEMMED = {"_target_": "tokenizer/kiwi"}, {"bm25": BM25 | {"tokenizer": {"_target_": "tokenizer/snowball"}}}
DENSE = {"dense": {"_target_": "retriever/dense", "encoder": LSA}}
REST = {"tokenizer": KIWI, "encoder": LSA, "index": {"_target_": "index/flat"}, "fusion": {"_target_": "fusion/rrf"}}
REST |= {"rerank": {"_target_": "rerank/none"}, "dataset": {}, "top_k": 3, "depth": 10}


@pytest.mark.parametrize(
    ("retriever", "gate", "expected"),
    [
        ({"bm25": BM25 | {"tokenizer": KIWI}}, "none", {"rank_bm25", "kiwipiepy", "kiwipiepy_model"}),
        (STEMMED, "classifier", {"rank_bm25", "PyStemmer", "scikit-learn"}),
        ({"sparse": {"_target_": "retriever/bge_m3_sparse"}}, "none", {"transformers", "torch"}),
        (STEMMED | DENSE, "none", {"rank_bm25", "PyStemmer", "scikit-learn", "scipy"}),
    ],
    ids=["kiwi", "classifier", "sparse", "two"],
)
def test_a_run_names_the_packages_of_its_parts(retriever, gate, expected):
    """Of the classes that retrievers and the gate are made of; a part that only stands in the config has no say."""
    config = {**REST, "retriever": retriever, "gate": {"_target_": f"gate/{gate}"}}
    assert provenance.packages(Plan.of(config)) == expected


def test_a_shipped_prompt_that_has_changed_is_named(harness, toy, prove, client):
    from chat_server import ChatServer

    with ChatServer(lambda asked, time: json.dumps({"query" if "search query" in asked else "answer": "달"})) as server:
        words = ("query.text=rewrite", "answer=llm", "llm.model=tiny", f"llm.base_url={server.url}")
        run_id = harness("run", *TOY, LIGHT, *words, "store.path=cache").json["run_id"]
    assert prove(run_id)["reproduced"] is True
    for tag in ("prompt.query", "prompt.answer"):
        then = client.get_run(run_id).data.tags[tag]
        client.set_tag(run_id, tag, "0" * 64)
        key = tag.removeprefix("prompt.") + ".prompt"
        said = rf"The shipped prompt \({key}=null\) has changed since the run: its sha256 was 0"
        with pytest.raises(BadInput, match=said):
            prove(run_id)
        client.set_tag(run_id, tag, then)
