"""Sorting more documents than fit into memory: sorted runs are spilled to files, which are then merged."""

from __future__ import annotations

import heapq
import operator
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from retrievers.base import Document

RUN_CHARACTERS = 24 << 20  # of a run's documents, each of which counts for PER_DOCUMENT more
PER_DOCUMENT = 400
RUNS_AT_ONCE = 64  # files that are merged at a time
BUFFER = 1 << 17  # bytes of each

_HEAD = struct.Struct("<5I?")  # the lengths of five texts in bytes, and whether the id is a number


class Placed(NamedTuple):
    """A document with its id, which orders them; the run that it comes from; and its position in its file."""

    doc_id: str
    run: int
    position: str
    document: Document


class DocumentSort:
    """Sorts documents by id. Those with the same id stay in the order in which they were added.

    folder: for the runs; empty. What lies there afterwards is of no further use.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: list[Placed] = []
        self._characters = 0
        self._runs: list[Path] = []
        self._made = 0
        self.count = 0

    def add(self, position: str, document: Document) -> None:
        self._held.append(Placed(document.doc_id, 0, position, document))
        self._characters += len(document.title) + len(document.text) + PER_DOCUMENT
        self.count += 1
        if self._characters >= RUN_CHARACTERS:
            self._runs.append(self._spilled(self._take()))

    def merged(self) -> Iterator[Placed]:
        """All documents in ascending order of id; no more can be added."""
        if not self._runs:
            return iter(self._take())
        if self._held:
            self._runs.append(self._spilled(self._take()))
        while len(self._runs) > RUNS_AT_ONCE:
            self._merge_some()
        return _merged(self._runs)

    def _merge_some(self) -> None:
        """Merge neighbouring runs into one each, in their order, so that equal ids stay in theirs."""
        groups = [self._runs[i : i + RUNS_AT_ONCE] for i in range(0, len(self._runs), RUNS_AT_ONCE)]
        self._runs = []
        for group in groups:
            self._runs.append(self._spilled(_merged(group)))
            for path in group:
                path.unlink()

    def _take(self) -> list[Placed]:
        """The documents in memory, sorted, which are forgotten."""
        held, self._held, self._characters = self._held, [], 0
        held.sort(key=operator.attrgetter("doc_id"))
        return held

    def _spilled(self, documents: Iterable[Placed]) -> Path:
        """A new file of documents, one record after another."""
        path = self._folder / str(self._made)
        self._made += 1
        with path.open("xb", BUFFER) as file:
            for _, _, position, one in documents:
                texts = [text.encode() for text in (one.doc_id, one.title, one.text, one.source, position)]
                file.write(_HEAD.pack(*map(len, texts), one.native_id is not None))
                file.write(b"".join(texts))
        return path


def _merged(runs: Iterable[Path]) -> Iterator[Placed]:
    return heapq.merge(*(_read(path, run) for run, path in enumerate(runs)))  # (id, run) differ in the heap


def _read(path: Path, run: int) -> Iterator[Placed]:
    """The documents of a file that `_spilled` wrote."""
    with path.open("rb", BUFFER) as file:
        while head := file.read(_HEAD.size):
            a, b, c, d, e, numeric = _HEAD.unpack(head)
            raw = file.read(a + b + c + d + e)
            doc_id, title, text = raw[:a].decode(), raw[a : (b := a + b)].decode(), raw[b : (c := b + c)].decode()
            source, position = raw[c : c + d].decode(), raw[c + d :].decode()
            yield Placed(doc_id, run, position, Document(doc_id, text, title, source, int(doc_id) if numeric else None))
