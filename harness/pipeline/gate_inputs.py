"""What gates read beyond the rankings: computed when a gate asks for it, and cached."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.config.components import build, identity, target_class
from harness.data.shards import IndexedTexts
from harness.gates.signals import random_queries
from harness.llm.chat import Chat, ChatModel
from harness.pipeline.cached_parts import CachedEncoder, Caching
from harness.pipeline.plan import Plan
from harness.pipeline.session import Session, cache_for
from harness.progress import watch
from retrievers.base import Query, Ranking

Search = Callable[[str, Sequence[Query]], Ranking]  # (name of a retriever, queries) -> their first documents


class CachedInputs:
    """The `GateInputs` of a run; everything slow is cached on disk. Creating one computes nothing.

    rankings: name -> component ranking.
    search: ranks documents for other queries, with the run's retrievers.
    """

    def __init__(self, plan: Plan, rankings: Mapping[str, Ranking], session: Session, search: Search) -> None:
        self.queries, self.conversations, self.rankings = session.queries, session.dataset.queries, rankings
        self._config, self._session, self._search = plan, session, search
        self._dataset, self._cache = session.dataset, session.cache

    def tokens(self, texts: Sequence[str]) -> Sequence[Sequence[str]]:
        with watch("gate") as progress:
            terms: list[list[str]] = build(self._config.tokenizer, where="tokenizer")(texts, progress).lists()
        return terms

    def texts(self, doc_ids: Sequence[str]) -> Sequence[str]:
        return [self._dataset.by_id[doc_id].indexed_text for doc_id in doc_ids]

    def background(self, source: str) -> tuple[Sequence[Query], Ranking]:
        drawn = random_queries(IndexedTexts(self._dataset.documents), self.queries)
        return drawn, self._search(source, drawn)

    def remember(self, decides: Mapping[str, Any], compute: Callable[[], np.ndarray]) -> np.ndarray:
        signal_identity = {
            **decides,
            "tokenizer": identity(self._config.tokenizer),
            "retriever": identity(self._config.retriever[decides["source"]]),
            "documents": self._dataset.fingerprints["documents"],
        }

        def save(folder: Path) -> None:
            np.save(folder / "signal.npy", compute(), allow_pickle=False)

        cache = cache_for(self._config.retriever[decides["source"]], self._cache)
        folder = cache.folder("signals", signal_identity, save)
        signal: np.ndarray = np.load(folder / "signal.npy", allow_pickle=False)
        return signal

    def chat(self, model: ChatModel) -> Chat:
        return self._session.chat(model, "gate")

    def embeddings(self) -> np.ndarray:
        node, corpus = self._config.encoder, str(self._dataset.fingerprints["documents"])
        with watch("gate") as progress, tempfile.TemporaryDirectory() as name:
            wrap = Caching(self._cache, corpus, progress)
            encoder = CachedEncoder(self._cache, node, lambda: build(node, wrap, "encoder"), corpus)
            if getattr(target_class(node, "encoder"), "learns", False):
                encoder.encode_documents(IndexedTexts(self._dataset.documents), Path(name), progress)
            return np.array(encoder.encode_queries([query.text for query in self.queries], Path(name), progress), float)
