"""Compiled exhaustive search of BM25: the best documents of each query, with ties in document order.

Documents are processed block by block in ascending order. Scores are added in the order of the query's terms, so equal
documents get equal sums. A sum of -0.0 marks a document without any of the terms: adding a posting's score, even 0.0,
changes the bits of -0.0 (IEEE 754, 6.3).

_bm25_kernels describes the postings. Each group of arrays below is passed as one argument.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from retrievers.base import read_only
from retrievers.compiling import helper, kernel
from retrievers.lexical._bm25_kernels import keep_best, select

BLOCK = 4096  # number of documents scored together; their sums (32 KB) fit into the first-level cache
STRIPE = 8  # number of documents that are compared with the threshold at a time
GROUPS = 512  # number of groups of documents in a block; the best score of each group helps to find the first threshold
NO_DOC = np.int64(np.iinfo(np.int32).max)
NONE = np.int64(0)  # unlike 0, it does not make numba compile a helper for this number alone


class ScoredPostings(NamedTuple):
    """starts, ends, floors: see _bm25_kernels. peaks: float64 [V], at least the highest score of each term.

    n_docs: at least 1 + the last document with a posting.
    """

    n_docs: int
    starts: np.ndarray
    ends: np.ndarray
    floors: np.ndarray
    peaks: np.ndarray
    docs: np.ndarray
    scores: np.ndarray


class Queries(NamedTuple):
    """Query q has the terms `terms[offsets[q]:offsets[q + 1]]`."""

    terms: np.ndarray
    offsets: np.ndarray


class TopCandidates(NamedTuple):
    """The candidates of a query, and room to select the best of them."""

    docs: np.ndarray
    scores: np.ndarray
    values: np.ndarray


class Reading(NamedTuple):
    """How far a query is read: for each of its terms, the next posting and the last + 1.

    sums: float64 [BLOCK], -0.0 between two blocks.
    """

    cursors: np.ndarray
    limits: np.ndarray
    sums: np.ndarray


@kernel
def search_postings(postings, queries, first, last, top_docs, top_scores):
    """Fill rows first..last-1 of `top_docs` and `top_scores` [Q, k >= 1] with the k best documents, in document order.

    Rows are padded with document -1 and score -inf. Ties go to the smaller document number.
    """
    k = top_docs.shape[1]
    candidates, reading = make_room(queries.offsets, first, last, k, np.int64(STRIPE))
    for q in range(first, last):
        mine = queries.terms[queries.offsets[q] : queries.offsets[q + 1]]
        floor = begin_query(postings, mine, reading)
        size = scan(postings, reading, len(mine), floor, k, candidates, NONE)
        fill_row(candidates, size, k, top_docs[q], top_scores[q])


@helper
def make_room(offsets, first, last, k, extra):
    """Return (TopCandidates, Reading) for queries first..last-1. extra: room for candidates beyond three times k."""
    longest = 1
    for q in range(first, last):
        longest = max(longest, offsets[q + 1] - offsets[q])
    # Collecting three times as many candidates as requested before dropping the worse ones is faster than a heap.
    room = 3 * k + extra
    sums = np.empty(BLOCK)
    for i in range(BLOCK):
        sums[i] = -0.0
    candidates = TopCandidates(np.empty(room, np.int32), np.empty(room), np.empty(max(room, GROUPS)))
    return candidates, Reading(np.empty(longest, np.int64), np.empty(longest, np.int64), sums)


@helper
def begin_query(postings, mine, reading):
    """Begin to read the query `mine`. Return the sum of its floors."""
    floor = 0.0
    for i in range(len(mine)):
        reading.cursors[i], reading.limits[i] = postings.starts[mine[i]], postings.ends[mine[i]]
        floor += postings.floors[mine[i]]
    return floor


@helper
def scan(postings, reading, terms, floor, k, candidates, size):
    """Read all postings of a query from the cursors on. Return the number of candidates.

    terms: number of the query's terms. size: number of candidates so far, at most k.
    """
    cursors, limits = reading.cursors[:terms], reading.limits[:terms]
    threshold = kth_score(candidates, size, k) if size == k else -np.inf
    while True:
        base = _next_block(postings.docs, cursors, limits)
        if base < 0:
            return size
        # A small corpus does not fill a block.
        sums = reading.sums[: min(BLOCK, postings.n_docs - base + (base - postings.n_docs) % GROUPS)]
        _add_up(postings.docs, postings.scores, cursors, limits, base, sums)
        if size == 0:  # the first block
            threshold = _first_threshold(sums, floor, k, candidates.values)
        size, threshold = _collect(sums, floor, base, k, candidates, size, threshold)


@helper
def _next_block(docs, cursors, limits):
    """Return the first document of the next block in which any term has a posting; -1 if no posting is left."""
    base = NO_DOC
    for t in range(len(cursors)):
        if cursors[t] < limits[t]:
            base = min(base, docs[cursors[t]])
    return -1 if base == NO_DOC else base - base % BLOCK


@helper
def _add_up(docs, scores, cursors, limits, base, sums):
    """Add the scores of a block's postings to `sums`, and move the cursors past them."""
    limit = base + BLOCK
    for t in range(len(cursors)):
        at, end = cursors[t], limits[t]
        while at + 8 <= end and docs[at + 7] < limit:  # documents ascend, so one comparison is enough for eight
            for i in range(at, at + 8):
                sums[np.uint64(docs[i] - base)] += scores[i]  # unsigned: numba tests whether a signed index is < 0
            at += 8
        while at < end and docs[at] < limit:
            sums[np.uint64(docs[at] - base)] += scores[at]
            at += 1
        cursors[t] = at


