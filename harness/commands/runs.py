"""`harness runs`: list the runs and sweeps of an experiment (the best first), all experiments, or a sweep's trials."""

from __future__ import annotations

import datetime
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from harness.analysis.board.expected import Expected, shown_of_run
from harness.analysis.ranking import SCORED, SCORED_QUERIES, compares, is_same
from harness.config.check import Invocation
from harness.config.commands import RunsConfig
from harness.config.text import counted
from harness.errors import BadInput, did_you_mean
from harness.measures.measures import of_spans
from harness.measures.objective import Objective
from harness.progress import stage
from harness.recording.load_run import P95, QPS, latest_loads, under_load
from harness.recording.recording import open_store
from harness.reports.next_steps import Place
from harness.reports.report import Report
from harness.reports.result import CommandAnswer
from harness.reports.tables import Cell, Column, Number, Rows, Table
from harness.storage.typed import HIDDEN, INLINE
from harness.tracking.mlflow_client import shown_address
from harness.tracking.tracker import ONLY_BEST, SHOWN_FIRST, LoggedRun, Tracker, member_tag

COUNTS = Column("runs", "count"), Column("sweeps", "count")
EXPERIMENTS = (Column("experiment"), *COUNTS, Column("best", "value"), Column("objective"), Column("latest run"))


@dataclass(frozen=True)
class RunRow:
    """A run, or a sweep with its best trial.

    shown: the run, or the best trial of the sweep. The row has the objective and the params of `shown`.
    trials: the number of the sweep's trials so far; None for a run.
    load: `p95_ms` and `qps` from the latest load of the configuration of `shown`; None if unknown.
    differs: param -> value in this row, for each param that varies among the runs of its command in its `RunGroup`.
    """

    json_too = ("run_id", "name", "verb", "status", "began", "objective", "best_run_id")
    run: LoggedRun = field(metadata=HIDDEN)
    shown: LoggedRun = field(metadata=HIDDEN)
    trials: int | None = None
    load: Mapping[str, float | None] = field(default_factory=dict, metadata=INLINE)
    differs: Mapping[str, str] = field(default_factory=dict)

    @property
    def run_id(self) -> str:
        return self.run.run_id

    @property
    def name(self) -> str:
        return self.run.name

    @property
    def verb(self) -> str:
        return self.run.tags["harness.verb"]

    @property
    def status(self) -> str:
        return self.run.status

    @property
    def began(self) -> str:
        return datetime.datetime.fromtimestamp(self.run.began / 1000, datetime.UTC).isoformat("T", "seconds")

    @property
    def objective(self) -> Objective | None:
        return self.shown.objective

    @property
    def best_run_id(self) -> str | None:
        """The id of the sweep's best trial; None for a run, and for a sweep without an objective."""
        return self.shown.run_id if self.trials is not None and self.objective else None

    @property
    def in_words(self) -> str:
        if self.trials is not None:
            best = self.run.tags.get("best.overrides")
            return f"sweep, {counted(self.trials, 'trial')}" + (f"; best: {best}" if best else "")
        brief = self.run.brief
        told = SHOWN_FIRST if brief != self.run.name else ()
        said = " ".join(f"{name}={value}" for name, value in self.differs.items() if name not in told)
        return f"{brief} ({said})" if said else brief


@dataclass(frozen=True)
class RunGroup:
    """Rows whose objectives can be compared, the best first; or rows without an objective, the latest first.

    objective: the measure; None for rows without an objective. kinds: how the objectives were computed.
    queries: the number of queries on which they were computed; None for a text task.
    expected: an estimate of the best run's objective on new queries; None if unknown.
    left_out: the number of rows that are not listed.
    """

    objective: str | None
    kinds: Sequence[str]
    queries: int | None
    rows: Sequence[RunRow]
    expected: Expected | None = None
    left_out: int = 0

    @classmethod
    def of(cls, rows: Sequence[RunRow]) -> RunGroup:
        counts = (row.shown.metrics.get(SCORED_QUERIES) for row in rows)
        varied = _varied(rows)
        return cls(
            objective=rows[0].objective.name if rows[0].objective else None,
            kinds=list(dict.fromkeys(row.objective.kind for row in rows if row.objective)),
            queries=next((int(count) for count in counts if count is not None), None),
            rows=[
                replace(row, differs={name: value for name, value in row.shown.params.items() if name in names})
                for row, names in zip(rows, varied, strict=True)
            ],
        )

    def first(self, top: int) -> RunGroup:
        return replace(self, rows=self.rows[:top], left_out=max(0, len(self.rows) - top))

    @property
    def title(self) -> str:
        if self.objective is None:
            return "Without an objective"
        part = "the public part of " if self.kinds[0].startswith("public") else ""
        over = f", {part}{counted(self.queries, 'query')}" if self.queries is not None else ""
        return f"{self.objective}, {' or '.join(self.kinds)}{over}"

    @property
    def data(self) -> str:
        tags = self.rows[0].shown.tags
        labels = "data.evidence" if of_spans(self.objective or "") else "data.qrels"
        return (tags.get(labels) or tags.get("data.references") or "")[:8]

    def table(self, title: str) -> Table:
        estimated = any(row.objective and row.objective.estimate for row in self.rows)
        columns = [Column("estimate" if estimated else "value", "value"), Column("raw", "value")]
        columns += [Column("p95 ms", "rough"), Column("qps", "rough")]
        columns += map(Column, ("kind", "status", "age", "id", "run"))
        ended = all(row.status == "FINISHED" for row in self.rows)
        cells: Rows = []
        for place, row in enumerate(self.rows):
            others = (above.shown for above in self.rows[:place] if above.shown.run_id != row.shown.run_id)
            twin = next((other for other in others if is_same(row.shown, other)), None)
            said = row.in_words + (f" (returns the same as {twin.short_id})" if twin else "")
            kind = row.objective.kind if row.objective and len(self.kinds) > 1 else ""
            status = "" if ended else row.status
            costs = [row.load.get(P95), row.load.get(QPS)]
            about = [kind, status, _age(row.run.began), row.run.short_id, said]
            cells.append([*_score(row.objective), *costs, *about])
        lines = [self.expected.sentence] if self.expected else []
        lines += _left_out(len(self.rows), self.left_out)
        return Table(title, columns, cells, lines, "runs").without_empty()


