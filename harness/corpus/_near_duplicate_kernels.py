"""Compiled inner loops of `near_duplicates`; imported only where they run, since numba takes a while to import.

N texts are one flat array of code points, uint32, and `starts`, int64 [N + 1]: text d is
`characters[starts[d]:starts[d + 1]]`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

SHINGLE = 5  # characters that make a shingle


@njit(cache=True, nogil=True)
def _mixed(value):
    """Every bit of the result depends on every bit of `value`: the finaliser of MurmurHash3."""
    value = (value ^ (value >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    value = (value ^ (value >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return value ^ (value >> np.uint64(33))


@njit(cache=True, nogil=True)
def _hashes(text):
    """uint64: a number for each shingle of a text, in order; a text shorter than a shingle is one itself."""
    width = min(SHINGLE, len(text))
    hashes = np.empty(len(text) - width + 1 if width else 0, np.uint64)
    for i in range(len(hashes)):
        value = np.uint64(width)
        for j in range(width):
            value = (value ^ np.uint64(text[i + j])) * np.uint64(0x100000001B3)
        hashes[i] = _mixed(value)
    return hashes


@njit(cache=True, nogil=True)
def sign(characters, starts, factors, first, last, keys):
    """Fill rows first..last-1 of `keys`, uint64 [N, bands]: equal keys in a band mean equal minima of its hashes.

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


@njit(cache=True, nogil=True)
def similarities(characters, starts, left, right):
    """float64 [pairs]: the Jaccard similarity of the shingle sets of texts left[p] and right[p]."""
    sets = [np.unique(_hashes(characters[starts[d] : starts[d + 1]])) for d in range(len(starts) - 1)]
    similarity = np.zeros(len(left))
    for p in range(len(left)):
        one, other = sets[left[p]], sets[right[p]]
        i = j = shared = 0
        while i < len(one) and j < len(other):
            if one[i] == other[j]:
                shared, i, j = shared + 1, i + 1, j + 1
            elif one[i] < other[j]:
                i += 1
            else:
                j += 1
        united = len(one) + len(other) - shared
        if united:
            similarity[p] = shared / united
    return similarity
