"""Corrections held against those wanted: texts aligned word by word, the edits that this makes, and their verdicts.

Words are what white space separates, compared after Unicode NFC. A target (a reference or a prediction) is aligned
with its source by a longest common subsequence (Wagner & Fischer 1974). Of several, it is the one that keeps the
words that both begin with, then those that both end with; between these it goes from left to right, matches equal
words, and elsewhere leaves out the source's word if that costs no match, else the target's. O(n * m) time for n and m
words between common beginning and end, and n * m bits of memory: 12.5 MB for 10,000 words each.

An edit stands at a place, a position in the source, and puts words there. Between two words that are kept,

- scheme `token` pairs the words of source and target from left to right, an edit each; target words that are left
  over join the last pair, source words that are left over are deleted. Where no source word lies between, the target's
  are inserted at the position before which they stand, n after the last word.
- scheme `span` makes all that lies between one edit, at its first source position. One that begins at most
  `merge_gap` positions after the one before joins it, and so on; the words kept between are no part of it.

The verdict on a place: `tp`, reference and prediction put the same words there; `fp`, both edit, but not alike; `fn`,
only the reference does; `fr`, only the prediction does. Under `token` one text never has two edits at one place: a word
before which something is inserted is kept. An edit is its place and the words put there, nothing else: whether they
replace a word or stand before it, and under `span` how many words they replace, is not compared.
"""

from __future__ import annotations

import unicodedata
from array import array
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal, NamedTuple

import numpy as np

Scheme = Literal["token", "span"]
VERDICTS = ("", "tp", "fp", "fn", "fr")  # by the kernels' numbers
NOTHING = "∅"

Pieces = list[tuple[str, str]]


class Change(NamedTuple):
    """Source words and the words put in their place; either may be none."""

    source: tuple[str, ...]
    target: tuple[str, ...]

    def __str__(self) -> str:
        return "→".join(" ".join(words) or NOTHING for words in self)


class Edit(NamedTuple):
    """What happens at a place of the source. wanted: by the reference; made: by the prediction; None for nothing."""

    place: int
    verdict: str
    wanted: Change | None
    made: Change | None

    def __str__(self) -> str:
        shown = f"{self.made or self.wanted} {self.verdict.upper()}"
        return f"{shown} (wanted: {self.wanted})" if self.verdict == "fp" else shown


class Shown(NamedTuple):
    """One sentence to look at. The pieces of a text, joined by nothing, are its words with a space between two.

    Edited words have pieces of their own, each marked with the verdict on its place. A source word that both reference
    and prediction edit bears the verdict on the reference's edit.
    """

    edits: list[Edit]
    source: Pieces
    reference: Pieces
    prediction: Pieces


class _Texts(NamedTuple):
    words: np.ndarray  # int32, all texts' words one after the other, as numbers
    starts: np.ndarray  # int64 [N + 1], where each text begins

    def of(self, row: int, flat: np.ndarray) -> list[int]:
        """One text's part of an array that is aligned with the words."""
        return flat[self.starts[row] : self.starts[row + 1]].tolist()


class _Aligned(NamedTuple):
    """Targets beside their sources: the place of the edit that each word is part of, -1 where it is kept."""

    texts: _Texts
    of_source: np.ndarray  # int32, for the source's words
    of_target: np.ndarray  # int32, for the target's

    def flat(self) -> tuple[Any, ...]:
        return self.of_source, *self.texts, self.of_target


