"""Searching for new queries as a run searched for its own: the road of harness/pipeline/steps.py, held ready.

Indexes and models are loaded once. Nothing about a query is kept, and several threads may ask at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from harness.config.components import build, target_class
from harness.data.dataset import Dataset, search_queries
from harness.gates.gate import Decision, Gate
from harness.gates.signals import Answer
from harness.pipeline import steps
from harness.pipeline.cache import Cache
from harness.pipeline.cached_parts import CachedEncoder, caching
from harness.pipeline.run_config import RunConfig
from harness.progress import watch
from retrievers.base import BadInput, Document, Query, Ranking

if TYPE_CHECKING:
    from retrievers.base import Reranker, Retriever
    from retrievers.dense.encoders import Encoder
    from retrievers.lexical.tokenize import Tokenizer


class Found(NamedTuple):
    """What was found for Q queries, in their order.

    candidates: fused and reranked, before the gate. final: gated and cut to top_k.
    """

    queries: tuple[Query, ...]
    candidates: Ranking
    decision: Decision
    final: Ranking


class Searcher:
    """Answers as a run with this config and these documents does: with the same ids and scores, query by query.

    config: a checked run config whose gate learns nothing (else BadInput); what a run learnt is applied by
    gate=fitted. store: what is missing there is built, unless it is sealed. drawn: the random queries that the gate's
    signal `background` compares with; they depend on the queries of the run.
    folders: what was taken from the store.

    Models compute a query in one batch with those it comes with, which may change the last digits of its scores.
    """

    def __init__(self, config: RunConfig, dataset: Dataset, cache: Cache, drawn: Callable[[], Sequence[Query]]) -> None:
        steps.check_gate(config, labelled=False)
        self._config, self._dataset, self._drawn = config, dataset, drawn
        self.folders: list[Path] = []
        self._retrievers = {name: self._retriever(name, node, cache) for name, node in config.retriever.items()}
        self._reranker: Reranker = build(config.rerank, where="rerank")
        self._gate: Gate = build(config.gate, where="gate")
        if "tokenizer" in self._gate.parts:
            self._tokenizer: Tokenizer = build(config.tokenizer, where="tokenizer")
        if "encoder" in self._gate.parts:
            self._encoder: Encoder = build(config.encoder, where="encoder")
            self._learnt = self._learnt_folder(cache)
        self._backgrounds: dict[str, tuple[Sequence[Query], Ranking]] = {}

    @property
    def documents(self) -> Mapping[str, Document]:
        """doc_id -> document."""
        return self._dataset.by_id

    def search(self, conversations: Sequence[Query]) -> Found:
        """The documents and the gate's decision for each query (unique query_ids); BadInput for what none can be."""
        queries = self._searched(tuple(conversations))
        rankings, candidates = self._ranked(queries)
        decision = self._gate.decide(LiveInputs(self, queries, tuple(conversations), rankings))
        final = candidates.cut(np.minimum(decision.shown, self._config.top_k))
        return Found(queries, candidates, decision, final)

    def warm(self) -> None:
        """Load and compile what the first query would wait for; no gate is asked."""
        first = next((document.indexed_text for document in self._dataset.documents), "")
        self._ranked((Query.of("first", first[:100]),))

    def _searched(self, conversations: tuple[Query, ...]) -> tuple[Query, ...]:
        rule = self._config.query_text
        if rule == "file" and any(len(query.turns) > 1 for query in conversations):
            raise BadInput(
                "The run searched for queries that were rewritten elsewhere (query.text=file). Rewrite the "
                "conversation likewise, and send it as one query."
            )
        found = search_queries(Dataset("", (), conversations, None), "user_turns" if rule == "file" else rule)
        for query in found:
            if not query.text.strip():
                raise BadInput(f"{query.query_id}: the query is empty. Give the text to search for.")
        return found

    def _ranked(self, queries: tuple[Query, ...]) -> tuple[dict[str, Ranking], Ranking]:
        """The raw rankings, and the one that is gated and cut."""
        depth = self._config.depth
        rankings = {name: retriever.search(queries, depth) for name, retriever in self._retrievers.items()}
        fused = steps.fuse(self._config.fusion, rankings, depth)
        return rankings, steps.reranked(self._reranker, computed, fused, self._dataset, queries)

    def tokens(self, texts: Sequence[str]) -> Sequence[Sequence[str]]:
        """The terms of each text; only if the gate reads tokens."""
        return self._tokenizer(texts).lists()

    def embeddings(self, texts: Sequence[str]) -> np.ndarray:
        """Embeddings of texts as queries, float64 [n, D]; only if the gate reads embeddings."""
        return np.array(self._encoder.encode_queries(texts, self._learnt), float)

    def background(self, source: str) -> tuple[Sequence[Query], Ranking]:
        """The random queries and how the retriever `source` ranks documents for them, searched once."""
        if source not in self._backgrounds:  # if two threads find it missing, both compute the same
            drawn = tuple(self._drawn())
            self._backgrounds[source] = drawn, self._retrievers[source].search(drawn, 1)
        return self._backgrounds[source]

    def _retriever(self, name: str, node: Mapping[str, Any], cache: Cache) -> Retriever:
        """One that keeps nothing, on the index that one which keeps its parts has left in the store or leaves now."""
        index, where = steps.index_identity(node, self._dataset), f"retriever.{name}"
        with watch(name) as progress:
            builder = build(node, caching(cache, str(index["documents"]), progress), where)
            builder.progress = progress
            self.folders.append(steps.index_folder(builder, index, self._dataset, cache))
        retriever: Retriever = build(node, where=where)
        retriever.load(self.folders[-1])
        return retriever

    def _learnt_folder(self, cache: Cache) -> Path:
        """What the gate's encoder has learnt from the documents; one that learns nothing reads no folder."""
        node, corpus = self._config.encoder, str(self._dataset.fingerprints["documents"])
        if not getattr(target_class(node, "encoder"), "learns", False):
            return Path()
        with watch("gate") as progress:
            kept = CachedEncoder(cache, node, lambda: build(node, where="encoder"), corpus)
            texts = [document.indexed_text for document in self._dataset.documents]
            self.folders.append(kept.documents(texts, progress))
        return self.folders[-1]


