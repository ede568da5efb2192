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
STRIPE = 8  # documents of a block compared with the threshold together
GROUPS = 512  # of documents in a block, whose best scores give the first threshold


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
    """Fill rows first..last-1 of `top_docs` and `top_scores` [Q, k >= 1]: the best k documents, by ascending document.

    Query q holds `terms[offsets[q]:offsets[q + 1]]`. A row is padded by document -1 with score -inf. Of equal scores
    the smaller document is the better.

    Documents go block by block in ascending order, and each adds up its scores in the order of the query's terms, so
    equal documents get equal sums. A document that no term touched is told by its sum being -0.0: adding any posting,
    even 0.0, to -0.0 leaves another bit pattern (IEEE 754, 6.3).
    """
    k = top_docs.shape[1]
    sums = np.full(BLOCK, -0.0)
    # Candidates gather here, three times what is asked for, before the worse ones are dropped: that costs less than
    # keeping the best in a heap.
    room = 3 * k + STRIPE
    best_docs, best_scores, scratch = np.empty(room, np.int32), np.empty(room), np.empty(room)
    for q in range(first, last):
        mine = terms[offsets[q] : offsets[q + 1]]
        cursors, ends, floor = starts[mine], starts[mine + 1], floors[mine].sum()
        size, threshold = 0, -np.inf
        while True:
            base = _next_block(docs, cursors, ends)
            if base < 0:
                break
            _add_up(docs, scores, cursors, ends, base, sums)
            if size == 0:  # the first block
                threshold = _first_threshold(sums, floor, k)
            for start in range(0, BLOCK, STRIPE):
                above = 0
                for i in range(start, start + STRIPE):  # no branch: compiled to vector instructions
                    above += sums[i] + floor > threshold
                if above:
                    for i in range(start, start + STRIPE):
                        score = sums[i] + floor
                        touched = (sums[i] != 0.0) | (math.copysign(1.0, sums[i]) > 0.0)
                        best_docs[size], best_scores[size] = base + i, score  # without a branch: often mispredicted
                        size += touched & (score > threshold)  # a tie with the k-th loses: it is the larger document
                    if size > room - STRIPE:
                        size, threshold = _keep(best_docs, best_scores, size, k, scratch)
            sums[:] = -0.0
        if size > k:
            size, threshold = _keep(best_docs, best_scores, size, k, scratch)
        top_docs[q, :size], top_scores[q, :size] = best_docs[:size], best_scores[:size]
        top_docs[q, size:], top_scores[q, size:] = -1, -np.inf


@njit(cache=True, nogil=True)
def _next_block(docs, cursors, ends):
    """First document of the next block that holds a posting; -1 at the end. Other blocks are never visited."""
    base = NO_DOC
    for t in range(len(cursors)):
        if cursors[t] < ends[t]:
            base = min(base, docs[cursors[t]])
    return -1 if base == NO_DOC else base - base % BLOCK


@njit(cache=True, nogil=True)
def _add_up(docs, scores, cursors, ends, base, sums):
    """Add a block's postings to `sums` and move the cursors behind them."""
    limit = base + BLOCK
    for t in range(len(cursors)):
        at, end = cursors[t], ends[t]
        while at + 8 <= end and docs[at + 7] < limit:  # ascending: one comparison for eight postings
            for i in range(at, at + 8):
                sums[np.uint64(docs[i] - base)] += scores[i]  # unsigned: spares numba's test for negative indices
            at += 8
        while at < end and docs[at] < limit:
            sums[np.uint64(docs[at] - base)] += scores[at]
            at += 1
        cursors[t] = at


@njit(cache=True, nogil=True)
def _first_threshold(sums, floor, k):
    """Just below a score that at least k documents of a block reach; -inf where this finds none.

    The k-th best of the groups' best scores is such a score: k groups hold a document each that reaches it. Above 0, no
    untouched document is among them. Most of a first block is thus never a candidate.
    """
    if k > GROUPS:
        return -np.inf
    best = sums[:GROUPS].copy()
    for start in range(GROUPS, BLOCK, GROUPS):
        for i in range(GROUPS):  # a group is every GROUPS-th document: compiled to vector instructions
            best[i] = max(best[i], sums[start + i])
    kth = _select(best, GROUPS, k - 1)
    return np.nextafter(kth + floor, -np.inf) if kth > 0.0 else -np.inf


@njit(cache=True, nogil=True)
def _keep(docs, scores, size, k, scratch):
    """Keep the best k of `size` > k candidates, in their order; returns (k, the k-th best score)."""
    scratch[:size] = scores[:size]
    kth = _select(scratch, size, k - 1)
    ties = k
    for i in range(size):
        ties -= scores[i] > kth
    kept = 0
    for i in range(size):
        tied = (scores[i] == kth) & (ties > 0)  # the first ones, which are the smaller documents
        docs[kept], scores[kept] = docs[i], scores[i]  # without a branch: often mispredicted
        kept += tied | (scores[i] > kth)
        ties -= tied
    return kept, kth


@njit(cache=True, nogil=True)
def _select(values, size, place):
    """The value at `place` of the descending order of `values[:size]`, which it shuffles.

    Quickselect (Hoare 1961) with the middle as pivot. Larger, equal and smaller values are told apart, for equal scores
    are common, and moved without a branch.
    """
    low, high = 0, size
    while True:
        pivot = values[(low + high) // 2]
        larger = low
        for i in range(low, high):
            values[i], values[larger] = values[larger], values[i]
            larger += values[larger] > pivot
        if place < larger:
            high = larger
            continue
        equal = larger
        for i in range(larger, high):
            values[i], values[equal] = values[equal], values[i]
            equal += values[equal] == pivot
        if place < equal:
            return pivot
        low = equal
