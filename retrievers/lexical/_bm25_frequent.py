"""The documents of BM25's frequent terms, for batches of queries that are searched by bounds."""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np

from retrievers.base import in_parts
from retrievers.lexical.tokenize import Tokens

PADDED = 512  # the length of a row of bounds is a multiple of this number
SHARE = 16  # terms in more than a sixteenth of the documents have a row
HIGHEST = 254  # the most steps in a row's scores; their bounds are one higher
STEPS = 4096  # the most steps in the scores of other terms
HIGHEST_SUM = 65_535  # the highest sum of bounds
# Measured costs, relative to adding up a posting: of a query; of a document in a term's row; of a requested document,
# for each of the query's terms.
QUERY_COST, ROW_COST, EXACT_COST = 1200, 0.02, 4.5
LEAST_WORK = 1 << 19  # fewer postings to add up are not worth a row
FILLING = 4  # a batch must add up this many times as many postings as it takes to fill the rows that it needs


class Columns(NamedTuple):
    """The columns of a vocabulary, as in _bm25_search; a term without postings has starts[t] = ends[t] = 0."""

    starts: np.ndarray
    ends: np.ndarray
    floors: np.ndarray
    peaks: np.ndarray


class TermRows(NamedTuple):
    """The documents of frequent terms, a row for each term. The rows of an array lie one after the other.

    bounds: uint8 [R * padded], 0 for documents without the term. padded: n_docs, rounded up to a multiple of PADDED.
    bits: uint64, with a bit for each document, too. ranks: int32, the number of bits of the row before each word.
    scale: see _bm25_bounded.
    """

    bounds: np.ndarray
    bits: np.ndarray
    ranks: np.ndarray
    padded: int
    scale: float


class FrequentTerms:
    """The rows of an index's frequent terms. They are filled for batches that gain from them.

    A row takes 1.2 bytes for each document of the index, but no memory before it is filled.
    """

    def __init__(
        self, starts: np.ndarray, peaks: np.ndarray, docs: np.ndarray, scores: np.ndarray, n_docs: int
    ) -> None:
        self._docs, self._scores = docs, scores
        padded = -(-n_docs // PADDED) * PADDED
        frequent = (np.diff(starts) * SHARE > n_docs) & (peaks > 0)  # negative scores have no bounds
        self._starts = starts[:-1][frequent]  # ascending
        size = len(self._starts)
        self._filled, self._lock = np.zeros(size, bool), threading.Lock()
        step = max(peaks[frequent].max(initial=0) / HIGHEST, peaks.max(initial=0) / STEPS)
        words = size * padded // 64
        rows = np.empty(size * padded, np.uint8), np.empty(words, np.uint64), np.empty(words, np.int32)
        self.table = TermRows(*rows, padded, 1 / float(step) if step else 1.0)

    def rows(self, columns: Columns, terms: np.ndarray, work: int, threads: int) -> np.ndarray | None:
        """Return the row of each term in `columns`, int64, -1 for terms without a row.

        terms, work: those of all queries, and the number of their postings.
        Missing rows are filled first. If that would take longer than it saves, return None.
        """
        if work < LEAST_WORK:
            return None
        lengths, uses = columns.ends - columns.starts, np.bincount(terms, minlength=len(columns.starts))
        places = np.searchsorted(self._starts, columns.starts)
        found = (places < len(self._starts)) & (lengths > 0) & (uses > 0)
        found[found] = self._starts[places[found]] == columns.starts[found]
        if not found.any():
            return None
        rows = np.where(found, places, -1)
        with self._lock:  # a search in another thread may need the same rows
            new = np.flatnonzero(found)
            new = new[~self._filled[places[new]]]
            if FILLING * int(lengths[new].sum()) > work:
                return None
            from retrievers.lexical._bm25_bounded import fill_rows

            def fill(first: int, last: int) -> None:
                part = new[first:last]
                fill_rows(columns.starts, columns.ends, self._docs, self._scores, part, rows, *self.table)

            in_parts(len(new), 8 * threads, threads, fill)
            self._filled[places[new]] = True
        return rows


def bounds_pay(columns: Columns, rows: np.ndarray, queries: Tokens, k: int, n_docs: int, scale: float) -> np.ndarray:
    """Return, for each query, whether it can be searched by bounds, and that is estimated to be faster, bool [Q].

    rows: of each term, as `FrequentTerms.rows` returns them. scale: of `TermRows`.
    """
    lengths, queried = columns.ends - columns.starts, queries.texts()
    highest = columns.peaks * scale + 1
    highest[(lengths > 0) & (columns.peaks <= 0)] = HIGHEST_SUM  # negative scores have no bounds
    saved = (rows >= 0) * (lengths - ROW_COST * n_docs) - EXACT_COST * k
    sums = (np.bincount(queried, values[queries.ids], len(queries)) for values in (highest, saved))
    return (next(sums) < HIGHEST_SUM) & (next(sums) > QUERY_COST)