class LiveInputs:
    """The `GateInputs` of new queries; nothing is cached.

    searcher: provides the loaded models and the documents.
    queries, conversations, rankings: as in `GateInputs`.
    """

    def __init__(
        self,
        searcher: Searcher,
        queries: tuple[Query, ...],
        conversations: tuple[Query, ...],
        rankings: Mapping[str, Ranking],
    ) -> None:
        self._searcher = searcher
        self.queries, self.conversations, self.rankings = queries, conversations, rankings

    def tokens(self, texts: Sequence[str]) -> Sequence[Sequence[str]]:
        return self._searcher.tokens(texts)

    def texts(self, doc_ids: Sequence[str]) -> Sequence[str]:
        return [self._searcher.documents[doc_id].indexed_text for doc_id in doc_ids]

    def background(self, source: str) -> tuple[Sequence[Query], Ranking]:
        return self._searcher.background(source)

    def remember(self, decides: Mapping[str, Any], compute: Callable[[], np.ndarray]) -> np.ndarray:
        return compute()

    def answers(self, decides: Mapping[str, Any], keys: Sequence[bytes], compute: Answer) -> np.ndarray:
        return computed(keys, compute)

    def embeddings(self) -> np.ndarray:
        return self._searcher.embeddings([query.text for query in self.queries])


def computed(keys: Sequence[bytes], compute: Answer) -> np.ndarray:
    """float64 [n]: the number that `compute` yields for each key. Like `Cache.pairs`, but without a cache."""
    numbers = np.zeros(len(keys))
    for places, values in compute(range(len(keys))):
        numbers[places] = values
    return numbers
