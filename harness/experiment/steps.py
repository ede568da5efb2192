"""The steps of a retrieval experiment, in order: retrieve (cached), fuse, rerank (cached), gate, cut, score.

Only `retrieve` and `rerank` are slow. They load retrievers and models only on a cache miss. All other steps are array
arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.config.canonical import digest
from harness.config.components import build, component_identity, target_class
from harness.config.schema import Node
from harness.data.attributes import Slice, attributes_of, slices_by
from harness.data.dataset import Dataset
from harness.data.files import some
from harness.data.shards import missing_ids
from harness.errors import BadInput, Failed
from harness.experiment import sharded, timing
from harness.experiment.cached_parts import CachedEncoder, Caching
from harness.experiment.ordering import Ordered, order
from harness.experiment.plan import Plan
from harness.experiment.session import Session, cache_for
from harness.experiment.writing import LlmAnswers
from harness.gates.gate import Decision, Gate
from harness.gates.payoff import Payoff, payoffs
from harness.gates.signals import random_queries
from harness.llm.chat import Chat, ChatModel
from harness.measures.measures import MeasureFamily, requested
from harness.measures.objective import Objective, objective_of
from harness.measures.scores import Scores, ShownLists, averaged_scores, score_lists
from harness.measures.slices import SliceScore, slice_scores
from harness.progress import silent, watch
from harness.storage.cache import Cache
from harness.storage.kernels import compile_aside
from retrievers.base import IndexedTexts, Query, Ranking, load_array, row_blocks

if TYPE_CHECKING:
    from retrievers.base import Progress, Retriever

SEARCHED = 1 << 24  # queries × documents found at a time, to limit memory


class CachedInputs:
    """The `GateInputs` of a run, computed on demand. Slow results are cached."""

    def __init__(self, plan: Plan, rankings: Mapping[str, Ranking], session: Session) -> None:
        self.queries, self.conversations, self.rankings = session.queries, session.dataset.queries, rankings
        self._plan, self._session = plan, session
        self._dataset, self._cache = session.dataset, session.cache

    def tokens(self, texts: Sequence[str]) -> Sequence[Sequence[str]]:
        with watch("gate") as progress:
            terms: list[list[str]] = self._plan.made("tokenizer")(texts, progress).lists()
        return terms

    def texts(self, doc_ids: Sequence[str]) -> Sequence[str]:
        return [self._dataset.by_id[doc_id].indexed_text for doc_id in doc_ids]

    def background(self, source: str) -> tuple[Sequence[Query], Ranking]:
        retriever, session = {source: self._plan.retriever[source]}, self._session
        require_search(source, retriever[source], "The signal `background` searches for random queries")
        drawn = random_queries(IndexedTexts(self._dataset.documents), self.queries)
        elsewhere = Session(self._dataset, tuple(drawn), self._cache, timed="never", cluster=session.cluster)
        return drawn, retrieve(retriever, elsewhere, 1)[source]

    def remember(self, decides: Mapping[str, Any], compute: Callable[[], np.ndarray]) -> np.ndarray:
        signal_identity = {
            **decides,
            "tokenizer": component_identity(self._plan.tokenizer),
            "retriever": component_identity(self._plan.retriever[decides["source"]]),
            "documents": self._dataset.fingerprints["documents"],
        }

        def save(folder: Path) -> None:
            np.save(folder / "signal.npy", compute(), allow_pickle=False)

        cache = cache_for(self._plan.retriever[decides["source"]], self._cache)
        folder = cache.folder("signals", signal_identity, save)
        return np.array(load_array(folder, "signal"))

    def chat(self, model: ChatModel) -> Chat:
        return self._session.chat(model, "gate")

    def embeddings(self) -> np.ndarray:
        node, corpus = self._plan.encoder, str(self._dataset.fingerprints["documents"])
        with watch("gate") as progress:
            wrap = Caching(self._cache, corpus, progress)
            encoder = CachedEncoder(self._cache, node, lambda: build(node, wrap, "encoder"), corpus)
            documents = IndexedTexts(self._dataset.documents)
            learnt = encoder.documents(documents, progress) if encoder.learns else Path()
            return np.array(encoder.encode_queries([query.text for query in self.queries], learnt, progress), float)


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of one experiment. Every ranking has one row for each of `queries`, in the same order.

    rankings: name -> component ranking at `depth`.
    candidates: the fused and reranked documents, before the gate.
    final: the candidates after the gate, cut to top_k.
    scores: None without labels.
    held_out: mean scores over repetitions if fusion or gate learnt from labels, else None. Each query's
        documents are fused and gated by rules that were learnt without the query's label.
    measured: numbers that retrievers report, such as `index_recall/dense`, and `ms_per_query` with its range, in total
        and by component. The total is missing if the time of a component is unknown.
    objective: the score by which runs are compared; None if it has no value.
    fusion: the learnt rule as written to `fusion.json`; None if the fusion learnt nothing.
    slices: the objective's value in each slice; () unless `with_slices` added them.
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
    fusion: Mapping[str, Any] | None = None
    slices: tuple[SliceScore, ...] = ()


def run_steps(plan: Plan, session: Session) -> Outcome:
    """Run all steps, and write answers if the config asks for them. Raise Failed if the model writes no answer."""
    rankings = retrieve(plan.retriever, session, plan.depth)
    outcome = conclude(plan, rankings, session)
    if "answer" not in plan.active:
        return outcome
    answer: LlmAnswers = plan.made("answer")
    with session.clock.stage("answer", "writing answers"):
        chat, dataset = session.chat(answer.llm, "answers"), session.dataset
        return replace(outcome, answers=answer.answers(dataset.queries, outcome.final, dataset.by_id, chat))


def conclude(
    plan: Plan,
    rankings: Mapping[str, Ranking],
    session: Session,
    *,
    detailed: Collection[str] | None = None,
    ordered: Ordered | None = None,
) -> Outcome:
    """Fuse, rerank, gate, cut and score the component rankings.

    detailed: measures that also get an interval and scores of the public and private parts; None for all measures.
    ordered: the result of `order` for a plan with the same `Plan.order_key`; None to compute it.
    """
    again, ordered = ordered is not None, ordered or order(plan, rankings, session)
    candidates, learnt = ordered.candidates, ordered.learnt
    with session.clock.stage("gate", "deciding at the gate"):
        decision = decide(plan, rankings, ordered, session)
    final = candidates.cut(np.minimum(decision.shown, plan.top_k))
    scores = held_out = None
    if session.dataset.qrels:
        again |= decision.out_of_fold is not None
        scorer = partial(_scored, plan, session.dataset, rankings, detailed, candidates if again else None)
        with session.clock.stage("score", "scoring"):
            scores = scorer(candidates, decision.shown, decision.signal)
            if apart := [scorer(*lists) for lists in _held_out(ordered, decision)]:
                held_out = averaged_scores(apart, plan.split, detailed)
    measured = _measured(rankings, candidates, reranked="rerank" in plan.active)
    return Outcome(
        queries=session.queries,
        rankings=dict(rankings),
        candidates=candidates,
        decision=decision,
        final=final,
        scores=scores,
        held_out=held_out,
        measured=measured,
        objective=objective_of(plan.objective, scores, held_out, plan.split.select_on),
        fusion=learnt.fitted if learnt else None,
    )


def asked_slices(plan: Plan, dataset: Dataset, query_ids: Sequence[str] = ()) -> list[Slice]:
    """Return the slices of `query_ids` that the config asks for. Raise BadInput if it asks for unknown ones."""
    names, measure = plan.slices, plan.measure
    if not names:
        return []
    if measure.family is MeasureFamily.POOLED:
        raise BadInput(
            f"slices: {measure.name} has no value by query, so it has none in a slice. Choose another objective, "
            "such as objective=ndcg@10."
        )
    if plan.metrics and plan.objective not in plan.metrics:
        raise BadInput(f"slices: objective={plan.objective} is not among the metrics. Add it to metrics=[...].")
    return slices_by(names, attributes_of(dataset.queries, dataset.qrels), query_ids)


def with_slices(plan: Plan, dataset: Dataset, outcome: Outcome) -> Outcome:
    """Return the outcome with the objective's value in the slices that the config asks for.

    The values are of the same kind as the objective: out of fold if something was learnt, and of the public queries
    with select_on=public.
    """
    scores, name, split = outcome.scores, plan.objective, plan.split
    if scores is None or not plan.slices:
        return outcome
    read = outcome.held_out if outcome.held_out and name in outcome.held_out.values else scores
    counted = read.in_public if split.select_on == "public" else np.ones(len(read.query_ids), bool)
    slices = asked_slices(plan, dataset, read.query_ids)
    return replace(outcome, slices=slice_scores(read, name, slices, counted, split.seed))


def _held_out(ordered: Ordered, decision: Decision) -> list[tuple[Ranking, np.ndarray, np.ndarray | None]]:
    """Return (candidates, documents shown, signal) for each repeated split into folds.

    Return [] if nothing was learnt, or if there are too few labelled queries to hold any out.
    """
    learnt = ordered.learnt
    if decision.out_of_fold is None:
        return [(candidates, decision.shown, decision.signal) for candidates in learnt.held_out] if learnt else []
    assert decision.folds is not None
    orders = [learnt.crossed(fold) if learnt else ordered.candidates for fold in decision.folds]
    # Signals of different folds are not comparable, so none is returned.
    return [(candidates, shown, None) for candidates, shown in zip(orders, decision.out_of_fold, strict=True)]


def decide(plan: Plan, rankings: Mapping[str, Ranking], ordered: Ordered, session: Session) -> Decision:
    """Return the gate's decision. A gate that learns is first fitted to the labels."""
    gate: Gate = plan.made("gate")
    inputs = CachedInputs(plan, rankings, session)
    payoff = payoff_of(plan, plan.objective, ordered.candidates, session.dataset) if gate.learns else None
    if payoff and ordered.learnt:
        payoff = replace(payoff, unseen=ordered.learnt.unseen)
    return gate.decide(inputs, payoff)


