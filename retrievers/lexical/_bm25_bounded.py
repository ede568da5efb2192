"""Compiled search of BM25 by bounds: the same rows as the exhaustive search, in a fraction of the time.

A score is rounded up to a small integer, its bound. Bounds are added up quickly: a vector register holds 32 sums, and
frequent terms have a row with the bounds of all documents. Documents whose sum is too low to be among the k best are
dropped. The scores of the others are added up in the order of the query's terms, so they have the bits of an exhaustive
search.

A score s >= 0 has the bound floor(s * scale) + 1. A document with a sum b of n bounds therefore has a score below
b / scale and of at least (b - n) / scale. If k documents have a sum of at least b, only sums above b - n - 1 matter.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from retrievers.compiling import helper, kernel
from retrievers.lexical._bm25_kernels import keep_best, select
from retrievers.lexical._bm25_search import NONE, begin_query, fill_row, kth_score, make_room, scan, tiny_search

WINDOW = 1 << 14  # number of documents whose bounds are added up together; the sums (32 KB) fit into the cache
WIDE, MIDDLE, NARROW = 512, 64, 16  # numbers of documents that are compared with the least bound at a time
GROUPS, MANY_GROUPS = 512, 2048  # as in _bm25_search, for k up to a half of them
HIGHEST = 65_535  # the highest sum of bounds
# Measured costs, relative to adding up a posting: of a query; of a document in a term's row; of a requested document,
# for each of the query's terms.
QUERY_COST, ROW_COST, EXACT_COST = 1200, 0.02, 4.5
FEW = 4  # postings are read one by one if there are at most this many for each document to look up
ONE, TWO, FOUR = np.uint64(1), np.uint64(2), np.uint64(4)
PAIRS, QUADS, BYTES = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333), np.uint64(0x0F0F0F0F0F0F0F0F)
ONES, TOP_BYTE = np.uint64(0x0101010101010101), np.uint64(56)
WORD, BIT = np.uint64(6), np.uint64(63)  # a document's word of a bitmap: doc >> WORD; its bit there: doc & BIT


class TermRows(NamedTuple):
    """The documents of frequent terms.

    rows: int64 [V], the term's row in the other arrays; -1 for terms without a row.
    bounds: uint8 [R, n_docs rounded up to a multiple of WIDE], 0 for documents without the term.
    bits: uint64 [R, words], a bit for each document. ranks: int32 [R, words], the number of bits before each word.
    scale: see above.
    """

    rows: np.ndarray
    bounds: np.ndarray
    bits: np.ndarray
    ranks: np.ndarray
    scale: float


class Bounding(NamedTuple):
    """Memory for a search by bounds.

    sums: uint16 [WINDOW], the sums of bounds, 0 between two windows. best: uint16 [MANY_GROUPS], those of groups.
    places: int32 [n_docs], 1 + the candidate's place, 0 for other documents; 0 between two queries.
    exact: float64 [1 + room for candidates]; the score at 0 belongs to all other documents.
    """

    sums: np.ndarray
    best: np.ndarray
    places: np.ndarray
    exact: np.ndarray


@kernel
def search_bounded(postings, frequent, queries, first, last, top_docs, top_scores):
    """Fill the same rows as `search_postings`."""
    k = top_docs.shape[1]
    candidates, reading = make_room(queries.offsets, first, last, k, np.int64(MANY_GROUPS))
    bounding = Bounding(
        np.zeros(WINDOW, np.uint16),
        np.empty(MANY_GROUPS, np.uint16),
        np.zeros(postings.n_docs, np.int32),
        np.zeros(1 + len(candidates.docs)),
    )
    for q in range(first, last):
        mine = queries.terms[queries.offsets[q] : queries.offsets[q + 1]]
        floor, size, done = begin_query(postings, mine, reading), NONE, NONE
        if bounds_pay(postings, frequent, mine, k):
            size, done = _collect_by_bounds(postings, frequent, mine, k, candidates, reading.cursors, bounding)
            _add_exactly(postings, frequent, mine, floor, candidates, size, bounding)
            if size > k:
                size = keep_best(candidates.docs, candidates.scores, size, k, kth_score(candidates, size, k))
        if done < postings.n_docs:
            for i in range(len(mine)):
                reading.cursors[i] = _find(postings.docs, postings.starts[mine[i]], postings.ends[mine[i]], done)
            size = scan(postings, reading, len(mine), floor, k, candidates, size)
        fill_row(candidates, size, k, top_docs[q], top_scores[q])


@helper
def bounds_pay(postings, frequent, mine, k):
    """Return whether a query can be searched by bounds, and that is estimated to be faster than exhaustively."""
    highest, saved = 0.0, -QUERY_COST - EXACT_COST * k * len(mine)
    for term in mine:
        length = postings.ends[term] - postings.starts[term]
        if length and postings.peaks[term] <= 0:  # negative scores have no bounds
            return False
        highest += postings.peaks[term] * frequent.scale + 1
        if frequent.rows[term] >= 0:
            saved += length - ROW_COST * postings.n_docs
    return highest < HIGHEST and saved > 0


@helper
def _collect_by_bounds(postings, frequent, mine, k, candidates, cursors, bounding):
    """Collect the documents whose bounds are high enough. Return (their number, first document that was not read).

    Reading stops where so many documents have similar bounds that an exhaustive search is faster.
    """
    size, least, n = NONE, NONE, len(mine)
    for base in range(0, postings.n_docs, WINDOW):
        sums = bounding.sums[: min(WINDOW, frequent.bounds.shape[1] - base)]
        for i in range(n):
            row = frequent.rows[mine[i]]
            if row >= 0:
                _add_row(frequent.bounds[row, base : base + len(sums)], sums)
            else:
                end = postings.ends[mine[i]]
                cursors[i] = _add_bounds(postings.docs, postings.scores, cursors[i], end, base, frequent.scale, sums)
        if base == 0:
            least = _first_least(sums, k, n, candidates.values, bounding.best)
        size, least, full = _collect(sums, base, least, k, n, candidates, size)
        sums[:] = 0
        if full:
            while size > 0 and candidates.docs[size - 1] >= base:
                size -= 1
            return size, base
        if 2 * size > 3 * k:
            size, least = _drop(candidates, size, k, n, least)
    if size > k:
        size, least = _drop(candidates, size, k, n, least)
    return size, postings.n_docs


@helper
def _add_row(row, sums):
    for i in range(len(sums)):  # this becomes vector instructions
        sums[i] += row[i]


@helper
def _add_bounds(docs, scores, at, end, base, scale, sums):
    """Add the bounds of a term's postings in a window. Return the next posting."""
    limit = base + WINDOW
    while at + 8 <= end and docs[at + 7] < limit:
        for i in range(at, at + 8):
            sums[np.uint64(docs[i] - base)] += np.uint16(scores[i] * scale + 1)
        at += 8
    while at < end and docs[at] < limit:
        sums[np.uint64(docs[at] - base)] += np.uint16(scores[at] * scale + 1)
        at += 1
    return at


