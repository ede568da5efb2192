"""Append-only logs of typed rows, on one machine or shared by machines through a bucket.

A line is the JSON object of a row, with the additional last field `check`, a checksum of the rest. A process that is
killed while it appends leaves at most one partial line. Readers skip this line, and the next writer removes it.

Every SEND_SECONDS, a machine sends the new lines of its log `replies.log` to the bucket, as an object named
`<writer>-<position of the first new byte in the log>.log`. Other machines fetch the object to a file of the same name
and never change this file.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from harness.errors import BadInput, Failed
from harness.storage.atomic import create_text, write_text
from harness.storage.bucket import Bucket
from harness.storage.locks import locked
from harness.storage.typed import row_as

log = logging.getLogger(__name__)
T = TypeVar("T")
DIGITS = 16  # hexadecimal digits kept of a checksum; a chained log keeps all 64
BLOCK = 1 << 16  # bytes that are read at a time from the end of a file
_FIELD = b', "check": "'
_EDITED = "was edited or is damaged: its checksum differs"


class Shortened(BadInput):
    """A log is now shorter than the part of it that was read before."""


@dataclass(frozen=True)
class Position:
    """A position between lines. size, lines: numbers of bytes and of lines before it.

    check: checksum of the last line before it. before: checksum of the second-last line before it.
    """

    size: int = 0
    lines: int = 0
    check: str = ""
    before: str = ""


START = Position()


class AppendLog(Generic[T]):
    """A log file. Processes append to it in turns, while others read it.

    kind: the dataclass of its rows.
    sync: when rows are flushed to disk, to survive a power failure. "row": after each call of `add`. "end": when
        `appending` ends. "never": the operating system decides. Rows always survive the end of this process.
    lenient: whether to leave out damaged lines with a warning, as their rows can be made again; else raise BadInput.
    chained: whether each checksum also covers the previous checksum, and `<stem>.last` repeats the last checksum. This
        reveals lines that were edited, moved or removed.
    lock: the file to lock while appending. remedy: advice about a damaged line.
    """

    def __init__(
        self,
        path: Path,
        kind: type[T],
        *,
        sync: Literal["row", "end", "never"] = "never",
        lenient: bool = False,
        chained: bool = False,
        lock: Path | None = None,
        remedy: str = "Put the file back as it was, or remove the line.",
    ) -> None:
        self.path, self._kind, self._sync = path, kind, sync
        self._lenient, self._chained = lenient, chained
        broken = "does not follow the line above: a line was edited, moved or removed" if chained else _EDITED
        self._problem, self._remedy = f"this line {broken}. {remedy}", remedy
        self._last = path.with_suffix(".last")
        self._lock = lock or path.with_name(f".{path.name}.lock")

    def append(self, rows: Iterable[T]) -> None:
        if several := [*rows]:
            with self.appending() as add:
                add(*several)

    @contextmanager
    def appending(self) -> Iterator[Callable[..., None]]:
        """Keep other processes from appending. Yield the function `add(*rows)`, which threads may share.

        First remove an incomplete last line, with a warning. Raise BadInput if the log's path is not a file, or if a
        chained log was edited. If `add` raises OSError (which names the file), the log has none of the call's rows.
        """
        with locked(self._lock, f"writes {self.path.name}"):
            there = self._exists()
            end = self._checked()[1] if self._chained else START
            check = end.check
            file = self._opened(end.before) if there else -1
            writing = threading.Lock()

            def add(*rows: T) -> None:
                nonlocal check, file
                with writing:
                    file = file if file >= 0 else self._opened("")
                    lines = []
                    for row in rows:
                        line, check = self._line(row, check)
                        lines.append(line)
                    self._write(file, b"".join(lines))
                    if self._sync == "row":
                        os.fsync(file)
                    if self._chained:
                        write_text(self._last, f"{check}\n")

            try:
                yield add
                if self._sync == "end" and file >= 0:
                    os.fsync(file)
            finally:
                if file >= 0:
                    os.close(file)

    def read(self) -> list[T]:
        """Return all rows; [] if no file exists. Raise BadInput, which names the line, for damage or a wrong type."""
        return self._checked()[0]

    def since(self, position: Position) -> tuple[list[T], Position]:
        """Return the rows of finished lines after a position, and the next position. Raise Shortened or BadInput."""
        return self._rows(position, tail=False)

    def _checked(self) -> tuple[list[T], Position]:
        rows, end = self._rows(START, tail=True)
        if self._chained:
            known = ""
            if os.path.lexists(self._last):
                if not self._last.is_file():  # reading a pipe would wait for ever
                    raise BadInput(f"{self._last} is not a file. Remove it, and restore the original.")
                known = self._last.read_text("utf-8", "replace").strip()
            if known not in (end.check, end.before):  # the last writer may have died before it wrote this file
                raise BadInput(f"{self.path}: the last line was edited or removed. {self._remedy}")
        return rows, end

    def _rows(self, position: Position, tail: bool) -> tuple[list[T], Position]:
        rows: list[T] = []
        damaged: list[int] = []
        for line in self._from(position):
            ended, number = line.endswith(b"\n"), position.lines + 1
            text = line.rstrip(b"\n")
            found = self._intact(text, position.check)
            if not (ended or (tail and found)) and self._is_torn(text):
                break
            before, check = (position.check, found[1]) if found else (position.before, position.check)
            position = Position(position.size + len(line), number, check, before)
            if found:
                rows.append(row_as(self._kind, found[0], f"{self.path}:{number}"))
            elif text.strip():
                damaged.append(number)
                if not self._lenient:
                    raise BadInput(f"{self.path}:{number}: {self._problem}")
        if damaged:
            said = f"{len(damaged)} damaged lines, the first in line {damaged[0]}, are left out"
            log.warning("%s: %s; their rows will be made again", self.path, said)
        return rows, position

    def _from(self, position: Position) -> list[bytes]:
        if not self._exists():
            return []
        with self.path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < position.size:
                raise Shortened(f"{self.path} was shortened while it was read, but logs only grow. Start again.")
            file.seek(position.size)
            return file.readlines()

    def _exists(self) -> bool:
        """Return whether the file exists. Raise BadInput if the path is something else, such as a pipe."""
        if (there := os.path.lexists(self.path)) and not self.path.is_file():
            raise BadInput(f"{self.path} is not a file, but must be a log. Remove it.")
        return there

    def _is_torn(self, tail: bytes) -> bool:
        return self._lenient or b'{"'.startswith(tail[:2])

    def _line(self, row: T, before: str) -> tuple[bytes, str]:
        """Return the line of a row and its checksum. before: the previous line's checksum."""
        try:
            text = json.dumps(row, ensure_ascii=False, default=_fields_of).encode()
        except UnicodeEncodeError:  # the text has half a surrogate pair
            text = json.dumps(row, default=_fields_of).encode()
        check = self._checksum(text[:-1], before)
        return text[:-1] + _FIELD + check.encode() + b'"}\n', check

    def _intact(self, line: bytes, before: str) -> tuple[Any, str] | None:
        """Return the JSON value in a line, and the line's checksum; None if the line is damaged."""
        text, _, end = line.rpartition(_FIELD)
        check = self._checksum(text, before)
        if end != check.encode() + b'"}':
            return None
        try:
            return json.loads(text + b"}"), check
        except (ValueError, RecursionError):
            return None

    def _checksum(self, text: bytes, before: str) -> str:
        digest = hashlib.sha256((before.encode() if self._chained else b"") + text).hexdigest()
        return digest if self._chained else digest[:DIGITS]

    def _opened(self, before: str) -> int:
        """Open the file. Add a missing line end to a complete last line; remove an incomplete last line.

        before: the checksum of the line above the last line.
        """
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        start = size = os.fstat(file).st_size
        tail = b""
        while start and b"\n" not in tail:
            start = max(0, start - BLOCK)
            tail = os.pread(file, size - start, start)
        tail = tail[tail.rfind(b"\n") + 1 :]
        if tail and self._intact(tail, before):
            self._write(file, b"\n")
        elif tail:
            with self.path.open("rb") as lines:
                number = sum(1 for _ in lines)
            if not self._is_torn(tail):
                os.close(file)
                raise BadInput(f"{self.path}:{number}: {self._problem}")
            begun = tail.decode(errors="replace")
            log.warning("%s:%d: an incomplete line was removed: %.80s", self.path, number, begun)
            os.ftruncate(file, size - len(tail))
        return file

    def _write(self, file: int, text: bytes) -> None:
        size, written = os.fstat(file).st_size, 0
        try:
            while written < len(text):
                written += os.write(file, text[written:])
        except OSError as error:
            os.ftruncate(file, size)
            error.filename = str(self.path)
            raise


