"""The best run of an experiment, by its objective or by another measure, and the runs that are comparable with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from harness.config.commands import BoardConfig, CompareConfig, ExportConfig, PowerConfig, ReproduceConfig
from harness.config.schema import Config
from harness.config.text import counted
from harness.data.files import some
from harness.errors import BadInput, did_you_mean
from harness.measures.measures import of_spans
from harness.measures.objective import Objective
from harness.measures.score_table import ScoreTable
from harness.recording.logged_run import in_full, recommended
from harness.recording.retrieval_run import LISTS, SCORED_IDS
from harness.recording.run_kind import RunKind
from harness.tracking.mlflow_client import shown_address
from harness.tracking.tracker import LESS_IS_BETTER, OBJECTIVE, RETRIEVAL, LoggedRun, RunRecord, Tracker, member_tag

SCORED = ("run", "score")  # commands whose runs have scores; a trial of a sweep is logged as a `run`

SCORED_QUERIES = "queries/scored"  # the metric with the number of scored queries
# Comparable runs agree in these tags, and in the params that SAME_PARAMS lists for their select_on.
SAME_TAGS = ("data.queries", "data.references", SCORED_IDS, "version.measures")
SAME_PARAMS = {"all": ("task.scheme",), "public": ("task.scheme", "public", "seed")}  # select_on -> params

USUAL = "modified_map@3"  # the measure for runs that name no objective
GET_LABELS = (
    "If you have labels, name their file: dataset.qrels=FILE. To make labels, `harness testset draft` writes questions "
    "with labels from your documents, and `harness testset pool` collects documents to judge: those that runs find "
    "for these questions."
)

C = TypeVar("C", bound=Config)
MEANING = {  # tag, param or metric that must be equal in comparable runs -> its name in messages
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
ANOTHER = {  # whether the task is retrieval -> advice on how to get another run
    True: "Make another run on the same data, for example with another retriever.",
    False: "Score another file with the same references.",
}


@dataclass(frozen=True, eq=False)
class ReadRuns:
    """What has been read of an experiment before, and need not be read again.

    finished: returns the finished runs of the experiment, the latest first.
    tables: run id -> its scores by query in one measure. Those that are read are added.
    """

    finished: Callable[[], Sequence[LoggedRun]]
    tables: dict[str, ScoreTable] = field(default_factory=dict)


@dataclass(frozen=True)
class Wanted:
    """The wanted runs, and the measure that orders them.

    select_on: "all" or "public", the queries that count; None for the queries that counted when the runs were made.
    task: `retrieval`, or the name of a text task.
    scheme: the scheme to use if the runs of a text task have several.
    verbs: the commands that made the runs.
    runs: ids or beginnings of ids; the id of a sweep stands for its trials. None stands for the finished runs of the
        experiment that are comparable with `like`, or with the best run if `like` is None.
    read: what has been read of the experiment, with tables of `metric`; None: nothing.
    """

    experiment: str
    metric: str
    select_on: str | None = None
    task: str = RETRIEVAL
    verbs: Collection[str] = SCORED
    runs: Sequence[str] | None = None
    like: LoggedRun | None = None
    scheme: str | None = None
    read: ReadRuns | None = None

    @classmethod
    def of(cls, config: BoardConfig | CompareConfig | PowerConfig) -> Wanted:
        kind = RunKind(config.task)
        where = config.experiment_name, config.metric, config.select_on, kind.name
        return cls(*where, runs=config.runs, scheme=kind.rules.get("task.scheme"))


@dataclass(frozen=True)
class RankedRun:
    """A finished run and its score.

    also: other runs with the same results, see `distinct`.
    name: a short name that is unique on a board, such as "hybrid_light · auto"; "" elsewhere.
    """

    run: LoggedRun
    score: Objective
    also: tuple[LoggedRun, ...] = ()
    name: str = ""

    @property
    def twins(self) -> str:
        return f"also {some(dict.fromkeys(one.called for one in self.also), 3)}" if self.also else ""


@dataclass(frozen=True)
class Chosen:
    """Comparable runs, the best first; of equal runs the earlier comes first.

    select_on: the queries that count, "all" or "public". notes: sentences about runs that were left out.
    """

    select_on: str
    runs: Sequence[RankedRun]
    notes: Sequence[str] = ()


def settled(tracker: Tracker, config: C, task: str = RETRIEVAL, verbs: Collection[str] = SCORED) -> tuple[C, list[str]]:
    """Return (the config with a measure as its `metric`, a note if the runs have different objectives).

    `metric: null` becomes the objective of most of the named runs, or of most finished runs of the experiment if no
    runs are named. If several measures are equally frequent, the latest run decides. Raise BadInput if there are no
    runs.
    """
    document = config.document
    if document["metric"] is not None:
        return config, []
    words = document.get("runs") or [word for word in (document.get("run"),) if word]
    if words:
        whose, found = "named runs", [one for word in words for one in _counting(tracker, tracker.run(word))]
        runs = [run for run in found if run.tags.get("task", RETRIEVAL) == task]  # commands refuse other tasks
    else:
        name = document["experiment_name"]
        whose, found = f"runs of {name!r}", tracker.runs(name, {}, "FINISHED")
        runs = [run for run in found if _is_of(run, task, verbs)]
        if not runs:
            raise _nothing(tracker, name, task)
    names = _ranked_by(runs) or Counter([document.get("objective", USUAL)])
    metric, count = names.most_common(1)[0]
    note = f"Ranked by {metric}, the objective of {count} of {names.total()} {whose}. Set metric=NAME to change this."
    return config.changed(metric=metric), [note] if len(names) > 1 else []


def require_labels(run: LoggedRun) -> None:
    if run.tags.get("task", RETRIEVAL) == RETRIEVAL and "data.qrels" not in run.tags:
        raise BadInput(f"Run {run.named} has no labels, so it has no scores. {GET_LABELS}")


def require_finished(run: LoggedRun) -> None:
    """Raise BadInput unless the run has finished and has scores."""
    if (verb := run.tags.get("harness.verb")) not in SCORED:
        raise BadInput(f"Run {run.named} is a record of `harness {verb}`, without scores.")
    if run.status != "FINISHED":
        raise BadInput(f"Run {run.named} is {run.status}: only finished runs have all scores.")


def needed_metric(metric: str, *runs: LoggedRun) -> str | None:
    """Return the measure that a command about these runs must name; None if it is the objective of all these runs."""
    return None if list(_ranked_by(runs)) == [metric] else metric


def rank(tracker: Tracker, wanted: Wanted) -> Chosen:
    """Return the finished runs of an experiment that have the measure, best first. Raise BadInput if there are none."""
    finished = wanted.read.finished() if wanted.read else tracker.runs(wanted.experiment, {}, "FINISHED")
    runs = [run for run in reversed(finished) if _is_of(run, wanted.task, wanted.verbs)]
    select_on = wanted.select_on or _shared_choice(wanted, runs)
    scored = ((run, score_of(tracker, run, wanted.metric, select_on)) for run in runs)
    ranked = [RankedRun(run, score) for run, score in scored if score]
    if not ranked:
        raise _none(tracker, wanted, runs)
    return Chosen(select_on, sorted(ranked, key=lambda one: -one.score.value))


def distinct(ranked: Sequence[RankedRun], by_lists: bool = True) -> list[RankedRun]:
    """Return one run of each set of equal runs, the best first.

    Of each set, return the earliest run that is not a scored file, or if there are only files, the earliest file.

    by_lists: whether runs of different configurations count as equal if they return the same documents. Runs whose
    score is a time count as equal only if their configurations are equal.
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


