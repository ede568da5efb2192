"""The log of what language models have replied: a reply that was paid for is on disk, and is never paid for again.

The log is a file of lines `CHECKSUM {row}`, to which rows are only ever added, and beside it files of other machines'
lines, which never change. A row holds the key of the request, the reply and what the endpoint counted; never the
prompt, nor the key that authorises.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

from harness.progress import stage
from retrievers.base import BadInput

log = logging.getLogger(__name__)
FILE = "replies.log"
OTHERS = "*-*.log"  # of other machines that share a log
Holding = Callable[[], AbstractContextManager[None]]
_CHECKSUM = 16  # hexadecimal digits before a row


@dataclass(frozen=True, slots=True)
class Completion:
    """What a language model replied.

    text: the reply, or the words in which the model refuses. finish: why it ended, in the endpoint's words: `stop`,
    `length` (cut off), `content_filter`, or `refusal`. input_tokens, output_tokens: as the endpoint counts them; None
    where it does not. expected_input: what input_tokens was estimated to be.
    """

    text: str
    finish: str = "stop"
    input_tokens: int | None = None
    output_tokens: int | None = None
    expected_input: int = 0


class ReplyLog:
    """The replies to requests, by the key of the request, in the order in which they came.

    folder: of the log; None: replies are kept for this process alone.
    turn: what else is held while adding; `Cache.adding` gives it.

    Threads may add at the same time. Processes take turns: who adds holds the lock `FOLDER.lock`.
    """

    def __init__(self, folder: Path | None, turn: Holding = nullcontext) -> None:
        self._folder, self._turn = folder, turn
        self._others: set[Path] = set()  # files of other machines that have been read
        self._found: dict[str, list[Completion]] = defaultdict(list)
        self._read = 0  # bytes of the file that have been read
        self._file = -1
        self._adding = threading.Lock()

    def __getitem__(self, key: str) -> tuple[Completion, ...]:
        return tuple(self._found.get(key, ()))

    @contextmanager
    def adding(self) -> Iterator[None]:
        """Hold the lock, with all that other processes have added before."""
        if self._folder is None:
            yield
            return
        from filelock import FileLock

        lock = FileLock(self._folder.with_name(f"{self._folder.name}.lock"))
        with stage("waiting for another process that asks the same model"):
            lock.acquire()
        try:
            with self._turn(), self._opened(self._folder):
                yield
        finally:
            lock.release()

    @contextmanager
    def _opened(self, folder: Path) -> Iterator[None]:
        """Have the file open, with all that it holds read."""
        self._file = os.open(self._path(folder), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            self.refresh()
            os.ftruncate(self._file, self._read)  # what a killed process had begun to write
            yield
        finally:
            os.fsync(self._file)
            os.close(self._file)
            self._file = -1

    def add(self, key: str, completion: Completion) -> None:
        """Add a reply; it is on disk when this returns. OSError, such as of a full disk. Only while `adding`."""
        with self._adding:
            if self._folder is not None:
                self._write(_line(key, completion), self._folder / FILE)
            self._found[key].append(completion)

    def _write(self, line: bytes, path: Path) -> None:
        """Write a line, or nothing of it."""
        written = 0
        try:
            while written < len(line):
                written += os.write(self._file, line[written:])
        except OSError as error:
            os.ftruncate(self._file, self._read)
            error.filename = str(path)
            raise
        self._read += len(line)

    def refresh(self) -> None:
        """Read what was added since the last time; damaged lines are left out, with a warning."""
        if self._folder is None:
            return
        if (path := self._path(self._folder)).exists():
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._read:  # the entry was pruned meanwhile
                    self._found.clear()
                    self._others.clear()
                    self._read = 0
                file.seek(self._read)
                self._read += self._take(file, path)
        for other in sorted({*self._folder.glob(OTHERS)} - self._others):
            if other.is_file():
                with other.open("rb") as file:
                    self._take(file, other)
            self._others.add(other)

    def _take(self, lines: Iterable[bytes], path: Path) -> int:
        """Take the rows of whole lines; returns how many bytes these have."""
        taken = damaged = 0
        for line in lines:
            if not line.endswith(b"\n"):
                break  # being written, or left by a killed process
            taken += len(line)
            if row := _row(line):
                self._found[row[0]].append(row[1])
            else:
                damaged += 1
        if damaged:
            log.warning("%s: %d damaged lines are left out; their replies will be requested again", path, damaged)
        return taken

    def _path(self, folder: Path) -> Path:
        """The file. BadInput if something else has its name, which could be read for ever."""
        path = folder / FILE
        if os.path.lexists(path) and not path.is_file():
            raise BadInput(f"{path} is no file, but the log of replies should be there. Remove it.")
        return path

    def completions(self) -> Iterator[Completion]:
        """All replies."""
        for several in list(self._found.values()):
            yield from several


def _line(key: str, completion: Completion) -> bytes:
    row = json.dumps({"key": key, **asdict(completion)}, separators=(",", ":")).encode()
    return b"%s %s\n" % (_checksum(row), row)


def _row(line: bytes) -> tuple[str, Completion] | None:
    """(key, reply) of a line; None if it is damaged."""
    checksum, row = line[:_CHECKSUM], line[_CHECKSUM + 1 : -1]
    if checksum != _checksum(row):
        return None
    match json.loads(row):
        case {"key": str(key), "text": str(text), "finish": str(finish), "input_tokens": int() | None as given,
              "output_tokens": int() | None as taken, "expected_input": int(expected)}:  # fmt: skip
            return key, Completion(text, finish, given, taken, expected)
    return None


def _checksum(row: bytes) -> bytes:
    return hashlib.sha256(row).hexdigest()[:_CHECKSUM].encode()
