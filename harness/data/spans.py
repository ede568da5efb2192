"""Places of documents and evidence in texts, and the labels that follow from them.

A text is extracted from a file, in Unicode NFC with `\\n` as line end. The text's id is the first 20 hexadecimal digits
of the sha256 of its UTF-8 bytes. Positions count code points. Evidence has a place in a text, not in a document, so
labels can be made for any way to cut the texts into documents.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from harness.storage.typed import INLINE


@dataclass(frozen=True, slots=True)
class Span:
    """The code points [start, end) of the text with the id `text`."""

    text: str
    start: int
    end: int

    def overlap(self, other: Span) -> int:
        """Return the number of shared code points; 0 if the texts differ."""
        return max(0, min(self.end, other.end) - max(self.start, other.start)) if self.text == other.text else 0


@dataclass(frozen=True, slots=True)
class Evidence:
    """A passage that answers a question, with the selectors of the W3C Web Annotation Data Model.

    exact: the text at `span`. prefix, suffix: the text before and after `exact`, for finding it again after an edit.
    grade: the grade of a document that contains the passage, > 0.
    """

    span: Span = field(metadata=INLINE)
    exact: str
    prefix: str = ""
    suffix: str = ""
    grade: float = 1.0


def cover(chunk: Span, evidence: Span) -> float:
    """Return the share of the evidence that a chunk contains, in [0, 1]."""
    return chunk.overlap(evidence) / (evidence.end - evidence.start)


HALF = 0.5  # a document with at least this share of a passage counts as containing the passage


FINDINGS = {
    "moved": "found at a new place, since the text has changed",
    "lost": "lost: the text has changed, and the passage is now in no text, or in several places",
    "uncovered": "in no document: the documents leave out that part of the text",
    "split": "split between documents: none contains half of it, so the one with the largest part is labelled",
}


@dataclass(frozen=True, slots=True)
class EvidenceFinding:
    """A remark about one piece of a query's evidence. what: see `FINDINGS`."""

    query_id: str
    what: Literal["split", "uncovered", "lost", "moved"]
    evidence: Evidence


class Places:
    """The places of documents in texts. spans: doc_id -> spans of the document."""

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
        """Return doc_id -> share of the evidence that the document's best place contains, in (0, 1].

        The best place contains the largest share. Documents are in the order in which their best places begin.
        """
        found: dict[str, float] = {}
        for doc_id, place in self._near(evidence):
            if (share := cover(place, evidence)) > found.get(doc_id, 0.0):
                found.pop(doc_id, None)  # inserts the document anew, after documents with earlier places
                found[doc_id] = share
        return found

    def _near(self, evidence: Span) -> Iterator[tuple[str, Span]]:
        rows = self._of_text.get(evidence.text, [])
        first = bisect_left(rows, (evidence.start - self._longest.get(evidence.text, 0), 0, ""))
        for start, end, doc_id in rows[first : bisect_left(rows, (evidence.end, 0, ""))]:
            yield doc_id, Span(evidence.text, start, end)


def label(
    query_id: str, evidence: Sequence[Evidence], places: Places
) -> tuple[dict[str, float], list[EvidenceFinding]]:
    """Return (doc_id -> grade, findings) for one query.

    Every document with at least half of a piece of evidence gets the piece's grade. If this holds for several pieces,
    the document gets their greatest grade. If no document has half of a piece, the document with the largest part gets
    the grade. If several tie, the one that begins first gets it.
    """
    grades: dict[str, float] = {}
    findings: list[EvidenceFinding] = []
    for one in evidence:
        shares = places.covers(one.span)
        chosen = [doc_id for doc_id, share in shares.items() if share >= HALF]
        if not chosen:
            findings.append(EvidenceFinding(query_id, "split" if shares else "uncovered", one))
            chosen = sorted(shares, key=shares.__getitem__, reverse=True)[:1]
        for doc_id in chosen:
            grades[doc_id] = max(grades.get(doc_id, 0.0), one.grade)
    return dict(sorted(grades.items())), findings
