"""Which run of an experiment is best, by its own objective or by another measure, and which runs compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from harness.config.commands import ExportConfig, ReproduceConfig
from harness.config.schema import Config
from harness.config.text import counted
from harness.errors import BadInput, did_you_mean
from harness.measures.measures import of_spans
from harness.measures.objective import Objective
from harness.recording.logged_run import in_full, recommended
from harness.recording.retrieval_run import LISTS, SCORED_IDS
from harness.tracking.mlflow_client import shown_address
from harness.tracking.tracker import (
    LESS_IS_BETTER,
    OBJECTIVE,
    RETRIEVAL,
    LoggedRun,
    RunRecord,
    Tracker,
    member_tag,
)

SCORED = ("run", "score")  # commands whose runs have scores of their own; a trial of a sweep is a run, too

SCORED_QUERIES = "queries/scored"  # metric: how many queries a run is scored on
SAME_TAGS = ("data.queries", "data.references", SCORED_IDS, "version.measures")  # of runs that compare, besides labels
SAME_PARAMS = {"all": ("task.scheme",), "public": ("task.scheme", "public", "seed")}  # by the queries that rank them

USUAL = "modified_map@3"  # what runs are ranked by that say nothing about it
GET_LABELS = (  # what to do about runs without any
    "Labels that you have: dataset.qrels=FILE. To make some: `harness testset draft` writes questions with labels from "
    "your documents, and `harness testset pool` collects what runs find for these questions, to be judged."
)


@dataclass(frozen=True)
class Wanted:
    """Which runs are ranked, and by what.

    select_on: "all", "public", or None: as the runs themselves were ranked.
    task: `retrieval`, or the name of a text task.
    verbs: the commands that made the runs.
    """

    experiment: str
    metric: str
    select_on: str | None = None
    task: str = RETRIEVAL
    verbs: Collection[str] = SCORED


@dataclass(frozen=True)
class RankedRun:
    """A finished run, and the score that ranks it. also: runs with the same results, as `distinct` finds them."""

    run: LoggedRun
    score: Objective
    also: tuple[LoggedRun, ...] = ()


@dataclass(frozen=True)
class RunRanking:
    """select_on: the queries that rank the runs, "all" or "public". runs: the best first; ties go to the earlier."""

    select_on: str
    runs: Sequence[RankedRun] = field(default_factory=tuple)


C = TypeVar("C", bound=Config)


def settled(tracker: Tracker, config: C, task: str = RETRIEVAL, verbs: Collection[str] = SCORED) -> tuple[C, list[str]]:
    """Return (the config of a command with a measure as its `metric`; a note on why, where that is not obvious).

    `metric: null` becomes the measure that ranks most of the runs that `runs` or `run` names, else of the finished runs
    of the experiment; ties go to the latest. Raise BadInput if there are no runs.
    """
    document = config.document
    if document["metric"] is not None:
        return config, []
    words = document.get("runs") or [word for word in (document.get("run"),) if word]
    if words:
        whose, found = "named runs", [one for word in words for one in _counting(tracker, tracker.run(word))]
        runs = [run for run in found if run.tags.get("task", RETRIEVAL) == task]  # of others it is said why not
    else:
        name = document["experiment_name"]
        whose, found = f"runs of {name!r}", tracker.runs(name, {}, "FINISHED")
        runs = [run for run in found if _is_of(run, task, verbs)]
        if not runs:
            raise _nothing(tracker, name, task)
    names = _ranked_by(runs) or Counter([document.get("objective", USUAL)])
    metric, count = names.most_common(1)[0]
    note = f"Ranked by {metric}, as {count} of {names.total()} {whose} are; metric=NAME chooses another."
    return config.changed(metric=metric), [note] if len(names) > 1 else []


def require_labels(run: LoggedRun) -> None:
    """Raise BadInput for a retrieval run without labels."""
    if run.tags.get("task", RETRIEVAL) == RETRIEVAL and "data.qrels" not in run.tags:
        raise BadInput(f"Run {run.named} has no labels, so no scores. {GET_LABELS}")


def require_finished(run: LoggedRun) -> None:
    """Raise BadInput unless the run is a finished one with scores."""
    if (verb := run.tags.get("harness.verb")) not in SCORED:
        raise BadInput(f"Run {run.named} is a record of `harness {verb}`, without scores of its own.")
    if run.status != "FINISHED":
        raise BadInput(f"Run {run.named} is {run.status}: only finished runs have all of their scores.")


def needed_metric(metric: str, *runs: LoggedRun) -> str | None:
    """Return the measure if a command about these runs has to be told it; None where they are ranked by it anyway."""
    return None if list(_ranked_by(runs)) == [metric] else metric


def rank(tracker: Tracker, wanted: Wanted) -> RunRanking:
    """Return the finished runs of an experiment that have the measure. Raise BadInput if there are none.

    A run is ranked by its own objective where that is the measure, else by the score of the same kind: out of fold
    where a gate or a fusion learnt from labels.
    """
    runs = [
        run
        for run in reversed(tracker.runs(wanted.experiment, {}, "FINISHED"))
        if _is_of(run, wanted.task, wanted.verbs)
    ]
    select_on = wanted.select_on or _shared_choice(wanted, runs)
    scored = ((run, score_of(tracker, run, wanted.metric, select_on)) for run in runs)
    ranked = [RankedRun(run, score) for run, score in scored if score]
    if not ranked:
        raise _none(tracker, wanted, runs)
    return RunRanking(select_on, sorted(ranked, key=lambda one: -one.score.value))


def distinct(ranked: Sequence[RankedRun], by_lists: bool = True) -> list[RankedRun]:
    """Return one run for each set of equal runs, the best first: a run before a scored file, then the earliest.

    by_lists: whether runs of different configurations are equal if they return the same documents; runs that are
    ranked by their time never are.
    """
    groups: dict[tuple[str | None, ...], list[RankedRun]] = {}
    for one in sorted(ranked, key=lambda one: (one.run.tags.get("harness.verb") != "run", one.run.began)):
        timed = one.score.name.startswith(LESS_IS_BETTER)
        names = identities(one.run, by_lists and not timed)
        group = next((groups[name] for name in names if name in groups), [])
        group.append(one)
        groups |= dict.fromkeys(names, group)
    once = {id(group): group for group in groups.values()}.values()
    kept = [replace(first, also=tuple(other.run for other in others)) for first, *others in once]
    return sorted(kept, key=lambda one: (-one.score.value, one.run.began))


def repeated_note(ranked: Sequence[RankedRun]) -> list[str]:
    """Return the note on runs that `distinct` left out, in a list; [] if there are none."""
    count = sum(len(one.also) for one in ranked)
    why = "more with the configuration or the returned documents of another: they do not count again"
    return [f"{counted(count, 'run')} {why}."] if count else []


def identities(run: LoggedRun, by_lists: bool = True) -> list[tuple[str | None, ...]]:
    """Return what a run shares with its equals: its trial key, and its lists with what they are scored by."""
    tags = run.tags
    found: list[tuple[str | None, ...]] = [(tags["trial_key"],)] if "trial_key" in tags else []
    if by_lists and LISTS in tags:
        found.append((tags[LISTS], tags.get("data.qrels"), tags.get(SCORED_IDS), tags.get("version.measures")))
    return found or [(run.run_id,)]


def is_same(one: LoggedRun, other: LoggedRun) -> bool:
    """Return whether two runs are equal for `distinct`."""
    return not {*identities(one)}.isdisjoint(identities(other))


def best_run(tracker: Tracker, wanted: Wanted) -> LoggedRun:
    """Return the best finished run; ties go to the earliest. Raise BadInput if there is none."""
    return distinct(rank(tracker, wanted).runs)[0].run


def chosen_run(
    tracker: Tracker,
    config: ExportConfig | ReproduceConfig,
    task: str = RETRIEVAL,
    verbs: Collection[str] = SCORED,
) -> LoggedRun:
    """Return the run with the id `run`; without one the best of `experiment_name` by `metric` and `select_on`."""
    if config.run is not None:
        return recommended(tracker, tracker.run(config.run))
    assert config.metric is not None, "`settled` names one"
    return best_run(tracker, Wanted(config.experiment_name, config.metric, config.select_on, task, verbs))


def compares(one: LoggedRun, other: LoggedRun) -> bool:
    """Return whether the objectives of two runs can rank them: the same measure on the same queries and rules.

    In sample and out of fold compare: each is what its run is ranked by. What only one of the runs has logged does not
    tell them apart: a file that was scored without queries has no `data.queries`.
    """
    own, others = one.objective, other.objective
    if own is None or others is None or (own.name, own.select_on) != (others.name, others.select_on):
        return False
    return not differ(one, other, own.name, own.select_on)


def differ(one: LoggedRun, other: LoggedRun, measure: str, select_on: str) -> str:
    """Return the tag, param or number by which scores of two runs do not compare; "" if they compare.

    select_on: the queries that the scores are about, "all" or "public".
    """
    if one.tags.get("task") != other.tags.get("task"):
        return "task"
    pairs: dict[str, tuple[str | float | None, str | float | None]] = {
        **{name: (one.tags.get(name), other.tags.get(name)) for name in same_tags(measure)},
        **{name: (one.params.get(name), other.params.get(name)) for name in SAME_PARAMS[select_on]},
        SCORED_QUERIES: (one.metrics.get(SCORED_QUERIES), other.metrics.get(SCORED_QUERIES)),
    }
    return next((name for name, (own, its) in pairs.items() if own != its and None not in (own, its)), "")


def same_tags(measure: str) -> tuple[str, ...]:
    """Return the tags that all runs share that the measure can rank.

    Measures of documents need the same labels. Measures of spans need the same evidence: the documents may have been
    cut from the texts in different ways.
    """
    return ("data.evidence" if of_spans(measure) else "data.qrels", *SAME_TAGS)


def leader(tracker: Tracker, record: RunRecord, run_id: str) -> LoggedRun | None:
    """Return the best other finished run whose objective compares with the record's; None if there is none.

    record: of the run with this id, which has ended.
    """
    if record.objective is None:
        return None
    logged = record.tags | record.all_end_tags
    tags = {name: logged[name] for name in (f"{OBJECTIVE}.name", *same_tags(record.objective.name)) if name in logged}
    names = ("select_on", *SAME_PARAMS[record.objective.select_on])
    params = {name: record.params[name] for name in names if name in record.params}
    found = tracker.leaders(record.experiment, tags, params)
    return next((run for run in found if run.run_id != run_id), None)


def score_of(tracker: Tracker, run: LoggedRun, metric: str, select_on: str) -> Objective | None:
    """Return a run's score by a measure; None if the run does not have it.

    The public part of measures other than the objective is in the run's file of all metrics.
    """
    known = run.score(metric, select_on)
    return known if known or select_on == "all" else in_full(tracker, run).score(metric, select_on)


def _is_of(run: LoggedRun, task: str, verbs: Collection[str]) -> bool:
    return run.tags.get("harness.verb") in verbs and run.tags.get("task", RETRIEVAL) == task


def _counting(tracker: Tracker, run: LoggedRun) -> list[LoggedRun]:
    if run.objective or "sweep.id" not in run.tags:
        return [run]
    member = member_tag(run.tags["sweep.id"])
    return [one for one in tracker.runs(run.experiment, {}, "FINISHED") if member in one.tags]


def _ranked_by(runs: Sequence[LoggedRun]) -> Counter[str]:
    """Return objective -> how many runs are ranked by it, that of the latest run first.

    Where no run has labels, these are the objectives that the runs were given.
    """
    latest = sorted(runs, key=lambda run: -run.began)
    found = Counter(run.objective.name for run in latest if run.objective)
    return found or Counter(run.params["objective"] for run in latest if "objective" in run.params)


def _shared_choice(wanted: Wanted, runs: Sequence[LoggedRun]) -> str:
    """Return the queries that ranked all of these runs. Raise BadInput if only some are ranked by the public part."""
    counts = Counter(run.select_on for run in runs if run.score(wanted.metric, run.select_on))
    if len(counts) > 1:
        raise BadInput(
            f"Experiment {wanted.experiment!r} has {counted(counts['public'], 'run')} ranked by the public queries "
            f"alone and {counts['all']} by all: these scores do not compare. Rank all of them by the same queries: "
            "select_on=public or select_on=all."
        )
    return "public" if counts["public"] else "all"


def _none(tracker: Tracker, wanted: Wanted, runs: Sequence[LoggedRun]) -> BadInput:
    if not runs:
        return _nothing(tracker, wanted.experiment, wanted.task)
    experiment = wanted.experiment
    if wanted.task == RETRIEVAL and not any("data.qrels" in run.tags for run in runs):
        return BadInput(
            f"Experiment {experiment!r} has {counted(len(runs), 'finished run')}, none with labels: nothing says which "
            f"is better. {GET_LABELS}"
        )
    known = [
        name.replace("_at_", "@") for name in runs[0].metrics if "/" not in name and not name.startswith(OBJECTIVE)
    ]
    [(measure, _)] = _ranked_by(runs).most_common(1) or [("", 0)]
    instead = f"They have {', '.join(known)}: metric=NAME."
    if measure not in ("", wanted.metric):
        instead = f"The runs of {experiment!r} are ranked by {measure}: metric={measure}."
    near = did_you_mean(wanted.metric, known)
    return BadInput(f"metric={wanted.metric}: no finished run of experiment {experiment!r} has it.{near} {instead}")


def _nothing(tracker: Tracker, experiment: str, task: str) -> BadInput:
    if experiment not in (names := tracker.experiments()):
        there = f"Known: {', '.join(names)}." if names else "There is none yet."
        return BadInput(
            f"experiment_name={experiment!r}: no such experiment in {shown_address(tracker.uri)}."
            f"{did_you_mean(experiment, names)} {there}"
        )
    of_task = "" if task == RETRIEVAL else f" of task={task}"
    return BadInput(
        f"Experiment {experiment!r} has no finished run{of_task}. To see what it has: "
        f"harness runs experiment_name={experiment}"
    )
