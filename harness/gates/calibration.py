"""Thresholds fitted on labels: exact, for many weightings of the queries at once, and judged on queries held out.

A rule turns a query's signal into how many of its documents are shown. It is a list of *levels* from the most to the
least confident, such as (3, 0) for a gate or (1, 2, 3, 0), with a threshold between neighbours: a query has the first
level whose threshold its signal reaches. What each level would earn a query by the objective is known beforehand, so
that all thresholds are tried by sorting once. Bootstrap samples and training folds are nothing but weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.evaluation.bootstrap import draws

_CELLS = 1 << 20  # weights looked at at once: bounds the memory
CLOSE = 1e-9  # sums of objectives nearer than this are the same
RESAMPLES = 2000


@dataclass(frozen=True, eq=False)
class Curve:
    """The objective at every threshold.

    edges: float64 [T], the different signals, descending. values: float64 [T + 1], the mean objective when the
    queries of the first i edges are shown: any threshold in (edges[i], edges[i - 1]] does that.
    """

    edges: np.ndarray
    values: np.ndarray


def curve(signal: np.ndarray, payoff: np.ndarray) -> Curve:
    """signal: float64 [n]. payoff: float64 [n, 2], what showing and withholding are worth."""
    order = np.argsort(-signal, kind="stable")
    ordered = signal[order]
    gain = np.concatenate([[0.0], np.cumsum((payoff[:, 0] - payoff[:, 1])[order])])
    cuts = np.flatnonzero(_cuts(ordered))
    return Curve(ordered[cuts[:-1]], (payoff[:, 1].sum() + gain[cuts]) / len(signal))


def fit(weights: np.ndarray, signal: np.ndarray, payoff: np.ndarray) -> np.ndarray:
    """Thresholds float64 [B, L - 1], descending in each row, for B weightings of n queries.

    weights: float64 [B, n], how often each query counts; 0 = held out. signal: float64 [n]. payoff: float64 [n, L],
    by level. The levels' borders that earn the most are found exactly (dynamic programming over the sorted queries).
    Each then moves to the middle of its plateau: the borders around it that earn less by at most one standard error
    of the paired difference (after the one-standard-error rule of Breiman et al. 1984). A level that earns no more
    than the next is left out; and where withholding nobody earns as much as the best, the last threshold is -inf.
    """
    step = max(1, _CELLS // len(signal))
    some = [_fit(weights[first : first + step], signal, payoff)[0] for first in range(0, len(weights), step)]
    return np.vstack(some)


def plateau(signal: np.ndarray, payoff: np.ndarray) -> tuple[float, float]:
    """The lowest and highest value of the last threshold that earns as much as the best, but for one standard error.

    Infinite where withholding nobody, or all, is within it.
    """
    _, bottom, top = _fit(np.ones((1, len(signal))), signal, payoff)
    return float(bottom[0]), float(top[0])


def _fit(weights: np.ndarray, signal: np.ndarray, payoff: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Thresholds as in `fit`, and the ends (float64 [B]) of the last one's plateau."""
    order = np.argsort(-signal, kind="stable")
    ordered, earned = signal[order], payoff[order]
    weights = weights[:, order]
    legal, n = _cuts(ordered), len(ordered)
    borders = _best_borders(weights, earned, legal)
    walls = np.hstack([np.zeros((len(weights), 1), int), borders, np.full((len(weights), 1), n)])
    found = np.empty((len(weights), earned.shape[1] - 1))
    for j in range(earned.shape[1] - 1):
        gain = earned[:, j] - earned[:, j + 1]
        first, last = _plateau(weights, gain, legal, borders[:, j], walls[:, j], walls[:, j + 2])
        found[:, j] = _middle(ordered, weights > 0, first, last)
        totals = _running(weights * gain)
        best, none, every = (_at(totals, place) for place in (borders[:, j], walls[:, j], walls[:, j + 2]))
        found[:, j] = np.where(best <= none + CLOSE, np.inf, found[:, j])  # the level above earns nothing
    found[:, -1] = np.where(best <= every + CLOSE, -np.inf, found[:, -1])  # nor does withholding
    top = np.where(first > 0, ordered[first - 1], np.inf)
    bottom = np.where(last < n, ordered[np.minimum(last, n - 1)], -np.inf)
    return np.minimum.accumulate(found, axis=1), bottom, top


def decide(signal: np.ndarray, thresholds: np.ndarray, levels: Sequence[int]) -> np.ndarray:
    """int [..., Q]: how many documents each query gets; thresholds [..., L - 1]."""
    level = (signal[:, None] < thresholds[..., None, :]).sum(axis=-1)
    return np.array(levels)[level]


def folds(needs: np.ndarray, count: int, seed: int) -> np.ndarray:
    """int [n], the fold of each query: as many of those that need retrieval, and of the others, in each as can be."""
    generator = np.random.default_rng(seed)
    found = np.empty(len(needs), int)
    dealt = 0
    for kind in (True, False):
        rows = generator.permutation(np.flatnonzero(needs == kind))
        found[rows] = (np.arange(len(rows)) + dealt) % count
        dealt += len(rows)
    return found


