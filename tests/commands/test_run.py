"""The verbs `run`, `score` and `search`, from the command line to files and MLflow."""

import json
import shlex
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from html_pages import data_of

import harness as package
from harness.commands.run import run_report
from harness.measures.objective import Objective
from harness.measures.score_table import read_score_table
from harness.reports.terminal import standing

QUIET = ("tracking=none", "format=json")


def contest(folder="toy"):
    return ("dataset=contest", f"dataset.path={folder}", "tokenizer=char_ngram")


@pytest.mark.local
def test_run_with_no_argument_scores_the_sample_and_logs_it(harness, tmp_path):
    found = harness("run", "format=json").json
    assert 0.4 < found["metrics"]["modified_map@3"] < 0.8
    none = dict.fromkeys(("unlabelled", "missing", "duplicates"), 0)
    assert found["counts"] == {"predicted": 60, "labelled": 60, "scored": 60, "needs_no_retrieval": 12} | none
    losses = sum(found["losses"].values())
    assert losses + found["metrics"]["modified_map@3"] == pytest.approx(1, abs=1e-12)
    assert Path(found["files"]["predictions"]).is_file()
    rows = sqlite3.connect(tmp_path / "outputs" / "mlflow.db").execute("select status, name from runs").fetchall()
    assert rows == [("FINISHED", "bm25-kiwi-none")]


def test_text_output_shows_scores_and_what_to_try_next(harness, toy):
    said = harness("run", "tracking=none", "tokenizer=word").text
    first, *others = said.splitlines()
    assert first == "modified_map@3 0.3750 (0.267 – 0.492 on 60 queries, in sample)"
    assert others[2].startswith("  wrongly_returned           0.1667  ███████")
    assert "wrongly_withheld" not in said, "nothing is lost there"
    assert "hit@3" in said
    assert others[-1].startswith("Files:")
    assert len(others) < 13
    assert next(one for one in others if one.startswith("  Data: ")).startswith("  Data: The shipped sample. toy/doc")
    whole = harness("run", "tracking=none", "tokenizer=word", "metrics=[modified_map@3,recall@10]").out
    assert whole.startswith(first)
    for expected in ("recall@10", "oracle_gate", "60 labelled queries scored"):
        assert expected in whole
    assert "abstention_recall" not in whole


def test_all_measures_are_those_of_no_choice(harness, toy, tmp_path):
    plain, every = (harness("run", *contest(), *words, "format=json") for words in ((), ("metrics=all",)))
    assert every.json["metrics"] == plain.json["metrics"]
    keys = sqlite3.connect(tmp_path / "outputs" / "mlflow.db").execute("select value from tags where key='trial_key'")
    assert len({*keys}) == 1


def test_a_part_without_queries_has_no_numbers(harness, toy):
    for public in ("public=0", "public=1"):
        said = harness("run", *contest(), "tracking=none", "gate=auto", public, "metrics=all").text
        assert "–" in next(line for line in said.splitlines() if line.startswith("oof/modified_map@3"))


@pytest.mark.drawn
def test_files_of_a_run(harness, toy):
    found = harness("run", *contest(), *QUIET, "gate=score", "gate.threshold=0.5").json
    folder = Path(found["files"]["folder"])
    assert {path.name for path in folder.iterdir()} == {
        "config.yaml", "gate.png", "metrics.json", "overview.png", "predictions.jsonl", "report.html",
        "requirements.txt", "run.trec", "scores.csv",
    }  # fmt: skip
    rows = [json.loads(line) for line in (folder / "predictions.jsonl").read_text("utf-8").splitlines()]
    assert [row["eval_id"] for row in rows] == [7, 3, 5]  # as read: integers, in the file's order
    assert rows[0]["topk"][0] == "d3"
    assert rows[0]["standalone_query"] == "달의 모양은 왜 변해?"
    assert rows[0]["references"][0]["content"] == "달의 모양은 한 달 동안 변한다"
    assert rows[2]["topk"] == []  # nothing shares a bigram with the greeting
    assert (folder / "run.trec").read_text().startswith("7 Q0 d3 1 ")
    assert found["metrics"]["modified_map@3"] == found["metrics"]["abstention_recall"] == 1.0


@pytest.mark.parametrize(("objective", "lost"), [("modified_map@3", True), ("mrr", False)])
def test_losses_are_shown_beside_what_they_add_up_to(harness, toy, objective, lost):
    words = (*contest(), QUIET[0], f"objective={objective}", "gate=score", "gate.threshold=99")
    assert ("Where the score is lost" in harness("run", *words).text) == lost
    page = data_of(next(Path("outputs/runs").glob("*/report.html")).read_text("utf-8"))
    assert bool(page["losses"]) == lost


