"""Which run is the best, by its own objective or by another measure, and which runs are compared."""

import json
from dataclasses import replace

import pytest
from fakes import FakeTracker

from harness.analysis.ranking import (
    Wanted,
    best_run,
    chosen_runs,
    distinct,
    is_same,
    leader,
    needed_metric,
    rank,
    settled,
)
from harness.commands.compare import choose_runs
from harness.config.commands import CompareConfig, RankingConfig
from harness.config.text import counted
from harness.errors import BadInput
from harness.measures.objective import Objective
from harness.recording.run_kind import RunKind
from harness.tracking.tracker import LoggedRun, RunRecord, Tracker, measured, objective_metrics

METRIC = "map@3"
NAMES = {"all": "map_at_3", "oof": "oof/map_at_3", "public": "public/map_at_3"}


def logged(run_id, *, verb="run", task=None, select_on="all", objective=None, began=0, labels="q", **numbers):
    """A run with metrics by short names. objective: its own, as versions from 0.3 on log it. labels: None for none."""
    tags = {"harness.verb": verb} | ({"task": task} if task else {}) | ({"data.qrels": labels} if labels else {})
    metrics = {NAMES.get(name, name): value for name, value in numbers.items()} | objective_metrics(objective)
    if objective:
        tags |= {"objective.name": objective.name, "objective.kind": objective.kind}
    params = {"select_on": select_on} | ({} if objective or labels else {"objective": METRIC})
    return LoggedRun(run_id, run_id, "e", "FINISHED", metrics, params, tags, began)


def first(*runs, metric=METRIC, folder="no folder", **wanted):
    return best_run(FakeTracker(*runs, folder=folder), Wanted("e", metric, **wanted)).run_id


@pytest.mark.parametrize(
    ("names", "select_on", "kind"),
    [
        (["map_at_3", "public/map_at_3"], "all", "in sample"),
        (["map_at_3", "public/map_at_3"], "public", "public"),
        (["map_at_3", "oof/map_at_3", "public/map_at_3"], "all", "out of fold"),
        (["map_at_3", "oof/map_at_3", "public/map_at_3", "oof/public/map_at_3"], "public", "public, out of fold"),
        (["map_at_3", "private/map_at_3", "map_at_30"], "public", None),  # no part stands in for another
        (["public/map_at_3"], "all", None),
        ([], "all", None),
    ],
)
def test_a_score_is_out_of_fold_and_of_the_part_that_chooses(names, select_on, kind):
    found = measured(dict.fromkeys(names, 0.5), METRIC, select_on)
    assert (found and found.kind) == kind


def test_the_best_run_has_the_highest_score_that_counts(tmp_path):
    fitted = [logged("fitted", all=0.9, oof=0.4), logged("plain", all=0.5)]
    assert first(*fitted) == "plain"
    assert first(*fitted, logged("better", all=0.6, oof=0.55)) == "better"
    assert first(logged("a", all=0.9, oof=0.5), logged("b", all=0.5), logged("c", all=0.7, oof=0.5)) == "a"  # earliest
    parts = [logged("a", all=0.9, public=0.1), logged("b", all=0.1, public=0.5), logged("c", all=0.99)]
    assert (first(*parts), first(*parts, select_on="public")) == ("c", "b")
    # The public part of another measure is in the file of all metrics alone.
    runs = [logged("a", objective=Objective("mrr", 0.1), all=0.2), logged("b", all=0.3)]
    document = {"objective": None, "metrics": {"public/map@3": 0.4, "map@3": 0.2}}
    FakeTracker(folder=tmp_path).write("a", "metrics.json", json.dumps(document))
    assert first(*runs, select_on="public", folder=tmp_path) == "a"


def test_files_are_ranked_with_runs_but_tasks_apart():
    runs = [logged("run", all=0.5), logged("file", verb="score", all=0.6), logged("text", task="answers", all=0.7),
            logged("sweep", verb="sweep", all=0.9)]  # fmt: skip
    assert first(*runs) == "file"
    assert first(*runs, verbs=("run",)) == "run"
    assert first(*runs, task="answers") == "text"


def test_a_run_is_ranked_by_its_own_objective():
    own = logged("own", objective=Objective(METRIC, 0.7, 0.6, 0.8, "out of fold"), all=0.9, oof=0.7)
    ranking = rank(FakeTracker(own, logged("old", all=0.65)), Wanted("e", METRIC))
    assert [one.run.run_id for one in ranking.runs] == ["own", "old"]
    assert ranking.runs[0].score == Objective(METRIC, 0.7, 0.6, 0.8, "out of fold")


