"""Show progress on standard error: a line for each slow stage, and a bar or lines for counted work."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from retrievers.base import Progress

QUIET_SECONDS = 10.0  # time between two lines of progress if standard error is not a terminal
SLOW_SECONDS = 2.0  # a stage that takes longer is announced
LOOK_SECONDS = 0.25  # time between two checks whether a stage is slow


@dataclass(eq=False)
class _Stage:
    """A stage of the work. over: whether it no longer needs an announcement."""

    label: str
    began: float = field(default_factory=lambda: time.monotonic())
    announced: bool = False
    over: bool = False


_stages: list[_Stage] = []  # outermost first
_watcher: threading.Thread | None = None
_listener: Progress | None = None  # if set, it gets the progress of counted work, which is then not shown


@contextmanager
def stage(label: str) -> Iterator[None]:
    """Announce a stage after 2 s unless an inner stage has begun. If an announced stage took 10 s, print its time."""
    global _watcher
    one = _Stage(label)
    for outer in _stages:
        outer.over = True
    _stages.append(one)
    if _watcher is None or not _watcher.is_alive():
        _watcher = threading.Thread(target=_announce, name="stages", daemon=True)
        _watcher.start()
    try:
        yield
    finally:
        _stages.remove(one)
        took = time.monotonic() - one.began
        if one.announced and took >= QUIET_SECONDS:
            print(f"{label}: took {took:,.0f} s", file=sys.stderr)  # noqa: T201


def _announce() -> None:
    while _stages:
        look(time.monotonic())
        time.sleep(LOOK_SECONDS)


def look(now: float) -> None:
    for one in _stages[-1:]:
        if not one.over and now - one.began >= SLOW_SECONDS:
            one.announced = one.over = True
            print(f"{one.label} ...", file=sys.stderr, flush=True)  # noqa: T201


def _counted() -> None:
    """Silence the stages around counted work, which shows its own progress."""
    for one in _stages:
        one.over = True


@contextmanager
def told(listener: Progress) -> Iterator[None]:
    """Do not show the progress of counted work, but pass it to `listener`, which may send it to another process."""
    global _listener
    before, _listener = _listener, listener
    try:
        yield
    finally:
        _listener = before


@contextmanager
def watch(label: str) -> Iterator[Progress]:
    """Yield `progress(done, total, unit)`, where total 0 means unknown. A bar appears once `progress` is called."""
    if _listener is not None:
        yield _listener
    elif sys.stderr.isatty():
        yield from _bar(label)
    else:
        yield _lines(label)


def silent(done: int, total: int, unit: str) -> None:
    """Show no progress."""


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
        counted = (0, "")

        def progress(done: int, total: int, unit: str) -> None:
            nonlocal counted
            if counted != (total, unit):  # work done before this call must not count towards the rate
                counted = (total, unit)
                _counted()
                bar.reset(task, total=total or None, completed=done)
            speed = bar.tasks[0].speed
            rate = f"{speed:,.0f} {unit}/s" if speed else unit
            bar.update(task, completed=done, total=total or None, rate=rate, visible=True)

        yield progress


def _lines(label: str) -> Progress:
    began = printed = time.monotonic()
    counted, before = (0, ""), 0

    def progress(done: int, total: int, unit: str) -> None:
        nonlocal began, printed, counted, before
        now = time.monotonic()
        if counted != (total, unit):  # work done before this call must not count towards the rate
            counted, before, began, printed = (total, unit), done, now, now
        elif now - printed >= QUIET_SECONDS:
            printed = now
            rate = (done - before) / (now - began)
            remaining = f", {(total - done) / rate:,.0f} s left" if rate and total else ""
            of = f"/{total:,}" if total else ""
            pace = f"{rate:,.0f}/s" if rate >= 1 or not rate else f"{1 / rate:,.0f} s each"
            print(f"{label}: {done:,}{of} {unit} ({pace}{remaining})", file=sys.stderr)  # noqa: T201

    return progress
