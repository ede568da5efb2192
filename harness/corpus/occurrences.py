"""The chunks of a corpus as documents: equal ones with equal notes are one, with a span for each place.

Only ids and positions are in memory, 18 bytes for each place of a chunk; texts are read again one at a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from harness.data.spans import Span

ID_BYTES = 10  # of a document's id: 20 hexadecimal digits


def document_id(note: str, content: str) -> str:
    """The id of a document: the first 20 hexadecimal digits of the sha256 of note, NUL and content, as UTF-8."""
    return bytes_id(f"{note}\0{content}".encode())


def bytes_id(content: bytes) -> str:
    """The first 20 hexadecimal digits of the sha256, such as the id of a text in UTF-8."""
    return hashlib.sha256(content).hexdigest()[: 2 * ID_BYTES]


@dataclass(frozen=True, slots=True)
class Source:
    """A file's text and the note of its documents.

    name: of the file. text: id of its text.
    """

    name: str
    note: str
    text: str


@dataclass(frozen=True, slots=True)
class Row:
    """A document with all its places; `source` is that of the first."""

    doc_id: str
    content: str
    source: Source
    spans: tuple[Span, ...]


class Occurrences:
    """Every place of every chunk, in the order in which they were added."""

    def __init__(self) -> None:
        self._sources: list[Source] = []
        self._ends = [0]  # past the last chunk of each source
        self._known: set[tuple[str, str]] = set()
        self._ids: list[np.ndarray] = [np.zeros((0, ID_BYTES), np.uint8)]
        self._spans: list[np.ndarray] = [np.zeros((0, 2), np.int32)]

    def add(self, source: Source, text: str, spans: Sequence[tuple[int, int]]) -> None:
        """Add the chunks of a text. A text that was added with the same note has no places of its own."""
        if (source.note, source.text) in self._known:
            return
        self._known.add((source.note, source.text))
        noted = hashlib.sha256(f"{source.note}\0".encode())
        ids = bytearray()
        for start, end in spans:
            one = noted.copy()
            one.update(text[start:end].encode())
            ids += one.digest()[:ID_BYTES]
        self._sources.append(source)
        self._ends.append(self._ends[-1] + len(spans))
        self._ids.append(np.frombuffer(ids, np.uint8).reshape(-1, ID_BYTES))
        self._spans.append(np.array(spans, np.int32).reshape(-1, 2))

    def __len__(self) -> int:
        """Number of documents."""
        return len(self._grouped[1]) - 1

    @property
    def places(self) -> int:
        """Number of spans of all documents."""
        return self._ends[-1]

    def doc_ids(self, documents: Sequence[int]) -> list[str]:
        """The ids of some documents. documents: their positions."""
        ids = np.concatenate(self._ids)
        return [ids[place].tobytes().hex() for place in self._firsts[list(documents)].tolist()]

    def lengths(self) -> np.ndarray:
        """int32: the characters of each document."""
        spans = np.concatenate(self._spans)[self._firsts]
        found: np.ndarray = spans[:, 1] - spans[:, 0]
        return found

    @cached_property
    def _grouped(self) -> tuple[np.ndarray, np.ndarray]:
        """(places ordered by document, where each document begins among them and the end).

        Documents are in the order of their first places, and the places of each are ascending.
        """
        ids = np.concatenate(self._ids)
        high, low = ids[:, :8].copy().view(">u8").ravel(), ids[:, 8:].copy().view(">u2").ravel()
        order = np.lexsort((low, high))  # stable: places ascend within a document
        high, low = high[order], low[order]
        begins = np.flatnonzero(np.r_[True, (np.diff(high) != 0) | (np.diff(low) != 0)][: len(order)])
        sizes = np.diff(np.r_[begins, len(order)])
        by_first = np.argsort(order[begins])
        starts = np.r_[0, np.cumsum(sizes[by_first])]
        inside = np.arange(len(order)) - np.repeat(starts[:-1], sizes[by_first])
        return order[np.repeat(begins[by_first], sizes[by_first]) + inside], starts

    @property
    def _firsts(self) -> np.ndarray:
        """The first place of each document, ascending."""
        order, starts = self._grouped
        return order[starts[:-1]]

    def contents(self, read: Callable[[str], str]) -> Iterator[str]:
        """The content of each document. read: text id -> text."""
        spans = np.concatenate(self._spans)
        for number, first, last in self._runs():
            text = read(self._sources[number].text)
            for start, end in spans[self._firsts[first:last]].tolist():
                yield text[start:end]

    def _runs(self) -> Iterator[tuple[int, int, int]]:
        """(source, first, past the last) document that the source brings; sources that bring none are left out."""
        borders = np.searchsorted(self._firsts, self._ends).tolist()
        for number in range(len(self._sources)):
            if borders[number] < borders[number + 1]:
                yield number, borders[number], borders[number + 1]

    def rows(self, read: Callable[[str], str]) -> Iterator[Row]:
        """The documents in the order of their first places. read: text id -> text."""
        order, starts = self._grouped
        ids, spans = np.concatenate(self._ids), np.concatenate(self._spans)
        contents = self.contents(read)
        for number, first, last in self._runs():
            source = self._sources[number]
            for document in range(first, last):
                places = order[starts[document] : starts[document + 1]]
                where = np.searchsorted(self._ends, places, side="right") - 1
                found = tuple(
                    Span(self._sources[at].text, start, end)
                    for at, (start, end) in zip(where.tolist(), spans[places].tolist(), strict=True)
                )
                yield Row(ids[places[0]].tobytes().hex(), next(contents), source, found)