def payoff_of(plan: Plan, objective: str, candidates: Ranking, dataset: Dataset) -> Payoff | None:
    """Return each query's objective if its first 0, 1, ... top_k candidates are shown; None without labels."""
    if not dataset.qrels:
        return None
    turns = dataset.conversations
    return payoffs(candidates, dataset.qrels, objective, plan.top_k, split=plan.split, multi_turn=turns)


def retrieve(retrievers: Mapping[str, Node], session: Session, depth: int) -> dict[str, Ranking]:
    """Return name -> component ranking at `depth`, with its time if known. Nothing is built for a cached ranking."""
    rankings = {}
    for name, node in retrievers.items():
        search = _Search(name, node, session)
        with session.clock.stage("retrieve", f"{name}: retrieving"):  # on a cache miss, also indexes and searches
            ranking = search.cache.ranking(search.identity, depth, search)
        rankings[name] = ranking.with_measured(dict(ranking.measured) | search.times(ranking, depth))
    return rankings


def index_identity(node: Node, dataset: Dataset) -> dict[str, Any]:
    """Return the identity of a retriever's index, or of all its indexes together if each shard has its own."""
    by_shards = sharded.cut_identity(node, sharded.shards_of(dataset.documents))
    return {"retriever": component_identity(node), "documents": dataset.fingerprints["documents"], **by_shards}


