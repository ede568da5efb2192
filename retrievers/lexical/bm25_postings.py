"""Sorts the postings of a large index, with compiled kernels, and writes postings with their scores.

Each thread sorts a part of the documents. The counts of all parts determine where the postings of each part belong, so
the threads write to separate places of the same arrays, and the result does not depend on the number of parts.
_bm25_kernels describes the postings.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np

from retrievers.base import in_parts, new_array, read_only

AT_ONCE = 1 << 25  # number of postings that are sorted at a time; a quarter of all if that is more
PAGE = 1024  # number of postings whose documents fill a page of memory
CHUNK = 1 << 17  # number of postings that are scored at a time, to limit temporary arrays


@dataclass(frozen=True, eq=False)
class TermPostings:
    """Postings of successive terms. docs: int32 [P]. frequencies: [P], how often each document has the term.

    first: the place of the first posting among those of all terms.
    """

    first: int
    docs: np.ndarray
    frequencies: np.ndarray


class PostingsSort:
    """Sorts the postings of texts with `ids` and `offsets`, as in `Tokens`. n_terms: the size of the vocabulary."""

    def __init__(self, ids: np.ndarray, offsets: np.ndarray, n_terms: int, threads: int) -> None:
        from retrievers.lexical._bm25_kernels import count_postings

        self._ids, self._offsets, self._threads = read_only(ids), read_only(offsets), threads
        self._parts = max(1, min(threads, len(ids) // (4 * n_terms + 1)))  # the counts take less memory than the ids
        borders = np.searchsorted(offsets, np.linspace(0, len(ids), 1 + self._parts).astype(np.int64))
        borders[-1] = len(offsets) - 1
        self._borders = borders.tolist()
        self._counts = np.zeros((self._parts, n_terms), np.int32)

        def count(part: int, _: int) -> None:
            first, last = self._borders[part : part + 2]
            count_postings(self._ids, self._offsets, first, last, self._counts[part], unseen(n_terms))

        in_parts(self._parts, self._parts, threads, count)
        self.starts = np.zeros(n_terms + 1, np.int64)
        np.cumsum(self._counts.sum(axis=0, dtype=np.int64), out=self.starts[1:])

    def blocks(self) -> Iterator[TermPostings]:
        """Yield all postings, a block of terms at a time. The next block overwrites the arrays of a block."""
        from retrievers.lexical._bm25_kernels import fill_postings

        terms = self._term_borders()
        ends, longest = self.starts[terms], int(np.diff(self._offsets).max(initial=0))
        docs = np.empty(np.diff(ends).max(initial=0), np.int32)
        frequencies = np.empty(len(docs), np.uint16 if longest < 1 << 16 else np.uint32)

        def touch(begin: int, end: int) -> None:
            docs[begin:end:PAGE], frequencies[begin:end:PAGE] = 0, 0

        # Otherwise, all threads would begin by clearing the same new pages.
        in_parts(len(docs), self._threads, self._threads, touch)
        for low, high in pairwise(terms):
            first, earlier = int(self.starts[low]), self._counts[:-1, low:high]
            places = np.stack([*accumulate(earlier, initial=self.starts[low:high] - first)])

            def fill(part: int, _: int, low: int = low, places: np.ndarray = places) -> None:
                begin, end = self._borders[part : part + 2]
                offsets, mine = self._offsets[: end + 1], places[part]
                fill_postings(self._ids, offsets, begin, low, mine, docs, frequencies, unseen(len(mine)))

            in_parts(self._parts, self._parts, self._threads, fill)
            size = int(self.starts[high]) - first
            yield TermPostings(first, docs[:size], frequencies[:size])

    def _term_borders(self) -> list[int]:
        """Return where blocks of terms begin and end. Only a single term makes a block longer than wanted."""
        most, borders = max(AT_ONCE, -(-int(self.starts[-1]) // 4)), [0]
        while (low := borders[-1]) < len(self.starts) - 1:
            end = int(np.searchsorted(self.starts, self.starts[low] + most, "right")) - 1
            borders.append(max(low + 1, end))
        return borders


def unseen(terms: int) -> np.ndarray:
    """Return -1 for each term: no document has been seen."""
    return np.full(terms, -1, np.int32)


class ScoredPostingsFiles:
    """The files docs.npy and scores.npy of a new index. Threads write parts of them.

    starts: as in _bm25_kernels. idf: of each term. norms: of each document. weigh: (frequencies, norms) -> weights.
    peaks: float32, the highest score of each term so far.
    """

    def __init__(
        self,
        folder: Path,
        starts: np.ndarray,
        idf: np.ndarray,
        norms: np.ndarray,
        weigh: Callable[[np.ndarray, np.ndarray], np.ndarray],
    ) -> None:
        self._docs, self._scores = folder / "docs.npy", folder / "scores.npy"
        new_array(self._docs, np.int32, int(starts[-1]))
        new_array(self._scores, np.float64, int(starts[-1]))
        self._starts, self._idf, self._norms, self._weigh = starts, idf, norms, weigh
        self._lock = threading.Lock()
        self.peaks = np.zeros(len(idf), np.float32)

    def write(self, block: TermPostings, first: int, last: int) -> None:
        """Write the postings first to last - 1 of a block, with their scores."""
        with self._docs.open("r+b") as docs_file, self._scores.open("r+b") as scores_file:
            left = int(self._starts[-1]) - block.first - first  # postings up to the end of the files
            docs_file.seek(-left * np.dtype(np.int32).itemsize, os.SEEK_END)
            scores_file.seek(-left * np.dtype(np.float64).itemsize, os.SEEK_END)
            for begin in range(first, last, CHUNK):
                chunk = slice(begin, min(begin + CHUNK, last))
                docs = block.docs[chunk]
                docs_file.write(docs.data)
                scores_file.write(self._weighed(block.first + begin, docs, block.frequencies[chunk]).data)

    def _weighed(self, first: int, docs: np.ndarray, frequencies: np.ndarray) -> np.ndarray:
        last = first + len(docs)
        terms = slice(np.searchsorted(self._starts, first, "right") - 1, np.searchsorted(self._starts, last))
        bounds = self._starts[terms.start : terms.stop + 1].clip(first, last)
        scores = np.repeat(self._idf[terms], np.diff(bounds))
        scores *= self._weigh(frequencies.astype(np.float64), self._norms.take(docs))
        scores += 0.0  # turns -0.0 into 0.0: in a search, -0.0 marks documents without any of the query's terms
        with self._lock:  # two chunks may share a term
            np.maximum(self.peaks[terms], peaks_of(bounds - first, scores), out=self.peaks[terms])
        return scores


def peaks_of(starts: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return the most that each term can add to a document, float32 [V]: its highest score, and 0 if that is lower."""
    peaks, used = np.zeros(len(starts) - 1, np.float32), np.diff(starts) > 0
    if used.any():
        highest = np.maximum.reduceat(scores, starts[:-1][used])
        peaks[used] = np.nextafter(highest.astype(np.float32), np.float32(np.inf))  # rounded up
    return np.maximum(peaks, 0)
