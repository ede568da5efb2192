"""`harness power`: what is said of two runs, which two they are, and what is refused."""

import csv
import io
import re

import numpy as np
import pytest

from harness.data.tables import csv_text
from harness.measures.objective import Objective
from harness.recording.retrieval_run import CHECKED
from harness.tracking.file_hashes import seal
from harness.tracking.tracker import RunRecord

POWER = ("power", "experiment_name=e")
QUERIES = 60


def values(wins=0, losses=0, n=QUERIES):
    """Values of modified_map@3: 0.5 on each query but the first ones, which are 1, and the next, which are 0."""
    return np.repeat([1.0, 0.0, 0.5], [wins, losses, n - wins - losses])


@pytest.fixture
def record(tracker, tmp_path):
    """Log a finished run with these values by query: record(name, values) -> its id."""

    def call(name, own, status="FINISHED", params=(), **tags):
        folder = tmp_path / f"files-{name}"
        folder.mkdir()
        n = len(own)
        columns = {"query_id": [f"q{number:03d}" for number in range(n)], "needs": [1] * n, "multi_turn": [0] * n}
        columns |= {"public": [int(number < 24) for number in range(n)]}
        columns |= {"modified_map@3": [None if np.isnan(one) else one for one in own]}
        (folder / "scores.csv").write_text(csv_text(columns), "utf-8")
        mean = float(np.nanmean(own)) if not np.isnan(own).all() else 0.0
        given = {"harness.verb": "run", "task": "retrieval", "data.qrels": "q", "trial_key": name}
        one = RunRecord(
            "e",
            name,
            params={"retriever": name, **dict(params)},
            tags=given | {key.replace("__", "."): value for key, value in tags.items()},
            metrics={"modified_map@3": mean, "public/modified_map@3": mean, "queries/scored": float(n)},
            objective=Objective("modified_map@3", mean, mean - 0.1, mean + 0.1),
            folder=folder,
        )
        seal(one, folder)
        run_id = tracker.begin(one)
        tracker.finish(run_id, one, status)
        return run_id

    return call


@pytest.mark.slow
def test_the_best_two_runs_and_what_tells_them_apart(harness, record):
    worst, best, second = record("w", values(0, 20)), record("a", values(9, 2)), record("b", values())
    found = harness(*POWER, "format=json").json
    assert [(run["label"], run["run_id"]) for run in found["runs"]] == [("A", best), ("B", second)]
    # 9 queries better by .5, 2 worse: a mean of 3.5 / 60.
    assert (found["n"], found["wins"], found["ties"], found["losses"]) == (60, 9, 49, 2)
    assert found["mean_difference"] == pytest.approx(3.5 / 60)
    assert found["sd"] == pytest.approx((values(9, 2) - 0.5).std(ddof=1))
    low, high = found["queries_needed_interval"]
    assert low < found["queries_needed"] < (high or np.inf)
    assert found["queries_needed"] > found["n"]  # p is 0.065 for 9 of 11
    assert 0.3 < found["power_now"] < 0.8
    assert found["smallest_difference"] > found["mean_difference"]
    assert any("Of 3 runs, these are the best" in note for note in found["notes"])
    assert any("Only 11 of 60 queries differ" in note for note in found["notes"])

    said = harness(*POWER, f"runs=[{worst[:8]},{best[:8]}]").out
    assert "A is better on 18, B on 0, 42 queries tie." in said.replace("\n", " ")
    assert re.search(r"Queries needed to find this difference with 80 % power: \d+ \(95 %: \d+ to \d+\)\.", said)
    assert f"harness compare experiment_name=e 'runs=[{best[:8]},{worst[:8]}]'" in said
    assert "harness testset draft" not in said  # 60 queries are enough

    rows = list(csv.DictReader(io.StringIO(harness(*POWER, "format=csv").out)))
    assert [int(row["queries"]) for row in rows] == [one["queries"] for one in found["curve"]]
    assert [float(row["power"]) for row in rows] == [one["power"] for one in found["curve"]]


@pytest.mark.slow
def test_more_drafts_are_proposed_where_queries_were_drafted(harness, record):
    record("a", values(9, 2)), record("b", values())
    assert "harness testset draft" not in harness(*POWER).out  # nothing drafts labels of other data
    drafted = {"dataset": "testset", "dataset.path": "my set", "dataset.documents": "null"}
    record("c", values(10, 2), params=drafted)
    said = harness(*POWER).out
    assert "\n  harness testset draft 'testset=my set' model=NAME dry_run=true\n" in said


@pytest.mark.slow
def test_the_queries_that_count(harness, record):
    """Where the public ones choose, the private ones; and those to which the measure applies."""
    some = np.where(np.arange(QUERIES) < 50, 1.0, np.nan)
    record("a", values(9, 2)[::-1]), record("b", values())
    found = harness(*POWER, "select_on=public", "format=json").json
    assert (found["judged_on"], found["n"], found["wins"]) == ("private", 36, 9)
    record("c", values(30) * some), record("d", values(29) * some)
    found = harness(*POWER, "format=json").json
    assert found["n"] == 50
    assert any("modified_map@3 applies to 50 of 60 labelled queries" in note for note in found["notes"])


@pytest.mark.slow
def test_what_cannot_be_told_is_refused(harness, record):
    nan = np.full(QUERIES, np.nan)
    one_query, other_query = nan.copy(), nan.copy()
    one_query[0], other_query[0] = 1.0, 0.5
    half = np.where(np.arange(QUERIES) < 30, 0.5, np.nan)
    own = {"a": values(9, 2), "same": values(9, 2), "one": one_query, "other": other_query, "half": half}
    own |= {"fewer": values(9, 2, n=40)}
    tagged = {"labels": {"data__qrels": "x"}, "running": {"status": "RUNNING"}, "checked": {CHECKED: "20"}}
    tagged |= {"task": {"task": "answers"}}
    ids = {name: record(name, of) for name, of in own.items()}
    ids |= {name: record(name, values(3), **tags) for name, tags in tagged.items()}
    refused = {
        ("a", "same"): r"have the same modified_map@3 on each of 60 queries: no number",
        ("one", "other"): r"Runs .* applies to 1 query, and at least two",
        ("a", "half"): r"applies to different queries in the two runs",
        ("a", "fewer"): r"number of scored queries|different queries",
        ("a", "labels"): r"does not have the labels of run",
        ("a", "running"): r"is RUNNING: only finished",
        ("a", "checked"): r"come partly from a model.*harness testset audit",
        ("a", "task"): r"is of task=answers.*harness compare task=answers",
        ("a",): r"runs names 1 run\. Name the two",
        ("a", "a"): r"twice",
    }
    for names, expected in refused.items():
        said = harness(*POWER, f"runs=[{','.join(ids[name] for name in names)}]").refusal
        assert re.search(expected, said, re.S), names


def test_what_no_config_can_have_is_refused(harness, tmp_path):
    for word, expected in {
        "power=1": "power=1 is too large: the maximum is 0.99",
        "alpha=0": "alpha=0 is too small",
        "task=answers": "task=answers: harness power needs a value for each query.*harness board task=answers",
        "experiment_name=none_such": "no such experiment",
        "metric=abstention_f1": "is not a mean over queries",
    }.items():
        assert re.search(expected, harness("power", word).refusal, re.S), word