def test_runs_of_the_public_part_are_ranked_by_it_unless_asked_otherwise():
    runs = [
        logged("a", objective=Objective(METRIC, 0.4, kind="public"), select_on="public", all=0.9, public=0.4),
        logged("b", objective=Objective(METRIC, 0.5, kind="public"), select_on="public", all=0.1, public=0.5),
    ]
    assert rank(FakeTracker(*runs), Wanted("e", METRIC)).select_on == "public"
    assert (first(*runs), first(*runs, select_on="all")) == ("b", "a")
    mixed = [*runs, logged("c", objective=Objective(METRIC, 0.6), all=0.6, public=0.45)]
    with pytest.raises(BadInput, match="Experiment 'e' has 2 runs ranked by the public queries alone and 1 by all"):
        first(*mixed)
    assert (first(*mixed, select_on="public"), first(*mixed, select_on="all")) == ("b", "a")


def twin(run, key, lists="l", began=0, **tags):
    own = {"trial_key": key, "lists.sha256": lists, "data.qrels": "q"} | tags
    kept = {name: value for name, value in own.items() if value is not None}
    return replace(run, tags=run.tags | kept, began=began)


def once(*runs, metric=METRIC, **more):
    found = distinct(rank(FakeTracker(*runs), Wanted("e", metric)).runs, **more)
    return [(one.run.run_id, [other.run_id for other in one.also]) for one in found]


def test_runs_that_return_the_same_are_one_a_run_before_a_file():
    file = twin(logged("file", verb="score", all=0.9), None, began=1)
    own, other = twin(logged("own", all=0.9, oof=0.6), "a", began=2), twin(logged("other", all=0.7), "b", "m", began=3)
    assert once(file, own, other) == [("other", []), ("own", ["file"])]  # by what the run scores out of fold
    assert first(file, own) == "own"
    late = twin(logged("late", all=0.9), "c", began=4)
    assert once(own, late) == [("own", ["late"])]
    assert once(own, late, by_lists=False) == [("late", []), ("own", [])]
    again = twin(logged("again", all=0.5), "a", "n", began=5)  # the configuration of `own`, with other lists
    assert once(own, again, late) == [("own", ["late", "again"])]
    timed = [twin(logged(name, objective=Objective("ms_per_query", 2.0)), name) for name in "ab"]
    assert once(*timed, metric="ms_per_query") == [("a", []), ("b", [])]


@pytest.mark.parametrize(
    "tags", [{"lists": "m"}, {"lists": None}, {"data.qrels": "p"}, {"scored.sha256": "s"}, {"version.measures": "0"}]
)
def test_equal_lists_on_other_data_are_other_results(tags):
    one, other = twin(logged("a", all=0.5), "a"), twin(logged("b", all=0.5), "b", began=1, **tags)
    assert not is_same(one, other)
    assert once(one, other) == [("a", []), ("b", [])]


def asked(**values):
    """The config of a command that ranks the runs of an experiment."""
    return RankingConfig.of({"metric": None, "experiment_name": "e"} | values)


def by(name, began, value=0.5):
    return logged(f"{name}{began}", objective=Objective(name, value), began=began)


def test_nothing_to_choose_from_is_said():
    with pytest.raises(BadInput, match=r"no finished run of experiment 'e' has it. Did you mean 'map@3'\?"):
        first(logged("a", all=0.5), metric="map@4")
    with pytest.raises(BadInput, match=r"The runs of 'e' are ranked by mrr: choose metric=mrr\."):
        first(by("mrr", 1))
    with pytest.raises(BadInput, match=r"Experiment 'e' has no finished run\. To see what it has: harness runs exp"):
        first()
    with pytest.raises(BadInput, match=r"experiment_name='f': no such experiment in .*Known: e\."):
        best_run(FakeTracker(), Wanted("f", METRIC))
    bare = FakeTracker(logged("a", labels=None), logged("b", labels=None))
    for measure in (None, "ndcg@10"):
        config, _ = settled(bare, asked(metric=measure))
        with pytest.raises(BadInput, match=r"'e' has 2 finished runs, none with labels, .*testset draft") as error:
            rank(bare, Wanted("e", config.document["metric"]))
        assert "harness run " not in str(error.value)  # which would make another run without labels


CHOSEN = {
    "all runs": ([by("map", 1), by("map", 2)], "map", None),
    "most runs": ([by("map", 1), by("map", 2), by("mrr", 3)], "map", "Ranked by map, the objective of 2 of 3 runs"),
    "the latest of equally many": ([by("map", 1), by("mrr", 2)], "mrr", "Ranked by mrr, the objective of 1 of 2 runs"),
    "runs without a score do not count": ([by("map", 1), logged("x", labels=None, began=2)], "map", None),
    "runs of other tasks do not count": ([by("map", 1), logged("x", task="answers", objective=Objective("em", 1))],
                                         "map", None),
}  # fmt: skip


@pytest.mark.parametrize(("runs", "measure", "why"), CHOSEN.values(), ids=CHOSEN)
def test_without_a_measure_runs_are_ranked_by_what_most_of_them_are(runs, measure, why):
    config, notes = settled(FakeTracker(*runs), asked())
    assert config.metric == measure
    assert [note.startswith(why) for note in notes] == [True] if why else notes == []
    assert settled(FakeTracker(*runs), asked(metric="hit@1")) == (asked(metric="hit@1"), [])


