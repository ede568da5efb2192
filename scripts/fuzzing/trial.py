"""Formats, and trials of single inputs: each is read, refused with a message that names the file, or a finding."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import logging
import os
import random
import re
import resource
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from fuzzing.mutations import Content, mutated, place, remove
from harness.errors import BadInput

CPU_SECONDS, WALL_SECONDS = 5, 60  # for one input
MEMORY = 4 << 30  # bytes beyond a worker's memory at its start
TEMPORARY = (".unfinished", ".tmp", ".new", ".failed", ".killed")
ROOMS = re.compile(r"(harness|retrievers|fuzzing)/[\w/]+\.py")
Files = Mapping[str, bytes]


class Wrong(Exception):
    """Content was read back differently than written. what: the kind of failure."""

    def __init__(self, what: str, detail: str = "") -> None:
        super().__init__(detail)
        self.what = what


class Hang(BaseException):
    """An input took too long."""


@dataclass(frozen=True)
class Format:
    """A format that the harness reads.

    files: return name -> valid content. fixed: names that are not mutated.
    read: read the files of a folder, write them again where possible, and compare. Raise `refusals` or Wrong.
    named: whether a refusal must name a file. ended: endings of temporary files that reading may leave.
    changes: whether reading may change the folder. command: whether it is a whole command, which takes long.
    """

    name: str
    files: Callable[[], Files]
    read: Callable[[Path], Any]
    fixed: frozenset[str] = frozenset()
    refusals: tuple[type[Exception], ...] = (BadInput,)
    named: bool = True
    changes: bool = False
    ended: tuple[str, ...] = ()
    command: bool = False

    @functools.cached_property
    def valid(self) -> Files:
        return self.files()


FORMATS: dict[str, Format] = {}


def reads(name: str, files: Files | Callable[[], Files], **options: Any) -> Callable[..., Any]:
    def register(read: Callable[[Path], Any]) -> Callable[[Path], Any]:
        FORMATS[name] = Format(name, files if callable(files) else lambda: files, read, **options)
        return read

    return register


def written(write: Callable[[Path], Any], prefix: str = "") -> Callable[[], Files]:
    def files() -> Files:
        with tempfile.TemporaryDirectory() as name:
            write(Path(name))
            found = sorted(path for path in Path(name).rglob("*") if path.is_file() and path.suffix != ".lock")
            return {prefix + path.relative_to(name).as_posix(): path.read_bytes() for path in found}

    return files


def again(write: Callable[[Path], Any], read: Callable[[Path], Any], expected: Any, what: str) -> None:
    """Raise Wrong unless a copy written to another folder is read as expected."""
    with tempfile.TemporaryDirectory() as name:
        write(Path(name))
        same(read(Path(name)), expected, what)


def text_again(said: str, read: Callable[[Path], Any], expected: Any, name: str) -> None:
    again(lambda into: (into / name).write_text(said, "utf-8", newline=""), lambda into: read(into / name), expected,
          name)  # fmt: skip


def each(*parts: Callable[[], Any]) -> None:
    refused: list[BadInput] = []
    for part in parts:
        try:
            part()
        except BadInput as error:
            refused.append(error)
    if refused:
        raise refused[0]


def same(one: Any, other: Any, what: str) -> None:
    if one != other:
        raise Wrong(f"{what} is not what was written", f"{one!r:.500} became {other!r:.500}")


def lines(*rows: Any) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


@dataclass(frozen=True)
class Finding:
    """An input that was neither refused nor read.

    what: the kind of failure, and the function where it happened. detail: the message or traceback.
    """

    format: str
    what: str
    detail: str
    file: str
    content: Content


class Trial:
    def __init__(self, kind: Format, folder: Path) -> None:
        self.kind, self.folder, self.valid = kind, folder, kind.valid
        self.names = [name for name in self.valid if name not in kind.fixed]
        self._fill()
        os.chdir(folder)
        kind.read(folder)  # valid files must be read; also compiles
        self._fill()

    def draw(self, seed: str) -> tuple[str, Content]:
        draw = random.Random(f"{seed}/{self.kind.name}")
        name = draw.choice(self.names)
        return name, mutated(self.valid[name], Path(name).suffix[1:], draw)

    def run(self, name: str, content: Content) -> str | Finding:
        found = functools.partial(Finding, self.kind.name, file=name, content=content)
        remove(self.folder / name)
        place(self.folder / name, content)
        before = self._names()
        os.chdir(self.folder)
        outcome: str | Finding = "read"
        try:
            with _limited():
                self.kind.read(self.folder)
        except self.kind.refusals as error:
            outcome = str(error)
            if self.kind.named and not any(Path(one).name in outcome for one in self.valid):
                outcome = found("a refusal does not name the file", outcome)
            elif not outcome.strip() or (self.kind.named and len(outcome) > 20_000):
                outcome = found("a refusal is empty or endless", outcome[:500])
        except (Exception, Hang) as error:
            traced = "".join(traceback.format_exception(error, limit=-6))[-3000:]
            outcome = found(_signature(error), traced)
        after = self._names()
        changed = sorted(one for one in after ^ before if not one.endswith(".lock"))
        endings = tuple(one for one in TEMPORARY if one not in self.kind.ended)
        left = [one for one in changed if not self.kind.changes or (one in after and one.endswith(endings))]
        if isinstance(outcome, str) and left:
            outcome = found("leaves other files behind", ", ".join(left))
        self._fill() if self.kind.changes or changed else self._put(name)
        return outcome

    def _fill(self) -> None:
        remove(self.folder)
        for name in self.valid:
            self._put(name)

    def _put(self, name: str) -> None:
        remove(self.folder / name)
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_bytes(self.valid[name])

    def _names(self) -> set[str]:
        return {str(path) for path in self.folder.rglob("*")}


def start() -> None:
    """Limit the memory of this worker (MemoryError), and silence warnings."""
    logging.disable(logging.WARNING)
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise Hang(f"no end after {CPU_SECONDS} s of computing or {WALL_SECONDS} s of waiting")

    timers = ((signal.ITIMER_PROF, signal.SIGPROF, CPU_SECONDS), (signal.ITIMER_REAL, signal.SIGALRM, WALL_SECONDS))
    before = [signal.signal(number, stop) for _, number, _ in timers]
    for timer, _, seconds in timers:
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for (timer, number, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


def _signature(error: BaseException) -> str:
    if isinstance(error, Wrong):
        return error.what
    frames = [(found[0], one.name) for one in traceback.extract_tb(error.__traceback__)
              if (found := ROOMS.search(one.filename))]  # fmt: skip
    inside = [one for one in frames if not one[0].startswith("fuzzing/")] or frames
    return f"{type(error).__name__} in {inside[-1][0]}:{inside[-1][1]}" if inside else type(error).__name__


def minimised(finding: Finding, fails: Callable[[bytes], bool], budget: int = 400) -> Finding:
    """Return the finding with fewer lines and bytes, as long as it fails alike.

    fails: whether a content fails alike. budget: the most contents to try.
    """
    content = finding.content
    for separator in (b"\n", b", ", b"") if isinstance(content, bytes) else ():
        assert isinstance(content, bytes)
        parts = content.split(separator) if separator else [content[i : i + 1] for i in range(len(content))]
        size = max(len(parts) // 2, 1)
        while size and budget > 0:
            start = 0
            while start < len(parts) and budget > 0:
                fewer = parts[:start] + parts[start + size :]
                budget -= 1
                if fails(separator.join(fewer)):
                    parts = fewer
                else:
                    start += size
            size //= 2
        content = separator.join(parts)
    return dataclasses.replace(finding, content=content)
