"""The documents of BM25's frequent terms, for batches of queries that are searched by bounds."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from retrievers.base import in_parts

if TYPE_CHECKING:
    from retrievers.lexical._bm25_bounded import TermRows

WORD_BITS = 64
PADDED = 512  # the length of a row of bounds is a multiple of this number
SHARE = 16  # terms in more than a sixteenth of the documents have a row
HIGHEST = 254  # the most steps in a row's scores; their bounds are one higher
STEPS = 4096  # the most steps in the scores of other terms
LEAST_WORK = 1 << 19  # fewer postings to add up are not worth a row
FILLING = 4  # a batch must add up this many times as many postings as it takes to fill the rows that it needs


class Columns(NamedTuple):
    """The columns of a vocabulary, as in _bm25_search; a term without postings has starts[t] = ends[t] = 0."""

    starts: np.ndarray
    ends: np.ndarray
    floors: np.ndarray
    peaks: np.ndarray


class FrequentTerms:
    """The rows of an index's frequent terms. They are filled for batches that gain from them.

    A row takes 1.2 bytes for each document of the index, but no memory before it is filled.
    """

    def __init__(
        self, starts: np.ndarray, peaks: np.ndarray, docs: np.ndarray, scores: np.ndarray, n_docs: int
    ) -> None:
        self._docs, self._scores = docs, scores
        words, padded = -(-n_docs // WORD_BITS), -(-n_docs // PADDED) * PADDED
        frequent = (np.diff(starts) * SHARE > n_docs) & (peaks > 0)  # negative scores have no bounds
        self._starts = starts[:-1][frequent]  # ascending
        self._filled, self._lock = np.zeros(len(self._starts), bool), threading.Lock()
        self._bounds = np.empty((len(self._starts), padded), np.uint8)
        self._bits = np.empty((len(self._starts), words), np.uint64)
        self._ranks = np.empty(self._bits.shape, np.int32)
        step = max(peaks[frequent].max(initial=0) / HIGHEST, peaks.max(initial=0) / STEPS)
        self._scale = 1 / float(step) if step else 1.0

    def rows(self, columns: Columns, terms: np.ndarray, threads: int) -> TermRows | None:
        """Return the rows of the terms in `columns`. terms: those of all queries.

        Missing rows are filled first. If that would take longer than it saves, return None.
        """
        lengths, uses = columns.ends - columns.starts, np.bincount(terms, minlength=len(columns.starts))
        places = np.searchsorted(self._starts, columns.starts)
        found = (places < len(self._starts)) & (lengths > 0) & (uses > 0)
        found[found] = self._starts[places[found]] == columns.starts[found]
        work = int((lengths * uses).sum())
        if work < LEAST_WORK or not found.any():
            return None
        with self._lock:  # a search in another thread may need the same rows
            new = np.flatnonzero(found)
            new = new[~self._filled[places[new]]]
            if FILLING * int(lengths[new].sum()) > work:
                return None
            from retrievers.lexical._bm25_bounded import TermRows, fill_rows

            rows = np.where(found, places, -1)
            frequent = TermRows(rows, self._bounds, self._bits, self._ranks, self._scale)

            def fill(first: int, last: int) -> None:
                part = new[first:last]
                fill_rows(columns.starts, columns.ends, self._docs, self._scores, part, frequent)

            in_parts(len(new), 8 * threads, threads, fill)
            self._filled[places[new]] = True
        return frequent
