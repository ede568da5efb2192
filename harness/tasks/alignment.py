"""Corrections judged edit by edit: align texts word by word, make edits, give verdicts.

docs/measures.md defines alignment, edits and verdicts. A target (a reference or a prediction) is aligned with its
source by a longest common subsequence (Wagner & Fischer 1974). Equal words at the beginnings and ends of both texts are
matched first. For the n and m words left, this takes O(n * m) time and n * m bits: 12.5 MB for 10,000 words each.

An edit consists of a place (a position in the source) and the words that it puts there. The verdict on a place compares
the words that reference and prediction put there, not the source words that these replace:

tp: reference and prediction put the same words there.
fp: reference and prediction put different words there.
fn: only the reference has an edit there.
fr: only the prediction has an edit there.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal, NamedTuple

import numpy as np

from harness.tasks.task import nfc

Scheme = Literal["token", "span"]
VERDICTS = ("", "tp", "fp", "fn", "fr")  # index: the verdict's code in `_alignment_kernels`
NOTHING = "∅"
BITS = 1 << 16  # number of bytes for the first alignments; texts that differ much need more

Pieces = list[tuple[str, str]]


class Change(NamedTuple):
    """Source words and the words that replace them; either may be empty."""

    source: tuple[str, ...]
    target: tuple[str, ...]

    def __str__(self) -> str:
        return "→".join(" ".join(words) or NOTHING for words in self)


class Edit(NamedTuple):
    """A place with its verdict. wanted, made: the reference's and the prediction's change there, or None."""

    place: int
    verdict: str
    wanted: Change | None
    made: Change | None

    def __str__(self) -> str:
        text = f"{self.made or self.wanted} {self.verdict.upper()}"
        return f"{text} (wanted: {self.wanted})" if self.verdict == "fp" else text


class ShownAlignment(NamedTuple):
    """A sentence to show to people. The joined pieces of a text are its words with single spaces between them.

    Each edited word is a piece, marked with the verdict on the place where its edit begins. If both reference and
    prediction edit a source word, its mark is the verdict on the place of the reference's edit.
    """

    edits: list[Edit]
    source: Pieces
    reference: Pieces
    prediction: Pieces


class _Texts(NamedTuple):
    words: np.ndarray  # int32, the ids of the words of all texts, text after text
    starts: np.ndarray  # int64 [N + 1], the position of each text's first word

    def of(self, row: int, flat: np.ndarray) -> list[int]:
        return flat[self.starts[row] : self.starts[row + 1]].tolist()


class _Aligned(NamedTuple):
    """Targets aligned with their sources.

    of_source, of_target: int32. For each word, the place of the edit that changes it; -1 if no edit does. A place is a
        position in the source.
    """

    texts: _Texts
    of_source: np.ndarray
    of_target: np.ndarray


@dataclass(frozen=True, eq=False)
class JudgedEdits:
    """N sentences with the verdicts on all their places.

    counts: int64 [N, 4], the numbers of places with tp, fp, fn and fr. Under scheme `token`, fp includes fr.
    wanted, made: bool [N], whether the reference (wanted) or the prediction (made) differs from the source.
    """

    counts: np.ndarray
    wanted: np.ndarray
    made: np.ndarray
    _vocabulary: list[str]
    _source: _Texts
    _reference: _Aligned
    _prediction: _Aligned
    _verdicts: np.ndarray

    def show(self, row: int) -> ShownAlignment:
        first, last = self._source.starts[row : row + 2] + row
        verdicts = self._verdicts[first : last + 1].tolist()
        source = self._words(self._source, row)
        source_places, changes, pieces = [], [], []
        for one in (self._reference, self._prediction):
            target = self._words(one.texts, row)
            of_source, of_target = self._source.of(row, one.of_source), one.texts.of(row, one.of_target)
            source_places.append(of_source)
            changes.append(_changes(source, of_source, target, of_target))
            pieces.append(_pieces(target, of_target, verdicts))
        wanted, made = changes
        either = [one if one >= 0 else other for one, other in zip(*source_places, strict=True)]
        return ShownAlignment(
            edits=[
                Edit(place, VERDICTS[verdict], wanted=wanted.get(place), made=made.get(place))
                for place, verdict in enumerate(verdicts)
                if verdict
            ],
            source=_pieces(source, either, verdicts),
            reference=pieces[0],
            prediction=pieces[1],
        )

    def _words(self, texts: _Texts, row: int) -> list[str]:
        return [self._vocabulary[number] for number in texts.of(row, texts.words)]


def judge_edits(
    sources: Sequence[str],
    references: Sequence[str],
    predictions: Sequence[str],
    scheme: Scheme = "token",
    merge_gap: int = 2,
) -> JudgedEdits:
    """Judge the edits of N predictions by the edits of their references. merge_gap: as in `place_edits`, for `span`."""
    from harness.tasks import _alignment_kernels

    if not len(sources) == len(references) == len(predictions):
        raise ValueError("each source needs one reference and one prediction")
    gap = merge_gap if scheme == "span" else -1
    vocabulary: defaultdict[str, int] = defaultdict(count().__next__)
    source, *targets = (_numbered(texts, vocabulary) for texts in (sources, references, predictions))
    reference, prediction = (_aligned(source, texts, gap) for texts in targets)
    sides = (part for one in (reference, prediction) for part in (one.of_source, *one.texts, one.of_target))
    verdicts = np.zeros(len(source.words) + len(sources), np.int8)
    _alignment_kernels.judge_places(*[source.starts, *sides, verdicts])
    firsts = source.starts[:-1] + np.arange(len(sources))  # A sentence of n words has n + 1 places.
    tp, fp, fn, fr = (np.add.reduceat(verdicts == one, firsts, dtype=np.int64) for one in range(1, len(VERDICTS)))
    counts = np.stack([tp, fp + fr if scheme == "token" else fp, fn, fr], axis=1)
    wanted, made = tp + fp + fn > 0, tp + fp + fr > 0
    return JudgedEdits(counts, wanted, made, list(vocabulary), source, reference, prediction, verdicts)


def _aligned(source: _Texts, target: _Texts, gap: int) -> _Aligned:
    from harness.tasks import _alignment_kernels

    edits = [np.full(len(texts.words), -1, np.int32) for texts in (source, target)]
    _alignment_kernels.place_edits(_matched(source, target), source.starts, target.starts, gap, *edits)
    return _Aligned(target, *edits)


def _matched(source: _Texts, target: _Texts) -> np.ndarray:
    """Return the position of the target word that each source word matches, int32 [source words]; -1 for no match."""
    from harness.tasks import _alignment_kernels

    matched, longest = np.full(len(source.words), -1, np.int32), np.empty(len(target.words) + 1, np.int32)
    bits, text = np.empty(BITS, np.uint8), 0
    while text < len(source.starts) - 1:
        text, needed = _alignment_kernels.align(*source, *target, matched, longest, bits, text)
        bits = bits if needed <= len(bits) else np.empty(needed, np.uint8)
    return matched


def _numbered(texts: Sequence[str], vocabulary: defaultdict[str, int]) -> _Texts:
    numbers, starts = array("i"), array("q", [0])
    for text in texts:
        numbers.extend(map(vocabulary.__getitem__, nfc(text).split()))
        starts.append(len(numbers))
    return _Texts(np.array(numbers, np.int32), np.array(starts, np.int64))


def _changes(source: list[str], of_source: list[int], target: list[str], of_target: list[int]) -> dict[int, Change]:
    changes: defaultdict[int, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for side, (its_words, places) in enumerate(((source, of_source), (target, of_target))):
        for word, place in zip(its_words, places, strict=True):
            if place >= 0:
                changes[place][side].append(word)
    return {place: Change(tuple(before), tuple(after)) for place, (before, after) in changes.items()}


def _pieces(its_words: list[str], places: list[int], verdicts: list[int]) -> Pieces:
    pieces: Pieces = []
    begun = 0  # the first word that is not yet in a piece
    for position in [k for k, place in enumerate(places) if place >= 0]:
        if plain := " ".join([""] * (begun > 0) + its_words[begun:position] + [""] * (position > 0)):
            pieces.append((plain, ""))
        pieces.append((its_words[position], VERDICTS[verdicts[places[position]]]))
        begun = position + 1
    rest = " ".join([""] * (begun > 0) + its_words[begun:])
    return [*pieces, (rest, "")] if rest else pieces
