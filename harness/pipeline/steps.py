"""The steps of a retrieval experiment, in order: retrieve (cached), fuse, rerank (cached), gate, cut, score.

Only `retrieve` and `rerank` are slow, and their results are cached by content: retrievers and models are loaded on a
miss alone. Everything else is array arithmetic.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.config.canonical import digest
from harness.config.components import build, identity, target_class
from harness.data.dataset import Dataset, conversations
from harness.data.files import some
from harness.evaluation.measures import check_labels, parse, requested
from harness.evaluation.objective import Objective, objective_of
from harness.evaluation.scores import Scores, ShownLists, averaged, score
from harness.gates.gate import Decision, Gate
from harness.gates.payoff import Payoff, fixed_mean, payoffs
from harness.pipeline import timing
from harness.pipeline.answering import LlmAnswers
from harness.pipeline.cache import Cache
from harness.pipeline.cached_parts import Caching
from harness.pipeline.gate_inputs import CachedInputs
from harness.pipeline.run_config import Node, RunConfig
from harness.pipeline.session import Session, cache_for
from harness.progress import watch
from retrievers.base import BadInput, Failed, Qrels, Query, Ranking

if TYPE_CHECKING:
    from retrievers.base import Progress, Reranker, Retriever

# Called with positions; yields (some of these positions, their numbers) as they become known.
Answer = Callable[[Sequence[int]], Iterator[tuple[np.ndarray, np.ndarray]]]


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of one experiment. All rankings have the rows of `queries`.

    rankings: name -> component ranking at `depth`.
    candidates: fused and reranked, before the gate.
    final: gated and cut to top_k.
    scores: None where the dataset has no labels.
    held_out: scores with every query decided by a gate that has not seen its label, averaged over repetitions; None
        unless the gate was fitted to the labels.
    measured: what retrievers report about themselves, such as `index_recall/dense`; and the time of searching and
        reranking on this machine, in all and for each component: `ms_per_query`, with its least and greatest value. A
        component that this machine has not timed is left out, and with it the time in all.
    objective: what ranks the run; None where it has no value.
    answers: to the queries, for the submission; None without them.
    """

    queries: tuple[Query, ...]
    rankings: dict[str, Ranking]
    candidates: Ranking
    decision: Decision
    final: Ranking
    scores: Scores | None
    held_out: Scores | None
    measured: dict[str, float]
    objective: Objective | None = None
    answers: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Ordering:
    """What decides the order of the candidates once the component rankings are there."""

    fusion: Node
    rerank: Node
    depth: int

    @classmethod
    def of(cls, config: RunConfig) -> Ordering:
        return cls(config.fusion, config.rerank, config.depth)


def check(config: RunConfig, qrels: Qrels | None) -> None:
    """BadInput for measures and gates that cannot work, before anything is computed or logged."""
    for name in (names := [*config.metrics, config.objective]):
        parse(name)
    if qrels is not None:
        check_labels(names, qrels)
    check_gate(config, qrels is not None)


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
    return answered(config, conclude(config, rankings, session), session)


def answered(config: RunConfig, outcome: Outcome, session: Session) -> Outcome:
    """The outcome with the answers that the config asks for. Failed where the language model writes none."""
    if "answer" not in config.active:
        return outcome
    answer: LlmAnswers = build(config.answer, where="answer")
    with session.clock.stage("answer", "writing answers"):
        chat, dataset = session.chat(answer.llm, "answers"), session.dataset
        return replace(outcome, answers=answer.answers(dataset.queries, outcome.final, dataset.by_id, chat))


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
                held_out = averaged([scorer(shown, None) for shown in decision.out_of_fold], config.split, detailed)
    measured = _measured(rankings, candidates, reranked="rerank" in config.active)
    ranked_by = objective_of(config.objective, scores, held_out, config.split.select_on)
    return Outcome(session.queries, dict(rankings), candidates, decision, final, scores, held_out, measured, ranked_by)


