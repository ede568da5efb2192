"""What text tasks count: tallies of items, whose sums make the measures; intervals and paired tests over them.

A measure of a text task is a function of sums: `correction_recall` is a ratio of counts over all sentences,
`final_score` an average of means over different items. Resampling items and summing again serves them all.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from harness.evaluation.bootstrap import bca, draws
from harness.evaluation.scores import RESAMPLES, Summary
from harness.evaluation.significance import FEW, holm
from harness.evaluation.split import split
from harness.tasks.task import JudgedItems, Tallies, TextTask

_CELLS = 1 << 22  # swaps held at once: bounds the memory
_EQUAL = 1e-12  # measures that differ by less differ by rounding


@dataclass(frozen=True)
class Gap:
    """How a first submission differs from a second in one measure, over the same n items.

    mean: measure of the first - measure of the second; low, high: its 95 % bootstrap interval, NaN where there is none.
    wins, ties, losses: items on which the first is better, equal, worse.
    p: two-sided paired randomisation test, in (0, 1]; exact: whether every way to swap was looked at.
    p_holm: p after Holm's correction over all pairs of submissions.
    """

    n: int
    mean: float
    low: float
    high: float
    wins: int
    ties: int
    losses: int
    p: float
    p_holm: float
    exact: bool
    note: str


def strata(kinds: Sequence[str]) -> np.ndarray:
    """int [N]: the kinds as numbers, which the public part is drawn from alike."""
    return np.unique(np.array(kinds, dtype=object), return_inverse=True)[1]


def in_public(judged: JudgedItems, seed: int, public: float) -> np.ndarray:
    """bool [N]: the public part, by ids and kinds alone, so that it is the same for every submission."""
    return split(judged.item_ids, strata(judged.kinds), seed, public)


def measured(task: TextTask, tallies: Tallies, rows: np.ndarray | None = None) -> dict[str, float]:
    """Every measure over the items, or those of `rows` (bool [N]); NaN where it is undefined."""
    sums = {name: np.asarray(one[rows].sum() if rows is not None else one.sum()) for name, one in tallies.items()}
    return {name: float(value) for name, value in task.measure(sums).items()}


def entering(task: TextTask, tallies: Tallies, measure: str, rows: np.ndarray | None = None) -> int:
    """How many items, or how many of `rows`, enter a measure."""
    here = np.ones(len(next(iter(tallies.values())))) if measure not in task.part else tallies[task.part[measure]]
    return int((here if rows is None else here[rows]).sum())


def summaries(
    task: TextTask, tallies: Tallies, wanted: Sequence[str], seed: int, resamples: int = RESAMPLES
) -> dict[str, Summary]:
    """The wanted measures with their BCa intervals: whole items are drawn with replacement, and summed again.

    NaN without an interval for a measure that is absent; no interval with fewer than two items.
    """
    names, table = _table(tallies)
    seen, n = measured(task, tallies), len(table)
    found = {name: Summary(seen[name], entering(task, tallies, name)) for name in wanted}
    known = [name for name in wanted if seen[name] == seen[name]]
    if n < 2 or not known:
        return found
    sums = np.vstack(list(_resampled(table, seed, resamples)))
    values, left_out = (_measures(task, names, some, known) for some in (sums, table.sum(axis=0) - table))
    entered = np.array([found[name].n for name in known])
    low, high, notes = _ends(np.array([seen[name] for name in known]), values, left_out, entered)
    for name, bottom, top, note in zip(known, low, high, notes, strict=True):
        found[name] = Summary(seen[name], found[name].n, float(bottom), float(top), note)
    return found


def gaps(
    task: TextTask, submissions: Sequence[Tallies], wanted: Sequence[str], seed: int, resamples: int
) -> dict[tuple[int, int], dict[str, Gap]]:
    """Every pair of submissions with first < second -> measure -> Gap. All have the same items in the same order.

    wanted: measures that all of them have. p and the interval depend on the order of the items as on the seed.
    """
    pairs = list(itertools.combinations(range(len(submissions)), 2))
    found = {(i, j): _gaps(task, submissions[i], submissions[j], wanted, seed, resamples) for i, j in pairs}
    for name in wanted:
        corrected = holm(np.array([found[pair][name].p for pair in pairs]))
        for pair, p in zip(pairs, corrected, strict=True):
            found[pair][name] = Gap(**{**vars(found[pair][name]), "p_holm": float(p)})
    return found


def randomisation_test(
    task: TextTask, first: Tallies, second: Tallies, wanted: Sequence[str], seed: int, resamples: int
) -> tuple[np.ndarray, bool]:
    """Paired randomisation test of measures over sums: (p float64 [M], whether they are exact).

    If two submissions were the same, the answers to each item could as well have been swapped (Fisher 1935; Yeh 2000
    for ratios of counts). p is the share of swaps after which the measures lie at least as far apart as they do: of
    all 2^c, c the items on which anything differs, where they are no more than `resamples`; else of so many drawn
    ones and the one seen (Phipson and Smyth 2010).
    """
    names, ours = _table(first)
    theirs = _table(second)[1]
    moves = (theirs - ours)[(theirs != ours).any(axis=1)]

    def apart(moved: np.ndarray) -> np.ndarray:
        sums = ours.sum(axis=0) + moved, theirs.sum(axis=0) - moved
        of_first, of_second = (_measures(task, names, some, wanted) for some in sums)
        return np.abs(of_first - of_second)

    least = apart(np.zeros((1, len(names)))) - _EQUAL
    exact = len(moves) <= math.log2(resamples)
    if exact:
        swaps = (np.arange(1 << len(moves))[:, None] >> np.arange(len(moves)) & 1).astype(np.float64)
        return (apart(swaps @ moves) >= least).mean(axis=1), True
    as_far = sum((apart(_product(swaps, moves)) >= least).sum(axis=1) for swaps in _swaps(seed, len(moves), resamples))
    return (as_far + 1) / (resamples + 1), False


def _gaps(
    task: TextTask, first: Tallies, second: Tallies, wanted: Sequence[str], seed: int, resamples: int
) -> dict[str, Gap]:
    """One pair in every measure, p not yet corrected."""
    (names, ours), (_, theirs) = _table(first), _table(second)
    n, width = ours.shape

    def apart(both: np.ndarray) -> np.ndarray:
        of_first, of_second = (_measures(task, names, some, wanted) for some in (both[:, :width], both[:, width:]))
        return of_first - of_second

    both = np.hstack([ours, theirs])
    means = apart(both.sum(axis=0)[None])[:, 0]
    p, exact = randomisation_test(task, first, second, wanted, seed, resamples)
    low, high, notes = (
        np.full(len(wanted), np.nan),
        np.full(len(wanted), np.nan),
        ["one item: no interval"] * len(wanted),
    )
    if n > 1:
        values = apart(np.vstack(list(_resampled(both, seed, resamples))))
        entered = np.array([min(entering(task, one, name) for one in (first, second)) for name in wanted])
        low, high, notes = _ends(means, values, apart(both.sum(axis=0) - both), entered)
    by_item = _measures(task, names, ours, wanted) - _measures(task, names, theirs, wanted)
    differ = int((ours != theirs).any(axis=1).sum())
    found = {}
    for i, name in enumerate(wanted):
        wins, losses = int((by_item[i] > _EQUAL).sum()), int((by_item[i] < -_EQUAL).sum())
        few = f"fewer than {FEW} items differ: the interval is too narrow, go by p"
        note = "the submissions are the same" if not differ else notes[i] or (few if differ < FEW else "")
        ends = (float(means[i]), float(low[i]), float(high[i]))
        found[name] = Gap(n, *ends, wins, n - wins - losses, losses, float(p[i]), float(p[i]), exact, note)
    return found


def _table(tallies: Tallies) -> tuple[list[str], np.ndarray]:
    """(names [S], float64 [N, S])."""
    return list(tallies), np.stack(list(tallies.values()), axis=1)


def _measures(task: TextTask, names: Sequence[str], sums: np.ndarray, wanted: Sequence[str]) -> np.ndarray:
    """float64 [M, R]: the wanted measures of R rows of sums [R, S]."""
    found = task.measure(dict(zip(names, sums.T, strict=True)))
    return np.stack([found[name] for name in wanted])


def _ends(
    observed: np.ndarray, values: np.ndarray, left_out: np.ndarray, entered: np.ndarray
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """BCa intervals of measures [M] from their resampled [M, R] and leave-one-out values [M, N].

    entered: int [M], how many items enter each. Where some values are NaN, it is the percentile interval of the others,
    which the note says.
    """
    low, high, notes = np.full(len(observed), np.nan), np.full(len(observed), np.nan), [""] * len(observed)
    whole = np.isfinite(values).all(axis=1) & np.isfinite(left_out).all(axis=1)
    if whole.any():
        slack = _EQUAL * np.maximum(np.abs(values[whole]).max(axis=1), _EQUAL)
        influence = left_out[whole].mean(axis=1)[:, None] - left_out[whole]
        constant = np.ptp(values[whole], axis=1) <= slack
        ready = (observed[whole], values[whole], influence, constant, slack)
        low[whole], high[whole], found = bca(*ready, items="items", entering=entered[whole])
        for row, note in zip(np.flatnonzero(whole), found, strict=True):
            notes[row] = note
    for row in np.flatnonzero(~whole):  # a kind of items with so few that samples come without any
        defined = values[row][np.isfinite(values[row])]
        if len(defined):
            low[row], high[row] = np.quantile(defined, [0.025, 0.975])
        lacking = values.shape[1] - len(defined)
        notes[row] = f"percentile interval: undefined in {lacking} of {values.shape[1]} samples"
    return low, high, notes


def _resampled(table: np.ndarray, seed: int, resamples: int) -> Iterator[np.ndarray]:
    """Sums over N items drawn with replacement out of the N of `table` [N, S]: [some of the resamples, S]."""
    for drawn in draws(seed, len(table), resamples):
        yield _product(drawn, table)


def _swaps(seed: int, items: int, resamples: int) -> Iterator[np.ndarray]:
    """0 or 1, int8 [some of the resamples, items]."""
    generator = np.random.default_rng(seed)
    step = max(1, _CELLS // items)
    for start in range(0, resamples, step):
        yield generator.integers(0, 2, (min(step, resamples - start), items), np.int8)


def _product(counts: np.ndarray, table: np.ndarray) -> np.ndarray:
    """counts @ table in one thread: its last bits do not depend on the number of cores."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, "blas"):
        return counts.astype(np.float64) @ table
