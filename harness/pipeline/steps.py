"""The one place that orders the steps: retrieve (kept), fuse, rerank (kept), gate, cut, score.

Only `retrieve` and `rerank` are slow, and what they give is kept by content: retrievers and models are loaded on a
miss alone. Everything else is array arithmetic.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.config.canonical import digest
from harness.config.components import build, identity
from harness.data.dataset import Dataset, conversations, search_queries
from harness.evaluation.measures import parse
from harness.evaluation.scores import Scores, averaged, score
from harness.gates.gate import Decision, Gate
from harness.gates.payoff import fixed_mean, payoffs
from harness.gates.signals import Answer
from harness.pipeline.cache import Cache
from harness.pipeline.cached_parts import caching
from harness.pipeline.gate_inputs import gate_inputs
from harness.progress import watch
from retrievers.base import BadInput, Query, Ranking

if TYPE_CHECKING:
    from retrievers.base import Progress, Reranker, Retriever


MS = "ms_per_query"


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one experiment gives. All rankings have the rows of `queries`.

    rankings: name -> raw ranking at `depth`. candidates: fused and reranked, before the gate.
    final:    gated and cut to top_k.
    scores:   None where the data set has no labels. held_out: the same where a gate was fitted on them, each query
              decided by a gate that has not seen its label; averaged over repetitions.
    measured: what retrievers found out about themselves, such as `index_recall/dense`, and `ms_per_query`: the time
              of searching and reranking, as it was when they were computed, in all and for each of them.
    """

    queries: tuple[Query, ...]
    rankings: dict[str, Ranking]
    candidates: Ranking
    decision: Decision
    final: Ranking
    scores: Scores | None
    held_out: Scores | None
    measured: dict[str, float]


@dataclass
class Clock:
    """Seconds spent in each stage."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began


def check(config: Mapping[str, Any], dataset: Dataset) -> None:
    """Raise BadInput for what the config alone cannot show to be wrong, before any work is done or logged."""
    search_queries(dataset, config["query"]["text"], config["query"]["file"])
    for name in [*config["metrics"], config["objective"]]:
        parse(name)
    check_gate(config, dataset.qrels is not None)


def check_gate(config: Mapping[str, Any], labelled: bool) -> None:
    """BadInput where the gate learns and there is nothing to learn from, or nothing that can be learnt."""
    if build(config["gate"], where="gate").learns:
        if not labelled:
            raise BadInput(
                "This gate learns from labels, and there are none. Give them with dataset.qrels=FILE, or apply what "
                "was learnt elsewhere: gate=fitted gate.file=RUN/gate.json"
            )
        fixed_mean(config["objective"])


def run(config: Mapping[str, Any], dataset: Dataset, cache: Cache, clock: Clock) -> Outcome:
    """The road, from a data set to scores. `config` is a checked run config."""
    queries = search_queries(dataset, config["query"]["text"], config["query"]["file"])
    rankings = retrieve(config["retriever"], dataset, queries, config["depth"], cache, clock)
    return conclude(config, rankings, dataset, queries, cache, clock)


def conclude(
    config: Mapping[str, Any],
    rankings: Mapping[str, Ranking],
    dataset: Dataset,
    queries: tuple[Query, ...],
    cache: Cache,
    clock: Clock,
    detailed: Collection[str] | None = None,
    candidates: Ranking | None = None,
) -> Outcome:
    """What follows the raw rankings of `queries`: fuse, rerank, gate, cut, score.

    detailed: the measures that get an interval and a public and a private part; None = all. candidates: what `order`
    gave for the same `ordering`, if that was done before.
    """
    candidates = candidates or order(ordering(config), rankings, dataset, queries, cache, clock)
    with clock.stage("gate"):
        decision = decide(config, rankings, candidates, dataset, queries, cache)
    final = candidates.cut(np.minimum(decision.shown, config["top_k"]))

    def scored(shown: np.ndarray, signal: np.ndarray | None) -> Scores:
        return _scored(config, shown, rankings, candidates, dataset, signal, detailed)

    scores = held_out = None
    if dataset.qrels:
        with clock.stage("score"):
            scores = scored(decision.shown, decision.signal)
            if decision.out_of_fold is not None:  # each fold has a signal of its own: they do not compare
                several = [scored(shown, None) for shown in decision.out_of_fold]
                held_out = averaged(several, config["seed"], detailed)
    measured = _measured(rankings, candidates)
    return Outcome(queries, dict(rankings), candidates, decision, final, scores, held_out, measured)


def decide(
    config: Mapping[str, Any],
    rankings: Mapping[str, Ranking],
    candidates: Ranking,
    dataset: Dataset,
    queries: tuple[Query, ...],
    cache: Cache,
) -> Decision:
    """What the gate decides, learnt from the labels where it learns."""
    gate: Gate = build(config["gate"], where="gate")
    payoff = None
    if gate.learns and dataset.qrels:
        payoff = payoffs(
            candidates,
            dataset.qrels,
            config["objective"],
            config["top_k"],
            select_on=config["select_on"],
            multi_turn=conversations(dataset.queries),
            public=config["public"],
            seed=config["seed"],
        )

    def search(source: str, asked: Sequence[Query]) -> Ranking:
        return retrieve({source: config["retriever"][source]}, dataset, asked, 1, cache, Clock())[source]

    return gate.decide(gate_inputs(config, rankings, dataset, queries, cache, search), payoff)


def ordering(config: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the candidates' order once the raw rankings are there, and all of a config that `order` is given."""
    return {name: config[name] for name in ("fusion", "rerank", "depth")}


