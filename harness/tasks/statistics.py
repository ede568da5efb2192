"""Measures of text tasks as functions of item counts: their values, intervals, and paired tests.

A measure of a text task is a function of sums over items: `correction_recall` is a ratio of counts over all sentences,
`final_score` an average of means over different items. Resampling items and summing again works for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from harness.measures.scores import RESAMPLES, Summary
from harness.statistics.bootstrap import Resampled, bca, draws
from harness.statistics.significance import FEW, Difference, Pair, compared, pairs_of, randomisation_test
from harness.statistics.split import draw_public
from harness.tasks.task import ItemCounts, JudgedItems, TextTask

_EQUAL = 1e-12  # measures that differ by less differ by rounding


def strata(kinds: Sequence[str]) -> np.ndarray:
    """int [N]: the kinds as numbers; the public part has the same share of each."""
    return np.unique(np.array(kinds, dtype=object), return_inverse=True)[1]


def in_public(judged: JudgedItems, seed: int, public: float) -> np.ndarray:
    """bool [N]: the public part, by ids and kinds alone, so that it is the same for every submission."""
    return draw_public(judged.item_ids, strata(judged.kinds), seed, public)


def measure_all(task: TextTask, counts: ItemCounts, rows: np.ndarray | None = None) -> dict[str, float]:
    """Every measure over the items, or those of `rows` (bool [N]); NaN where it is undefined."""
    return {name: float(value) for name, value in task.measure(_sums(counts, rows)).items()}


def measure_kind(task: TextTask, counts: ItemCounts, rows: np.ndarray) -> dict[str, float]:
    """Every measure over the items of one kind, `rows` (bool [N]); NaN also where it says nothing about them."""
    silent = task.says_nothing({name: float(total) for name, total in _sums(counts, rows).items()})
    return {name: np.nan if name in silent else value for name, value in measure_all(task, counts, rows).items()}


def _sums(counts: ItemCounts, rows: np.ndarray | None) -> dict[str, np.ndarray]:
    return {name: np.asarray(one.sum() if rows is None else one[rows].sum()) for name, one in counts.items()}


def entering(task: TextTask, counts: ItemCounts, measure: str, rows: np.ndarray | None = None) -> int:
    """How many items, or how many of `rows`, enter a measure."""
    subset = counts[task.subset[measure]] if measure in task.subset else np.ones(len(next(iter(counts.values()))))
    return int((subset if rows is None else subset[rows]).sum())


def summaries(
    task: TextTask, counts: ItemCounts, wanted: Sequence[str], seed: int, resamples: int = RESAMPLES
) -> dict[str, Summary]:
    """The wanted measures with their BCa intervals: whole items are drawn with replacement, and summed again.

    A measure that is absent is NaN without an interval; there is no interval with fewer than two items.
    """
    names, table = _table(counts)
    means, n = measure_all(task, counts), len(table)
    found = {name: Summary(means[name], entering(task, counts, name)) for name in wanted}
    known = [name for name in wanted if means[name] == means[name]]
    if n < 2 or not known:
        return found
    sums = np.vstack(list(_resampled_sums(table, seed, resamples)))
    values, left_out = (_measures(task, names, some, known) for some in (sums, table.sum(axis=0) - table))
    entered = np.array([found[name].n for name in known])
    low, high, notes = _intervals(
        observed=np.array([means[name] for name in known]), values=values, left_out=left_out, entered=entered
    )
    for name, bottom, top, note in zip(known, low, high, notes, strict=True):
        found[name] = Summary(means[name], found[name].n, float(bottom), float(top), note)
    return found


def task_differences(
    task: TextTask,
    submissions: Sequence[ItemCounts],
    wanted: Sequence[str],
    seed: int,
    resamples: int,
    among: Sequence[Pair] | None = None,
) -> dict[Pair, dict[str, Difference]]:
    """Pairs of submissions, None: all with first < second; (first, second) -> measure -> Difference.

    submissions: with the same items in the same order. p and the interval depend on that order as on the seed.
    wanted: measures that all of them have.
    """

    def compare(first: int, second: int) -> list[Difference]:
        return _paired(task, submissions[first], submissions[second], wanted, seed, resamples)

    pairs = compared(pairs_of(len(submissions)) if among is None else among, compare)
    return {pair: dict(zip(wanted, found, strict=True)) for pair, found in pairs.items()}


def swap_test(
    task: TextTask, first: ItemCounts, second: ItemCounts, wanted: Sequence[str], seed: int, resamples: int
) -> tuple[np.ndarray, bool]:
    """Randomisation test of measures over sums: (p float64 [M], whether p is exact).

    The answers of two submissions to an item are swapped, which moves its counts from one sum to the other. Items with
    the same counts in both are left alone.
    """
    names, ours = _table(first)
    theirs = _table(second)[1]
    moves = (theirs - ours)[(theirs != ours).any(axis=1)]

    def apart(swaps: np.ndarray) -> np.ndarray:
        moved = _product(swaps, moves)
        sums = ours.sum(axis=0) + moved, theirs.sum(axis=0) - moved
        of_first, of_second = (_measures(task, names, some, wanted) for some in sums)
        return of_first - of_second

    return randomisation_test(apart, len(moves), _EQUAL, seed=seed, resamples=resamples)


def _paired(
    task: TextTask, first: ItemCounts, second: ItemCounts, wanted: Sequence[str], seed: int, resamples: int
) -> list[Difference]:
    """The difference of two submissions in every measure, p not yet corrected."""
    (names, ours), (_, theirs) = _table(first), _table(second)
    n, width = ours.shape

    def apart(both: np.ndarray) -> np.ndarray:
        of_first, of_second = (_measures(task, names, some, wanted) for some in (both[:, :width], both[:, width:]))
        return of_first - of_second

    both = np.hstack([ours, theirs])
    means = apart(both.sum(axis=0)[None])[:, 0]
    p, exact = swap_test(task, first, second, wanted, seed, resamples)
    low, high = np.full((2, len(wanted)), np.nan)
    notes = ["one item: no interval"] * len(wanted)
    if n > 1:
        low, high, notes = _intervals(
            observed=means,
            values=apart(np.vstack(list(_resampled_sums(both, seed, resamples)))),
            left_out=apart(both.sum(axis=0) - both),
            entered=np.array([min(entering(task, one, name) for one in (first, second)) for name in wanted]),
        )
    by_item = _measures(task, names, ours, wanted) - _measures(task, names, theirs, wanted)
    wins, losses = (by_item > _EQUAL).sum(axis=1), (by_item < -_EQUAL).sum(axis=1)
    differ = int((ours != theirs).any(axis=1).sum())
    return [
        Difference(
            n=n,
            mean=float(means[i]),
            low=float(low[i]),
            high=float(high[i]),
            wins=int(wins[i]),
            ties=int(n - wins[i] - losses[i]),
            losses=int(losses[i]),
            p=float(p[i]),
            exact=exact,
            note=_note(differ, notes[i]),
        )
        for i in range(len(wanted))
    ]


def _note(differ: int, interval_note: str) -> str:
    """What limits a difference of submissions of which `differ` items are not the same."""
    if not differ:
        return "the submissions are the same"
    few = f"only {differ} items differ: trust p, not the interval"
    return interval_note or (few if differ < FEW else "")


def _table(counts: ItemCounts) -> tuple[list[str], np.ndarray]:
    """The names of the counts [S], and their values float64 [N, S]."""
    return list(counts), np.stack(list(counts.values()), axis=1)


def _measures(task: TextTask, names: Sequence[str], sums: np.ndarray, wanted: Sequence[str]) -> np.ndarray:
    """float64 [M, R]: the wanted measures of R rows of sums [R, S]."""
    found = task.measure(dict(zip(names, sums.T, strict=True)))
    return np.stack([found[name] for name in wanted])


def _intervals(
    *, observed: np.ndarray, values: np.ndarray, left_out: np.ndarray, entered: np.ndarray
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """BCa intervals of M measures: (low [M], high [M], a note for each).

    Where some values are NaN, it is the percentile interval of the others, with a note.

    observed: float64 [M]. values: float64 [M, R], of resampled items. left_out: float64 [M, N], without each item.
    entered: int [M], how many items enter each measure.
    """
    low, high, notes = np.full(len(observed), np.nan), np.full(len(observed), np.nan), [""] * len(observed)
    whole = np.isfinite(values).all(axis=1) & np.isfinite(left_out).all(axis=1)
    if whole.any():
        slack = _EQUAL * np.maximum(np.abs(values[whole]).max(axis=1), _EQUAL)
        statistics = Resampled(
            observed=observed[whole],
            values=values[whole],
            influence=left_out[whole].mean(axis=1)[:, None] - left_out[whole],
            constant=np.ptp(values[whole], axis=1) <= slack,
            slack=slack,
        )
        low[whole], high[whole], whole_notes = bca(statistics, items="items", entering=entered[whole])
        for row, note in zip(np.flatnonzero(whole), whole_notes, strict=True):
            notes[row] = note
    for row in np.flatnonzero(~whole):  # so few items enter the measure that some samples have none of them
        defined = values[row][np.isfinite(values[row])]
        if len(defined):
            low[row], high[row] = np.quantile(defined, [0.025, 0.975])
        lacking = values.shape[1] - len(defined)
        notes[row] = f"percentile interval: undefined in {lacking} of {values.shape[1]} samples"
    return low, high, notes


def _resampled_sums(table: np.ndarray, seed: int, resamples: int) -> Iterator[np.ndarray]:
    """Sums [some of the resamples, S] over the N items of `table` [N, S], drawn with replacement."""
    for drawn in draws(seed, len(table), resamples):
        yield _product(drawn, table)


def _product(counts: np.ndarray, table: np.ndarray) -> np.ndarray:
    """counts @ table in one thread: its last bits do not depend on the number of cores."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, "blas"):
        return counts.astype(np.float64) @ table
