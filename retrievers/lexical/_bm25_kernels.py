"""Compiled inner loops of BM25, imported only where they run because importing numba is slow.

The index is a matrix in compressed sparse columns, one column per term. Term t has postings `docs[starts[t]:ends[t]]`
(int32, ascending) with `scores` (float64). The files of an index store no `ends`: there, ends[t] is starts[t + 1]. The
term adds `floors[t]` (float64, at least 0) to the score of every document, even one without this term. Index arrays are
always passed read-only, because numba would compile each kernel once more for writable arrays.
"""

from __future__ import annotations

import numpy as np

from retrievers.base import read_only
from retrievers.compiling import helper, kernel

LANES = 8  # number of rows that are sorted side by side, with vector instructions


@kernel
def count_postings(ids, offsets, first, last, counts, seen_in):
    """Count in how many of the documents first to last - 1 each term occurs.

    counts: int32 [V], all 0. seen_in: int32 [V], all -1; the last document with each term.
    """
    for doc in range(first, last):
        for i in range(offsets[doc], offsets[doc + 1]):
            term = ids[i]
            if seen_in[term] != doc:
                seen_in[term] = doc
                counts[term] += 1


@kernel
def fill_postings(ids, offsets, first, low, places, docs, frequencies, seen_in):
    """Write the postings of a block of terms in the documents from `first` on.

    low: the first term. places: int64 [terms], the place of the first of these postings of each term; moved to the end
    of the postings.
    docs, frequencies: all postings of these terms, documents and how often the term occurs in them.
    seen_in: int32 [terms], all -1; the last document with each term.
    """
    terms = np.uint32(len(places))
    for doc in range(first, len(offsets) - 1):
        for i in range(offsets[doc], offsets[doc + 1]):
            term = np.uint32(ids[i] - low)  # a term below `low` becomes a large number
            if term >= terms:
                continue
            if seen_in[term] == doc:
                frequencies[np.uint64(places[term] - 1)] += 1
            else:
                seen_in[term] = doc
                place = np.uint64(places[term])
                docs[place], frequencies[place] = doc, 1
                places[term] += 1


@helper
def keep_best(docs, scores, values, size, k):
    """Keep the k best of `size` >= k >= 1 candidates, in document order. Return the k-th best score.

    values: float64, room to select it.
    """
    for i in range(size):
        values[i] = scores[i]
    kth = select(values, size, k - 1)
    ties = k
    for i in range(size):
        ties -= scores[i] > kth
    kept = 0
    for i in range(size):
        tied = (scores[i] == kth) & (ties > 0)  # of the candidates with the score kth, the first ones are kept
        docs[kept], scores[kept] = docs[i], scores[i]  # no branch: a branch would often be mispredicted
        kept += tied | (scores[i] > kth)
        ties -= tied
    return kth


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


def order_rows(docs, scores, first, last):
    """Sort rows first..last-1 by descending score. They are in document order, and tied documents stay so.

    Rows are padded with document -1 and score -inf, which becomes 0.
    """
    width = docs.shape[1]
    keys = np.empty((width + 1) * LANES, np.int64)
    keys = keys[-(keys.ctypes.data >> 3) % LANES :]  # the keys of a place fill a cache line
    sort_rows(docs, scores, first, last, keys, keys.view(np.float64), np.empty(width, np.int32), np.empty(width))


@kernel
def sort_rows(docs, scores, first, last, keys, values, own_docs, own_scores):
    """Do the work of `order_rows`. keys, values: int64 and float64 [LANES * width], the same memory.

    The keys are scores whose last bits hold places in the row. Scores that differ only in these bits may come out in
    the wrong order, and are then inserted elsewhere.
    """
    width = len(own_docs)
    mask = np.int64(1)
    while mask < width:
        mask *= 2
    mask -= 1
    for start in range(first, last, LANES):
        lanes = LANES if start + LANES <= last else last - start
        longest = _fill_keys(docs, scores, start, lanes, mask, keys, values)
        _sort_lanes(keys, longest)
        for lane in range(lanes):
            row_docs, row_scores = docs[start + lane], scores[start + lane]
            for i in range(longest):
                place = np.uint64(mask - (keys[i * LANES + lane] & mask))
                doc, score, at = row_docs[place], row_scores[place], i
                while at > 0 and (
                    score > own_scores[at - 1] or (score == own_scores[at - 1] and doc < own_docs[at - 1])
                ):
                    own_docs[at], own_scores[at] = own_docs[at - 1], own_scores[at - 1]
                    at -= 1
                own_docs[at], own_scores[at] = doc, score
            for i in range(width):
                row_docs[i] = own_docs[i] if i < longest else -1
                row_scores[i] = own_scores[i] if row_docs[i] >= 0 else 0.0


@helper(inline="always")
def _fill_keys(docs, scores, start, lanes, mask, keys, values):
    """Write the key of place i of row start + lane to keys[i * LANES + lane]. Return the number of places filled."""
    longest = 0
    for q in range(start, start + lanes):
        while longest < docs.shape[1] and docs[q, longest] >= 0:
            longest += 1
    for i in range(longest):
        for lane in range(LANES):  # adding 0.0 turns -0.0 into 0.0
            values[i * LANES + lane] = scores[start + lane, i] + 0.0 if lane < lanes else -np.inf
    for i in range(longest * LANES):
        # The bits of floats from 0 ascend like the floats, the other bits of floats below 0 descend.
        bits = keys[i] ^ ((keys[i] >> 63) & np.int64(0x7FFFFFFFFFFFFFFF))
        keys[i] = (bits & ~mask) | (mask - i // LANES)
    return longest


@helper(inline="always")
def _sort_lanes(keys, count):
    """Sort each column of int64 [count, LANES] (flat) in descending order, by Batcher's merge exchange.

    Which keys are compared does not depend on the keys (Knuth, The Art of Computer Programming 3, 5.2.2, algorithm M).
    """
    top = 1
    while 2 * top < count:
        top *= 2
    size = top
    while size > 0:
        step, begin, distance = top, 0, size
        while True:
            for i in range(begin, count - distance, 2 * size):
                end = i + size if i + size < count - distance else count - distance
                upper, lower = keys[i * LANES : end * LANES], keys[(i + distance) * LANES : (end + distance) * LANES]
                for j in range(np.uint64(len(upper))):
                    upper[j], lower[j] = max(upper[j], lower[j]), min(upper[j], lower[j])
            if step == size:
                break
            step, begin, distance = step // 2, size, step - size
        size //= 2


def _warm():
    """Compile all kernels."""
    ids, offsets, unseen = read_only(np.zeros(1, np.int32)), read_only(np.arange(2)), np.full(1, -1, np.int32)
    count_postings(ids, offsets, 0, 1, np.zeros(1, np.int32), unseen.copy())
    for kind in (np.uint16, np.uint32):
        places, docs, frequencies = np.zeros(1, np.int64), np.zeros(1, np.int32), np.zeros(1, kind)
        fill_postings(ids, offsets, 0, 0, places, docs, frequencies, unseen.copy())
    order_rows(np.zeros((1, 1), np.int32), np.zeros((1, 1)), 0, 1)
