"""Passages: documents cut into sentences, and ranked by the best of their passages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, get_args

import numpy as np

from retrievers.base import AtMost, BadInput, Document, did_you_mean

Kind = Literal["none", "sentences", "window"]
Sentences = Annotated[int, AtMost(1000, "a window of more sentences is the document")]
KINDS = get_args(Kind)
SHORTEST, LONGEST = 50, 1000  # characters of a sentence: shorter ones join the next, longer ones are cut
VERSION = 1  # raise it when the same settings cut otherwise
FIRST = 4  # passages per wanted document that are searched for at first
ROOM = 1 << 22  # passages found for all queries that are searched at a time

# The end of a sentence: marks, closing quotes and brackets, then white space. Marks of Chinese and Japanese need no
# white space; a period after a single Latin letter ends no sentence ("J. Smith", "e.g. this"); a line break ends one.
# Each run of marks is tried from its beginning alone, or a long one would take the square of its length.
_END = re.compile(r"(?:(?<!\b[A-Za-z])(?<![.!?…])[.!?…]++[\"'”’)\]》」』]*+(?=\s)|[。！？]++[”’」』）]*+|\n)\s*+")


Search = Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]]


class Texts(NamedTuple):
    """The passages of N documents, P in all.

    texts: P texts, document by document.
    starts: int64 [N + 1]; document n has the passages starts[n] to starts[n + 1] - 1, at least one.
    """

    texts: list[str]
    starts: np.ndarray


@dataclass(frozen=True)
class Passages:
    """How documents are cut into passages.

    kind: `none`: a document is one passage. `sentences`: each sentence is one. `window`: runs of sentences.
    window: sentences of a run, at least 1.
    overlap: sentences that a run shares with the next one, less than `window`.
    """

    kind: Kind = "none"
    window: Sentences = 3
    overlap: Sentences = 1

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadInput(
                f"passages is {self.kind!r}: choose one of {', '.join(KINDS)}.{did_you_mean(str(self.kind), KINDS)}"
            )
        for name, value, least in (("window", self.window, 1), ("overlap", self.overlap, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise BadInput(f"{name} is {value!r}: give a number of sentences, at least {least}.")
        if self.overlap >= self.window:
            raise BadInput(f"overlap ({self.overlap}) must be less than window ({self.window}): lower it.")

    def identity(self) -> dict[str, Any]:
        """What decides the passages; {} where documents are not cut."""
        sizes = {"window": self.window, "overlap": self.overlap} if self.kind == "window" else {}
        return {} if self.kind == "none" else {"kind": self.kind, "version": VERSION, **sizes}

    def of(self, documents: Sequence[Document]) -> Texts:
        """The passages of documents, each with the document's title before it."""
        texts, counts = list[str](), list[int]()
        for document in documents:
            cut = self.cut(document.text)
            title = f"{document.title} " if document.title else ""
            texts += [title + passage for passage in cut]
            counts.append(len(cut))
        return Texts(texts, np.cumsum([0, *counts], dtype=np.int64))

    def cut(self, text: str) -> list[str]:
        """The passages of a text, at least one; together they have all of it but white space at their ends."""
        if self.kind == "none":
            return [text]
        spans = sentences(text)
        size, step = (1, 1) if self.kind == "sentences" else (self.window, self.window - self.overlap)
        firsts = range(0, max(1, len(spans) - size + step), step)
        return [text[spans[i][0] : spans[min(i + size, len(spans)) - 1][1]] for i in firsts]


def sentences(text: str) -> list[tuple[int, int]]:
    """(start, end) of the sentences of a text, in order, without white space around them; at least one.

    A sentence of less than 50 characters belongs to the next one (the last to the one before), such as a number before
    a heading; one of more than 1,000 is cut at white space, or within a word where there is none.
    """
    found = list[tuple[int, int]]()
    start = 0
    for end in [*(match.end() for match in _END.finditer(text)), len(text)]:
        if end - start >= SHORTEST:
            found += _cut(text, start, end)
            start = end
    if text[start:].strip():
        found[-1:] = [(found[-1][0], len(text))] if found else _cut(text, start, len(text))
    spans = [_trimmed(text, *span) for span in found]
    return [span for span in spans if span[0] < span[1]] or [(0, 0)]


def _cut(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Pieces of at most LONGEST characters."""
    while end - start > LONGEST:
        space = max(text.rfind(mark, start + LONGEST // 2, start + LONGEST) for mark in " \t\u3000")
        middle = space + 1 if space >= 0 else start + LONGEST
        yield start, middle
        start = middle
    yield start, end


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    inner = text[start:end]
    return start + len(inner) - len(inner.lstrip()), end - len(inner) + len(inner.rstrip())


def best_documents(search: Search, queries: np.ndarray, starts: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k documents with the best passages: (docs int32 [Q, min(k, N)], scores float64), as Hits has them.

    A document scores what its best passage does. Passages come ordered by descending score, then ascending number, so
    the first k different documents among them are the k best, in order. Queries whose first passages belong to fewer
    documents search for more, up to all.

    search: exact; (queries float32 [n, D], number of passages) -> their best passages, as in `Hits`.
    starts: int64 [N + 1], as in Texts.
    """
    passages, width = int(starts[-1]), min(k, len(starts) - 1)
    docs, scores = np.full((len(queries), width), -1, np.int32), np.zeros((len(queries), width))
    open_rows, fetched = np.arange(len(queries) if width else 0), min(passages, FIRST * k)
    while len(open_rows):
        left = []
        for rows in np.array_split(open_rows, 1 + len(open_rows) * fetched // ROOM):
            found, values = search(queries[rows], fetched)
            documents = np.searchsorted(starts, found, side="right").astype(np.int32) - 1
            docs[rows], scores[rows] = _first(documents, values, width)
            done = (docs[rows, -1] >= 0) | (found[:, -1] < 0) | (fetched == passages)
            left.append(rows[~done])
        open_rows, fetched = np.concatenate(left), min(passages, FIRST * fetched)
    return docs, scores


def _first(documents: np.ndarray, scores: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The first `width` different documents of each row with their scores; rows are padded with -1 and 0.

    documents: int32 [n, F]; -1 pads. scores: float64 [n, F].
    """
    order = np.argsort(documents, axis=1, kind="stable")
    ordered = np.take_along_axis(documents, order, axis=1)
    new = np.ones(documents.shape, bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first = np.zeros(documents.shape, bool)
    np.put_along_axis(first, order, new & (ordered >= 0), axis=1)
    place = np.cumsum(first, axis=1) - 1
    rows, columns = np.nonzero(first & (place < width))
    docs, values = np.full((len(documents), width), -1, np.int32), np.zeros((len(documents), width))
    docs[rows, place[rows, columns]] = documents[rows, columns]
    values[rows, place[rows, columns]] = scores[rows, columns]
    return docs, values
