"""Compiled search of BM25 by bounds: the same rows as an exhaustive search, in a fraction of the time.

A score is rounded up to a small integer, its bound. Bounds are added up quickly: a vector register holds 32 sums, and
frequent terms have a row with the bounds of all documents. Documents whose sum is too low to be among the k best are
dropped. The scores of the others are added up in the order of the query's terms, so they have the bits of an exhaustive
search.

A score s >= 0 has the bound floor(s * scale) + 1. A document with a sum b of n bounds therefore has a score below
b / scale and of at least (b - n) / scale. If k documents have a sum of at least b, only sums above b - n - 1 matter.
"""

from __future__ import annotations

import numpy as np

from retrievers.base import read_only
from retrievers.compiling import helper, kernel
from retrievers.lexical._bm25_kernels import select

WINDOW = 1 << 14  # number of documents whose bounds are added up together; the sums (32 KB) fit into the cache
# Numbers of documents that are compared with the least bound at a time.
WIDE, MIDDLE, NARROW = np.int64(512), np.int64(64), np.int64(16)
GROUPS, MANY_GROUPS = 512, 2048  # as in _bm25_search, for k up to a half of them
FEW = 4  # postings are read one by one if there are at most this many for each document to look up
NONE = np.int64(0)  # unlike 0, it does not make numba compile a helper for this number alone
ONE, TWO, FOUR = np.uint64(1), np.uint64(2), np.uint64(4)
PAIRS, QUADS, BYTES = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333), np.uint64(0x0F0F0F0F0F0F0F0F)
ONES, TOP_BYTE = np.uint64(0x0101010101010101), np.uint64(56)
WORD, BIT = np.uint64(6), np.uint64(63)  # a document's word of a bitmap: doc >> WORD; its bit there: doc & BIT


@helper(inline="always")
def collect_by_bounds(n_docs, docs, scores, frequent, queried, room, begin, end, k):
    """Collect the documents whose bounds are high enough. Return (their number, first document that was not read).

    Reading stops where so many documents have similar bounds that an exhaustive search is faster.
    """
    cursors, rows, found, scored, sums = queried.cursors, queried.rows, room.found, room.scored, room.bounds
    size, least, n = NONE, NONE, end - begin
    for base in range(0, n_docs, WINDOW):
        count = frequent.padded - base if frequent.padded - base < WINDOW else WINDOW
        for t in range(begin, end):
            row = rows[t]
            if row >= 0:
                _add_row(frequent.bounds, row * frequent.padded + base, count, sums)
            else:
                cursors[t] = _add_bounds(docs, scores, cursors[t], queried.ends[t], base, frequent.scale, sums)
        if base == 0:
            least = _first_least(sums, count, k, n, room.values, room.best)
        size, least, full = _collect(sums, count, base, least, k, n, found, scored, room.values, size)
        for i in range(count):
            sums[i] = 0
        if full:
            while size > 0 and found[size - 1] >= base:
                size -= 1
            for t in range(begin, end):
                if rows[t] >= 0:
                    cursors[t] += frequent.ranks[(rows[t] * frequent.padded + base) >> 6]
                while cursors[t] > queried.starts[t] and docs[cursors[t] - 1] >= base:
                    cursors[t] -= 1
            return size, base
        if 2 * size > 3 * k:
            size, least = _drop(found, scored, room.values, size, k, n, least)
    if size > k:
        size, least = _drop(found, scored, room.values, size, k, n, least)
    return size, n_docs


@helper
def _add_row(rows, start, count, sums):
    for i in range(np.uint64(count)):  # this becomes vector instructions
        sums[i] += rows[np.uint64(start) + i]


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


@helper(inline="always")
def _first_least(sums, count, k, n, values, best):
    """Return a sum of bounds that documents must exceed to be among the k best, from the first window."""
    groups = GROUPS if 2 * k <= GROUPS else MANY_GROUPS
    if 2 * k > groups:
        return NONE
    for i in range(groups):
        best[i] = 0
    for start in range(0, count, groups):
        for i in range(np.uint64(groups if groups < count - start else count - start)):
            bound = sums[np.uint64(start) + i]
            best[i] = bound if bound > best[i] else best[i]
    for i in range(groups):
        values[i] = best[i]
    least = np.int64(select(values, np.int64(groups), k - 1)) - n - 1
    return least if least > 0 else NONE


