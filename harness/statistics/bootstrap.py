"""Bootstrap intervals of means over queries, and of any function of sums over items."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np

EQUAL = 1e-12  # smaller differences of measures are rounding errors
FEW = 10  # with fewer items, the bias correction of BCa is unreliable
CONFIDENCE = 0.95
_CELLS = 1 << 22  # maximum number of draws in memory at once
_PRODUCT = 1 << 18  # maximum number of multiplications in a matrix product that BLAS computes in one thread


@dataclass(frozen=True, eq=False)
class Tallies:
    """Counts of N items, and M measures computed from sums of the counts, such as precision over all items.

    table: float64 [N, S], the S counts of each item.
    measure: sums [R, S] -> measures [M, R], NaN where undefined.
    entering: int [M], the number of items that enter each measure.
    """

    table: np.ndarray
    measure: Callable[[np.ndarray], np.ndarray]
    entering: np.ndarray


def bootstrap_means(
    values: np.ndarray,
    seed: int,
    resamples: int = 2000,
    wanted: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return 95 % bootstrap intervals of M means over queries: (low [M], high [M], notes). A note may be "".

    Whole queries are drawn with replacement. The interval is BCa (bias-corrected and accelerated; Efron 1987), as in
    scipy.stats.bootstrap. For fewer than 10 queries, or if BCa is undefined, it is the percentile interval, with a
    note. If all values are equal, it is a single point. For fewer than two queries, it is NaN.

    values: float64 [M, Q]; NaN is left out of the mean.
    wanted: bool [M], the means that get an interval; all others get NaN and no note. None: all means. An interval does
        not depend on which other means are wanted.
    """
    wanted = np.ones(len(values), bool) if wanted is None else wanted
    low, high = np.full(len(values), np.nan), np.full(len(values), np.nan)
    notes = [""] * len(values)
    # Measures over the same queries share the draws. Each group of such measures has its own generator, so an
    # interval does not depend on which other measures are computed.
    groups: dict[bytes, list[int]] = {}
    for row, counted in enumerate(~np.isnan(values)):
        groups.setdefault(counted.tobytes(), []).append(row)
    for pattern, rows in groups.items():
        members, counted = np.array(rows), np.frombuffer(pattern, bool)
        chosen = wanted[members]
        if not chosen.any():
            continue
        group = values[np.ix_(members, counted)]
        if group.shape[1] < 2:
            group_notes = ["one query: no interval" if group.shape[1] else "no query: no interval"] * int(chosen.sum())
        else:
            # Resample all means, wanted or not: the last bits of a matrix product depend on its number of rows.
            means = _resampled_means(group, seed, resamples)[chosen]
            low[members[chosen]], high[members[chosen]], group_notes = _intervals(group[chosen], means)
        for member, note in zip(members[chosen], group_notes, strict=True):
            notes[member] = note
    return low, high, notes


