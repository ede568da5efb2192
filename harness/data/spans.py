"""Places in texts: where a document stands in its file, and where the evidence for an answer stands.

A text is what was extracted from a file, in Unicode NFC with `\\n` as line end. Its id is the first 20 hexadecimal
digits of the sha256 of its UTF-8 bytes. Positions count code points.
"""

from __future__ import annotations

from dataclasses import dataclass


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
