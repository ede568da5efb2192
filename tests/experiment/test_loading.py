"""A load: what is sent when, what is measured, which level keeps up. Theory: one server with a fixed service time."""

import math
import threading

import numpy as np
import pytest
from virtual_clock import OneWorker, VirtualClock, lindley

from harness.errors import BadInput, Failed
from harness.experiment import loading
from harness.experiment.loading import LevelTimes, LoadBounds, LoadLevel, Waits, in_turn, keeping_up, knee, percentile

SERVICE = 0.02  # seconds
LONG = LoadBounds(seconds=1e6, queries=2000, timeout=1e6, seed=3)


@pytest.fixture
def clock(monkeypatch):
    return VirtualClock(monkeypatch)


def sent(ask, level, bounds=LONG):
    return loading.sent_queries(ask, level, bounds, "load")


@pytest.mark.parametrize("utilisation", [0.3, 0.6, 0.9, 1.3])
def test_an_open_loop_measures_what_queueing_theory_says(clock, utilisation):
    level = LoadLevel(None, utilisation / SERVICE)
    found = sent(OneWorker(clock, SERVICE), level)
    expected = lindley(level.arrivals(LONG), SERVICE)
    np.testing.assert_allclose(found.seconds, expected, rtol=1e-9)
    for percent in (50, 95, 99):
        assert percentile(found.seconds, percent) == pytest.approx(np.percentile(expected, percent), rel=0.01)


def test_a_search_that_never_answers_does_not_hold_up_the_load(monkeypatch):
    monkeypatch.setattr(loading, "GRACE_SECONDS", 0.1)
    over = threading.Event()
    found = sent(over.wait, LoadLevel(2, None), LoadBounds(seconds=0.1, queries=5, timeout=0.1))
    over.set()
    assert found.seconds.tolist() == [math.inf] * 2  # each worker has one query under way


@pytest.mark.parametrize("utilisation", [0.3, 0.6, 0.8])
def test_the_mean_of_many_random_arrivals_is_that_of_the_closed_formula(utilisation):
    """M/D/1: the mean time in the system is S + rho S / (2 (1 - rho)), by Pollaczek and Khinchine."""
    arrivals = LoadLevel(None, utilisation / SERVICE).arrivals(LoadBounds(1e9, 200_000, 1.0))
    expected = SERVICE + utilisation * SERVICE / (2 * (1 - utilisation))
    assert lindley(arrivals, SERVICE).mean() == pytest.approx(expected, rel=0.02)


def test_arrivals_are_a_poisson_process_with_the_same_pattern_at_each_rate():
    """The gaps are exponential: mean and standard deviation 1 / rate. No query arrives after the end of the level."""
    slow, fast = (LoadLevel(None, rate).arrivals(LoadBounds(1e9, 100_000, 1.0, seed=5)) for rate in (5.0, 50.0))
    np.testing.assert_allclose(slow, 10 * fast)
    gaps = np.diff(slow)
    assert (gaps.mean(), gaps.std()) == (pytest.approx(0.2, rel=0.02), pytest.approx(0.2, rel=0.02))
    assert LoadLevel(None, 50.0).arrivals(LoadBounds(2.0, 1000, 1.0)).max() < 2
    assert LoadLevel(4, None).arrivals(LONG) is None
    with pytest.raises(BadInput, match=r"at 0\.01 queries per second, no query arrives in seconds=2"):
        LoadLevel(None, 0.01).arrivals(LoadBounds(2.0, 10, 1.0))


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_in_a_closed_loop_the_workers_wait_for_each_other(clock, workers):
    """One server with C workers: it is always busy, and a query waits for those of the C - 1 other workers."""
    found = sent(OneWorker(clock, SERVICE), LoadLevel(workers, None), LoadBounds(1e6, 100, 1e6))
    np.testing.assert_allclose(found.seconds[workers:], workers * SERVICE)
    assert found.took == pytest.approx(100 * SERVICE)


def test_a_stall_hits_all_queries_that_would_have_come_in_the_meantime(clock):
    """A server stalls for 2 s once. A closed loop sees one slow query in 200, since it sends none in the meantime.

    In an open loop at 10 queries per second, about 20 arrive during the stall. The first waits 2 s, the last hardly.
    """
    closed = sent(OneWorker(clock, SERVICE, {50: 2.0}), LoadLevel(1, None), LoadBounds(1e6, 200, 1e6))
    opened = sent(OneWorker(clock, SERVICE, {50: 2.0}), LoadLevel(None, 10.0), LoadBounds(1e6, 200, 1e6))
    assert [int((one.seconds > 5 * SERVICE).sum()) for one in (closed, opened)] == [1, pytest.approx(24, abs=8)]
    assert percentile(closed.seconds, 95) == pytest.approx(SERVICE)
    assert percentile(opened.seconds, 95) > 1.0


def test_a_closed_loop_ends_with_its_time_and_an_open_loop_after_its_last_arrival(clock):
    found = sent(OneWorker(clock, SERVICE), LoadLevel(1, None), LoadBounds(1.0, 1000, 1e6))
    assert len(found.seconds) == 50
    assert found.took == pytest.approx(1.0)
    found = sent(OneWorker(clock, 1.0), LoadLevel(None, 4.0), LoadBounds(1.5, 1000, 1e6))
    assert len(found.seconds) == len(LoadLevel(None, 4.0).arrivals(LoadBounds(1.5, 1000, 1e6)))


