"""Read the documents of a dataset in bounded memory, and cut them into shards in the cache.

The source is read once, sorted by id on disk, and cut at boundaries that depend only on ids, so a changed corpus keeps
most of its shards. Each shard is a cache entry of kind "documents", found by its fingerprint. The table of the shards
is a cache entry of kind "corpora", found by the digest of the source.
"""

from __future__ import annotations

import heapq
import operator
import shutil
import struct
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from harness.config.canonical import digest
from harness.data.files import repeated_key, sha256_of
from harness.data.shards import (
    CorpusWriter,
    ShardedDocuments,
    ShardWriter,
    begins_shard,
    fingerprint_of,
    fingerprint_row,
)
from harness.data.source import Streamed
from harness.errors import BadInput, Failed
from harness.progress import watch
from harness.storage.cache import Cache
from harness.storage.entries import CacheEntry
from retrievers.base import Document, Progress

RUN_CHARACTERS = 64 << 20  # when the documents in memory have this many characters, they go to a sorted file
PER_DOCUMENT = 400  # characters to count for each document in addition to its title and text
RUNS_AT_ONCE = 64  # the maximum number of sorted files merged at a time
BUFFER = 1 << 17  # bytes per open file

_HEAD = struct.Struct("<5I?")  # byte lengths of id, title, text, source and position; whether the id is a number


class Placed(NamedTuple):
    """A document with its sort key, (doc_id, run).

    run: which sorted file holds the document. position: where the document stands in its source file.
    """

    doc_id: str
    run: int
    position: str
    document: Document


class DocumentSort:
    """Sorts documents by id on disk. Equal ids keep their order. folder: an empty folder for sorted files."""

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
        """Yield all documents by ascending id. Do not call `add` afterwards."""
        if not self._runs:
            return iter(self._take())
        if self._held:
            self._runs.append(self._spilled(self._take()))
        while len(self._runs) > RUNS_AT_ONCE:
            self._merge_some()
        return _merged(self._runs)

    def _merge_some(self) -> None:
        """Merge the sorted files in groups of neighbours, so that equal ids keep their order."""
        groups = [self._runs[i : i + RUNS_AT_ONCE] for i in range(0, len(self._runs), RUNS_AT_ONCE)]
        self._runs = []
        for group in groups:
            self._runs.append(self._spilled(_merged(group)))
            for path in group:
                path.unlink()

    def _take(self) -> list[Placed]:
        held, self._held, self._characters = self._held, [], 0
        held.sort(key=operator.attrgetter("doc_id"))
        return held

    def _spilled(self, documents: Iterable[Placed]) -> Path:
        path = self._folder / str(self._made)
        self._made += 1
        with path.open("xb", BUFFER) as file:
            for _, _, position, one in documents:
                texts = [text.encode() for text in (one.doc_id, one.title, one.text, one.source, position)]
                file.write(_HEAD.pack(*map(len, texts), one.native_id is not None))
                file.write(b"".join(texts))
        return path


def _merged(runs: Iterable[Path]) -> Iterator[Placed]:
    # No two documents in the heap have the same (doc_id, run), so `heapq` compares no other field.
    return heapq.merge(*(_read(path, run) for run, path in enumerate(runs)))


def _read(path: Path, run: int) -> Iterator[Placed]:
    with path.open("rb", BUFFER) as file:
        while head := file.read(_HEAD.size):
            a, b, c, d, e, numeric = _HEAD.unpack(head)
            raw = file.read(a + b + c + d + e)
            doc_id, title, text = raw[:a].decode(), raw[a : (b := a + b)].decode(), raw[b : (c := b + c)].decode()
            source, position = raw[c : c + d].decode(), raw[c + d :].decode()
            yield Placed(doc_id, run, position, Document(doc_id, text, title, source, int(doc_id) if numeric else None))


CORPORA, DOCUMENTS = "corpora", "documents"  # kinds of cache entries
VERSION = 1  # increase it when shards change: their files, their boundaries or the order of documents
OFTEN = 1000  # number of documents between two progress reports


def sharded(documents: Iterable[Document], size: int, cache: Cache, whole: bool = False) -> ShardedDocuments:
    """Return documents in shards of about `size` documents. Read them into the cache if needed.

    Documents that are not `Streamed` are read into memory first. Raise BadInput for errors in the source's files.
    whole: whether one index covers all shards.
    """
    return _Corpus(documents, size, cache, whole).documents()


def shard_identity(fingerprint: str) -> dict[str, Any]:
    return {"documents": fingerprint}