@helper(inline="always")
def _collect(sums, count, base, least, k, n, docs, scores, values, size):
    """Add the documents of a window with sums above `least`. Return (size, least, whether they are too many)."""
    for wide in range(0, count, WIDE):
        if _highest(sums, wide, WIDE) <= least:
            continue
        for middle in range(wide, wide + WIDE, MIDDLE):
            if _highest(sums, middle, MIDDLE) <= least:
                continue
            for narrow in range(middle, middle + MIDDLE, NARROW):
                if _highest(sums, narrow, NARROW) <= least:
                    continue
                for i in range(narrow, narrow + NARROW):
                    docs[size], scores[size] = base + i, sums[i]  # a branch would be slower
                    size += sums[i] > least
        if size > len(docs) - WIDE:
            size, least = _drop(docs, scores, values, size, k, n, least)
            if size > len(docs) - WIDE - k - NARROW:
                return size, least, True
    return size, least, False


@helper
def _highest(sums, start, count):
    found = np.uint16(0)
    for i in range(np.uint64(start), np.uint64(start + count)):
        found = sums[i] if sums[i] > found else found
    return found


@helper
def _drop(docs, scores, values, size, k, n, least):
    """Drop candidates, `size` > k of them, whose sums of bounds are too low. Return (size, least)."""
    for i in range(size):
        values[i] = scores[i]
    bound = np.int64(select(values, size, k - 1)) - n - 1
    least = bound if bound > least else least
    kept = 0
    for i in range(size):
        docs[kept], scores[kept] = docs[i], scores[i]
        kept += scores[i] > least
    return kept, least


@helper(inline="always")
def add_exactly(docs, scores, frequent, queried, room, begin, end, size, floor):
    """Set the scores of the candidates, which ascend."""
    found, places, exact = room.found, room.places, room.exact
    for i in range(size):
        places[found[i]], exact[i + 1] = i + 1, -0.0
    for t in range(begin, end):
        row, start, stop = queried.rows[t], queried.starts[t], queried.ends[t]
        if stop - start <= FEW * size:
            _add_few(docs, scores, start, stop, places, exact)
        elif row >= 0:
            _look_up_bits(frequent, (row * frequent.padded) >> 6, scores, start, stop, found, size, exact)
        else:
            _look_up(docs, scores, start, stop, found, size, exact)
    for i in range(size):
        places[found[i]], room.scored[i] = 0, exact[i + 1] + floor


@helper
def _add_few(docs, scores, start, stop, places, exact):
    for i in range(np.uint64(start), np.uint64(stop)):
        exact[np.uint64(places[np.uint64(docs[i])])] += scores[i]


@helper
def _look_up_bits(frequent, row, scores, start, stop, found, size, exact):
    last = np.uint64(stop - 1)
    for i in range(size):
        doc = np.uint64(found[i])
        place = np.uint64(row) + (doc >> WORD)
        word, bit = frequent.bits[place], ONE << (doc & BIT)
        score = scores[min(last, np.uint64(start) + np.uint64(frequent.ranks[place]) + _ones(word & (bit - ONE)))]
        exact[i + 1] += score if word & bit else -0.0  # no branch; adding -0.0 changes no bit


@helper
def _look_up(docs, scores, start, stop, found, size, exact):
    """Find the documents by steps that double, from the one before on."""
    at = start
    for i in range(size):
        doc, step = found[i], 1
        while at + step < stop and docs[at + step] < doc:
            step *= 2
        at = _find(docs, at, min(stop, at + step + 1), np.int64(doc))
        if at < stop and docs[at] == doc:
            exact[i + 1] += scores[at]


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
def fill_rows(starts, ends, docs, scores, terms, rows, bounds, bits, ranks, padded, scale):
    """Fill the rows of `terms`. The postings of term t are those from starts[t] to ends[t] - 1. rows: of all terms.

    bounds, bits, ranks, padded, scale: those of TermRows.
    """
    for i in range(len(terms)):
        term = terms[i]
        at, end, start = starts[term], ends[term], rows[term] * padded
        for place in range(np.uint64(start), np.uint64(start + padded)):
            bounds[place] = 0
        for first in range(0, padded, 64):
            word, place = np.uint64(0), (start + first) >> 6
            ranks[place] = at - starts[term]
            while at < end and docs[at] < first + 64:
                word |= ONE << np.uint64(docs[at] & 63)
                bounds[start + docs[at]] = np.uint8(scores[at] * scale + 1)
                at += 1
            bits[place] = word


def _warm():
    """Compile all kernels."""
    one, docs, scores = np.zeros(1, np.int64), read_only(np.zeros(1, np.int32)), read_only(np.zeros(1))
    rows = (np.zeros(1, kind) for kind in (np.uint8, np.uint64, np.int32))
    fill_rows(read_only(one), read_only(one), docs, scores, one[:0], one, *rows, 0, 1.0)
