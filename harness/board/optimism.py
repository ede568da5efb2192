"""How much of the best score of many trials is luck.

The same queries choose the best of T trials and score it, so its score is biased upward: more so with more trials and
with fewer queries. Both estimates here use all trials and only resample the queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from harness.evaluation.bootstrap import draws
from harness.gates.calibration import CLOSE, folds

FOLDS = 10
REPEATS = 5
RESAMPLES = 2000
_CELLS = 1 << 22  # numbers in memory at once


@dataclass(frozen=True)
class Optimism:
    """How much better the best trial seems than it is.

    trials, queries: T different trials, chosen by the mean of n queries.
    best: that mean of the best trial.
    luck: by how much the best of T trials would seem better than it is, on average, if all were equally good: the
        expected maximum of the T means, each centred on 0, when the n queries are drawn anew (bootstrap).
    unseen: the score of the choice on queries that had no part in it. With a private part: of the best trial there.
        Otherwise cross-validated: the best trial of nine tenths of the queries, scored on the rest.
    private: the number of private queries; 0: `unseen` is cross-validated.
    """

    objective: str
    trials: int
    queries: int
    best: float
    luck: float
    unseen: float
    private: int

    def sentence(self) -> str:
        """What the numbers mean."""
        held_out = (
            f"On the {self.private:,} private queries, which had no part in the choice, it scores {self.unseen:.4f}."
            if self.private
            else f"Chosen on nine tenths of the queries and scored on the rest, the best scores {self.unseen:.4f}: "
            "expect this score on new queries."
        )
        kind = "public queries" if self.private else "queries"
        return (
            f"The best of {self.trials:,} trials has {self.objective} {self.best:.4f} on the {self.queries:,} {kind} "
            f"that chose it. If all trials were equally good, the best would still seem better by {self.luck:.4f}, by "
            f"luck alone. {held_out}"
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"sentence": self.sentence()}


def optimism(
    objective: str,
    trials: Mapping[int, np.ndarray],
    needs: np.ndarray,
    chooses: np.ndarray,
    seed: int,
    best: int | None = None,
) -> Optimism | None:
    """How much of the best score is luck; None with fewer than two trials, or fewer than two queries that choose.

    trials: number -> the objective by query, float64 [Q]; a query that is NaN in any trial is left out.
    best: number of the trial that is taken; None: the first of those with the greatest mean.
    needs: bool [Q], whether a query needs retrieval.
    chooses: bool [Q], the queries whose mean chooses the best trial; if not all do, the others are the private part.
    """
    if len(trials) < 2:
        return None
    values = np.stack(list(trials.values()))
    counted = ~np.isnan(values).any(axis=0)
    choosing, private = values[:, counted & chooses], values[:, counted & ~chooses]
    if choosing.shape[1] < 2:
        return None
    means = choosing.mean(axis=1)
    taken = int((means > means.max() - CLOSE).argmax()) if best is None else list(trials).index(best)
    unseen = private[taken].mean() if private.size else _cross_validated(choosing, needs[counted & chooses], seed)
    return Optimism(
        objective=objective,
        trials=choosing.shape[0],
        queries=choosing.shape[1],
        best=float(means[taken]),
        luck=float(_luck(choosing - means[:, None], seed)),
        unseen=float(unseen),
        private=private.shape[1],
    )


def _luck(centred: np.ndarray, seed: int) -> np.floating:
    """The expected maximum of the trials' means when queries are drawn with replacement.

    centred: float64 [T, n], each row with mean 0.
    """
    trials, n = centred.shape
    centred = centred - centred.mean(axis=0)  # expectation 0 in any draw: less noise, and never < 0
    step = max(1, _CELLS // max(trials, n))
    greatest = []
    for drawn in draws(seed, n, RESAMPLES):
        for start in range(0, len(drawn), step):
            greatest.append((centred @ drawn[start : start + step].T.astype(np.float64)).max(axis=0) / n)
    return np.concatenate(greatest).mean()


def _cross_validated(values: np.ndarray, needs: np.ndarray, seed: int) -> np.floating:
    """The mean over queries, each scored with the trial that is best on the other folds. values: float64 [T, n]."""
    count = min(FOLDS, values.shape[1])
    means = []
    for repeat in range(REPEATS):
        inside = folds(needs, count, 1000 * seed + repeat) == np.arange(count)[:, None]
        sums = values @ inside.T.astype(np.float64)  # [T, folds]
        sizes = inside.sum(axis=1)
        others = (sums.sum(axis=1, keepdims=True) - sums) / (values.shape[1] - sizes)
        chosen = (others > others.max(axis=0) - CLOSE).argmax(axis=0)
        means.append(sums[chosen, np.arange(count)].sum() / values.shape[1])
    return np.mean(means)
