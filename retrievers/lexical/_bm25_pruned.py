"""Compiled pruned search of BM25, for large indexes: the same rows as the exhaustive search, without most postings.

A query begins exhaustively. Once k documents are known, their lowest score is a threshold (MaxScore: Turtle and Flood
1995). A term's peak bounds what it can add. Terms whose peaks together cannot reach the threshold are optional. Only
postings of the other, essential terms are read, window by window. For the documents found there, optional terms are
looked up one by one, the highest peak first. A document is dropped as soon as the peaks of the remaining terms cannot
lift it above the threshold. The scores of the few documents that are left are added up once more, in the order of the
query's terms, so they have the bits of an exhaustive search.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from retrievers.compiling import helper, kernel
from retrievers.lexical._bm25_kernels import keep_best
from retrievers.lexical._bm25_search import (
    BLOCK,
    NO_DOC,
    NONE,
    begin_query,
    fill_row,
    kth_score,
    make_room,
    scan,
    tiny_search,
)

WINDOW = 4 * BLOCK  # number of documents of a window; few of them are touched, so it can be larger than a block
FRESH = 8  # the threshold is raised once 1 / FRESH of the k best documents are new
SLACK = 1e-9  # relative; far above the rounding error of sums in another order
# Measured costs, relative to adding up a posting: of an essential term's posting with the look-ups that it causes; of
# scoring one of the k best documents once more.
ESSENTIAL, EXACT = 6, 40
ONE, TWO, FOUR = np.uint64(1), np.uint64(2), np.uint64(4)
PAIRS, QUADS, BYTES = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333), np.uint64(0x0F0F0F0F0F0F0F0F)
SUM, TOP_BYTE = np.uint64(0x0101010101010101), np.uint64(56)
WORD, BIT = np.uint64(6), np.uint64(63)  # a document's word of a bitmap: doc >> WORD; its bit there: doc & BIT


class Bitmaps(NamedTuple):
    """The documents of frequent terms, for look-ups.

    rows: int64 [V], the term's row in the other arrays; -1 for terms without a bitmap.
    bits: uint64 [R, words], a bit for each document. ranks: int32 [R, words], the number of bits before each word.
    """

    rows: np.ndarray
    bits: np.ndarray
    ranks: np.ndarray


class Pruning(NamedTuple):
    """Memory for pruning.

    terms, times, rest: the query's different terms by falling bound (peak times count), their counts, and the sums of
        the bounds from each term on.
    inside, parts, marks: documents of a window, as distances from its first; their sums; and a bitmap to sort them.
    """

    terms: np.ndarray
    times: np.ndarray
    rest: np.ndarray
    inside: np.ndarray
    parts: np.ndarray
    marks: np.ndarray


@kernel
def search_pruned(postings, dense, bitmaps, queries, first, last, top_docs, top_scores):
    """Fill the same rows as `search_postings`. dense: without rows."""
    k = top_docs.shape[1]
    candidates, reading = make_room(queries.offsets, first, last, k, np.int64(WINDOW))
    pruning = _room_for_pruning(len(reading.cursors))
    for q in range(first, last):
        mine = queries.terms[queries.offsets[q] : queries.offsets[q + 1]]
        floor, size, threshold, base = begin_query(postings, dense.rows, mine, reading), NONE, -np.inf, -BLOCK
        blocks, terms = 1, 0
        # The threshold rises ever more slowly, so pruning is considered after blocks 1, 2, 4, 8 ...
        while terms == 0:
            size, threshold, base = scan(
                postings, dense, reading, len(mine), floor, k, candidates, size, threshold, base, max(1, blocks // 2)
            )
            blocks *= 2
            if base < 0:
                break
            if size >= k:
                threshold = kth_score(candidates, size, k)
                size = keep_best(candidates.docs, candidates.scores, size, k, threshold)
                if threshold > floor:
                    terms = terms_to_prune(postings, mine, k, _needed(threshold, floor), pruning)
        if terms:
            size = _prune(
                postings, bitmaps, mine, terms, floor, base + BLOCK, k, threshold, candidates, reading, pruning
            )
        fill_row(candidates, size, k, top_docs[q], top_scores[q])


@helper
def _room_for_pruning(longest):
    return Pruning(
        np.empty(longest, np.int64),
        np.empty(longest),
        np.empty(longest + 1),
        np.empty(WINDOW + 1, np.int32),
        np.empty(WINDOW + 1),
        np.zeros(WINDOW >> 6, np.uint64),
    )


@helper
def _needed(threshold, floor):
    """Return a value that every sum above the threshold exceeds, in whatever order it was added up."""
    return threshold * (1 - SLACK) - floor


@helper
def terms_to_prune(postings, mine, k, needed, pruning):
    """Fill `pruning.terms`. Return their number; 0 if an exhaustive search is estimated to be faster."""
    peaks, unique, times, rest, n = postings.peaks, pruning.terms, pruning.times, pruning.rest, 0
    for term in mine:
        at = 0
        while at < n and unique[at] != term:
            at += 1
        if at == n:
            unique[n], times[n] = term, 0.0
            n += 1
        times[at] += 1.0
    for i in range(1, n):  # insertion sort
        term, count, at = unique[i], times[i], i
        while at > 0 and peaks[unique[at - 1]] * times[at - 1] < peaks[term] * count:
            unique[at], times[at] = unique[at - 1], times[at - 1]
            at -= 1
        unique[at], times[at] = term, count
    kept, every = 0, 0.0
    rest[n] = 0.0
    for i in range(n - 1, -1, -1):
        rest[i] = rest[i + 1] + peaks[unique[i]] * times[i]
        length = postings.ends[unique[i]] - postings.starts[unique[i]]
        every += times[i] * length
        kept += length if rest[i] >= needed else 0
    return n if ESSENTIAL * kept + EXACT * k < every else 0


@helper
def _prune(postings, bitmaps, mine, terms, floor, base, k, threshold, candidates, reading, pruning):
    """Continue a search pruned, from document `base` on. Return the number of candidates.

    terms: number of the query's different terms.
    """
    docs, scores, sums = candidates.docs, candidates.scores, reading.sums
    unique, times, rest, inside, parts = pruning.terms, pruning.times, pruning.rest, pruning.inside, pruning.parts
    cursors, limits = reading.cursors, reading.limits
    needed = _needed(threshold, floor)
    essential = _essential(rest, terms, needed)
    for i in range(essential):
        cursors[i] = _find(postings.docs, postings.starts[unique[i]], postings.ends[unique[i]], base)
    size, fresh = k, 0
    while True:
        base = _next_window(postings.docs, postings.ends, unique, cursors, essential, base)
        if base < 0:
            return size
        limit, n = base - base % WINDOW + WINDOW, NONE
        for i in range(essential):
            limits[i] = cursors[i]
            end = postings.ends[unique[i]]
            cursors[i], n = _touch(
                postings.docs, postings.scores, cursors[i], end, base, limit, times[i], sums, inside, n
            )
        n = _take(sums, inside, parts, n, needed - rest[essential])
        for i in range(essential, terms):
            if n:
                first, last = postings.starts[unique[i]], postings.ends[unique[i]]
                _look_up(postings, bitmaps, unique[i], first, last, times[i], base, inside, parts, n)
                n = _keep(inside, parts, n, needed - rest[i + 1])
        if n:
            _add_again(postings, bitmaps, mine, essential, base, n, reading, pruning)
        for i in range(n):
            score = parts[i] + floor
            if score > threshold:  # ties with the k-th lose: they come later
                docs[size], scores[size] = base + inside[i], score
                size, fresh = size + 1, fresh + 1
                if size == len(docs):
                    threshold, fresh = kth_score(candidates, size, k), 0
                    size = keep_best(docs, scores, size, k, threshold)
        if FRESH * fresh > k:
            threshold, fresh = kth_score(candidates, size, k), 0
            size = keep_best(docs, scores, size, k, threshold)
        needed = _needed(threshold, floor)
        essential = _essential(rest, essential, needed)
        base = limit


@helper
def _essential(rest, terms, needed):
    """Return the number of essential terms among the first `terms`."""
    while terms > 0 and rest[terms - 1] < needed:
        terms -= 1
    return terms


@helper
def _next_window(docs, ends, unique, cursors, essential, base):
    """Return the first document, from `base` on, of the next window with an essential posting; -1 if none is left."""
    nearest = NO_DOC
    for i in range(essential):
        if cursors[i] < ends[unique[i]]:
            nearest = min(nearest, docs[cursors[i]])
    return -1 if nearest == NO_DOC else max(base, nearest - nearest % WINDOW)


@helper
def _touch(docs, scores, at, end, base, limit, times, sums, inside, n):
    """Add a term's postings below `limit` to `sums`. Return (next posting, number of documents touched so far)."""
    while at + 8 <= end and docs[at + 7] < limit:
        for i in range(at, at + 8):
            here = np.uint64(docs[i] - base)
            before = sums[here]
            inside[np.uint64(n)] = here
            n += (before == 0.0) & (math.copysign(1.0, before) < 0.0)  # the document's first posting
            sums[here] = before + scores[i] * times
        at += 8
    while at < end and docs[at] < limit:
        here = np.uint64(docs[at] - base)
        before = sums[here]
        inside[np.uint64(n)] = here
        n += (before == 0.0) & (math.copysign(1.0, before) < 0.0)
        sums[here] = before + scores[at] * times
        at += 1
    return at, n


