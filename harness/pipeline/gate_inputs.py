"""What gates look at, beyond the rankings: made when a gate asks for it, and kept in the store."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.config.components import build, identity, target_class
from harness.data.dataset import Dataset
from harness.gates.signals import GateInputs, random_queries
from harness.pipeline.cache import Cache
from harness.pipeline.cached_parts import CachedEncoder, caching
from harness.progress import watch
from retrievers.base import Query, Ranking

Search = Callable[[str, Sequence[Query]], Ranking]  # (name of a retriever, queries) -> their first documents


def gate_inputs(
    config: Mapping[str, Any],
    rankings: Mapping[str, Ranking],
    dataset: Dataset,
    queries: tuple[Query, ...],
    cache: Cache,
    search: Search,
) -> GateInputs:
    """The evidence of a run. Nothing slow is done here."""

    def tokens(texts: Sequence[str]) -> Sequence[Sequence[str]]:
        with watch("gate") as progress:
            found: list[list[str]] = build(config["tokenizer"], where="tokenizer")(texts, progress).lists()
        return found

    def texts(doc_ids: Sequence[str]) -> list[str]:
        return [dataset.by_id[doc_id].indexed_text for doc_id in doc_ids]

    def background(source: str) -> tuple[Sequence[Query], Ranking]:
        drawn = random_queries([document.indexed_text for document in dataset.documents], queries)
        return drawn, search(source, drawn)

    def keep(decides: Mapping[str, Any], compute: Callable[[], np.ndarray]) -> np.ndarray:
        about = {
            **decides,
            "tokenizer": identity(config["tokenizer"]),
            "retriever": identity(config["retriever"][decides["source"]]),
            "documents": dataset.fingerprints["documents"],
        }

        def save(folder: Path) -> None:
            np.save(folder / "signal.npy", compute(), allow_pickle=False)

        found: np.ndarray = np.load(cache.folder("signals", about, save) / "signal.npy", allow_pickle=False)
        return found

    def embeddings() -> np.ndarray:
        node, corpus = config["encoder"], str(dataset.fingerprints["documents"])
        with watch("gate") as progress, tempfile.TemporaryDirectory() as name:
            wrap = caching(cache, corpus, progress)
            encoder = CachedEncoder(cache, node, lambda: build(node, wrap, "encoder"), corpus)
            if getattr(target_class(node, "encoder"), "learns", False):
                encoder.encode_documents(
                    [document.indexed_text for document in dataset.documents], Path(name), progress
                )
            return np.array(encoder.encode_queries([query.text for query in queries], Path(name), progress), float)

    return GateInputs(queries, dataset.queries, rankings, tokens, texts, background, keep, cache.pairs, embeddings)
