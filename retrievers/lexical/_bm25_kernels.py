"""Compiled inner loops of BM25, imported only where they run because importing numba is slow.

The index is a matrix in compressed sparse columns, one column per term. Term t has postings `docs[starts[t]:ends[t]]`
(int32, ascending) with `scores` (float64). The files of an index store no `ends`: there, ends[t] is starts[t + 1]. The
term adds `floors[t]` (float64, at least 0) to the score of every document, even one without this term. Index arrays are
always passed read-only, because numba would compile each kernel once more for writable arrays.
"""

from __future__ import annotations

import math

import numpy as np

from retrievers.base import read_only
from retrievers.compiling import helper, kernel

BLOCK = 4096  # number of documents scored together; their sums (32 KB) fit into the first-level cache
NO_DOC = np.iinfo(np.int32).max
STRIPE = 8  # number of documents that are compared with the threshold at a time
GROUPS = 512  # number of groups of documents in a block; the best score of each group helps to find the first threshold


@kernel
def count_postings(ids, offsets, n_terms):
    """Return the start of each term's postings, int64 [n_terms + 1]; the last entry is the number of postings."""
    starts, seen_in = np.empty(n_terms + 1, np.int64), np.empty(n_terms, np.int32)
    starts[0] = 0
    for term in range(n_terms):
        starts[term + 1], seen_in[term] = 0, -1
    for doc in range(len(offsets) - 1):
        for i in range(offsets[doc], offsets[doc + 1]):
            term = ids[i]
            if seen_in[term] != doc:
                seen_in[term] = doc
                starts[term + 1] += 1
    for term in range(n_terms):
        starts[term + 1] += starts[term]
    return starts


@kernel
def fill_postings(ids, offsets, starts):
    """Return the postings (docs int32, term frequencies float64), by a counting sort without temporary copies."""
    docs = np.empty(starts[-1], np.int32)
    frequencies = np.empty(starts[-1], np.float64)
    ends = np.empty(len(starts) - 1, np.int64)
    for term in range(len(ends)):
        ends[term] = starts[term]
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


@kernel
def search_postings(starts, ends, floors, docs, scores, terms, offsets, first, last, top_docs, top_scores):
    """Fill rows first..last-1 of `top_docs` and `top_scores` [Q, k >= 1] with the k best documents, in document order.

    Query q has the terms `terms[offsets[q]:offsets[q + 1]]`. Rows are padded with document -1 and score -inf. Ties go
    to the smaller document number.

    Documents are processed block by block in ascending order. Scores are added in the order of the query's terms, so
    equal documents get equal sums. A sum of -0.0 marks a document without any of the terms: adding a posting's score,
    even 0.0, changes the bits of -0.0 (IEEE 754, 6.3).
    """
    k = top_docs.shape[1]
    sums = np.full(BLOCK, -0.0)
    # Collecting three times as many candidates as requested before dropping the worse ones is faster than a heap.
    room = 3 * k + STRIPE
    best_docs, best_scores, scratch = np.empty(room, np.int32), np.empty(room), np.empty(room)
    for q in range(first, last):
        mine = terms[offsets[q] : offsets[q + 1]]
        cursors, limits, floor = starts[mine], ends[mine], floors[mine].sum()
        size, threshold = 0, -np.inf
        while True:
            base = _next_block(docs, cursors, limits)
            if base < 0:
                break
            _add_up(docs, scores, cursors, limits, base, sums)
            if size == 0:  # the first block
                threshold = _first_threshold(sums, floor, k)
            for start in range(0, BLOCK, STRIPE):
                above = 0
                for i in range(start, start + STRIPE):  # no branch, so this becomes vector instructions
                    above += sums[i] + floor > threshold
                if above:
                    for i in range(start, start + STRIPE):
                        score = sums[i] + floor
                        touched = (sums[i] != 0.0) | (math.copysign(1.0, sums[i]) > 0.0)
                        best_docs[size], best_scores[size] = base + i, score  # a branch would be slower
                        size += touched & (score > threshold)  # at equal scores, the earlier document wins
                    if size > room - STRIPE:
                        threshold = _kth(best_scores, size, k, scratch)
                        size = keep_best(best_docs, best_scores, size, k, threshold)
            sums[:] = -0.0
        if size > k:
            size = keep_best(best_docs, best_scores, size, k, _kth(best_scores, size, k, scratch))
        top_docs[q, :size], top_scores[q, :size] = best_docs[:size], best_scores[:size]
        top_docs[q, size:], top_scores[q, size:] = -1, -np.inf


