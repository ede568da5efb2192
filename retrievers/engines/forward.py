"""A forward index: the terms of each document and their weights, which score the candidates that an engine proposes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np


class SparseQueries(NamedTuple):
    """The terms that Q queries search for: query q has `terms[offsets[q]:offsets[q + 1]]`.

    terms: int64 [T], in the order in which their products are added; a term may repeat.
    weights: float64 [T], above 0.
    offsets: int64 [Q + 1].
    """

    terms: np.ndarray
    weights: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, query: int) -> tuple[np.ndarray, np.ndarray]:
        """(terms, weights) of one query."""
        mine = slice(self.offsets[query], self.offsets[query + 1])
        return self.terms[mine], self.weights[mine]

    def merged(self, query: int) -> tuple[np.ndarray, np.ndarray]:
        """(terms, weights) of one query, each term once, with the sum of its weights."""
        terms, weights = self.row(query)
        distinct, place = np.unique(terms, return_inverse=True)
        return distinct, np.bincount(place, weights, len(distinct))


class Forward(NamedTuple):
    """Document d has `terms[starts[d]:starts[d + 1]]`, ascending, with their `weights`, memory-mapped once loaded.

    starts: int64 [N + 1]. terms: int32 [T]. weights: float32 or float64 [T].
    """

    starts: np.ndarray
    terms: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(cls, starts: np.ndarray, docs: np.ndarray, weights: np.ndarray, n_docs: int) -> Forward:
        """Of an inverted index: term t is in `docs[starts[t]:starts[t + 1]]`, ascending, with their `weights`."""
        from scipy.sparse import csc_array

        matrix = csc_array((weights, docs, starts), shape=(n_docs, len(starts) - 1)).tocsr()
        return cls(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data)

    @classmethod
    def load(cls, folder: Path) -> Forward:
        """Memory-map what `save` wrote into `folder`; ValueError where the arrays do not belong together."""
        found = cls(
            *(np.load(folder / f"forward_{name}.npy", mmap_mode="r", allow_pickle=False) for name in cls._fields)
        )
        size = int(found.starts[-1]) if found.starts.ndim == 1 and len(found.starts) else -1
        if not len(found.terms) == len(found.weights) == size:
            raise ValueError(f"the forward index in {folder} has {len(found.terms)} terms, not {size}")
        return found

    def save(self, folder: Path) -> None:
        for name, values in self._asdict().items():
            np.save(folder / f"forward_{name}.npy", values, allow_pickle=False)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def sent(self) -> np.ndarray:
        """The documents that have a term, int64 [n]: an engine takes no vector without one."""
        return np.flatnonzero(np.diff(self.starts))

    def row(self, doc: int) -> tuple[np.ndarray, np.ndarray]:
        """(terms, weights) of one document."""
        mine = slice(self.starts[doc], self.starts[doc + 1])
        return self.terms[mine], self.weights[mine]

    def digest(self) -> str:
        """sha256 of all documents, their terms and weights."""
        found = hashlib.sha256(f"{len(self)} {self.weights.dtype}".encode())
        for values in self:
            for part in _parts(values):
                found.update(part.tobytes())
        return found.hexdigest()

    def scores(self, terms: np.ndarray, weights: np.ndarray, docs: np.ndarray) -> np.ndarray:
        """The sum, over a query's terms in their order, of the product of both weights, float64 [n].

        terms: int64, the query's. weights: float64, theirs. docs: int32 [n].
        """
        from retrievers.engines._forward_kernels import add_up

        found = np.empty(len(docs))
        add_up(self.starts, self.terms, self.weights, terms, weights, docs, found)
        return found


def _parts(values: np.ndarray, size: int = 1 << 22) -> Iterator[np.ndarray]:
    for start in range(0, len(values), size):
        yield values[start : start + size]