def identities(run: LoggedRun, by_lists: bool = True) -> list[tuple[str | None, ...]]:
    """Return a run's keys: one for its settings and data, one for its scored lists. Runs that share a key are equal."""
    tags = run.tags
    found: list[tuple[str | None, ...]] = [(tags["trial_key"],)] if "trial_key" in tags else []
    if by_lists and LISTS in tags:
        found.append((tags[LISTS], tags.get("data.qrels"), tags.get(SCORED_IDS), tags.get("version.measures")))
    return found or [(run.run_id,)]


def is_same(one: LoggedRun, other: LoggedRun) -> bool:
    return not {*identities(one)}.isdisjoint(identities(other))


def _equality(one: LoggedRun, other: LoggedRun) -> str:
    same = identities(one, by_lists=False) == identities(other, by_lists=False)
    return "has the same configuration" if same else "returned equal lists"


def best_run(tracker: Tracker, wanted: Wanted) -> LoggedRun:
    """Return the best finished run; of equal runs, the earliest. Raise BadInput if there is none."""
    return distinct(rank(tracker, wanted).runs)[0].run


def chosen_run(
    tracker: Tracker,
    config: ExportConfig | ReproduceConfig,
    task: str = RETRIEVAL,
    verbs: Collection[str] = SCORED,
) -> LoggedRun:
    """Return the run that the config names, or the best run of its experiment by `metric` and `select_on`."""
    if config.run is not None:
        return recommended(tracker, tracker.run(config.run))
    assert config.metric is not None, "`settled` sets the metric"
    return best_run(tracker, Wanted(config.experiment_name, config.metric, config.select_on, task, verbs))