@pytest.mark.slow
def test_runs_without_labels_lead_to_labels(harness, toy):
    (toy / "qrels.jsonl").unlink()
    words = (*contest(), "experiment_name=e")
    made = [harness("run", *words, f"top_k={k}", "format=json").json for k in (2, 3)]
    for one in made:
        assert (one["metrics"], one["private_peeks"]) == (None, 0), "nothing is seen where nothing is scored"
        assert len(Path(one["files"]["predictions"]).read_text().splitlines()) == 3
    assert (
        "nothing is scored. If you have labels, name their file: dataset.qrels=FILE."
        in harness("run", *words, QUIET[0]).out
    )
    for command in ("compare", "board", "advise", "power", "export"):
        refused = harness(command, "experiment_name=e").refusal
        assert "Experiment 'e' has 2 finished runs, none with labels" in refused
        assert "harness testset draft" in refused
    for command in ("compare", "board", "power"):
        refused = harness(command, f"runs=[{','.join(one['run_id'] for one in made)}]").refusal
        assert "has no labels, so it has no scores. If you have labels" in refused


@pytest.mark.slow
@pytest.mark.stored
def test_a_hangul_folder_and_experiment_name(harness, toy, tmp_path):
    folder = toy.rename(tmp_path / "한글 폴더 (사본)")
    done = harness("run", *contest(folder), "experiment_name=한국어 실험=1", "format=json")
    assert done.json["experiment"] == "한국어 실험=1"
    assert harness("export", "experiment_name=한국어 실험=1", "submission=제출.csv", "format=json").json["queries"] == 3
    assert harness("run", *contest(folder), "experiment_name=2024", *QUIET).json["experiment"] == "2024"


@pytest.mark.stored
def test_score_equals_run(harness, toy):
    run = harness("run", *contest(), "format=json", "metrics=[modified_map@3,hit@1,ndcg@1]").json
    words = (f"predictions={run['files']['predictions']}", *contest()[:2], "format=json")
    scored = harness("score", *words, "metrics=[modified_map@3,hit@1,ndcg@1]").json
    assert scored["metrics"] == run["metrics"]
    assert scored["run_id"] != run["run_id"]


def test_score_refuses_a_file_of_another_corpus_and_says_what_is_stale(harness, toy, tmp_path):
    file, words = tmp_path / "p.jsonl", ("score", "predictions=p.jsonl", "dataset=contest", "tracking=none")
    file.write_text('{"eval_id": 7, "topk": ["x1", "x2"]}\n{"eval_id": 3, "topk": ["x3"]}\n')
    said = "the dataset has none of the 3 documents in the lists, such as 'x1'"
    assert said in harness(*words, "dataset.path=toy").refusal
    assert harness(*words, "dataset.qrels=toy/qrels.jsonl").code == 0
    file.write_text('{"eval_id": 7, "topk": ["d3", "x2"]}\n{"eval_id": 3, "topk": ["x3"]}\n')
    assert harness(*words, "dataset.path=toy", "format=json").json["counts"]["unknown_documents"] == 2
    said = "Warning: the lists contain 2 documents that the dataset lacks"
    assert said in harness(*words, "dataset.path=toy").text


def test_search_shows_documents_signal_and_decision(harness, toy):
    words = (*contest(), "query=지구 달의 모양", "top_k=2")
    found = harness("search", *words, "format=json").json
    assert [document["doc_id"] for document in found["documents"]] == ["d3", "d1"]
    assert (found["retrieve"], found["signal"]) == (True, found["documents"][0]["score"])
    assert "No document shares a term" in harness("search", *contest(), "query=xyz").out


def test_a_run_prints_the_command_that_searches_as_it_did(harness, monkeypatch):
    words = ("tokenizer=word", "gate=auto", "top_k=2", "metrics=all")
    [line] = [one for one in harness("run", *words).out.splitlines() if one.startswith("  harness search")]
    [folder] = Path("outputs/runs").iterdir()
    assert line.split(maxsplit=2)[2] == f"tokenizer=word top_k=2 gate=fitted gate.file={folder}/gate.json"
    rows = [json.loads(row) for row in (folder / "predictions.jsonl").read_text("utf-8").splitlines()][:4]
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=[row["standalone_query"].encode() for row in rows],
                                                     isatty=lambda: False))  # fmt: skip
    found = [json.loads(row) for row in harness(*shlex.split(line)[1:], "format=json").out.splitlines()]
    assert [[hit["doc_id"] for hit in one["documents"] if one["retrieve"]] for one in found] == [
        row["topk"] for row in rows
    ]


def test_no_search_is_proposed_that_cannot_be(harness, tmp_path):
    (tmp_path / "first.run").write_text("113 Q0 astro-001 1 1.0 x\n")
    out = harness("run", "retriever=file", "retriever.file.path=first.run", "retriever.file.missing=empty").out
    assert "harness export" in out
    assert "harness search" not in out


