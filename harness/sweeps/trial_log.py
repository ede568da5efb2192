"""Log the trials in a sweep's journal as runs, in groups, while workers append more trials."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness import interruption
from harness.config.text import counted
from harness.errors import BadInput
from harness.recording import recording
from harness.recording.sending import upload
from harness.storage.append_log import START, Position
from harness.sweeps.trials import Context, EndedTrial, TrialResult, journal, read_journal
from harness.tracking import file_hashes, outbox
from harness.tracking.mlflow_client import Unreachable, asked, hurried, without_login
from harness.tracking.outbox import UNFINISHED
from harness.tracking.tracker import CLAIM, PARENT, TRIAL, EndedRun, LoggedRun, RunRecord, Tracker

GROUP = 200  # trials that are logged together
GROUP_SECONDS = 1.0  # longest time that a trial waits for others to be logged with

log = logging.getLogger(__name__)


@dataclass
class TrialLog:
    """The trials of a sweep that have ended, and their runs. Only the process that holds the sweep's lock has one.

    If the tracker logs only the best trials, the others stay in the journal, and their files in the sweep's folder.
    results: trial key -> result of each trial that has ended; its `run_id` is None until it is logged.
    waiting: trials to log. since: when the first of them was read. broken: whether the tracker has refused a trial.
    copies: folders with files that the tracking store has, too.
    """

    tracker: Tracker
    context: Context
    results: dict[str, TrialResult] = field(default_factory=dict)
    waiting: list[EndedTrial] = field(default_factory=list)
    since: float = 0.0
    broken: bool = False
    copies: list[Path] = field(default_factory=list)
    position: Position = START

    def recover(self) -> None:
        """Log the trials that an earlier start has left in the journal, unless only the best are logged."""
        left, end = read_journal(self.context)
        if self.tracker.keeps_runs:
            self._send_saved()
        for run in self._runs("RUNNING"):
            self.tracker.finish(run.run_id, RunRecord(run.experiment, run.name), "KILLED")
        logged = {(run.tags.get(TRIAL), run.began) for run in (self._runs() if left else ())}
        left = [one for one in left if (str(one.number), one.run.record.began) not in logged]
        left = [one for one in left if self._files(one).is_dir()]
        if self.tracker.best is not None:
            self._note([one for one in left if self._is_whole(one)])
            self.position = end
        elif self.tracker.keeps_runs:
            self.waiting = left
            self.finish()
        self.close()
        if self.tracker.best is None:
            journal(self.context.folder).path.unlink(missing_ok=True)

    def _send_saved(self) -> None:
        """Log the trials that an earlier start saved because the tracking server was down."""
        for folder in sorted((self.context.folder / "trials").glob(f"*{outbox.ENDING}")):
            with suppress(BadInput, Unreachable):  # then `harness doctor sync` says what is wrong
                held = outbox.read_saved(folder)
                if held.store == without_login(self.tracker.uri):  # a saved run must not choose where it is sent
                    upload(self.tracker, folder, held)

    def drop_copies(self) -> None:
        for folder in self.copies:
            shutil.rmtree(folder, ignore_errors=True)
        self.copies = []

    def close(self) -> None:
        """Remove what is no longer needed: the journal and the files of trials, if the tracking store has them."""
        self.drop_copies()
        logged = self.tracker.keeps_runs and self.tracker.best is None
        for folder in (self.context.folder / "trials").glob("*"):
            if folder.suffix == UNFINISHED or (logged and folder.suffix != outbox.ENDING):
                shutil.rmtree(folder, ignore_errors=True)
        if logged:
            journal(self.context.folder).path.unlink(missing_ok=True)

    def kept(self) -> dict[str, TrialResult]:
        """Return trial key -> result of the trials that finished in an earlier start and are not logged."""
        return {key: one for key, one in self.results.items() if one.status == "FINISHED" and not one.run_id}

    def log_best(self, keys: Collection[str]) -> None:
        """Log the trials with these keys that are not logged."""
        latest = {one.key: one for one in read_journal(self.context)[0] if one.key in keys and one.key in self.results}
        self.waiting = [one for key, one in latest.items() if not self.results[key].run_id]
        self.finish()

    def _runs(self, status: str | None = None) -> list[LoggedRun]:
        of_sweep = {"harness.verb": "run", "sweep.id": self.context.sweep_id}
        return self.tracker.runs(self.context.experiment, of_sweep, status)

    def read(self) -> list[TrialResult]:
        """Return the results that workers have appended since the last call."""
        new, self.position = read_journal(self.context, self.position)
        self.since = self.since if self.waiting else time.monotonic()
        self.waiting += new if self.tracker.best is None else []
        return self._note(new)

    def _note(self, new: Sequence[EndedTrial]) -> list[TrialResult]:
        found = [one.result() for one in new]
        self.results |= {result.key: result for result in found}
        return found

    def log_groups(self) -> None:
        """Log the waiting trials if they are a group. If the tracking server is down, they wait on."""
        late = self.waiting and time.monotonic() - self.since >= GROUP_SECONDS
        if (late or len(self.waiting) >= GROUP) and not self.broken:
            try:
                self._log()
            except Unreachable:
                self.since = time.monotonic()
            except Exception:  # `finish` tries again and raises it, in the main thread
                self.broken = True

    def finish(self) -> None:
        """Log all waiting trials. If the tracking server is down, save them for `harness doctor sync`."""
        try:
            with asked(hurried() if interruption.exit_code() else {}):
                self._log()
        except Unreachable as error:
            recording.warn_unreachable(
                self.tracker, error, f"{counted(len(self.waiting), 'trial')}", self.context.folder
            )
            for one in self.waiting:
                run, target, begun = self._run(one), self.context.trial(one.number), self.tracker.begun(one.run)
                outbox.hold(self.tracker, run.record, run_id=begun, status=run.status, folder=target)
            self.waiting = []

    def _log(self) -> None:
        trials = {one.run.run_id: one for one in self.waiting}

        def logged(run: EndedRun, run_id: str | None) -> None:
            one = trials[run.run_id]
            result = self.results.get(one.key)
            if result and result.status == run.status:  # else the trial has been repeated since
                self.results[one.key] = replace(result, run_id=run_id)
            self.waiting.remove(one)
            if run_id and self.tracker.keeps_runs and (files := self._folder(one)).exists():
                self.tracker.keep(run_id, files)  # a server would take long to send them to the board
                self.copies.append(files)

        while self.waiting:
            self.tracker.log_ended([self._run(one) for one in self.waiting[:GROUP]], logged)

    def _run(self, one: EndedTrial) -> EndedRun:
        """Return a trial's run with the folder of its files, under the present parent run."""
        record = one.run.record
        shared = {tag: self.context.tags[tag] for tag in (CLAIM, PARENT) if tag in self.context.tags}
        return replace(one.run, record=replace(record, folder=self._files(one), tags=record.tags | shared))

    def _folder(self, one: EndedTrial) -> Path:
        return self.context.trial(one.number, one.run.status)

    def _files(self, one: EndedTrial) -> Path:
        folder = self._folder(one)
        return folder if folder.is_dir() else self.tracker.moved(one.run) or folder

    def _is_whole(self, one: EndedTrial) -> bool:
        try:
            file_hashes.require_sealed(one.run.record, self._files(one))
        except BadInput:  # another trial of the same number has replaced the files
            return False
        return True
