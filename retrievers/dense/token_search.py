"""Searching token weights: in an inverted index of ours, or by what Milvus proposes."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np

from retrievers.base import Progress
from retrievers.dense.token_weights import Postings, Weights
from retrievers.engines.forward import Forward, SparseQueries
from retrievers.engines.proposing import Found
from retrievers.engines.sparse import SparseCollection


class TokenIndex(Protocol):
    """Token weights of N documents, searched by those of queries."""

    def check(self, width: int) -> None:
        """BadInput or Failed where it cannot be used to find `width` documents, before any work is done."""
        ...

    def build(self, postings: Postings, n_docs: int, folder: Path, progress: Progress | None) -> None:
        """Write the index of `postings` to `folder`. n_docs: documents, those without a token included."""
        ...

    def load(self, folder: Path) -> None: ...

    def search(self, queries: Weights, width: int, progress: Progress | None) -> Found:
        """The `width` best documents with a score above 0. queries: the rows are their numbers, each once."""
        ...


class Local:
    """An inverted index in the folder."""

    def check(self, width: int) -> None:
        """Nothing is needed."""

    def build(self, postings: Postings, n_docs: int, folder: Path, progress: Progress | None) -> None:
        postings.save(folder)

    def load(self, folder: Path) -> None:
        self._postings = Postings.load(folder)

    def search(self, queries: Weights, width: int, progress: Progress | None) -> Found:
        """As in TokenIndex."""
        docs, scores = np.full((len(queries.rows), width), -1, np.int32), np.zeros((len(queries.rows), width))
        ends = np.cumsum(queries.lengths)
        for row, start, end in zip(queries.rows, ends - queries.lengths, ends, strict=True):
            best, values = self._postings.best(queries.tokens[start:end], queries.weights[start:end], width)
            docs[row, : len(best)], scores[row, : len(best)] = best, values
        return Found(docs, scores, {})


class Proposed:
    """Documents that Milvus proposes, scored by a forward index in the folder in the order in which `Local` adds."""

    def __init__(self) -> None:
        self._collection = SparseCollection()

    def check(self, width: int) -> None:
        """As in TokenIndex."""
        self._collection.check(width)

    def build(self, postings: Postings, n_docs: int, folder: Path, progress: Progress | None) -> None:
        self._collection.build(Forward.of(*postings, n_docs), folder, progress)

    def load(self, folder: Path) -> None:
        self._collection.load(folder)

    def search(self, queries: Weights, width: int, progress: Progress | None) -> Found:
        """As in TokenIndex; measures `certified`."""
        order = np.argsort(queries.rows)
        offsets = np.concatenate([[0], np.cumsum(queries.lengths)])
        parts = [slice(offsets[i], offsets[i + 1]) for i in order.tolist()]
        tokens = np.concatenate([queries.tokens[part] for part in parts]).astype(np.int64)
        weights = np.concatenate([queries.weights[part] for part in parts]).astype(np.float64)
        asked = SparseQueries(tokens, weights, np.concatenate([[0], np.cumsum(queries.lengths[order])]))
        return self._collection.search(asked, np.zeros(len(asked)), width, progress)


ENGINES: dict[str, type[Local] | type[Proposed]] = {"sparse": Local, "milvus": Proposed}
