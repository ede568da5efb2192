"""Begin runs, keep their files in a folder, and end the runs, also after errors."""

from __future__ import annotations

import itertools
import logging
import os
import secrets
import shlex
import shutil
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from harness.config.commands import TrackedConfig
from harness.config.components import build
from harness.config.text import runnable
from harness.progress import stage
from harness.storage import locks
from harness.storage.atomic import write_text
from harness.storage.locks import Claim
from harness.storage.typed import require_path
from harness.tracking import file_hashes, outbox
from harness.tracking.mlflow_client import NoAnswer, Unreachable, asked, hurried, shown_address, uri_of, without_login
from harness.tracking.outbox import UNFINISHED
from harness.tracking.tracker import CLAIM, LoggedRun, RunRecord, Status, Tracker, now_ms, tracker_error
from retrievers.redaction import redacted

PAUSE_SECONDS = 1.0  # pause between two attempts to connect

log = logging.getLogger(__name__)


def open_tracker(config: TrackedConfig) -> Tracker:
    return connect_tracker(build(config.tracking, where="tracking"), config.outputs)


def connect_tracker(tracker: Tracker, outputs: Path) -> Tracker:
    """Connect a tracker, end the work of processes that died, and return the tracker."""
    end_abandoned(connected(tracker, outputs))
    return tracker


def open_store(config: TrackedConfig, lacks: str = "keeps no runs to choose from") -> Tracker:
    """Return the connected tracker of a command that reads runs.

    Raise BadInput if the tracker keeps no runs. lacks: the end of that message, after the tracker's name.
    """
    tracker = open_tracker(config)
    if not tracker.keeps_runs:
        raise tracker_error(tracker, lacks)
    return tracker


def connected(tracker: Tracker, outputs: Path, patience: float = 0.0) -> Tracker:
    """Connect a tracker and return it. patience: seconds to wait for a server that does not answer."""
    deadline = time.monotonic() + patience
    with stage("connecting to the tracking store"):
        while True:
            try:
                tracker.connect(outputs.absolute())
                return tracker
            except NoAnswer:
                if time.monotonic() > deadline:
                    raise
                time.sleep(PAUSE_SECONDS)


@dataclass(frozen=True)
class ProcessWork:
    """Work of a process, with a claim in `<outputs>/.claims`. If the process dies, the next command ends the work.

    folder: the folder of the files; None for the tracking store's own folder. scratch: whether to delete the folder.
    experiment, store: where the run is logged; None if the work is not a run. The claim's name is a tag of the run.
    """

    folder: str | None = None
    scratch: bool = False
    experiment: str | None = None
    store: str | None = None

    def __post_init__(self) -> None:
        require_path(self.folder)


def claim_work(outputs: Path, work: ProcessWork) -> Claim[ProcessWork]:
    return locks.claim(outputs / ".claims", work)


