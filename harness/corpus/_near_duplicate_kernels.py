"""The compiled inner loops of `near_duplicates`, imported where they are used because numba loads slowly.

N texts are stored as one flat array `characters` of their code points, uint32, and the array `starts`, int64 [N + 1].
Text d is `characters[starts[d]:starts[d + 1]]`.
"""

from __future__ import annotations

import numpy as np

from retrievers.base import read_only
from retrievers.compiling import helper, kernel

SHINGLE = 5  # number of characters of a shingle
ONE = np.uint64(1)


@helper
def _mixed(value):
    value = (value ^ (value >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    value = (value ^ (value >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return value ^ (value >> np.uint64(33))


@helper
def _hash(characters, first, width):
    """Return the uint64 hash of a shingle of `width` characters."""
    value = np.uint64(width)
    for i in range(np.uint64(first), np.uint64(first + width)):  # numba tests whether a signed index is < 0
        value = (value ^ np.uint64(characters[i])) * np.uint64(0x100000001B3)
    return _mixed(value) | np.uint64(1 << 63)  # never 0, which marks an empty place in a hash table


@kernel
def sign(characters, starts, scale, shift, lows, first, last, keys):
    """Fill rows first..last-1 of `keys`, uint64 [N, bands].

    Two texts get equal keys in a band if each hash function of the band has the same minimum over the shingles of both.
    scale, shift: uint32 [bands * rows], the odd factor and the summand of each hash function.
    lows: uint32, room for the lower halves of a text's hashes.
    """
    bands = keys.shape[1]
    rows = len(scale) // bands
    for d in range(first, last):
        begin, size = starts[d], starts[d + 1] - starts[d]
        width = size if size < SHINGLE else SHINGLE
        count = size - width + 1 if width else 0
        for i in range(count):
            lows[i] = np.uint32(_hash(characters, begin + i, width))
        for band in range(bands):
            key = np.uint64(band)
            for k in range(band * rows, band * rows + rows):
                least, factor, summand = np.uint32(0xFFFFFFFF), scale[k], shift[k]
                for i in range(count):  # this becomes vector instructions
                    value = np.uint32(np.uint32(factor * lows[i]) + summand)
                    least = value if value < least else least
                key = _mixed(key ^ np.uint64(least))
            keys[d, band] = key


@helper
def _place(table, value):
    """Return the place of a value in a hash table. 0 marks an empty place; at least half of the places are empty."""
    mask = np.uint64(len(table) - 1)
    place = value & mask
    while table[place] != 0 and table[place] != value:
        place = (place + ONE) & mask
    return place


@kernel
def similarities(characters, starts, tables, borders, sizes, left, right, found):
    """Set `found`, float64 [pairs]: the Jaccard similarity of the shingle sets of texts left[p] and right[p].

    A text shorter than a shingle is one shingle. Hash tables take several times less time than sorting the hashes.

    tables: uint64, 0: text d has a hash table from borders[d] to borders[d + 1] - 1.
    sizes: int64 [N], 0: set to the number of distinct shingles of each text.
    """
    for d in range(len(sizes)):
        begin, end, table, count = starts[d], starts[d + 1], tables[borders[d] : borders[d + 1]], 0
        width = end - begin if end - begin < SHINGLE else SHINGLE
        for i in range(begin, end - width + 1 if width else begin):
            value = _hash(characters, i, width)
            place = _place(table, value)
            if table[place] != value:
                table[place] = value
                count += 1
        sizes[d] = count
    for p in range(len(left)):
        one, other, shared = left[p], right[p], 0
        table = tables[borders[other] : borders[other + 1]]
        for i in range(np.uint64(borders[one]), np.uint64(borders[one + 1])):
            value = tables[i]
            if value != 0 and table[_place(table, value)] == value:
                shared += 1
        if sizes[one] + sizes[other] > shared:
            found[p] = shared / (sizes[one] + sizes[other] - shared)


def _warm():
    """Compile all kernels."""
    characters, starts = read_only(np.zeros(1, np.uint32)), np.arange(2)
    sign(characters, starts, *np.ones((3, 1), np.uint32), 0, 1, np.empty((1, 1), np.uint64))
    similarities(characters, starts, np.zeros(4, np.uint64), 4 * starts, *np.zeros((3, 1), np.int64), np.zeros(1))
