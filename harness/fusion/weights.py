"""How a fusion learns: weights from a grid, and a small ranker that corrects them.

A grid point is a normalisation of scores or ranks, and a weight for each ranking. The objective of each query at each
point is computed once, so learning from a part of the queries is arithmetic on a table.

The ranker is a logistic regression of "relevant" over a candidate's features. Regularisation hardly restrains one of
them, the fusion's score, and holds all others near 0: with few labels the ranker orders as the fusion does.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from harness.fusion.pool import CandidatePool
from harness.gates.calibration import CLOSE
from harness.progress import watch

START = "z_score"  # the normalisation of the fixed fusion and of fusion=weighted_sum
NORMALISATIONS = (START, "min_max", "reciprocal_rank_60", "reciprocal_rank_10")
POINTS = 100  # weightings tried with each normalisation, at most
FINEST = 20  # steps from 0 to 1, at most

Weights = Mapping[tuple[str, str], float]  # (ranking, feature) -> weight


class WeightGrid:
    """Points of the grid, (ranking, feature) -> weight, the fixed fusion first. values: float64 [G, n], objectives."""

    def __init__(self, pool: CandidatePool, start: Mapping[str, float]) -> None:
        names, total = list(start), sum(start.values())
        places = [(START, np.array([start[name] / total for name in names]))]
        places += [(kind, weights) for kind in NORMALISATIONS for weights in simplex(len(names))]
        self.points: list[Weights] = [{(name, START): weight for name, weight in start.items()}]
        self.points += [_named(names, kind, weights) for kind, weights in places[1:]]
        # How far a point is from the fixed fusion; another normalisation counts as the smallest step of a weight.
        self._far = np.array(
            [np.abs(weights - places[0][1]).sum() + (kind != START) / FINEST for kind, weights in places]
        )
        every = np.arange(len(pool.rows))
        self.values = np.empty((len(self.points), len(every)))
        with watch("fusion") as progress:
            for number, point in enumerate(self.points):
                self.values[number] = pool.earned(pool.scores(point, every), every)
                progress(number + 1, len(self.points), "weightings")
        self._squares = self.values**2

    def pick(self, used: np.ndarray) -> int:
        """Return the point nearest to the fixed fusion among the points within one standard error of the best.

        The error is of the paired difference (after Breiman et al. 1984). used: bool [n].
        """
        count = int(used.sum())
        if count < 2:
            return 0
        weight = used.astype(np.float64)
        totals, squares = self.values @ weight, self._squares @ weight
        best = int((totals > totals.max() - CLOSE).argmax())
        less = (totals[best] - totals) / count
        spread = squares - 2 * self.values @ (self.values[best] * weight) + squares[best]
        error = np.sqrt(np.maximum(spread / count - less**2, 0) / (count - 1))
        near = np.flatnonzero(less <= error + CLOSE)
        return int(near[self._far[near].argmin()])


def simplex(size: int) -> Iterator[np.ndarray]:
    """Yield at most POINTS weightings, float64 [size] each, at least 0 and adding up to 1."""
    finer = (steps for steps in range(FINEST, 1, -1) if math.comb(steps + size - 1, size - 1) <= POINTS)
    steps = next(finer, 1)
    for walls in itertools.combinations(range(steps + size - 1), size - 1):
        ends = np.array([-1, *walls, steps + size - 1])
        yield (np.diff(ends) - 1) / steps


def _named(names: Sequence[str], kind: str, weights: np.ndarray) -> Weights:
    return {(name, kind): float(weight) for name, weight in zip(names, weights, strict=True) if weight}


FEATURES = ("z_score", "min_max", "reciprocal_rank_10", "returned")  # of each ranking
STRENGTHS = (0.1, 1.0)  # inverse regularisation strengths to choose from
FIRST = 20  # documents to learn from, per ranking
MOST = 500  # queries to learn from: a few coefficients need no more
ANCHORED = 10.0  # factor by which the fusion's score is penalised less than the other features
STEPS = 100  # of Newton's method, at most; some ten are enough


class Ranker:
    """Learns from the candidates near the top of any ranking.

    Each query has the same weight, half for its relevant candidates and half for the others.
    """

    def __init__(self, pool: CandidatePool, names: list[str]) -> None:
        self._pool, self._features = pool, [(name, feature) for name in names for feature in FEATURES]
        near = pool.near(FIRST)
        relevant = pool.relevant & near
        hits, misses = relevant.sum(axis=1), (near & ~relevant).sum(axis=1)
        teaching = np.flatnonzero((hits > 0) & (misses > 0))
        teaching = teaching[:: max(1, -(-len(teaching) // MOST))]
        kept = np.zeros(near.shape, bool)
        kept[teaching] = near[teaching]
        self._owner, self._column = np.nonzero(kept)
        self._relevant = relevant[self._owner, self._column].astype(np.float64)
        self._share = 0.5 / np.where(self._relevant > 0, hits[self._owner], misses[self._owner])
        self._values = np.column_stack([np.zeros(len(self._owner)), *(self._of(one) for one in self._features)])
        self._scores: dict[tuple[tuple[tuple[str, str], float], ...], np.ndarray] = {}

    def learn(self, fusion: Weights, used: np.ndarray) -> list[Weights]:
        """Return a correction of a fusion for each of STRENGTHS, learnt from the queries `used`, bool [n]."""
        rows = used[self._owner]
        if not rows.any():
            return [fusion] * len(STRENGTHS)
        columns = self._values[rows]
        columns[:, 0] = self._score(fusion)[rows]
        spread = columns.std(axis=0)
        flat = spread <= 1e-12 * np.abs(columns).max(axis=0)
        scale = np.where(flat, 1.0, spread)
        scale[0] /= ANCHORED
        scaled = np.where(flat, 0.0, (columns - columns.mean(axis=0)) / scale)
        relevant, share = self._relevant[rows], self._share[rows]
        found: list[Weights] = []
        for strength in STRENGTHS:
            first, *others = (regress(scaled, relevant, strength * share) / scale).tolist()
            learnt = {key: first * weight for key, weight in fusion.items()}
            for feature, weight in zip(self._features, others, strict=True):
                learnt[feature] = learnt.get(feature, 0.0) + weight
            found.append(learnt)
        return found

    def _score(self, fusion: Weights) -> np.ndarray:
        if (key := tuple(fusion.items())) not in self._scores:
            self._scores[key] = np.sum([weight * self._of(feature) for feature, weight in fusion.items()], axis=0)
        return self._scores[key]

    def _of(self, feature: tuple[str, str]) -> np.ndarray:
        found: np.ndarray = self._pool.feature(*feature)[self._owner, self._column]
        return found


def regress(columns: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the coefficients of a logistic regression with a free intercept and L2 penalty, float64 [F].

    By Newton's method with halved steps: five times as fast as scikit-learn's LogisticRegression, with the same result.
    columns: float64 [m, F]. labels: 1 or 0, float64 [m].
    """
    columns = np.column_stack([np.ones(len(columns)), columns])
    held = np.array([0.0, *np.ones(columns.shape[1] - 1)])
    signs = np.where(labels > 0, -1.0, 1.0)

    def loss(found: np.ndarray, logits: np.ndarray) -> float:
        return float(weights @ np.logaddexp(0.0, signs * logits) + held @ found**2 / 2)

    found, logits = np.zeros(columns.shape[1]), np.zeros(len(columns))
    now = loss(found, logits)
    for _ in range(STEPS):
        chance = 1.0 / (1.0 + np.exp(-np.clip(logits, -500, 500)))
        slope = columns.T @ (weights * (chance - labels)) + held * found
        curve = columns.T @ ((weights * chance * (1 - chance))[:, None] * columns) + np.diag(held)
        step = np.linalg.lstsq(curve, slope, rcond=None)[0]
        if slope @ step < 1e-10 * (1 + now):
            break
        change = columns @ step
        while (after := loss(found - step, logits - change)) > now and np.abs(step).max() > 1e-12:
            step, change = step / 2, change / 2
        found, logits, now = found - step, logits - change, after
    return found[1:]
