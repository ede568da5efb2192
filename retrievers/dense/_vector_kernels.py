"""Compiled inner loops of vector search, imported only where they run because importing numba is slow.

Vectors are float32 and read-only, so each kernel is compiled for a single set of types.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from retrievers.base import read_only
from retrievers.compiling import helper, kernel
from retrievers.lexical._bm25_kernels import keep_best, select

STRIPE = 32  # number of scores compared with the threshold at a time
LANES = 16  # number of partial sums of an inner product: enough for vector instructions, few enough to add up quickly

# The product of two float32 numbers is exact in float64, so fusing it with the following addition changes no bit.
FUSED = {"contract"}


class CandidateRows(NamedTuple):
    """Candidates of queries, ascending. Query q has room for those from `offsets[q]` to `offsets[q + 1] - 1`.

    docs, scores: int32 and float64. sizes: int64 [Q], number of candidates so far.
    thresholds: float32 [Q]; documents with a lower approximate score are not candidates.
    """

    docs: np.ndarray
    scores: np.ndarray
    offsets: np.ndarray
    sizes: np.ndarray
    thresholds: np.ndarray


class ScoringRoom(NamedTuple):
    """A thread's memory. A kernel that allocates memory takes longer to compile.

    values: float64, to select the best. wide: float64 [D], the query. lanes: float64 [LANES], partial sums.
    """

    values: np.ndarray
    wide: np.ndarray
    lanes: np.ndarray


@kernel
def search_block(block, base, queries, vectors, slack, found, top_docs, top_scores, room):
    """Add those of the documents base..base+n-1 to the candidates that score high enough.

    The k best documents by exact score are always among the candidates. Ties go to the smaller document number. After
    the last document, fill `top_docs` and `top_scores` [Q, k >= 1] with the k best candidates, in document order.
    Exact scores are inner products, summed in float64. Rows are padded with document -1 and score -inf.

    block: float32 [Q, n], approximate scores of these documents.
    slack: float64 [Q], the greatest difference between an approximate and an exact score.
    """
    n, k = block.shape[1], top_docs.shape[1]
    for q in range(len(block)):
        row, size, threshold = block[q], found.sizes[q], found.thresholds[q]
        begin, end = found.offsets[q], found.offsets[q + 1]
        mine, scores, most = found.docs[begin:end], found.scores[begin:end], end - begin
        for start in range(0, n, STRIPE):
            stop = start + STRIPE if start + STRIPE <= n else n
            above = _reaches(row, start, threshold) if stop - start == STRIPE else True
            if above:
                for i in range(start, stop):
                    mine[size], scores[size] = base + i, row[i]
                    size += row[i] >= threshold
                if size > most - STRIPE:
                    size, bound = _drop(mine, scores, room.values, size, k, slack[q])
                    if size > most // 2:  # too many are left
                        _score(queries[q], vectors, mine, scores, size, room.wide, room.lanes)
                        bound = keep_best(mine, scores, room.values, size, k) - slack[q]
                        size = k
                    threshold = np.nextafter(np.float32(bound), np.float32(-np.inf))
        if base + n == len(vectors):
            if size > k:
                size = _drop(mine, scores, room.values, size, k, slack[q])[0]
            _score(queries[q], vectors, mine, scores, size, room.wide, room.lanes)
            if size > k:
                keep_best(mine, scores, room.values, size, k)
                size = k
            for i in range(size):
                top_docs[q, i], top_scores[q, i] = mine[i], scores[i]
            for i in range(size, k):
                top_docs[q, i], top_scores[q, i] = -1, -np.inf
        found.sizes[q], found.thresholds[q] = size, threshold


@helper(inline="always")
def _reaches(row, start, threshold):
    """Return whether any of STRIPE scores reaches the threshold. The constant length allows vector instructions."""
    above = np.int32(0)
    for i in range(np.uint64(STRIPE)):
        above += np.int32(row[np.uint64(start) + i] >= threshold)
    return above > 0


@helper
def _drop(docs, scores, values, size, k, slack):
    """Drop candidates that cannot be among the k best, in place; the order stays. Return (number left, least score).

    Let kth be the k-th best approximate score among more than k candidates. The k best candidates by approximate score
    have exact scores of at least kth - slack. A document with an approximate score below kth - 2 * slack has an exact
    score below kth - slack.
    """
    for i in range(size):
        values[i] = scores[i]
    bound = select(values, size, k - 1) - 2 * slack
    kept = 0
    for i in range(size):
        docs[kept], scores[kept] = docs[i], scores[i]  # no branch: it would often be mispredicted
        kept += scores[i] >= bound
    return kept, bound


@helper(fastmath=FUSED)
def _score(query, vectors, docs, scores, size, wide, lanes):
    """Write the exact scores of `docs[:size]` to `scores`. The order of summation depends only on the vector length."""
    for j in range(len(query)):
        wide[j] = query[j]
    whole = len(wide) - len(wide) % (4 * LANES)
    for i in range(size):
        vector = vectors[docs[i]]
        for j in range(LANES):
            lanes[j] = 0.0
        for start in range(0, whole, 4 * LANES):  # four products at a time, to access the partial sums less often
            for j in range(np.uint64(start), np.uint64(start + LANES)):
                one = wide[j] * np.float64(vector[j])
                two = wide[j + LANES] * np.float64(vector[j + LANES])
                three = wide[j + 2 * LANES] * np.float64(vector[j + 2 * LANES])
                four = wide[j + 3 * LANES] * np.float64(vector[j + 3 * LANES])
                lanes[j - start] += (one + two) + (three + four)
        for start in range(whole, len(wide), LANES):
            left = len(wide) - start
            for j in range(left if left < LANES else LANES):
                lanes[j] += wide[np.uint64(start + j)] * np.float64(vector[np.uint64(start + j)])
        width = LANES // 2
        while width:
            for j in range(width):
                lanes[j] += lanes[j + width]
            width //= 2
        scores[i] = lanes[0]


def _warm():
    """Compile all kernels."""
    vectors, offsets = read_only(np.ones((1, LANES), np.float32)), np.array([0, 2 * STRIPE])
    docs, scores = np.zeros(2 * STRIPE, np.int32), np.zeros(2 * STRIPE)
    found = CandidateRows(docs, scores, offsets, np.zeros(1, np.int64), np.zeros(1, np.float32))
    top = np.zeros((1, 1), np.int32), np.zeros((1, 1))
    block, room = np.ones((1, 1), np.float32), ScoringRoom(np.empty(2 * STRIPE), np.empty(LANES), np.empty(LANES))
    search_block(block, 0, vectors, vectors, np.zeros(1), found, *top, room)
