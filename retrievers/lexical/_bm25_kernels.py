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


@kernel
def count_postings(ids, offsets, first, last, counts):
    """Count in how many of the documents first to last - 1 each term occurs. counts: int32 [V], all 0."""
    seen_in = np.empty(len(counts), np.int32)
    for term in range(len(counts)):
        seen_in[term] = -1
    for doc in range(first, last):
        for i in range(offsets[doc], offsets[doc + 1]):
            term = ids[i]
            if seen_in[term] != doc:
                seen_in[term] = doc
                counts[term] += 1


@kernel
def fill_postings(ids, offsets, first, low, places, docs, frequencies):
    """Write the postings of a block of terms in the documents from `first` on.

    low: the first term. places: int64 [terms], the place of the first of these postings of each term; moved to the end
    of the postings.
    docs, frequencies: all postings of these terms, documents and how often the term occurs in them.
    """
    terms = np.uint32(len(places))
    seen_in = np.empty(len(places), np.int32)
    for i in range(len(places)):
        seen_in[i] = -1
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
    count_postings(ids, offsets, 0, 1, np.zeros(1, np.int32))
    for kind in (np.uint16, np.uint32):
        fill_postings(ids, offsets, 0, 0, np.zeros(1, np.int64), np.zeros(1, np.int32), np.zeros(1, kind))
