"""Split many texts into words, with compiled kernels and on all cores.

Threads split blocks of texts. Each block numbers its own words. This thread numbers the words of all blocks, in the
order of the texts, so the result is the same for any number of threads and any size of blocks.
"""

from __future__ import annotations

import functools
import itertools
import re
import sys
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from retrievers.base import Progress, ahead, cores, read_only

BLOCK = 4_000_000  # number of characters that a thread splits at a time
FEW = 1 << 15  # number of different words that a table has room for at first


@dataclass(frozen=True)
class WordRule:
    """What the words of a text are: `split(prepare(text))`.

    prepare: maps ASCII texts character by character.
    pattern: a repeated character class without the space, such as `\\w+`, that finds the same words as `split`.
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
    inside, threads = _inside(rule.pattern), cores() if cores() > 1 else 0
    blocks = ahead(lambda part: _Block(part, rule.prepare, inside), _blocks(texts), threads)

    def numbered() -> Iterator[Callable[[], tuple[np.ndarray, np.ndarray]]]:
        for block in blocks:
            known = len(table)
            numbers = table.add(block)
            if terms is None:
                yield functools.partial(_found, block, numbers)
            else:
                terms.add(table.texts(known))
                yield terms.expansion(block, numbers)

    for found, places in ahead(lambda step: step(), numbered(), min(threads, 1)):
        offsets.frombytes((places[1:] + len(ids)).view(np.uint8).data)
        ids.frombytes(found.view(np.uint8).data)
        if progress:
            progress(len(offsets) - 1, len(texts), "texts")
    vocabulary = table.texts() if terms is None else terms.vocabulary
    flat = np.frombuffer(ids, np.int32) if ids else np.empty(0, np.int32)
    return tuple(vocabulary), flat, np.frombuffer(offsets, np.int64)


def _blocks(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield successive texts. Only a single long text makes a block longer than BLOCK characters."""
    block, size = list[str](), 0
    for text in texts:
        size += len(text) + 1  # empty texts count, too
        if block and size > BLOCK:
            yield block
            block, size = [], len(text) + 1
        block.append(text)
    if block:
        yield block


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

        self.letters, ends = _letters(texts, prepare)
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


def _letters(texts: Sequence[str], prepare: Callable[[str], str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the UTF-8 bytes of the prepared texts, one after the other, and where each text ends."""
    joined = "".join([*texts, "\0"])  # NumPy refuses empty bytes
    if joined.isascii():
        encoded, lengths = prepare(joined).encode(), map(len, texts)
    else:
        parts = [prepare(text).encode() for text in texts]
        encoded, lengths = b"".join([*parts, b"\0"]), map(len, parts)
    return np.frombuffer(encoded, np.uint8), np.cumsum(np.fromiter(lengths, np.int64, len(texts)))


def _found(block: _Block, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return numbers.take(block.ids), block.offsets


class _Table:
    """The different words of all blocks that were added, in the order of first use. A space follows each word."""

    def __init__(self) -> None:
        self._letters, self._words, self._slots = np.empty(FEW, np.uint8), _room(FEW), _places(FEW)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, block: _Block) -> np.ndarray:
        """Return the number in this table of each word of a block, int32."""
        from retrievers.lexical import _word_kernels

        count, new = self._count, len(block.words)
        self._letters = _with_room(self._letters, self._used, int(np.diff(block.words[:, :2]).sum()) + new)  # at most
        words = _with_room(self._words, count, new)
        if words is not self._words:
            self._words, self._slots = words, _places(len(words))
            _word_kernels.fill_slots(words, count, self._slots)
        numbers, mine = np.empty(new, np.int32), (block.letters, block.words)
        self._count = _word_kernels.add_words(*mine, self._letters, words, self._slots, count, numbers)
        return numbers

    def texts(self, first: int = 0) -> list[str]:
        """Return the words from number `first` on."""
        if first == self._count:
            return []
        return self._letters[self._words[first, 0] : self._used - 1].tobytes().decode().split(" ")

    @property
    def _used(self) -> int:
        return int(self._words[self._count - 1, 1]) + 1 if self._count else 0


class _Terms:
    """The terms of each word. Terms are numbered in the order of first use."""

    def __init__(self, expand: Callable[[str], list[str]]) -> None:
        self._expand = expand
        self._numbers = defaultdict[str, int](itertools.count().__next__)
        self._terms, self._ends = _Grown(np.int32), _Grown(np.int64)
        self._ends.append([0])

    @property
    def vocabulary(self) -> Iterable[str]:
        return self._numbers

    def add(self, words: Iterable[str]) -> None:
        numbers, known, terms, ends = self._numbers, len(self._terms.values), array("i"), array("q")
        for word in words:
            terms.extend(map(numbers.__getitem__, self._expand(word)))
            ends.append(known + len(terms))
        self._terms.append(terms)
        self._ends.append(ends)

    def expansion(self, block: _Block, numbers: np.ndarray) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
        """Return a function that returns (ids, offsets) of a block's terms. numbers: of the block's words."""
        from retrievers.lexical import _word_kernels

        terms, ends = self._terms.values, self._ends.values

        def expanded() -> tuple[np.ndarray, np.ndarray]:
            ids = numbers.take(block.ids)
            found, offsets = np.empty(int(np.diff(ends).take(ids).sum()), np.int32), np.zeros_like(block.offsets)
            _word_kernels.expand(ids, block.offsets, terms, ends, found, offsets)
            return found, offsets

        return expanded


class _Grown:
    """Values that are appended to. Earlier `values` stay as they are."""

    def __init__(self, kind: type[np.generic]) -> None:
        self._room, self.values = np.empty(FEW, kind), read_only(np.empty(0, kind))

    def append(self, more: Sequence[int]) -> None:
        used, end = len(self.values), len(self.values) + len(more)
        self._room = _with_room(self._room, used, len(more))
        self._room[used:end] = more
        self.values = read_only(self._room[:end])


def _with_room(values: np.ndarray, used: int, more: int) -> np.ndarray:
    """Return an array with the first `used` of these values and with room for more."""
    if used + more <= len(values):
        return values
    return np.concatenate([values[:used], np.empty((used + 2 * more, *values.shape[1:]), values.dtype)])


def _room(words: int) -> np.ndarray:
    return np.empty((words, 3), np.int64)


def _places(words: int) -> np.ndarray:
    """Return empty slots for a number of words: at most half of the slots will be in use."""
    return np.zeros((2 << (words - 1).bit_length(), 2), np.int64)
