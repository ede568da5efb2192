"""The list of what is logged: what compares in one table, the best first, and where to go on."""

import pytest

from harness.commands.runs import RunRow, grouped
from harness.measures.objective import Objective
from harness.tracking.tracker import LoggedRun, RunRecord, member_tag, objective_metrics

RUNS = ("runs", "experiment_name=e")


def logged(run_id, value, *, kind="in sample", name="map@3", params=None, **tags):
    objective = Objective(name, value, kind=kind)
    tags = {"harness.verb": "run", "objective.name": name, "objective.kind": kind, "data.qrels": "q"} | tags
    return RunRow(
        run := LoggedRun(run_id, run_id, "e", "FINISHED", objective_metrics(objective), params or {}, tags), run
    )


def ids(rows):
    return [[row.run.run_id for row in group.rows] for group in grouped(rows)]


def record(tracker, name, value=None, status="FINISHED", experiment="e", params=None, **tags):
    objective = None if value is None else Objective("map@3", value, value - 0.1, value + 0.1)
    tags = {"harness.verb": "run"} | {key.replace("_", "."): text for key, text in tags.items()}
    one = RunRecord(experiment, name, params=params or {}, tags=tags, objective=objective)
    run_id = tracker.begin(one)
    tracker.finish(run_id, one, status)
    return run_id


def test_what_compares_is_one_group_the_best_first():
    rows = [logged("a", 0.5), logged("b", 0.7, kind="out of fold"), logged("c", 0.6, **{"data.queries": "x"})]
    assert ids(rows) == [["b", "c", "a"]]


@pytest.mark.parametrize(
    "other",
    [
        {"name": "mrr"},
        {"kind": "public"},
        {"data.qrels": "other"},
        {"version.measures": "0"},
        {"task": "answers"},
        {"params": {"task.scheme": "other"}},
    ],
    ids=lambda other: next(iter(other)),
)
def test_what_does_not_compare_is_ranked_apart(other):
    first = logged("a", 0.5, params={"task.scheme": "one"}, **{"version.measures": "1"})
    assert sorted(ids([first, logged("b", 0.9, **{"version.measures": "1"} | other)])) == [["a"], ["b"]]


def test_only_what_varies_is_said_to_differ():
    shared = {"retriever": "bm25", "top_k": "3", "retriever.bm25.k1": "1.5"}
    [group] = grouped([
        logged("a", 0.5, params=shared | {"gate": "none"}),
        logged("b", 0.4, params=shared | {"gate": "score", "gate.threshold": "5", "rerank": "cross_encoder"}),
        logged("c", 0.3, params={"predictions": "x.csv"}, **{"harness.verb": "score"}),
    ])  # fmt: skip
    assert [row.differs for row in group.rows] == [{"gate": "none"}, {"gate": "score", "rerank": "cross_encoder"}, {}]
    said = [row[-1] for row in group.table("").rows]
    assert said == ["a (gate=none)", "b (gate=score rerank=cross_encoder)", "c"]


@pytest.mark.slow
def test_a_sweep_is_one_row_with_its_best_trial_and_lists_its_trials(harness, tracker):
    parent = record(tracker, "sweep k", 0.8, harness_verb="sweep", sweep_id="s")
    member = member_tag("s")
    best, other = (
        record(tracker, f"k={value}", value, params={"k": value}, **{"mlflow.parentRunId": parent, member: "computed"})
        for value in (0.8, 0.4)
    )
    reused = record(tracker, "mine", 0.6, params={"retriever": "bm25", "k": 0.6}, **{member: "reused"})
    tracker.tag(parent, {"best.run_id": best, "best.overrides": "k=0.8"})
    failed = record(tracker, "broken", status="FAILED")
    record(tracker, "compare", harness_verb="compare")

    ranked, rest = harness(*RUNS, "format=json").json["groups"]
    assert [(row["run_id"], row["trials"]) for row in ranked["rows"]] == [(parent, 3), (reused, None)]
    assert ranked["rows"][0]["best_run_id"] == best
    assert [(row["run_id"], row["status"]) for row in rest["rows"]] == [(failed, "FAILED")]
    [trials] = harness("runs", f"run={parent[:8]}", "format=json").json["groups"]
    assert [row["run_id"] for row in trials["rows"]] == [best, reused, other]

    text = harness(*RUNS, "top=1").out
    assert "sweep, 3 trials; best: k=0.8" in text
    assert f" {parent[:8]} " in text
    assert "1 more: top=2 lists all." in text
    assert f"harness runs experiment_name=e run={parent[:8]}" in text
    assert reused[:8] not in text.partition("Next:")[0]
    written = harness(*RUNS, "format=markdown").out
    assert f"| {reused[:8]} | mine (k=0.6) |" in written.replace("retriever=bm25 ", "")
    assert "is not a sweep" in harness("runs", f"run={reused}").err


@pytest.mark.slow
def test_experiments_are_listed_where_none_is_chosen(harness, tracker):
    for name, value, experiment in (("a", 0.5, "e"), ("b", 0.7, "f"), ("c", 0.6, "f")):
        record(tracker, name, value, experiment=experiment)
    for words in ((), ("experiment_name=null",)):
        found = harness("runs", *words, "format=json").json["experiments"]
        listed = [(one["experiment"], one["runs"], one["best"]["value"]) for one in found]
        assert listed == [("f", 2, 0.7), ("e", 1, 0.5)]
    assert "harness runs experiment_name=f" in harness("runs").out
    assert "Did you mean 'e'" in harness("runs", "experiment_name=ee").refusal
    assert "keeps no runs" in harness("runs", "tracking=none").refusal