def decide(config: RunConfig, rankings: Mapping[str, Ranking], candidates: Ranking, session: Session) -> Decision:
    """The decision of the gate, which learns from the labels first where it learns."""
    gate: Gate = build(config.gate, where="gate")
    payoff = payoff_of(config, config.objective, candidates, session.dataset) if gate.learns else None

    def search(source: str, queries: Sequence[Query]) -> Ranking:
        require_search(source, config.retriever[source], "The signal background searches for random queries")
        elsewhere = Session(session.dataset, tuple(queries), session.cache, timed="never")
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
    """name -> component ranking of the queries at `depth`, with its time if this machine has measured it.

    Nothing is built for a ranking that is cached.
    """
    rankings = {}
    for name, node in retrievers.items():
        search = _Search(name, node, session)
        with session.clock.stage("retrieve", f"{name}: retrieving"):  # contains index and search, unless it is cached
            ranking = search.cache.ranking(search.identity, depth, search)
        measured = {key: value for key, value in ranking.measured.items() if key != timing.MS}  # of earlier versions
        rankings[name] = replace(ranking, measured=measured | search.times(ranking, depth))
    return rankings


def index_identity(node: Node, dataset: Dataset) -> dict[str, Any]:
    """What decides a retriever's index."""
    return {"retriever": identity(node), "documents": dataset.fingerprints["documents"]}


def learnt_from(index: Mapping[str, Any]) -> str:
    """Fingerprint of the texts that an encoder in a retriever learns from: the documents, or their passages."""
    documents, how = str(index["documents"]), cut(index)
    return digest([documents, how]) if how else documents


def cut(index: Mapping[str, Any]) -> Any:
    """How a retriever cuts documents into passages; None if it encodes or indexes them as they are."""
    return index["retriever"]["arguments"].get("passages")


def ranking_identity(index: Mapping[str, Any], queries: str) -> dict[str, Any]:
    """What decides a component ranking, beside its depth. queries: their digest."""
    return {"index": index, "queries": queries}


def is_precomputed(node: Node) -> bool:
    """Whether a retriever's rankings were made elsewhere, for the queries of the dataset alone."""
    return getattr(target_class(node, "retriever"), "precomputed", False)


def require_search(name: str, node: Node, why: str) -> None:
    """BadInput for a retriever that cannot search for new queries. why: a sentence without its end."""
    if is_precomputed(node):
        raise BadInput(
            f"{why}, but retriever.{name} only has rankings made elsewhere, for the queries of its dataset. "
            "Choose a retriever that searches, such as retriever=bm25."
        )


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

        return session.cache.pairs(identity(node), keys, noted)

    result = reranked(reranker, answers, candidates, session.dataset, session.queries)
    if result is candidates:
        return candidates
    data = {"documents": session.dataset.fingerprints["documents"], "queries": session.queries_digest}
    about = timing.subject({"pairs": identity(node), **data}, node)
    pairs = int(np.minimum(candidates.lengths, reranker.depth).sum())

    def score(rows: Sequence[int]) -> int:
        head = _pairs(candidates.top(reranker.depth), session.dataset, session.queries, rows)
        deque(reranker.score(head), maxlen=0)
        return len(head)

    each = _timed(session, session.cache, about, computed, lambda: timing.measure(score, len(session.queries)))
    return replace(result, measured=each.times(pairs / len(session.queries)).measured() if each else {})


def _pairs(head: Ranking, dataset: Dataset, queries: Sequence[Query], rows: Sequence[int]) -> list[tuple[str, str]]:
    """(query, document text) for every document of some rows."""
    return [(queries[row].text, dataset.by_id[doc_id].indexed_text) for row in rows for doc_id, _ in head.row(row)]


def _timed(
    session: Session, cache: Cache, about: Mapping[str, Any], computed: bool, measure: Callable[[], timing.Timing]
) -> timing.Timing | None:
    """The time of something on this machine, measured where `session.timed` says so; None if it is unknown.

    cache: where the thing is cached. computed: whether it was computed just now.
    """
    if session.timed == "never":
        return None
    found = timing.known(cache, about)
    if found is None and (computed or session.timed == "always"):
        with session.clock.stage("timing", "timing queries"):
            found = measure()
        timing.remember(cache, about, found)
    return found


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


def _require_contract(name: str, ranking: Ranking, session: Session, depth: int) -> None:
    """Failed where a retriever, which may be of somebody else's, has not returned what the others build upon."""
    unknown = [doc_id for doc_id in ranking.doc_ids if doc_id not in session.dataset.by_id]
    broken = {
        "other rows than one for each query, in their order": ranking.query_ids
        != tuple(query.query_id for query in session.queries),
        f"{ranking.docs.shape[1]} documents, more than depth={depth}": ranking.docs.shape[1] > depth,
        f"documents that the dataset does not have: {some(unknown)}": bool(unknown),
    }
    for what, found in broken.items():
        if found:
            raise Failed(
                f"retriever.{name} returned {what}. `harness doctor retriever=...` examines a retriever rule by rule."
            )


