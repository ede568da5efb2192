"""The compiled inner loops of `near_duplicates`, imported where they are used because numba loads slowly.

N texts are stored as one flat array `characters` of their code points, uint32, and the array `starts`, int64 [N + 1].
Text d is `characters[starts[d]:starts[d + 1]]`.
"""

from __future__ import annotations

import numpy as np

from retrievers.base import read_only
from retrievers.compiling import helper, kernel

SHINGLE = 5  # number of characters of a shingle


@helper
def _mixed(value):
    value = (value ^ (value >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    value = (value ^ (value >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return value ^ (value >> np.uint64(33))


@helper
def _hashes(text):
    """Return the uint64 hashes of a text's shingles. A text shorter than a shingle is one shingle."""
    width = min(SHINGLE, len(text))
    hashes = np.empty(len(text) - width + 1 if width else 0, np.uint64)
    for i in range(len(hashes)):
        value = np.uint64(width)
        for j in range(width):
            value = (value ^ np.uint64(text[i + j])) * np.uint64(0x100000001B3)
        hashes[i] = _mixed(value) | np.uint64(1 << 63)  # never 0, which marks an empty place in a hash table
    return hashes


@kernel
def sign(characters, starts, factors, first, last, keys):
    """Fill rows first..last-1 of `keys`, uint64 [N, bands].

    Two texts get equal keys in a band if each hash function of the band has the same minimum over the shingles of both.
    factors: uint32 [bands * rows, 2], the odd factor and the summand of each hash function.
    """
    bands = keys.shape[1]
    rows = len(factors) // bands
    scale, shift = factors[:, 0].copy(), factors[:, 1].copy()
    least = np.empty(len(factors), np.uint32)
    for d in range(first, last):
        least[:] = np.uint32(0xFFFFFFFF)
        for value in _hashes(characters[starts[d] : starts[d + 1]]):
            low = np.uint32(value)
            for k in range(len(least)):
                least[k] = min(least[k], np.uint32(np.uint32(scale[k] * low) + shift[k]))
        for band in range(bands):
            key = np.uint64(band)
            for k in range(band * rows, band * rows + rows):
                key = _mixed(key ^ np.uint64(least[k]))
            keys[d, band] = key


@helper
def _place(table, value):
    """Return the place of a value in a hash table. 0 marks an empty place; at least half of the places are empty."""
    place = np.int64(value & np.uint64(len(table) - 1))
    while table[place] != 0 and table[place] != value:
        place = (place + 1) & (len(table) - 1)
    return place


@helper
def _table(hashes):
    """Return (hash table, number of distinct hashes). This is several times faster than sorting the hashes."""
    size = 4
    while size < 2 * len(hashes):
        size *= 2
    table, count = np.zeros(size, np.uint64), 0
    for value in hashes:
        place = _place(table, value)
        if table[place] != value:
            table[place] = value
            count += 1
    return table, count


@kernel
def similarities(characters, starts, left, right):
    """Return the Jaccard similarity of the shingle sets of texts left[p] and right[p], float64 [pairs]."""
    sets = [_table(_hashes(characters[starts[d] : starts[d + 1]])) for d in range(len(starts) - 1)]
    similarity = np.zeros(len(left))
    for p in range(len(left)):
        (one, size), (other, other_size) = sets[left[p]], sets[right[p]]
        shared = 0
        for value in one:
            if value != 0 and other[_place(other, value)] == value:
                shared += 1
        if size + other_size > shared:
            similarity[p] = shared / (size + other_size - shared)
    return similarity


def _warm():
    """Compile all kernels."""
    characters, starts = read_only(np.zeros(1, np.uint32)), np.arange(2)
    sign(characters, starts, np.ones((1, 2), np.uint32), 0, 1, np.empty((1, 1), np.uint64))
    similarities(characters, starts, *np.zeros((2, 1), np.int64))
