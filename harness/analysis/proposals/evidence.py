"""The evidence for proposals, from a run's lists and labels: values by query, now and if one part were perfect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from harness.data.dataset import Dataset
from harness.data.qrels import Qrels
from harness.errors import BadInput
from harness.experiment.plan import Plan
from harness.experiment.steps import Outcome
from harness.gates.payoff import fixed_mean, payoffs
from harness.measures.judged import Judged, judge_lists
from harness.measures.measures import Measure, of_holes, of_spans
from harness.measures.score_table import ScoreTable
from harness.storage.typed import key_named
from retrievers.base import Ranking
from retrievers.combine.fusion import pool_candidates

RANKS = (1, 3, 10, 100)  # queries with a relevant document up to these ranks are counted


@dataclass(frozen=True, eq=False)
class Lists:
    """The rankings of a run, with the same queries in the same rows.

    candidates: the ranking before the gate. rankings: component -> its ranking; {} if unknown.
    """

    candidates: Ranking
    rankings: Mapping[str, Ranking]


@dataclass(frozen=True, eq=False)
class RunEvidence:
    """The Q queries that decide the score of a run, and the run's lists for these queries.

    measure: a mean over queries. top_k: the number of documents returned. needs, multi_turn: bool [Q].
    values: float64 [Q], out of fold if something was learnt from labels.
    kept: float64 [Q], 1 if the gate shows documents, else 0. If several gates decide out of fold, the share of them
        that show documents.
    lists: None if only the values are known.
    signal: float64 [Q], the gate's signal, whether used or not; None if unknown.
    """

    measure: Measure
    top_k: int
    qrels: Qrels
    query_ids: tuple[str, ...]
    needs: np.ndarray
    multi_turn: np.ndarray
    values: np.ndarray
    kept: np.ndarray
    lists: Lists | None = None
    signal: np.ndarray | None = None

    @classmethod
    def of_outcome(cls, plan: Plan, outcome: Outcome, dataset: Dataset) -> RunEvidence:
        """Return the evidence of a computed run. Raise BadInput if it has no labels or its objective is not a mean."""
        measure, qrels = fixed_mean(plan.objective), dataset.qrels
        if qrels is None:
            raise BadInput("The run has no labels, so its weaknesses are unknown. Set dataset.qrels=FILE.")
        scores = outcome.held_out or outcome.scores
        assert scores is not None
        counts = ~np.isnan(scores.values[measure.name])
        counts &= scores.in_public if plan.split.select_on == "public" else True
        row_of = {query.query_id: row for row, query in enumerate(outcome.queries)}
        rows = np.array([row_of[query_id] for query_id in scores.query_ids], int)[counts]
        decided = outcome.decision.out_of_fold
        shown = outcome.decision.shown[None] if decided is None else decided
        signal = outcome.decision.signal
        return cls(
            measure=measure,
            top_k=plan.top_k,
            qrels=qrels,
            query_ids=tuple(np.array(scores.query_ids, object)[counts]),
            needs=scores.needs[counts],
            multi_turn=scores.multi_turn[counts],
            values=scores.values[measure.name][counts],
            kept=(shown > 0).mean(axis=0)[rows],
            lists=Lists(outcome.candidates, outcome.rankings),
            signal=None if signal is None or decided is not None else signal[rows],
        )

    @classmethod
    def of_table(cls, table: ScoreTable, name: str, select_on: str, qrels: Qrels, top_k: int) -> RunEvidence:
        """Return the evidence of a run from its scores by query. Raise BadInput if they lack the measure `name`."""
        measure, values = fixed_mean(name), (table.oof or table.values).get(name)
        if values is None:
            raise BadInput(f"metric={name}: the run has no such values by query. Choose another of its measures.")
        rows = ~np.isnan(values) & (table.public if select_on == "public" else True)
        return cls(
            measure=measure,
            top_k=top_k,
            qrels=qrels,
            query_ids=tuple(np.array(table.query_ids, object)[rows]),
            needs=table.needs[rows],
            multi_turn=table.multi_turn[rows],
            values=values[rows],
            kept=np.ones(int(rows.sum())),
        )

    @property
    def value(self) -> float:
        return float(self.values.mean())

    @property
    def reads_shown(self) -> bool:
        """Whether the measure ignores documents below the returned ones."""
        reach = self.measure.reach
        return not self.measure.family.of_rankings or (reach is not None and reach <= self.top_k)

    @cached_property
    def shown(self) -> np.ndarray | None:
        """Each query's value if 0, 1, ..., top_k candidates are shown, float64 [Q, top_k + 1]; None without lists."""
        if self.lists is None:
            return None
        found = payoffs(self.lists.candidates, self.qrels, self.measure.name, self.top_k)
        row_of = {query_id: row for row, query_id in enumerate(self.lists.candidates.query_ids)}
        return found.values[[row_of[query_id] for query_id in self.query_ids]]

    @cached_property
    def perfect(self) -> np.ndarray:
        """The values of the best possible lists, float64 [Q]."""
        nothing = Ranking.from_scores({query_id: {} for query_id in self.query_ids})
        judged = judge_lists(nothing, self.qrels, self.query_ids)
        return self._ordered(judged, judged.ideal)

    def reordered(self, depth: int | None = None) -> np.ndarray:
        """Return each query's value if the first `depth` candidates (None: all) were in the best order, float64 [Q]."""
        assert self.lists is not None
        judged = judge_lists(self.lists.candidates, self.qrels, self.query_ids)
        head = judged.gains if depth is None else judged.gains[:, :depth]
        return self._ordered(judged, np.hstack([-np.sort(-head, axis=1), judged.gains[:, head.shape[1] :]]))

    @cached_property
    def pooled(self) -> np.ndarray:
        """Each query's value if all documents of the component rankings were in the best order, float64 [Q]."""
        judged = judge_lists(_pool(self._components), self.qrels, self.query_ids)
        return self._ordered(judged, -np.sort(-judged.gains, axis=1))

    @cached_property
    def first_hits(self) -> dict[str, np.ndarray]:
        """Component ranking -> rank of the first relevant document, float64 [Q]; infinite if it has none."""
        return {name: judge_lists(one, self.qrels, self.query_ids).first for name, one in self._components.items()}

    @cached_property
    def first_hit(self) -> np.ndarray:
        """The best rank of a relevant document in any component ranking, float64 [Q]."""
        return np.min(list(self.first_hits.values()), axis=0)

    def first_within(self, low: int, high: int | None = None) -> int:
        """Return how many queries that need documents have their first relevant document at ranks `low` to `high`."""
        first = self.first_hit[self.needs]
        return int(((first >= low) & (np.isfinite(first) if high is None else first <= high)).sum())

    @property
    def never(self) -> int:
        """The number of queries that need documents but have no relevant document in any ranking."""
        return int((~np.isfinite(self.first_hit[self.needs])).sum())

    @property
    def _components(self) -> Mapping[str, Ranking]:
        assert self.lists is not None
        return self.lists.rankings or {"candidates": self.lists.candidates}

    def _ordered(self, judged: Judged, gains: np.ndarray) -> np.ndarray:
        """Return the values of lists with these gains; 1 for measures that depend on more than the grades."""
        if of_spans(self.measure.name) or of_holes(self.measure.name):
            return np.ones(len(self.query_ids))
        gains = gains[:, : self.top_k] if self.reads_shown else gains
        returned = np.maximum((gains > 0).sum(axis=1), np.minimum(judged.returned, gains.shape[1]))
        made = Judged(gains, np.zeros(gains.shape, bool), returned, judged.ideal, judged.needs)
        return self.measure.values(made)

    @property
    def auroc(self) -> float | None:
        """The AUROC of the gate's signal between queries that need retrieval and those that do not; None if unknown."""
        if self.signal is None or self.needs.all() or not self.needs.any():
            return None
        yes, no = self.signal[self.needs], self.signal[~self.needs]
        return float(((yes[:, None] > no).mean() + (yes[:, None] >= no).mean()) / 2)


@dataclass(frozen=True)
class RankCounts:
    name: str = field(metadata=key_named("ranking"))
    found: Mapping[str, int]
    never: int
    alone: int


def rank_counts(evidence: RunEvidence) -> list[RankCounts]:
    if evidence.lists is None:
        return []
    needs, found = evidence.needs, evidence.first_hits
    there = {name: np.isfinite(ranks) & needs for name, ranks in found.items()}
    return [
        RankCounts(
            name,
            {str(k): int((ranks[needs] <= k).sum()) for k in RANKS},
            int((needs & ~there[name]).sum()),
            int((there[name] & (sum(there.values()) == 1)).sum()) if len(found) > 1 else 0,
        )
        for name, ranks in found.items()
    ]


def _pool(rankings: Mapping[str, Ranking]) -> Ranking:
    if len(rankings) == 1:
        return next(iter(rankings.values()))
    pool = pool_candidates(*rankings.values())
    docs = np.where(pool.docs == len(pool.doc_ids), -1, pool.docs).astype(np.int32)
    query_ids = next(iter(rankings.values())).query_ids
    return Ranking(query_ids, pool.doc_ids, docs, np.zeros(docs.shape))
