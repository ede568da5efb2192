"""Time that passes only while all workers of a load wait for it, so that a test is exact on the busiest machine.

clock = VirtualClock(monkeypatch)
sent_queries(lambda: clock.sleep(0.02), LoadLevel(None, 30.0), bounds, "")
"""

import itertools
import threading
import time
from types import SimpleNamespace

import numpy as np

from harness.experiment import loading


class VirtualClock:
    """Replaces the clock, threads and events of harness.experiment.loading. Threads count from their construction."""

    def __init__(self, monkeypatch):
        self.now, self._lock = 0.0, threading.Lock()
        self.made = 0  # threads so far
        self._threads, self._asleep = 0, []  # [(when to wake up, number, event)]
        self._numbers, self._blocked = itertools.count(), 0
        clock = self

        class Thread(threading.Thread):
            def __init__(self, **given):
                super().__init__(**given)
                clock._threads += 1
                clock.made += 1

            def run(self):
                try:
                    super().run()
                finally:
                    with clock._lock:
                        clock._threads -= 1
                        clock._advance()

        class Event(threading.Event):
            def wait(self, timeout=None):
                clock.sleep(timeout)
                return self.is_set()

        class Lock:
            """Threads that wait for it do not keep the time from passing."""

            def __init__(self):
                self._held, self._waiting = False, []

            def __enter__(self):
                with clock._lock:
                    if not self._held:
                        self._held = True
                        return
                    self._waiting.append(granted := threading.Event())
                    clock._blocked += 1
                    clock._advance()
                granted.wait()

            def __exit__(self, *_):
                with clock._lock:
                    if self._waiting:
                        clock._blocked -= 1
                        self._waiting.pop(0).set()
                    else:
                        self._held = False

        monkeypatch.setattr(loading, "time", SimpleNamespace(perf_counter=lambda: self.now, monotonic=time.monotonic))
        monkeypatch.setattr(loading, "threading", SimpleNamespace(Thread=Thread, Event=Event, Lock=Lock))

    def sleep(self, seconds):
        woken = threading.Event()
        with self._lock:
            self._asleep.append((self.now + seconds, next(self._numbers), woken))
            self._advance()
        woken.wait()

    def _advance(self):
        if self._asleep and len(self._asleep) + self._blocked == self._threads:
            first = min(self._asleep)
            self._asleep.remove(first)
            self.now = max(self.now, first[0])
            first[2].set()


class OneWorker:
    """A server that serves one query after another, in the order of arrival, each in `seconds`.

    stalls: number of a query, from 0 -> additional seconds.
    """

    def __init__(self, clock, seconds, stalls=()):
        self._clock, self._seconds, self._stalls = clock, seconds, dict(stalls)
        self._free, self.served = 0.0, 0

    def __call__(self):
        service = self._seconds + self._stalls.get(self.served, 0.0)
        self.served += 1
        self._free = max(self._free, self._clock.now) + service
        self._clock.sleep(self._free - self._clock.now)


def lindley(arrivals, service):
    """The times in the system: a query waits for what the one before it still had to wait and be served when it came.

    W(n) = max(0, W(n-1) + S - (A(n) - A(n-1))), Lindley's recursion (1952).
    """
    waits = [0.0]
    for gap in np.diff(arrivals):
        waits.append(max(0.0, waits[-1] + service - gap))
    return np.array(waits) + service
