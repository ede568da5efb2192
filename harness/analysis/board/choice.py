"""Choose the runs of a board: those that compare with the best run of an experiment, or those that are named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.analysis.ranking import (
    SCORED_QUERIES,
    RankedRun,
    Wanted,
    differ,
    distinct,
    rank,
    repeated_note,
    require_finished,
    require_labels,
    score_of,
)
from harness.config.commands import BoardConfig, CompareConfig, PowerConfig
from harness.config.text import counted
from harness.data.files import some
from harness.errors import BadInput
from harness.recording.logged_run import recommended
from harness.recording.retrieval_run import SCORED_IDS
from harness.recording.run_kind import RunKind
from harness.tracking.tracker import RETRIEVAL, LoggedRun, Tracker, member_tag

MEANING = {  # of what sets runs apart
    "task": "task",
    "data.qrels": "labels",
    "data.evidence": "evidence",
    "data.queries": "queries",
    "data.references": "references",
    SCORED_IDS: "scored queries",
    SCORED_QUERIES: "number of scored queries",
    "version.measures": "version of the measures",
    "task.scheme": "scheme",
    "public": "public part",
    "seed": "public part",
}

ANOTHER = {  # whether runs are of retrieval -> how to make one
    True: "Make another run on the same data, such as with another retriever.",
    False: "Score another file with the same references.",
}


@dataclass(frozen=True)
class Asked:
    """Which runs are asked for.

    metric: what ranks them. select_on: "all", "public", or None: as the runs themselves were ranked.
    runs: their ids, or the beginnings of these, that of a sweep standing for all its trials; None: the finished
        runs of the experiment that compare with the best one, or with `like`.
    like: None: the best one. kind: of the runs; of a text task those of another scheme are left out.
    """

    experiment: str
    metric: str
    select_on: str | None = None
    runs: Sequence[str] | None = None
    like: LoggedRun | None = None
    kind: RunKind = field(default_factory=RunKind)

    @classmethod
    def of(cls, config: BoardConfig | CompareConfig | PowerConfig) -> Asked:
        where = config.experiment_name, config.metric, config.select_on, config.runs
        return cls(*where, kind=RunKind(config.task))


@dataclass(frozen=True)
class Chosen:
    """Runs that compare, the best first, each configuration once. notes: which others there are, and why not here."""

    select_on: str
    runs: Sequence[RankedRun]
    notes: Sequence[str]


def chosen_runs(tracker: Tracker, asked: Asked) -> Chosen:
    """Return the runs that are asked for. Raise BadInput if they do not compare, or are fewer than two."""
    found = _of_experiment(tracker, asked) if asked.runs is None else _named(tracker, asked)
    once = distinct(found.runs)
    notes = [*found.notes, *repeated_note(once)]
    if len(once) == 1 and asked.runs is not None and len(asked.runs) > 1:
        raise BadInput(
            f"{_place(asked)} are the same: they return the same documents for every query, or repeat one "
            "configuration. Name runs that differ."
        )
    if len(once) < 2:
        raise BadInput(
            f"{_place(asked)} {'has' if asked.runs is None else 'name'} {counted(len(once), 'different finished run')} "
            f"with {asked.metric}: at least two are needed. {ANOTHER[asked.kind.task is None]} "
            f"{' '.join(notes)}".rstrip()
        )
    return Chosen(found.select_on, once, notes)


def recommended_runs(tracker: Tracker, words: Sequence[str]) -> list[LoggedRun]:
    """Return the runs with these ids, or beginnings of ids; of a sweep the trial that it recommends.

    Raise BadInput for a run that is named twice.
    """
    found: dict[str, LoggedRun] = {}
    for word in words:
        run = recommended(tracker, tracker.run(word))
        if run.run_id in found:
            raise BadInput(f"runs names {run.named} twice. Name different runs.")
        found[run.run_id] = run
    return [*found.values()]


def same_queries(ranked: Sequence[RankedRun]) -> tuple[list[RankedRun], list[str]]:
    """Return (the runs without files that were scored on other queries, a note on these).

    A file that lacks difficult queries would rank first. The queries of the retrieval runs decide; among files alone
    those that most of them have, ties to the larger set.
    """
    files = [one.run for one in ranked if one.run.tags.get("harness.verb") == "score" and "data.qrels" in one.run.tags]
    if not files:
        return list(ranked), []
    ids = {run.run_id for run in files}
    taken = {_scored_on(one.run) for one in ranked if one.run.run_id not in ids}
    if not taken:
        sizes = Counter({_scored_on(run): run.metrics.get(SCORED_QUERIES, 0) for run in files})
        often = Counter(_scored_on(run) for run in files)
        taken = {max(often, key=lambda queries: (often[queries], sizes[queries]))}
    left = {run.run_id: run.name for run in files if _scored_on(run) not in taken}
    names = some(left.values())
    note = f"Left out, since they were scored on other queries: {names}. With missing=zero a file is scored on all."
    return [one for one in ranked if one.run.run_id not in left], [note] if left else []


def _of_experiment(tracker: Tracker, asked: Asked) -> Chosen:
    ranking = rank(tracker, Wanted(asked.experiment, asked.metric, asked.select_on, asked.kind.name))
    ranked, notes = same_queries(ranking.runs)
    scheme, schemes = asked.kind.rules.get("task.scheme"), {one.run.params.get("task.scheme") for one in ranked}
    if scheme in schemes and len(schemes) > 1:
        ranked = [one for one in ranked if one.run.params.get("task.scheme") == scheme]
        notes.append(f"Runs of task.scheme={scheme} alone: such scores do not compare with those of another.")
    first = asked.like or ranked[0].run
    apart = [differ(first, one.run, asked.metric, ranking.select_on) for one in ranked]
    others = Counter(MEANING[name] for name in apart if name)
    notes += [
        f"{counted(count, 'run')} of the experiment with other {meaning} than the best one: not here, since scores do "
        "not compare."
        for meaning, count in others.items()
    ]
    return Chosen(ranking.select_on, [one for one, name in zip(ranked, apart, strict=True) if not name], notes)


def _named(tracker: Tracker, asked: Asked) -> Chosen:
    found: dict[str, LoggedRun] = {}
    notes = []
    for word in asked.runs or ():
        run = tracker.run(word)
        if run.tags.get("harness.verb") == "sweep":
            member = member_tag(run.tags["sweep.id"])  # of computed and of reused trials
            trials = [one for one in tracker.runs(run.experiment, {}) if member in one.tags]
            found |= {trial.run_id: trial for trial in trials if trial.status == "FINISHED"}
            if ended := sum(trial.status != "FINISHED" for trial in trials):
                notes.append(f"{counted(ended, 'trial')} of the sweep {run.short_id} did not finish: not here.")
        else:
            require_finished(run)
            found[run.run_id] = run
    for run in found.values():
        if (task := run.tags.get("task", RETRIEVAL)) != asked.kind.name:
            raise BadInput(
                f"Run {run.named} is of task={task}, not of task={asked.kind.name}. To compare such runs: "
                f"harness compare task={task} 'runs=[ID,ID]'"
            )
    return of_runs(tracker, list(found.values()), asked.metric, asked.select_on, notes)


def of_runs(
    tracker: Tracker, runs: Sequence[LoggedRun], metric: str, select_on: str | None, notes: Sequence[str] = ()
) -> Chosen:
    """Return these finished runs, the best first. Raise BadInput unless all have the measure, and scores compare."""
    select_on = select_on or ("public" if all(run.select_on == "public" for run in runs) else "all")
    ranked = []
    for run in runs:
        require_labels(run)
        score = score_of(tracker, run, metric, select_on)
        if score is None:
            over = " over the public queries" if select_on == "public" else ""
            raise BadInput(f"Run {run.named} has no {metric}{over}. Choose other runs, or metric=NAME.")
        ranked.append(RankedRun(run, score))
    for one in ranked[1:]:
        if name := differ(ranked[0].run, one.run, metric, select_on):
            raise BadInput(
                f"Run {one.run.named} has other {MEANING[name]} than run {ranked[0].run.named} ({name}): such scores "
                "do not compare. Name runs of the same data and measures."
            )
    return Chosen(select_on, sorted(ranked, key=lambda one: (-one.score.value, one.run.began)), notes)


def _scored_on(run: LoggedRun) -> tuple[str | None, str | None]:
    """Return sha256 of a run's labels and of the ids of the queries that it is scored on, as far as it says."""
    return run.tags.get("data.qrels"), run.tags.get(SCORED_IDS)


def _place(asked: Asked) -> str:
    return f"experiment {asked.experiment!r}" if asked.runs is None else f"runs=[{','.join(asked.runs)}]"