@helper
def _first_threshold(sums, floor, k, values):
    """Return a value just below a score that at least k documents of the block reach; -inf if no such score is known.

    The k-th best of the groups' best scores is such a score, since k groups have a document that reaches it. This score
    is used only if it is above 0, because then each of these k documents has a term of the query. With this threshold,
    most documents of the first block never become candidates.
    """
    if k > GROUPS:
        return -np.inf
    for i in range(GROUPS):
        values[i] = sums[i]
    for start in range(GROUPS, len(sums), GROUPS):
        for i in range(GROUPS):  # compiled to vector instructions, since neighbours are in different groups
            values[i] = max(values[i], sums[start + i])
    kth = select(values, np.int64(GROUPS), k - 1)
    return np.nextafter(kth + floor, -np.inf) if kth > 0.0 else -np.inf


@helper
def _collect(sums, floor, base, k, candidates, size, threshold):
    """Add the documents of a block that score above the threshold, and reset `sums`. Return (size, threshold)."""
    docs, scores = candidates.docs, candidates.scores
    for start in range(0, len(sums), STRIPE):
        above = 0
        for i in range(start, start + STRIPE):  # without a branch, this becomes vector instructions
            above += sums[i] + floor > threshold
        if above:
            for i in range(start, start + STRIPE):
                score = sums[i] + floor
                touched = (sums[i] != 0.0) | (math.copysign(1.0, sums[i]) > 0.0)
                docs[size], scores[size] = base + i, score  # a branch would be slower
                size += touched & (score > threshold)  # at equal scores, the earlier document wins
            if size > len(docs) - STRIPE:
                threshold = kth_score(candidates, size, k)
                size = keep_best(docs, scores, size, k, threshold)
    for i in range(len(sums)):
        sums[i] = -0.0
    return size, threshold


@helper
def kth_score(candidates, size, k):
    """Return the k-th best score of the first `size` candidates."""
    for i in range(size):
        candidates.values[i] = candidates.scores[i]
    return select(candidates.values, size, k - 1)


@helper
def fill_row(candidates, size, k, top_docs, top_scores):
    """Fill a query's row with the k best of its candidates."""
    docs, scores = candidates.docs, candidates.scores
    if size > k:
        size = keep_best(docs, scores, size, k, kth_score(candidates, size, k))
    for i in range(k):
        top_docs[i], top_scores[i] = (docs[i], scores[i]) if i < size else (-1, -np.inf)


def tiny_search():
    """Return tiny (ScoredPostings, Queries, first, last, top_docs, top_scores), to compile a search."""
    starts, docs, scores = (read_only(np.zeros(1, kind)) for kind in (np.int64, np.int32, np.float64))
    postings = ScoredPostings(1, starts, starts, scores, scores, docs, scores)
    return postings, Queries(np.zeros(1, np.int32), np.arange(2)), 0, 1, np.zeros((1, 1), np.int32), np.zeros((1, 1))


def _warm():
    """Compile all kernels."""
    search_postings(*tiny_search())
