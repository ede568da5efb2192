"""`harness runs`: list an experiment's runs and sweeps, the best first; all experiments; or a sweep's trials."""

from __future__ import annotations

import datetime
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from harness.analysis.board.expected import Expected, shown_of_run
from harness.analysis.ranking import SCORED, SCORED_QUERIES, compares, is_same
from harness.config.check import Invocation
from harness.config.commands import RunsConfig
from harness.config.text import counted
from harness.errors import BadInput, did_you_mean
from harness.measures.measures import of_spans
from harness.measures.objective import Objective
from harness.progress import stage
from harness.recording.recording import open_store
from harness.reports.next_steps import Place
from harness.reports.report import Report
from harness.reports.result import CommandAnswer
from harness.reports.tables import Cell, Column, Number, Rows, Table
from harness.tracking.mlflow_client import shown_address
from harness.tracking.tracker import LoggedRun, Tracker, member_tag

COUNTS = Column("runs", "count"), Column("sweeps", "count")
EXPERIMENTS = (Column("experiment"), *COUNTS, Column("best", "value"), Column("objective"), Column("latest run"))


@dataclass(frozen=True)
class RunRow:
    """A run, or a sweep with its best trial.

    shown: the run, or the best trial of the sweep. The row shows its objective and params.
    trials: the number of the sweep's trials so far; None for a run.
    """

    run: LoggedRun
    shown: LoggedRun
    trials: int | None = None

    @property
    def objective(self) -> Objective | None:
        return self.shown.objective

    @property
    def began(self) -> str:
        return datetime.datetime.fromtimestamp(self.run.began / 1000, datetime.UTC).isoformat("T", "seconds")

    def in_words(self, differs: Mapping[str, str]) -> str:
        if self.trials is not None:
            best = self.run.tags.get("best.overrides")
            return f"sweep, {counted(self.trials, 'trial')}" + (f"; best: {best}" if best else "")
        said = " ".join(f"{name}={value}" for name, value in differs.items())
        automatic = "sweep.trial" in self.run.tags or self.run.name.startswith(self.run.params.get("retriever", ""))
        return said if said and automatic else " ".join(filter(None, (self.run.name, said and f"({said})")))


@dataclass(frozen=True)
class RunGroup:
    """Rows whose objectives can be compared, the best first; or rows without an objective, the latest first.

    expected: the value to expect of the best run on new queries; None if unknown.
    """

    rows: Sequence[RunRow]
    expected: Expected | None = None

    @cached_property
    def kinds(self) -> list[str]:
        return list(dict.fromkeys(row.objective.kind for row in self.rows if row.objective))

    @property
    def measure(self) -> str | None:
        return self.rows[0].objective.name if self.rows[0].objective else None

    @property
    def queries(self) -> int | None:
        """Return the number of queries on which the objectives were computed; None for a text task."""
        counts = (row.shown.metrics.get(SCORED_QUERIES) for row in self.rows)
        return next((int(count) for count in counts if count is not None), None)

    @property
    def title(self) -> str:
        if self.measure is None:
            return "Without an objective"
        part = "the public part of " if self.kinds[0].startswith("public") else ""
        over = f", {part}{counted(self.queries, 'query')}" if self.queries is not None else ""
        return f"{self.measure}, {' or '.join(self.kinds)}{over}"

    @property
    def data(self) -> str:
        tags = self.rows[0].shown.tags
        labels = "data.evidence" if of_spans(self.measure or "") else "data.qrels"
        return (tags.get(labels) or tags.get("data.references") or "")[:8]

    @cached_property
    def differs(self) -> list[dict[str, str]]:
        """Return for each row the params that differ among the runs of the same command.

        A key of one component, such as `retriever.bigram.k1`, counts only if the runs that have it differ in its value.
        """
        found = []
        for row in self.rows:
            verb = row.shown.tags.get("harness.verb")
            peers = [one.shown.params for one in self.rows if one.shown.tags.get("harness.verb") == verb]
            names = [name for name in row.shown.params if _varies(name, peers)]
            found.append({name: row.shown.params[name] for name in names})
        return found

    def table(self, title: str, top: int) -> Table:
        estimated = any(row.objective and row.objective.estimate for row in self.rows)
        columns = [Column("estimate" if estimated else "value", "value"), Column("raw", "value")]
        columns += map(Column, ("kind", "status", "what differs", "age", "run"))
        ended = all(row.run.status == "FINISHED" for row in self.rows)
        cells: Rows = []
        for place, (row, differs) in enumerate(zip(self.rows[:top], self.differs, strict=False)):
            others = (above.shown for above in self.rows[:place] if above.shown.run_id != row.shown.run_id)
            twin = next((other for other in others if is_same(row.shown, other)), None)
            said = row.in_words(differs) + (f" (returns the same as {twin.short_id})" if twin else "")
            kind = row.objective.kind if row.objective and len(self.kinds) > 1 else ""
            status = "" if ended else row.run.status
            cells.append([*_score(row.objective), kind, status, said, _age(row.run.began), row.run.short_id])
        lines = [self.expected.sentence] if self.expected else []
        return Table(title, columns, cells, [*lines, *_left_out(len(self.rows), top)], "runs").without_empty()