def index_folder(retriever: Retriever, index: Mapping[str, Any], dataset: Dataset, cache: Cache) -> Path:
    """The folder of a retriever's index in the cache, built on a miss."""

    def build_index(folder: Path) -> None:
        retriever.index(dataset.documents, folder)

    return cache.folder("indexes", index, build_index, getattr(type(retriever), "resumes", False))


class _Search:
    """The search of one retriever for the queries of a session; called with a depth, it returns the ranking."""

    def __init__(self, name: str, node: Node, session: Session) -> None:
        self._name, self._node, self._session = name, node, session
        self.cache = cache_for(node, session.cache)
        self._index = index_identity(node, session.dataset)
        self.identity = ranking_identity(self._index, session.queries_digest)
        self._open: tuple[Any, Caching] | None = None
        self._computed = False

    def __call__(self, depth: int) -> Ranking:
        with watch(self._name) as progress:
            with self._session.clock.stage("index", f"{self._name}: building the index"):
                retriever, _ = self._opened(progress)
            with self._session.clock.stage("search", f"{self._name}: searching"):
                self._computed = True
                ranking: Ranking = retriever.search(self._session.queries, depth)
        _require_contract(self._name, ranking, self._session, depth)
        return ranking

    def times(self, ranking: Ranking, depth: int) -> dict[str, float]:
        """The time of a query, {} if it is unknown: on this machine, or as the retriever itself measured it.

        depth: at which `ranking` is cached now.
        """
        if getattr(target_class(self._node, "retriever"), "times_itself", False):
            return {timing.MS: ranking.measured[timing.LATENCY]} if timing.LATENCY in ranking.measured else {}
        queries, depth = self._session.queries, self.cache.ranking_depth(self.identity, depth) or depth
        if not queries or is_precomputed(self._node):
            return {}

        def measure() -> timing.Timing:
            with watch(self._name) as progress:
                retriever, cached = self._opened(progress)

            def search(rows: Sequence[int]) -> int:
                retriever.search([queries[row] for row in rows], depth)
                return len(rows)

            retriever.progress, retriever.timed = None, True
            with cached.bypassed():
                return timing.measure(search, len(queries))

        about = timing.subject({"ranking": self.identity, "depth": depth}, self._node)
        computed = self._computed and self._open is not None and self._open[1].loaded
        found = _timed(self._session, self.cache, about, computed, measure)
        return found.measured() if found else {}

    def _opened(self, progress: Progress) -> tuple[Any, Caching]:
        """The retriever, its index built or taken from the cache, and what caches its tokens and embeddings."""
        if self._open is None:
            wrap = Caching(self._session.cache, learnt_from(self._index), progress)
            retriever = build(self._node, wrap, f"retriever.{self._name}")
            retriever.progress = progress
            retriever.load(index_folder(retriever, self._index, self._session.dataset, self.cache))
            self._open = retriever, wrap
        return self._open


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
    names = requested(config.metrics, dataset.qrels, config.top_k)
    return score(lists, dataset.qrels, names, split=config.split, multi_turn=turns, detailed=detailed)


def _measured(rankings: Mapping[str, Ranking], candidates: Ranking, reranked: bool) -> dict[str, float]:
    """What was measured, by component, and the times in all if every component has one."""
    parts = {name: ranking.measured for name, ranking in rankings.items()}
    if reranked:
        parts["rerank"] = candidates.measured
    found = {f"{key}/{name}": value for name, measured in parts.items() for key, value in measured.items()}
    for key in (timing.HIGH, timing.LOW, timing.MS):
        if all(key in measured for measured in parts.values()):
            found = {key: sum(measured[key] for measured in parts.values()), **found}
    return found


def _pair_keys(queries: Sequence[Query], texts: Sequence[str], head: Ranking) -> list[tuple[int, int, bytes]]:
    """(row, place in the row, sha256 of query and document text) for every document of a ranking."""
    of_queries = [hashlib.sha256(query.text.encode("utf-8", "surrogatepass")).digest() for query in queries]
    of_texts = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts]
    rows, columns = np.nonzero(head.docs >= 0)
    documents = head.docs[rows, columns].tolist()
    places = zip(rows.tolist(), columns.tolist(), documents, strict=True)
    return [(row, column, hashlib.sha256(of_queries[row] + of_texts[doc]).digest()) for row, column, doc in places]
