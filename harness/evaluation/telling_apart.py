"""What it takes to tell two runs apart: queries needed, the smallest difference that today's queries show, power."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from harness.evaluation.power import MOST, FlipTest, Population
from harness.evaluation.significance import FEW, RESAMPLES, SEED, Difference, differences

TIMES = (0.5, 1, 2, 4)  # how many times today's queries the table goes through
_ROUNDING = 1e-12  # of the greatest difference: a spread up to it is none


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
    low, high: its 95 % interval, from that of the effect (mean / sd). None: no number is enough, since the effect may
        be 0, or more than MOST are needed.
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
    low, high = needed_between(test, known, needed, wanted)
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


def effect_interval(known: np.ndarray) -> tuple[float, float]:
    """The 95 % interval of the mean / standard deviation of differences [n]; NaN where all are equal.

    By the delta method, which takes skewness g and kurtosis k into account: the variance of the effect e is
    (1 - g e + (k - 1) e² / 4) / n (Mertens 2002, of the Sharpe ratio, which is the same number).
    """
    from scipy.special import stdtrit

    n, spread = len(known), known.std()
    if spread <= _ROUNDING * np.abs(known).max():
        return math.nan, math.nan
    scaled, effect = (known - known.mean()) / spread, float(known.mean() / known.std(ddof=1))
    skewness, kurtosis = float((scaled**3).mean()), float((scaled**4).mean())
    variance = max(1 - skewness * effect + (kurtosis - 1) * effect**2 / 4, 0.0) / n
    margin = float(stdtrit(n - 1, 0.975)) * math.sqrt(variance)
    return effect - margin, effect + margin


def needed_between(
    test: FlipTest, known: np.ndarray, needed: int | None, wanted: float
) -> tuple[int | None, int | None]:
    """The ends of the 95 % interval of the queries needed, the fewer first; None: no number is enough, or over MOST.

    What Student's test needs for the ends of the effect's interval, multiplied by what the randomisation test needs
    more or less than it for the observed effect. needed: of the observed differences [n].
    """
    low, high = effect_interval(known)
    if math.isnan(low):
        return needed, needed
    effect = abs(float(known.mean() / known.std(ddof=1)))
    factor = needed / test.students_needed(effect, wanted) if needed else 1.0
    least = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
    fewer, more = (factor * test.students_needed(end, wanted) for end in (max(abs(low), abs(high)), least))
    return (
        None if fewer > MOST else max(round(fewer), test.least),
        None if more > MOST else max(round(more), test.least),
    )


def _curve(test: FlipTest, population: Population, n: int, needed: int | None, wanted: float) -> Iterator[Planned]:
    numbers = {max(2, round(times * n)) for times in TIMES} | ({needed} if needed and needed <= MOST else set())
    for queries in sorted(numbers):
        smallest = test.smallest_difference(population, queries, wanted)
        yield Planned(queries, test.power(population, queries), smallest)


def _notes(found: Difference, needed: int | None, high: int | None) -> Iterator[str]:
    differ = found.wins + found.losses
    if differ < FEW:
        yield f"Only {differ} of {found.n:,} queries differ: all of these numbers rest on them."
    if needed is None:
        yield f"The observed difference is 0 or so small that even {MOST:,} queries are too few to find it."
    elif high is None:
        yield (
            "By these queries the runs may be as good as each other, and then no number of queries tells them apart: "
            "the queries needed have no upper limit."
        )
    yield (
        "All of this takes further queries to be like these: drawn from the same, and labelled in the same way. The "
        "power of today's queries for the observed difference says no more than p does: at p = 0.05 it is about 50 %. "
        "If it is low, that is no sign that there is no difference."
    )