def runs(config: RunsConfig, invocation: Invocation) -> CommandAnswer:
    tracker = open_store(config)
    with stage("reading the runs"):
        if config.run is not None:
            sweep = tracker.run(config.run)
            title, groups = f"Trials of {sweep.named}", grouped(_trials(tracker, sweep))
        elif (name := _experiment(tracker, config, invocation)) is not None:
            title, found = f"Experiment {name!r}", grouped(_rows(tracker.runs(name, {})))
            best = [shown_of_run(tracker, one.rows[0].shown, one.measure) if one.measure else None for one in found]
            groups = [replace(group, expected=expected) for group, expected in zip(found, best, strict=True)]
        else:
            return _show_experiments(tracker, config, Place.of(config, invocation))
    top = config.top
    document = {"title": title, "groups": [_group_document(group, top) for group in groups]}
    titles = [group.title for group in groups]
    shown = [
        group.table(f"{group.title}, labels {group.data}" if titles.count(group.title) > 1 else group.title, top)
        for group in groups
    ]
    rows = [row for group in groups for row in group.rows]
    sweeps = sum(row.trials is not None for row in rows)
    count = counted(len(rows) - sweeps, "run") + (f" and {counted(sweeps, 'sweep')}" if sweeps else "")
    steps = _next(groups, Place.of(config, invocation))
    return CommandAnswer(document, Report(f"{title}: {count}", tables=shown, steps=steps))


def _left_out(rows: int, top: int) -> list[str]:
    return [f"{rows - top} more: top={rows} lists all."] if rows > top else []


def _group_document(group: RunGroup, top: int) -> dict[str, Any]:
    rows = [
        {
            "run_id": row.run.run_id,
            "name": row.run.name,
            "verb": row.run.tags["harness.verb"],
            "status": row.run.status,
            "began": row.began,
            "objective": row.objective,
            "differs": differs,
            "trials": row.trials,
        }
        | ({"best_run_id": row.shown.run_id if row.objective else None} if row.trials is not None else {})
        for row, differs in zip(group.rows[:top], group.differs, strict=False)
    ]
    about = {"objective": group.measure, "kinds": group.kinds, "queries": group.queries, "expected": group.expected}
    return about | {"rows": rows, "left_out": max(0, len(group.rows) - top)}


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
    return None  # the user named no experiment: this is the default name


def _rows(logged: Sequence[LoggedRun]) -> list[RunRow]:
    """Return rows for the sweeps of an experiment, and for its runs except the trials of these sweeps."""
    by_id = {run.run_id: run for run in logged}
    rows = []
    for run in logged:
        verb, parent = run.tags.get("harness.verb"), run.tags.get("mlflow.parentRunId")
        if verb == "sweep":
            trials = sum(member_tag(run.tags.get("sweep.id", "")) in one.tags for one in logged)
            rows.append(RunRow(run, by_id.get(run.tags.get("best.run_id", ""), run), trials))
        elif verb in SCORED and parent not in by_id:
            rows.append(RunRow(run, run))
    return rows


