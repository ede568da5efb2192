"""`harness board`: which runs stand on it, what is printed and written, what is refused."""

import csv
import re
from pathlib import Path

import pytest
from html_pages import data_of
from logged_runs import RUN, WITHHELD

BOARD = ("board", "experiment_name=e", "format=json")


@pytest.fixture
def runs(logged):
    """Two runs: the first withholds everything and scores 1/3, the second is right everywhere."""
    return [done.json["run_id"] for done in logged(WITHHELD, RUN)]


def test_the_board_of_an_experiment(harness, runs, tmp_path):
    worse, better = runs
    harness(*RUN)  # a repeated configuration stands there once
    found = harness(*BOARD).json
    first, second = found["rows"]
    assert (first["run_id"], first["short_name"], first["group"]) == (better, "bm25 · none", "best")
    assert (second["run_id"], second["short_name"], second["group"]) == (worse, "bm25 · score", "same")
    assert found["notes"] == ["1 run left out, since another run has the same configuration."]
    assert (found["metric"], found["queries"], found["select_on"]) == ("modified_map@3", 3, "all")
    assert (second["p"], second["p_holm"], second["difference"]) == (0.5, 0.5, pytest.approx(-2 / 3))
    assert {"key": "gate", "above": "none", "here": "score"} in second["changed"]
    assert first["mb"] > 0  # the index in the cache
    assert found["recommended"]["run_id"] == better
    assert found["not_told_apart"] == [better, worse]
    assert found["private_peeks"] == 4  # those of the three runs, and this one
    page = data_of(Path(found["files"]["html"]).read_text("utf-8"))
    assert Path(found["files"]["html"]) == tmp_path / "outputs" / "board.html"
    assert [run["id"] for run in page["runs"]] == [better, worse]
    assert page["leaderboard"]["recommended"]["reason"]["en"] == found["recommended"]["reason"]
    assert page["queries"]["ids"] == ["3", "5", "7"]


def test_only_a_board_is_replaced(harness, runs, tmp_path):
    page, mine = tmp_path / "outputs" / "board.html", tmp_path / "mine.html"
    for _ in range(2):
        assert harness(*BOARD).code == 0
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")
    mine.write_text("<!DOCTYPE html>\n<title>Mine</title>")
    for place in ("mine.html", "outputs"):
        assert f"output={place} exists and is not a board" in harness(*BOARD, f"output={place}").refusal
    assert mine.read_text() == "<!DOCTYPE html>\n<title>Mine</title>"


def test_what_people_and_papers_read(harness, runs):
    named = f"runs=[{runs[0][:8]},{runs[1][:8]}]"
    said = harness("board", "experiment_name=e", named, "output=mine/b.html").out
    assert "Experiment 'e': 2 runs by modified_map@3, in sample, 3 queries" in said
    assert "Verdict\n  bm25 · none has the highest modified_map@3 of 2 runs, 1.0000;" in said
    assert f"harness export experiment_name=e run={runs[1][:8]}" in said
    assert Path("mine/b.html").is_file()
    first, second = csv.DictReader(harness("board", "experiment_name=e", "format=csv").out.splitlines())
    assert (first["run"], float(first["modified_map@3"])) == ("bm25 · none", 1)
    assert (second["run"], float(second["modified_map@3"])) == ("bm25 · score", pytest.approx(1 / 3))
    assert "| bm25 · none |" in harness("board", "experiment_name=e", "format=markdown").out


def test_losses_are_those_of_the_measure(harness, runs, tmp_path):
    """The file finds everything among its first three, so that nothing is lost of hit@3, which leaves query 5 out."""
    (tmp_path / "f.jsonl").write_text("".join(f'{{"eval_id": {n}, "topk": ["d2", "d1", "d3"]}}\n' for n in (7, 3, 5)))
    file = harness("score", "predictions=f.jsonl", *RUN[1:3], *RUN[4:]).json["run_id"]
    worse, pages = runs[0], {}
    for measure in ("modified_map@3", "hit@3"):
        found = harness(*BOARD, f"metric={measure}").json
        page = data_of(Path(found["files"]["html"]).read_text("utf-8"))
        pages[measure] = {run["id"]: run["losses"] for run in page["runs"]}
    assert pages["modified_map@3"][file] == {"wrongly_returned": 1, "misranked": 1}
    assert pages["hit@3"][file] == {}
    assert pages["hit@3"][worse] == pages["modified_map@3"][worse] == {"wrongly_withheld": 2}


