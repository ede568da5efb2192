"""Compiled loops that split texts into words and number them, imported only where they run.

`letters` are UTF-8 bytes. A table of words consists of two arrays. `words`, int64 [room, 3], has for each word the
bounds of its bytes, begin and end, and its key. `slots`, int64 [places, 2], is a hash table with open addressing that
maps keys to the numbers of words. A key of 0 marks an empty place. The number of places is a power of two.

The key of a word of at most 7 bytes consists of the length and the bytes, so equal keys mean equal words. The key of a
longer word is negative. It is a hash, so the bytes of words with equal keys are compared.
"""

from __future__ import annotations

import numpy as np

from retrievers.base import read_only
from retrievers.compiling import helper, kernel

SHORT = 7  # number of bytes


@kernel
def number_words(letters, text_ends, inside, ids, offsets, words, slots, text, place, found, used):
    """Find the words of a block of texts, and number them in the order of first use.

    letters: the texts, one after the other; text t ends before `text_ends[t]`.
    inside: bool, whether a code point is part of words.
    ids, offsets: filled as in `Tokens`.
    words, slots: the table of the block's words.
    text, place, found, used: where the kernel continues, the number of words found, and of different words.

    Return text, place, found and used. If `words` is full, text is less than the number of texts.
    """
    while text < len(text_ends):
        end = text_ends[text]
        while place < end:
            begin, short, size = place, np.int64(0), 0
            while place < end:
                point, size = _code_point(letters, place)
                if not inside[point]:
                    break
                for i in range(place, place + size):
                    short = short << 8 | np.int64(letters[i])
                place += size
            if place > begin:
                key = _key(letters, begin, place, short)
                slot = _slot(slots, words, letters, letters, begin, place, key)
                if slots[slot, 0] == 0:
                    if used == len(words):
                        return text, begin, found, used
                    slots[slot, 0], slots[slot, 1] = key, used
                    words[used, 0], words[used, 1], words[used, 2] = begin, place, key
                    used += 1
                ids[found] = slots[slot, 1]
                found += 1
            if place < end:
                place += size  # of the character that ended the word
        text += 1
        offsets[text] = found
    return text, place, found, used


@kernel
def add_words(letters, added, known, words, slots, count, numbers):
    """Add words to a table of `count` words that has room for them. Return how many words it then has.

    numbers: int32, set to the number of each word.
    letters, added: the words of a block. known, words, slots: the table and its letters, with a space after each word.
    """
    free = words[count - 1, 1] + 1 if count else np.int64(0)
    for word in range(len(added)):
        begin, end, key = added[word, 0], added[word, 1], added[word, 2]
        slot = _slot(slots, words, known, letters, begin, end, key)
        if slots[slot, 0] == 0:
            slots[slot, 0], slots[slot, 1] = key, count
            words[count, 0], words[count, 1], words[count, 2] = free, free + end - begin, key
            for i in range(end - begin):
                known[free + i] = letters[begin + i]
            free += end - begin
            known[free] = 32  # a space
            free += 1
            count += 1
        numbers[word] = slots[slot, 1]
    return count


@kernel
def fill_slots(words, count, slots):
    """Fill empty `slots` with the first `count` words."""
    mask = len(slots) - 1
    for word in range(count):
        slot = _first_slot(words[word, 2], mask)
        while slots[slot, 0] != 0:
            slot = (slot + 1) & mask
        slots[slot, 0], slots[slot, 1] = words[word, 2], word


@kernel
def expand(ids, offsets, terms, ends, found, found_offsets):
    """Replace each word by its terms. Word w has the terms `terms[ends[w]:ends[w + 1]]`.

    found, found_offsets: int32 and int64, set to the ids and the offsets of the terms; the first offset is 0.
    """
    count = 0
    for text in range(len(offsets) - 1):
        for i in range(offsets[text], offsets[text + 1]):
            for term in range(ends[ids[i]], ends[ids[i] + 1]):
                found[count] = terms[term]
                count += 1
        found_offsets[text + 1] = count


@helper(inline="always")
def _code_point(letters, place):
    """Return (code point, number of bytes) of the character at a place."""
    first = np.int64(letters[place])
    if first < 0x80:
        return first, 1
    second = np.int64(letters[place + 1]) & 0x3F
    if first < 0xE0:
        return (first & 0x1F) << 6 | second, 2
    third = np.int64(letters[place + 2]) & 0x3F
    if first < 0xF0:
        return (first & 0x0F) << 12 | second << 6 | third, 3
    return (first & 0x07) << 18 | second << 12 | third << 6 | np.int64(letters[place + 3]) & 0x3F, 4


@helper
def _key(letters, begin, end, short):
    """Return the key of a word. short: the bytes of a short word as one number."""
    if end - begin <= SHORT:
        return short | np.int64(end - begin) << 56
    value = np.uint64(0xCBF29CE484222325)  # FNV-1a
    for i in range(begin, end):
        value = (value ^ np.uint64(letters[i])) * np.uint64(0x100000001B3)
    return np.int64(value | np.uint64(1 << 63))


@helper
def _first_slot(key, mask):
    value = np.uint64(key)
    value = (value ^ (value >> np.uint64(32))) * np.uint64(0xFF51AFD7ED558CCD)
    return np.int64(value ^ (value >> np.uint64(32))) & mask


@helper
def _slot(slots, words, known, letters, begin, end, key):
    """Return the place of the word `letters[begin:end]`, or the empty place for it. known: the table's letters."""
    mask = len(slots) - 1
    slot = _first_slot(key, mask)
    while slots[slot, 0] != 0:
        if slots[slot, 0] == key:
            if key > 0:
                return slot
            first = words[slots[slot, 1], 0]
            if words[slots[slot, 1], 1] - first == end - begin:
                same = True
                for i in range(end - begin):
                    same &= known[first + i] == letters[begin + i]
                if same:
                    return slot
        slot = (slot + 1) & mask
    return slot


def _warm():
    """Compile all kernels."""
    letters, ends, inside = read_only(np.zeros(1, np.uint8)), np.ones(1, np.int64), np.ones(1, bool)
    ids, offsets = np.zeros(1, np.int32), np.zeros(2, np.int64)
    words, slots = np.zeros((1, 3), np.int64), np.zeros((2, 2), np.int64)
    number_words(letters, ends, inside, ids, offsets, words, slots, 0, 0, 0, 0)
    fill_slots(words, 0, slots)
    add_words(letters, words, np.zeros(2, np.uint8), np.zeros((1, 3), np.int64), np.zeros((2, 2), np.int64), 0, ids)
    expand(ids, offsets, read_only(np.zeros(1, np.int32)), read_only(np.zeros(2, np.int64)), ids, offsets)
