"""One input tried: it is refused with a message that names the file, or read; anything else is a finding."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import re
import resource
import signal
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from fuzzing.format import Format, Wrong
from fuzzing.mutations import Content, mutated, place, remove

CPU_SECONDS, WALL_SECONDS = 5, 60  # for one input
MEMORY = 4 << 30  # bytes beyond those of a worker that has started
TEMPORARY = (".unfinished", ".tmp", ".new", ".failed", ".killed")
ROOMS = re.compile(r"(harness|retrievers|fuzzing)/[\w/]+\.py")


class Hang(BaseException):
    """An input took too long."""


@dataclass(frozen=True)
class Finding:
    """An input that was neither refused nor read.

    what: the kind of failure and where in the code it happened; equal for findings that are the same.
    detail: the message or traceback. file: the mutated file, with its content.
    """

    format: str
    what: str
    detail: str
    file: str
    content: Content


class Trial:
    """Tries inputs of a format in a folder of its own, which becomes the working folder."""

    def __init__(self, kind: Format, folder: Path) -> None:
        self.kind, self.folder, self.valid = kind, folder, kind.valid
        self.names = [name for name in self.valid if name not in kind.fixed]
        self._fill()
        os.chdir(folder)
        kind.read(folder)  # must be read, and compiles what has to be compiled
        self._fill()

    def draw(self, seed: str) -> tuple[str, Content]:
        """(file, its content) of the input with this seed."""
        draw = random.Random(f"{seed}/{self.kind.name}")
        name = draw.choice(self.names)
        return name, mutated(self.valid[name], Path(name).suffix[1:], draw)

    def run(self, name: str, content: Content) -> str | Finding:
        """ "read", the message of a refusal, or a finding."""
        remove(self.folder / name)
        place(self.folder / name, content)
        before = self._names()
        os.chdir(self.folder)
        try:
            with _limited():
                self.kind.read(self.folder)
            outcome: str | Finding = "read"
        except self.kind.refusals as error:
            outcome = self._checked(str(error), name, content)
        except (Exception, Hang) as error:
            outcome = Finding(self.kind.name, _signature(error), _traced(error), name, content)
        after = self._names()
        changed = sorted(one for one in after ^ before if not one.endswith(".lock"))
        endings = tuple(one for one in TEMPORARY if one not in self.kind.ended)
        left = [one for one in changed if not self.kind.changes or (one in after and one.endswith(endings))]
        if isinstance(outcome, str) and left:
            outcome = Finding(self.kind.name, "leaves other files behind", ", ".join(left), name, content)
        if self.kind.changes or changed:
            self._fill()
        else:
            remove(self.folder / name)
            (self.folder / name).write_bytes(self.valid[name])
        return outcome

    def _fill(self) -> None:
        """Put the valid files into the folder, and nothing else."""
        self.folder.mkdir(exist_ok=True)
        for path in self.folder.iterdir():
            remove(path)
        for name, content in self.valid.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_bytes(content)

    def _names(self) -> set[str]:
        return {str(path) for path in self.folder.rglob("*")}

    def _checked(self, message: str, name: str, content: Content) -> str | Finding:
        """The message of a refusal; a finding if it does not say where."""
        if self.kind.named and not any(Path(one).name in message for one in self.valid):
            return Finding(self.kind.name, "a refusal does not name the file", message, name, content)
        if not message.strip() or (self.kind.named and len(message) > 20_000):
            return Finding(self.kind.name, "a refusal is empty or endless", message[:500], name, content)
        return message


def start() -> None:
    """Begin as a worker: few gigabytes more than now, beyond which MemoryError is raised; no warnings in the output."""
    logging.disable(logging.WARNING)
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Raise Hang in the block when its time is over."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Hang(
            "no end after " + (f"{CPU_SECONDS} s" if number == signal.SIGPROF else f"{WALL_SECONDS} s of waiting")
        )

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
    """The type of an error and the innermost function of the harness that it passed through."""
    if isinstance(error, Wrong):
        return error.what
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if ROOMS.search(frame.filename)]
    inside = [frame for frame in frames if "/fuzzing/" not in frame.filename] or frames
    where = f" in {ROOMS.search(inside[-1].filename).group()}:{inside[-1].name}" if inside else ""  # type: ignore[union-attr]
    return f"{type(error).__name__}{where}"


def _traced(error: BaseException) -> str:
    return "".join(traceback.format_exception(error, limit=-6))[-3000:]


def minimised(finding: Finding, again: Callable[[bytes], bool], budget: int = 400) -> Content:
    """The smallest content found with the same failure, by leaving out lines and then bytes.

    again: whether a content fails in the same way. budget: the most contents to try.
    """
    content = finding.content
    if not isinstance(content, bytes):
        return content
    for separator in (b"\n", b", ", b""):
        parts = content.split(separator) if separator else [content[i : i + 1] for i in range(len(content))]
        size = max(len(parts) // 2, 1)
        while size and budget > 0:
            start = 0
            while start < len(parts) and budget > 0:
                fewer = parts[:start] + parts[start + size :]
                budget -= 1
                if again(separator.join(fewer)):
                    parts = fewer
                else:
                    start += size
            size //= 2
        content = separator.join(parts)
    return content
