"""`harness watch`: repeat the best run on today's data, and say what has changed. A timer may call it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from harness.analysis.guard.checked_run import CheckedRun, bounds_time, champion_run, guard_answer, require_values
from harness.analysis.guard.checking import CheckResult, bounds_of, check_snapshots
from harness.analysis.guard.snapshot import Snapshot, fingerprints_of, snapshot_of
from harness.analysis.guard.todays_queries import QueriesToday, read_todays_queries, todays_queries
from harness.analysis.guard.watch_series import DocumentsChange, WatchSeries, WatchState, documents_change
from harness.analysis.ranking import Wanted, require_finished, require_labels, settled
from harness.analysis.single_run import REPEATS, full_experiment
from harness.config.check import Invocation
from harness.config.commands import RunConfig, WatchConfig
from harness.config.schema import schema_groups
from harness.config.text import short_id
from harness.data.dataset import Dataset
from harness.errors import BadInput, Failed, did_you_mean
from harness.experiment.plan import Plan
from harness.recording.logged_run import logged_config, logged_value, recommended, require_allowed_hosts
from harness.recording.recording import open_store
from harness.recording.repeating import repeating_config, require_repeatable
from harness.reports.markup import percent
from harness.reports.next_steps import Place
from harness.reports.report import Report
from harness.reports.result import CommandAnswer
from harness.reports.tables import Column, Rows, Table
from harness.storage.locks import locked
from harness.storage.typed import INLINE, OPTIONAL
from harness.tracking.tracker import NOTE, LoggedRun, Tracker, as_note, mlflow_name

KEPT = 20  # number of different queries and labels whose fingerprints are kept
SAME = "Nothing changed: the documents, queries, labels and results are those of the baseline."


@dataclass(frozen=True, eq=False, kw_only=True)
class Watched:
    """The answer of `harness watch`.

    check: today's run against the baseline. changed: whether data or results differ from those of the baseline.
    objective: the mean of the measure over all scored queries of today. judged: the share of the returned documents
    that were judged; None if the labels do not say that. step: the number of this watch, from 1.
    """

    check: CheckResult = field(metadata=INLINE)
    changed: bool
    objective: float
    judged: float | None
    documents: DocumentsChange
    step: int
    today: QueriesToday | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, eq=False)
class Repeated:
    """Today's run of the baseline's config. new, after: the run and its snapshot. today: about `queries=FILE`."""

    new: CheckedRun
    after: Snapshot
    dataset: Dataset
    top_k: int
    today: QueriesToday | None


def watch_champion(config: WatchConfig, invocation: Invocation) -> CommandAnswer:
    """Repeat the champion on today's data, compare both runs, and add a point to the experiment's series."""
    tracker = open_store(config, "keeps no runs to repeat")
    with locked(config.outputs.absolute() / "watch.lock", "watches runs of this outputs folder"):
        return _watch(config, invocation, tracker)


def _watch(config: WatchConfig, invocation: Invocation, tracker: Tracker) -> CommandAnswer:
    metric, base = _baseline(tracker, config)
    logged = logged_config(tracker, base)
    series = WatchSeries.read(tracker, base.experiment)
    with tempfile.TemporaryDirectory() as folder:
        source = logged_value(logged, "dataset", dict)
        old = CheckedRun(base, lambda name: tracker.download(base, name, Path(folder)), source)
        before = snapshot_of(base, old.file)
    if metric not in before.measures:
        near = did_you_mean(metric, before.measures)
        raise BadInput(f"metric={metric}: run {base.named} has no value of it by query.{near}")
    now = _repeat(config, invocation, base, logged, metric)
    new_baseline = Place.of(config, invocation).command("watch", f"run={now.new.run.short_id}")
    renew = f"To make today's run the baseline: {new_baseline}"
    known = _queries_then(series.state, old, before, now, renew)
    checked = _checked(config, metric, before.identified(known), now, renew)
    documents, hashes = documents_change(series.state, now.dataset)
    found = _found(checked, before, now, documents, metric, series.state.step + 1)
    report = _report(found, now, series.experiment)
    if (last := series.state.baseline) not in ("", base.run_id):
        other = f"The last watch repeated another run ({short_id(last)}), whose documents may be those of other data."
        report = replace(report, notes=[*report.notes, other])
    today = {query_id: one.data for query_id, one in now.after.queries.items()}
    seen = {**series.state.queries, _data_key(before): known, _data_key(now.after): today}
    state = WatchState(
        step=found.step,
        baseline=base.run_id,
        queries=dict([*seen.items()][-KEPT:]),
        fingerprint=str(now.dataset.fingerprints["documents"]),
        documents=hashes,
    )
    series.add(state, _point(found, now), _tags(found, base, now, report))
    return guard_answer(found, report, checked.outcome, config.undecided)


def _baseline(tracker: Tracker, config: WatchConfig) -> tuple[str, LoggedRun]:
    """Return (the measure that may not drop, the run to repeat)."""
    settings, _ = settled(tracker, config, verbs=("run",))
    metric = settings.metric
    assert metric is not None  # `settled` sets it
    require_values("metric", (metric,))
    if config.run:
        run = recommended(tracker, tracker.run(config.run))
    else:
        wanted = Wanted(config.experiment_name, metric, config.select_on, verbs=("run",))
        champion = champion_run(tracker, wanted, lambda one: REPEATS not in one.tags)
        if champion is None:
            raise BadInput(
                f"Experiment {config.experiment_name!r} has only runs that `harness watch` has made. Name the run to "
                "repeat: run=ID"
            )
        run = champion
    require_finished(run)
    require_repeatable(run)
    if run.tags["harness.verb"] != "run":
        raise BadInput(f"Run {run.named} scored a file that was made elsewhere: there is nothing to repeat.")
    require_labels(run)
    return metric, run


def _repeat(
    config: WatchConfig, invocation: Invocation, base: LoggedRun, logged: Mapping[str, Any], metric: str
) -> Repeated:
    """Run the baseline's config on today's data, with the measure added, and compare today's queries."""
    document = repeating_config(base, logged, config, config.tracking)
    document |= {"run_name": base.name, "metrics": [*dict.fromkeys([*document["metrics"], metric])]}
    plan = Plan.of(document)
    unused = () if plan.asks_model or "llm" in plan.active else ("llm",)
    require_allowed_hosts(base, {name: node for name, node in document.items() if name not in unused}, config.allow)
    queries = read_todays_queries(config.queries, plan) if config.queries else None
    choices = {group: base.params.get(group, "none") for group in schema_groups(RunConfig)}
    as_then = Invocation(choices, (), config_dir=invocation.config_dir)
    timed = bounds_time(config.bounds)
    result, session, outcome = full_experiment(RunConfig.of(document), as_then, timed, base.run_id)
    if result.run_id is None or result.unsent:
        raise Failed("Today's run is not in the tracking store, so nothing was compared. Upload it, and watch again.")
    new, dataset = CheckedRun.made(result), session.dataset
    require_labels(new.run)
    assert dataset.qrels is not None
    after = snapshot_of(new.run, new.file).identified(fingerprints_of(dataset.queries, dataset.qrels))
    ranking = next(iter(outcome.rankings.values()))
    today = todays_queries(result.plan, session, ranking, queries) if queries else None
    return Repeated(new, after, dataset, result.plan.top_k, today)