class _Lost(Exception):
    """The cache has lost a shard."""


class _Corpus:
    """Copies the documents of a source into the cache. size, whole: see `sharded`."""

    def __init__(self, documents: Iterable[Document], size: int, cache: Cache, whole: bool) -> None:
        self._streamed = documents if isinstance(documents, Streamed) else None
        self._held = [] if self._streamed else sorted(documents, key=lambda one: one.doc_id)
        self._size, self._cache, self._whole = size, cache, whole
        self._state = self._source_state()

    def documents(self) -> ShardedDocuments:
        found = self._opened()
        sizes = [self._cache.size(DOCUMENTS, shard_identity(shard.fingerprint)) for shard in found.shards]
        if None in sizes:
            self._make_again()
            found = self._opened()
        return found

    @cached_property
    def _identity(self) -> dict[str, Any]:
        if self._streamed:
            content = {"form": self._streamed.form, "sha256": sha256_of(self._streamed.path)}
        else:
            content = {"fingerprint": fingerprint_of(self._held)}
        return {"content": content, "shard": self._size, "version": VERSION}

    def _opened(self) -> ShardedDocuments:
        return ShardedDocuments(self._cache.folder(CORPORA, self._identity, self._make), self._found, self._whole)

    def _found(self, fingerprint: str) -> Path:
        """Return the folder of a shard. Read the source again if the cache has lost the shard."""

        def lost(_: Path) -> None:
            raise _Lost

        identity = shard_identity(fingerprint)
        try:
            return self._cache.folder(DOCUMENTS, identity, lost)
        except _Lost:
            self._make_again()
        if (folder := self._cache.found(DOCUMENTS, identity)) is None:
            raise Failed(f"The cache has lost the shard {fingerprint[:12]}… just after it was written. Check the disk.")
        return folder

    def _make_again(self) -> None:
        self._cache.remove(CacheEntry(CORPORA, digest(self._identity), 0, 0.0, "finished", {}))
        self._cache.folder(CORPORA, self._identity, self._make)

    def _make(self, folder: Path) -> None:
        work = folder / "work"
        work.mkdir()
        with watch("reading the data") as progress:
            ordered, count = self._ordered(work, progress)
            if self._source_state() != self._state:
                assert self._streamed is not None
                raise BadInput(f"{self._streamed.path} has changed while it was read. Repeat the command.")
            table, place, shard = CorpusWriter(folder, count), work / "shard", None
            try:
                for number, document in enumerate(self._unique(ordered), start=1):
                    if shard and begins_shard(document.doc_id, self._size, len(shard)):
                        self._finish(shard, table, place)
                        shard = None
                    if not shard:
                        place.mkdir()
                        shard = ShardWriter(place)
                    row = fingerprint_row(document)
                    shard.add(document, row)
                    table.add(document, row)
                    if not number % OFTEN:
                        progress(number, count, "documents written")
                if shard:
                    self._finish(shard, table, place)
                table.close()
            finally:
                for writer in (shard, table):
                    if writer:
                        writer.abandon()
        shutil.rmtree(work)

    def _finish(self, shard: ShardWriter, table: CorpusWriter, place: Path) -> None:

        def move(into: Path) -> None:
            for file in sorted(place.iterdir()):
                shutil.move(file, into / file.name)

        fingerprint = shard.close()
        self._cache.folder(DOCUMENTS, shard_identity(fingerprint), move)
        table.cut(fingerprint)
        shutil.rmtree(place)

    def _ordered(self, work: Path, progress: Progress) -> tuple[Iterator[Placed], int]:
        if not self._streamed:
            return (Placed(one.doc_id, 0, "", one) for one in self._held), len(self._held)
        sort = DocumentSort(work)
        for number, (position, document) in enumerate(self._streamed.placed(), start=1):
            sort.add(position, document)
            if not number % OFTEN:
                progress(number, 0, "documents")
        return sort.merged(), sort.count

    def _unique(self, ordered: Iterable[Placed]) -> Iterator[Document]:
        before: Placed | None = None
        for one in ordered:
            if before and one.doc_id == before.doc_id:
                if of := self._streamed:
                    raise repeated_key(one.doc_id, of.key, of.path, one.position, before.position)
                raise BadInput(f"The dataset has two documents with the id {one.doc_id!r:.80}. Remove one of them.")
            yield one.document
            before = one

    def _source_state(self) -> tuple[int, int] | None:
        if not self._streamed or not self._streamed.path.is_file():
            return None  # reading the file will raise the right error
        about = self._streamed.path.stat()
        return about.st_size, about.st_mtime_ns
