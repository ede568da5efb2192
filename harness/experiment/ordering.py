"""Order the candidates: fuse the component rankings by a fixed or a learnt rule, and rerank the result."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.data.dataset import Dataset
from harness.experiment import timing
from harness.experiment.plan import Plan
from harness.experiment.session import Session
from harness.fusion.learned import LearnedFusion, Learning
from harness.fusion.pool import FusionLabels
from harness.gates.payoff import payoffs
from harness.progress import watch
from retrievers.base import Query, Ranking

if TYPE_CHECKING:
    from retrievers.base import Reranker

# A function that takes positions, and yields pairs (some of these positions, their scores) as scores become known.
Answer = Callable[[Sequence[int]], Iterator[tuple[np.ndarray, np.ndarray]]]


class LearntOrder:
    """Orders candidates by rules that a fusion learns from all labels, or from a part of the labels."""

    def __init__(self, learning: Learning, plan: Plan, session: Session) -> None:
        self._learning, self._plan, self._session = learning, plan, session
        self._values: dict[bytes, np.ndarray] = {}

    @cached_property
    def fitted(self) -> dict[str, Any]:
        return self._learning.to_json()

    @cached_property
    def held_out(self) -> list[Ranking]:
        """The candidates of all queries, per repetition of the split into folds; [] if too few queries are labelled.

        A query's candidates are ordered by a rule learnt from the labels outside its fold.
        """
        fusion: LearnedFusion = self._plan.made("fusion")
        if len(self._learning.pool.rows) < 2:
            return []
        return [self.crossed(self._learning.split(fusion.folds, 1 + number)) for number in range(fusion.repeats)]

    def crossed(self, fold: np.ndarray) -> Ranking:
        """Return the candidates. A query's candidates are ordered by a rule learnt from the labels outside its fold.

        fold: int [n], the fold of each query that the fusion learns from.
        """
        return rerank(self._plan, self._learning.crossed(fold), self._session)

    def unseen(self, used: np.ndarray) -> np.ndarray:
        """Return `Payoff.values` for candidates ordered by rules learnt from only the queries in `used`, bool [n]."""
        key = np.packbits(used).tobytes()
        if key not in self._values:
            qrels = self._session.dataset.qrels
            assert qrels is not None
            candidates = rerank(self._plan, self._learning.unseen(used), self._session)
            self._values[key] = payoffs(candidates, qrels, self._plan.objective, self._plan.top_k).values
        return self._values[key]


@dataclass(frozen=True, eq=False)
class Ordered:
    """The fused and reranked candidates before the gate. learnt: None if the fusion learns nothing."""

    candidates: Ranking
    learnt: LearntOrder | None = None


def order(plan: Plan, rankings: Mapping[str, Ranking], session: Session) -> Ordered:
    """Fuse the component rankings, and rerank the result. A fusion that learns is first fitted to the labels."""
    learnt = None
    with session.clock.stage("fuse", "fusing"):
        if plan.fusion_learns:
            dataset, fusion = session.dataset, plan.made("fusion")
            assert dataset.qrels is not None
            turns = dataset.conversations
            labels = FusionLabels(dataset.qrels, plan.objective, plan.top_k, plan.split, turns)
            learning: Learning = fusion.learn(rankings, plan.depth, labels)
            learnt, fused = LearntOrder(learning, plan, session), learning.fused()
        else:
            fused = fuse(plan, rankings)
    with session.clock.stage("rerank", "reranking"):
        return Ordered(rerank(plan, fused, session), learnt)


def fuse(plan: Plan, rankings: Mapping[str, Ranking]) -> Ranking:
    """Fuse the component rankings. If there is only one, return it unchanged."""
    if len(rankings) == 1:
        return next(iter(rankings.values()))
    fused: Ranking = plan.made("fusion").fuse(rankings, plan.depth)
    return fused


def rerank(plan: Plan, candidates: Ranking, session: Session) -> Ranking:
    """Order the first documents of each query by the reranker's scores, and leave all other documents below them.

    The score of each pair of query and document text is cached for all runs. A reranker of depth 0 changes nothing.
    """
    reranker: Reranker = plan.made("rerank")
    computed = False

    def answers(keys: Sequence[bytes], compute: Answer) -> np.ndarray:
        def noted(missing: Sequence[int]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
            nonlocal computed
            computed = True
            yield from compute(missing)

        return session.cache.pairs(plan.rerank_identity, keys, noted)

    result = reranked(reranker, answers, candidates, session.dataset, session.queries)
    if result is candidates:
        return candidates
    data = {"documents": session.dataset.fingerprints["documents"], "queries": session.queries_digest}
    about = timing.subject({"pairs": plan.rerank_identity, **data}, plan.rerank)
    pairs = int(np.minimum(candidates.lengths, reranker.depth).sum())

    def score(rows: Sequence[int]) -> int:
        head, by_id, queries = candidates.top(reranker.depth), session.dataset.by_id, session.queries
        head_pairs = [(queries[row].text, by_id[one].indexed_text) for row in rows for one, _ in head.row(row)]
        deque(reranker.score(head_pairs), maxlen=0)
        return len(head_pairs)

    each = session.time_of(session.cache, about, computed, lambda: timing.timed_part(score, len(session.queries)))
    return replace(result, measured=each.times(pairs / len(session.queries)).measured() if each else {})


def reranked(
    reranker: Reranker,
    answers: Callable[[Sequence[bytes], Answer], np.ndarray],
    candidates: Ranking,
    dataset: Dataset,
    queries: Sequence[Query],
) -> Ranking:
    """Rerank the candidates. Return `candidates` itself if there is nothing to rerank.

    answers: returns one score for each key, float64 [n]. Its arguments are a key for each pair, and a function that
        scores the pairs at given positions.
    """
    head = candidates.top(reranker.depth)
    if not head.docs.size:
        return candidates
    texts = [dataset.by_id[doc_id].indexed_text for doc_id in head.doc_ids]
    places = _pair_keys(queries, texts, head)

    def compute(missing: Sequence[int]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        pairs = [(queries[row].text, texts[head.docs[row, column]]) for row, column, _ in (places[i] for i in missing)]
        done = 0
        with watch("rerank") as progress:
            for some, values in reranker.score(pairs):
                yield some, values
                progress(done := done + len(some), len(pairs), "pairs")

    scores = np.zeros(head.docs.shape)
    scores[head.docs >= 0] = answers([key for _, _, key in places], compute)
    return candidates.rescored(scores)


def _pair_keys(queries: Sequence[Query], texts: Sequence[str], head: Ranking) -> list[tuple[int, int, bytes]]:
    of_queries = [hashlib.sha256(query.text.encode("utf-8", "surrogatepass")).digest() for query in queries]
    of_texts = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts]
    rows, columns = np.nonzero(head.docs >= 0)
    documents = head.docs[rows, columns].tolist()
    places = zip(rows.tolist(), columns.tolist(), documents, strict=True)
    return [(row, column, hashlib.sha256(of_queries[row] + of_texts[doc]).digest()) for row, column, doc in places]