@dataclass(frozen=True)
class ListedRuns:
    title: str
    groups: Sequence[RunGroup]


@dataclass(frozen=True)
class ListedExperiment:
    """An experiment, with the best run of its largest `RunGroup`. latest: when its latest run began."""

    experiment: str
    runs: int
    sweeps: int
    best: Objective | None
    latest: str
    began: int = field(metadata=HIDDEN)

    @classmethod
    def of(cls, name: str, rows: Sequence[RunRow]) -> ListedExperiment:
        group = max(grouped(rows), key=lambda group: (group.objective is not None, len(group.rows)))
        latest, sweeps = max(rows, key=lambda row: row.run.began), sum(row.trials is not None for row in rows)
        return cls(name, len(rows) - sweeps, sweeps, group.rows[0].objective, latest.began, latest.run.began)

    @property
    def cells(self) -> list[Cell]:
        score: list[Cell] = [self.best.value, self.best.title] if self.best else [None, ""]
        return [self.experiment, self.runs, self.sweeps, *score, f"{_age(self.began)} ago"]


@dataclass(frozen=True)
class ListedExperiments:
    """The experiments of a store, the latest first. left_out: how many more the store has."""

    experiments: Sequence[ListedExperiment]
    left_out: int


def runs(config: RunsConfig, invocation: Invocation) -> CommandAnswer:
    tracker = open_store(config)
    notes: list[str] = []
    with stage("reading the runs"):
        if config.run is not None:
            sweep = tracker.run(config.run)
            if most := sweep.tags.get(ONLY_BEST):
                notes.append(f"The sweep logged its best {most} as runs. All its trials are in its file trials.csv.")
            title, groups = f"Trials of {sweep.named}", grouped(_trials(tracker, sweep))
        elif (name := _experiment(tracker, config, invocation)) is not None:
            title, groups = f"Experiment {name!r}", grouped(_rows(tracker.runs(name, {})))
            groups = [replace(one, expected=_expected(tracker, one)) for one in groups]
        else:
            return _show_experiments(tracker, config, Place.of(config, invocation))
    found = ListedRuns(title, [group.first(config.top) for group in groups])
    titles = [group.title for group in groups]
    shown = [
        group.table(f"{group.title}, labels {group.data}" if titles.count(group.title) > 1 else group.title)
        for group in found.groups
    ]
    rows = [row for group in groups for row in group.rows]
    sweeps = sum(row.trials is not None for row in rows)
    count = counted(len(rows) - sweeps, "run") + (f" and {counted(sweeps, 'sweep')}" if sweeps else "")
    steps = _next(groups, Place.of(config, invocation))
    return CommandAnswer(found, Report(f"{title}: {count}", tables=shown, notes=notes, steps=steps))


def _expected(tracker: Tracker, group: RunGroup) -> Expected | None:
    return shown_of_run(tracker, group.rows[0].shown, group.objective) if group.objective else None


def _left_out(listed: int, more: int) -> list[str]:
    return [f"{more} more: top={listed + more} lists all."] if more else []


def _experiment(tracker: Tracker, config: RunsConfig, invocation: Invocation) -> str | None:
    """Return the experiment to list; None for all. Raise BadInput if the user names an unknown experiment."""
    name: str | None = config.experiment_name
    known = tracker.experiments()
    if name is None or name in known:
        return name
    if any(word.startswith("experiment_name=") for word in (*invocation.overrides, *invocation.defaults)):
        raise BadInput(
            f"experiment_name={name!r}: no such experiment in {shown_address(tracker.uri)}.{did_you_mean(name, known)} "
            "`harness runs experiment_name=null` lists all."
        )
    return None  # The user named no experiment, and the default one does not exist: list all.


