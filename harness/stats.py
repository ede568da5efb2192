"""Intervals for means of queries, and the public/private split of the queries."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

FEW = 10  # with fewer queries the bias correction of BCa rests on too little
_CELLS = 1 << 22  # draws held at once: bounds the memory


def bootstrap_means(
    values: np.ndarray, seed: int, confidence: float = 0.95, resamples: int = 2000
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Bootstrap intervals for M means over queries: (low [M], high [M], a note for each, "" if none is due).

    values: float64 [M, Q], NaN where a query does not count; it is left out of that mean. Whole queries
    are drawn with replacement. The interval is BCa (bias-corrected and accelerated; Efron 1987) as in
    scipy.stats.bootstrap, whose leave-one-out means are taken here in closed form instead of from an
    n x n array. It is the percentile interval, and the note says so, with fewer than 10 queries or where
    BCa is undefined; a single point where all values are equal; NaN with fewer than two queries.
    """
    low, high = np.full(len(values), np.nan), np.full(len(values), np.nan)
    notes = [""] * len(values)
    # Measures that count the same queries share the draws. Each group draws from its own generator, so
    # that an interval does not depend on which other measures were asked for.
    patterns, group_of = np.unique(~np.isnan(values), axis=0, return_inverse=True)
    for group, counted in enumerate(patterns):
        members = np.flatnonzero(group_of.reshape(-1) == group)
        kept = values[np.ix_(members, counted)]
        if kept.shape[1] < 2:
            text = "one query: no interval" if kept.shape[1] else "no query: no interval"
        else:
            means = _resampled_means(kept, np.random.default_rng(seed), resamples)
            low[members], high[members], found = _intervals(kept, means, confidence)
            text = ""
        for position, member in enumerate(members):
            notes[member] = text or found[position]
    return low, high, notes


def _resampled_means(values: np.ndarray, generator: np.random.Generator, resamples: int) -> np.ndarray:
    """float64 [M, resamples]: means over n queries drawn with replacement out of the n of `values` [M, n]."""
    n = values.shape[1]
    means = np.empty((len(values), resamples))
    step = max(1, _CELLS // n)
    for start in range(0, resamples, step):
        count = min(step, resamples - start)
        # How often each query is drawn turns all means into one matrix product.
        cells = generator.integers(0, n, (count, n)) + np.arange(count)[:, None] * n
        drawn = np.bincount(cells.ravel(), minlength=count * n).reshape(count, n)
        means[:, start : start + count] = values @ drawn.T.astype(np.float64) / n
    return means


def _intervals(values: np.ndarray, means: np.ndarray, confidence: float) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Ends and notes for values [M, n] with their resampled means [M, resamples]."""
    from scipy.special import ndtr, ndtri

    observed = values.mean(axis=1)
    constant = np.ptp(values, axis=1) == 0
    # Means of few distinct values tie with the observed one but for rounding; a tie counts half.
    slack = 1e-12 * np.abs(values).max(axis=1)
    share_below = (means < (observed - slack)[:, None]).mean(axis=1)
    share_up_to = (means <= (observed + slack)[:, None]).mean(axis=1)
    bias_share = (share_below + share_up_to) / 2
    # A leave-one-out mean is off by -deviation / (n - 1); scaling them leaves the acceleration as it is.
    deviations = values - observed[:, None]
    deviations /= np.where(constant, 1.0, np.abs(deviations).max(axis=1))[:, None]
    squares = np.where(constant, 1.0, (deviations**2).sum(axis=1))
    acceleration = (deviations**3).sum(axis=1) / (6 * squares**1.5)

    few = values.shape[1] < FEW
    defined = (bias_share > 0) & (bias_share < 1) & ~constant & (not few)
    bias = ndtri(np.where(defined, bias_share, 0.5))
    acceleration = np.where(defined, acceleration, 0.0)  # with bias 0: the percentile interval
    ends = []
    for tail in ((1 - confidence) / 2, (1 + confidence) / 2):
        shifted = bias + ndtri(tail)
        shares = ndtr(bias + shifted / (1 - acceleration * shifted))
        ends.append(np.array([np.quantile(row, share) for row, share in zip(means, shares, strict=True)]))
    low, high = (np.where(constant, observed, end) for end in ends)
    undefined = f"percentile interval: fewer than {FEW} queries" if few else "percentile interval: BCa is undefined"
    notes = np.where(constant, "all queries have the same value", np.where(defined, "", undefined))
    return low, high, notes.tolist()


def split(
    query_ids: Sequence[str], needs: np.ndarray, multi_turn: np.ndarray, seed: int, public: float = 0.4
) -> np.ndarray:
    """bool [Q], true for the public part; round(public * Q) queries, stratified by (needs, multi_turn).

    needs, multi_turn: bool [Q]. Which queries are public depends on their ids and the seed, not on their
    order: within a stratum those whose hash comes first. A stratum's share is rounded so that the whole
    is right (largest remainders).
    """
    stratum = 2 * np.asarray(needs, np.intp) + np.asarray(multi_turn, np.intp)
    sizes = np.bincount(stratum, minlength=4)
    quotas = np.floor(public * sizes).astype(np.intp)
    left_over = round(public * len(query_ids)) - quotas.sum()
    quotas[np.argsort(quotas - public * sizes, kind="stable")[:left_over]] += 1
    draw = np.array([hashlib.sha256(f"{seed}:{query_id}".encode()).hexdigest() for query_id in query_ids], dtype="U64")
    chosen = np.zeros(len(query_ids), bool)
    for which, quota in enumerate(quotas):
        rows = np.flatnonzero(stratum == which)
        chosen[rows[np.argsort(draw[rows])][:quota]] = True
    return chosen