def compares(one: LoggedRun, other: LoggedRun) -> bool:
    """Return whether two runs can be compared by their objectives: both have the same measure, queries and rules.

    An in-sample score may be compared with an out-of-fold score. A tag that only one run has is ignored, since for
    example a file that was scored with labels alone has no `data.queries`.
    """
    own, others = one.objective, other.objective
    if own is None or others is None or (own.name, own.select_on) != (others.name, others.select_on):
        return False
    return not differ(one, other, own.name, own.select_on)


def differ(one: LoggedRun, other: LoggedRun, measure: str, select_on: str) -> str:
    """Return the tag, param or metric that makes the scores of two runs incomparable; "" if they are comparable.

    select_on: the queries that count, "all" or "public".
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
    """Return the tags that must be equal in all runs that are compared by the measure.

    For a measure of documents, the runs need the same labels. For a measure of spans, they need only the same evidence:
    they may cut the texts into different documents.
    """
    return ("data.evidence" if of_spans(measure) else "data.qrels", *SAME_TAGS)


def leader(tracker: Tracker, record: RunRecord, run_id: str) -> LoggedRun | None:
    """Return the best of the other finished runs that are comparable with the run `run_id`; None if there are none."""
    if record.objective is None:
        return None
    logged = record.tags | record.all_end_tags
    tags = {name: logged[name] for name in (f"{OBJECTIVE}.name", *same_tags(record.objective.name)) if name in logged}
    names = ("select_on", *SAME_PARAMS[record.objective.select_on])
    params = {name: record.params[name] for name in names if name in record.params}
    found = tracker.leaders(record.experiment, tags, params)
    return next((run for run in found if run.run_id != run_id), None)


def score_of(tracker: Tracker, run: LoggedRun, metric: str, select_on: str) -> Objective | None:
    """Return a run's score, if need be from its file of all metrics; None if the run has no such score."""
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
    latest = sorted(runs, key=lambda run: -run.began)
    found = Counter(run.objective.name for run in latest if run.objective)
    return found or Counter(run.params["objective"] for run in latest if "objective" in run.params)


def _shared_choice(wanted: Wanted, runs: Sequence[LoggedRun]) -> str:
    counts = Counter(run.select_on for run in runs if run.score(wanted.metric, run.select_on))
    if len(counts) > 1:
        raise BadInput(
            f"Experiment {wanted.experiment!r} has {counted(counts['public'], 'run')} ranked by the public queries "
            f"alone and {counts['all']} by all queries: these scores are not comparable. Choose the queries that "
            "count: select_on=public or select_on=all."
        )
    return "public" if counts["public"] else "all"


def _none(tracker: Tracker, wanted: Wanted, runs: Sequence[LoggedRun]) -> BadInput:
    if not runs:
        return _nothing(tracker, wanted.experiment, wanted.task)
    experiment = wanted.experiment
    if wanted.task == RETRIEVAL and not any("data.qrels" in run.tags for run in runs):
        return BadInput(
            f"Experiment {experiment!r} has {counted(len(runs), 'finished run')}, none with labels, so no scores tell "
            f"which is better. {GET_LABELS}"
        )
    known = [
        name.replace("_at_", "@") for name in runs[0].metrics if "/" not in name and not name.startswith(OBJECTIVE)
    ]
    [(measure, _)] = _ranked_by(runs).most_common(1) or [("", 0)]
    instead = f"The runs have {', '.join(known)}: choose one with metric=NAME."
    if measure not in ("", wanted.metric):
        instead = f"The runs of {experiment!r} are ranked by {measure}: choose metric={measure}."
    near = did_you_mean(wanted.metric, known)
    return BadInput(f"metric={wanted.metric}: no finished run of experiment {experiment!r} has it.{near} {instead}")


def _nothing(tracker: Tracker, experiment: str, task: str) -> BadInput:
    if experiment not in (names := tracker.experiments()):
        there = f"Known: {', '.join(names)}." if names else "There are no experiments yet."
        return BadInput(
            f"experiment_name={experiment!r}: no such experiment in {shown_address(tracker.uri)}."
            f"{did_you_mean(experiment, names)} {there}"
        )
    of_task = "" if task == RETRIEVAL else f" of task={task}"
    return BadInput(
        f"Experiment {experiment!r} has no finished run{of_task}. To see what it has: "
        f"harness runs experiment_name={experiment}"
    )


# ---- The comparable runs


