"""The order of the candidates: component rankings fused, by a fixed rule or one learnt from labels, and reranked.

Only reranking is slow, and its scores are cached by content: the model is loaded on a miss alone.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.config.components import build, component_identity, target_class
from harness.config.schema import Node
from harness.data.dataset import Dataset, conversations
from harness.experiment import timing
from harness.experiment.plan import Plan
from harness.experiment.session import Session
from harness.fusion.learned import LearnedFusion, Learning
from harness.fusion.pool import FusionLabels
from harness.gates.payoff import payoffs
from harness.progress import watch
from harness.statistics.split import Split
from retrievers.base import Query, Ranking

if TYPE_CHECKING:
    from retrievers.base import Reranker

# Called with positions; yields (some of these positions, their numbers) as they become known.
Answer = Callable[[Sequence[int]], Iterator[tuple[np.ndarray, np.ndarray]]]


@dataclass(frozen=True)
class Fitting:
    """What a fusion that learns is fitted to, beside the labels."""

    objective: str
    top_k: int
    split: Split


@dataclass(frozen=True)
class Ordering:
    """What decides the order of the candidates once the component rankings are there.

    fitting: None for a fusion that does not learn.
    """

    fusion: Node
    rerank: Node
    depth: int
    fitting: Fitting | None = None

    @classmethod
    def of(cls, plan: Plan) -> Ordering:
        fitting = Fitting(plan.objective, plan.top_k, plan.split) if learns(plan) else None
        return cls(plan.fusion, plan.rerank, plan.depth, fitting)


class LearntOrder:
    """What a fusion has learnt from labels, and the orders that it would have learnt without some of them.

    learning: of the fusion. fitting: what it is fitted to. folds, repeats: as of the fusion.
    """

    def __init__(self, learning: Learning, ordering: Ordering, session: Session) -> None:
        assert ordering.fitting is not None
        self._learning, self._ordering, self._session = learning, ordering, session
        self._fitting = ordering.fitting
        self._values: dict[bytes, np.ndarray] = {}

    @cached_property
    def fitted(self) -> dict[str, Any]:
        """The content of fusion.json."""
        return self._learning.to_json()

    @cached_property
    def held_out(self) -> list[Ranking]:
        """The candidates in each repetition, every query in an order learnt without its fold; empty where none can be
        held out."""
        fusion: LearnedFusion = build(self._ordering.fusion, where="fusion")
        if len(self._learning.pool.rows) < 2:
            return []
        return [self.crossed(self._learning.split(fusion.folds, 1 + number)) for number in range(fusion.repeats)]

    def crossed(self, fold: np.ndarray) -> Ranking:
        """The candidates, every query to learn from in an order learnt without its fold. fold: int [n]."""
        return rerank(self._ordering.rerank, self._learning.crossed(fold), self._session)

    def unseen(self, used: np.ndarray) -> np.ndarray:
        """What showing 0 to top_k candidates is worth, as `Payoff.unseen` says. used: bool [n]."""
        key = np.packbits(used).tobytes()
        if key not in self._values:
            dataset, fitting = self._session.dataset, self._fitting
            assert dataset.qrels is not None
            candidates = rerank(self._ordering.rerank, self._learning.unseen(used), self._session)
            self._values[key] = payoffs(candidates, dataset.qrels, fitting.objective, fitting.top_k).values
        return self._values[key]


@dataclass(frozen=True, eq=False)
class Ordered:
    """The candidates, before the gate.

    candidates: fused and reranked. learnt: None where the fusion learns nothing.
    """

    candidates: Ranking
    learnt: LearntOrder | None = None


def learns(plan: Plan) -> bool:
    """Whether the fusion learns from labels."""
    return "fusion" in plan.active and getattr(target_class(plan.fusion, "fusion"), "learns", False)


def order(ordering: Ordering, rankings: Mapping[str, Ranking], session: Session) -> Ordered:
    """The ranking that is gated and cut: fused and reranked. A fusion that learns does so first."""
    learnt = None
    with session.clock.stage("fuse", "fusing"):
        if ordering.fitting is None:
            fused = fuse(ordering.fusion, rankings, ordering.depth)
        else:
            learning = _learning(ordering, ordering.fitting, rankings, session.dataset)
            learnt, fused = LearntOrder(learning, ordering, session), learning.fused()
    with session.clock.stage("rerank", "reranking"):
        return Ordered(rerank(ordering.rerank, fused, session), learnt)


def _learning(ordering: Ordering, fitting: Fitting, rankings: Mapping[str, Ranking], dataset: Dataset) -> Learning:
    assert dataset.qrels is not None
    fusion: LearnedFusion = build(ordering.fusion, where="fusion")
    turns = conversations(dataset.queries)
    labels = FusionLabels(dataset.qrels, fitting.objective, fitting.top_k, fitting.split, turns)
    return fusion.learn(rankings, ordering.depth, labels)


def fuse(node: Node, rankings: Mapping[str, Ranking], depth: int) -> Ranking:
    """One ranking from the component rankings; a single one is taken as it is."""
    if len(rankings) == 1:
        return next(iter(rankings.values()))
    fused: Ranking = build(node, where="fusion").fuse(rankings, depth)
    return fused


def rerank(node: Node, candidates: Ranking, session: Session) -> Ranking:
    """The first documents of each query in the order of the reranker's scores, the others below them.

    A pair of query and document text is scored once for all runs. A reranker of depth 0 changes nothing.
    """
    reranker: Reranker = build(node, where="rerank")
    computed = False

    def answers(keys: Sequence[bytes], compute: Answer) -> np.ndarray:
        def noted(missing: Sequence[int]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
            nonlocal computed
            computed = True
            yield from compute(missing)

        return session.cache.pairs(component_identity(node), keys, noted)

    result = reranked(reranker, answers, candidates, session.dataset, session.queries)
    if result is candidates:
        return candidates
    data = {"documents": session.dataset.fingerprints["documents"], "queries": session.queries_digest}
    about = timing.subject({"pairs": component_identity(node), **data}, node)
    pairs = int(np.minimum(candidates.lengths, reranker.depth).sum())

    def score(rows: Sequence[int]) -> int:
        head = _pairs(candidates.top(reranker.depth), session.dataset, session.queries, rows)
        deque(reranker.score(head), maxlen=0)
        return len(head)

    each = session.time_of(session.cache, about, computed, lambda: timing.timed_part(score, len(session.queries)))
    return replace(result, measured=each.times(pairs / len(session.queries)).measured() if each else {})


def _pairs(head: Ranking, dataset: Dataset, queries: Sequence[Query], rows: Sequence[int]) -> list[tuple[str, str]]:
    """(query, document text) for every document of some rows."""
    return [(queries[row].text, dataset.by_id[doc_id].indexed_text) for row in rows for doc_id, _ in head.row(row)]


def reranked(
    reranker: Reranker,
    answers: Callable[[Sequence[bytes], Answer], np.ndarray],
    candidates: Ranking,
    dataset: Dataset,
    queries: Sequence[Query],
) -> Ranking:
    """The candidates reranked by a loaded reranker; `candidates` itself where there is nothing to rerank.

    answers: (keys, a function that scores the pairs at some places) -> a score for each key, float64 [n].
    """
    head = candidates.top(reranker.depth)
    if not head.docs.size:
        return candidates
    texts = [dataset.by_id[doc_id].indexed_text for doc_id in head.doc_ids]
    places = _pair_keys(queries, texts, head)

    def compute(missing: Sequence[int]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        pairs = [(queries[row].text, texts[head.docs[row, column]]) for row, column, _ in (places[i] for i in missing)]
        with watch("rerank") as progress:
            yield from reranker.score(pairs, progress)

    scores = np.zeros(head.docs.shape)
    scores[head.docs >= 0] = answers([key for _, _, key in places], compute)
    return candidates.rescored(scores)


def _pair_keys(queries: Sequence[Query], texts: Sequence[str], head: Ranking) -> list[tuple[int, int, bytes]]:
    """(row, place in the row, sha256 of query and document text) for every document of a ranking."""
    of_queries = [hashlib.sha256(query.text.encode("utf-8", "surrogatepass")).digest() for query in queries]
    of_texts = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts]
    rows, columns = np.nonzero(head.docs >= 0)
    documents = head.docs[rows, columns].tolist()
    places = zip(rows.tolist(), columns.tolist(), documents, strict=True)
    return [(row, column, hashlib.sha256(of_queries[row] + of_texts[doc]).digest()) for row, column, doc in places]
