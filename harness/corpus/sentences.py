"""Sentences of a text, as boundaries: ascending positions from 0 to its length, each sentence with the white space
that follows it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, pairwise
from re import _constants as opcodes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import numpy as np

from harness.errors import BadInput
from retrievers.lexical.tokenize import UNBROKEN, kiwi_model

# A full stop, question mark or exclamation mark, with the quotation marks and brackets that close after it, and white
# space; or a blank line. A single line break ends no sentence: texts of PDF files break lines anywhere.
SENTENCE_END = r"""[.!?]["'”’)\]]*\s+|\n\s*\n"""
PARAGRAPH = re.compile(r"\n\s*\n")
BATCH = 256  # blocks between two reports of progress

Share = Callable[[float], None]  # called with the share of a text that is done, in [0, 1]


def compiled(separator: str) -> re.Pattern[str]:
    """The separator between sentences. BadInput for what is no regular expression, can match nothing, or can take for
    ever."""
    try:
        tree = parser.parse(separator)
        pattern = re.compile(separator)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadInput(f"chunk.separator={separator!r:.100} is no regular expression: {error}.") from None
    if tree.getwidth()[0] == 0:
        raise BadInput(
            f"chunk.separator={separator!r:.100} can match the empty string, which is between any two characters. "
            r"Make it match at least one, such as [.!?]\s+."
        )
    if _nested(tree):
        raise BadInput(
            f"chunk.separator={separator!r:.100} repeats a repetition, such as (\\s+)+, which can take for ever. "
            r"Write it with one repetition: \s+."
        )
    return pattern


def by_pattern(text: str, pattern: re.Pattern[str]) -> np.ndarray:
    """int64 boundaries at the end of each match: the separator stays with the sentence that it ends."""
    ends = np.array([match.end() for match in pattern.finditer(text)], np.int64)
    return _boundaries(ends, len(text))


def by_kiwi(text: str, share: Share) -> np.ndarray:
    """int64 boundaries of kiwi's sentences; about 0.1 MB of text per second and thread.

    kiwi gets paragraphs, the long ones in blocks of at most `UNBROKEN` characters: it holds a whole block in memory,
    and its time grows with the square of the length of a run without white space.
    """
    borders = cut_long(text, by_pattern(text, PARAGRAPH), UNBROKEN)
    blocks = list(pairwise(borders.tolist()))
    starts: list[int] = []
    analysed = kiwi_model(None).split_into_sents((text[a:b] for a, b in blocks), return_sub_sents=False)
    for done, ((start, end), sentences) in enumerate(zip(blocks, analysed, strict=True), start=1):
        starts += [start, *(start + one.start for one in sentences[1:])]
        if done % BATCH == 0:
            share(end / len(text))
    return _boundaries(np.array(starts, np.int64), len(text))


def cut_long(text: str, borders: np.ndarray, size: int) -> np.ndarray:
    """The boundaries with further ones, so that nothing between two of them has more than `size` characters."""
    added: list[int] = []
    for place in np.flatnonzero(np.diff(borders) > size).tolist():
        start, end = int(borders[place]), int(borders[place + 1])
        added += [start + at for at in cuts(text[start:end], range(end - start), size)]
    return np.sort(np.concatenate([borders, np.array(added, np.int64)])) if added else borders


def cuts(text: str, starts: Sequence[int], size: int) -> Iterator[int]:
    """Where to cut a text so that no part has more than `size` units.

    A cut is behind the last line break that leaves no more; where there is none, behind the last white space; in one
    long word, before a unit. Only units that begin at the same character stay together whatever their number.

    starts: where each unit of the text begins, ascending.
    """
    import bisect

    first = 0
    while len(starts) - first > size:
        floor, limit = starts[first], starts[first + size]
        if limit == floor:
            after = bisect.bisect_right(starts, floor)
            if after == len(starts):
                return
            at = starts[after]
        elif (line := text.rfind("\n", floor, limit)) >= 0:
            at = line + 1
        else:
            at = _word_start(text, floor, limit)
        yield at
        first = bisect.bisect_left(starts, at)


def _word_start(text: str, floor: int, limit: int) -> int:
    """The start of the word that goes on at `limit`; `limit` itself between words, or if the word begins at `floor`."""
    if text[limit].isspace() or text[limit - 1].isspace():
        return limit
    window = text[floor:limit]
    word = window.rsplit(None, 1)[-1]
    return limit - len(word) if len(word) < len(window) else limit


def _boundaries(inner: np.ndarray, length: int) -> np.ndarray:
    """0, the inner positions that lie between, and the length; the empty text has none."""
    inner = inner[(inner > 0) & (inner < length)]
    return np.concatenate([[0], inner, [length]]).astype(np.int64) if length else np.zeros(1, np.int64)


def _nested(tree: Any, repeated: bool = False) -> bool:
    """Whether an unbounded repetition that may be retried contains another."""
    for code, argument in tree:
        again = repeated
        if code in (opcodes.MAX_REPEAT, opcodes.MIN_REPEAT) and argument[1] == opcodes.MAXREPEAT:
            if repeated:
                return True
            again = True
        if any(_nested(inner, again) for inner in _inside(argument)):
            return True
    return False


def _inside(argument: Any) -> Iterator[Any]:
    """The patterns inside the argument of an operation."""
    if isinstance(argument, parser.SubPattern):
        yield argument
    elif isinstance(argument, tuple | list):
        yield from chain.from_iterable(map(_inside, argument))