def _fields_of(row: Any) -> dict[str, Any]:
    return {field.name: getattr(row, field.name) for field in fields(row)}


SEND_SECONDS = 30.0  # time between two calls of `send`; a lost machine loses at most the rows since the last call
FILE = "replies.log"
OTHERS = "*-*.log"  # files fetched from other machines that share the log
WRITER = "writer"  # a file with this machine's random id, which begins the names of the objects that it sends


class SharedLog:
    """A log that machines share through a bucket. folder: for the local files. start: prefix of the objects' names."""

    def __init__(self, bucket: Bucket, start: str, folder: Path) -> None:
        self._bucket, self._start, self._folder = bucket, start, folder
        self._sent = 0  # number of bytes of this machine's file that are in the bucket
        self._sending = threading.Lock()
        create_text(folder / WRITER, uuid.uuid4().hex)

    def fetch(self) -> None:
        writer, self._sent = (self._folder / WRITER).read_text("utf-8"), 0
        for one in self._bucket.listed(self._start):
            name = one.name.removeprefix(self._start)
            owner, _, first = name.removesuffix(".log").rpartition("-")
            if not (name.endswith(".log") and owner.isalnum() and first.isdecimal()):
                continue
            if owner == writer:
                self._sent = max(self._sent, int(first) + one.size)
            elif not (self._folder / name).exists() and (content := self._bucket.read(one.name)):
                arriving = self._folder / f".{uuid.uuid4().hex}"
                arriving.write_bytes(content.data)
                arriving.rename(self._folder / name)

    def send(self) -> None:
        """Send the lines of this machine's file that the bucket lacks. The caller must hold the log's lock."""
        with self._sending:
            if not (file := self._folder / FILE).exists():
                return
            with file.open("rb") as lines:
                lines.seek(self._sent)
                new = lines.read()
            new = new[: new.rfind(b"\n") + 1]
            if new:
                writer = (self._folder / WRITER).read_text("utf-8")
                self._bucket.write(f"{self._start}{writer}-{self._sent:015d}.log", new)
                self._sent += len(new)

    @contextmanager
    def adding(self) -> Iterator[None]:
        """Fetch other machines' rows, and send the rows added in this context. The caller must hold the log's locks."""
        self.fetch()
        file = self._folder / FILE
        if self._sent > (file.stat().st_size if file.exists() else 0):  # this machine's file was lost
            write_text(self._folder / WRITER, uuid.uuid4().hex)
            self.fetch()
        over = threading.Event()
        sender = threading.Thread(target=self._keep_sending, args=(over,), name="replies", daemon=True)
        sender.start()
        try:
            yield
        finally:
            over.set()
            sender.join()
            try:
                self.send()
            except (BadInput, Failed) as error:
                log.warning("%s: replies are not in the bucket yet, and will be sent the next time. %s", file, error)

    def _keep_sending(self, over: threading.Event) -> None:
        while not over.wait(SEND_SECONDS):
            try:
                self.send()
            except (BadInput, Failed):
                continue  # the server may answer the next time
