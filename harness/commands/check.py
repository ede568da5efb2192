"""`harness check`: whether retrieval is no worse than a baseline. The exit code says which of three answers it is."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.analysis.guard.checking import CheckResult, Known, SliceRule, bounds_of, check_snapshots
from harness.analysis.guard.snapshot import SAVE, Snapshot, fingerprints_of, read_snapshot, snapshot_of
from harness.analysis.ranking import Wanted, differ, rank, require_finished, require_labels
from harness.analysis.single_run import experiment
from harness.config.check import Invocation
from harness.config.commands import CheckConfig, RunConfig
from harness.config.schema import Node, top_level
from harness.config.text import counted
from harness.data.attributes import attributes_of
from harness.errors import BadInput
from harness.measures.measures import MeasureFamily, parse_measure
from harness.recording.logged_run import in_full, load_queries, logged_config, logged_value, recommended
from harness.recording.recording import open_store
from harness.recording.retrieval_run import CHECKED, PREDICTED
from harness.recording.run_files import ID
from harness.reports.report import Report
from harness.reports.result import CommandAnswer
from harness.reports.tables import Table
from harness.storage.atomic import write_text
from harness.tracking.mlflow_client import champion
from harness.tracking.tracker import TIMES, LoggedRun, Tracker

CODES = {"holds": 0, "regressed": 3, "cannot tell": 4}  # outcome -> exit code
CHAMPION = "champion"
BY_MODEL = (
    "A model wrote some of the labels. They count as they are, with their errors: `harness compare` estimates what "
    "people's labels would say."
)


@dataclass(frozen=True, eq=False)
class NewRun:
    """The run to check. file: returns the path of one of its files. source: the config of its dataset."""

    run: LoggedRun
    file: Callable[[str], Path]
    source: Node

    def data(self) -> tuple[Mapping[str, str], Known]:
        """Return (the fingerprints of the queries, their texts and labels); both are empty if the data have changed."""
        try:
            data = load_queries(self.run, self.source, ("queries", "qrels"))
        except BadInput:
            return {}, Known({}, {}, {})
        assert data.qrels is not None  # otherwise the run would have no labels
        texts = {query.query_id: query.text for query in data.queries}
        notes = [BY_MODEL] if CHECKED in self.run.tags else []
        known = Known(texts, data.qrels.grades, attributes_of(data.queries, data.qrels), notes)
        return fingerprints_of(data.queries, data.qrels), known


def check(config: CheckConfig, invocation: Invocation) -> CommandAnswer:
    """Make or read a run, and compare it with the baseline, or save it as one."""
    measures = config.measures or (config.objective,)
    for name in measures:
        if parse_measure(name).family is MeasureFamily.POOLED:
            raise BadInput(f"measures: {name} has no value by query. Choose another measure, or a bound: bounds=[...]")
    word = config.baseline
    saved = None if config.save or word == CHAMPION or _is_id(word) else read_snapshot(Path(word))
    with tempfile.TemporaryDirectory() as folder:
        candidate = _read(config, Path(folder)) if config.run else _made(config, invocation, measures)
        require_labels(candidate.run)
        if config.save:
            new = snapshot_of(candidate.run, candidate.file).identified(candidate.data()[0])
            new.save(config.save, measures)
            return _saved(config.save, new, measures)
        baseline, known = saved or _logged_baseline(config, candidate.run, measures[0]), None
        new = snapshot_of(candidate.run, candidate.file, candidate.run.tags.get(PREDICTED) != baseline.predictions)
        if not new.lists_equal(baseline) or new.unlike(baseline):
            data, known = candidate.data()
            new = new.identified(data)
    bounds = bounds_of(config.bounds, candidate.run.metrics)
    rule = SliceRule(config.slices, config.slice_margin) if config.slices else None
    if rule and known and not known.attributes:
        raise BadInput("slices: the data of the run have changed, so the attributes of its queries are unknown.")
    checked = check_snapshots(baseline, new, measures, float(config.margin), bounds, known, rule)
    if config.junit:
        config.junit.parent.mkdir(parents=True, exist_ok=True)
        write_text(config.junit, checked.junit(config.undecided))
    if config.run:
        open_store(config).count_private_view(candidate.run.experiment)
    elif new.run_id:
        open_store(config).tag(new.run_id, {"check.outcome": checked.outcome, "check.baseline": baseline.named})
    return _answer(checked, config.undecided)


def _is_id(word: str) -> bool:
    return ID.fullmatch(word) is not None and not Path(word).exists()


def _made(config: CheckConfig, invocation: Invocation, measures: Sequence[str]) -> NewRun:
    """Run the configuration, as `harness run` does, with these measures added."""
    kept = top_level(RunConfig)
    document = {name: value for name, value in config.document.items() if name in kept}
    document["metrics"] = [*dict.fromkeys([*document["metrics"], *measures])]
    words = tuple(one for one in invocation.overrides if one.lstrip("+~").partition("=")[0].partition(".")[0] in kept)
    timed = any(word.strip().startswith(TIMES) for word in config.bounds)
    result = experiment(RunConfig.of(document), replace(invocation, overrides=words), timed)
    sent = None if result.unsent else result.run_id
    run = result.record.logged(sent)
    run = replace(run, metrics=run.metrics | dict(result.measured))
    return NewRun(run, lambda name: result.folder / name, result.plan.dataset)


def _read(config: CheckConfig, folder: Path) -> NewRun:
    tracker = open_store(config)
    run = in_full(tracker, recommended(tracker, tracker.run(config.run or "")))
    require_finished(run)
    source = logged_value(logged_config(tracker, run), "dataset", dict)
    return NewRun(run, lambda name: tracker.download(run, name, folder), source)


def _logged_baseline(config: CheckConfig, new: LoggedRun, measure: str) -> Snapshot:
    """Return the snapshot of the baseline in the tracking store. new: the run to check."""
    tracker = open_store(config, f"keeps no baseline. Name a file: baseline=FILE. {SAVE}. It")
    run = _champion(tracker, new, measure) if config.baseline == CHAMPION else tracker.run(config.baseline)
    run = recommended(tracker, run)
    with tempfile.TemporaryDirectory() as folder:
        return snapshot_of(run, lambda name: tracker.download(run, name, Path(folder)))


def _champion(tracker: Tracker, new: LoggedRun, measure: str) -> LoggedRun:
    """Return the run of the model that is registered for the experiment, or the best other run on the same data."""
    if registered := champion(tracker.client, new.experiment):
        return tracker.run(registered.run_id or "")
    ranked = rank(tracker, Wanted(new.experiment, measure, new.select_on)).runs
    others = [one.run for one in ranked if one.run.run_id != new.run_id]
    alike = [run for run in others if not differ(new, run, measure, new.select_on)]
    if not alike:
        why = f"none of its other runs ({len(others):,}) has the same queries and labels" if others else "no other run"
        raise BadInput(f"Experiment {new.experiment!r} has no baseline: {why}. {SAVE}")
    return alike[0]


def _saved(file: Path, new: Snapshot, measures: Sequence[str]) -> CommandAnswer:
    said = f"Saved {', '.join(measures)} of {new.named} on {counted(len(new.queries), 'query')} to {file}."
    found = {"saved": file, "run_id": new.run_id, "measures": measures, "queries": len(new.queries)}
    return CommandAnswer(found, Report("", files=[said]))


def _answer(checked: CheckResult, undecided: str) -> CommandAnswer:
    report, outcome = checked.report, checked.outcome
    passes = outcome == "holds" or (outcome == "cannot tell" and undecided == "pass")
    notes = [Table("Notes", notes=report.notes)] if report.notes else []
    whole = [Table(report.title, notes=report.verdict), *report.tables, *notes]
    return CommandAnswer(checked, report, lambda _: whole, checked, None if passes else "", CODES[outcome])
