"""Compiled search of BM25: the best documents of each query, with ties in document order.

Documents are processed block by block in ascending order. Scores are added in the order of the query's terms, so equal
documents get equal sums. A sum of -0.0 marks a document without any of the terms: adding a posting's score, even 0.0,
changes the bits of -0.0 (IEEE 754, 6.3). _bm25_bounded finds the same documents of some queries faster.

_bm25_kernels describes the postings.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from retrievers.base import read_only
from retrievers.compiling import helper, kernel
from retrievers.lexical._bm25_bounded import MANY_GROUPS, NONE, WINDOW, add_exactly, collect_by_bounds
from retrievers.lexical._bm25_frequent import Columns, TermRows
from retrievers.lexical._bm25_kernels import keep_best, select
from retrievers.lexical.tokenize import Tokens

BLOCK = 4096  # number of documents scored together; their sums (32 KB) fit into the first-level cache
STRIPE = 8  # number of documents that are compared with the threshold at a time
GROUPS = 512  # number of groups of documents in a block; the best score of each group helps to find the first threshold
NO_DOC = np.int64(np.iinfo(np.int32).max)


class QueryTerms(NamedTuple):
    """The terms of all queries, one after the other. Query q has those from offsets[q] to offsets[q + 1] - 1.

    starts, ends, cursors: int64, the postings of each term, and the next one to read.
    rows: int64, the term's row in `TermRows`, or -1.
    floors: float64 [Q], the sum of the floors of each query's terms.
    bounded: bool [Q], whether the query is searched by bounds.
    """

    offsets: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    cursors: np.ndarray
    rows: np.ndarray
    floors: np.ndarray
    bounded: np.ndarray


class SearchRoom(NamedTuple):
    """The memory of a search. A kernel that allocates memory takes longer to compile.

    found, scored: int32 and float64, the candidates of a query and their scores. values: room to select the best.
    sums: float64 [BLOCK], -0.0 between two blocks.
    bounds: uint16 [WINDOW], sums of bounds, 0 between two windows. best: uint16 [MANY_GROUPS], those of groups.
    places: int32 [n_docs], 1 + the candidate's place, 0 for other documents; 0 between two queries.
    exact: float64 [1 + room for candidates]; the score at 0 belongs to all other documents.
    """

    found: np.ndarray
    scored: np.ndarray
    values: np.ndarray
    sums: np.ndarray
    bounds: np.ndarray
    best: np.ndarray
    places: np.ndarray
    exact: np.ndarray


def query_terms(columns: Columns, rows: np.ndarray, queries: Tokens, bounded: np.ndarray) -> QueryTerms:
    """Return what `search_postings` reads. rows: of each term in `columns`, as `FrequentTerms.rows` returns them."""
    starts, ends, mine = columns.starts[queries.ids], columns.ends[queries.ids], rows[queries.ids]
    added = columns.floors[queries.ids]  # bincount adds up in order
    floors = np.bincount(queries.texts(), added, len(queries)) if added.any() else np.zeros(len(queries))
    return QueryTerms(queries.offsets, starts, ends, starts.copy(), mine, floors, bounded)


def room_to_search(queried: QueryTerms, k: int, n_docs: int) -> SearchRoom:
    """Return memory to search for the k >= 1 best of n_docs documents."""
    bounded = bool(queried.bounded.any())
    # Collecting three times as many candidates as requested before dropping the worse ones is faster than a heap.
    size = 3 * k + (MANY_GROUPS if bounded else STRIPE)
    candidates = np.empty(size, np.int32), np.empty(size), np.empty(max(size, MANY_GROUPS))
    bounds = np.zeros(WINDOW * bounded, np.uint16), np.empty(MANY_GROUPS * bounded, np.uint16)
    exact = np.zeros(n_docs * bounded, np.int32), np.zeros((1 + size) * bounded)
    return SearchRoom(*candidates, np.full(BLOCK, -0.0), *bounds, *exact)


@kernel
def search_postings(n_docs, docs, scores, frequent, queried, room, first, last, top_docs, top_scores):
    """Fill rows first..last-1 of `top_docs` and `top_scores` [Q, k >= 1] with the k best documents, in document order.

    n_docs: at least 1 + the last document with a posting. docs, scores: the postings. frequent: TermRows.
    Rows are padded with document -1 and score -inf. Ties go to the smaller document number.
    """
    ends, cursors, found, scored, values, sums = (
        queried.ends,
        queried.cursors,
        room.found,
        room.scored,
        room.values,
        room.sums,
    )
    k = top_docs.shape[1]
    for q in range(first, last):
        begin, end, floor = queried.offsets[q], queried.offsets[q + 1], queried.floors[q]
        size, done, threshold = NONE, NONE, -np.inf
        if queried.bounded[q]:
            size, done = collect_by_bounds(n_docs, docs, scores, frequent, queried, room, begin, end, k)
            add_exactly(docs, scores, frequent, queried, room, begin, end, size, floor)
            if size >= k:
                size, threshold = k, keep_best(found, scored, values, size, k)
        while done < n_docs:
            base = _next_block(docs, cursors, ends, begin, end)
            if base < 0:
                break
            # A small corpus does not fill a block.
            count = n_docs - base + (base - n_docs) % GROUPS
            count = count if count < BLOCK else BLOCK
            _add_up(docs, scores, cursors, ends, begin, end, base, sums)
            if size == 0:  # the first block
                threshold = _first_threshold(sums, count, floor, k, values)
            size, threshold = _collect(sums, count, floor, base, k, found, scored, values, size, threshold)
        if size > k:
            keep_best(found, scored, values, size, k)
            size = k
        for i in range(size):
            top_docs[q, i], top_scores[q, i] = found[i], scored[i]
        for i in range(size, k):
            top_docs[q, i], top_scores[q, i] = -1, -np.inf


@helper
def _next_block(docs, cursors, limits, begin, end):
    """Return the first document of the next block in which any term has a posting; -1 if no posting is left."""
    base = NO_DOC
    for t in range(begin, end):
        if cursors[t] < limits[t]:
            base = min(base, docs[cursors[t]])
    return -1 if base == NO_DOC else base - base % BLOCK


@helper
def _add_up(docs, scores, cursors, limits, begin, stop, base, sums):
    """Add the scores of a block's postings to `sums`, and move the cursors past them."""
    limit = base + BLOCK
    for t in range(begin, stop):
        at, end = cursors[t], limits[t]
        while at + 8 <= end and docs[at + 7] < limit:  # documents ascend, so one comparison is enough for eight
            for i in range(at, at + 8):
                sums[np.uint64(docs[i] - base)] += scores[i]  # unsigned: numba tests whether a signed index is < 0
            at += 8
        while at < end and docs[at] < limit:
            sums[np.uint64(docs[at] - base)] += scores[at]
            at += 1
        cursors[t] = at


