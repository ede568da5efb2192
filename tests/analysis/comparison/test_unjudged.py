"""Labels with holes, from the file to what is said of runs: `run`, `score` and `compare`."""

import json
from pathlib import Path

import pytest

from harness.recording.logged_run import in_full
from harness.tracking.mlflow_tracker import MlflowTracker

TEXTS = {"d1": "달은 지구를 돈다", "d2": "달은 밤에 밝다", "d3": "달은 멀다", "d4": "해는 뜨겁다", "d5": "해는 크다",
         "d6": "별은 많다"}  # fmt: skip
QUERIES = {"q1": "달은 무엇을 도나", "q2": "해는 뜨겁나", "unmet": "별은", "none": "고마워", "open": "달은 누가 그렸나"}
LABELS = [
    {"eval_id": "q1", "needs": True, "kind": "fact", "relevant": {"d1": 2}, "not_relevant": ["d2", "d3"]},
    {"eval_id": "q2", "needs": True, "kind": "search", "relevant": {"d4": 3}, "not_relevant": ["d1"]},
    {"eval_id": "unmet", "needs": True, "kind": "fact", "relevant": {}, "not_relevant": ["d6", "d9"]},
    {"eval_id": "none", "needs": False, "kind": "none", "relevant": {}, "not_relevant": ["d6"]},
    {"eval_id": "open", "needs": True, "kind": "unanswerable", "relevant": {}, "not_relevant": ["d1"]},
]
# Of 3 documents: A shows q1 3 judged ones, q2 2 of 2, unmet 1 of 1: judged@3 = 1. B shows q1 1 of 3, q2 1 of 2, unmet
# 0 of 1: (1/3 + 1/2 + 0) / 3 = 0.2778; unjudged are d4, d5 for q1, d5 for q2 and d1 for unmet.
A = {"q1": ["d1", "d2", "d3"], "q2": ["d4", "d1"], "unmet": ["d6"], "none": [], "open": []}
B = {"q1": ["d4", "d1", "d5"], "q2": ["d5", "d4"], "unmet": ["d1"], "none": ["d5"], "open": ["d2"]}
SCORE = ("score", "dataset=contest", "dataset.path=set", "experiment_name=e", "missing=zero", "format=json")


def lines(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "set").mkdir()
    lines(tmp_path / "set" / "documents.jsonl", [{"docid": key, "content": text} for key, text in TEXTS.items()])
    turns = {key: [{"role": "user", "content": text}] for key, text in QUERIES.items()}
    lines(tmp_path / "set" / "eval.jsonl", [{"eval_id": key, "msg": msg} for key, msg in turns.items()])
    lines(tmp_path / "set" / "qrels.jsonl", LABELS)
    for name, lists in (("a", A), ("b", B)):
        lines(tmp_path / f"{name}.jsonl", [{"eval_id": key, "topk": docs} for key, docs in lists.items()])
    return tmp_path


@pytest.fixture
def scored(harness, folder):
    return [harness(*SCORE, f"predictions={name}.jsonl").json for name in "ab"]


def test_a_scored_file_shows_how_much_was_judged_and_unanswerable_queries_apart(harness, scored, folder):
    a, b = scored
    assert (a["metrics"]["judged@3"], b["metrics"]["judged@3"]) == (1, pytest.approx(5 / 18))
    assert a["summary"]["judged@3"]["n"] == 3
    # unmet needs retrieval and is failed by every run; the unanswerable query is part of none of these numbers
    assert a["metrics"]["hit@3"] == pytest.approx(2 / 3)
    assert (a["counts"]["scored"], a["counts"]["needs_no_retrieval"], a["counts"]["unanswerable"]) == (4, 1, 1)
    assert a["counts"]["unlabelled"] == 0
    apart = {"n": 1, "low": None, "high": None, "note": "one query: no interval"}
    assert a["unanswerable_abstention"] == {"mean": 1.0, **apart}
    assert b["unanswerable_abstention"] == {"mean": 0.0, **apart}
    shown = harness(*SCORE[:-1], "predictions=b.jsonl").out
    assert "judged@3" in shown
    assert "unanswerable_abstention" in shown
    assert "1 unanswerable, scored separately." in shown
    lines(folder / "plain.jsonl", [{"eval_id": "q1", "relevant": ["d1"]}])
    refused = harness(*SCORE, "predictions=a.jsonl", "dataset.qrels=plain.jsonl", "metrics=[bpref]")
    assert refused.code == 2
    assert "'bpref' asks which documents were judged, and these labels do not say that" in refused.err