def order(
    asked: Mapping[str, Any],
    rankings: Mapping[str, Ranking],
    dataset: Dataset,
    queries: Sequence[Query],
    cache: Cache,
    clock: Clock,
) -> Ranking:
    """The ranking that is gated and cut: fused and reranked."""
    with clock.stage("fuse"):
        fused = fuse(asked["fusion"], rankings, asked["depth"])
    with clock.stage("rerank"):
        return rerank(asked["rerank"], fused, dataset, queries, cache)


def retrieve(
    retrievers: Mapping[str, Any], dataset: Dataset, queries: Sequence[Query], depth: int, cache: Cache, clock: Clock
) -> dict[str, Ranking]:
    """name -> raw ranking of `queries` at `depth`. Nothing is built for a ranking that is kept already."""
    asked = asked_of(queries)
    rankings = {}
    for name, node in retrievers.items():
        index = index_identity(node, dataset)

        def search(
            depth: int, name: str = name, node: Mapping[str, Any] = node, index: Mapping[str, Any] = index
        ) -> Ranking:
            with watch(name) as progress:
                with clock.stage("index"):
                    retriever = _indexed(node, name, index, dataset, cache, progress)
                with clock.stage("search"):
                    began = time.perf_counter()
                    found = retriever.search(queries, depth)
                    took = 1000 * (time.perf_counter() - began) / max(len(queries), 1)
            return replace(found, measured={**found.measured, MS: took})

        with clock.stage("retrieve"):  # index and search are parts of it; both are absent where the ranking was kept
            rankings[name] = cache.ranking(ranking_identity(index, asked), depth, search)
    return rankings


def index_identity(node: Mapping[str, Any], dataset: Dataset) -> dict[str, Any]:
    """What decides a retriever's index."""
    return {"retriever": identity(node), "documents": dataset.fingerprints["documents"]}


def ranking_identity(index: Mapping[str, Any], asked: str) -> dict[str, Any]:
    """What decides a raw ranking, but for its depth. asked: `asked_of` the queries."""
    return {"index": index, "queries": asked}


def asked_of(queries: Sequence[Query]) -> str:
    """sha256 of queries as they are searched."""
    return digest([[query.query_id, query.text] for query in queries])


def fuse(node: Mapping[str, Any], rankings: Mapping[str, Ranking], depth: int) -> Ranking:
    """One ranking from the raw ones; the only raw one is taken as it is."""
    if len(rankings) == 1:
        return next(iter(rankings.values()))
    fused: Ranking = build(node, where="fusion").fuse(rankings, depth)
    return fused


