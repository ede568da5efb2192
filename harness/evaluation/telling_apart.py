"""What it takes to tell two runs apart: queries needed, the smallest difference that today's queries show, power."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from harness.evaluation.power import MOST, FlipTest, Population
from harness.evaluation.significance import FEW, Difference, differences

TIMES = (0.5, 1, 2, 4)  # how many times today's queries the table goes through
SEED, RESAMPLES = 0, 10_000  # of the test and the interval of the observed difference, as in `harness compare`


@dataclass(frozen=True)
class Planned:
    """power: of so many queries for the observed difference. smallest: the difference they show with the wanted power;
    None if there is none that these differences can have."""

    queries: int
    power: float
    smallest: float | None


@dataclass(frozen=True)
class TellingApart:
    """The difference of two runs by query, and what it takes to find it.

    found: the difference as it was observed, with its interval and its test.
    sd: standard deviation of the differences (ddof 1).
    wanted: the power, 0 to 1. alpha: the test finds a difference up to this p.
    queries_needed: to find the observed difference with the wanted power; None if it is 0 or so small that more than
        MOST are needed.
    low, high: the same for the ends of the difference's 95 % interval, the fewer queries first. None: no number is
        enough, since the interval holds 0, or more than MOST are needed.
    smallest_difference: that as many queries as there are find with the wanted power; None if there is none.
    power_now: the power of as many queries as there are for the observed difference.
    curve: what other numbers of queries would show.
    notes: what a reader must know besides.
    """

    found: Difference
    sd: float
    wanted: float
    alpha: float
    queries_needed: int | None
    low: int | None
    high: int | None
    smallest_difference: float | None
    power_now: float
    curve: tuple[Planned, ...]
    notes: tuple[str, ...]


def telling_apart(gaps: np.ndarray, wanted: float = 0.8, alpha: float = 0.05) -> TellingApart:
    """gaps: float64 [Q], the first run's value less the second's; NaN where the measure does not apply.

    Raises ValueError with fewer than two queries, and where the runs have the same value on each.
    """
    known = gaps[~np.isnan(gaps)]
    if len(known) < 2 or not known.any():
        raise ValueError("there is no difference to tell")
    [found] = differences(np.stack([gaps, np.zeros(len(gaps))])[:, None], SEED, RESAMPLES)[0, 1]
    test, population = FlipTest(alpha), Population.of(known)
    needed = test.queries_needed(population, wanted)
    low, high = needed_between(test, population, found, wanted)
    n = len(known)
    return TellingApart(
        found=found,
        sd=float(known.std(ddof=1)),
        wanted=wanted,
        alpha=alpha,
        queries_needed=needed,
        low=low,
        high=high,
        smallest_difference=test.smallest_difference(population, n, wanted),
        power_now=test.power(population, n),
        curve=tuple(_curve(test, population, n, needed, wanted)),
        notes=tuple(_notes(found, needed, high)),
    )


def needed_between(
    test: FlipTest, population: Population, found: Difference, wanted: float
) -> tuple[int | None, int | None]:
    """(the fewer, the more) queries that are needed if the true difference is at one end of its interval.

    None: no number is enough, or more than MOST are needed.
    """
    counts = sorted(_needed(test, population, mean, wanted) for mean in (found.low, found.high))
    if found.low <= 0 <= found.high:
        counts[1] = math.inf
    fewer, more = (None if math.isinf(one) else int(one) for one in counts)
    return fewer, more


def _needed(test: FlipTest, population: Population, mean: float, wanted: float) -> float:
    """Queries that are needed if the population has this mean; inf for None."""
    least, most = population.ends
    if least < mean < most:
        number = test.queries_needed(population.with_mean(mean), wanted)
    else:  # the end of an interval is the greatest difference itself: only in few queries
        number = test.queries_needed(Population(np.array([mean]), np.ones(1)), wanted)
    return math.inf if number is None else number


def _curve(test: FlipTest, population: Population, n: int, needed: int | None, wanted: float) -> Iterator[Planned]:
    numbers = {max(2, round(times * n)) for times in TIMES} | ({needed} if needed and needed <= MOST else set())
    for queries in sorted(numbers):
        smallest = test.smallest_difference(population, queries, wanted)
        yield Planned(queries, test.power(population, queries), smallest)


def _notes(found: Difference, needed: int | None, high: int | None) -> Iterator[str]:
    differ = found.wins + found.losses
    if differ < FEW:
        yield (
            f"Only {differ} of {found.n:,} queries differ: these numbers rest on little, and the interval of the "
            "queries needed is too narrow."
        )
    if needed is None:
        yield f"The observed difference is 0 or so small that even {MOST:,} queries are too few to find it."
    elif high is None:
        yield (
            "The interval of the difference holds 0: if the runs are as good as each other, no number of queries tells "
            "them apart, so that the queries needed have no upper limit."
        )
    yield (
        "All of this takes further queries to be like these: drawn from the same, and labelled in the same way. The "
        "power of today's queries for the observed difference says no more than p does: at p = 0.05 it is about 50 %. "
        "If it is low, that is no sign that there is no difference."
    )
