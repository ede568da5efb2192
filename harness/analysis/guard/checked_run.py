"""The runs that `harness check` and `harness watch` compare: the new run, and the champion as its baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.analysis.guard.checking import Known
from harness.analysis.guard.snapshot import fingerprints_of
from harness.analysis.ranking import Wanted, rank
from harness.analysis.single_run import Result
from harness.config.schema import Node
from harness.data.attributes import attributes_of
from harness.data.qrels import Qrels
from harness.errors import BadInput
from harness.measures.measures import MeasureFamily, parse_measure
from harness.recording.logged_run import load_queries
from harness.recording.retrieval_run import CHECKED
from harness.reports.report import Report
from harness.reports.result import CommandAnswer
from harness.reports.tables import Table
from harness.statistics.guard import Outcome
from harness.tracking.mlflow_client import champion
from harness.tracking.tracker import TIMES, LoggedRun, Tracker
from retrievers.base import Query

CODES = {"holds": 0, "regressed": 3, "cannot tell": 4}  # outcome -> exit code
BY_MODEL = (
    "A model wrote some of the labels. They count as they are, with their errors: `harness compare` estimates what "
    "people's labels would say."
)


@dataclass(frozen=True, eq=False)
class CheckedRun:
    """A run to compare. file: returns the path of one of its files. source: the config of its dataset."""

    run: LoggedRun
    file: Callable[[str], Path]
    source: Node

    @classmethod
    def made(cls, result: Result) -> CheckedRun:
        """Return the run that this process has just made."""
        run = result.record.logged(None if result.unsent else result.run_id)
        run = replace(run, metrics=run.metrics | dict(result.measured))
        return cls(run, lambda name: result.folder / name, result.plan.dataset)

    def data(self) -> tuple[Mapping[str, str], Known]:
        """Return (the fingerprints of the queries, their texts and labels); both are empty if the data have changed."""
        try:
            data = load_queries(self.run, self.source, ("queries", "qrels"))
        except BadInput:
            return {}, Known({}, {}, {})
        assert data.qrels is not None  # otherwise the run would have no labels
        return fingerprints_of(data.queries, data.qrels), self.known(data.queries, data.qrels)

    def known(self, queries: Sequence[Query], qrels: Qrels) -> Known:
        """Return what is known of the run's queries. queries, qrels: those of the run."""
        texts = {query.query_id: query.text for query in queries}
        notes = [BY_MODEL] if CHECKED in self.run.tags else []
        return Known(texts, qrels.grades, attributes_of(queries, qrels), notes)


def require_values(key: str, measures: Sequence[str]) -> None:
    """Raise BadInput for a measure without a value by query. key: the config key that names the measures."""
    for name in measures:
        if parse_measure(name).family is MeasureFamily.POOLED:
            raise BadInput(f"{key}: {name} has no value by query. Choose another measure, or a bound: bounds=[...]")


def bounds_time(bounds: Sequence[str]) -> bool:
    """Return whether a bound limits a time, which must then be measured."""
    return any(word.strip().startswith(TIMES) for word in bounds)


def champion_run(tracker: Tracker, wanted: Wanted, fits: Callable[[LoggedRun], bool]) -> LoggedRun | None:
    """Return the run of the model that is registered for the experiment, or else the best run that fits; or None."""
    if registered := champion(tracker.client, wanted.experiment):
        return tracker.run(registered.run_id or "")
    return next((one.run for one in rank(tracker, wanted).runs if fits(one.run)), None)


def guard_answer(found: Any, report: Report, outcome: Outcome, undecided: str, value: Any = None) -> CommandAnswer:
    """Return the answer of a command whose exit code says the outcome. undecided: "pass", or "fail" to exit with 4."""
    passes = outcome == "holds" or (outcome == "cannot tell" and undecided == "pass")
    notes = [Table("Notes", notes=report.notes)] if report.notes else []
    whole = [Table(report.title, notes=report.verdict), *report.tables, *notes]
    return CommandAnswer(found, report, lambda _: whole, value, None if passes else "", CODES[outcome])
