"""The steps of a retrieval experiment, in order: retrieve (cached), fuse, rerank (cached), gate, cut, score.

Only `retrieve` and `rerank` are slow, and their results are cached by content: retrievers and models are loaded on a
miss alone. Everything else is array arithmetic.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.config.components import build, identity
from harness.data.dataset import Dataset, conversations
from harness.evaluation.measures import parse
from harness.evaluation.scores import Scores, ShownLists, averaged, score
from harness.gates.gate import Decision, Gate
from harness.gates.payoff import Payoff, fixed_mean, payoffs
from harness.gates.signals import Answer
from harness.pipeline.cache import Cache
from harness.pipeline.cached_parts import caching
from harness.pipeline.gate_inputs import CachedInputs
from harness.pipeline.run_config import Node, RunConfig
from harness.pipeline.session import Session
from harness.progress import watch
from retrievers.base import BadInput, Query, Ranking

if TYPE_CHECKING:
    from retrievers.base import Progress, Reranker, Retriever

MS = "ms_per_query"


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of one experiment. All rankings have the rows of `queries`.

    rankings: name -> component ranking at `depth`.
    candidates: fused and reranked, before the gate.
    final: gated and cut to top_k.
    scores: None where the dataset has no labels.
    held_out: scores with every query decided by a gate that has not seen its label, averaged over repetitions; None
        unless the gate was fitted to the labels.
    measured: what retrievers report about themselves, such as `index_recall/dense`, and `ms_per_query`: the time of
        searching and reranking when they were computed, in all and for each component.
    """

    queries: tuple[Query, ...]
    rankings: dict[str, Ranking]
    candidates: Ranking
    decision: Decision
    final: Ranking
    scores: Scores | None
    held_out: Scores | None
    measured: dict[str, float]


@dataclass(frozen=True)
class Ordering:
    """What decides the order of the candidates once the component rankings are there."""

    fusion: Node
    rerank: Node
    depth: int

    @classmethod
    def of(cls, config: RunConfig) -> Ordering:
        return cls(config.fusion, config.rerank, config.depth)


def check(config: RunConfig, labelled: bool) -> None:
    """BadInput for measures and gates that cannot work, before anything is computed or logged."""
    for name in [*config.metrics, config.objective]:
        parse(name)
    check_gate(config, labelled)


def check_gate(config: RunConfig, labelled: bool) -> None:
    """BadInput where the gate learns from labels and there are none, or its objective cannot be learnt."""
    if build(config.gate, where="gate").learns:
        if not labelled:
            raise BadInput(
                "This gate learns from labels, and there are none. Give them with dataset.qrels=FILE, or apply what "
                "was learnt elsewhere: gate=fitted gate.file=RUN/gate.json"
            )
        fixed_mean(config.objective)


def run(config: RunConfig, session: Session) -> Outcome:
    """The whole pipeline, from a dataset to scores."""
    rankings = retrieve(config.retriever, session, config.depth)
    return conclude(config, rankings, session)


def conclude(
    config: RunConfig,
    rankings: Mapping[str, Ranking],
    session: Session,
    *,
    detailed: Collection[str] | None = None,
    candidates: Ranking | None = None,
) -> Outcome:
    """What follows the component rankings: fuse, rerank, gate, cut, score.

    detailed: the measures that get an interval and a public and a private part; None: all.
    candidates: the result of `order` for the same `Ordering`, if it is known.
    """
    if candidates is None:
        candidates = order(Ordering.of(config), rankings, session)
    with session.clock.stage("gate", "deciding at the gate"):
        decision = decide(config, rankings, candidates, session)
    final = candidates.cut(np.minimum(decision.shown, config.top_k))
    scores = held_out = None
    if session.dataset.qrels:
        scorer = partial(_scored, config, session.dataset, rankings, candidates, detailed)
        with session.clock.stage("score", "scoring"):
            scores = scorer(decision.shown, decision.signal)
            if decision.out_of_fold is not None:  # each fold has a signal of its own: they do not compare
                held_out = averaged(
                    [scorer(shown, None) for shown in decision.out_of_fold], config.split.seed, detailed
                )
    measured = _measured(rankings, candidates)
    return Outcome(session.queries, dict(rankings), candidates, decision, final, scores, held_out, measured)


def decide(config: RunConfig, rankings: Mapping[str, Ranking], candidates: Ranking, session: Session) -> Decision:
    """The decision of the gate, which learns from the labels first where it learns."""
    gate: Gate = build(config.gate, where="gate")
    payoff = payoff_of(config, config.objective, candidates, session.dataset) if gate.learns else None

    def search(source: str, queries: Sequence[Query]) -> Ranking:
        elsewhere = Session(session.dataset, tuple(queries), session.cache)
        return retrieve({source: config.retriever[source]}, elsewhere, 1)[source]

    return gate.decide(CachedInputs(config, rankings, session, search), payoff)


def payoff_of(config: RunConfig, objective: str, candidates: Ranking, dataset: Dataset) -> Payoff | None:
    """What showing a query its first 0 to top_k candidates is worth; None without labels."""
    if not dataset.qrels:
        return None
    turns = conversations(dataset.queries)
    return payoffs(candidates, dataset.qrels, objective, config.top_k, split=config.split, multi_turn=turns)


