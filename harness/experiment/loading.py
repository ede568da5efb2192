"""Send queries to a search at a given concurrency or rate, and time each answer.

Closed loop: each of C workers sends its next query when its last one is answered, as C impatient users would. A slow
search thus slows down its own load. Latency is measured from the sending.

Open loop: queries arrive at a rate, whether or not earlier ones are answered, as many independent users send them. The
gaps between arrivals are random (a Poisson process), since evenly spaced queries would never meet below the capacity.
Latency is measured from the scheduled arrival. So time spent waiting counts, even if the client was late to send
(measuring from the sending instead is known as coordinated omission).
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.config.text import counted
from harness.errors import BadInput, Failed
from harness.progress import watch

UNDER_WAY = 256  # maximum number of queries of an open loop under way at once; more wait, and their wait counts
WARM_UP = 10  # minimum number of uncounted queries before the first level
LOOK_SECONDS = 0.1  # time between two updates of the progress
GRACE_SECONDS = 1.0  # seconds that queries under way may take after an interruption
SLOWER, QUICK_MS, ANSWERED, SAME = 3.0, 10.0, 0.99, 0.95  # see `slowest_p95`, `keeping_up` and `knee`

Ask = Callable[[], None]  # sends the next query and waits for the answer; raises Failed if there is none


@dataclass(frozen=True)
class LoadBounds:
    """The bounds of each level. timeout: seconds after which an answer no longer counts. seed: decides the arrivals."""

    seconds: float
    queries: int
    timeout: float
    seed: int = 0


@dataclass(frozen=True)
class LoadLevel:
    """A load. concurrency: of a closed loop. rate: arrivals per second of an open loop. One of them is None."""

    concurrency: int | None
    rate: float | None

    @property
    def name(self) -> str:
        return f"rate={self.rate:g}" if self.rate is not None else f"concurrency={self.concurrency}"

    def arrivals(self, bounds: LoadBounds) -> np.ndarray | None:
        """Return the scheduled arrivals in seconds from the start, float64 [N], ascending; None for a closed loop.

        With the same seed, all rates have the same pattern of gaps. Raise BadInput if no query arrives in time.
        """
        if self.rate is None:
            return None
        gaps = np.random.default_rng(bounds.seed).standard_exponential(bounds.queries)
        due = np.cumsum(gaps) / self.rate
        if due[0] >= bounds.seconds:
            raise BadInput(
                f"rates: at {self.rate:g} queries per second, no query arrives in seconds={bounds.seconds:g}. Raise "
                "seconds, or choose a higher rate."
            )
        return due[due < bounds.seconds]


@dataclass(frozen=True, eq=False)
class Waits:
    """How long the queries of a level took.

    seconds: float64 [N], from the arrival to the answer; inf for queries that got no answer in time.
    took: seconds from the start of the level to its end. errors: the messages of failed queries, without time-outs.
    """

    seconds: np.ndarray
    took: float
    errors: Sequence[str] = ()


@dataclass(frozen=True)
class LevelTimes(LoadLevel):
    """The numbers of a level.

    sent: number of queries that were sent or should have been. errors: queries that failed. timeouts: queries without
        an answer in time.
    qps: answers per second. mean_ms: mean latency of the answered queries.
    p50_ms, p95_ms, p99_ms: latencies that 50, 95 and 99 % of all queries do not exceed; see `percentile`. An unanswered
        query counts as infinitely slow. All latencies are NaN if unknown.
    keeps_up: see `keeping_up`; None if p95_ms is unknown because too few queries were sent.
    """

    sent: int
    errors: int
    timeouts: int
    qps: float
    mean_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    keeps_up: bool | None = None

    @classmethod
    def of(cls, level: LoadLevel, waits: Waits) -> LevelTimes:
        answered = waits.seconds[np.isfinite(waits.seconds)]
        errors, sent = len(waits.errors), len(waits.seconds)
        p50, p95, p99 = (1000 * percentile(waits.seconds, share) for share in (50, 95, 99))
        return cls(
            level.concurrency,
            level.rate,
            sent=sent,
            errors=errors,
            timeouts=sent - len(answered) - errors,
            qps=len(answered) / waits.took,
            mean_ms=1000 * float(answered.mean()) if len(answered) else math.nan,
            p50_ms=p50,
            p95_ms=p95,
            p99_ms=p99,
        )

    @property
    def answered(self) -> float:
        """Return the share of the queries that were answered in time."""
        return 1 - (self.errors + self.timeouts) / self.sent


def percentile(seconds: np.ndarray, percent: int) -> float:
    """Return the smallest of N times that `percent` % of the times do not exceed (nearest rank).

    Return NaN if this time is infinite, or if N < 100 / (100 - percent): it would only be the greatest time.
    """
    n = len(seconds)
    if n * (100 - percent) < 100:
        return math.nan
    found = float(np.sort(seconds)[-(-n * percent // 100) - 1])
    return found if math.isfinite(found) else math.nan


def slowest_p95(levels: Sequence[LevelTimes]) -> float:
    """Return the highest p95 in ms that keeps up: three times that of one worker, which is the first level.

    It is at least 10 ms: nobody notices less, and a quick search answers rare queries more slowly, since caches and
    threads must wake up. Return NaN if the p95 of one worker is unknown.
    """
    alone = levels[0].p95_ms
    return alone if math.isnan(alone) else max(SLOWER * alone, QUICK_MS)


def keeping_up(levels: Sequence[LevelTimes]) -> list[LevelTimes]:
    """Set `keeps_up` of all levels: at least 99 % of the queries are answered, and p95 is at most `slowest_p95`."""
    most = slowest_p95(levels)

    def keeps_up(one: LevelTimes) -> bool | None:
        if one.answered < ANSWERED:
            return False
        return None if math.isnan(one.p95_ms) or math.isnan(most) else one.p95_ms <= most

    return [replace(one, keeps_up=keeps_up(one)) for one in levels]


def knee(levels: Sequence[LevelTimes]) -> LevelTimes | None:
    """Return the level that keeps up with the most answers per second; None if no level is known to keep up.

    Of levels within 5 % of the most, return the one with the lowest p95: more load would only add waiting time.
    """
    known = [one for one in levels if one.keeps_up]
    most = max((one.qps for one in known), default=0.0)
    return min((one for one in known if one.qps >= SAME * most), key=lambda one: one.p95_ms, default=None)


def warm_up(ask: Ask, workers: int, bounds: LoadBounds) -> None:
    """Send uncounted queries, at least one from each worker. Raise Failed if none of them is answered."""
    count = max(WARM_UP, 2 * workers)
    found = sent_queries(ask, LoadLevel(workers, None), replace(bounds, queries=count), "warming up")
    if not np.isfinite(found.seconds).any():
        why = found.errors[0] if found.errors else f"There was no answer within timeout={bounds.timeout:g} s."
        raise Failed(f"Before the load, none of {counted(len(found.seconds), 'query')} was answered. {why}")


def sent_queries(ask: Ask, level: LoadLevel, bounds: LoadBounds, label: str) -> Waits:
    """Send the queries of a level and wait for the answers. label: of the progress. Raise what `ask` raises, except
    Failed, which counts as an error.
    """
    work = _Work(ask, level.arrivals(bounds), bounds)
    work.began = time.perf_counter()
    try:
        with watch(label) as progress:
            work.start(min(level.concurrency or 1, len(work.seconds)))
            for thread in work.threads:  # which may grow
                while thread.is_alive() and time.perf_counter() < work.end:
                    thread.join(LOOK_SECONDS)
                    progress(work.done, len(work.seconds), "queries")
    finally:
        work.stopped.set()
        end = time.monotonic() + GRACE_SECONDS
        for thread in work.threads:
            if thread.is_alive():
                thread.join(max(0.0, end - time.monotonic()))
    if work.broken:
        raise work.broken[0]
    sent = ~np.isnan(work.seconds)
    return Waits(work.seconds[sent], max(work.ended - work.began, LOOK_SECONDS), work.errors)


class _Work:
    """The queries of a level, which its workers share. seconds: see `Waits`; NaN for queries that were not sent.

    In an open loop, one worker at a time waits for the next arrival. It starts another worker if all others are busy.
    So there are only as many threads as a server would need, and a search finds its threads' own data again.
    """

    def __init__(self, ask: Ask, due: np.ndarray | None, bounds: LoadBounds) -> None:
        self._ask, self._due, self._bounds = ask, due, bounds
        self.seconds = np.full(bounds.queries if due is None else len(due), np.nan)
        self.errors, self.broken, self.threads = list[str](), list[BaseException](), list[threading.Thread]()
        self.stopped, self._lock, self._turn = threading.Event(), threading.Lock(), threading.Lock()
        self.began, self.ended, self.done, self._idle = 0.0, 0.0, 0, 0
        self._places = iter(range(len(self.seconds)))

    @property
    def end(self) -> float:
        """The time after which no answer counts any more: queries that are still under way get none."""
        return self.began + self._bounds.seconds + self._bounds.timeout + GRACE_SECONDS

    def start(self, workers: int) -> None:
        # The threads are daemons, because a query under way cannot be ended.
        made = [threading.Thread(target=self, daemon=True) for _ in range(workers)]
        self.threads += made
        for thread in made:
            thread.start()

    def __call__(self) -> None:
        while (found := self._now() if self._due is None else self._arrival(self._due)) and not self.stopped.is_set():
            self.seconds[found[0]] = math.inf  # until it is answered
            try:
                error = self._asked(found[1])
            except BaseException as broken:
                self.broken.append(broken)
                self.stopped.set()
                return
            self._note(*found, error)

    def _now(self) -> tuple[int, float] | None:
        """Return (the place of the next query, the time); None if the closed loop is over."""
        now, place = time.perf_counter(), next(self._places, None)
        return None if place is None or now - self.began >= self._bounds.seconds else (place, now)

    def _arrival(self, due: np.ndarray) -> tuple[int, float] | None:
        """Wait until the next query arrives. Return (its place, its scheduled arrival), or None after the last one."""
        with self._lock:
            self._idle += 1
        with self._turn:
            with self._lock:
                self._idle -= 1
                alone = not self._idle
            if (place := next(self._places, None)) is None:
                return None
            if alone and len(self.threads) < UNDER_WAY:
                self.start(1)
            arrival = self.began + float(due[place])
            while not self.stopped.is_set() and (left := arrival - time.perf_counter()) > 0:
                self.stopped.wait(left)
            return place, arrival

    def _asked(self, arrival: float) -> str | None:
        """Send a query unless its time is already over. Return the message of an error, or None."""
        if time.perf_counter() - arrival < self._bounds.timeout:
            try:
                self._ask()
            except Failed as error:
                return str(error)
        return None

    def _note(self, place: int, arrival: float, error: str | None) -> None:
        now = time.perf_counter()
        late = now - arrival >= self._bounds.timeout
        with self._lock:
            self.seconds[place] = math.inf if late or error else now - arrival
            if error and not late:
                self.errors.append(error)
            self.ended, self.done = max(self.ended, now), self.done + 1


def in_turn(count: int, seed: int) -> Iterator[int]:
    """Return the places of `count` queries in random order, for ever: each one before any is repeated.

    Several threads may share the iterator.
    """
    return itertools.cycle(np.random.default_rng(seed).permutation(count).tolist())