@pytest.mark.slow
def test_what_holes_do_is_said_where_runs_are_compared(harness, scored):
    def compared(*runs):
        ids = ",".join(one["run_id"] for one in runs)
        return harness("compare", "experiment_name=e", f"runs=[{ids}]", "metric=modified_map@3", "format=json").json

    found = compared(*scored)
    assert found["unjudged"]["k"] == 3
    assert found["unjudged"]["judged"] == {"A": 1, "B": pytest.approx(5 / 18)}
    assert [(one["run"], one["query_id"], one["doc_id"], one["rank"]) for one in found["unjudged"]["documents"]] == [
        ("B", "q1", "d4", 1), ("B", "q1", "d5", 3), ("B", "q2", "d5", 1), ("B", "unmet", "d1", 1),
    ]  # fmt: skip
    assert [run["unanswerable_abstention"] for run in found["runs"]] == [1, 0]
    notes = " ".join(found["notes"])
    assert "Warning: fewer documents of B were judged than of A: judged@3 is 0.278 against 1.000." in notes
    assert "Documents of B to judge: d4 for query q1, d5 for query q1, d5 for query q2, d1 for query unmet." in notes
    assert "1 query needs retrieval, but no judged document is relevant" in notes
    assert json.loads(Path(found["files"]["json"]).read_text("utf-8"))["unjudged"] == found["unjudged"]
    markdown = Path(found["files"]["md"]).read_text("utf-8")
    assert "judged@3" in markdown.replace("\\", "").replace("&#64;", "@")
    again = compared(scored[0], harness(*SCORE, "predictions=a.jsonl", "run_name=again").json)  # as much was judged
    assert again["unjudged"]["documents"] == []
    assert not any("Warning: fewer" in note for note in again["notes"])


def test_a_run_shows_the_same_on_its_page_and_in_mlflow(harness, folder):
    run = ("run", "dataset=contest", "dataset.path=set", "tokenizer=char_ngram", "experiment_name=e")
    found = harness(*run, "top_k=2", "format=json").json
    assert 0 < found["metrics"]["judged@2"] < 1
    assert found["unanswerable_abstention"]["n"] == 1
    tracker = MlflowTracker()
    tracker.connect(folder / "outputs")
    logged = tracker.run(found["run_id"])
    assert logged.metrics["judged_at_2"] == found["metrics"]["judged@2"]
    assert logged.metrics["unanswerable_abstention"] == found["unanswerable_abstention"]["mean"]
    assert "public/judged_at_2" in in_full(tracker, logged).metrics
    report = (Path(found["files"]["folder"]) / "report.html").read_text("utf-8")
    assert "judged@2" in report
    note = logged.tags["mlflow.note.content"]
    assert "judged&#64;2" in note or "judged@2" in note
    assert "unanswerable" in note
    told = harness(*run).out
    assert "1 labelled query needs retrieval, but no judged document is relevant" in told
    assert "9 judged pairs" not in told  # the unanswerable query's are apart
    assert "8 judged pairs of a query and a document, 2.0 per query; 2 of them relevant." in told
    assert "1 document named in the labels, but missing from the dataset (none is relevant): d9." in told
    again = harness("reproduce", f"run={found['run_id']}", "format=json").json
    assert again["reproduced"]
