"""The data from which a fusion learns: labelled queries' candidates and features, and the objective of any order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from harness.data.predictions import Predictions
from harness.data.qrels import Qrels
from harness.fusion.rule import FEATURES
from harness.gates.payoff import queries_to_learn_from
from harness.measures.judged import Judged, judge_lists
from harness.measures.measures import MeasureFamily, parse_measure
from harness.statistics.split import Split
from retrievers.base import Ranking
from retrievers.combine.fusion import pool_candidates


@dataclass(frozen=True, eq=False)
class FusionLabels:
    """The labels to learn from.

    objective: a measure's name. top_k: number of documents to show. split: which labels to use.
    multi_turn: query_id -> whether the query has several turns.
    """

    qrels: Qrels
    objective: str
    top_k: int
    split: Split = field(default_factory=Split)
    multi_turn: Mapping[str, bool] = field(default_factory=dict)


class CandidatePool:
    """The candidates of the n queries to learn from: all documents that a ranking returned, at most C per query.

    rows: int [n], the rows of these queries in the rankings. needs: bool [n], whether a query needs retrieval.
    present: bool [n, C]; false for padding. seed: seed of the folds.
    """

    def __init__(self, rankings: Mapping[str, Ranking], depth: int, labels: FusionLabels) -> None:
        ids = next(iter(rankings.values())).query_ids
        payoff = queries_to_learn_from(ids, labels.qrels, labels.objective, labels.split, labels.multi_turn)
        self.rows, self.needs, self.seed = payoff.rows, payoff.needs[payoff.rows], payoff.seed
        self._rankings = rankings
        self._candidates = pool_candidates(*rankings.values())
        docs = self._candidates.docs[self.rows]
        self.present = docs < len(self._candidates.doc_ids)
        self._measure = parse_measure(labels.objective)
        deep = self._measure.family is MeasureFamily.STANDARD
        reach = self._measure.reach
        self._length = min(depth, reach or depth) if deep else min(depth, labels.top_k)
        listed = Predictions(
            tuple(ids[row] for row in self.rows),
            self._candidates.doc_ids,
            np.where(self.present, docs, -1).astype(np.int32),
        )
        self._judged: Judged = judge_lists(listed, labels.qrels, listed.query_ids)
        self.relevant = self._judged.gains > 0
        self._slots = dict(zip(rankings, self._candidates.slots, strict=True))
        self._columns: dict[tuple[str, str], np.ndarray] = {}

    def feature(self, ranking: str, name: str) -> np.ndarray:
        """Return the feature `name` that a ranking gives each candidate, float64 [n, C]. It is computed once."""
        if (ranking, name) not in self._columns:
            points = FEATURES[name](self._rankings[ranking])
            every = np.empty(self._candidates.docs.shape)
            every[:] = points.absent
            every.ravel()[self._slots[ranking]] = points.returned
            self._columns[ranking, name] = every[self.rows]
        return self._columns[ranking, name]

    def scores(self, weights: Mapping[tuple[str, str], float], rows: np.ndarray) -> np.ndarray:
        """Return the candidates' weighted sums of features for the m queries in `rows`, float64 [m, C].

        weights: (ranking, feature) -> weight.
        """
        total = np.zeros((len(rows), self.present.shape[1]))
        for (ranking, name), weight in weights.items():
            total += weight * self.feature(ranking, name)[rows]
        return total

    def earned(self, scores: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the objective of the m queries in `rows` if `scores`, float64 [m, C], order their candidates."""
        ranked = np.argsort(np.where(self.present[rows], -scores, np.inf), axis=1, kind="stable")[:, : self._length]
        returned = np.minimum(self.present[rows].sum(axis=1), self._length)
        return self._measure.values(self._judged.take(rows).ordered(ranked, returned))

    def near(self, first: int) -> np.ndarray:
        """Return, as bool [n, C], whether a candidate is among the `first` best documents of any ranking."""
        found = np.zeros(self._candidates.docs.shape, bool)
        for slots in self._slots.values():
            found.ravel()[slots[:, :first]] = True
        return found[self.rows] & self.present
