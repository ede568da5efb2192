"""Compare pairs of runs on the same items: randomisation test, interval, effect size, Holm's correction."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.statistics.bootstrap import EQUAL, Tallies, bootstrap_means, bootstrap_sums, product

ALPHA = 0.05  # a difference with p up to this is significant
SEED, RESAMPLES = 0, 10_000  # defaults; if more than RESAMPLES swaps are possible, RESAMPLES are drawn
_CELLS = 1 << 22  # maximum number of swaps in memory at once
FEW = 20  # with fewer differing queries, 95 % intervals cover the truth in 86 to 93 % (scripts/benchmark.py intervals)
TRUST_P = f"fewer than {FEW} queries differ: trust p, not the interval"
ROWS = 512  # maximum number of differences tested at once, so that their sums fit into memory
_TIE = 1e-12  # sums are equal if they differ by less than this times the sum of |differences|

Pair = tuple[int, int]  # indices of two runs
Statistic = Callable[[np.ndarray], np.ndarray]
"""Draws of swaps [R, n] -> differences in M measures [M, R]. Swaps are int8: 1 if two runs swap results on an item."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The difference of two runs in one measure, over the n items to which the measure applies in both.

    mean: the first run's measure minus the second's; NaN if undefined.
    low, high: 95 % bootstrap interval; NaN without one.
    effect: Cohen's d for paired samples, mean / standard deviation (ddof 1) of the differences. 0 if all differences
        are 0. NaN if all are equal but not 0, or for fewer than two items. None if the measure is not a mean.
    p: the p of a two-sided randomisation test, in (0, 1].
    p_holm: p after Holm's correction over the pairs compared in this measure; NaN before the correction.
    p_t: p of the paired t-test; 1 if all differences are 0; NaN where `effect` is NaN, and None where it is None.
    exact: whether the test counts all ways to swap items, not only a sample.
    note: what limits the interval or the test, or "".
    """

    n: int
    mean: float
    low: float
    high: float
    wins: int
    ties: int
    losses: int
    effect: float | None = None
    p: float
    p_holm: float = math.nan
    p_t: float | None = None
    exact: bool
    note: str


def pairs_of(runs: int, best: int | None = None) -> list[Pair]:
    """Return the pair (best, other) for every other run; return all pairs if best=None or if there are two runs."""
    if best is None or runs == 2:
        return list(itertools.combinations(range(runs), 2))
    return [(best, other) for other in range(runs) if other != best]


def differences(
    values: np.ndarray, seed: int = SEED, resamples: int = RESAMPLES, pairs: Sequence[Pair] | None = None
) -> dict[Pair, list[Difference]]:
    """Compare pairs of R runs in M measures; return pair -> one Difference per measure.

    The result for a pair does not depend on other runs, except for Holm's correction. If too many queries differ for an
    exact `randomisation_test`, p depends on the order of queries: pass them in a fixed order, such as by id.

    values: float64 [R, M, Q], NaN where a measure does not apply to a query.
    pairs: the pairs to compare; None: all pairs.
    """
    pairs = pairs_of(len(values)) if pairs is None else pairs
    return _corrected({(a, b): paired_differences(values[a] - values[b], seed, resamples) for a, b in pairs})


def sliced_differences(
    gaps: np.ndarray, inside: np.ndarray, seed: int = SEED, resamples: int = RESAMPLES
) -> list[list[Difference]]:
    """Compare P pairs of runs in S slices of the queries; return a Difference per slice for each pair.

    p is corrected by Holm's method over all pairs and slices together: if no pair differs in any slice, the chance of
    one or more significant differences is at most 0.05, whatever queries the slices share.

    gaps: the pairs' differences by query, float64 [P, Q]; NaN does not count. inside: bool [S, Q], with S > 0.
    """
    found = [paired_differences(np.where(inside, gap, np.nan), seed, resamples) for gap in gaps]
    corrected = iter(holm(np.array([one.p for pair in found for one in pair])).tolist())
    return [[replace(one, p_holm=next(corrected)) for one in pair] for pair in found]


def tally_differences(
    runs: Sequence[Tallies], seed: int = SEED, resamples: int = RESAMPLES, pairs: Sequence[Pair] | None = None
) -> dict[Pair, list[Difference]]:
    """Do the same as `differences`, but from tallies. All runs must have the same items in the same order."""
    pairs = pairs_of(len(runs)) if pairs is None else pairs
    return _corrected({(a, b): paired_sums(runs[a], runs[b], seed, resamples) for a, b in pairs})


def against_first(values: np.ndarray, seed: int = SEED, resamples: int = RESAMPLES) -> tuple[np.ndarray, np.ndarray]:
    """Test the first of R runs against every other run in one measure; return p and Holm-corrected p, float64 [R].

    p equals the p of `differences`, and is NaN for the first run.
    values: float64 [R, Q], NaN where the measure does not apply.
    """
    found = [np.array([np.nan])]
    for start in range(1, len(values), ROWS):
        found.append(sign_flip_test(values[0] - values[start : start + ROWS], seed, resamples)[0])
    p = np.concatenate(found)
    return p, np.concatenate([p[:1], holm(p[1:])])


def _corrected(found: Mapping[Pair, Sequence[Difference]]) -> dict[Pair, list[Difference]]:
    """Correct p over the pairs, measure by measure. found: pair -> one Difference per measure."""
    p = np.array([[one.p for one in measures] for measures in found.values()])
    corrected = np.array([holm(column) for column in p.T]).T
    return {
        pair: [replace(one, p_holm=float(p_holm)) for one, p_holm in zip(measures, adjusted, strict=True)]
        for (pair, measures), adjusted in zip(found.items(), corrected, strict=True)
    }


def randomisation_test(
    statistic: Statistic, n: int, slack: np.ndarray | float, *, seed: int, resamples: int
) -> tuple[np.ndarray, bool]:
    """Test M measures by paired randomisation; return p, float64 [M], and whether p is exact.

    If the two runs are equally good, their results on an item are interchangeable (Fisher 1935; Yeh 2000 for ratios
    of counts). p is two-sided: the share of swaps after which the runs are at least as far apart as before. If at most
    `resamples` swaps are possible, all 2^n are counted. Otherwise `resamples` are drawn, and the observed result is
    added to keep p above 0 (Phipson and Smyth 2010).

    statistic: gives the differences between the runs after swaps.
    n: the number of items to swap; leave out items that change nothing.
    slack: float64 [M] or a number: the tolerance within which a smaller distance equals the observed one.
    """

    def distances(swaps: np.ndarray) -> np.ndarray:
        return np.abs(statistic(swaps))

    least = distances(np.zeros((1, n), np.int8)) - np.reshape(slack, (-1, 1))
    if n <= math.log2(resamples):
        swaps = (np.arange(1 << n)[:, None] >> np.arange(n) & 1).astype(np.int8)
        return (distances(swaps) >= least).mean(axis=1), True
    as_far = sum((distances(swaps) >= least).sum(axis=1) for swaps in _swaps(seed, n, resamples))
    return (as_far + 1) / (resamples + 1), False


def sign_flip_test(rows: np.ndarray, seed: int = SEED, resamples: int = RESAMPLES) -> tuple[np.ndarray, np.ndarray]:
    """Test M means of differences by randomisation; return p, float64 [M], and whether it is exact, bool [M].

    Swapping the two runs on a query flips the sign of the query's difference. The n differences of a measure that are
    not 0 can be flipped in 2^n ways; the test is exact if 2^n is at most `resamples`. p is 1 if all differences are 0.

    rows: differences by query, float64 [M, Q]; NaN does not count.
    """
    rows, places = _distinct(np.nan_to_num(rows))
    slack = _TIE * np.abs(rows).sum(axis=1)
    exact = (rows != 0).sum(axis=1) <= math.log2(resamples)
    p = np.ones(len(rows))
    for measure in np.flatnonzero(exact):
        changed = rows[measure][rows[measure] != 0]
        p[measure] = randomisation_test(
            _flipped_sums(changed[None]), len(changed), slack[measure], seed=seed, resamples=resamples
        )[0][0]
    if not exact.all():  # Swaps are drawn for all queries, so they are the same for every measure and pair of runs.
        p[~exact], _ = randomisation_test(
            _flipped_sums(rows[~exact]), rows.shape[1], slack[~exact], seed=seed, resamples=resamples
        )
    return p[places], exact[places]


def _distinct(rows: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Return (distinct rows [D, Q], the place of each row among them [M]). Runs of a sweep have many equal rows."""
    places: dict[bytes, int] = {}
    found = [places.setdefault(row.tobytes(), len(places)) for row in rows]
    return np.frombuffer(b"".join(places), rows.dtype).reshape(len(places), rows.shape[1]), found


