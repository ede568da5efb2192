"""`harness check`: whether retrieval is no worse than a baseline. The exit code says which of three answers it is."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.analysis.guard.checked_run import CheckedRun, bounds_time, champion_run, guard_answer, require_values
from harness.analysis.guard.checking import SliceRule, bounds_of, check_snapshots
from harness.analysis.guard.snapshot import SAVE, Snapshot, read_snapshot, snapshot_of
from harness.analysis.ranking import Wanted, differ, require_finished, require_labels
from harness.analysis.single_run import experiment
from harness.config.check import Invocation
from harness.config.commands import CheckConfig, RunConfig
from harness.config.schema import top_level
from harness.config.text import counted
from harness.errors import BadInput
from harness.recording.load_run import P95, QPS, loads_beside, under_load
from harness.recording.logged_run import in_full, logged_config, logged_value, recommended
from harness.recording.recording import open_store
from harness.recording.retrieval_run import LISTS
from harness.recording.run_files import ID
from harness.reports.report import Report
from harness.reports.result import CommandAnswer
from harness.storage.atomic import write_text
from harness.tracking.tracker import LoggedRun, Tracker

CHAMPION = "champion"
NO_BASELINE = "keeps no baseline: name a file with baseline=FILE"


def check(config: CheckConfig, invocation: Invocation) -> CommandAnswer:
    """Make or read a run, and compare it with the baseline, or save it as one."""
    word, in_store = config.baseline, config.baseline == CHAMPION or _is_id(config.baseline)
    _check_keys(config)
    saved = None if config.save or in_store else read_snapshot(Path(word))
    measures = config.measures or (tuple(saved.measures) if saved else (config.objective,))
    require_values("measures", measures)
    if not config.save and in_store:
        open_store(config, NO_BASELINE)  # before the run
    with tempfile.TemporaryDirectory() as folder:
        candidate = _read(config, Path(folder)) if config.run else _made(config, invocation, measures)
        require_labels(candidate.run)
        if config.save:
            new = snapshot_of(candidate.run, candidate.file).identified(candidate.data()[0])
            new.save(config.save, measures)
            return _saved(config.save, new, measures)
        baseline, known = saved or _logged_baseline(config, candidate.run, measures[0]), None
        new = snapshot_of(candidate.run, candidate.file, candidate.run.tags.get(LISTS) != baseline.predictions)
        if config.slices or not new.lists_equal(baseline) or new.unlike(baseline):
            data, known = candidate.data()
            new = new.identified(data)
    bounds = bounds_of(config.bounds, candidate.run.metrics | _load(config, candidate.run))
    rule = SliceRule(config.slices, config.slice_margin) if config.slices else None
    if rule and known and not known.attributes:
        raise BadInput("slices: the data of the run have changed, so the attributes of its queries are unknown.")
    checked = check_snapshots(baseline, new, measures, float(config.margin), bounds, known, rule)
    if config.junit:
        write_text(config.junit, checked.junit(config.undecided))
    if config.run:
        open_store(config).count_private_view(candidate.run.experiment)
    elif new.run_id:
        open_store(config).tag(new.run_id, {"check.outcome": checked.outcome, "check.baseline": baseline.named})
    return guard_answer(checked, checked.report, checked.outcome, config.undecided, checked)


def _load(config: CheckConfig, run: LoggedRun) -> dict[str, float]:
    """Return the metrics of the run's configuration under load that `bounds` names, by the latest `harness load`."""
    wanted = [name for name in (P95, QPS) if any(word.strip().startswith(name) for word in config.bounds)]
    if not wanted:
        return {}
    found = under_load(loads_beside(open_store(config), [run]), run)
    if lacking := next((name for name in wanted if found[name] is None), None):
        raise BadInput(
            f"bounds: {lacking} is unknown: this configuration has no load in which a level kept up. Measure one with "
            "`harness load`."
        )
    return {name: value for name, value in found.items() if value is not None}


def _check_keys(config: CheckConfig) -> None:
    """Raise BadInput for keys that would have no effect, and for files that cannot be written."""
    given = {"junit": config.junit, "bounds": config.bounds, "slice_margin": config.slice_margin}
    if config.save and (useless := next((name for name, value in given.items() if value), None)):
        raise BadInput(f"{useless} has no effect with save=FILE, which checks nothing. Leave one of them out.")
    if config.slice_margin is not None and not config.slices:
        raise BadInput("slice_margin is about slices: name attributes, as in slices=[length], or leave it out.")
    for name, path in {"save": config.save, "junit": config.junit}.items():
        if path is None:
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"{name}={path}: {error.strerror} ({path.parent}). Name another file.") from None
        if path.exists() and not path.is_file():
            raise BadInput(f"{name}={path} is not a file, so it is not replaced. Name another file.")


def _is_id(word: str) -> bool:
    return ID.fullmatch(word) is not None and not Path(word).exists()


def _made(config: CheckConfig, invocation: Invocation, measures: Sequence[str]) -> CheckedRun:
    """Run the configuration, as `harness run` does, with these measures added."""
    kept = top_level(RunConfig)
    document = {name: value for name, value in config.document.items() if name in kept}
    document["metrics"] = [*dict.fromkeys([*document["metrics"], *measures])]
    words = tuple(one for one in invocation.overrides if one.lstrip("+~").partition("=")[0].partition(".")[0] in kept)
    return CheckedRun.made(
        experiment(RunConfig.of(document), replace(invocation, overrides=words), bounds_time(config.bounds))
    )


def _read(config: CheckConfig, folder: Path) -> CheckedRun:
    tracker = open_store(config)
    run = in_full(tracker, recommended(tracker, tracker.run(config.run or "")))
    require_finished(run)
    source = logged_value(logged_config(tracker, run), "dataset", dict)
    return CheckedRun(run, lambda name: tracker.download(run, name, folder), source)


def _logged_baseline(config: CheckConfig, new: LoggedRun, measure: str) -> Snapshot:
    """Return the snapshot of the baseline in the tracking store. new: the run to check."""
    tracker = open_store(config, NO_BASELINE)
    run = _champion(tracker, new, measure) if config.baseline == CHAMPION else tracker.run(config.baseline)
    run = recommended(tracker, run)
    with tempfile.TemporaryDirectory() as folder:
        return snapshot_of(run, lambda name: tracker.download(run, name, Path(folder)))


def _champion(tracker: Tracker, new: LoggedRun, measure: str) -> LoggedRun:
    def fits(run: LoggedRun) -> bool:
        return run.run_id != new.run_id and not differ(new, run, measure, new.select_on)

    if found := champion_run(tracker, Wanted(new.experiment, measure, new.select_on), fits):
        return found
    raise BadInput(
        f"Experiment {new.experiment!r} has no baseline: no other run has the same queries and labels. {SAVE}"
    )


def _saved(file: Path, new: Snapshot, measures: Sequence[str]) -> CommandAnswer:
    said = f"Saved {', '.join(measures)} of {new.named} on {counted(len(new.queries), 'query')} to {file}."
    found = {"saved": file, "run_id": new.run_id, "measures": measures, "queries": len(new.queries)}
    return CommandAnswer(found, Report("", files=[said]))