def test_an_answer_after_the_timeout_does_not_count_and_an_overdue_query_is_not_sent(clock):
    """At 2 arrivals per service, the n-th query waits about n/2 services: after 10, each further query is late."""
    server, level = OneWorker(clock, SERVICE), LoadLevel(None, 2 / SERVICE)
    bounds = LoadBounds(1e6, 100, 10 * SERVICE)
    found = sent(server, level, bounds)
    late = np.isinf(found.seconds)
    assert 0 < late.sum() < 100
    assert found.seconds[~late].max() < 10 * SERVICE
    times = LevelTimes.of(level, found)
    assert (times.timeouts, times.errors, times.sent) == (late.sum(), 0, 100)
    assert math.isnan(times.p95_ms)


def test_with_more_queries_than_workers_the_client_makes_them_wait_and_counts_it(clock, monkeypatch):
    monkeypatch.setattr(loading, "UNDER_WAY", 2)
    level = LoadLevel(None, 1.5 / SERVICE)
    found = sent(OneWorker(clock, SERVICE), level)
    np.testing.assert_allclose(found.seconds, lindley(level.arrivals(LONG), SERVICE), rtol=1e-9)


def test_an_open_loop_has_hardly_more_threads_than_queries_under_way(clock):
    """At a tenth of the capacity, few queries meet. With a thread for each, there would be a hundred."""
    sent(OneWorker(clock, SERVICE), LoadLevel(None, 0.1 / SERVICE), LoadBounds(1e6, 100, 1e6))
    assert clock.made <= 6


def test_errors_are_counted_and_never_fast(clock):
    calls = iter(range(100))

    def ask():
        clock.sleep(SERVICE)
        if next(calls) % 10 == 0:
            raise Failed("HTTP 503")

    found = sent(ask, level := LoadLevel(1, None), LoadBounds(1e6, 100, 1.0))
    times = LevelTimes.of(level, found)
    assert (times.errors, times.timeouts, times.sent, times.qps) == (10, 0, 100, pytest.approx(45.0))
    assert (times.mean_ms, times.p50_ms) == (pytest.approx(20.0), pytest.approx(20.0))
    assert math.isnan(times.p95_ms)  # it is one of the failed tenth
    assert found.errors == ["HTTP 503"] * 10


def test_another_exception_ends_the_load():
    def ask():
        raise BadInput("broken")

    with pytest.raises(BadInput, match="broken"):
        sent(ask, LoadLevel(3, None), LoadBounds(1e6, 100, 1.0))


@pytest.mark.parametrize(
    ("seconds", "timeout", "expected"),
    [(0.0, 1.0, None), (2.0, 1.0, r"none of 6 queries was answered. There was no answer within timeout=1 s\.")],
)
def test_the_warm_up_refuses_a_search_that_does_not_answer(clock, seconds, timeout, expected):
    server = OneWorker(clock, seconds)
    if expected:
        with pytest.raises(Failed, match=expected):
            loading.warm_up(server, 4, LoadBounds(5.0, 100, timeout))
    else:
        loading.warm_up(server, 4, LoadBounds(5.0, 100, timeout))
        assert server.served == 10


# By hand: of N sorted times, p % do not exceed the one at place ceil(p N / 100).
@pytest.mark.parametrize(
    ("seconds", "percent", "expected"),
    [
        (range(1, 101), 50, 50), (range(1, 101), 95, 95), (range(1, 101), 99, 99), (range(1, 22), 95, 20),
        (range(1, 20), 95, None), (range(1, 100), 99, None), ([1], 50, None), ([3, 1], 50, 1),
        ([*range(1, 20), math.inf], 95, 19), ([*range(1, 19), math.inf, math.inf], 95, None),
    ],
)  # fmt: skip
def test_percentiles(seconds, percent, expected):
    found = percentile(np.array([*seconds], float)[::-1], percent)
    assert math.isnan(found) if expected is None else found == expected


def times(qps, p95, rate=None, sent=1000, errors=0):
    return LevelTimes(1, rate, sent, errors, 0, qps, 1.0, 1.0, p95, math.nan)


KNEES = {
    "more load, more answers, in three times the time": ([times(10, 20), times(30, 40), times(50, 60)], [1, 1, 1], 2),
    "slower than that": ([times(10, 20), times(30, 40), times(50, 61)], [1, 1, 0], 1),
    "quicker than anybody notices": ([times(10, 0.2), times(30, 10), times(50, 10.1)], [1, 1, 0], 1),
    "as many answers with more waiting": ([times(10, 20), times(10.2, 40), times(10.4, 60)], [1, 1, 1], 0),
    "errors": ([times(10, 20), times(30, 20, errors=10), times(50, 20, errors=11)], [1, 1, 0], 1),
    "rates count, too": ([times(10, 20), times(40, 30, rate=40.0)], [1, 1], 1),
    "too few queries": ([times(10, 20), times(40, math.nan)], [1, None], 0),
    "too few queries for the first": ([times(10, math.nan), times(40, 20)], [None, None], None),
    "nothing but errors": ([times(10, math.nan, errors=900)], [0], None),
}


@pytest.mark.parametrize("case", KNEES)
def test_the_knee(case):
    levels, keeps, expected = KNEES[case]
    found = keeping_up(levels)
    assert [one.keeps_up for one in found] == keeps
    assert knee(found) is (None if expected is None else found[expected])


def test_each_query_has_its_turn_before_any_is_repeated():
    places = in_turn(20, seed=1)
    first, second = ([next(places) for _ in range(20)] for _ in range(2))
    assert sorted(first) == sorted(second) == [*range(20)]
    assert first != sorted(first)
    assert first != [next(in_turn(20, seed=2)) for _ in range(20)]


def test_the_names_of_levels():
    assert LevelTimes.of(LoadLevel(None, 2.5), Waits(np.array([0.1]), 1.0)).name == "rate=2.5"
    assert LoadLevel(4, None).name == "concurrency=4"
