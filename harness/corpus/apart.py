"""A function called in a process of its own, so that what it is given can neither hang nor crash this one, nor fill the
memory: for libraries that parse foreign files.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from typing import IO, Any

from harness import children
from harness.errors import BadInput, Failed

# The search path is handed over, so that both processes import the same modules wherever they are started.
_START = "import sys; sys.path[:] = {path!r}; from harness.corpus.apart import serve; serve({function!r}, {limits!r})"


_GROWN = 300 << 20  # bytes that a process may hold after a call, to take another one


class Ended(Exception):
    """The process ended within a call; the message says why, as what follows "it"."""


class Apart:
    """Calls a function of a module in a process of its own, which lives until it fails or this object is closed.

    function: `module:name`, from text to a JSON value. seconds: of processor time for each call. memory: bytes that the
    process may hold beyond those it starts with (Linux only). Calls of several threads wait for each other.
    """

    def __init__(self, function: str, seconds: int, memory: int) -> None:
        self.function, self.seconds, self.memory = function, seconds, memory
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0  # a fork must not share the process
        atexit.register(self.close)

    def __call__(self, argument: str) -> Any:
        """What the function returns. Raises BadInput if it does, Ended if its input ended the process, Failed if
        something else did, and RuntimeError with the traceback for any other error of the function."""
        with self._lock:
            process = self._running()
            try:
                reply = _asked(process, argument)
            except BaseException:  # a reply that comes later would be taken for that of another call
                self._end()
                raise
            if not reply.endswith(b"\n"):
                self._process = None
                raise Ended(self._why(process.wait()))
            kind, value, grown = json.loads(reply)
            if grown:
                self._end()
        if kind == "refused":
            raise BadInput(value)
        if kind == "failed":
            raise RuntimeError(value)
        if kind == "memory":
            raise Ended(self._too_much())
        return value

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self._process and self._owner == os.getpid():
            self._process.kill()
            self._process.communicate()
        self._process = None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._owner != os.getpid():
            limits = (self.seconds, self.memory)
            code = _START.format(path=sys.path, function=self.function, limits=limits)
            self._process = children.start(
                ["-c", code],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # an interruption from the keyboard is for the caller, who then ends it
            )
            self._owner = os.getpid()
        return self._process

    def _why(self, code: int) -> str:
        """Why the process ended, from its exit code."""
        if code == -signal.SIGPROF:
            return f"takes more than {self.seconds} s of processor time"
        if code in (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGILL, -signal.SIGTRAP):
            return f"crashes its reader ({signal.Signals(-code).name}), as damaged files do, or {self._too_much()}"
        raise Failed(
            f"The process that calls {self.function} ended with exit code {code}, not because of its input. Is the "
            "memory of this machine short? Run the command again."
        )

    def _too_much(self) -> str:
        return f"takes more than {self.memory >> 20:,} MB of memory"


def _asked(process: subprocess.Popen[bytes], argument: str) -> bytes:
    """The line with which the process replies; what there is of it if the process ends."""
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):  # it has ended, which its exit code explains
        process.stdin.write(json.dumps(argument).encode() + b"\n")
        process.stdin.flush()
    return process.stdout.readline()


def serve(function: str, limits: tuple[int, int]) -> None:
    """Call a function for every line of standard input, and reply with a line each, until the input ends."""
    import importlib

    seconds, memory = limits
    module, _, name = function.partition(":")
    call = getattr(importlib.import_module(module), name)
    replies = os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "wb") as nothing:  # noqa: PTH123 (what a library prints is no reply)
        os.dup2(nothing.fileno(), 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if held := _held():  # elsewhere the limit is not kept, or counts what is only reserved
        resource.setrlimit(resource.RLIMIT_AS, (held[0] + memory, held[0] + memory))
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_PROF, seconds)  # not handled: the system itself ends the process
        _reply(replies, call, json.loads(line))
        signal.setitimer(signal.ITIMER_PROF, 0)


def _reply(replies: IO[bytes], call: Callable[[str], Any], argument: str) -> None:
    try:
        line = _encoded("done", call(argument))
    except BadInput as error:
        line = _encoded("refused", str(error))
    except MemoryError:
        line = _encoded("memory", "")
    except Exception:
        line = _encoded("failed", traceback.format_exc())
    replies.write(line)
    replies.flush()


def _encoded(kind: str, value: Any) -> bytes:
    """A reply, with whether the process has grown so much that a new one should take the next call."""
    line = json.dumps([kind, value], ensure_ascii=False).encode()
    held = _held()
    return line[:-1] + (b", true]\n" if held and held[1] > _GROWN else b", false]\n")


def _held() -> tuple[int, int] | None:
    """(bytes of address space, bytes in memory) of this process; None where the system has no such file."""
    if sys.platform != "linux":
        return None
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
        size, resident = file.read().split()[:2]
    return int(size) * resource.getpagesize(), int(resident) * resource.getpagesize()
