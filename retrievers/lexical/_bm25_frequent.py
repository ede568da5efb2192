"""Faster access to the postings of BM25's frequent terms, for batches of queries."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from retrievers.base import in_parts

WORD_BITS = 64
PADDED = 512  # the length of a row of scores is a multiple of this number
DENSE_DOCS = 1 << 16  # larger indexes are pruned instead, and their rows would not fit into the processor's caches
DENSE_SHARE = 4  # terms in a quarter of the documents have a row of scores
LEAST_WORK = 1 << 19  # fewer postings to add up are not worth a row
FILLING = 4  # a batch must add up this many times as many postings as it takes to fill the rows that it needs


class Columns(NamedTuple):
    """The columns of a vocabulary, as in _bm25_search; a term without postings has starts[t] = ends[t] = 0."""

    starts: np.ndarray
    ends: np.ndarray
    floors: np.ndarray
    peaks: np.ndarray


class FrequentTerms:
    """Faster access to the postings of an index's frequent terms. Rows are filled for batches that gain from them.

    dense: whether a row has the scores of all documents, for an exhaustive search. Otherwise, rows are bitmaps, for a
        pruned search.
    scores, bits, ranks: the arrays of `DenseScores` and `Bitmaps`. A bitmap takes no more memory than the term's
        postings take in the files of the index, a row of scores takes at most three times as much.
    """

    def __init__(self, starts: np.ndarray, docs: np.ndarray, scores: np.ndarray, n_docs: int) -> None:
        self._docs, self._scores, self.n_docs = docs, scores, n_docs
        self.dense = n_docs <= DENSE_DOCS
        lengths, words, padded = np.diff(starts), -(-n_docs // WORD_BITS), -(-n_docs // PADDED) * PADDED
        frequent = lengths * DENSE_SHARE > n_docs if self.dense else lengths > words
        self._starts = starts[:-1][frequent]  # ascending
        self._filled = np.zeros(len(self._starts), bool)
        # Rows take no memory until they are filled.
        self.scores = np.empty((len(self._starts) * self.dense, padded))
        self.bits = np.empty((len(self._starts) * (not self.dense), words), np.uint64)
        self.ranks = np.empty(self.bits.shape, np.int32)

    def rows(self, columns: Columns, terms: np.ndarray, threads: int) -> np.ndarray:
        """Return the row of each of `columns`, int64 [V]; -1 for terms without one. terms: those of all queries.

        Missing rows are filled first. If that would take longer than it saves, no term has a row.
        """
        lengths, uses = columns.ends - columns.starts, np.bincount(terms, minlength=len(columns.starts))
        places = np.searchsorted(self._starts, columns.starts)
        found = (places < len(self._starts)) & (lengths > 0) & (uses > 0)
        found[found] = self._starts[places[found]] == columns.starts[found]
        new = np.flatnonzero(found)
        new = new[~self._filled[places[new]]]
        work = int((lengths * uses).sum())
        filling = len(new) * self.n_docs if self.dense else int(lengths[new].sum())
        if work < LEAST_WORK or FILLING * filling > work:
            return np.full(len(lengths), -1)
        fill = self._fill_dense if self.dense else self._fill_bitmaps
        fill(columns.starts[new], columns.ends[new], places[new], threads)
        self._filled[places[new]] = True
        return np.where(found, places, -1)

    def _fill_dense(self, starts: np.ndarray, ends: np.ndarray, rows: np.ndarray, threads: int) -> None:
        def fill(first: int, last: int) -> None:
            for row, start, end in zip(rows[first:last], starts[first:last], ends[first:last], strict=True):
                self.scores[row] = -0.0
                self.scores[row, self._docs[start:end]] = self._scores[start:end]

        in_parts(len(rows), threads, threads, fill)

    def _fill_bitmaps(self, starts: np.ndarray, ends: np.ndarray, rows: np.ndarray, threads: int) -> None:
        from retrievers.lexical._bm25_pruned import mark_postings

        def fill(first: int, last: int) -> None:
            part = slice(first, last)
            mark_postings(starts[part], ends[part], self._docs, rows[part], self.bits, self.ranks)

        in_parts(len(rows), 8 * threads, threads, fill)