def chosen_runs(tracker: Tracker, asked: Wanted) -> Chosen:
    """Return the wanted runs. Raise BadInput if they are not comparable, or if fewer than two differ."""
    found = _of_experiment(tracker, asked) if asked.runs is None else _named(tracker, asked)
    once = distinct(found.runs)
    notes = [*found.notes]
    if count := sum(len(one.also) for one in once):
        equal = {_equality(one.run, other) for one in once for other in one.also}
        notes.append(f"{counted(count, 'run')} left out, since another run {' or '.join(sorted(equal))}.")
    if len(once) == 1 and asked.runs is not None and len(asked.runs) > 1:
        raise BadInput(
            f"{_place(asked)} are the same: they return the same documents for every query, or repeat one "
            "configuration. Name runs that differ."
        )
    if len(once) < 2:
        raise BadInput(
            f"{_place(asked)} {'has' if asked.runs is None else 'name'} {counted(len(once), 'distinct finished run')} "
            f"with {asked.metric}: at least two are needed. {ANOTHER[asked.task == RETRIEVAL]} "
            f"{' '.join(notes)}".rstrip()
        )
    return Chosen(found.select_on, once, notes)


def recommended_runs(tracker: Tracker, words: Sequence[str]) -> list[LoggedRun]:
    """Return the named runs. A sweep stands for its recommended trial. Raise BadInput if a run is named twice."""
    found: dict[str, LoggedRun] = {}
    for word in words:
        run = recommended(tracker, tracker.run(word))
        if run.run_id in found:
            raise BadInput(f"runs names {run.named} twice. Name different runs.")
        found[run.run_id] = run
    return [*found.values()]


def same_queries(ranked: Sequence[RankedRun]) -> tuple[list[RankedRun], list[str]]:
    """Leave out files that were scored on other queries than the retrieval runs. Return (the kept runs, a note or []).

    Otherwise a file that was scored without the difficult queries would come first. If there are only files, keep
    those that were scored on the most frequent set of queries; of equally frequent sets, use the one with most queries.
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
    note = f"Files left out, since scored on other queries: {names}. Set missing=zero to score files on all queries."
    return [one for one in ranked if one.run.run_id not in left], [note] if left else []


def _of_experiment(tracker: Tracker, asked: Wanted) -> Chosen:
    ranking = rank(tracker, asked)
    ranked, notes = same_queries(ranking.runs)
    scheme, schemes = asked.scheme, {one.run.params.get("task.scheme") for one in ranked}
    if scheme in schemes and len(schemes) > 1:
        ranked = [one for one in ranked if one.run.params.get("task.scheme") == scheme]
        notes.append(f"Only runs of task.scheme={scheme} are kept: scores of different schemes are not comparable.")
    first = asked.like or ranked[0].run
    apart = [differ(first, one.run, asked.metric, ranking.select_on) for one in ranked]
    others = Counter(MEANING[name] for name in apart if name)
    notes += [
        f"{counted(count, 'run')} of the experiment left out for a difference in {meaning} from the best run: the "
        "scores are not comparable."
        for meaning, count in others.items()
    ]
    return Chosen(ranking.select_on, [one for one, name in zip(ranked, apart, strict=True) if not name], notes)


def _named(tracker: Tracker, asked: Wanted) -> Chosen:
    found: dict[str, LoggedRun] = {}
    notes = []
    for word in asked.runs or ():
        run = tracker.run(word)
        if run.tags.get("harness.verb") == "sweep":
            member = member_tag(run.tags["sweep.id"])  # trials that the sweep reused have this tag, too
            trials = [one for one in tracker.runs(run.experiment, {}) if member in one.tags]
            found |= {trial.run_id: trial for trial in trials if trial.status == "FINISHED"}
            if ended := sum(trial.status != "FINISHED" for trial in trials):
                notes.append(f"{counted(ended, 'trial')} of the sweep {run.short_id} did not finish: left out.")
        else:
            require_finished(run)
            found[run.run_id] = run
    for run in found.values():
        if (task := run.tags.get("task", RETRIEVAL)) != asked.task:
            raise BadInput(
                f"Run {run.named} is of task={task}, not of task={asked.task}. To compare such runs: "
                f"harness compare task={task} 'runs=[ID,ID]'"
            )
    return of_runs(tracker, list(found.values()), asked.metric, asked.select_on, notes)


def of_runs(
    tracker: Tracker, runs: Sequence[LoggedRun], metric: str, select_on: str | None, notes: Sequence[str] = ()
) -> Chosen:
    """Return these finished runs, the best first. Raise BadInput unless all have `metric` and are comparable."""
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
                f"Run {one.run.named} does not have the {MEANING[name]} of run {ranked[0].run.named} ({name}): their "
                "scores are not comparable. Name runs of the same data and measures."
            )
    return Chosen(select_on, sorted(ranked, key=lambda one: (-one.score.value, one.run.began)), notes)


def _scored_on(run: LoggedRun) -> tuple[str | None, str | None]:
    """Return (sha256 of a run's labels, sha256 of the ids of its scored queries), each None if not logged."""
    return run.tags.get("data.qrels"), run.tags.get(SCORED_IDS)


def _place(asked: Wanted) -> str:
    return f"experiment {asked.experiment!r}" if asked.runs is None else f"runs=[{','.join(asked.runs)}]"
