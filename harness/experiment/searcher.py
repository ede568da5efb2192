"""Search for new queries exactly as a run did, and keep the pipeline loaded.

Nothing about a query is cached. Several threads may search at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from harness.config.components import build
from harness.config.schema import Node
from harness.data.dataset import Dataset, search_queries
from harness.data.shards import Shard
from harness.errors import BadInput
from harness.experiment import ordering, sharded, steps
from harness.experiment.cached_parts import CachedEncoder, Caching
from harness.experiment.plan import Plan
from harness.experiment.session import cache_for
from harness.gates.gate import Decision, Gate
from harness.llm.chat import Chat, ChatModel
from harness.progress import watch
from harness.storage.cache import Cache
from retrievers.base import Document, IndexedTexts, Query, Ranking

if TYPE_CHECKING:
    from retrievers.base import Reranker, Retriever
    from retrievers.dense.encoders import Encoder
    from retrievers.lexical.tokenize import Tokenizer


class Found(NamedTuple):
    """Results of a search.

    candidates: the fused and reranked documents, before the gate. final: the candidates after the gate, cut to top_k.
    """

    queries: tuple[Query, ...]
    candidates: Ranking
    decision: Decision
    final: Ranking


class Searcher:
    """Finds the same documents and scores for a query as a run with this plan and dataset.

    Raise BadInput if the plan's gate or fusion learns. The last digits of a model's scores may depend on which queries
    are searched in one batch.

    cache: missing entries are built, unless the cache is sealed. folders: the cache entries that were read.
    drawn: a function that returns the random queries for the signal `background`; they depend on the run's queries.
    """

    def __init__(self, plan: Plan, dataset: Dataset, cache: Cache, drawn: Callable[[], Sequence[Query]]) -> None:
        plan.check_learning(labelled=False)
        for name, node in plan.retriever.items():
            steps.require_search(name, node, "A search takes new queries")
        self._plan, self._dataset, self._drawn = plan, dataset, drawn
        self.folders: list[Path] = []
        self._retrievers = {name: self._retriever(name, node, cache) for name, node in plan.retriever.items()}
        self._reranker: Reranker = plan.made("rerank")
        self._gate: Gate = plan.made("gate")
        if "tokenizer" in self._gate.parts:
            self.tokenizer: Tokenizer = plan.made("tokenizer")
        if "encoder" in self._gate.parts:
            self.encoder: Encoder = plan.made("encoder")
            self.learnt = self._learnt_folder(cache)
        self._backgrounds: dict[str, tuple[Sequence[Query], Ranking]] = {}

    @property
    def documents(self) -> Mapping[str, Document]:
        return self._dataset.by_id

    def search(self, conversations: Sequence[Query]) -> Found:
        """Return the documents and the gate's decision for each query. A model that writes queries is asked every time.

        Raise BadInput for an empty query, and Failed if the model writes no query. `conversations` have unique ids.
        """
        queries = self._searched(tuple(conversations))
        rankings, candidates = self._ranked(queries)
        decision = self._gate.decide(LiveInputs(self, queries, tuple(conversations), rankings))
        final = candidates.cut(np.minimum(decision.shown, self._plan.top_k))
        return Found(queries, candidates, decision, final)

    def warm(self) -> None:
        """Load and compile everything except the gate, so that the first query need not wait."""
        first = next((document.indexed_text for document in self._dataset.documents), "")
        self._ranked((Query.of("first", first[:100]),))

    def _searched(self, conversations: tuple[Query, ...]) -> tuple[Query, ...]:
        rule = self._plan.query_text
        if rule == "file" and any(len(query.turns) > 1 for query in conversations):
            raise BadInput(
                "The run searched for queries rewritten elsewhere (query.text=file). Rewrite this conversation in the "
                "same way and send it as a single query."
            )
        plain = "user_turns" if rule == "file" or self._plan.writer else rule
        searched = search_queries(Dataset("", (), conversations, None), plain)
        for query in searched:
            if not query.text.strip():
                raise BadInput(f"{query.query_id}: the query is empty. Give the text to search for.")
        if self._plan.writer:
            return self._plan.writer.queries(conversations, Chat(self._plan.made("llm"), None))
        return searched

    def _ranked(self, queries: tuple[Query, ...]) -> tuple[dict[str, Ranking], Ranking]:
        depth = self._plan.depth
        rankings = {name: retriever.search(queries, depth) for name, retriever in self._retrievers.items()}
        fused = ordering.fuse(self._plan, rankings)
        return rankings, ordering.reranked(self._reranker, computed, fused, self._dataset, queries)

    def background(self, source: str) -> tuple[Sequence[Query], Ranking]:
        """Return the random queries and their ranking by the retriever `source`. The ranking is kept in memory."""
        if source not in self._backgrounds:  # two threads may compute the same ranking at once
            drawn = tuple(self._drawn())
            self._backgrounds[source] = drawn, self._retrievers[source].search(drawn, 1)
        return self._backgrounds[source]

    def _retriever(self, name: str, node: Node, cache: Cache) -> Retriever | sharded.Opened:
        index, where = steps.index_identity(node, self._dataset), f"retriever.{name}"
        if shards := sharded.shards_for(node, sharded.shards_of(self._dataset.documents)):
            return self._over_shards(name, node, shards, cache)
        with watch(name) as progress:
            builder = build(node, Caching(cache, steps.learnt_from(index), progress), where)
            builder.progress = progress
            self.folders.append(steps.index_folder(builder, index, self._dataset, cache_for(node, cache)))
        retriever: Retriever = build(node, where=where)
        retriever.load(self.folders[-1])
        return retriever

    def _over_shards(self, name: str, node: Node, documents: Sequence[Shard], cache: Cache) -> sharded.Opened:
        with watch(name) as progress:
            shards = sharded.Shards(node, documents, cache, self._plan.workers, progress)
            shards.index()
        opened = shards.opened(f"retriever.{name}")
        self.folders += opened.folders
        return opened

    def _learnt_folder(self, cache: Cache) -> Path:
        node, corpus = self._plan.encoder, str(self._dataset.fingerprints["documents"])
        encoder = CachedEncoder(cache, node, lambda: build(node, where="encoder"), corpus)
        if not encoder.learns:
            return Path()
        with watch("gate") as progress:
            self.folders.append(encoder.documents(IndexedTexts(self._dataset.documents), progress))
        return self.folders[-1]


@dataclass(frozen=True, eq=False)
class LiveInputs:
    """The `GateInputs` of new queries. Nothing is cached."""

    searcher: Searcher
    queries: tuple[Query, ...]
    conversations: tuple[Query, ...]
    rankings: Mapping[str, Ranking]

    def tokens(self, texts: Sequence[str]) -> Sequence[Sequence[str]]:
        return self.searcher.tokenizer(texts).lists()

    def texts(self, doc_ids: Sequence[str]) -> Sequence[str]:
        return [self.searcher.documents[doc_id].indexed_text for doc_id in doc_ids]

    def background(self, source: str) -> tuple[Sequence[Query], Ranking]:
        return self.searcher.background(source)

    def remember(self, decides: Mapping[str, Any], compute: Callable[[], np.ndarray]) -> np.ndarray:
        return compute()

    def chat(self, model: ChatModel) -> Chat:
        return Chat(model, None)

    def embeddings(self) -> np.ndarray:
        texts = [query.text for query in self.queries]
        return np.array(self.searcher.encoder.encode_queries(texts, self.searcher.learnt), float)


def computed(keys: Sequence[bytes], compute: ordering.Answer) -> np.ndarray:
    """Return one value per key, as `Cache.pairs` does, but without a cache."""
    results = np.zeros(len(keys))
    for places, values in compute(range(len(keys))):
        results[places] = values
    return results