@dataclass(frozen=True, eq=False)
class Compared:
    """N sentences with the verdicts on all their places.

    counts: int64 [N, 4], how many places of each sentence are judged tp, fp, fn, fr. Under `token` an edit that is
    judged fr counts as fp as well; under `span` it does not.
    wanted, made: bool [N], whether the reference and the prediction differ from the source.
    """

    counts: np.ndarray
    wanted: np.ndarray
    made: np.ndarray
    _vocabulary: list[str]
    _source: _Texts
    _reference: _Aligned
    _prediction: _Aligned
    _verdicts: np.ndarray

    def show(self, row: int) -> Shown:
        """The edits of one sentence by ascending place, and its texts in pieces."""
        first, last = self._source.starts[row : row + 2] + row
        verdicts = self._verdicts[first : last + 1].tolist()
        source = self._words(self._source, row)
        of_source, changes, targets = [], [], []
        for one in (self._reference, self._prediction):
            of_source.append(self._source.of(row, one.of_source))
            targets.append((self._words(one.texts, row), one.texts.of(row, one.of_target)))
            changes.append(_changes(source, of_source[-1], *targets[-1]))
        edits = [
            Edit(place, VERDICTS[verdict], *(change.get(place) for change in changes))
            for place, verdict in enumerate(verdicts)
            if verdict
        ]
        either = [one if one >= 0 else other for one, other in zip(*of_source, strict=True)]
        return Shown(edits, *(_pieces(*text, verdicts) for text in ((source, either), *targets)))

    def _words(self, texts: _Texts, row: int) -> list[str]:
        return [self._vocabulary[number] for number in texts.of(row, texts.words)]


def compare(
    sources: Sequence[str],
    references: Sequence[str],
    predictions: Sequence[str],
    scheme: Scheme = "token",
    merge_gap: int = 2,
) -> Compared:
    """Judge the edits of N predictions by those of their references. merge_gap: >= 0, for `span` alone."""
    from harness.tasks import _alignment_kernels

    if not len(sources) == len(references) == len(predictions):
        raise ValueError("each source needs one reference and one prediction")
    gap = merge_gap if scheme == "span" else -1
    vocabulary: defaultdict[str, int] = defaultdict(count().__next__)
    source, *targets = (_numbered(texts, vocabulary) for texts in (sources, references, predictions))
    aligned = []
    for texts in targets:
        matched = _alignment_kernels.align(*source, *texts)
        aligned.append(_Aligned(texts, *_alignment_kernels.place(matched, source.starts, texts.starts, gap)))
    reference, prediction = aligned
    verdicts = _alignment_kernels.judge(source.starts, *reference.flat(), *prediction.flat(), gap)  # type: ignore[call-arg]
    firsts = source.starts[:-1] + np.arange(len(sources))  # a sentence of n words has n + 1 places
    tp, fp, fn, fr = (np.add.reduceat(verdicts == one, firsts, dtype=np.int64) for one in range(1, len(VERDICTS)))
    counts = np.stack([tp, fp + fr if scheme == "token" else fp, fn, fr], axis=1)
    wanted, made = tp + fp + fn > 0, tp + fp + fr > 0
    return Compared(counts, wanted, made, list(vocabulary), source, reference, prediction, verdicts)


def words(text: str) -> list[str]:
    """What white space separates, in Unicode NFC."""
    return unicodedata.normalize("NFC", text).split()


def _numbered(texts: Sequence[str], vocabulary: defaultdict[str, int]) -> _Texts:
    numbers, starts = array("i"), array("q", [0])
    for text in texts:
        numbers.extend(map(vocabulary.__getitem__, words(text)))
        starts.append(len(numbers))
    return _Texts(np.array(numbers, np.int32), np.array(starts, np.int64))


def _changes(source: list[str], of_source: list[int], target: list[str], of_target: list[int]) -> dict[int, Change]:
    """Place -> the change there."""
    found: defaultdict[int, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for side, (its_words, places) in enumerate(((source, of_source), (target, of_target))):
        for word, place in zip(its_words, places, strict=True):
            if place >= 0:
                found[place][side].append(word)
    return {place: Change(tuple(before), tuple(after)) for place, (before, after) in found.items()}


def _pieces(its_words: list[str], places: list[int], verdicts: list[int]) -> Pieces:
    found: Pieces = []
    begun = 0  # the first word that is in no piece yet
    for position in [k for k, place in enumerate(places) if place >= 0]:
        if plain := " ".join([""] * (begun > 0) + its_words[begun:position] + [""] * (position > 0)):
            found.append((plain, ""))
        found.append((its_words[position], VERDICTS[verdicts[places[position]]]))
        begun = position + 1
    rest = " ".join([""] * (begun > 0) + its_words[begun:])
    return [*found, (rest, "")] if rest else found