@helper
def _first_least(sums, k, n, values, best):
    """Return a sum of bounds that documents must exceed to be among the k best, from the first window."""
    groups = GROUPS if 2 * k <= GROUPS else MANY_GROUPS
    if 2 * k > groups:
        return NONE
    best[:groups] = 0
    for start in range(0, len(sums), groups):
        _raise(best[:groups], sums[start : start + groups])
    for i in range(groups):
        values[i] = best[i]
    return max(NONE, np.int64(select(values, np.int64(groups), k - 1)) - n - 1)


@helper
def _raise(best, sums):
    for i in range(len(sums)):
        best[i] = sums[i] if sums[i] > best[i] else best[i]


@helper
def _collect(sums, base, least, k, n, candidates, size):
    """Add the documents of a window with sums above `least`. Return (size, least, whether they are too many)."""
    docs, scores = candidates.docs, candidates.scores
    for wide in range(0, len(sums), WIDE):
        if _highest(sums[wide : wide + WIDE]) <= least:
            continue
        for middle in range(wide, wide + WIDE, MIDDLE):
            if _highest(sums[middle : middle + MIDDLE]) <= least:
                continue
            for narrow in range(middle, middle + MIDDLE, NARROW):
                if _highest(sums[narrow : narrow + NARROW]) <= least:
                    continue
                for i in range(narrow, narrow + NARROW):
                    docs[size], scores[size] = base + i, sums[i]  # a branch would be slower
                    size += sums[i] > least
        if size > len(docs) - WIDE:
            size, least = _drop(candidates, size, k, n, least)
            if size > len(docs) - WIDE - k - NARROW:
                return size, least, True
    return size, least, False


@helper
def _highest(sums):
    highest = np.uint16(0)
    for i in range(len(sums)):
        highest = sums[i] if sums[i] > highest else highest
    return highest


