"""When the threads of a client may send their requests."""

from __future__ import annotations

import threading
import time


class Pace:
    """When requests may go out: what one is asked to wait, all wait, until the work is stopped.

    answered: number of requests that have their answer.
    """

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self.answered = 0
        self._until = 0.0  # by the monotonic clock
        self._changing = threading.Lock()

    def wait(self, seconds: float = 0.0) -> None:
        """Wait this long, and for as long as the service has asked for."""
        end = time.monotonic() + seconds
        while not self.stopped.is_set() and (left := max(end, self._until) - time.monotonic()) > 0:
            self.stopped.wait(left)

    def pause(self, seconds: float) -> None:
        """Have all wait from now on."""
        with self._changing:
            self._until = max(self._until, time.monotonic() + seconds)

    def count(self) -> None:
        with self._changing:
            self.answered += 1
