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
    assert [(row["run_id"], row["short_name"]) for row in found["rows"]] == [
        (better, "bm25 · none"), (worse, "bm25 · score")
    ]  # fmt: skip
    assert found["notes"] == ["1 run with the configuration or the returned documents of another run: left out."]
    assert (found["metric"], found["queries"], found["select_on"]) == ("modified_map@3", 3, "all")
    first, second = found["rows"]
    assert (first["group"], second["group"], second["p"], second["p_holm"]) == ("best", "same", 0.5, 0.5)
    assert second["difference"] == pytest.approx(-2 / 3)
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
    assert not list((tmp_path / "outputs").glob("*.tmp"))


def test_only_a_board_is_replaced(harness, runs, tmp_path):
    page, mine = tmp_path / "outputs" / "board.html", tmp_path / "mine.html"
    for _ in range(2):
        assert harness(*BOARD).code == 0
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")
    mine.write_text("<!DOCTYPE html>\n<title>Mine</title>")
    for place in ("mine.html", "outputs"):
        done = harness(*BOARD, f"output={place}")
        assert (done.code, f"output={place} exists and is not a board" in done.err) == (2, True)
    assert mine.read_text() == "<!DOCTYPE html>\n<title>Mine</title>"


def test_what_people_and_papers_read(harness, runs):
    said = harness("board", "experiment_name=e", f"runs=[{runs[0][:8]},{runs[1][:8]}]", "output=mine/b.html")
    assert "Experiment 'e': 2 runs by modified_map@3, in sample, 3 queries" in said.out
    assert "Verdict\n  bm25 · none has the highest modified_map@3 of 2 runs, 1.0000;" in said.out
    assert f"harness export experiment_name=e run={runs[1][:8]}" in said.out
    assert Path("mine/b.html").is_file()
    table = harness("board", "experiment_name=e", "format=csv").out
    rows = list(csv.DictReader(table.splitlines()))
    assert [(row["run"], float(row["modified_map@3"])) for row in rows] == [
        ("bm25 · none", 1), ("bm25 · score", pytest.approx(1 / 3))
    ]  # fmt: skip
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


def test_what_returns_the_same_is_one_row(harness, runs, toy):
    """The file that a run exports, scored twice, and a run with other settings and equal lists."""
    worse, better = runs
    harness("export", f"run={better}", "experiment_name=e", "submission=first.csv")
    score = ("score", "predictions=first.csv", *RUN[1:3], "experiment_name=e")
    said = harness(*score).out
    assert f"The same lists as run {better[:8]}" in said
    assert "harness compare" not in said
    harness(*score)
    twin = harness(*RUN, "top_k=2").json["run_id"]
    found = harness(*BOARD).json
    assert [row["run_id"] for row in found["rows"]] == [better, worse]
    assert len(found["rows"][0]["also"]) == 3
    shown = harness("board", "experiment_name=e").out
    assert " ".join(shown.split()).count(f"bm25 · none, also {twin[:8]}, first.csv") == 1
    assert f"runs=[{better[:8]},{worse[:8]}]'" in shown  # and not with a twin
    assert "predictions" not in shown.partition("What matters")[2].partition("Notes")[0]
    listed = harness("runs", "experiment_name=e").out
    assert f"runs=[{better[:8]},{worse[:8]}]'" in listed
    assert " ".join(listed.split()).count("returns the same as") == 3
    compared = harness("compare", "experiment_name=e", "top=3", "format=json").json
    assert len(compared["runs"]) == 2
    done = harness("power", "experiment_name=e", f"runs=[{better},{twin}]")
    assert (done.code, "they return the same documents for every query" in done.err) == (2, True)


def test_a_sweep_stands_for_its_trials(harness, toy):
    sweep = harness("sweep", *RUN[1:], "top_k=1,2", "gate=none,score", "gate.threshold=99").json
    harness(*RUN, "top_k=3")
    found = harness(*BOARD, f"runs=[{sweep['run_id']}]").json
    assert {run_id for row in found["rows"] for run_id in (row["run_id"], *row["also"])} == {
        row["run_id"] for row in sweep["top"]
    }
    assert all(row["mb"] > 0 for row in found["rows"])
    # Equal scores: the quickest or the first, and it says so.
    assert "score" in found["recommended"]["reason"]


def test_runs_that_do_not_compare_are_left_out_or_refused(harness, runs, tmp_path):
    labels = Path("toy/qrels.jsonl")
    labels.write_text(labels.read_text("utf-8").replace("d2", "d1"), "utf-8")
    other = harness(*RUN).json["run_id"]
    assert harness(*BOARD).json["notes"] == [
        "1 run of the experiment left out for a difference in labels from the best one: the scores are not comparable."
    ]
    done = harness("board", f"runs=[{runs[0]},{other}]")
    assert done.code == 2
    assert "does not have the labels of run" in done.err
    assert not (tmp_path / "outputs" / "board.html.tmp").exists()


REFUSED = {
    "metric=abstention_auroc": "is not a mean over queries",
    "metric=mrr@99": "no finished run of experiment 'e' has it",
    "experiment_name=f": "no such experiment",
    "runs=[ffffffff]": "no such run",
    "output=": "output is empty",
    "tracking=none": "keeps no runs for a board",
    "task=answers": "has no finished run of task=answers",
}


def test_what_is_no_board(harness, logged, tmp_path, request):
    one_run = logged(RUN)[0].json["run_id"]
    for word, expected in REFUSED.items():
        done = harness("board", "experiment_name=e", word)
        assert (done.code, expected in done.err) == (2, True), word
    done = harness("board", "experiment_name=e")
    assert (done.code, "at least two are needed" in done.err) == (2, True)
    store = request.getfixturevalue("tracker")
    running = store.client.create_run(store._experiment_id("e"), tags={"harness.verb": "run"}).info.run_id
    done = harness("board", f"runs=[{one_run},{running}]")
    assert (done.code, "only finished runs" in done.err) == (2, True)
    store.client.delete_run(running)
    done = harness("board", f"runs=[{one_run},{running}]")
    assert (done.code, "was deleted" in done.err) == (2, True)
    for file in (tmp_path / "outputs" / "artifacts").rglob("scores.csv"):
        file.unlink()
    harness(*RUN, "gate=score", "gate.threshold=99")
    done = harness("board", "experiment_name=e")
    assert done.code == 2
    assert re.search(r"scores\.csv of run .* is gone \(FileNotFoundError\)", done.err)
    assert done.out == ""