def test_named_runs_decide_for_themselves_and_name_the_measure_only_where_they_do_not_say_it():
    runs = by("map", 1), by("map", 2), by("mrr", 3)
    store = FakeTracker(*runs, by("mrr", 4))
    assert settled(store, asked(run="map1"))[0].metric == "map"
    config, [note] = settled(store, asked(runs=["map1", "map2", "mrr3"]))
    assert config.metric == "map"
    assert note.startswith("Ranked by map, the objective of 2 of 3 named runs")
    assert [needed_metric(name, *runs[:2]) for name in ("map", "mrr")] == [None, "mrr"]
    assert needed_metric("map", *runs) == "map"


def test_the_leader_is_the_best_of_the_other_runs_that_compare(tracker):
    def run(value, kind="in sample", status="FINISHED", **params):
        objective = Objective(METRIC, value, kind=kind)
        tags = {"harness.verb": "run", "data.qrels": params.pop("qrels", "q")}
        record = RunRecord("e", "n", {"select_on": objective.select_on, "seed": 0} | params, tags, objective=objective)
        run_id = tracker.begin(record)
        tracker.finish(run_id, record, status)
        found = leader(tracker, record, run_id)
        return run_id, found and found.run_id

    first, none = run(0.5)
    assert none is None
    second, found = run(0.7, "out of fold", seed=1)
    assert found == first
    run(0.9, status="FAILED")
    run(0.9, qrels="other")
    assert run(0.9, "public")[1] is None
    assert run(0.8, "public", seed=1)[1] is None, "another public part"
    assert run(0.1)[1] == second
    run(0.7)
    assert run(0.1)[1] == second, "the earlier of equal ones"
    assert leader(Tracker(), RunRecord("e", "n", objective=Objective(METRIC, 0.5)), "") is None
    assert leader(tracker, RunRecord("e", "n"), "") is None


# ---- The runs that are compared where none is named: the best ones scored on the same queries

OTHER = "Files left out, since scored on other queries: "


def on(run_id, value, scored="all", queries=3, labels="q", verb="run"):
    """scored: stands for the ids of its scored queries."""
    run = logged(run_id, verb=verb, labels=labels, all=value, **{"queries/scored": queries})
    return replace(run, tags=run.tags | {"scored.sha256": scored})


def file(*given, **more):
    return on(*given, verb="score", **more)


TIED = file("c", 0.9, "easy", queries=2), file("d", 0.8, "easy", queries=2), file("a", 0.5), file("b", 0.4)


@pytest.mark.parametrize(
    ("runs", "kept", "left"),
    [
        ((on("a", 0.5), on("b", 0.4), file("same", 0.6), file("easy", 0.9, "easy"), file("few", 0.8, "few")),
         ["same", "a", "b"], "easy, few"),
        ((on("a", 0.5), file("same", 0.6)), ["same", "a"], None),
        ((on("a", 0.5), on("b", 0.4), file("x", 0.9, labels="p")), ["a", "b"], "x"),
        # Files alone: the queries of most of them, or the larger set.
        ((file("easy", 0.9, "easy"), file("a", 0.5), file("b", 0.4)), ["a", "b"], "easy"),
        (TIED, ["a", "b"], "c, d"),
    ],
)  # fmt: skip
def test_a_file_scored_on_other_queries_or_labels_is_left_out(runs, kept, left):
    found = chosen_runs(FakeTracker(*runs), Wanted("e", METRIC))
    assert [one.run.run_id for one in found.runs] == kept
    assert [note.removeprefix(OTHER).partition(".")[0] for note in found.notes] == ([left] if left else [])


def test_why_an_equal_run_is_left_out_is_said():
    own, other = twin(logged("own", all=0.9), "a", began=1), twin(logged("other", all=0.7), "b", "m", began=2)
    again, late = twin(logged("again", all=0.9), "a", "n", began=3), twin(logged("late", all=0.9), "c", began=4)
    configuration, lists = "has the same configuration", "returned equal lists"
    for more, why in (([again], configuration), ([late], lists), ([again, late], f"{configuration} or {lists}")):
        found = chosen_runs(FakeTracker(own, other, *more), Wanted("e", METRIC))
        assert found.notes == [f"{counted(len(more), 'run')} left out, since another run {why}."]


def test_fewer_than_two_such_runs_are_refused():
    with pytest.raises(BadInput, match=f"1 distinct finished run.*{OTHER}easy"):
        chosen_runs(FakeTracker(file("easy", 0.9, "easy", queries=2), file("a", 0.5)), Wanted("e", METRIC))


def test_a_choice_flatters_only_where_something_was_left():
    """Of three runs, three are no choice."""
    store = FakeTracker(on("a", 0.5), on("b", 0.4), on("c", 0.3))
    config = CompareConfig.of({"runs": [], "metric": METRIC, "experiment_name": "e", "select_on": None, "top": 3})
    for top, flatters in ((3, False), (2, True)):
        notes = choose_runs(store, config.changed(top=top), RunKind()).notes
        assert ("flatters" in " ".join(notes)) == flatters