def _data_key(snapshot: Snapshot) -> str:
    return "-".join(snapshot.data.get(part, "")[:16] for part in ("queries", "qrels"))


def _queries_then(state: WatchState, old: CheckedRun, before: Snapshot, now: Repeated, renew: str) -> Mapping[str, str]:
    """Return the fingerprints of the baseline's queries, as `fingerprints_of` does. Raise BadInput if they are lost."""
    if not (unlike := now.after.unlike(before)):
        return {query_id: one.data for query_id, one in now.after.queries.items()}
    if known := state.queries.get(_data_key(before)) or old.data()[0]:
        return known
    raise BadInput(
        f"The {' and '.join(unlike)} have changed since run {old.run.named}, and its own data were overwritten. So "
        "nobody knows which queries are still the same. Put the old data back and watch once: the next "
        f"watches remember the queries. {renew}"
    )


def _checked(config: WatchConfig, metric: str, before: Snapshot, now: Repeated, renew: str) -> CheckResult:
    assert now.dataset.qrels is not None
    known = replace(now.new.known(now.dataset.queries, now.dataset.qrels), renew=renew)
    bounds = bounds_of(config.bounds, now.new.run.metrics)
    return check_snapshots(before, now.after, [metric], float(config.margin), bounds, known)


def _found(
    checked: CheckResult, before: Snapshot, now: Repeated, documents: DocumentsChange, metric: str, step: int
) -> Watched:
    return Watched(
        check=checked,
        changed=now.after.data != before.data or not now.after.lists_equal(before),
        objective=float(np.nanmean(now.after.values(now.after.queries, (metric,)))),
        judged=now.new.run.metrics.get(mlflow_name(f"judged@{now.top_k}")),
        documents=documents,
        step=step,
        today=now.today,
    )


def _point(found: Watched, now: Repeated) -> dict[str, float]:
    """Return the metrics of this watch. Those that do not apply are left out."""
    values: dict[str, float | None] = {
        "objective": found.objective,
        "objective_change": found.check.changes[0].difference.mean,
        "documents": found.documents.count,
        "judged": found.judged,
        "unseen_words": found.today.unseen / found.today.queries if found.today else None,
        "ms_per_query": now.new.run.metrics.get("ms_per_query"),
        **{f"documents/{name}": ids.count for name, ids in found.documents.lists.items()},
    }
    return {name: float(value) for name, value in values.items() if value is not None and value == value}


def _tags(found: Watched, base: LoggedRun, now: Repeated, report: Report) -> dict[str, str]:
    """Return the tags of the series. Its description in MLflow names no query: today's queries may be private."""
    note = as_note("\n\n".join([report.title, *report.verdict]))
    run_id = now.new.run.run_id
    return {"watch.outcome": found.check.outcome, "watch.baseline": base.run_id, "watch.run": run_id, NOTE: note}


def _report(found: Watched, now: Repeated, experiment: str) -> Report:
    checked, documents, today = found.check.report, found.documents, found.today
    changes: Rows = [[name, ids.count, ids.text] for name, ids in documents.lists.items() if ids.count]
    verdict = [*checked.verdict] if found.changed else [SAME, *checked.verdict[1:]]
    notes = [*checked.notes]
    (verdict if changes else notes).append(documents.sentence)
    verdict += today.verdict if today else []
    if found.judged is not None:
        notes.append(
            f"Of the first {now.top_k} documents, {percent(found.judged, 1)} were judged (judged@{now.top_k}). "
            "The others count as not relevant."
        )
    columns = [Column(""), Column("documents", "count"), Column("ids")]
    tables = [*checked.tables, *([Table("Documents since the last watch", columns, changes)] if changes else [])]
    tables += today.tables if today else []
    files = [f"Watch {found.step} of experiment {experiment!r}. Today's run: {now.new.run.short_id}."]
    return Report(checked.title, verdict, tables, notes, files)
