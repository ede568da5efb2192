"""Split many texts into words, with compiled kernels and on all cores.

Threads split blocks of texts. Each block numbers its own words. The blocks are then joined in the order of the texts,
so the result is the same for any number of threads and any size of blocks.
"""

from __future__ import annotations

import functools
import re
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from retrievers.base import Progress, ahead, cores, read_only

BLOCK = 4_000_000  # number of characters that a thread splits at a time
FEW = 4096  # number of different words that a table has room for at first


@dataclass(frozen=True)
class WordRule:
    """What the words of a text are: `split(prepare(text))`.

    pattern: a repeated character class, such as `\\w+`, that finds the same words as `split`.
    """

    prepare: Callable[[str], str]
    split: Callable[[str], list[str]]
    pattern: str

    def words(self, text: str) -> list[str]:
        return self.split(self.prepare(text))


def split_many(
    texts: Sequence[str],
    rule: WordRule,
    progress: Progress | None = None,
    expand: Callable[[str], list[str]] | None = None,
) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    """Return (vocabulary, ids, offsets), as in `Tokens`. expand: word -> its terms; None: each word is a term."""
    table, terms = _Table(), _Terms(expand) if expand else None
    ids, offsets = array("i"), array("q", [0])
    inside = _inside(rule.pattern)
    borders = _borders(texts)
    blocks = ahead(lambda span: _Block(texts[slice(*span)], rule.prepare, inside), pairwise(borders), cores())
    for block, end in zip(blocks, borders[1:], strict=True):
        known = len(table)
        numbers, places = table.add(block)[block.ids], block.offsets
        if terms is not None:
            terms.add(table.texts(known))
            numbers, places = terms.of(numbers, places)
        places = places[1:] + len(ids)
        ids.frombytes(numbers.view(np.uint8).data)
        offsets.frombytes(places.view(np.uint8).data)
        if progress:
            progress(end, len(texts), "texts")
    vocabulary = table.texts() if terms is None else terms.vocabulary
    flat = np.frombuffer(ids, np.int32) if ids else np.empty(0, np.int32)
    return tuple(vocabulary), flat, np.frombuffer(offsets, np.int64)


def _borders(texts: Sequence[str]) -> list[int]:
    """Return where blocks of texts begin and end. Only a longer text makes a block longer than BLOCK characters."""
    ends = np.cumsum(np.fromiter((len(text) + 1 for text in texts), np.int64, len(texts)))  # empty texts count, too
    full = np.arange(BLOCK, ends[-1], BLOCK) if len(texts) else np.empty(0, np.int64)
    return np.unique([0, *np.searchsorted(ends, full, "right"), len(texts)]).tolist()


@functools.cache
def _inside(pattern: str) -> np.ndarray:
    """Return whether each code point is part of words, bool."""
    found = np.zeros(sys.maxunicode + 1, bool)
    for run in re.finditer(pattern, "".join(map(chr, range(len(found))))):
        found[slice(*run.span())] = True
    return found


class _Block:
    """The words of some texts. ids, offsets: as in `Tokens`. letters, words: the block's words: see _word_kernels."""

    def __init__(self, texts: Sequence[str], prepare: Callable[[str], str], inside: np.ndarray) -> None:
        from retrievers.lexical import _word_kernels

        encoded = [prepare(text).encode() for text in texts]
        ends = np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)))
        encoded.append(b"\0")  # NumPy refuses an empty buffer
        self.letters = np.frombuffer(b"".join(encoded), np.uint8)
        ids = np.empty((len(self.letters) + len(texts)) // 2, np.int32)  # a character lies between two words
        self.offsets = np.zeros(len(texts) + 1, np.int64)
        words, slots, state = _room(FEW), _places(FEW), (0, 0, 0, 0)
        while state[0] < len(texts):
            state = _word_kernels.number_words(self.letters, ends, inside, ids, self.offsets, words, slots, *state)
            if state[0] < len(texts):
                words, slots = np.concatenate([words, _room(len(words))]), _places(2 * len(words))
                _word_kernels.fill_slots(words, state[3], slots)
        _, _, found, used = state
        self.ids, self.words = ids[:found], words[:used]


class _Table:
    """The different words of all blocks that were added, in the order of first use."""

    def __init__(self) -> None:
        self._letters, self._words, self._slots = np.empty(FEW, np.uint8), _room(FEW), _places(FEW)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, block: _Block) -> np.ndarray:
        """Return the number in this table of each word of a block, int32."""
        from retrievers.lexical import _word_kernels

        used, count = self._used, self._count
        new_letters, new_words = int((block.words[:, 1] - block.words[:, 0]).sum()), len(block.words)  # at most
        if used + new_letters > len(self._letters):
            self._letters = np.concatenate([self._letters[:used], np.empty(used + 2 * new_letters, np.uint8)])
        if count + new_words > len(self._words):
            self._words = np.concatenate([self._words[:count], _room(count + 2 * new_words)])
            self._slots = _places(len(self._words))
            _word_kernels.fill_slots(self._words, count, self._slots)
        numbers = _word_kernels.add_words(
            block.letters, block.words, self._letters, self._words, self._slots, self._count
        )
        self._count = max(count, int(numbers.max(initial=-1)) + 1)
        return numbers

    def texts(self, first: int = 0) -> list[str]:
        """Return the words from number `first` on."""
        words = self._words[first : self._count]
        start = int(words[0, 0]) if len(words) else 0
        letters = self._letters[start : self._used].tobytes()
        return [letters[begin - start : end - start].decode() for begin, end in words[:, :2].tolist()]

    @property
    def _used(self) -> int:
        return int(self._words[self._count - 1, 1]) if self._count else 0


class _Terms:
    """The terms of each word. Terms are numbered in the order of first use."""

    def __init__(self, expand: Callable[[str], list[str]]) -> None:
        self._expand = expand
        self._numbers: dict[str, int] = {}
        self._terms, self._ends = array("i"), array("q", [0])

    @property
    def vocabulary(self) -> Iterable[str]:
        return self._numbers

    def add(self, words: Iterable[str]) -> None:
        numbers = self._numbers
        for word in words:
            self._terms.extend([numbers.setdefault(term, len(numbers)) for term in self._expand(word)])
            self._ends.append(len(self._terms))

    def of(self, ids: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (ids, offsets) of the terms of these words."""
        from retrievers.lexical import _word_kernels

        terms = np.frombuffer(self._terms, np.int32) if self._terms else np.empty(0, np.int32)
        return _word_kernels.expand(ids, offsets, read_only(terms), read_only(np.frombuffer(self._ends, np.int64)))


def _room(words: int) -> np.ndarray:
    return np.empty((words, 3), np.int64)


def _places(words: int) -> np.ndarray:
    """Return empty slots for a number of words: at most half of the slots will be in use."""
    return np.zeros((2 << (words - 1).bit_length(), 2), np.int64)
