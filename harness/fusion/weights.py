"""Fusion weights by the objective: every point of a grid is tried once, and parts of the queries pick theirs.

A point of the grid is a normalisation of scores or ranks and a weight for each ranking. What each point earns each
query is computed once for all; learning from a part of the queries is then arithmetic on a table.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from harness.fusion.pool import CandidatePool
from harness.gates.calibration import CLOSE
from harness.progress import watch

START = "z_score"  # the normalisation of the fixed fusion, as of fusion=weighted_sum
NORMALISATIONS = (START, "min_max", "reciprocal_rank_60", "reciprocal_rank_10")
POINTS = 100  # weightings tried with each normalisation, at most
FINEST = 20  # steps from 0 to 1, at most

Weights = Mapping[tuple[str, str], float]  # (ranking, feature) -> weight


class WeightGrid:
    """Points of the grid, the fixed fusion first.

    points: of each, (ranking, feature) -> weight.
    values: float64 [G, n], the objective of each query.
    """

    def __init__(self, pool: CandidatePool, start: Mapping[str, float]) -> None:
        """start: ranking -> weight in the fixed fusion."""
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
        """The point for some queries: of those that earn less than the best by at most one standard error of the paired
        difference, the one nearest to the fixed fusion (after the one-standard-error rule of Breiman et al. 1984).

        used: bool [n]. With fewer than two queries, the fixed fusion.
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
    """Weights of at least 0 that add up to 1, in steps that make at most POINTS of them, float64 [size] each."""
    finer = (steps for steps in range(FINEST, 1, -1) if math.comb(steps + size - 1, size - 1) <= POINTS)
    steps = next(finer, 1)
    for walls in itertools.combinations(range(steps + size - 1), size - 1):
        ends = np.array([-1, *walls, steps + size - 1])
        yield (np.diff(ends) - 1) / steps


def _named(names: Sequence[str], kind: str, weights: np.ndarray) -> Weights:
    return {(name, kind): float(weight) for name, weight in zip(names, weights, strict=True) if weight}
