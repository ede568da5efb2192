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
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.commands.sweep.plan import Trial, swept_values
from harness.commands.sweep.summary import SHOWN, Summary
from harness.commands.sweep.trials import Context, Result, read_journal
from harness.config.text import counted, short_id
from harness.data.tables import csv_text
from harness.reports import markup
from harness.reports.next_steps import Place
from harness.reports.terminal import bare_table, peeked
from harness.storage.append_log import Position
from harness.storage.atomic import write_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


QUIET_SECONDS = 10.0  # between two lines if standard error is no terminal
POLL_SECONDS = 0.2


def show(console: Console, summary: Summary, document: Mapping[str, Any], place: Place) -> None:
    """Print the best trials, the Pareto front, the failures, and the next commands.

    document: the JSON document of the command.
    """
    counts = summary.counts()
    statuses = ", ".join(f"{count} {name}" for name, count in counts.items() if count and name != "asked")
    asked = counted(counts["asked"], "trial")
    console.print(f"Sweep {summary.sweep_id}: {asked} ({statuses}), {document['seconds']:.1f} s.")
    for part in summary.parts:
        _show_ranking(console, part)
    if summary.groups:
        console.print("All groups:", style="bold")
        console.print(_systems(summary))
        console.print(" ".join(summary.notes))
    if summary.select_on == "public" and summary.run_id:
        console.print(peeked(summary.experiment, document["private_peeks"]))
    for failed in document["failed"]:
        console.print(f"failed: {' '.join(failed['overrides'])}: {failed['error']}", style="red")
    console.print(f"Files: {document['files']['folder']}")
    _show_next(console, summary, place)


def _show_ranking(console: Console, summary: Summary) -> None:
    """Print the best of the trials that compare, and what to know of them."""
    if summary.apart:
        console.print(f"{summary.label}:", style="bold")
    if kinds := summary.kinds(SHOWN):
        console.print(f"Ranked by {summary.objectives[0].name}, {' or '.join(kinds)}.")
    console.print(_best_trials(summary))
    if (more := len(summary.finished) - SHOWN) > 0:
        console.print(f"{more:,} more in trials.csv")
    if any(summary.results[number].reused for number in summary.finished[:SHOWN]):
        console.print("* reused: a run that was there before")
    for text in [*summary.expectation, *summary.notes, *(summary.automatic.lines() if summary.automatic else [])]:
        console.print(text)
    if len(summary.objectives) > 1:
        console.print("Pareto front:", style="bold")
        for number in summary.front:
            values = ", ".join(f"{value:.4f}" for value in summary.values(number))
            console.print(f"  {values}  {' '.join(summary.trials[number].overrides)}")


def _systems(summary: Summary) -> Table:
    """Systems × groups, with the mean over the groups where that means something."""
    means = any(not np.isnan(system.mean) for system in summary.systems)
    labels = [group.label.replace("=", "=\n").replace(" ", "\n") for group in summary.groups]  # room for the names
    header = (*labels, *(["mean"] if means else []), "system")
    table = bare_table(header, left=["system"], folded=["system"])
    for system in summary.systems[:SHOWN]:
        numbers = [*system.values, *([system.mean] if means else [])]
        table.add_row(*(markup.number(value) for value in numbers), system.name)
    return table


def _best_trials(summary: Summary) -> Table:
    # The trials of an automatic sweep differ in many keys: a column for each would leave room for none.
    keys = [] if summary.automatic else list(summary.axes())
    several = len(summary.kinds(SHOWN)) > 1
    names = [name for name, _ in summary.objectives] if len(summary.objectives) > 1 else ["value"]
    headers = [key.replace(".", ".\n") for key in keys]  # a narrow terminal breaks them there, and no number
    headers += ["configuration"] if summary.automatic else []
    header = ("", *names, "95 % interval", *(["kind"] if several else []), *headers, "run")
    table = bare_table(header, left=("kind", *headers, "run"), folded=headers)
    for place, number in enumerate(summary.finished[:SHOWN], start=1):
        result, values = summary.results[number], swept_values(summary.trials[number])
        table.add_row(
            str(place),
            *(f"{value:.4f}" for value in summary.values(number)),
            markup.interval(*summary.interval(number), absent=""),
            *([summary.kind(number)] if several else []),
            *(values.get(key, "") for key in keys),
            *([" ".join(summary.trials[number].overrides)] if summary.automatic else []),
            (short_id(result.run_id) if result.run_id else f"trial {number}") + (" *" if result.reused else ""),
        )
    return table


def _show_next(console: Console, summary: Summary, place: Place) -> None:
    """Print the commands that show the runs and export the best one."""
    if summary.run_id:
        console.print(f"Parent run {short_id(summary.run_id)} of experiment {summary.experiment!r}. Next:")
        console.print(f"  {place.command('ui')}")
    for part in summary.parts:
        if part.best is not None and (run_id := part.results[part.best].run_id):
            of = f"  # the best with {part.label}" if part.apart else ""
            there = replace(place, choices=part.trials[part.best].choices)
            console.print(f"  {there.command('export', f'run={short_id(run_id)}')}{of}")


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

    axes = summary.axes()
    values = np.array([summary.values(number) for number in summary.trials]).reshape(-1, len(summary.objectives))
    if not axes or not np.isfinite(values[:, 0]).any():
        return
    name, numbers = summary.objectives[0].name, list(summary.trials)
    name += f" ({summary.label})" if summary.apart else ""
    best = None if summary.best is None else numbers.index(summary.best)
    figures.objective_by_key(axes, name, values[:, 0], best, folder / f"objective{suffix}.png")
    figures.overview(axes, name, values[:, 0], best, folder / f"overview{suffix}.png")
    if len(summary.objectives) == 2:
        (first, _), (second, _) = summary.objectives
        figures.pareto(values, (first, second), np.isin(numbers, summary.front), folder / f"front{suffix}.png")


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
    position = read_journal(context)[1]
    follower = threading.Thread(target=_follow, args=(context, position, progress, over), daemon=True)
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


def _follow(context: Context, position: Position, progress: _Progress, over: threading.Event) -> None:
    """Print the results that the journal gets, after a position, until `over` is set."""
    terminal, last = sys.stderr.isatty(), False
    while not last:
        last = over.wait(POLL_SECONDS)  # after the end, the journal is read once more
        results, position = read_journal(context, position)
        progress.add(results, terminal)