def held_out(weights: np.ndarray, fold: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(weights to learn with, weights to judge by), float64 [B, folds, n]: each fold is judged by the others."""
    inside = fold == np.arange(fold.max() + 1)[:, None]
    return weights[:, None] * ~inside, weights[:, None] * inside


def cross_validated(weights: np.ndarray, signal: np.ndarray, payoff: np.ndarray, fold: np.ndarray) -> np.ndarray:
    """float64 [B]: the summed objective of queries that had no part in fitting their thresholds."""
    learn, judge = held_out(weights, fold)
    thresholds = fit(learn.reshape(-1, len(signal)), signal, payoff)
    level = (signal[:, None] < thresholds[:, None, :]).sum(axis=-1)
    earned = payoff[np.arange(len(signal)), level]
    return (earned.reshape(judge.shape) * judge).sum(axis=(1, 2))


def bootstrap(signal: np.ndarray, payoff: np.ndarray, seed: int) -> Mapping[str, tuple[float, float]]:
    """95 % percentile intervals of the last threshold and of the mean objective: the queries are drawn anew
    `RESAMPLES` times, and the thresholds fitted and scored on each draw."""
    drawn = np.vstack(list(draws(seed, len(signal), RESAMPLES))).astype(np.float64)
    thresholds = fit(drawn, signal, payoff)
    level = (signal[:, None] < thresholds[:, None, :]).sum(axis=-1)
    means = (payoff[np.arange(len(signal)), level] * drawn).sum(axis=1) / len(signal)
    ends = [0.025, 0.975]  # a threshold may be infinite: nothing is interpolated
    threshold, mean = (np.quantile(one, ends, method="inverted_cdf") for one in (thresholds[:, -1], means))
    return {"threshold": (float(threshold[0]), float(threshold[1])), "objective": (float(mean[0]), float(mean[1]))}


def _cuts(ordered: np.ndarray) -> np.ndarray:
    """bool [n + 1]: whether the first i of the ordered queries can be told from the others: equal signals cannot."""
    return np.concatenate([[True], ordered[1:] != ordered[:-1], [True]])


def _running(values: np.ndarray) -> np.ndarray:
    """float64 [B, n + 1]: the total of the first i of each row."""
    return np.pad(np.cumsum(values, axis=1), ((0, 0), (1, 0)))


def _at(values: np.ndarray, place: np.ndarray) -> np.ndarray:
    return np.take_along_axis(values, place[:, None], axis=1)[:, 0]


def _best_borders(weights: np.ndarray, earned: np.ndarray, legal: np.ndarray) -> np.ndarray:
    """int [B, L - 1]: how many queries lie above each border, for the greatest total.

    Of equals the first, so that a level that earns no more than the next is left empty; of the last borders the last,
    so that nobody is withheld for nothing.
    """
    place = np.arange(len(legal))
    totals = [_running(weights * earned[:, level]) for level in range(earned.shape[1])]
    best, came_from = totals[0], []
    for number, total in enumerate(totals[1:], start=2):
        above = np.where(legal, best - total, -np.inf)
        most = np.maximum.accumulate(above, axis=1)
        before = np.pad(most[:, :-1], ((0, 0), (1, 0)), constant_values=-np.inf)
        taken = above >= most - CLOSE if number == len(totals) else above > before + CLOSE
        came_from.append(np.maximum.accumulate(np.where(taken, place, 0), axis=1))
        best = most + total
    borders = np.empty((len(weights), len(came_from)), int)
    end = np.full(len(weights), len(legal) - 1)
    for level in reversed(range(len(came_from))):
        borders[:, level] = end = _at(came_from[level], end)
    return borders


def _plateau(
    weights: np.ndarray, gain: np.ndarray, legal: np.ndarray, best: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(first, last) border, int [B] each, of the plateau around `best` within [low, high].

    gain: float64 [n], what a query earns more above the border than below it.
    """
    totals, squares = _running(weights * gain), _running(weights * gain**2)
    count = weights.sum(axis=1, keepdims=True)
    less = _at(totals, best)[:, None] - totals
    between = np.abs(_at(squares, best)[:, None] - squares)
    error = np.sqrt(np.maximum(between - less**2 / np.maximum(count, 1), 0) * count / np.maximum(count - 1, 1))
    place = np.arange(len(legal))
    outside = (place < low[:, None]) | (place > high[:, None])
    worse = ((less > error + CLOSE) & (less > CLOSE) & legal) | outside
    before = np.where(worse & (place < best[:, None]), place, -1).max(axis=1)
    after = np.where(worse & (place > best[:, None]), place, len(legal)).min(axis=1)
    inside = legal & (place > before[:, None]) & (place < after[:, None])
    return inside.argmax(axis=1), len(legal) - 1 - inside[:, ::-1].argmax(axis=1)


def _middle(ordered: np.ndarray, present: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """float64 [B]: the middle of the thresholds between two borders, bounded by the signals that were there."""
    highest = ordered[present.argmax(axis=1)]
    lowest = ordered[len(ordered) - 1 - present[:, ::-1].argmax(axis=1)]
    top = np.where(first > 0, ordered[first - 1], highest)
    bottom = np.where(last < len(ordered), ordered[np.minimum(last, len(ordered) - 1)], lowest)
    middle = bottom + (top - bottom) / 2
    return np.where(middle > bottom, middle, top)  # between neighbouring numbers there is no middle
