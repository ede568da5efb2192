"""The data that gates learn from: each query's objective for each number of shown documents."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.data.qrels import Qrels
from harness.errors import BadInput
from harness.measures.judged import judge_lists
from harness.measures.measures import Measure, MeasureFamily, parse_measure
from harness.statistics.split import Split, public_part
from retrievers.base import Ranking


def fixed_mean(name: str, learner: str = "gate") -> Measure:
    """Return the measure `name`. Raise BadInput unless it is a mean over the same queries, whatever a gate does."""
    measure = parse_measure(name)
    if measure.family not in (MeasureFamily.STANDARD, MeasureFamily.MODIFIED):
        raise BadInput(
            f"objective={name}: a {learner} needs an objective that is a mean over the same queries, whatever the "
            "gate decides. This measure is not such a mean. Choose another measure, such as objective=modified_map@3."
        )
    return measure


def payoffs(
    candidates: Ranking,
    qrels: Qrels,
    objective: str,
    top_k: int,
    *,
    split: Split = Split(),  # noqa: B008 (frozen)
    multi_turn: Mapping[str, bool] | None = None,
) -> Payoff:
    """Return each query's objective if its first 0, 1, ... top_k candidates are shown. objective: see `fixed_mean`."""
    measure = fixed_mean(objective)
    labelled = [query_id for query_id in candidates.query_ids if query_id in qrels.grades]
    place = {query_id: row for row, query_id in enumerate(candidates.query_ids)}
    rows = np.array([place[query_id] for query_id in labelled], int)
    deep = measure.family is MeasureFamily.STANDARD and not (measure.reach is not None and measure.reach <= top_k)
    values = np.full((len(candidates.query_ids), top_k + 1), np.nan)
    needs = np.zeros(len(candidates.query_ids), bool)
    for shown in range(top_k + 1):
        judged = judge_lists(candidates if deep and shown else candidates.top(shown), qrels, labelled)
        values[rows, shown], needs[rows] = measure.values(judged), judged.needs
    several = frozenset(query_id for query_id, many in (multi_turn or {}).items() if many)
    selected = np.ones(len(labelled), bool)
    if split.select_on == "public":
        selected = public_part(qrels, scored=tuple(labelled), multi_turn=several, part=split)
    learn = rows[selected & ~np.isnan(values[rows, 0])]
    return Payoff(values, learn, needs, objective, split.seed)


def queries_to_learn_from(
    query_ids: Collection[str], qrels: Qrels, objective: str, split: Split, multi_turn: Mapping[str, bool]
) -> Payoff:
    """Return a Payoff for empty lists. Its `rows` are the queries to learn from. Raise BadInput if there are none."""
    nothing = Ranking.from_scores({query_id: {} for query_id in query_ids})
    payoff = payoffs(nothing, qrels, objective, 0, split=split, multi_turn=multi_turn)
    payoff.require_queries()
    return payoff


@dataclass(frozen=True, eq=False)
class Payoff:
    """The objective of each query for each number of shown documents.

    values: float64 [Q, N + 1], the objective of a query if its first n documents are shown; NaN if the query is
        unlabelled or not part of the objective's mean.
    rows: int [n], the queries to learn from: labelled, in the selected part, and part of the objective's mean.
    needs: bool [Q], whether a query needs retrieval. name: the objective. seed: seed of the folds and the bootstrap.
    unseen: None unless a fusion learnt the order of the candidates from the same labels. Then it is a function that
        takes bool [n], the queries to learn from, and returns `values` for the order that the fusion learns from these
        queries alone. A query's own label never affects the order of its candidates.
    """

    values: np.ndarray
    rows: np.ndarray
    needs: np.ndarray
    name: str
    seed: int = 0
    unseen: Callable[[np.ndarray], np.ndarray] | None = None

    def within(self, used: np.ndarray) -> Payoff:
        """Return the payoff for learning only from the queries in `used`, bool [n]. Only their values may be used."""
        return self if self.unseen is None else replace(self, values=self.unseen(used))

    def require_queries(self) -> None:
        if not len(self.rows):
            raise BadInput(
                "There is no query to learn from: the part that select_on names has no labelled query. "
                "Raise public=, or use select_on=all."
            )

    def levels(self, levels: Sequence[int]) -> np.ndarray:
        """Return the objective of each query in `rows` for these numbers of shown documents, float64 [n, levels]."""
        return self.values[np.ix_(self.rows, np.array(levels))]