def rerank(
    node: Mapping[str, Any], candidates: Ranking, dataset: Dataset, queries: Sequence[Query], cache: Cache
) -> Ranking:
    """The first `depth` documents of each query in the order of the reranker's scores, the others below them.

    A pair of query and document text is scored once for all runs. depth = 0: nothing is reranked.
    """
    reranker: Reranker = build(node, where="rerank")
    found = reranked(reranker, partial(cache.pairs, identity(node)), candidates, dataset, queries)
    if found is candidates:
        return candidates
    pairs = int(np.minimum(candidates.lengths, reranker.depth).sum())
    took = 1000 * cache.pair_seconds(identity(node)) * pairs / len(queries)
    return replace(found, measured={MS: took})


def reranked(
    reranker: Reranker,
    answers: Callable[[Sequence[bytes], Answer], np.ndarray],
    candidates: Ranking,
    dataset: Dataset,
    queries: Sequence[Query],
) -> Ranking:
    """What `rerank` gives, by a reranker that is at hand; `candidates` itself where there is nothing to rerank.

    answers: (keys, how to score those in some places) -> a score for each key, float64 [n].
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


def _scored(
    config: Mapping[str, Any],
    shown: np.ndarray,
    rankings: Mapping[str, Ranking],
    candidates: Ranking,
    dataset: Dataset,
    signal: np.ndarray | None,
    detailed: Collection[str] | None,
) -> Scores:
    """The scores when each query is shown the first `shown` of its candidates."""
    assert dataset.qrels is not None
    return score(
        candidates.cut(np.minimum(shown, config["top_k"])),
        dataset.qrels,
        config["metrics"],
        deep=candidates.where(shown > 0),
        candidates=candidates,
        keep=shown > 0,
        rankings=rankings,
        signal=signal,
        top_k=config["top_k"],
        multi_turn=conversations(dataset.queries),
        public=config["public"],
        seed=config["seed"],
        detailed=detailed,
    )


def _measured(rankings: Mapping[str, Ranking], candidates: Ranking) -> dict[str, float]:
    found = {f"{key}/{name}": value for name, ranking in rankings.items() for key, value in ranking.measured.items()}
    if MS in candidates.measured and not any(candidates is ranking for ranking in rankings.values()):
        found[f"{MS}/rerank"] = candidates.measured[MS]
    parts = [value for name, value in found.items() if name.startswith(f"{MS}/")]
    return found | ({MS: sum(parts)} if parts else {})


def _indexed(
    node: Mapping[str, Any],
    name: str,
    index: Mapping[str, Any],
    dataset: Dataset,
    cache: Cache,
    progress: Progress,
) -> Retriever:
    """A retriever that is ready to search, its index built or taken from the store."""
    retriever = build(node, caching(cache, str(index["documents"]), progress), f"retriever.{name}")
    retriever.progress = progress
    retriever.load(index_folder(retriever, index, dataset, cache))
    return retriever


def index_folder(retriever: Retriever, index: Mapping[str, Any], dataset: Dataset, cache: Cache) -> Path:
    """The folder of a retriever's index in the store, built on a miss."""

    def build_index(folder: Path) -> None:
        retriever.index(dataset.documents, folder)

    return cache.folder("indexes", index, build_index, getattr(type(retriever), "resumes", False))


def _pair_keys(queries: Sequence[Query], texts: Sequence[str], head: Ranking) -> list[tuple[int, int, bytes]]:
    """(row, place in the row, sha256 of query and document text) for every document of a ranking."""
    asked = [hashlib.sha256(query.text.encode("utf-8", "surrogatepass")).digest() for query in queries]
    told = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts]
    rows, columns = np.nonzero(head.docs >= 0)
    documents = head.docs[rows, columns].tolist()
    places = zip(rows.tolist(), columns.tolist(), documents, strict=True)
    return [(row, column, hashlib.sha256(asked[row] + told[doc]).digest()) for row, column, doc in places]