def index_size(node: Node, session: Session) -> int:
    """Return the size of a retriever's cached index in bytes; 0 without an index."""
    if shards := sharded.shards_for(node, sharded.shards_of(session.dataset.documents)):
        return sharded.Shards(node, shards, session.cache, session.cluster, silent).size()
    return cache_for(node, session.cache).size("indexes", index_identity(node, session.dataset)) or 0


def learnt_from(index: Mapping[str, Any]) -> str:
    """Return the fingerprint of the documents or passages that a retriever's encoder learns from."""
    documents, how = str(index["documents"]), cut_of(index)
    return digest([documents, how]) if how else documents


def cut_of(index: Mapping[str, Any]) -> Any:
    """Return how a retriever cuts documents into passages; None if it takes whole documents."""
    return index["retriever"]["arguments"].get("passages")


def ranking_identity(index: Mapping[str, Any], queries: str) -> dict[str, Any]:
    """Return the identity of a component ranking, without its depth. queries: the digest of the queries."""
    return {"index": index, "queries": queries}


def is_precomputed(node: Node) -> bool:
    """Return whether a retriever cannot search, but only has rankings made elsewhere for the dataset's queries."""
    return getattr(target_class(node, "retriever"), "precomputed", False)


def require_search(name: str, node: Node, why: str) -> None:
    """Raise BadInput if a retriever cannot search for new queries. why: the start of the message's first sentence."""
    if is_precomputed(node):
        raise BadInput(
            f"{why}, but retriever.{name} only has rankings made elsewhere, for the queries of its dataset. "
            "Choose a retriever that searches, such as retriever=bm25."
        )


def _require_contract(name: str, ranking: Ranking, queries: Sequence[Query], dataset: Dataset, depth: int) -> None:
    unknown = missing_ids(dataset.by_id, ranking.doc_ids)
    broken = {
        "rows that do not match the queries in number and order": ranking.query_ids
        != tuple(query.query_id for query in queries),
        f"{ranking.docs.shape[1]} documents, more than depth={depth}": ranking.docs.shape[1] > depth,
        f"documents that the dataset does not have: {some(unknown)}": bool(unknown),
    }
    for what, found in broken.items():
        if found:
            raise Failed(
                f"retriever.{name} returned {what}. `harness doctor retriever=...` shows which rules it breaks."
            )


def index_folder(retriever: Retriever, index: Mapping[str, Any], dataset: Dataset, cache: Cache) -> Path:
    """Return the cache folder of a retriever's index. On a cache miss, build the index."""

    def build_index(folder: Path) -> None:
        retriever.index(dataset.documents, folder)

    return cache.folder("indexes", index, build_index, getattr(type(retriever), "resumes", False))


