"""The life of a logged run: it begins, files are written to its folder, and it ends, whatever happens in between."""

from __future__ import annotations

import itertools
import logging
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config.components import build
from harness.data.files import write_text
from harness.tracking import outbox
from harness.tracking.mlflow_client import Unreachable
from harness.tracking.tracker import LoggedRun, RunRecord, Tracker

log = logging.getLogger(__name__)


def open_tracker(config: Mapping[str, Any]) -> Tracker:
    """The config's tracker, connected. config: `tracking` and `outputs`, the folder of a local tracking store."""
    tracker: Tracker = build(config["tracking"], where="tracking")
    tracker.connect(Path(config["outputs"]).absolute())
    return tracker


@dataclass
class LiveRun:
    """A run that has begun and has not ended.

    tracker: where the run is logged.
    record: what is logged; the caller fills it until the run ends.
    target: the folder that the files have once the run is finished.
    folder: where the files are now; during the run `<target>.unfinished`, so that half-written files never look like
        a result.
    run_id: None if nothing is logged, or if the tracking server was down at the beginning.
    in_store: whether `folder` belongs to the tracking store. Then there is no `target`, and the run's status shows
        whether its files are complete.
    outage: why the tracking server could not be reached at the beginning.
    """

    tracker: Tracker
    record: RunRecord
    target: Path
    folder: Path
    run_id: str | None
    in_store: bool = False
    outage: Unreachable | None = None

    def finish(self) -> None:
        """End the run as FINISHED and give its folder the final name."""
        self.end("FINISHED")
        if self.record.unsent:
            self.folder = self.record.unsent / outbox.FILES
        elif not self.in_store:
            self.folder = self.folder.rename(self.target)

    def fail(self, error: BaseException) -> None:
        """End the run as FAILED, or KILLED if it was interrupted, with the traceback of `error` among its files."""
        status = "KILLED" if isinstance(error, KeyboardInterrupt | SystemExit) else "FAILED"
        write_text(self.folder / "traceback.txt", "".join(traceback.format_exception(error)))
        if not self.in_store:
            self.folder = self.folder.rename(self.target.with_name(f"{self.target.name}.{status.lower()}"))
        try:
            self.end(status)
        except Exception as lost:  # the caller raises the first error, which matters more
            log.warning("The run could not be ended as %s: %s", status, lost)

    def end(self, status: str) -> None:
        """Log everything and end the run. If the tracking server is down, save the run for `harness doctor sync`."""
        self.record.folder = None if self.in_store else self.folder
        try:
            if self.outage:
                raise self.outage
            self.tracker.finish(self.run_id, self.record, status)
        except Unreachable as error:
            self.record.unsent = outbox.hold(
                self.tracker, self.record, run_id=self.run_id, status=status, folder=self.target
            )
            log.warning(
                "MLflow is unreachable (%s). The run is saved in %s; upload it with `harness doctor sync`.",
                error,
                self.record.unsent,
            )


def begin(
    tracker: Tracker, record: RunRecord, target: Path, *, adopted: LoggedRun | None = None, direct: bool = False
) -> LiveRun:
    """Begin a run, and make the folder for its files. An unreachable tracking server does not stop the run.

    target: the folder that the files have once the run is finished.
    adopted: a run that a crash left behind; it is continued instead of beginning a new one.
    direct: whether files may be written straight to where a local tracking store keeps them.
    """
    run_id, outage = None, None
    record.began = int(time.time() * 1000)
    try:
        run_id = tracker.begin(record, adopted)
    except Unreachable as error:
        outage = error
    stored = tracker.place(run_id) if direct else None
    folder = stored or target.with_name(target.name + ".unfinished")
    folder.mkdir(parents=True, exist_ok=True)
    return LiveRun(tracker, record, target, folder, run_id, in_store=stored is not None, outage=outage)


@contextmanager
def live_run(
    tracker: Tracker, record: RunRecord, target: Path, *, adopted: LoggedRun | None = None, direct: bool = False
) -> Iterator[LiveRun]:
    """`begin` a run and end it: FINISHED, or FAILED or KILLED if the block raises. Arguments as for `begin`.

    A run that could not be logged ends all the same; `record.unsent` says where it is saved.
    """
    run = begin(tracker, record, target, adopted=adopted, direct=direct)
    try:
        yield run
    except BaseException as error:
        run.fail(error)
        raise
    run.finish()


def exit_if_unsent(record: RunRecord) -> None:
    """Exit with code 1 if the run could not be logged, although its numbers are complete."""
    if record.unsent:
        raise SystemExit(1)


def new_folder(parent: Path) -> Path:
    """A fresh `<parent>/<time>[-n]`, reserved by making `<time>[-n].unfinished`."""
    stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
    for n in itertools.count(1):
        folder = parent / (stamp if n == 1 else f"{stamp}-{n}")
        if not any(folder.with_name(folder.name + ending).exists() for ending in ("", ".failed", ".killed", ".unsent")):
            try:
                folder.with_name(folder.name + ".unfinished").mkdir(parents=True)
                return folder
            except FileExistsError:
                continue
    raise AssertionError
