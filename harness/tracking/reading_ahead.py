"""Files of many runs read one after the other, while those of the next runs are on their way from the server."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from harness.tracking.tracker import LoggedRun, Tracker

AT_ONCE = 8  # downloads
AHEAD = 64  # files that wait to be read


class Ahead:
    """Downloads files before they are asked for. A local tracking store has them: nothing is downloaded then.

    wanted: (run, name of a file) in the order in which they are going to be asked for; not all need to be.
    folder: for downloads; each run has a folder of its own in it.
    """

    def __init__(self, tracker: Tracker, wanted: Sequence[tuple[LoggedRun, str]], folder: Path) -> None:
        self._tracker, self._folder = tracker, folder
        self._waiting = deque((run, name) for run, name in wanted if tracker.place(run.run_id) is None)
        self._begun: dict[tuple[str, str], Future[Path]] = {}
        self._pool = ThreadPoolExecutor(AT_ONCE)

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._pool.shutdown(cancel_futures=True)

    def download(self, run: LoggedRun, name: str) -> Path:
        """The file, as `Tracker.download` returns it, with its errors."""
        while self._waiting and len(self._begun) < AHEAD:
            other, wanted = self._waiting.popleft()
            self._begun[other.run_id, wanted] = self._pool.submit(self._download, other, wanted)
        begun = self._begun.pop((run.run_id, name), None)
        return begun.result() if begun else self._download(run, name)

    def _download(self, run: LoggedRun, name: str) -> Path:
        return self._tracker.download(run, name, self._folder / run.run_id)