class _Search:
    def __init__(self, name: str, node: Node, session: Session) -> None:
        self._name, self._node, self._session = name, node, session
        self.cache = cache_for(node, session.cache)
        self._index = index_identity(node, session.dataset)
        self._shards = sharded.shards_for(node, sharded.shards_of(session.dataset.documents))
        self.identity = ranking_identity(self._index, session.queries_digest)
        self._open: tuple[Any, Caching] | None = None
        self._computed = False

    def __call__(self, depth: int) -> Iterator[Ranking]:
        """Yield rankings of consecutive queries, so that memory does not grow with queries × documents."""
        compile_aside()  # kernels that a large index needs; meanwhile, texts are tokenized
        queries, dataset = self._session.queries, self._session.dataset
        shape = len(queries), min(depth, len(dataset.documents))
        with watch(self._name) as progress:
            with self._session.clock.stage("index", f"{self._name}: building the index"):
                searchable = self._over_shards(progress) if self._shards else self._opened(progress)[0]
            with self._session.clock.stage("search", f"{self._name}: searching"):
                self._computed = True
                for part in [*row_blocks(shape, SEARCHED)] or [slice(0)]:
                    ranking: Ranking = searchable.search(queries[part], depth)
                    _require_contract(self._name, ranking, queries[part], dataset, depth)
                    yield ranking

    def times(self, ranking: Ranking, depth: int) -> dict[str, float]:
        """Return metric -> time per query; {} if unknown, and for shards, since cluster nodes differ in speed."""
        if getattr(target_class(self._node, "retriever"), "times_itself", False):
            return {timing.MS: ranking.measured[timing.LATENCY]} if timing.LATENCY in ranking.measured else {}
        queries, depth = self._session.queries, self.cache.ranking_depth(self.identity, depth) or depth
        if not queries or is_precomputed(self._node) or self._shards:
            return {}

        def measure() -> timing.Timing:
            with watch(self._name) as progress:
                retriever, cached = self._opened(progress)

            def search(rows: Sequence[int]) -> int:
                retriever.search([queries[row] for row in rows], depth)
                return len(rows)

            retriever.progress, retriever.timed = None, True
            with cached.bypassed():
                return timing.timed_part(search, len(queries))

        about = timing.subject({"ranking": self.identity, "depth": depth}, self._node)
        computed = self._computed and self._open is not None and self._open[1].loaded
        found = self._session.time_of(self.cache, about, computed, measure)
        return found.measured() if found else {}

    def _over_shards(self, progress: Progress) -> sharded.Shards:
        session = self._session
        shards = sharded.Shards(self._node, self._shards, session.cache, session.cluster, progress)
        shards.index()
        return shards

    def _opened(self, progress: Progress) -> tuple[Any, Caching]:
        if self._open is None:
            wrap = Caching(self._session.cache, learnt_from(self._index), progress)
            retriever = build(self._node, wrap, f"retriever.{self._name}")
            retriever.progress = progress
            retriever.load(index_folder(retriever, self._index, self._session.dataset, self.cache))
            self._open = retriever, wrap
        return self._open


def _scored(
    plan: Plan,
    dataset: Dataset,
    rankings: Mapping[str, Ranking],
    detailed: Collection[str] | None,
    shared: Ranking | None,
    candidates: Ranking,
    shown: np.ndarray,
    signal: np.ndarray | None,
) -> Scores:
    assert dataset.qrels is not None
    lengths = np.minimum(shown, plan.top_k)
    lists = ShownLists(
        final=candidates.cut(lengths),
        deep=candidates.where(shown > 0),
        candidates=candidates,
        keep=shown > 0,
        signal=signal,
        rankings=rankings,
        top_k=plan.top_k,
        lengths=lengths if candidates is shared else None,
    )
    turns = dataset.conversations
    names = requested(plan.metrics, dataset.qrels, plan.top_k)
    return score_lists(lists, dataset.qrels, names, split=plan.split, multi_turn=turns, detailed=detailed)


def _measured(rankings: Mapping[str, Ranking], candidates: Ranking, reranked: bool) -> dict[str, float]:
    parts = {name: ranking.measured for name, ranking in rankings.items()}
    if reranked:
        parts["rerank"] = candidates.measured
    found = {f"{key}/{name}": value for name, measured in parts.items() for key, value in measured.items()}
    for key in (timing.HIGH, timing.LOW, timing.MS):
        if all(key in measured for measured in parts.values()):
            found = {key: sum(measured[key] for measured in parts.values()), **found}
    return found
