"""Weights of tokens in texts, and the index that is searched by token."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from retrievers.dense.embeddings import write_whole


class Weights(NamedTuple):
    """Token weights of n texts, one text after another, the tokens of each ascending.

    rows: int64 [n], the texts' rows.
    lengths: int64 [n], number of tokens of each text.
    tokens: int32 [T], where T is the sum of `lengths`.
    weights: float32 [T], above 0.
    """

    rows: np.ndarray
    lengths: np.ndarray
    tokens: np.ndarray
    weights: np.ndarray

    @classmethod
    def joined(cls, parts: Iterable[Weights]) -> Weights:
        empty = cls(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.float32))
        return cls(*(np.concatenate(columns) for columns in zip(empty, *parts, strict=True)))


def greatest(rows: np.ndarray, ids: np.ndarray, weights: np.ndarray, counts: np.ndarray) -> Weights:
    """Return the greatest weight of each token in each text.

    rows: int64 [n], the texts' rows.
    ids: int [n, L], tokens.
    weights: float [n, L].
    counts: bool [n, L], which positions count.
    """
    where, column = np.nonzero(counts)
    tokens, values = ids[where, column], weights[where, column]
    order = np.lexsort((-values, tokens, where))
    where, tokens, values = where[order], tokens[order], values[order]
    new = np.ones(len(where), bool)
    new[1:] = (where[1:] != where[:-1]) | (tokens[1:] != tokens[:-1])
    lengths = np.bincount(where[new], minlength=len(rows))
    return Weights(rows, lengths, tokens[new].astype(np.int32), values[new].astype(np.float32))


class Postings(NamedTuple):
    """An inverted index: token t has weight data[i] in document indices[i], for indptr[t] <= i < indptr[t + 1].

    indptr: int64 [V + 1].
    indices: int32 [T], ascending within a token.
    data: float32 [T].
    """

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray

    @classmethod
    def of(cls, weights: Weights, text_of: np.ndarray) -> Postings:
        """Return the index of N documents. text_of: int64 [N], the row of each document's text in `weights`."""
        from scipy.sparse import csr_array

        starts = np.concatenate([[0], np.cumsum(weights.lengths)])
        size = int(weights.tokens.max(initial=-1)) + 1
        texts = csr_array((weights.weights, weights.tokens, starts), shape=(len(weights.rows), size))
        place = np.unique(weights.rows, return_index=True)[1]  # of a text encoded twice, the first counts
        matrix = texts[place[text_of]].T.tocsr()
        matrix.sort_indices()
        return cls(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data)

    @classmethod
    def load(cls, folder: Path) -> Postings:
        """Memory-map what `save` wrote into `folder`."""
        return cls(*(np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in cls._fields))

    def save(self, folder: Path) -> None:
        for name, values in self._asdict().items():
            write_whole(folder / f"{name}.npy", partial(_write_array, values))

    def best(self, tokens: np.ndarray, weights: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the k best documents of one query with a score above 0: (docs int32, scores float64)."""
        spans = [
            (slice(self.indptr[token], self.indptr[token + 1]), weight)
            for token, weight in zip(tokens.tolist(), weights.astype(np.float64), strict=True)
            if token + 1 < len(self.indptr)  # larger tokens occur in no document
        ]
        if not spans:
            return np.empty(0, np.int32), np.empty(0)
        docs = np.concatenate([self.indices[span] for span, _ in spans])
        scores = np.bincount(docs, np.concatenate([self.data[span] * weight for span, weight in spans]))
        found = np.flatnonzero(scores > 0)
        if len(found) > k:  # all that reach the k-th best score, ties included
            found = found[scores[found] >= np.partition(scores[found], -k)[-k]]
        order = np.argsort(-scores[found], kind="stable")[:k]  # stable: ties stay by ascending document
        return found[order], scores[found[order]]


def _write_array(values: np.ndarray, file: BinaryIO) -> None:
    np.save(file, values, allow_pickle=False)
