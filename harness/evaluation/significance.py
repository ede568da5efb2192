"""Paired comparison of runs on the same queries: randomisation test, interval, effect size, Holm's correction."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from harness.evaluation.bootstrap import bootstrap_means

_CELLS = 1 << 22  # signs held at once: bounds the memory
FEW = 20  # fewer queries that differ: simulated 95 % intervals hold the truth in 86 to 93 % (simulate_intervals.py)
_TIE = 1e-12  # of the sum of absolute differences: sums that differ by less differ by rounding


@dataclass(frozen=True)
class Difference:
    """How a first run differs from a second in one measure, over the n queries where it applies to both.

    mean:      of (first - second); low, high: its 95 % bootstrap interval. NaN where it is undefined.
    wins, ties, losses: queries where the first run is better, equal, worse.
    effect:    Cohen's d for paired samples, mean / standard deviation (ddof 1) of the differences; 0 where
               all are 0, NaN where all others are equal, or with fewer than two queries.
    p:         two-sided randomisation test, in (0, 1]; exact says whether all sign flips were looked at.
    p_holm:    p after Holm's correction over all pairs of runs in this measure.
    p_t:       paired t-test; 1 where all differences are 0, NaN where `effect` is.
    """

    n: int
    mean: float
    low: float
    high: float
    wins: int
    ties: int
    losses: int
    effect: float
    p: float
    p_holm: float
    p_t: float
    exact: bool
    note: str


def differences(values: np.ndarray, seed: int, resamples: int) -> dict[tuple[int, int], list[Difference]]:
    """Every pair of R runs in M measures: (first, second) with first < second -> a Difference for each measure.

    values: float64 [R, M, Q], NaN where a measure does not apply to a query. What is found for two runs depends on
    no other run but for Holm's correction. Where signs are drawn, p depends on the order of the queries as it does
    on the seed: hand them over in an order of their own, such as that of their ids.
    """
    pairs = list(itertools.combinations(range(len(values)), 2))
    rows = [values[first] - values[second] for first, second in pairs]
    tests = [randomisation_test(row, seed, resamples) for row in rows]
    corrected = np.apply_along_axis(holm, 0, np.array([p for p, _ in tests]).reshape(len(pairs), values.shape[1]))
    return {
        pair: _described(row, *test, adjusted, seed, resamples)
        for pair, row, test, adjusted in zip(pairs, rows, tests, corrected, strict=True)
    }


def randomisation_test(rows: np.ndarray, seed: int, resamples: int) -> tuple[np.ndarray, np.ndarray]:
    """Paired randomisation (sign flip) test of M measures: (p float64 [M], whether p is exact bool [M]).

    rows: differences by query, float64 [M, Q]; NaN does not count. If the two runs were the same, each difference
    could as well have had the other sign (Fisher 1935). Two-sided: p is the share of sign flips whose mean is at
    least as far from 0 as the one seen. Flipping a 0 changes nothing, so that only the c others count: all 2^c flips
    are looked at where they are no more than `resamples`; else so many are drawn and the one seen is added to them,
    without which p could be 0 (Phipson and Smyth 2010). p is 1 where all differences are 0.
    """
    rows = np.nan_to_num(rows)
    sizes = np.abs(rows).sum(axis=1)
    least = np.abs(rows.sum(axis=1)) - _TIE * sizes
    exact = (rows != 0).sum(axis=1) <= math.log2(resamples)
    p = np.ones(len(rows))
    for measure in np.flatnonzero(exact):
        changed = rows[measure][rows[measure] != 0]
        flips = 1 - 2 * (np.arange(1 << len(changed))[:, None] >> np.arange(len(changed)) & 1)
        p[measure] = (np.abs(flips @ changed) >= least[measure]).mean()
    if not exact.all():
        as_far = np.zeros(int((~exact).sum()))
        for signs in _signs(seed, rows.shape[1], resamples):
            as_far += (np.abs(rows[~exact] @ signs.T) >= least[~exact, None]).sum(axis=1)
        p[~exact] = (as_far + 1) / (resamples + 1)
    return p, exact


def holm(p: np.ndarray) -> np.ndarray:
    """p values [n] corrected for n tests (Holm 1979): the least counts n times, the next n - 1 times, up to 1.

    No corrected value is less than that of a smaller p. Rejecting those up to 0.05 keeps the chance of any false
    rejection below 0.05, whatever the tests have to do with each other.
    """
    order = np.argsort(p, kind="stable")
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1)
    return corrected


def _signs(seed: int, queries: int, resamples: int) -> Iterator[np.ndarray]:
    """Random signs, float64 [some of the resamples, queries]: the same for all measures and pairs."""
    generator = np.random.default_rng(seed)
    step = max(1, _CELLS // queries)
    for start in range(0, resamples, step):
        drawn = generator.integers(0, 2, (min(step, resamples - start), queries), np.int8)
        yield 1.0 - 2.0 * drawn


def _described(
    rows: np.ndarray, p: np.ndarray, exact: np.ndarray, p_holm: np.ndarray, seed: int, resamples: int
) -> list[Difference]:
    """One pair's differences [M, Q] in numbers."""
    lows, highs, notes = bootstrap_means(rows, seed, resamples=resamples)
    found = []
    for row, low, high, note, *tests in zip(rows, lows, highs, notes, p, p_holm, exact, strict=True):
        counted = row[~np.isnan(row)]
        n, wins, losses = len(counted), int((counted > 0).sum()), int((counted < 0).sum())
        mean = float(counted.mean()) if n else math.nan
        effect, p_t = _effect(counted)
        if n > 1 and wins + losses == 0:
            note = "the runs have the same value on every query"
        elif n > 1 and math.isnan(effect):
            note = "all differences are equal: no effect size and no t-test"
        elif not note and wins + losses < FEW:
            note = f"fewer than {FEW} queries differ: the interval is too narrow, go by p"
        test, corrected, whole = float(tests[0]), float(tests[1]), bool(tests[2])
        ends = (mean, float(low), float(high))
        found.append(Difference(n, *ends, wins, n - wins - losses, losses, effect, test, corrected, p_t, whole, note))
    return found


def _effect(counted: np.ndarray) -> tuple[float, float]:
    """Cohen's d of differences [n], and the p of the t-test that comes of it: t = d * sqrt(n)."""
    from scipy.special import stdtr

    if len(counted) > 1 and not counted.any():
        return 0.0, 1.0
    if len(counted) < 2 or np.ptp(counted) <= _TIE * np.abs(counted).max():
        return math.nan, math.nan
    effect = float(counted.mean() / counted.std(ddof=1))
    return effect, float(2 * stdtr(len(counted) - 1, -abs(effect) * math.sqrt(len(counted))))
