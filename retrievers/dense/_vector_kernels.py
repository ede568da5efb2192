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


class ScoringRoom(NamedTuple):
    """A thread's memory. A kernel that allocates memory takes longer to compile.

    found, scored: int32 and float64, the candidates of a query and their scores. values: float64, to select the best.
    wide: float64 [D], the query. lanes: float64 [LANES], partial sums.
    """

    found: np.ndarray
    scored: np.ndarray
    values: np.ndarray
    wide: np.ndarray
    lanes: np.ndarray


def room_to_score(candidates: int, dimensions: int) -> ScoringRoom:
    found, scored, values = np.empty(candidates, np.int32), np.empty(candidates), np.empty(candidates)
    return ScoringRoom(found, scored, values, np.empty(dimensions), np.empty(LANES))


@kernel
def collect(block, base, queries, vectors, slack, k, docs, scores, sizes, thresholds, room):
    """Extend the candidates of each query by those of the documents base..base+n-1 that score high enough.

    The k best documents by exact score are always among the candidates. Ties go to the smaller document number. After
    the last document, candidates are dropped that cannot be among the k best by exact score.

    block: float32 [Q, n], approximate scores of these documents.
    slack: float64 [Q], the greatest difference between an approximate and an exact score.
    docs, scores: int32 and float64 [Q, room]; the candidates so far are `docs[q, :sizes[q]]`, ascending.
    sizes: int64 [Q], number of candidates; initially 0.
    thresholds: float32 [Q]; documents with a lower score are not candidates; initially -inf.
    """
    most, n = docs.shape[1], block.shape[1]
    for q in range(len(block)):
        row, size, threshold = block[q], sizes[q], thresholds[q]
        mine, approximate = docs[q], scores[q]
        for start in range(0, n, STRIPE):
            stop = min(start + STRIPE, n)
            above = _reaches(row, start, threshold) if stop - start == STRIPE else True
            if above:
                for i in range(start, stop):
                    mine[size], approximate[size] = base + i, row[i]
                    size += row[i] >= threshold
                if size > most - STRIPE:
                    size, bound = _drop(mine, approximate, room.values, size, k, slack[q])
                    if size > most // 2:  # too many are left
                        _score(queries[q], vectors, mine, approximate, size, room.wide, room.lanes)
                        bound = keep_best(mine, approximate, room.values, size, k) - slack[q]
                        size = k
                    threshold = np.nextafter(np.float32(bound), np.float32(-np.inf))
        if base + n == len(vectors) and size > k:
            size = _drop(mine, approximate, room.values, size, k, slack[q])[0]
        sizes[q], thresholds[q] = size, threshold


@helper(inline="always")
def _reaches(row, start, threshold):
    """Return whether any of STRIPE scores reaches the threshold. The constant length allows vector instructions."""
    above = np.int32(0)
    for i in range(np.uint64(STRIPE)):
        above += np.int32(row[np.uint64(start) + i] >= threshold)
    return above > 0


@kernel
def rank_rows(queries, vectors, candidates, offsets, top_docs, top_scores, first, last, room):
    """Fill rows first..last-1 of `top_docs` and `top_scores` [Q, k >= 1] with the k best candidates, in document order.

    Query q has the candidates `candidates[offsets[q]:offsets[q + 1]]` (int32, ascending). Scores are inner products,
    summed in float64. Rows are padded with document -1 and score -inf. Ties go to the smaller document number.
    """
    k, mine, scores = top_docs.shape[1], room.found, room.scored
    for q in range(first, last):
        size = offsets[q + 1] - offsets[q]
        for i in range(size):
            mine[i] = candidates[offsets[q] + i]
        _score(queries[q], vectors, mine, scores, size, room.wide, room.lanes)
        if size > k:
            keep_best(mine, scores, room.values, size, k)
            size = k
        for i in range(size):
            top_docs[q, i], top_scores[q, i] = mine[i], scores[i]
        for i in range(size, k):
            top_docs[q, i], top_scores[q, i] = -1, -np.inf


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
            for j in range(min(LANES, len(wide) - start)):
                lanes[j] += wide[np.uint64(start + j)] * np.float64(vector[np.uint64(start + j)])
        width = LANES // 2
        while width:
            for j in range(width):
                lanes[j] += lanes[j + width]
            width //= 2
        scores[i] = lanes[0]


def _warm():
    """Compile all kernels."""
    vectors, offsets = read_only(np.ones((1, LANES), np.float32)), np.arange(2)
    docs, scores = np.zeros((1, 2 * STRIPE), np.int32), np.zeros((1, 2 * STRIPE))
    sizes, thresholds, room = np.zeros(1, np.int64), np.zeros(1, np.float32), room_to_score(2 * STRIPE, LANES)
    block, slack = np.ones((1, 1), np.float32), np.zeros(1)
    collect(block, 0, vectors, vectors, slack, 1, docs, scores, sizes, thresholds, room)
    rank_rows(vectors, vectors, np.zeros(1, np.int32), offsets, docs, scores, 0, 1, room)