@helper
def _next_block(docs, cursors, ends):
    """Return the first document of the next block in which any term has a posting; -1 if no posting is left."""
    base = NO_DOC
    for t in range(len(cursors)):
        if cursors[t] < ends[t]:
            base = min(base, docs[cursors[t]])
    return -1 if base == NO_DOC else base - base % BLOCK


@helper
def _add_up(docs, scores, cursors, ends, base, sums):
    """Add the scores of a block's postings to `sums`, and move the cursors past the postings."""
    limit = base + BLOCK
    for t in range(len(cursors)):
        at, end = cursors[t], ends[t]
        while at + 8 <= end and docs[at + 7] < limit:  # documents ascend, so one comparison is enough for eight
            for i in range(at, at + 8):
                sums[np.uint64(docs[i] - base)] += scores[i]  # unsigned: numba tests whether a signed index is < 0
            at += 8
        while at < end and docs[at] < limit:
            sums[np.uint64(docs[at] - base)] += scores[at]
            at += 1
        cursors[t] = at


@helper
def _first_threshold(sums, floor, k):
    """Return a value just below a score that at least k documents of the block reach; -inf if no such score is known.

    The k-th best of the groups' best scores is such a score, since k groups have a document that reaches it. This score
    is used only if it is above 0, because then each of these k documents has a term of the query. With this threshold,
    most documents of the first block never become candidates.
    """
    if k > GROUPS:
        return -np.inf
    best = sums[:GROUPS].copy()
    for start in range(GROUPS, BLOCK, GROUPS):
        for i in range(GROUPS):  # compiled to vector instructions, since neighbours are in different groups
            best[i] = max(best[i], sums[start + i])
    kth = select(best, GROUPS, k - 1)
    return np.nextafter(kth + floor, -np.inf) if kth > 0.0 else -np.inf


@helper
def _kth(scores, size, k, scratch):
    scratch[:size] = scores[:size]
    return select(scratch, size, k - 1)


@helper
def keep_best(docs, scores, size, k, kth):
    """Keep the k >= 1 best of `size` candidates, in document order, and return k. kth: the k-th best score."""
    ties = k
    for i in range(size):
        ties -= scores[i] > kth
    kept = 0
    for i in range(size):
        tied = (scores[i] == kth) & (ties > 0)  # of the candidates with the score kth, the first ones are kept
        docs[kept], scores[kept] = docs[i], scores[i]  # no branch: a branch would often be mispredicted
        kept += tied | (scores[i] > kth)
        ties -= tied
    return kept


@helper
def select(values, size, place):
    """Return the (place + 1)-th largest value of `values[:size]`, and reorder `values[:size]`.

    This is quickselect (Hoare 1961) with the middle element as pivot. Values are moved without branches. They are
    split into three parts (larger than, equal to and smaller than the pivot), because equal scores are common.
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


def _warm():
    """Compile all kernels."""
    ids, offsets = read_only(np.zeros(1, np.int32)), read_only(np.arange(2))
    starts = read_only(count_postings(ids, offsets, 1))
    docs, frequencies = fill_postings(ids, offsets, starts)
    columns = (starts[:-1], starts[1:], read_only(np.zeros(1)), read_only(docs), read_only(frequencies))
    top_docs, top_scores = np.empty((1, 1), np.int32), np.empty((1, 1))
    search_postings(*columns, np.zeros(1, np.int64), np.arange(2), 0, 1, top_docs, top_scores)
