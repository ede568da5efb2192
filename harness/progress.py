"""Progress of slow work: a bar with rate and remaining time on a terminal, quiet lines otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from retrievers.base import Progress

QUIET_SECONDS = 10.0  # between two lines where nobody watches a bar


@contextmanager
def watch(label: str) -> Iterator[Progress]:
    """Give a function `progress(done, total, unit)` to call as the work goes on; silent until the first call."""
    if sys.stderr.isatty():
        yield from _bar(label)
    else:
        yield _lines(label)


def _bar(label: str) -> Iterator[Progress]:
    from rich import progress as rich_progress
    from rich.console import Console

    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TextColumn("{task.fields[rate]}"),
        rich_progress.TimeRemainingColumn(),
    )
    with rich_progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None, rate="", visible=False)
        stage = (0, "")

        def progress(done: int, total: int, unit: str) -> None:
            nonlocal stage
            if stage != (total, unit):  # what is done already was done before, and counts for no speed
                stage = (total, unit)
                bar.reset(task, total=total, completed=done)
            speed = bar.tasks[0].speed
            rate = f"{speed:,.0f} {unit}/s" if speed else unit
            bar.update(task, completed=done, total=total, rate=rate, visible=True)

        yield progress


def _lines(label: str) -> Progress:
    began = said = time.monotonic()
    stage, before = (0, ""), 0

    def progress(done: int, total: int, unit: str) -> None:
        nonlocal began, said, stage, before
        now = time.monotonic()
        if stage != (total, unit):  # what is done already was done before, and counts for no speed
            stage, before, began, said = (total, unit), done, now, now
        elif now - said >= QUIET_SECONDS:
            said = now
            rate = (done - before) / (now - began)
            remaining = f", {(total - done) / rate:,.0f} s left" if rate else ""
            print(f"{label}: {done:,}/{total:,} {unit} ({rate:,.0f}/s{remaining})", file=sys.stderr)  # noqa: T201

    return progress
