"""Compiled inner loops of BM25; imported only where they run, since numba takes a while to import.

The index is a matrix in compressed sparse columns, one column a term: the postings of term t are
`docs[starts[t]:starts[t + 1]]` (int32, ascending) and their `scores` (float64); `floors[t]` (float64, at least 0) is
what the term adds to a document whether or not it stands there. All arrays come in read-only, so that
each kernel is compiled for one set of types only.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

BLOCK = 4096  # documents scored together: their accumulator (32 KB) stays in the first-level cache
NO_DOC = np.iinfo(np.int32).max
STRIPE = 64  # documents of a block compared with the threshold together


@njit(cache=True, nogil=True)
def count_postings(ids, offsets, n_terms):
    """int64 [n_terms + 1]: where each term's postings start; the last entry is their number."""
    starts = np.zeros(n_terms + 1, np.int64)
    seen_in = np.full(n_terms, -1, np.int32)
    for doc in range(len(offsets) - 1):
        for i in range(offsets[doc], offsets[doc + 1]):
            term = ids[i]
            if seen_in[term] != doc:
                seen_in[term] = doc
                starts[term + 1] += 1
    return np.cumsum(starts)


@njit(cache=True, nogil=True)
def fill_postings(ids, offsets, starts):
    """Postings as (docs int32, term frequencies float64): a counting sort, with nothing kept beside the result."""
    docs = np.empty(starts[-1], np.int32)
    frequencies = np.empty(starts[-1], np.float64)
    ends = starts[:-1].copy()
    for doc in range(len(offsets) - 1):
        for i in range(offsets[doc], offsets[doc + 1]):
            term = ids[i]
            last = ends[term] - 1
            if last >= starts[term] and docs[last] == doc:
                frequencies[last] += 1.0
            else:
                docs[last + 1] = doc
                frequencies[last + 1] = 1.0
                ends[term] += 1
    return docs, frequencies


@njit(cache=True, nogil=True)
def search(starts, docs, scores, floors, terms, offsets, first, last, top_docs, top_scores):
    """Fill rows first..last-1 of `top_docs` and `top_scores` [Q, k]: the best k documents, best first.

    Query q holds `terms[offsets[q]:offsets[q + 1]]`. Documents go block by block in ascending order, and each adds up
    its scores in the order of the query's terms, so equal documents get equal sums. A document that no term touched
    is told by its sum being -0.0: adding any posting, even 0.0, to -0.0 leaves another bit pattern (IEEE 754, 6.3).
    """
    sums = np.full(BLOCK, -0.0)
    for q in range(first, last):
        mine = terms[offsets[q] : offsets[q + 1]]
        cursors, ends = starts[mine], starts[mine + 1]
        floor = floors[mine].sum()
        best_docs, best_scores = top_docs[q], top_scores[q]
        size = 0
        while True:
            base = NO_DOC
            for t in range(len(mine)):
                if cursors[t] < ends[t]:
                    base = min(base, docs[cursors[t]])
            if base == NO_DOC:
                break
            base -= base % BLOCK  # blocks that no term touches are never visited
            for t in range(len(mine)):
                cursor = cursors[t]
                while cursor < ends[t] and docs[cursor] < base + BLOCK:
                    sums[docs[cursor] - base] += scores[cursor]
                    cursor += 1
                cursors[t] = cursor
            size = _collect(sums, base, floor, best_docs, best_scores, size)
        _sort(best_docs, best_scores, size)
        best_docs[size:] = -1
        best_scores[size:] = 0.0


@njit(cache=True, nogil=True)
def _collect(sums, base, floor, best_docs, best_scores, size):
    """Move a block's candidates into the heap of the best and clear the block; returns the heap's size."""
    k = len(best_docs)
    for start in range(0, BLOCK, STRIPE):
        stripe = sums[start : start + STRIPE]
        threshold = best_scores[0] if size == k else -np.inf
        above = 0
        for i in range(STRIPE):  # no branch: compiled to vector instructions
            above += stripe[i] + floor > threshold
        if above:
            for i in range(STRIPE):
                score = stripe[i] + floor
                if size == k and score <= best_scores[0]:  # a tie loses: documents come in ascending order
                    continue
                if stripe[i] == 0.0 and math.copysign(1.0, stripe[i]) < 0.0:
                    continue
                if size < k:
                    best_docs[size], best_scores[size] = base + start + i, score
                    size += 1
                    _rise(best_docs, best_scores, size - 1)
                else:
                    best_docs[0], best_scores[0] = base + start + i, score
                    _sink(best_docs, best_scores, size)
    sums[:] = -0.0
    return size


@njit(cache=True, nogil=True)
def _worse(docs, scores, i, j):
    return scores[i] < scores[j] or (scores[i] == scores[j] and docs[i] > docs[j])


@njit(cache=True, nogil=True)
def _swap(docs, scores, i, j):
    docs[i], docs[j] = docs[j], docs[i]
    scores[i], scores[j] = scores[j], scores[i]


@njit(cache=True, nogil=True)
def _rise(docs, scores, i):
    """Restore the heap (the worst entry at the root) after entry i was added."""
    while i > 0 and _worse(docs, scores, i, (i - 1) // 2):
        _swap(docs, scores, i, (i - 1) // 2)
        i = (i - 1) // 2


@njit(cache=True, nogil=True)
def _sink(docs, scores, size):
    """Restore the heap of `size` entries after its root was replaced."""
    i = 0
    while 2 * i + 1 < size:
        child = 2 * i + 1
        if child + 1 < size and _worse(docs, scores, child + 1, child):
            child += 1
        if not _worse(docs, scores, child, i):
            break
        _swap(docs, scores, i, child)
        i = child


@njit(cache=True, nogil=True)
def _sort(docs, scores, size):
    """Heap to best first: the worst goes to the end, again and again."""
    for end in range(size - 1, 0, -1):
        _swap(docs, scores, 0, end)
        _sink(docs, scores, end)
