"""Compiled inner loops of vector search, imported only where they run because importing numba is slow.

Vectors are float32 and read-only, so each kernel is compiled for a single set of types.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from retrievers.lexical._bm25_kernels import keep_best, select

STRIPE = 32  # number of scores compared with the threshold at a time
LANES = 16  # number of partial sums of an inner product: enough for vector instructions, few enough to add up quickly

# The product of two float32 numbers is exact in float64, so fusing it with the following addition changes no bit.
FUSED = {"contract"}


@njit(cache=True, nogil=True)
def collect(block, base, queries, vectors, slack, k, docs, scores, sizes, thresholds, first, last):
    """Extend the candidates of queries first..last-1 by those of the documents base..base+n-1 that score high enough.

    The k best documents by exact score are always among the candidates. Ties go to the smaller document number.

    block: float32 [Q, n], approximate scores of these documents.
    slack: float64 [Q], the greatest difference between an approximate and an exact score.
    docs, scores: int32 and float64 [Q, room]; the candidates so far are `docs[q, :sizes[q]]`, ascending.
    sizes: int64 [Q], number of candidates; initially 0.
    thresholds: float32 [Q]; documents with a lower score are not candidates; initially -inf.
    """
    room = docs.shape[1]
    for q in range(first, last):
        row, size, threshold = block[q], sizes[q], thresholds[q]
        mine, approximate = docs[q], scores[q]
        for start in range(0, len(row), STRIPE):
            stop = min(start + STRIPE, len(row))
            above = _reaches(row, start, threshold) if stop - start == STRIPE else True
            if above:
                for i in range(start, stop):
                    mine[size], approximate[size] = base + i, row[i]
                    size += row[i] >= threshold
                if size > room - STRIPE:
                    size, bound = _narrow(queries[q], vectors, mine, approximate, size, k, slack[q])
                    threshold = np.nextafter(np.float32(bound), np.float32(-np.inf))
        sizes[q], thresholds[q] = size, threshold


@njit(cache=True, nogil=True, inline="always")
def _reaches(row, start, threshold):
    """Return whether any of STRIPE scores reaches the threshold. The constant length allows vector instructions."""
    above = np.int32(0)
    for i in range(np.uint64(STRIPE)):
        above += np.int32(row[np.uint64(start) + i] >= threshold)
    return above > 0


@njit(cache=True, nogil=True)
def finish(slack, k, docs, scores, sizes, first, last):
    """Drop the candidates of queries first..last-1 that cannot be among the k best by exact score."""
    for q in range(first, last):
        if sizes[q] > k:
            sizes[q] = _drop(docs[q], scores[q], sizes[q], _kth(scores[q], sizes[q], k) - 2 * slack[q])


@njit(cache=True, nogil=True)
def rank_rows(queries, vectors, candidates, offsets, top_docs, top_scores, first, last):
    """Fill rows first..last-1 of `top_docs` and `top_scores` [Q, k >= 1] with the k best candidates, in document order.

    Query q has the candidates `candidates[offsets[q]:offsets[q + 1]]` (int32, ascending). Scores are inner products,
    summed in float64. Rows are padded with document -1 and score -inf. Ties go to the smaller document number.
    """
    k = top_docs.shape[1]
    for q in range(first, last):
        mine = candidates[offsets[q] : offsets[q + 1]].copy()
        scores = np.empty(len(mine))
        size = len(mine)
        _score(queries[q], vectors, mine, scores, size)
        if size > k:
            size = keep_best(mine, scores, size, k, _kth(scores, size, k))
        top_docs[q, :size], top_scores[q, :size] = mine[:size], scores[:size]
        top_docs[q, size:], top_scores[q, size:] = -1, -np.inf


@njit(cache=True, nogil=True)
def _narrow(query, vectors, docs, scores, size, k, slack):
    """Drop candidates that cannot be among the k best. Return (number left, lowest score that later candidates need).

    Let kth be the k-th best approximate score among more than k candidates. The k best candidates by approximate score
    have exact scores of at least kth - slack. A document with an approximate score below kth - 2 * slack has an exact
    score below kth - slack. If too many candidates remain, they are scored exactly, and only the k best are kept.
    """
    bound = _kth(scores, size, k) - 2 * slack
    size = _drop(docs, scores, size, bound)
    if size > len(docs) // 2:
        _score(query, vectors, docs, scores, size)
        kth = _kth(scores, size, k)
        size, bound = keep_best(docs, scores, size, k, kth), kth - slack
    return size, bound


@njit(cache=True, nogil=True)
def _kth(scores, size, k):
    return select(scores[:size].copy(), size, k - 1)


@njit(cache=True, nogil=True)
def _drop(docs, scores, size, bound):
    """Drop candidates with scores below `bound`, in place; the order stays. Return the number left."""
    kept = 0
    for i in range(size):
        docs[kept], scores[kept] = docs[i], scores[i]  # no branch: it would often be mispredicted
        kept += scores[i] >= bound
    return kept


@njit(cache=True, nogil=True, fastmath=FUSED)
def _score(query, vectors, docs, scores, size):
    """Write the exact scores of `docs[:size]` to `scores`. The order of summation depends only on the vector length."""
    wide, lanes = query.astype(np.float64), np.empty(LANES)
    whole = len(wide) - len(wide) % (4 * LANES)
    for i in range(size):
        vector = vectors[docs[i]]
        lanes[:] = 0.0
        for start in range(0, whole, 4 * LANES):  # four products at a time, to access the partial sums less often
            for j in range(np.uint64(start), np.uint64(start + LANES)):
                one = wide[j] * np.float64(vector[j])
                two = wide[j + LANES] * np.float64(vector[j + LANES])
                three = wide[j + 2 * LANES] * np.float64(vector[j + 2 * LANES])
                four = wide[j + 3 * LANES] * np.float64(vector[j + 3 * LANES])
                lanes[j - start] += (one + two) + (three + four)
        for start in range(whole, len(wide), LANES):
            for j in range(min(LANES, len(wide) - start)):
                lanes[j] += wide[np.uint64(start + j)] * np.float64(vector[np.uint64(start + j)])
        width = LANES // 2
        while width:
            for j in range(width):
                lanes[j] += lanes[j + width]
            width //= 2
        scores[i] = lanes[0]
