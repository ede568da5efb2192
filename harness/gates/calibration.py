"""Fit optimal thresholds for many weightings of the queries at once, and evaluate thresholds on held-out queries.

A rule turns a query's signal into the number of documents to show. The possible numbers are its *levels*, from the
highest signal to the lowest: the levels (3, 0) show three documents or none. A threshold separates neighbouring
levels. A query gets the first level whose threshold its signal reaches. The payoff of each level is known for each
query, so all thresholds can be tried after sorting the queries once. A weighting says how often a bootstrap sample or
a training fold contains each query.

Shapes: B weightings, n queries, L levels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from harness.errors import BadInput
from harness.statistics.bootstrap import draws

_CELLS = 1 << 20  # maximum number of weights processed at once, to limit the memory
CLOSE = 1e-9  # sums of objectives are treated as equal if they differ by less
RESAMPLES = 2000


@dataclass(frozen=True, eq=False)
class Curve:
    """The mean objective at every threshold.

    edges: float64 [T], the distinct values of the signal, descending.
    values: float64 [T + 1]; values[i] belongs to thresholds in (edges[i], edges[i - 1]].
    """

    edges: np.ndarray
    values: np.ndarray


def curve(signal: np.ndarray, payoff: np.ndarray) -> Curve:
    """Return the mean objective at every threshold.

    payoff: float64 [n, 2], the objective of each query with and without documents.
    """
    order = np.argsort(-signal, kind="stable")
    ordered = signal[order]
    gain = np.concatenate([[0.0], np.cumsum((payoff[:, 0] - payoff[:, 1])[order])])
    cuts = np.flatnonzero(_cuts(ordered))
    return Curve(ordered[cuts[:-1]], (payoff[:, 1].sum() + gain[cuts]) / len(signal))


def fit(weights: np.ndarray, signal: np.ndarray, payoff: np.ndarray) -> np.ndarray:
    """Return the best thresholds for each weighting, float64 [B, L - 1], descending in each row.

    Dynamic programming over the sorted queries finds the optimal borders between levels. Each border then moves
    to the middle of its plateau. The plateau consists of the neighbouring borders whose objective is below the best by
    at most one standard error of the paired difference (after the one-standard-error rule of Breiman et al. 1984).
    A level that is no better than the next level is left out. If showing documents for every query is as good as
    withholding some, the last threshold is -inf.

    weights: float64 [B, n], how often each query counts; 0 if held out.
    payoff: float64 [n, L], the objective of each query at each level.
    """
    step = max(1, _CELLS // len(signal))
    blocks = [_fit(weights[first : first + step], signal, payoff)[0] for first in range(0, len(weights), step)]
    return np.vstack(blocks)


def threshold_plateau(signal: np.ndarray, payoff: np.ndarray) -> tuple[float, float]:
    """Return the range in which the last threshold keeps the objective within one standard error of its best value."""
    _, bottom, top = _fit(np.ones((1, len(signal))), signal, payoff)
    return float(bottom[0]), float(top[0])


def _fit(weights: np.ndarray, signal: np.ndarray, payoff: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    order = np.argsort(-signal, kind="stable")
    ordered, earned = signal[order], payoff[order]
    weights = weights[:, order]
    legal, n = _cuts(ordered), len(ordered)
    borders = _best_borders(weights, earned, legal)
    walls = np.hstack([np.zeros((len(weights), 1), int), borders, np.full((len(weights), 1), n)])
    thresholds = np.empty((len(weights), earned.shape[1] - 1))
    for j in range(earned.shape[1] - 1):
        gain = earned[:, j] - earned[:, j + 1]
        first, last = _plateau(weights, gain, legal, borders[:, j], walls[:, j], walls[:, j + 2])
        thresholds[:, j] = _middle(ordered, weights > 0, first, last)
        totals = _running(weights * gain)
        best, none, every = (_at(totals, place) for place in (borders[:, j], walls[:, j], walls[:, j + 2]))
        # A level that gains nothing is never used.
        thresholds[:, j] = np.where(best <= none + CLOSE, np.inf, thresholds[:, j])
    thresholds[:, -1] = np.where(best <= every + CLOSE, -np.inf, thresholds[:, -1])  # no gain: withhold nothing
    top = np.where(first > 0, ordered[first - 1], np.inf)
    bottom = np.where(last < n, ordered[np.minimum(last, n - 1)], -np.inf)
    return np.minimum.accumulate(thresholds, axis=1), bottom, top


def level_at(signal: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Return the index of the level that each query gets, int [..., Q]. thresholds: [..., L - 1]."""
    level: np.ndarray = (signal[:, None] < thresholds[..., None, :]).sum(axis=-1)
    return level


