"""Intervals for means of queries, and the public/private split of the queries."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

FEW = 10  # with fewer queries the bias correction of BCa rests on too little
_CELLS = 1 << 22  # draws held at once: bounds the memory
_PRODUCT = 1 << 18  # multiplications in one matrix product: BLAS does so few in one thread


def bootstrap_means(
    values: np.ndarray,
    seed: int,
    confidence: float = 0.95,
    resamples: int = 2000,
    wanted: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Bootstrap intervals for M means over queries: (low [M], high [M], a note for each, "" if none is due).

    values: float64 [M, Q], NaN where a query does not count; it is left out of that mean. Whole queries
    are drawn with replacement. The interval is BCa (bias-corrected and accelerated; Efron 1987) as in
    scipy.stats.bootstrap, whose leave-one-out means are taken here in closed form instead of from an
    n x n array. It is the percentile interval, and the note says so, with fewer than 10 queries or where
    BCa is undefined; a single point where all values are equal; NaN with fewer than two queries.

    wanted: bool [M], the means that get an interval, the same as in a call for all; the others have NaN and no note.
    """
    wanted = np.ones(len(values), bool) if wanted is None else wanted
    low, high = np.full(len(values), np.nan), np.full(len(values), np.nan)
    notes = [""] * len(values)
    # Measures that count the same queries share the draws. Each group draws from its own generator, so
    # that an interval does not depend on which other measures were asked for.
    groups: dict[bytes, list[int]] = {}
    for row, counted in enumerate(~np.isnan(values)):
        groups.setdefault(counted.tobytes(), []).append(row)
    for pattern, rows in groups.items():
        members, counted = np.array(rows), np.frombuffer(pattern, bool)
        asked = wanted[members]
        if not asked.any():
            continue
        kept = values[np.ix_(members, counted)]
        if kept.shape[1] < 2:
            found = ["one query: no interval" if kept.shape[1] else "no query: no interval"] * int(asked.sum())
        else:
            # All members are resampled: the last bits of a matrix product depend on how many rows it has.
            means = _resampled_means(kept, seed, resamples)[asked]
            low[members[asked]], high[members[asked]], found = _intervals(kept[asked], means, confidence)
        for member, note in zip(members[asked], found, strict=True):
            notes[member] = note
    return low, high, notes


def _resampled_means(values: np.ndarray, seed: int, resamples: int) -> np.ndarray:
    """float64 [M, resamples]: means over n queries drawn with replacement out of the n of `values` [M, n]."""
    n = values.shape[1]
    draw = _kept_draws if resamples * n <= _CELLS else draws
    # Products that BLAS leaves in one thread: their last bits do not depend on the number of cores, and processes
    # that share the cores do not wait for each other. Its kernels take columns in blocks, of which 64 is a multiple.
    width = max(64, _PRODUCT // values.size // 64 * 64)
    products = [
        values @ drawn[start : start + width].T.astype(np.float64)
        for drawn in draw(seed, n, resamples)
        for start in range(0, len(drawn), width)
    ]
    return np.hstack(products) / n


def draws(seed: int, n: int, resamples: int) -> Iterator[np.ndarray]:
    """How often each of n queries is drawn, whole numbers [some of the resamples, n]; turns means into products."""
    generator = np.random.default_rng(seed)
    step = max(1, _CELLS // n)
    for start in range(0, resamples, step):
        count = min(step, resamples - start)
        cells = generator.integers(0, n, (count, n)) + np.arange(count)[:, None] * n
        drawn = np.bincount(cells.ravel(), minlength=count * n).reshape(count, n)
        yield drawn.astype(np.min_scalar_type(n))


@functools.lru_cache(maxsize=8)
def _kept_draws(seed: int, n: int, resamples: int) -> tuple[np.ndarray, ...]:
    """Draws few enough to keep: the same for all measures and trials with n queries."""
    return tuple(draws(seed, n, resamples))


def _intervals(values: np.ndarray, means: np.ndarray, confidence: float) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Ends and notes for values [M, n] with their resampled means [M, resamples]."""
    observed = values.mean(axis=1)
    constant = np.ptp(values, axis=1) == 0
    slack = 1e-12 * np.abs(values).max(axis=1)
    # A leave-one-out mean is off by -deviation / (n - 1).
    return bca(observed, means, values - observed[:, None], constant, slack, confidence)


def bca(
    observed: np.ndarray,
    resampled: np.ndarray,
    influence: np.ndarray,
    constant: np.ndarray,
    slack: np.ndarray,
    confidence: float = 0.95,
    items: str = "queries",
    entering: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """BCa intervals of M statistics (Efron 1987): (low [M], high [M], a note for each, "" if none is due).

    observed: float64 [M].  resampled: float64 [M, resamples].  influence: float64 [M, n], what each of the n items adds
    to the statistic, up to a positive factor: the mean of the leave-one-out values less the item's own.  constant:
    bool [M], whether it is the same however items are drawn: the interval is that point.  slack: float64 [M], values
    that differ by less are equal; a tie counts half. The percentile interval, which the note says, with fewer than
    10 items or where BCa is undefined. items: what they are called in notes. entering: int [M], how many of them enter
    each statistic; None: all.
    """
    from scipy.special import ndtr, ndtri

    share_below = (resampled < (observed - slack)[:, None]).mean(axis=1)
    share_up_to = (resampled <= (observed + slack)[:, None]).mean(axis=1)
    bias_share = (share_below + share_up_to) / 2
    greatest = np.abs(influence).max(axis=1)
    flat = greatest <= slack  # no item alone makes a difference, though several together may
    deviations = influence / np.where(flat, 1.0, greatest)[:, None]
    squares = np.where(flat, 1.0, (deviations**2).sum(axis=1))
    acceleration = (deviations**3).sum(axis=1) / (6 * squares**1.5)

    few = (np.full(len(observed), influence.shape[1]) if entering is None else entering) < FEW
    defined = (bias_share > 0) & (bias_share < 1) & ~constant & ~flat & ~few
    bias = ndtri(np.where(defined, bias_share, 0.5))
    acceleration = np.where(defined, acceleration, 0.0)  # with bias 0: the percentile interval
    shifted = bias + ndtri([[(1 - confidence) / 2], [(1 + confidence) / 2]])
    shares = ndtr(bias + shifted / (1 - acceleration * shifted))
    low, high = np.where(constant, observed, _quantiles(resampled, shares))
    reasons = (f"percentile interval: fewer than {FEW} {items}", "percentile interval: BCa is undefined")
    undefined = np.where(few, *reasons)
    notes = np.where(constant, f"all {items} have the same value", np.where(defined, "", undefined))
    return low, high, notes.tolist()


def _quantiles(values: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """float64 [N, M]: for each of the M rows of values [M, n] the quantiles at its own shares [N, M].

    As by np.quantile, linear between neighbours in the row's order, but for all rows at once.
    """
    ordered = np.sort(values, axis=1)
    last = values.shape[1] - 1
    place = shares * last
    lower = np.floor(place).astype(np.intp)
    row = np.arange(len(values))
    below, above = ordered[row, lower], ordered[row, np.minimum(lower + 1, last)]
    part, gap = place - lower, above - below
    return np.where(part < 0.5, below + gap * part, above - gap * (1 - part))