def _trials(tracker: Tracker, sweep: LoggedRun) -> list[RunRow]:
    """Return the trials that a sweep computed or reused. Raise BadInput if the run is not a sweep."""
    if sweep.tags.get("harness.verb") != "sweep":
        raise BadInput(f"Run {sweep.named} is not a sweep, so it has no trials. `harness runs` lists the sweeps.")
    member = member_tag(sweep.tags["sweep.id"])
    return [RunRow(run, run) for run in tracker.runs(sweep.experiment, {}) if member in run.tags]


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
        RunGroup(sorted(group, key=lambda row: (-row.objective.value if row.objective else 0.0, row.run.began)))
        for group in found
    ]
    rest = [row for row in rows if not row.objective]
    return [*groups, *([RunGroup(rest)] if rest else [])]


def _score(one: Objective | None) -> list[Cell]:
    if one is None:
        return [None, None]
    found = one.estimate or one
    return [Number(found.value, found.low, found.high), one.value if one.estimate else None]


def _varies(name: str, peers: Sequence[Mapping[str, str]]) -> bool:
    values = {one.get(name) for one in peers}
    return len(values - {None} if "." in name else values) > 1


def _age(began: int) -> str:
    """Return how long ago a time in milliseconds since 1970 was, such as `3 h`."""
    minutes = max(0, int(time.time() - began / 1000)) // 60
    unit, size = next(((unit, size) for unit, size in (("d", 1440), ("h", 60)) if minutes >= size), ("min", 1))
    return f"{minutes // size:,} {unit}"


def _next(groups: Sequence[RunGroup], place: Place) -> list[str]:
    sweep = next((row.run for group in groups for row in group.rows if row.trials is not None), None)
    said = [place.command("runs", f"run={sweep.short_id}")] if sweep else []
    if groups and groups[0].measure:
        best, *others = (row.shown for row in groups[0].rows)
        other = next((one for one in others if not is_same(best, one)), None)
        if other:
            said.append(place.command("compare", f"runs=[{best.short_id},{other.short_id}]"))
    return said


def _show_experiments(tracker: Tracker, config: RunsConfig, place: Place) -> CommandAnswer:
    listed = [(name, _rows(tracker.runs(name, {}))) for name in tracker.experiments()]
    listed = sorted(((name, rows) for name, rows in listed if rows), key=lambda one: -max(r.run.began for r in one[1]))
    found: list[dict[str, Any]] = []
    cells: Rows = []
    for name, rows in listed:
        group = max(grouped(rows), key=lambda group: (group.measure is not None, len(group.rows)))
        best, latest = group.rows[0].objective, max(rows, key=lambda row: row.run.began)
        found.append({
            "experiment": name,
            "runs": sum(row.trials is None for row in rows),
            "sweeps": sum(row.trials is not None for row in rows),
            "best": best,
            "latest": latest.began,
        })  # fmt: skip
        score: list[Cell] = [best.value, best.title] if best else [None, ""]
        cells.append([name, found[-1]["runs"], found[-1]["sweeps"], *score, f"{_age(latest.run.began)} ago"])
    top = config.top
    document = {"experiments": found[:top], "left_out": max(0, len(cells) - top)}
    steps = [place.command("runs", f"experiment_name={listed[0][0]}")] if listed else [place.command("run")]
    title = f"{counted(len(cells), 'experiment')} in {shown_address(tracker.uri)}"
    notes = _left_out(len(cells), top)
    tables = [Table("The latest first", EXPERIMENTS, cells[:top], notes, "experiments")] if cells else []
    return CommandAnswer(document, Report(title, tables=tables, steps=steps))