@helper(inline="always")
def _first_threshold(sums, count, floor, k, values):
    """Return a value just below a score that at least k documents of the block reach; -inf if no such score is known.

    The k-th best of the groups' best scores is such a score, since k groups have a document that reaches it. This score
    is used only if it is above 0, because then each of these k documents has a term of the query. With this threshold,
    most documents of the first block never become candidates.
    """
    if k > GROUPS:
        return -np.inf
    for i in range(GROUPS):
        values[i] = sums[i]
    for start in range(GROUPS, count, GROUPS):
        for i in range(GROUPS):  # compiled to vector instructions, since neighbours are in different groups
            values[i] = sums[start + i] if sums[start + i] > values[i] else values[i]
    kth = select(values, np.int64(GROUPS), k - 1)
    return np.nextafter(kth + floor, -np.inf) if kth > 0.0 else -np.inf


@helper(inline="always")
def _collect(sums, count, floor, base, k, docs, scores, values, size, threshold):
    """Add the documents of a block that score above the threshold, and reset `sums`. Return (size, threshold)."""
    for start in range(0, count, STRIPE):
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
                threshold = keep_best(docs, scores, values, size, k)
                size = k
    for i in range(count):
        sums[i] = -0.0
    return size, threshold


def _warm():
    """Compile all kernels."""
    one, docs, scores = np.zeros(1, np.int64), read_only(np.zeros(1, np.int32)), read_only(np.zeros(1))
    queried = QueryTerms(np.arange(2), one, one, one, one, np.zeros(1), np.zeros(1, bool))
    frequent = TermRows(np.zeros(1, np.uint8), np.zeros(1, np.uint64), np.zeros(1, np.int32), 1, 1.0)
    room, top = room_to_search(queried, 1, 1), (np.zeros((1, 1), np.int32), np.zeros((1, 1)))
    search_postings(1, docs, scores, frequent, queried, room, 0, 1, *top)
