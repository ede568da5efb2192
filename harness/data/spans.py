"""Places in texts: where a document stands in its file, and where the evidence for an answer stands.

A text is what was extracted from a file, in Unicode NFC with `\n` as line end. Its id is the first 20 hexadecimal
digits of the sha256 of its UTF-8 bytes. Positions count code points.

Labels that are made of evidence: which documents contain the passages that answer a query.

Evidence stands at a place of a text, and so does every document that `harness prepare` cuts. Labels therefore need
not be made again when texts are cut in another way.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from retrievers.base import Qrels


@dataclass(frozen=True, slots=True)
class Span:
    """The code points [start, end) of the text with the id `text`."""

    text: str
    start: int
    end: int

    def overlap(self, other: Span) -> int:
        """The number of code points that two spans share; 0 in different texts."""
        return max(0, min(self.end, other.end) - max(self.start, other.start)) if self.text == other.text else 0


@dataclass(frozen=True, slots=True)
class Evidence:
    """A passage that answers a question.

    exact: the passage itself, the text at `span`. prefix, suffix: what stands before and after it, so that it can be
    found again after an edit of the text (the selectors of the W3C Web Annotation Data Model).
    grade: relevance grade of a document that contains it, > 0.
    """

    span: Span
    exact: str
    prefix: str = ""
    suffix: str = ""
    grade: float = 1.0


def cover(chunk: Span, evidence: Span) -> float:
    """The share of the evidence that a chunk contains, in [0, 1]."""
    return chunk.overlap(evidence) / (evidence.end - evidence.start)


HALF = 0.5  # share of the evidence from which on a document counts as containing it


@dataclass(frozen=True, slots=True)
class EvidenceFinding:
    """What is to be said of one piece of evidence of a query.

    what: "split": no document contains half of it, so that the one which contains most is labelled.
        "uncovered": no document contains any of it. "lost": its text is gone, and no other has it in one place alone.
        "moved": its text is gone, and it was found again in another.
    """

    query_id: str
    what: Literal["split", "uncovered", "lost", "moved"]
    evidence: Evidence


@dataclass(frozen=True)
class SpanQrels(Qrels):
    """Labels that were made of evidence; queries with an empty dict need no retrieval.

    evidence: query_id -> the evidence of each labelled query that needs retrieval, where it stands now.
    places: doc_id -> where the document stands; several spans if its text occurs more than once.
    findings: evidence that is split, uncovered, lost or moved, in the order of the queries.
    """

    evidence: Mapping[str, tuple[Evidence, ...]] = field(default_factory=dict)
    places: Mapping[str, tuple[Span, ...]] = field(default_factory=dict)
    findings: tuple[EvidenceFinding, ...] = ()


class Places:
    """Where documents stand in their texts, to be asked which of them contain a passage.

    spans: doc_id -> its spans.
    """

    def __init__(self, spans: Mapping[str, Sequence[Span]]) -> None:
        self._of_text: dict[str, list[tuple[int, int, str]]] = {}
        for doc_id, places in spans.items():
            for place in places:
                self._of_text.setdefault(place.text, []).append((place.start, place.end, doc_id))
        self._longest: dict[str, int] = {}
        for text, rows in self._of_text.items():
            rows.sort()
            self._longest[text] = max(end - start for start, end, _ in rows)

    def covers(self, evidence: Span) -> dict[str, float]:
        """doc_id -> the share of the evidence that the document contains, in (0, 1], in the order of the text.

        A document with several spans counts by the one that contains most.
        """
        found: dict[str, float] = {}
        for doc_id, place in self._near(evidence):
            if (share := cover(place, evidence)) > found.get(doc_id, 0.0):
                found.pop(doc_id, None)  # it moves to the end: the order is that of the places that count
                found[doc_id] = share
        return found

    def _near(self, evidence: Span) -> Iterator[tuple[str, Span]]:
        """Every document that may overlap the evidence: no span that starts earlier is long enough to reach it."""
        rows = self._of_text.get(evidence.text, [])
        first = bisect_left(rows, (evidence.start - self._longest.get(evidence.text, 0), 0, ""))
        for start, end, doc_id in rows[first : bisect_left(rows, (evidence.end, 0, ""))]:
            yield doc_id, Span(evidence.text, start, end)


@dataclass(frozen=True)
class Labels:
    """What `label` finds for one query. grades: doc_id -> grade. split, uncovered: evidence, as in Finding."""

    grades: Mapping[str, float]
    split: tuple[Evidence, ...]
    uncovered: tuple[Evidence, ...]


def label(evidence: Sequence[Evidence], places: Places) -> Labels:
    """The documents that contain the evidence of one query.

    A document that contains at least half of a piece of evidence gets its grade, the greatest of several; where
    documents overlap, all of them do. If no document contains half of it, the one that contains most gets the grade,
    the first of equals in the text: better than a query that no ranking can answer.
    """
    grades: dict[str, float] = {}
    split, uncovered = [], []
    for one in evidence:
        shares = places.covers(one.span)
        chosen = [doc_id for doc_id, share in shares.items() if share >= HALF]
        if not shares:
            uncovered.append(one)
        elif not chosen:
            split.append(one)
            chosen = [max(shares, key=shares.__getitem__)]
        for doc_id in chosen:
            grades[doc_id] = max(grades.get(doc_id, 0.0), one.grade)
    return Labels(dict(sorted(grades.items())), tuple(split), tuple(uncovered))