@helper
def _drop(candidates, size, k, n, least):
    """Drop candidates, `size` > k of them, whose sums of bounds are too low. Return (size, least)."""
    docs, scores, kept = candidates.docs, candidates.scores, 0
    least = max(least, np.int64(kth_score(candidates, size, k)) - n - 1)
    for i in range(size):
        docs[kept], scores[kept] = docs[i], scores[i]
        kept += scores[i] > least
    return kept, least


@helper
def _add_exactly(postings, frequent, mine, floor, candidates, size, bounding):
    """Set the scores of the candidates, which ascend."""
    docs, places, exact = candidates.docs[:size], bounding.places, bounding.exact[: size + 1]
    for i in range(size):
        places[docs[i]], exact[i + 1] = i + 1, -0.0
    for term in mine:
        row, start, end = frequent.rows[term], postings.starts[term], postings.ends[term]
        if end - start <= FEW * size:
            _add_few(postings.docs[start:end], postings.scores[start:end], places, exact)
        elif row >= 0:
            _look_up_bits(frequent.bits[row], frequent.ranks[row], postings.scores[start:end], docs, exact[1:])
        else:
            _look_up(postings.docs[start:end], postings.scores[start:end], docs, exact[1:])
    for i in range(size):
        places[docs[i]], candidates.scores[i] = 0, exact[i + 1] + floor


@helper
def _add_few(docs, scores, places, exact):
    for i in range(len(docs)):
        exact[np.uint64(places[np.uint64(docs[i])])] += scores[i]


@helper
def _look_up_bits(bits, ranks, scores, docs, exact):
    last = np.uint64(len(scores) - 1)
    for i in range(len(docs)):
        doc = np.uint64(docs[i])
        word, bit = bits[doc >> WORD], ONE << (doc & BIT)
        score = scores[min(last, np.uint64(ranks[doc >> WORD]) + _ones(word & (bit - ONE)))]
        exact[i] += score if word & bit else -0.0  # no branch; adding -0.0 changes no bit


@helper
def _look_up(own, scores, docs, exact):
    """Find the documents by steps that double, from the one before on."""
    at = np.int64(0)
    for i in range(len(docs)):
        step = 1
        while at + step < len(own) and own[at + step] < docs[i]:
            step *= 2
        at = _find(own, at, min(len(own), at + step + 1), docs[i])
        if at < len(own) and own[at] == docs[i]:
            exact[i] += scores[at]


@helper
def _find(docs, first, last, doc):
    """Return the place of the first of `docs[first:last]` that is not below `doc`; `last` if there is none."""
    while first < last:
        middle = (first + last) >> 1
        if docs[middle] < doc:
            first = middle + 1
        else:
            last = middle
    return first


@helper(inline="always")
def _ones(word):
    """Return the number of ones of a uint64 (Knuth, TAOCP 4A, 7.1.3); this becomes a single instruction."""
    pairs = word - ((word >> ONE) & PAIRS)
    quads = (pairs & QUADS) + ((pairs >> TWO) & QUADS)
    return (((quads + (quads >> FOUR)) & BYTES) * ONES) >> TOP_BYTE


@kernel
def fill_rows(starts, ends, docs, scores, terms, frequent):
    """Fill the rows of `terms`. The postings of term t are those from starts[t] to ends[t] - 1."""
    for term in terms:
        row, at, end = frequent.rows[term], starts[term], ends[term]
        bounds, bits, ranks = frequent.bounds[row], frequent.bits[row], frequent.ranks[row]
        bounds[:] = 0
        for place in range(len(bits)):
            word, ranks[place] = np.uint64(0), at - starts[term]
            while at < end and docs[at] < 64 * (place + 1):
                word |= ONE << np.uint64(docs[at] & 63)
                bounds[docs[at]] = np.uint8(scores[at] * frequent.scale + 1)
                at += 1
            bits[place] = word


def _warm():
    """Compile all kernels."""
    postings, *others = tiny_search()
    rows = np.full(1, -1), np.zeros((1, WIDE), np.uint8), np.zeros((1, 1), np.uint64), np.zeros((1, 1), np.int32)
    search_bounded(postings, TermRows(*rows, 1.0), *others)
    none = np.zeros(0, np.int64)
    fill_rows(postings.starts, postings.ends, postings.docs, postings.scores, none, TermRows(*rows, 1.0))