def _rows(logged: Sequence[LoggedRun]) -> list[RunRow]:
    """Return rows for the sweeps of an experiment, and for its runs except the trials of these sweeps."""
    by_id, loads = {run.run_id: run for run in logged}, latest_loads(logged)
    rows = []
    for run in logged:
        verb, parent = run.tags.get("harness.verb"), run.tags.get("mlflow.parentRunId")
        if verb == "sweep":
            trials = sum(member_tag(run.tags.get("sweep.id", "")) in one.tags for one in logged)
            trials = int(run.metrics.get("trials/finished", trials)) if ONLY_BEST in run.tags else trials
            best = by_id.get(run.tags.get("best.run_id", ""), run)
            rows.append(RunRow(run, best, trials, under_load(loads, best)))
        elif verb in SCORED and parent not in by_id:
            rows.append(RunRow(run, run, load=under_load(loads, run)))
    return rows


def _trials(tracker: Tracker, sweep: LoggedRun) -> list[RunRow]:
    """Return the trials that a sweep computed or reused. Raise BadInput if the run is not a sweep."""
    if sweep.tags.get("harness.verb") != "sweep":
        raise BadInput(f"Run {sweep.named} is not a sweep, so it has no trials. `harness runs` lists the sweeps.")
    member = member_tag(sweep.tags["sweep.id"])
    logged = tracker.runs(sweep.experiment, {})
    loads = latest_loads(logged)
    return [RunRow(run, run, load=under_load(loads, run)) for run in logged if member in run.tags]


def grouped(rows: Sequence[RunRow]) -> list[RunGroup]:
    """Return groups of rows that can be compared: the latest group first, rows without an objective last.

    rows: must be sorted, the latest first.
    """
    found: list[list[RunRow]] = []
    for row in sorted((row for row in rows if row.objective), key=lambda row: -len(row.shown.tags)):
        same = next((group for group in found if compares(group[0].shown, row.shown)), None)
        if same is None:
            found.append([row])
        else:
            same.append(row)
    found.sort(key=lambda group: -max(row.run.began for row in group))
    groups = [
        RunGroup.of(sorted(group, key=lambda row: (-row.objective.value if row.objective else 0.0, row.run.began)))
        for group in found
    ]
    rest = [row for row in rows if not row.objective]
    return [*groups, *([RunGroup.of(rest)] if rest else [])]


def _score(one: Objective | None) -> list[Cell]:
    if one is None:
        return [None, None]
    found = one.estimate or one
    return [Number(found.value, found.low, found.high), one.value if one.estimate else None]


def _varied(rows: Sequence[RunRow]) -> list[set[str]]:
    """Return for each row the names of params that differ among the runs of the same command.

    A missing param counts as a value of its own, unless it is a key of a component, such as `retriever.bigram.k1`.
    """
    verbs = [row.shown.tags.get("harness.verb") for row in rows]
    found = {}
    for verb in {*verbs}:
        peers = [row.shown.params for row, own in zip(rows, verbs, strict=True) if own == verb]
        found[verb] = {name for name in {*chain(*peers)} if _varies(name, peers)}
    return [found[verb] for verb in verbs]


def _varies(name: str, peers: Sequence[Mapping[str, str]]) -> bool:
    values = {one.get(name) for one in peers}
    return len(values - {None} if "." in name else values) > 1


def _age(began: int) -> str:
    """Return how long ago a run began, such as `3 h`. began: in milliseconds since 1970."""
    minutes = max(0, int(time.time() - began / 1000)) // 60
    unit, size = next(((unit, size) for unit, size in (("d", 1440), ("h", 60)) if minutes >= size), ("min", 1))
    return f"{minutes // size:,} {unit}"


def _next(groups: Sequence[RunGroup], place: Place) -> list[str]:
    sweep = next((row.run for group in groups for row in group.rows if row.trials is not None), None)
    said = [place.command("runs", f"run={sweep.short_id}")] if sweep else []
    if groups and groups[0].objective:
        best, *others = (row.shown for row in groups[0].rows)
        other = next((one for one in others if not is_same(best, one)), None)
        if other:
            said.append(place.command("compare", f"runs=[{best.short_id},{other.short_id}]"))
    return said


def _show_experiments(tracker: Tracker, config: RunsConfig, place: Place) -> CommandAnswer:
    rows = [(name, _rows(tracker.runs(name, {}))) for name in tracker.experiments()]
    listed = sorted((ListedExperiment.of(name, of) for name, of in rows if of), key=lambda one: -one.began)
    found = ListedExperiments(listed[: config.top], max(0, len(listed) - config.top))
    steps = [place.command("runs", f"experiment_name={listed[0].experiment}")] if listed else [place.command("run")]
    title = f"{counted(len(listed), 'experiment')} in {shown_address(tracker.uri)}"
    cells, notes = [one.cells for one in found.experiments], _left_out(len(found.experiments), found.left_out)
    tables = [Table("The latest first", EXPERIMENTS, cells, notes, "experiments")] if cells else []
    return CommandAnswer(found, Report(title, tables=tables, steps=steps))
