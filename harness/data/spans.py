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
from typing import Any, Literal

from harness.config.text import counted
from harness.data.files import some
from harness.data.qrels import Qrels
from harness.storage.typed import INLINE


@dataclass(frozen=True, slots=True)
class Span:
    """The code points [start, end) of the text with the id `text`."""

    text: str
    start: int
    end: int

    def overlap(self, other: Span) -> int:
        """Return the number of code points that two spans share; 0 in different texts."""
        return max(0, min(self.end, other.end) - max(self.start, other.start)) if self.text == other.text else 0


@dataclass(frozen=True, slots=True)
class Evidence:
    """A passage that answers a question.

    exact: the text at `span`. prefix, suffix: what stands before and after it, by which it is found again after an edit
    (the selectors of the W3C Web Annotation Data Model). grade: of a document that contains it, > 0.
    """

    span: Span = field(metadata=INLINE)
    exact: str
    prefix: str = ""
    suffix: str = ""
    grade: float = 1.0


def cover(chunk: Span, evidence: Span) -> float:
    """Return the share of the evidence that a chunk contains, in [0, 1]."""
    return chunk.overlap(evidence) / (evidence.end - evidence.start)


HALF = 0.5  # share of the evidence from which on a document counts as containing it


@dataclass(frozen=True, slots=True)
class EvidenceFinding:
    """A remark about one piece of evidence of a query.

    what: "split": no document contains half of it, so the one that contains most is labelled. "uncovered": no document
    contains any of it. "lost": its text is gone, and no other has it in one place alone. "moved": its text is gone, and
    it was found again in another.
    """

    query_id: str
    what: Literal["split", "uncovered", "lost", "moved"]
    evidence: Evidence


@dataclass(frozen=True)
class SpanQrels(Qrels):
    """Labels that were made of evidence; queries with an empty dict need no retrieval.

    evidence: query_id -> evidence of each labelled query that needs retrieval, where it stands now.
    places: doc_id -> where the document stands; several spans if its text occurs more than once.
    """

    evidence: Mapping[str, tuple[Evidence, ...]] = field(default_factory=dict)
    places: Mapping[str, tuple[Span, ...]] = field(default_factory=dict)
    findings: tuple[EvidenceFinding, ...] = ()

    @property
    def counts_unanswerable(self) -> bool:
        return False  # the queries have always said it: they are unlabelled and without evidence

    def content(self) -> Iterator[Any]:
        yield from super().content()
        yield from self.sources()
        for doc_id, spans in sorted(self.places.items()):
            yield doc_id, [_place(span) for span in spans]

    def sources(self) -> Iterator[Any]:
        """Yield the evidence of each query, by query id; [] for a query that needs no retrieval."""
        for query_id in sorted(self.grades):
            pieces = self.evidence.get(query_id, ())
            yield query_id, sorted((*_place(one.span), float(one.grade)) for one in pieces)

    def remarks(self) -> Iterator[str]:
        for what, meaning in _FINDINGS.items():
            if queries := [one.query_id for one in self.findings if one.what == what]:
                pieces = counted(len(queries), "piece")
                yield f"{pieces} of evidence {meaning} (of {some(list(dict.fromkeys(queries)))})."


_FINDINGS = {
    "moved": "found again, since the text has changed",
    "lost": "lost: the text has changed, and the passage is nowhere else, or in several places",
    "uncovered": "in no document: the documents leave out that part of the text",
    "split": "split between documents: none contains half of it, so the one that contains most is labelled",
}


def _place(span: Span) -> tuple[str, int, int]:
    return span.text, span.start, span.end


class Places:
    """Where documents stand in their texts. spans: doc_id -> its spans."""

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
        """Return doc_id -> the greatest share of the evidence that the document contains, in (0, 1], in text order."""
        found: dict[str, float] = {}
        for doc_id, place in self._near(evidence):
            if (share := cover(place, evidence)) > found.get(doc_id, 0.0):
                found.pop(doc_id, None)  # it moves to the end: the order is that of the places that count
                found[doc_id] = share
        return found

    def _near(self, evidence: Span) -> Iterator[tuple[str, Span]]:
        """Yield every document that may overlap the evidence: no earlier span is long enough to reach it."""
        rows = self._of_text.get(evidence.text, [])
        first = bisect_left(rows, (evidence.start - self._longest.get(evidence.text, 0), 0, ""))
        for start, end, doc_id in rows[first : bisect_left(rows, (evidence.end, 0, ""))]:
            yield doc_id, Span(evidence.text, start, end)


@dataclass(frozen=True)
class Labels:
    """What `label` finds for one query. grades: doc_id -> grade."""

    grades: Mapping[str, float]
    split: tuple[Evidence, ...]
    uncovered: tuple[Evidence, ...]


def label(evidence: Sequence[Evidence], places: Places) -> Labels:
    """Return the documents that contain the evidence of one query.

    Every document that contains at least half of a piece of evidence gets its grade, the greatest of several. If none
    does, the one that contains most gets it, the first of equals: better than a query that no ranking can answer.
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