def _resampled_means(values: np.ndarray, seed: int, resamples: int) -> np.ndarray:
    n = values.shape[1]
    draw = _cached_draws if resamples * n <= _CELLS else draws
    # The products are so small that BLAS uses one thread. So the last bits do not depend on the number of cores, and
    # processes that share the cores do not wait for each other. BLAS reads columns in blocks whose size divides 64.
    width = max(64, _PRODUCT // values.size // 64 * 64)
    with one_thread() if width * values.size > _PRODUCT else nullcontext():
        products = [
            values @ drawn[start : start + width].T.astype(np.float64)
            for drawn in draw(seed, n, resamples)
            for start in range(0, len(drawn), width)
        ]
    return np.hstack(products) / n


def draws(seed: int | np.random.Generator, n: int, resamples: int, drawn: int | None = None) -> Iterator[np.ndarray]:
    """Yield integer arrays [B, n] for B resamples at a time: how often each of n items is drawn in each resample.

    A matrix product of such an array with values of the items gives the resampled sums.
    drawn: the number of items to draw with replacement; None: n.
    """
    generator = np.random.default_rng(seed)
    step = max(1, _CELLS // n)
    for start in range(0, resamples, step):
        count = min(step, resamples - start)
        cells = generator.integers(0, n, (count, n if drawn is None else drawn)) + np.arange(count)[:, None] * n
        yield np.bincount(cells.ravel(), minlength=count * n).reshape(count, n).astype(np.min_scalar_type(n))


@functools.lru_cache(maxsize=8)
def _cached_draws(seed: int, n: int, resamples: int) -> tuple[np.ndarray, ...]:
    return tuple(draws(seed, n, resamples))


def _intervals(values: np.ndarray, means: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[str]]:
    observed = values.mean(axis=1)
    return bca(
        observed,
        means,
        influence=values - observed[:, None],  # Leaving out an item changes the mean by -deviation / (n - 1).
        constant=np.ptp(values, axis=1) == 0,
        slack=1e-12 * np.abs(values).max(axis=1),
    )


def bca(
    observed: np.ndarray,
    resampled: np.ndarray,
    influence: np.ndarray,
    constant: np.ndarray,
    slack: np.ndarray,
    entering: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return BCa intervals of M statistics of n items (Efron 1987): (low [M], high [M], notes). A note may be "".

    The interval of a constant statistic is its value. For fewer than 10 items, or if BCa is undefined, return the
    percentile interval, with a note.

    observed: float64 [M], the statistics computed from all items.
    resampled: float64 [M, resamples], the statistics of items drawn with replacement.
    influence: float64 [M, n], for each item: how far the value without this item lies below the mean of all n such
        values, times any positive factor.
    constant: bool [M], whether every draw gives the same value.
    slack: float64 [M]; smaller differences are rounding errors.
    entering: int [M], the number of items that enter each statistic; None: all, and notes say "queries", not "items".
    """
    from scipy.special import ndtr, ndtri

    items = "queries" if entering is None else "items"
    share_below = (resampled < (observed - slack)[:, None]).mean(axis=1)
    share_up_to = (resampled <= (observed + slack)[:, None]).mean(axis=1)
    bias_share = (share_below + share_up_to) / 2  # A tie counts half.
    greatest = np.abs(influence).max(axis=1)
    flat = greatest <= slack  # Leaving out one item changes nothing; leaving out several may.
    deviations = influence / np.where(flat, 1.0, greatest)[:, None]
    squares = np.where(flat, 1.0, (deviations**2).sum(axis=1))
    acceleration = (deviations**3).sum(axis=1) / (6 * squares**1.5)

    few = (np.full(len(observed), influence.shape[1]) if entering is None else entering) < FEW
    defined = (bias_share > 0) & (bias_share < 1) & ~constant & ~flat & ~few
    bias = ndtri(np.where(defined, bias_share, 0.5))
    acceleration = np.where(defined, acceleration, 0.0)  # With bias and acceleration 0, BCa is the percentile interval.
    shifted = bias + ndtri([[(1 - CONFIDENCE) / 2], [(1 + CONFIDENCE) / 2]])
    shares = ndtr(bias + shifted / (1 - acceleration * shifted))
    low, high = np.where(constant, observed, _quantiles(resampled, shares))
    reasons = (f"percentile interval: fewer than {FEW} {items}", "percentile interval: BCa is undefined")
    undefined = np.where(few, *reasons)
    notes = np.where(constant, f"all {items} have the same value", np.where(defined, "", undefined))
    return low, high, notes.tolist()


def _quantiles(values: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return quantiles [N, M] of the rows of `values` [M, n], like np.quantile. shares: [N, M], N levels per row."""
    ordered = np.sort(values, axis=1)
    last = values.shape[1] - 1
    place = shares * last
    lower = np.floor(place).astype(np.intp)
    row = np.arange(len(values))
    below, above = ordered[row, lower], ordered[row, np.minimum(lower + 1, last)]
    part, gap = place - lower, above - below
    return np.where(part < 0.5, below + gap * part, above - gap * (1 - part))


def bootstrap_sums(tallies: Tallies, seed: int, resamples: int) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return BCa intervals of the M measures of `tallies`: (low [M], high [M], notes); NaN for a single item.

    If a measure is NaN in some resamples, return the percentile interval of all other resamples, with a note.
    """
    table, total = tallies.table, tallies.table.sum(axis=0)
    observed = tallies.measure(total[None])[:, 0]
    low, high, notes = np.full(len(observed), np.nan), np.full(len(observed), np.nan), [""] * len(observed)
    if len(table) < 2:
        return low, high, ["one item: no interval"] * len(observed)
    values = tallies.measure(np.vstack([product(one, table) for one in draws(seed, len(table), resamples)]))
    left_out = tallies.measure(total - table)
    whole = np.isfinite(values).all(axis=1) & np.isfinite(left_out).all(axis=1)
    if whole.any():
        slack = EQUAL * np.maximum(np.abs(values[whole]).max(axis=1), EQUAL)
        low[whole], high[whole], whole_notes = bca(
            observed[whole],
            values[whole],
            influence=left_out[whole].mean(axis=1)[:, None] - left_out[whole],
            constant=np.ptp(values[whole], axis=1) <= slack,
            slack=slack,
            entering=tallies.entering[whole],
        )
        for row, note in zip(np.flatnonzero(whole), whole_notes, strict=True):
            notes[row] = note
    for row in np.flatnonzero(~whole):  # Some samples have no item that enters the measure.
        defined = values[row][np.isfinite(values[row])]
        if len(defined):
            low[row], high[row] = np.quantile(defined, [0.025, 0.975])
        notes[row] = f"percentile interval: undefined in {resamples - len(defined)} of {resamples} samples"
    return low, high, notes


def product(counts: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Return counts @ table. The last bits do not depend on the number of cores."""
    with one_thread():
        return counts.astype(np.float64) @ table


def one_thread() -> AbstractContextManager[object]:
    """Let BLAS use one thread in a `with` block."""
    from threadpoolctl import threadpool_limits

    found: AbstractContextManager[object] = threadpool_limits(1, "blas")
    return found