def folds(needs: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return the fold of each query, int [n]. Each fold gets about the same share of queries that need retrieval."""
    generator = np.random.default_rng(seed)
    fold = np.empty(len(needs), int)
    assigned = 0
    for stratum in (True, False):
        rows = generator.permutation(np.flatnonzero(needs == stratum))
        fold[rows] = (np.arange(len(rows)) + assigned) % count
        assigned += len(rows)
    return fold


def split(needs: np.ndarray, count: int, seed: int, number: int) -> np.ndarray:
    """Return each query's fold, int [n], with at most `count` folds. Each `number` below 1,000 gives a new split."""
    return folds(needs, min(count, len(needs)), 1000 * seed + number)


def check_splits(folds: int, repeats: int) -> None:
    for key, value, least in (("folds", folds, 2), ("repeats", repeats, 1)):
        if value < least:
            raise BadInput(f"{key}={value}: at least {least} is needed.")


def held_out(fold: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (queries to learn from, queries held out) for each fold, bool [n] each.

    Queries with fold -1 are in neither.
    """
    return [((fold >= 0) & (fold != number), fold == number) for number in range(fold.max() + 1)]


def cross_validated(weights: np.ndarray, signal: np.ndarray, payoff: np.ndarray, fold: np.ndarray) -> np.ndarray:
    """Return the total objective with each weighting, float64 [B]. A query's thresholds are fitted without its fold."""
    training, evaluation = (weights[:, None] * np.stack(parts) for parts in zip(*held_out(fold), strict=True))
    thresholds = fit(training.reshape(-1, len(signal)), signal, payoff)
    earned = payoff[np.arange(len(signal)), level_at(signal, thresholds)]
    return (earned.reshape(evaluation.shape) * evaluation).sum(axis=(1, 2))


def bootstrap(signal: np.ndarray, payoff: np.ndarray, seed: int) -> Mapping[str, tuple[float, float]]:
    """Return 95 % percentile intervals of the last threshold and of the mean objective, from RESAMPLES samples."""
    drawn = np.vstack(list(draws(seed, len(signal), RESAMPLES))).astype(np.float64)
    thresholds = fit(drawn, signal, payoff)
    means = (payoff[np.arange(len(signal)), level_at(signal, thresholds)] * drawn).sum(axis=1) / len(signal)
    ends = [0.025, 0.975]
    # A threshold may be infinite, so the quantiles must not interpolate.
    threshold, mean = (np.quantile(values, ends, method="inverted_cdf") for values in (thresholds[:, -1], means))
    return {"threshold": (float(threshold[0]), float(threshold[1])), "objective": (float(mean[0]), float(mean[1]))}


def _cuts(ordered: np.ndarray) -> np.ndarray:
    """Return whether a threshold can separate the first i ordered queries from all later queries, bool [n + 1]."""
    return np.concatenate([[True], ordered[1:] != ordered[:-1], [True]])


def _running(values: np.ndarray) -> np.ndarray:
    return np.pad(np.cumsum(values, axis=1), ((0, 0), (1, 0)))


def _at(values: np.ndarray, place: np.ndarray) -> np.ndarray:
    return np.take_along_axis(values, place[:, None], axis=1)[:, 0]


def _best_borders(weights: np.ndarray, earned: np.ndarray, legal: np.ndarray) -> np.ndarray:
    """Return the borders with the greatest total objective, each as the number of queries above it, int [B, L - 1]."""
    # If borders are equally good, take the first one, so that a level that gains nothing gets no queries. For the last
    # level, take the border that withholds documents from the fewest queries.
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
    """Return the first and last border of the plateau (see `fit`) around `best` within [low, high], int [B] each."""
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
    highest = ordered[present.argmax(axis=1)]
    lowest = ordered[len(ordered) - 1 - present[:, ::-1].argmax(axis=1)]
    top = np.where(first > 0, ordered[first - 1], highest)
    bottom = np.where(last < len(ordered), ordered[np.minimum(last, len(ordered) - 1)], lowest)
    middle = bottom + (top - bottom) / 2
    return np.where(middle > bottom, middle, top)  # adjacent floats have no middle