@dataclass
class LiveRun:
    """A run that has begun and has not ended.

    record: the record to log; the caller completes it before the run ends. target: the final folder of the files.
    folder: the present folder, called `<target>.unfinished` so that incomplete files never look like a result.
    run_id: None if nothing is logged, or if the tracking server was down when the run began.
    in_store: whether `folder` belongs to the tracking store. If so, it keeps its name.
    outage: the error if the tracking server could not be reached when the run began.
    """

    tracker: Tracker
    record: RunRecord
    target: Path
    folder: Path
    run_id: str | None
    in_store: bool = False
    outage: Unreachable | None = None
    claim: Claim[ProcessWork] | None = None
    ended: bool = False

    def finish(self) -> None:
        with stage("logging the run"):
            self.end("FINISHED")
        if self.record.unsent:
            self.folder = self.record.unsent / outbox.FILES
        elif not self.in_store:
            self.folder = self.folder.rename(self.target)

    def fail(self, error: BaseException) -> None:
        """End the run as FAILED, or as KILLED if it was interrupted. Add a traceback to its files."""
        status = status_after(error)
        name_folder(error, self.folder)
        try:
            if self.folder.is_dir():
                write_traceback(error, self.folder)
                if not self.in_store:
                    self.folder = self.folder.rename(self.target.with_name(f"{self.target.name}.{status.lower()}"))
            with asked(hurried() if status == "KILLED" else {}):
                self.end(status)
        except Exception as lost:  # the caller raises `error`, which matters more
            log.warning("The run could not be ended as %s: %s", status, lost)

    def end(self, status: str) -> None:
        """Log everything and end the run. If the tracking server is down, save the run for `harness doctor sync`."""
        self.record.folder = None if self.in_store else self.folder
        if self.folder.is_dir():
            file_hashes.seal(self.record, self.folder)
        try:
            if self.outage:
                raise self.outage
            self.tracker.finish(self.run_id, self.record, status)
        except Unreachable as error:
            self.record.unsent = outbox.hold(
                self.tracker, self.record, run_id=self.run_id, status=status, folder=self.target
            )
            warn_unreachable(self.tracker, error, "The run is", self.record.unsent)
        self.ended = True

    def release(self) -> None:
        """Release the claim. If the run could not be ended, for example on a full disk, the next command ends it."""
        if self.claim:
            self.claim.release() if self.ended else self.claim.unlock()


def warn_unreachable(tracker: Tracker, error: Unreachable, what: str, folder: Path) -> None:
    """Tell the user that runs could not be logged. what: such as "The run is". folder: where they are saved."""
    command = runnable(f"`{_sync_command(tracker)}`")
    log.warning("MLflow is unreachable (%s). %s saved in %s; upload with %s.", error, what, folder, command)


def _sync_command(tracker: Tracker) -> str:
    """Return the command that uploads the saved run if called in the present working directory."""
    words, uri = ["harness", "doctor", "sync"], tracker.uri or ""
    usual = uri_of(tracker.outputs / "mlflow.db") if tracker.outputs else ""
    if uri not in ("", usual, without_login(os.environ.get("MLFLOW_TRACKING_URI"))):
        words.append(f"tracking.uri={uri if uri == shown_address(uri) else 'ADDRESS'}")
    if tracker.outputs and tracker.outputs != Path("outputs").absolute():
        words.append(f"outputs={tracker.outputs}")
    return shlex.join(words)


def name_folder(error: BaseException, folder: Path) -> None:
    """Add the folder to an error that names no file, such as the error for a full disk."""
    if isinstance(error, OSError) and error.filename is None:
        error.filename = str(folder)


def write_traceback(error: BaseException, folder: Path) -> None:
    with suppress(OSError):  # the disk may be full
        write_text(folder / "traceback.txt", redacted("".join(traceback.format_exception(error))))


def status_after(error: BaseException) -> Status:
    return "KILLED" if isinstance(error, KeyboardInterrupt | SystemExit) else "FAILED"


def begin(
    tracker: Tracker, record: RunRecord, target: Path, *, adopted: LoggedRun | None = None, direct: bool = False
) -> LiveRun:
    """Begin a run, and make the folder for its files. An unreachable tracking server does not stop the run.

    target: the final folder of the files. adopted: a run to continue after a crash; None to begin a new run.
    direct: whether files may be written straight to the folder of a local tracking store.
    """
    run_id, outage = None, None
    unfinished = target.with_name(target.name + UNFINISHED)
    claim = claim_run(tracker, record, unfinished, scratch=direct)
    record.began = now_ms()
    try:
        run_id = tracker.begin(record, adopted)
    except Unreachable as error:
        outage = error
    except BaseException:  # after an interruption, the store may already have the run
        if claim and claim.work:
            with suppress(Exception), asked(hurried()):  # after a failure here, the next command ends the run
                _end(tracker, claim.name, claim.work)
                claim.release()
        raise
    stored = tracker.place(run_id) if direct else None
    folder = stored or unfinished
    folder.mkdir(parents=True, exist_ok=True)
    return LiveRun(tracker, record, target, folder, run_id, in_store=stored is not None, outage=outage, claim=claim)


