"""The chunks of a corpus as documents: equal ones with equal notes are one, with a span for each place.

Only ids and positions are in memory, 18 bytes for each place of a chunk; texts are read again one at a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

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
class TextSource:
    """A file's text and the note of its documents.

    name: of the file. text: id of its text.
    """

    name: str
    note: str
    text: str


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """A document with all its places; `source` is that of the first."""

    doc_id: str
    content: str
    source: TextSource
    spans: tuple[Span, ...]


class Occurrences:
    """Every place of every chunk, in the order in which they were added."""

    def __init__(self) -> None:
        self._sources: list[TextSource] = []
        self._ends = [0]  # past the last chunk of each source
        self._known: set[tuple[str, str]] = set()
        self._ids: list[np.ndarray] = [np.zeros((0, ID_BYTES), np.uint8)]
        self._spans: list[np.ndarray] = [np.zeros((0, 2), np.int32)]

    def add(self, source: TextSource, text: str, spans: Sequence[tuple[int, int]]) -> None:
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
        return len(self._grouped.firsts)

    @property
    def places(self) -> int:
        """Number of spans of all documents."""
        return self._ends[-1]

    def doc_ids(self, documents: Sequence[int]) -> list[str]:
        """The ids of some documents. documents: their positions."""
        ids = self._grouped.ids[self._grouped.firsts[np.array(documents, np.int64)]]
        return [one.tobytes().hex() for one in ids]

    def lengths(self) -> np.ndarray:
        """int32: the characters of each document."""
        starts, ends = self._grouped.spans[self._grouped.firsts].T
        found: np.ndarray = ends - starts
        return found

    def contents(self, read: Callable[[str], str]) -> Iterator[str]:
        """The content of each document. read: text id -> text."""
        for number, first, last in self._runs():
            text = read(self._sources[number].text)
            for start, end in self._grouped.spans[self._grouped.firsts[first:last]].tolist():
                yield text[start:end]

    def rows(self, read: Callable[[str], str]) -> Iterator[DocumentRow]:
        """The documents in the order of their first places. read: text id -> text."""
        grouped, contents = self._grouped, self.contents(read)
        for number, first, last in self._runs():
            ids = self.doc_ids(range(first, last))
            borders = grouped.starts[first : last + 1]
            places = grouped.order[borders[0] : borders[-1]]
            sources = (np.searchsorted(self._ends, places, side="right") - 1).tolist()
            spans = [
                Span(self._sources[source].text, start, end)
                for source, (start, end) in zip(sources, grouped.spans[places].tolist(), strict=True)
            ]
            for doc_id, (begin, end) in zip(ids, pairwise((borders - borders[0]).tolist()), strict=True):
                yield DocumentRow(doc_id, next(contents), self._sources[number], tuple(spans[begin:end]))

    def _runs(self) -> Iterator[tuple[int, int, int]]:
        """(source, first, past the last) document that the source brings; sources that bring none are left out."""
        borders = np.searchsorted(self._grouped.firsts, self._ends).tolist()
        for number, (first, last) in enumerate(pairwise(borders)):
            if first < last:
                yield number, first, last

    @cached_property
    def _grouped(self) -> _Grouped:
        return _Grouped.of(self._ids, self._spans)


@dataclass(frozen=True, eq=False)
class _Grouped:
    """Places by document. Documents are in the order of their first places; the places of each are ascending.

    ids: uint8 [places, ID_BYTES]. spans: int32 [places, 2]. order: places, those of one document side by side. starts:
    where each document begins in `order`, and its length. firsts: the first place of each document, ascending.
    """

    ids: np.ndarray
    spans: np.ndarray
    order: np.ndarray
    starts: np.ndarray
    firsts: np.ndarray

    @classmethod
    def of(cls, ids: list[np.ndarray], spans: list[np.ndarray]) -> _Grouped:
        """From the parts of both arrays, which are emptied."""
        whole, places = np.concatenate(ids), np.concatenate(spans)
        ids.clear()
        spans.clear()
        high, low = whole[:, :8].copy().view(">u8").ravel(), whole[:, 8:].copy().view(">u2").ravel()
        order = np.lexsort((low, high))  # stable: places ascend within a document
        new = np.ones(len(order), bool)
        new[1:] = (np.diff(high[order]) != 0) | (np.diff(low[order]) != 0)
        begins = np.flatnonzero(new)
        sizes = np.diff(begins, append=len(order))
        by_first = np.argsort(order[begins])
        begins, sizes = begins[by_first], sizes[by_first]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        within = np.arange(len(order)) - np.repeat(starts[:-1], sizes)
        return cls(whole, places, order[np.repeat(begins, sizes) + within], starts, order[begins])
