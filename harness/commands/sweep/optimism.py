"""How much of the best score of many trials is luck.

The best of T trials is chosen by the same queries that score it, so its score is biased upward: the more trials, and
the fewer queries, the more. Both numbers here are exact in the trials and only resample the queries.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.commands.sweep.trials import Context, Result
from harness.evaluation.bootstrap import draws
from harness.evaluation.measures import Family, parse
from harness.evaluation.score_table import read_table
from harness.gates.calibration import CLOSE, folds
from harness.tracking.mlflow_client import Unreachable
from harness.tracking.tracker import Tracker
from retrievers.base import BadInput

FOLDS = 10
REPEATS = 5
RESAMPLES = 2000
_CELLS = 1 << 22  # means held at once: bounds the memory


@dataclass(frozen=True)
class Optimism:
    """trials, queries: T different trials, chosen by the mean of n queries.

    best:   that mean for the best trial.
    luck:   by how much the best of T trials would on average seem better than it is if all were equally good: the
            expected greatest of the T means, each centred on 0, when the n queries are drawn anew (bootstrap).
    unseen: the score of the choice on queries that had no part in it: of the best trial on the private queries where
            the public ones chose; else cross-validated, the best of nine tenths of the queries scored on the others.
    private: how many private queries that was; 0 = cross-validated.
    """

    objective: str
    trials: int
    queries: int
    best: float
    luck: float
    unseen: float
    private: int

    def sentence(self) -> str:
        """What it means, for a person."""
        how = (
            f"On the {self.private} private queries, which had no part in the choice, it scores {self.unseen:.4f}."
            if self.private
            else f"Chosen on nine tenths of the queries and scored on the others, the best scores {self.unseen:.4f}: "
            "expect that of new queries."
        )
        kind = "public queries" if self.private else "queries"
        return (
            f"The best of {self.trials} trials has {self.objective} {self.best:.4f} on the {self.queries} {kind} that "
            f"chose it. Were all of them equally good, the best would still seem better by {self.luck:.4f}, by luck "
            f"alone. {how}"
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"sentence": self.sentence()}


def optimism(
    objective: str, trials: Mapping[int, np.ndarray], needs: np.ndarray, chooses: np.ndarray, seed: int
) -> Optimism | None:
    """trials: number -> the objective by query, float64 [Q] each. needs: bool [Q], whether a query needs retrieval.

    chooses: bool [Q], the queries whose mean chooses; where they are not all, the others are the private part. Queries
    that the objective does not apply to, NaN in any trial, are left out. None with fewer than two trials, or than two
    queries to choose by.
    """
    if len(trials) < 2:
        return None
    values = np.stack(list(trials.values()))
    counted = ~np.isnan(values).any(axis=0)
    mine, others = values[:, counted & chooses], values[:, counted & ~chooses]
    if mine.shape[1] < 2:
        return None
    means = mine.mean(axis=1)
    best = int((means > means.max() - CLOSE).argmax())  # of equals the first
    unseen = others[best].mean() if others.size else _cross_validated(mine, needs[counted & chooses], seed)
    luck, size = float(_luck(mine - means[:, None], seed)), mine.shape
    return Optimism(objective, size[0], size[1], float(means[best]), luck, float(unseen), others.shape[1])


def _luck(centred: np.ndarray, seed: int) -> np.floating:
    """The expected greatest mean of trials [T, n] whose means are 0, over queries drawn with replacement."""
    trials, n = centred.shape
    centred = centred - centred.mean(axis=0)  # has expectation 0 in any draw: the same, with less noise, and never < 0
    step = max(1, _CELLS // max(trials, n))
    greatest = []
    for drawn in draws(seed, n, RESAMPLES):
        for start in range(0, len(drawn), step):
            greatest.append((centred @ drawn[start : start + step].T.astype(np.float64)).max(axis=0) / n)
    return np.concatenate(greatest).mean()


def _cross_validated(values: np.ndarray, needs: np.ndarray, seed: int) -> np.floating:
    """The mean over queries of the trial that is best on the other folds; values: float64 [T, n]."""
    count = min(FOLDS, values.shape[1])
    found = []
    for repeat in range(REPEATS):
        inside = folds(needs, count, 1000 * seed + repeat) == np.arange(count)[:, None]
        sums = values @ inside.T.astype(np.float64)  # [T, folds]
        sizes = inside.sum(axis=1)
        others = (sums.sum(axis=1, keepdims=True) - sums) / (values.shape[1] - sizes)
        chosen = (others > others.max(axis=0) - CLOSE).argmax(axis=0)
        found.append(sums[chosen, np.arange(count)].sum() / values.shape[1])
    return np.mean(found)


log = logging.getLogger(__name__)


def optimism_of(
    results: Mapping[int, Result], tracker: Tracker, context: Context, config: Mapping[str, Any]
) -> Optimism | None:
    """How much of the best trial's score is luck, from the scores by query that the finished trials left.

    None where there are fewer than two different trials, where they are scored or chosen on different queries, and
    where the objective is no mean over queries that a gate has no say in.
    """
    objective = config["objective"]
    if "task" in config or parse(objective).family not in (Family.STANDARD, Family.MODIFIED):
        return None
    try:
        tracker.has(next((result.run_id for result in results.values() if result.run_id), ""))
    except Unreachable:
        return None
    different = {result.key: (number, result) for number, result in results.items() if result.status == "FINISHED"}
    values, table = {}, None
    with tempfile.TemporaryDirectory() as name:
        for number, result in different.values():
            file = context.folder / "trials" / str(result.number) / "scores.csv"
            if result.run_id:
                try:
                    file = tracker.download(result.run_id, "scores.csv", Path(name) / str(number))
                except BadInput as error:  # made by an earlier version
                    log.warning("How much of the best score is luck cannot be told: %s", error)
                    return None
            if not file.exists():  # it waits to be sent, for its store was down
                return None
            found = read_table(file, objective)
            if table and (found.query_ids != table.query_ids or (found.public != table.public).any()):
                return None
            table = found
            values[number] = (found.oof or found.values)[objective]
    if table is None:
        return None
    chooses = table.public if config["select_on"] == "public" else np.ones(len(table.public), bool)
    return optimism(objective, values, table.needs, chooses, config["seed"])
