"""The metrics, tags and files of a load, which is logged beside the runs of the same configuration."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config.text import counted
from harness.data.tables import csv_text
from harness.experiment import timing
from harness.experiment.loading import ANSWERED, QUICK_MS, SLOWER, LevelTimes, knee
from harness.recording import provenance
from harness.recording.retrieval_run import write_metrics
from harness.reports.figure import save
from harness.reports.markup import percent, rough
from harness.reports.report import Report, report_markdown
from harness.reports.run_figures import draw_load
from harness.reports.tables import Column, Rows, Table
from harness.storage.atomic import write_text
from harness.storage.typed import encoded
from harness.tracking.tracker import NOTE, LoggedRun, RunRecord, Tracker, as_note
from retrievers.base import cores

VERB = "load"
P95, QPS = "p95_ms", "qps"  # metrics of a load: latency and answers per second at the knee
BUSY = 0.25  # load average per core from which other work may slow down the answers


@dataclass(frozen=True)
class Loaded:
    """The result of a load.

    distinct_queries: the number of queries of the dataset. errors: the first messages of failed queries.
    load_average: of this machine, before the load.
    """

    json_too = ("knee",)
    levels: Sequence[LevelTimes]
    distinct_queries: int
    errors: Sequence[str] = ()
    load_average: float = 0.0

    @property
    def knee(self) -> LevelTimes | None:
        return knee(self.levels)

    @property
    def numbers(self) -> dict[str, float]:
        """Return the logged numbers: those of the knee, and the load average."""
        names = (QPS, "mean_ms", "p50_ms", P95, "p99_ms")
        found = {name: getattr(self.knee, name) for name in names if self.knee}
        return {name: value for name, value in found.items() if value == value} | {"load_average": self.load_average}


def load_average() -> float:
    """Return how many processes wanted a core of this machine in the last minute, on average."""
    return round(os.getloadavg()[0], 2)


def load_report(found: Loaded) -> Report:
    """Return a report with the knee, a table of all levels, and notes on what limits their meaning."""
    at = found.knee
    if at:
        verdict = (
            f"At the knee ({at.name}), {rough(at.qps)} queries per second are answered, 95 % of all within "
            f"{rough(at.p95_ms)} ms."
        )
    else:
        verdict = "No level is known to keep up, so there is no knee."
    rule = (
        f"A level keeps up if at least {percent(ANSWERED, 0)} of its queries are answered, and if its p95 is at most "
        f"{SLOWER:g} times the p95 with one worker, or at most {QUICK_MS:g} ms. The knee is the level that keeps up "
        "with the most answers per second."
    )
    return Report(verdict, tables=[load_table(found.levels)], notes=[rule, *_notes(found)])


def load_table(levels: Sequence[LevelTimes]) -> Table:
    """Return a table with one row per level."""
    columns = [Column("level"), *(Column(name, "count") for name in ("sent", "errors", "late"))]
    columns += [Column(name, "rough") for name in ("qps", "mean", "p50", "p95", "p99")]
    keeps = {True: "yes", False: "no", None: "unknown"}
    rows: Rows = [
        [
            *(one.name, one.sent, one.errors, one.timeouts, one.qps, one.mean_ms, one.p50_ms, one.p95_ms, one.p99_ms),
            keeps[one.keeps_up],
        ]
        for one in levels
    ]
    return Table("Latencies in ms, and answers per second (qps)", [*columns, Column("keeps up")], rows, name="load")


def _notes(found: Loaded) -> Iterable[str]:
    if any(one.p99_ms != one.p99_ms for one in found.levels):
        yield (
            "A percentile is blank if its slowest queries got no answer, or if too few queries were sent: p95 needs "
            "20, and p99 needs 100. More seconds and queries send more."
        )
    if found.distinct_queries < sum(one.sent for one in found.levels):
        queries = counted(found.distinct_queries, "query")
        yield (
            f"The dataset has {queries}, which were sent repeatedly. A search that caches its answers then looks "
            "faster than it is."
        )
    if found.load_average > BUSY * cores():
        yield (
            f"Before the load, {found.load_average:g} processes on average already wanted a core of this machine. The "
            "times may be better on an idle machine."
        )
    yield f"Measured from this machine: {timing.machine()}."
    yield from (f"An error: {message}" for message in found.errors)


def write_load_run(
    folder: Path, record: RunRecord, document: Mapping[str, Any], found: Loaded, light: bool = False
) -> None:
    """Write the files of a load, and complete the record. light: draw no figure."""
    rows = [encoded(one) for one in found.levels]
    write_text(folder / "config.yaml", provenance.resolved(document))
    write_text(folder / "levels.csv", csv_text({name: [row[name] for row in rows] for name in rows[0]}))
    write_text(folder / "requirements.txt", provenance.requirements())
    write_metrics(folder, record, found.numbers, None, light)
    if not light:
        save(draw_load(found.levels), folder / "load.png")
    record.end_tags |= {timing.MACHINE: timing.machine(), NOTE: as_note(report_markdown(load_report(found)))}


def latest_loads(runs: Iterable[LoggedRun]) -> dict[str, LoggedRun]:
    """Return trial key -> the latest finished load of this configuration, from the runs of an experiment."""
    loads = [one for one in runs if one.tags.get("harness.verb") == VERB and one.status == "FINISHED"]
    return {one.tags["trial_key"]: one for one in sorted(loads, key=lambda one: one.began)}


def loads_beside(tracker: Tracker, runs: Iterable[LoggedRun]) -> dict[str, LoggedRun]:
    """Return the `latest_loads` in the experiments of the runs."""
    names = dict.fromkeys(one.experiment for one in runs)
    return latest_loads(one for name in names for one in tracker.runs(name, {"harness.verb": VERB}))


def under_load(loads: Mapping[str, LoggedRun], run: LoggedRun) -> dict[str, float | None]:
    """Return metric -> its value in the latest load of a run's configuration; None if it is unknown."""
    load = loads.get(run.tags.get("trial_key", ""))
    return {name: load.metrics.get(name) if load else None for name in (P95, QPS)}
