"""The weighed postings of BM25: kept in memory maps and summed by kernels, or proposed by Milvus and summed from a
forward index."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from retrievers.base import Progress, cores
from retrievers.engines.forward import Forward, SparseQueries
from retrievers.engines.proposing import Found
from retrievers.engines.sparse import SparseCollection
from retrievers.lexical.bm25_shards import Columns


class Terms(NamedTuple):
    """The terms of Q queries: query q has the columns `places[offsets[q]:offsets[q + 1]]` of `columns`, both int64."""

    columns: Columns
    places: np.ndarray
    offsets: np.ndarray


class Postings(Protocol):
    """Term t has the postings starts[t] to starts[t + 1] - 1, in the layout that _bm25_kernels describes."""

    def check(self, width: int) -> None:
        """BadInput or Failed where they cannot be used to find `width` documents, before any work is done."""
        ...

    def build(
        self, starts: np.ndarray, docs: np.ndarray, scores: np.ndarray, size: int, folder: Path,
        progress: Progress | None,
    ) -> None:  # fmt: skip
        """Write the postings of `size` documents to `folder`. starts: int64 [V + 1]. docs: int32 [P]. scores: float64
        [P]."""
        ...

    def load(self, folder: Path, n_terms: int) -> np.ndarray:
        """Open what `build` wrote; where the postings of each term start, int64 [V + 1]: the numbers in `Columns`."""
        ...

    def search(self, terms: Terms, width: int, progress: Progress | None) -> Found:
        """The `width` best documents of each query."""
        ...


class LocalPostings:
    """In memory maps, summed by compiled kernels. threads: None: one per core."""

    def __init__(self, threads: int | None) -> None:
        self._threads = threads or cores()

    def check(self, width: int) -> None:
        """Nothing is needed."""

    def build(
        self, starts: np.ndarray, docs: np.ndarray, scores: np.ndarray, size: int, folder: Path,
        progress: Progress | None,
    ) -> None:  # fmt: skip
        """As in Postings."""
        for name, values in (("starts", starts), ("docs", docs), ("scores", scores)):
            np.save(folder / f"{name}.npy", values)

    def load(self, folder: Path, n_terms: int) -> np.ndarray:
        """As in Postings."""
        self._docs, self._scores = load(folder, "docs"), load(folder, "scores")
        return load(folder, "starts")

    def search(self, terms: Terms, width: int, progress: Progress | None) -> Found:
        """As in Postings."""
        from retrievers.lexical import _bm25_kernels

        count = len(terms.offsets) - 1
        docs, scores = np.full((count, width), -1, np.int32), np.zeros((count, width))
        columns = Columns(*map(read_only, terms.columns))

        def run(first: int, last: int) -> None:
            _bm25_kernels.search(
                *columns, self._docs, self._scores, terms.places, terms.offsets, first, last, docs, scores
            )
            # Rows come sorted by document: a stable sort leaves ties in that order.
            order = np.argsort(-scores[first:last], axis=1, kind="stable")
            docs[first:last] = np.take_along_axis(docs[first:last], order, axis=1)
            scores[first:last] = np.take_along_axis(scores[first:last], order, axis=1)

        # Several parts per thread, since queries differ in cost.
        borders = np.linspace(0, count, 1 + min(8 * self._threads, count)).astype(int).tolist()
        with ThreadPoolExecutor(self._threads) as pool:
            list(pool.map(run, borders[:-1], borders[1:]))
        scores[docs < 0] = 0.0
        return Found(docs, scores, {})


class ProposedPostings:
    """A forward index, and the same weights in float32 in Milvus; needs weights above 0."""

    def __init__(self) -> None:
        self._collection = SparseCollection()

    def check(self, width: int) -> None:
        """As in Postings."""
        self._collection.check(width)

    def build(
        self, starts: np.ndarray, docs: np.ndarray, scores: np.ndarray, size: int, folder: Path,
        progress: Progress | None,
    ) -> None:  # fmt: skip
        """As in Postings."""
        self._collection.build(Forward.of(starts, docs, scores, size), folder, progress)

    def load(self, folder: Path, n_terms: int) -> np.ndarray:
        """As in Postings. A term's column is its number alone: the forward index has no postings."""
        self._collection.load(folder)
        return np.arange(n_terms + 1)

    def search(self, terms: Terms, width: int, progress: Progress | None) -> Found:
        """As in Postings; measures `certified`.

        A term of the corpus that the documents here lack has an empty column, and counts for its floor alone.
        """
        columns, places, offsets = terms
        here = columns.ends[places] > columns.starts[places]
        kept = np.concatenate([[0], np.cumsum(here)])[offsets]
        asked = SparseQueries(columns.starts[places[here]], np.ones(int(here.sum())), kept)
        # One after the other, as the kernel adds them: numpy's own sum pairs them.
        floors = [np.cumsum([0.0, *columns.floors[places[a:b]]])[-1] for a, b in pairwise(offsets.tolist())]
        return self._collection.search(asked, np.array(floors, np.float64), width, progress)


def load(folder: Path, name: str) -> np.ndarray:
    return np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)


def read_only(values: np.ndarray) -> np.ndarray:
    view = values.view()
    view.flags.writeable = False
    return view
