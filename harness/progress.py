"""Progress of slow work: a bar with rate and remaining time on a terminal, occasional lines otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from retrievers.base import Progress

QUIET_SECONDS = 10.0  # between two lines when standard error is not a terminal


@contextmanager
def watch(label: str) -> Iterator[Progress]:
    """Provide a function `progress(done, total, unit)` to report work with; shows nothing until the first call.

    label: what is being worked on, such as the name of a retriever.
    """
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
            if stage != (total, unit):  # work done before this call must not count for the rate
                stage = (total, unit)
                bar.reset(task, total=total, completed=done)
            speed = bar.tasks[0].speed
            rate = f"{speed:,.0f} {unit}/s" if speed else unit
            bar.update(task, completed=done, total=total, rate=rate, visible=True)

        yield progress


def _lines(label: str) -> Progress:
    began = printed = time.monotonic()
    stage, before = (0, ""), 0

    def progress(done: int, total: int, unit: str) -> None:
        nonlocal began, printed, stage, before
        now = time.monotonic()
        if stage != (total, unit):  # work done before this call must not count for the rate
            stage, before, began, printed = (total, unit), done, now, now
        elif now - printed >= QUIET_SECONDS:
            printed = now
            rate = (done - before) / (now - began)
            remaining = f", {(total - done) / rate:,.0f} s left" if rate else ""
            print(f"{label}: {done:,}/{total:,} {unit} ({rate:,.0f}/s{remaining})", file=sys.stderr)  # noqa: T201

    return progress