def test_a_search_says_that_it_is_not_that_of_a_run(harness):
    words = ("search", "query=달", "tokenizer=word")
    assert "retriever=bm25 and gate=none are the defaults. To search as one of your runs did" in harness(*words).text
    assert "are the defaults" not in harness(*words, "retriever=hybrid_lexical").text


def test_a_gate_that_learns_needs_labels(harness, toy):
    (toy / "qrels.jsonl").unlink()
    run, search = ("run", *QUIET), ("search", "query=달")
    for words, gate in ((run, "auto"), (search, "auto"), (run, "depth"), (run, "classifier")):
        refused = harness(*words, *contest(), f"gate={gate}").refusal
        assert "This gate learns from labels, and there are none" in refused
        assert "gate=fitted gate.file=" in refused
    assert not (Path("outputs") / "runs").exists()


@pytest.mark.stored
def test_what_a_gate_scores_out_of_fold_is_logged_and_kept_by_query(harness, tracker):
    """The logged means are those of the columns oof/ of scores.csv, in all and in both parts."""
    found = harness("run", "tokenizer=word", "gate=auto", "format=json", "metrics=[modified_map@3,map@3,ndcg@10]").json
    charted, folder = tracker.run(found["run_id"]).metrics, Path(found["files"]["folder"])
    written = json.loads((folder / "metrics.json").read_text("utf-8"))
    logged, table = written["metrics"], read_score_table(folder / "scores.csv")
    assert (table.oof["modified_map@3"] != table.values["modified_map@3"]).any()
    everywhere = np.ones(60, bool)
    for name in ("modified_map@3", "map@3", "ndcg@10"):
        for part, inside in (("", everywhere), ("public/", table.public), ("private/", ~table.public)):
            for prefix, values in (("", table.values[name]), ("oof/", table.oof[name])):
                assert (~np.isnan(values) == (table.needs | name.startswith("mod"))).all()
                assert logged[f"{prefix}{part}{name}"] == pytest.approx(np.nanmean(values[inside]), abs=1e-12)
        assert found["out_of_fold"][name] == logged[f"oof/{name}"]
    losses = sum(value for name, value in logged.items() if name.startswith("oof/loss/"))
    mean = logged["oof/modified_map@3"]
    assert losses == pytest.approx(1 - mean, abs=1e-12)
    low, high = (logged[f"oof/interval_{end}/modified_map@3"] for end in ("low", "high"))
    assert low < mean < high
    objective = {"name": "modified_map@3", "value": mean, "low": low, "high": high, "kind": "out of fold"}
    assert written["objective"] == found["objective"] == objective
    assert [charted[f"objective{end}"] for end in ("", "_low", "_high")] == [mean, low, high]
    assert "oof/ndcg_at_10" in charted  # in MLflow, a mean that is known out of fold is not in sample, too
    assert not {"ndcg_at_10", "modified_map_at_3"} & set(charted)
    by_name = {name.replace("@", "_at_"): value for name, value in logged.items()}
    assert all(charted[name] == value for name, value in by_name.items() if name in charted)


@pytest.mark.parametrize(("words", "said"), [((), False), (("select_on=public",), True)])
def test_looks_at_private_scores(harness, toy, words, said):
    result = package.run(*contest(), *words)
    assert result.private_peeks == 1
    assert any("have been seen" in one for one in run_report(result).verdict) == said


@pytest.mark.parametrize(
    ("value", "kind", "said"),
    [
        (0.75, "in sample", "+0.2500 against the best so far (run 3f2a91bc)."),
        (0.25, "out of fold", "-0.2500 against the best so far (run 3f2a91bc, in sample)."),
        (0.5, "in sample", "As good as the best so far (run 3f2a91bc)."),
    ],
)
def test_how_a_run_stands_is_one_sentence(value, kind, said):
    assert standing(Objective("mrr", value, kind=kind), Objective("mrr", 0.5), "3f2a91bc") == said


def test_documents_that_hold_the_queries_are_said_in_the_run_and_on_its_page(harness, toy):
    questions = [f"달의 모양은 {number}월에 왜 변해?" for number in (1, 2, 3)]
    rows = [{"eval_id": n, "msg": [{"role": "user", "content": one}]} for n, one in enumerate(questions)]
    (toy / "eval.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows = [{"docid": f"d{n}", "content": f"{one} 지구를 돌아서."} for n, one in enumerate(questions)]
    (toy / "documents.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (toy / "qrels.jsonl").write_text('{"eval_id": 0, "relevant": ["d0"]}\n')
    said = "3 of 3 queries appear word for word in a document (0 in d0, 1 in d1, 2 in d2)"
    assert f"Data: {said}" in harness("run", *contest(), "tracking=none").out
    [page] = Path("outputs/runs").glob("*/report.html")
    assert said in page.read_text("utf-8")