@helper
def _take(sums, inside, parts, n, bound):
    """Move the sums of n documents to `parts`. Keep those above the bound, and return their number."""
    kept = 0
    for i in range(n):
        here = np.uint64(inside[i])
        part, sums[here] = sums[here], -0.0
        inside[np.uint64(kept)], parts[np.uint64(kept)] = here, part  # a branch would be slower
        kept += part > bound
    return kept


@helper
def _keep(inside, parts, n, bound):
    """Keep the first n documents with a sum above the bound, in order. Return their number."""
    kept = 0
    for i in range(n):
        part = parts[i]
        inside[np.uint64(kept)], parts[np.uint64(kept)] = inside[i], part
        kept += part > bound
    return kept


@helper(inline="always")
def _look_up(postings, bitmaps, term, first, last, times, base, inside, parts, n):
    """Add a term's scores of n documents, times its count. first, last: limits of the postings to search."""
    row = bitmaps.rows[term]
    if row < 0:
        _look_up_postings(postings.docs, postings.scores, first, last, times, base, inside, parts, n)
    else:
        own = postings.scores[postings.starts[term] : postings.ends[term]]
        _look_up_bits(bitmaps.bits[row], bitmaps.ranks[row], own, times, base, inside, parts, n)


@helper
def _look_up_postings(docs, scores, first, last, times, base, inside, parts, n):
    for i in range(n):
        at = _find(docs, first, last, base + inside[i])
        if at < last and docs[at] == base + inside[i]:
            parts[i] += scores[at] * times