def holm(p: np.ndarray) -> np.ndarray:
    """Correct p values [n] for n tests (Holm 1979): multiply the smallest by n, the next by n - 1, and so on.

    Corrected values keep the order of p and are at most 1. If every difference with a corrected p up to 0.05 is called
    significant, the chance of one or more false discoveries is at most 0.05, however the tests depend on each other.
    """
    order = np.argsort(p, kind="stable")
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1)
    return corrected


def _flipped_sums(rows: np.ndarray) -> Statistic:
    return lambda swaps: rows @ (1.0 - 2.0 * swaps).T


def _swaps(seed: int, n: int, resamples: int) -> Iterator[np.ndarray]:
    generator = np.random.default_rng(seed)
    step = max(1, _CELLS // n)
    for start in range(0, resamples, step):
        yield generator.integers(0, 2, (min(step, resamples - start), n), np.int8)


def paired_differences(rows: np.ndarray, seed: int = SEED, resamples: int = RESAMPLES) -> list[Difference]:
    """Return a Difference for each row, without Holm's correction. rows: differences by query, float64 [M, Q]."""
    rows, places = _distinct(rows)
    p, exact = sign_flip_test(rows, seed, resamples)
    lows, highs, notes = bootstrap_means(rows, seed, resamples=resamples)
    found = []
    for i, row in enumerate(rows):
        counted = row[~np.isnan(row)]
        n, wins, losses = len(counted), int((counted > 0).sum()), int((counted < 0).sum())
        effect, p_t = _effect(counted)
        found.append(
            Difference(
                n=n,
                mean=float(counted.mean()) if n else math.nan,
                low=float(lows[i]),
                high=float(highs[i]),
                wins=wins,
                ties=n - wins - losses,
                losses=losses,
                effect=effect,
                p=float(p[i]),
                p_t=p_t,
                exact=bool(exact[i]),
                note=_note(n, wins + losses, effect, notes[i]),
            )
        )
    return [found[place] for place in places]


def swap_test(first: Tallies, second: Tallies, seed: int, resamples: int) -> tuple[np.ndarray, bool]:
    """Test the measures of two tallies by randomisation; return p, float64 [M], and whether p is exact.

    Swapping the answers of two runs to an item moves the item's counts from each run's sums to the other's. Items with
    equal counts are not swapped.
    """
    ours, theirs = first.table, second.table
    moves = (theirs - ours)[(theirs != ours).any(axis=1)]

    def apart(swaps: np.ndarray) -> np.ndarray:
        moved = product(swaps, moves)
        return first.measure(ours.sum(axis=0) + moved) - second.measure(theirs.sum(axis=0) - moved)

    return randomisation_test(apart, len(moves), EQUAL, seed=seed, resamples=resamples)


def paired_sums(first: Tallies, second: Tallies, seed: int, resamples: int) -> list[Difference]:
    n, width = first.table.shape

    def apart(both: np.ndarray) -> np.ndarray:
        return first.measure(both[:, :width]) - second.measure(both[:, width:])

    both = Tallies(np.hstack([first.table, second.table]), apart, np.minimum(first.entering, second.entering))
    means = apart(both.table.sum(axis=0)[None])[:, 0]
    p, exact = swap_test(first, second, seed, resamples)
    lows, highs, notes = bootstrap_sums(both, seed, resamples)
    gaps = apart(both.table)
    wins, losses = (gaps > EQUAL).sum(axis=1), (gaps < -EQUAL).sum(axis=1)
    differ = int((first.table != second.table).any(axis=1).sum())
    few = f"fewer than {FEW} items differ: trust p, not the interval" if differ < FEW else ""
    return [
        Difference(
            n=n,
            mean=float(mean),
            low=float(lows[i]),
            high=float(highs[i]),
            wins=int(wins[i]),
            ties=int(n - wins[i] - losses[i]),
            losses=int(losses[i]),
            p=float(p[i]),
            exact=exact,
            note=(notes[i] or few) if differ else "the submissions are the same",
        )
        for i, mean in enumerate(means)
    ]


def _note(n: int, differ: int, effect: float, interval_note: str) -> str:
    if n > 1 and differ == 0:
        return "the runs have the same value on every query"
    if n > 1 and math.isnan(effect):
        return "all differences are equal: no effect size and no t-test"
    if not interval_note and differ < FEW:
        return TRUST_P
    return interval_note


def _effect(counted: np.ndarray) -> tuple[float, float]:
    from scipy.special import stdtr

    if len(counted) > 1 and not counted.any():
        return 0.0, 1.0
    if len(counted) < 2 or np.ptp(counted) <= _TIE * np.abs(counted).max():
        return math.nan, math.nan
    effect = float(counted.mean() / counted.std(ddof=1))
    return effect, float(2 * stdtr(len(counted) - 1, -abs(effect) * math.sqrt(len(counted))))