def claim_run(
    tracker: Tracker, record: RunRecord, folder: Path | None, scratch: bool = False
) -> Claim[ProcessWork] | None:
    """Claim a run before it begins, and tag it with the claim's name. Return None if the tracker is not connected."""
    if tracker.outputs is None:
        return None
    store = without_login(tracker.uri) if tracker.uri else None
    work = ProcessWork(str(folder) if folder else None, scratch, record.experiment, store)
    claim = claim_work(tracker.outputs, work)
    record.tags[CLAIM] = claim.name
    return claim


@contextmanager
def scratch_folder(outputs: Path) -> Iterator[Path]:
    """Make an empty folder in `outputs` for a `with` block. If the process dies, the next command removes it."""
    folder = outputs / f"scratch-{secrets.token_hex(6)}{UNFINISHED}"
    claim = claim_work(outputs, ProcessWork(str(folder), scratch=True))
    try:
        folder.mkdir()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        claim.release()


def abandoned_work(outputs: Path) -> Iterator[Claim[ProcessWork]]:
    """Yield the claims of this host's dead processes. If a claim's folder is outside `outputs`, its `work` is None."""
    for found in locks.abandoned(outputs / ".claims", ProcessWork):
        folder = found.work.folder if found.work else None
        if folder is not None and outputs.resolve() not in Path(folder).resolve().parents:
            found.work = None
        yield found


def end_abandoned(tracker: Tracker) -> None:
    """End the work of dead processes of this host: mark their runs as KILLED, and clear their unfinished folders."""
    for claim in abandoned_work(tracker.outputs) if tracker.outputs else ():
        work = claim.work
        if work and work.store not in (None, without_login(tracker.uri)):
            continue  # a command that uses that tracking store will finish this work
        with suppress(Unreachable):
            if work:
                _end(tracker, claim.name, work)
            claim.release()


def _end(tracker: Tracker, name: str, work: ProcessWork) -> None:
    runs = tracker.runs(work.experiment, {CLAIM: name}) if work.experiment else []
    for run in runs:
        if run.status == "RUNNING":
            tracker.finish(run.run_id, RunRecord(run.experiment, run.name), "KILLED")
            log.warning("Run %s (%s) is now KILLED: its process was stopped.", run.run_id, run.name)
    if not work.folder:
        return
    target = Path(work.folder.removesuffix(UNFINISHED))
    place = target if any(run.status == "FINISHED" for run in runs) else target.with_name(f"{target.name}.killed")
    for ending in (UNFINISHED, outbox.ENDING + UNFINISHED):
        if (folder := target.with_name(target.name + ending)).is_dir():
            for part in folder.glob(f".*{UNFINISHED}"):
                part.unlink()
            if work.scratch or place.exists() or not any(folder.iterdir()):
                shutil.rmtree(folder)
            else:
                folder.rename(place)


@contextmanager
def live_run(
    tracker: Tracker, record: RunRecord, target: Path, *, adopted: LoggedRun | None = None, direct: bool = False
) -> Iterator[LiveRun]:
    """Begin a run as in `begin`, and end it as FINISHED, or as FAILED or KILLED if the block raises."""
    run = begin(tracker, record, target, adopted=adopted, direct=direct)
    try:
        yield run
        run.finish()
    except BaseException as error:
        run.fail(error)
        raise
    finally:
        run.release()


def new_folder(parent: Path) -> Path:
    """Return an unused `<parent>/<time>[-n]`, and make `<time>[-n].unfinished` to reserve it."""
    stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
    for n in itertools.count(1):
        folder = parent / (stamp if n == 1 else f"{stamp}-{n}")
        if not any(folder.with_name(folder.name + ending).exists() for ending in ("", ".failed", ".killed", ".unsent")):
            with suppress(FileExistsError):
                folder.with_name(folder.name + UNFINISHED).mkdir(parents=True)
                return folder
    raise AssertionError
