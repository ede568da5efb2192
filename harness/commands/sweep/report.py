"""What people see of a sweep: lines while it runs, the table of the best trials, and the files of its summary."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from harness.commands.sweep.plan import Trial, swept_values
from harness.commands.sweep.summary import SHOWN, Summary
from harness.commands.sweep.trials import Context, Result, read_journal
from harness.config.text import counted, short_id
from harness.data.files import write_text
from harness.data.tables import csv_text
from harness.reports.next_steps import Place
from harness.reports.report import Report
from harness.reports.tables import Column, Number, Rows, Table
from harness.reports.terminal import peeked

QUIET_SECONDS = 10.0  # between two lines if standard error is no terminal
POLL_SECONDS = 0.2


def report(summary: Summary, document: Mapping[str, Any], place: Place) -> Report:
    """Return the best trials, the Pareto front, the failures, and the next commands.

    document: the JSON document of the command.
    """
    counts = summary.counts()
    statuses = ", ".join(f"{count} {name}" for name, count in counts.items() if count and name != "asked")
    asked = counted(counts["asked"], "trial")
    tables = [table for part in summary.parts for table in _ranking(part)]
    notes = [f"failed: {' '.join(failed['overrides'])}: {failed['error']}" for failed in document["failed"]]
    if summary.select_on == "public" and summary.run_id:
        notes.insert(0, peeked(summary.experiment, document["private_peeks"]))
    files = [f"Files: {document['files']['folder']}"]
    if summary.run_id:
        files.append(f"Parent run {short_id(summary.run_id)} of experiment {summary.experiment!r}.")
    return Report(
        f"Sweep {summary.sweep_id}: {asked} ({statuses}), {document['seconds']:.1f} s.",
        tables=[*tables, *([_systems(summary)] if summary.groups else [])],
        notes=notes,
        files=files,
        steps=[*_steps(summary, place)],
    )


def _ranking(summary: Summary) -> Iterator[Table]:
    """Yield the best of the trials that compare, with what to know of them, and the Pareto front."""
    kinds = summary.kinds(SHOWN)
    lines = [f"Ranked by {summary.objectives[0].name}, {' or '.join(kinds)}."] if kinds else []
    lines += [*summary.expectation, *summary.notes, *(summary.automatic.lines() if summary.automatic else [])]
    if (more := len(summary.finished) - SHOWN) > 0:
        lines.append(f"{more:,} more in trials.csv")
    if any(summary.results[number].reused for number in summary.finished[:SHOWN]):
        lines.append("* reused: a run that was there before")
    yield replace(_best_trials(summary), caption=summary.label if summary.apart else "Best trials", notes=lines)
    if len(summary.objectives) > 1:
        columns = [*(Column(name, "value") for name, _ in summary.objectives), Column("trial")]
        rows: Rows = [[*summary.values(number), " ".join(summary.trials[number].overrides)] for number in summary.front]
        yield Table("Pareto front", columns, rows)


def _systems(summary: Summary) -> Table:
    """Return systems × groups, with the mean over the groups where that means something."""
    names = [*(group.label for group in summary.groups), "mean"]
    rows: Rows = [[*system.values, system.mean, system.name] for system in summary.systems[:SHOWN]]
    columns = [*(Column(name, "value") for name in names), Column("system")]
    return Table("All groups", columns, rows, [" ".join(summary.notes)]).without_empty()


def _best_trials(summary: Summary) -> Table:
    """Return the best trials with what was swept.

    The trials of an automatic sweep differ in many keys: a column for each would leave room for none.
    """
    keys = [] if summary.automatic else list(summary.axes())
    several = len(summary.kinds(SHOWN)) > 1
    names = [name for name, _ in summary.objectives] if len(summary.objectives) > 1 else ["value"]
    columns = [
        Column("", "count"),
        *(Column(name, "value") for name in names),
        *([Column("kind")] if several else []),
        *(Column(key) for key in ([*keys, "configuration"] if summary.automatic else keys)),
        Column("run"),
    ]
    rows: Rows = []
    for place, number in enumerate(summary.finished[:SHOWN], start=1):
        result, values = summary.results[number], swept_values(summary.trials[number])
        first, *others = summary.values(number)
        low, high = summary.interval(number)
        rows.append([
            place,
            Number(first, low, high),
            *others,
            *([summary.kind(number)] if several else []),
            *(values.get(key, "") for key in keys),
            *([" ".join(summary.trials[number].overrides)] if summary.automatic else []),
            (short_id(result.run_id) if result.run_id else f"trial {number}") + (" *" if result.reused else ""),
        ])  # fmt: skip
    return Table("", columns, rows)


def _steps(summary: Summary, place: Place) -> Iterator[str]:
    """Yield the commands that show the runs and export the best one."""
    if summary.run_id:
        yield place.command("ui")
    for part in summary.parts:
        if part.best is not None and (run_id := part.results[part.best].run_id):
            of = f"  # the best with {part.label}" if part.apart else ""
            there = replace(place, choices=part.trials[part.best].choices)
            yield f"{there.command('export', f'run={short_id(run_id)}')}{of}"


def write_files(summary: Summary, folder: Path) -> Path:
    """Write the sweep's files: trials.csv, summary.json and, if any trial has a value, figures."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "trials.csv", csv_text(summary.table()))
    write_text(folder / "summary.json", json.dumps(summary.to_json(), ensure_ascii=False, indent=2))
    for place, part in enumerate(summary.parts):
        _draw(part, folder, f"-{place}" if part.apart else "")
    return folder