def order(ordering: Ordering, rankings: Mapping[str, Ranking], session: Session) -> Ranking:
    """The ranking that is gated and cut: fused and reranked."""
    with session.clock.stage("fuse", "fusing"):
        fused = fuse(ordering.fusion, rankings, ordering.depth)
    with session.clock.stage("rerank", "reranking"):
        return rerank(ordering.rerank, fused, session)


def retrieve(retrievers: Mapping[str, Node], session: Session, depth: int) -> dict[str, Ranking]:
    """name -> component ranking of the queries at `depth`. Nothing is built for a ranking that is cached."""
    rankings = {}
    for name, node in retrievers.items():
        index = index_identity(node, session.dataset)
        search = partial(_searched, name, node, index, session)
        with session.clock.stage(
            "retrieve", f"{name}: retrieving"
        ):  # contains the stages index and search; a cached ranking has neither
            rankings[name] = session.cache.ranking(ranking_identity(index, session.queries_digest), depth, search)
    return rankings


def index_identity(node: Node, dataset: Dataset) -> dict[str, Any]:
    """What decides a retriever's index."""
    return {"retriever": identity(node), "documents": dataset.fingerprints["documents"]}


def ranking_identity(index: Mapping[str, Any], queries: str) -> dict[str, Any]:
    """What decides a component ranking, beside its depth. queries: their digest."""
    return {"index": index, "queries": queries}


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
    answers = partial(session.cache.pairs, identity(node))
    result = reranked(reranker, answers, candidates, session.dataset, session.queries)
    if result is candidates:
        return candidates
    pairs = int(np.minimum(candidates.lengths, reranker.depth).sum())
    took = 1000 * session.cache.pair_seconds(identity(node)) * pairs / len(session.queries)
    return replace(result, measured={MS: took})


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


def index_folder(retriever: Retriever, index: Mapping[str, Any], dataset: Dataset, cache: Cache) -> Path:
    """The folder of a retriever's index in the cache, built on a miss."""

    def build_index(folder: Path) -> None:
        retriever.index(dataset.documents, folder)

    return cache.folder("indexes", index, build_index, getattr(type(retriever), "resumes", False))


def _searched(name: str, node: Node, index: Mapping[str, Any], session: Session, depth: int) -> Ranking:
    """The ranking of one retriever, computed."""
    with watch(name) as progress:
        with session.clock.stage("index", f"{name}: building the index"):
            retriever = _indexed(name, node, index, session, progress)
        with session.clock.stage("search", f"{name}: searching"):
            began = time.perf_counter()
            ranking = retriever.search(session.queries, depth)
            took = 1000 * (time.perf_counter() - began) / max(len(session.queries), 1)
    return replace(ranking, measured={**ranking.measured, MS: took})


def _indexed(name: str, node: Node, index: Mapping[str, Any], session: Session, progress: Progress) -> Retriever:
    """A retriever that is ready to search, its index built or taken from the cache."""
    wrap = caching(session.cache, str(index["documents"]), progress)
    retriever = build(node, wrap, f"retriever.{name}")
    retriever.progress = progress
    retriever.load(index_folder(retriever, index, session.dataset, session.cache))
    loaded: Retriever = retriever
    return loaded


def _scored(
    config: RunConfig,
    dataset: Dataset,
    rankings: Mapping[str, Ranking],
    candidates: Ranking,
    detailed: Collection[str] | None,
    shown: np.ndarray,
    signal: np.ndarray | None,
) -> Scores:
    """The scores when each query is shown its first `shown` candidates, at most top_k."""
    assert dataset.qrels is not None
    lists = ShownLists(
        final=candidates.cut(np.minimum(shown, config.top_k)),
        deep=candidates.where(shown > 0),
        candidates=candidates,
        keep=shown > 0,
        signal=signal,
        rankings=rankings,
        top_k=config.top_k,
    )
    turns = conversations(dataset.queries)
    return score(lists, dataset.qrels, config.metrics, split=config.split, multi_turn=turns, detailed=detailed)


def _measured(rankings: Mapping[str, Ranking], candidates: Ranking) -> dict[str, float]:
    values = {f"{key}/{name}": value for name, ranking in rankings.items() for key, value in ranking.measured.items()}
    if MS in candidates.measured and not any(candidates is ranking for ranking in rankings.values()):
        values[f"{MS}/rerank"] = candidates.measured[MS]
    times = [value for name, value in values.items() if name.startswith(f"{MS}/")]
    return values | ({MS: sum(times)} if times else {})


def _pair_keys(queries: Sequence[Query], texts: Sequence[str], head: Ranking) -> list[tuple[int, int, bytes]]:
    """(row, place in the row, sha256 of query and document text) for every document of a ranking."""
    of_queries = [hashlib.sha256(query.text.encode("utf-8", "surrogatepass")).digest() for query in queries]
    of_texts = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts]
    rows, columns = np.nonzero(head.docs >= 0)
    documents = head.docs[rows, columns].tolist()
    places = zip(rows.tolist(), columns.tolist(), documents, strict=True)
    return [(row, column, hashlib.sha256(of_queries[row] + of_texts[doc]).digest()) for row, column, doc in places]
