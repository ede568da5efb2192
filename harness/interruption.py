"""Let Ctrl-C and SIGTERM end a command by an exception, so that its run ends as KILLED and nothing is left behind."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

AGAIN_SECONDS = 0.05  # time before a lost interruption is sent again
ENDING_SECONDS = 3.0  # ignore a second Ctrl-C within this time, since it could leave the run's status at RUNNING


class Terminated(KeyboardInterrupt):
    """Raised on SIGTERM, which `kill`, `timeout`, schedulers and containers send."""


_listens = [False]
_received: list[int] = []  # the numbers of the signals received, in order
_ending_since = [-math.inf]  # time of the last signal, by the monotonic clock


def listen() -> None:
    """Let SIGTERM interrupt this process like Ctrl-C. Both SIGTERM and Ctrl-C still kill forked workers."""
    listener, plain_hook = os.getpid(), sys.unraisablehook

    def interrupt(number: int, _: FrameType | None) -> None:
        if os.getpid() != listener:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        ending = time.monotonic() - _ending_since[0] < ENDING_SECONDS
        if _received and (ending or (number == signal.SIGTERM and number in _received)):
            return  # the command is already ending because of the first signal
        _received.append(number)
        _ending_since[0] = time.monotonic()
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    def unraisable(lost: Any) -> None:
        """Interrupt again if an interruption was lost in a destructor or in the callback of a weak reference."""
        if not isinstance(lost.exc_value, KeyboardInterrupt) or not _received:
            plain_hook(lost)
            return
        _ending_since[0] = -math.inf
        again = threading.Timer(AGAIN_SECONDS, os.kill, [os.getpid(), _received.pop()])
        again.daemon = True
        again.start()

    _listens[0] = True
    signal.signal(signal.SIGTERM, interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # unless a shell made it ignore Ctrl-C
        signal.signal(signal.SIGINT, interrupt)
    sys.unraisablehook = unraisable


def stop_listening() -> None:
    """Let signals end the process at once, now that its work is done."""
    _listens[0] = False
    for number in (signal.SIGTERM, signal.SIGINT):
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)


def runs_one_command() -> bool:
    """Return whether this process was started for one command and ends after it, as `listen` says."""
    return _listens[0]


@contextmanager
def until_interrupted() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end only the `with` block, even in a background command, where shells turn Ctrl-C off."""
    endings = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, signal.default_int_handler) for number in endings}
    try:
        with suppress(KeyboardInterrupt):
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_code() -> int | None:
    """Return 128 + the number of the signal that interrupted the command, as shells do; None without a signal."""
    return 128 + _received[-1] if _received else None