def _draw(summary: Summary, folder: Path, suffix: str) -> None:
    """suffix: of the files' names, for trials that do not compare with all others."""
    from harness.commands.sweep import figures
    from harness.reports.figure import save

    axes = summary.axes()
    values = np.array([summary.values(number) for number in summary.trials]).reshape(-1, len(summary.objectives))
    if not axes or not np.isfinite(values[:, 0]).any():
        return
    name, numbers = summary.objectives[0].name, list(summary.trials)
    name += f" ({summary.label})" if summary.apart else ""
    best = None if summary.best is None else numbers.index(summary.best)
    save(figures.draw_by_key(axes, name, values[:, 0], best), folder / f"objective{suffix}.png", quick=False)
    if len(summary.objectives) == 2:
        (first, _), (second, _) = summary.objectives
        front = figures.draw_pareto(values, (first, second), np.isin(numbers, summary.front))
        save(front, folder / f"front{suffix}.png", quick=False)


@contextmanager
def watch(
    context: Context,
    total: int,
    trials: Mapping[int, Trial],
    objective: str,
    *,
    before: Collection[Result] = (),
) -> Iterator[None]:
    """Follow the journal while jobs run: on a terminal one line per trial, otherwise one every ten seconds.

    total: trials when all are done. trials: number -> trial. objective: the measure that is shown.
    before: results that are known already.
    """
    over = threading.Event()
    best = best_value(before)
    progress = _Progress(total, objective, trials, done=len(before), before=len(before), best=best)
    place = read_journal(context)[1]
    follower = threading.Thread(target=_follow, args=(context, place, progress, over), daemon=True)
    follower.start()
    try:
        yield
    finally:
        over.set()
        follower.join()


@dataclass
class _Progress:
    """Prints results as they come.

    before: how many were known at the start. began: time of the first new result. printed: time of the last line.
    """

    total: int
    objective: str
    trials: Mapping[int, Trial]
    done: int = 0
    before: int = 0
    best: float = -np.inf
    began: float = 0.0
    printed: float = 0.0

    def add(self, results: Sequence[Result], terminal: bool) -> None:
        if results and self.done == self.before:
            self.began = self.printed = time.monotonic()  # retrieval comes before: it says nothing about later trials
        for result in results:
            self.done += 1
            value = _value(result)
            self.best = max(self.best, value) if value == value else self.best
            if terminal:
                score = f"{self.objective} {value:.4f}  best {self.best:.4f}"
                status = score if result.status == "FINISHED" else result.status
                overrides = " ".join(self.trials[result.number].overrides)
                print(f"[{self.done}/{self.total}] {status}  {overrides}", file=sys.stderr)  # noqa: T201
        now = time.monotonic()
        if not terminal and results and now - self.printed >= QUIET_SECONDS:
            self.printed, rate = now, (self.done - self.before) / (now - self.began)
            left = f"{rate:,.1f}/s, {(self.total - self.done) / rate:,.0f} s left"
            count, best = f"{self.done:,}/{self.total:,} trials", f"best {self.objective} {self.best:.4f}"
            print(f"sweep: {count} ({left}), {best}", file=sys.stderr)  # noqa: T201


def best_value(results: Iterable[Result]) -> float:
    """The greatest objective of the results; -inf if none has it."""
    values = (_value(result) for result in results)
    return max((value for value in values if value == value), default=-np.inf)


def _value(result: Result) -> float:
    return result.objective.value if result.objective else np.nan


def _follow(context: Context, place: int, progress: _Progress, over: threading.Event) -> None:
    """Print the results that the journal gets, from byte `place` on, until `over` is set."""
    terminal, last = sys.stderr.isatty(), False
    while not last:
        last = over.wait(POLL_SECONDS)  # after the end, the journal is read once more
        results, place = read_journal(context, place)
        progress.add(results, terminal)
