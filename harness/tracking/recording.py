"""The life of a logged run: its folder, its beginning, and its end in every case."""

from __future__ import annotations

import itertools
import logging
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.config.components import build
from harness.data.files import write_text
from harness.tracking import outbox
from harness.tracking.mlflow_client import Unreachable
from harness.tracking.tracker import LoggedRun, RunRecord, Tracker

log = logging.getLogger(__name__)


@contextmanager
def tracked(config: Mapping[str, Any], record: RunRecord) -> Iterator[tuple[Tracker, str | None, Path, Path]]:
    """Open the run, give (tracker, run id, folder to write to, its name afterwards), and close the run."""
    outputs = Path(config["outputs"]).absolute()
    tracker: Tracker = build(config["tracking"], where="tracking")
    tracker.connect(outputs)
    folder = new_folder(outputs / "runs")
    with recording(tracker, record, folder) as (run_id, unfinished):
        yield tracker, run_id, unfinished, folder


def end(record: RunRecord) -> None:
    """Exit code 1 for a run that is not logged, though it has all its numbers."""
    if record.unsent:
        raise SystemExit(1)


@contextmanager
def recording(
    tracker: Tracker, record: RunRecord, folder: Path, adopted: LoggedRun | None = None, direct: bool = False
) -> Iterator[tuple[str | None, Path]]:
    """Open a run, or take up the one that a crash left; give (run id, folder to write to); close the run.

    It ends FINISHED, or FAILED or KILLED with the traceback. What is written becomes `folder` when the run is over:
    what is half-written never looks like a result. direct: it may be written straight to where the tracker keeps it,
    and then there is no `folder`; the run that is not FINISHED says that it is half-written. A store that is down
    does not keep the run from its end: what it did not take is kept, see `record.unsent`.
    """
    run_id, down = None, None
    record.began = int(time.time() * 1000)
    try:
        run_id = tracker.begin(record, adopted)
    except Unreachable as error:
        down = error
    place = tracker.place(run_id) if direct else None
    written = place or folder.with_name(folder.name + ".unfinished")
    written.mkdir(parents=True, exist_ok=True)
    try:
        yield run_id, written
    except BaseException as error:
        failed = "KILLED" if isinstance(error, KeyboardInterrupt | SystemExit) else "FAILED"
        write_text(written / "traceback.txt", traceback.format_exc())
        final = place or written.rename(folder.with_name(f"{folder.name}.{failed.lower()}"))
        try:
            close(tracker, run_id, record, failed, folder, None if place else final, down)
        except Exception as lost:  # the first error is the one to tell; its traceback is in the folder
            log.warning("the run could not be closed as %s: %s", failed, lost)
        raise
    close(tracker, run_id, record, "FINISHED", folder, None if place else written, down)
    if not place and not record.unsent:
        written.rename(folder)


def close(
    tracker: Tracker,
    run_id: str | None,
    record: RunRecord,
    status: str,
    folder: Path,
    files: Path | None,
    down: Unreachable | None = None,
) -> None:
    """End a run; if its store is down, keep what it did not take in `<folder>.unsent`, for `harness doctor sync`.

    files: where what was written lies; None where that is where the store keeps it. down: known from the run's begin.
    """
    record.folder = files
    try:
        if down:
            raise down
        tracker.finish(run_id, record, status)
    except Unreachable as error:
        record.unsent = outbox.keep(tracker, run_id, record, status, folder, files)
        log.warning("Not logged, since %s. Kept in %s; `harness doctor sync` sends it.", error, record.unsent)


def new_folder(runs: Path) -> Path:
    """A fresh `<runs>/<time>[-n]`, claimed by making its unfinished twin."""
    stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
    for n in itertools.count(1):
        folder = runs / (stamp if n == 1 else f"{stamp}-{n}")
        if not any(folder.with_name(folder.name + ending).exists() for ending in ("", ".failed", ".killed", ".unsent")):
            try:
                folder.with_name(folder.name + ".unfinished").mkdir(parents=True)
                return folder
            except FileExistsError:
                continue
    raise AssertionError
