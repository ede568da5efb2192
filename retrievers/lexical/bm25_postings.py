"""Sorts the postings of a large index: each thread sorts a part of the documents, with compiled kernels.

The counts of all parts determine where the postings of each part belong, so the threads write to separate places of the
same file, and the result does not depend on the number of parts. _bm25_kernels describes the postings.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from retrievers.base import in_parts, new_array, read_only


@dataclass(frozen=True, eq=False)
class TermPostings:
    """starts: int64 [V + 1]. docs: int32 [P]. frequencies: [P], how often each document has the term."""

    starts: np.ndarray
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
            count_postings(self._ids, self._offsets, *self._borders[part : part + 2], self._counts[part])

        in_parts(self._parts, self._parts, threads, count)
        self.starts = np.zeros(n_terms + 1, np.int64)
        np.cumsum(self._counts.sum(axis=0, dtype=np.int64), out=self.starts[1:])

    def write(self, file: Path) -> TermPostings:
        """Write the documents to `file`, which may be larger than memory, and return the postings."""
        from retrievers.lexical._bm25_kernels import fill_postings

        count, longest = int(self.starts[-1]), int(np.diff(self._offsets).max(initial=0))
        docs = new_array(file, np.int32, count)
        frequencies = np.empty(count, np.uint16 if longest < 1 << 16 else np.uint32)
        places = np.cumsum(self._counts[:-1], axis=0, dtype=np.int64) + self.starts[:-1]
        places = np.concatenate([self.starts[None, :-1], places])

        def fill(part: int, _: int) -> None:
            borders = self._borders[part : part + 2]
            fill_postings(self._ids, self._offsets, *borders, places[part], docs, frequencies)

        in_parts(self._parts, self._parts, self._threads, fill)
        return TermPostings(self.starts, docs, frequencies)