@pytest.mark.slow
def test_what_returns_the_same_is_one_row(harness, runs, toy):
    """The file that a run exports, scored twice, and a run with other settings and equal lists."""
    worse, better = runs
    harness("export", f"run={better}", "experiment_name=e", "submission=first.csv")
    score = ("score", "predictions=first.csv", *RUN[1:3], "experiment_name=e")
    said = harness(*score).out
    assert f"This file has the same lists as run {better[:8]}" in said
    assert "harness compare" not in said
    harness(*score)
    twin = harness(*RUN, "top_k=2").json["run_id"]
    found = harness(*BOARD).json
    assert [(row["run_id"], len(row["also"])) for row in found["rows"]] == [(better, 3), (worse, 0)]
    shown = harness("board", "experiment_name=e").out
    assert " ".join(shown.split()).count(f"bm25 · none, also {twin[:8]}, first.csv") == 1
    assert f"runs=[{better[:8]},{worse[:8]}]'" in shown  # and not with a twin
    assert "predictions" not in shown.partition("What matters")[2].partition("Notes")[0]
    listed = harness("runs", "experiment_name=e").out
    assert f"runs=[{better[:8]},{worse[:8]}]'" in listed
    assert " ".join(listed.split()).count("returns the same as") == 3
    assert len(harness("compare", "experiment_name=e", "top=3", "format=json").json["runs"]) == 2
    refused = harness("power", "experiment_name=e", f"runs=[{better},{twin}]").refusal
    assert "they return the same documents for every query" in refused


@pytest.mark.slow
def test_a_sweep_stands_for_its_trials(harness, toy):
    sweep = harness("sweep", *RUN[1:], "gate=none,score", "gate.threshold=99").json
    harness(*RUN, "top_k=3", "gate=score", "gate.threshold=0")
    rows = harness(*BOARD, f"runs=[{sweep['run_id']}]").json["rows"]
    assert {row["run_id"] for row in rows} == {row["run_id"] for row in sweep["top"]}
    assert all(row["mb"] > 0 for row in rows)


def test_runs_that_do_not_compare_are_left_out_or_refused(harness, runs, tmp_path):
    labels = Path("toy/qrels.jsonl")
    labels.write_text(labels.read_text("utf-8").replace("d2", "d1"), "utf-8")
    other = harness(*RUN).json["run_id"]
    assert harness(*BOARD).json["notes"] == [
        "1 run of the experiment left out for a difference in labels from the best run: the scores are not comparable."
    ]
    assert "does not have the labels of run" in harness("board", f"runs=[{runs[0]},{other}]").refusal


REFUSED = {
    "metric=abstention_auroc": "is not a mean over queries",
    "metric=mrr@99": "no finished run of experiment 'e' has it",
    "experiment_name=f": "no such experiment",
    "runs=[ffffffff]": "no such run",
    "output=": "output is empty",
    "tracking=none": "keeps no runs for a board",
    "task=answers": "has no finished run of task=answers",
}


@pytest.mark.slow
def test_what_is_no_board(harness, logged, tmp_path):
    logged(RUN)
    for word, expected in REFUSED.items():
        assert expected in harness("board", "experiment_name=e", word).refusal, word
    assert "at least two are needed" in harness("board", "experiment_name=e").refusal
    for file in (tmp_path / "outputs" / "artifacts").rglob("scores.csv"):
        file.unlink()
    harness(*RUN, "gate=score", "gate.threshold=99")
    refused = harness("board", "experiment_name=e").refusal
    assert re.search(r"scores\.csv of run .* is gone \(FileNotFoundError\)", refused)