@helper
def _look_up_bits(bits, ranks, scores, times, base, inside, parts, n):
    for i in range(n):
        doc = np.uint64(base + inside[i])
        word, bit = bits[doc >> WORD], ONE << (doc & BIT)
        if word & bit:
            parts[i] += scores[ranks[doc >> WORD] + _ones(word & (bit - ONE))] * times


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
    return np.int64((((quads + (quads >> FOUR)) & BYTES) * SUM) >> TOP_BYTE)


@helper
def _add_again(postings, bitmaps, mine, essential, base, n, reading, pruning):
    """Sort n documents of a window, and add up their scores in the order of the query's terms."""
    inside, parts, marks, at = pruning.inside, pruning.parts, pruning.marks, 0
    for i in range(n):
        marks[inside[i] >> 6] |= ONE << np.uint64(inside[i] & 63)
    for place in range(len(marks)):
        word, marks[place] = marks[place], 0
        while word:
            lowest = word & (~word + ONE)
            inside[at], parts[at] = place * 64 + _ones(lowest - ONE), -0.0
            word ^= lowest
            at += 1
    for term in mine:
        first, last = postings.starts[term], postings.ends[term]
        for i in range(essential):
            if pruning.terms[i] == term:
                first, last = reading.limits[i], reading.cursors[i]
        _look_up(postings, bitmaps, term, first, last, 1.0, base, inside, parts, n)


@kernel
def mark_postings(starts, ends, docs, rows, bits, ranks):
    """Fill `rows` of Bitmaps with the terms that have the postings `docs[starts[i]:ends[i]]`."""
    for i in range(len(rows)):
        own, before, at = bits[rows[i]], ranks[rows[i]], starts[i]
        for place in range(len(own)):
            before[place] = at - starts[i]
            word = np.uint64(0)
            while at < ends[i] and docs[at] < 64 * (place + 1):
                word |= ONE << np.uint64(docs[at] & 63)
                at += 1
            own[place] = word


def _warm():
    """Compile all kernels."""
    postings, dense, *others = tiny_search()
    bitmaps = Bitmaps(np.full(1, -1), np.zeros((1, 1), np.uint64), np.zeros((1, 1), np.int32))
    search_pruned(postings, dense, bitmaps, *others)
    none = np.zeros(0, np.int64)
    mark_postings(none, none, postings.docs, none, bitmaps.bits, bitmaps.ranks)
