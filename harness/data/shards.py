"""Documents on disk, cut into shards and read on demand.

A shard is a folder of n documents:

documents.txt: id, title, text and source of each document, in UTF-8 without separators.
ends.npy:      int64 [4 n + 1]: 0, then the byte offset where each id, title, text and source ends.
numbers.npy:   bool [n]: whether the id is a number in the original file.

A corpus is a folder with the ids of its D documents and the table of its shards (the shards are elsewhere):

corpus.json:   {fingerprint, empty: {count, first}, shards: [[fingerprint, number of documents], ...]}.
ids.txt:       all ids in ascending order, in UTF-8 without separators.
id_ends.npy:   int64 [D + 1]: 0, then the byte offset where each id ends.
"""

from __future__ import annotations

import functools
import hashlib
import json
import mmap
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from harness.data.files import json_file
from harness.errors import BadInput
from retrievers.base import Document, load_array

TEXTS, ENDS, NUMBERS = "documents.txt", "ends.npy", "numbers.npy"
TABLE, IDS, ID_ENDS = "corpus.json", "ids.txt", "id_ends.npy"
FIELDS = 4  # number of texts per document in documents.txt
BLOCK = 1024  # number of documents read at a time
OPEN_SHARDS = 32  # maximum number of shards kept open for lookups of single documents; each has two open files
STRIDE = 64  # one of this many ids is kept in memory, to look up the others
MERGED = 100  # reading this many ids in order takes as long as looking up one
FIRST_EMPTY = 5  # maximum number of ids of empty documents that the table lists

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
T = TypeVar("T")


@dataclass(frozen=True)
class Shard:
    """A part of a corpus. fingerprint: sha256 of its documents. first: position of its first document in the corpus."""

    fingerprint: str
    first: int
    size: int


def json_row(value: Any) -> bytes:
    return _encode(value).encode() + b"\n"


def fingerprint_row(document: Document) -> bytes:
    """Return a document's row for the fingerprint of a corpus, which is the sha256 of all rows."""
    return json_row((document.doc_id, document.title, document.text))


def fingerprint_of(documents: Iterable[Document]) -> str:
    """Return the sha256 of the ids, titles and texts of documents, in order."""
    if isinstance(documents, ShardedDocuments):
        return documents.fingerprint
    digest = hashlib.sha256()
    for document in documents:
        digest.update(fingerprint_row(document))
    return digest.hexdigest()


def documents_by_id(documents: Sequence[Document]) -> Mapping[str, Document]:
    if isinstance(documents, ShardedDocuments):
        return documents.by_id
    return {document.doc_id: document for document in documents}


def missing_ids(documents: Mapping[str, Document], doc_ids: Sequence[str]) -> list[str]:
    """Return the ids that `documents` lacks. doc_ids: unique and ascending. documents: from `documents_by_id`."""
    if not isinstance(documents, _ById) or MERGED * len(doc_ids) < len(documents):
        return [doc_id for doc_id in doc_ids if doc_id not in documents]
    lacking, known = [], iter(documents)
    reached = next(known, None)
    for doc_id in doc_ids:
        while reached is not None and reached < doc_id:
            reached = next(known, None)
        if reached != doc_id:
            lacking.append(doc_id)
    return lacking


def empty_documents(documents: Sequence[Document]) -> tuple[int, Sequence[str]]:
    """Return (number of documents without text, ids of at least the first few of them)."""
    if isinstance(documents, ShardedDocuments):
        return documents.empty, documents.first_empty
    empty = [document.doc_id for document in documents if not document.indexed_text.strip()]
    return len(empty), empty


def begins_shard(doc_id: str, size: int, before: int) -> bool:
    """Return whether a document begins a new shard. before: number of documents in the current shard.

    A shard has size // 2 to 2 * size documents, `size` on average. Between these limits, the hash of a document's id
    decides whether it begins a shard. So if some documents are added or removed, few boundaries move.
    """
    least = max(1, size // 2)
    if before < least:
        return False
    number = int.from_bytes(hashlib.blake2b(doc_id.encode(), digest_size=8).digest(), "big")
    return before >= 2 * size or number % (size - least + 1) == 0


class ShardWriter:
    """Write one shard to a folder: `add` each document with its `fingerprint_row`, then `close`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = (folder / TEXTS).open("wb")
        self._ends = array("q", [0])
        self._numbers = bytearray()
        self._digest = hashlib.sha256()

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, document: Document, row: bytes) -> None:
        if document.native_id is not None and str(document.native_id) != document.doc_id:
            raise ValueError(f"document {document.doc_id!r} has a different native id: {document.native_id}")
        end = self._ends[-1]
        for text in (document.doc_id, document.title, document.text, document.source):
            raw = text.encode()
            self._file.write(raw)
            end += len(raw)
            self._ends.append(end)
        self._numbers.append(document.native_id is not None)
        self._digest.update(row)

    def close(self) -> str:
        """Finish the shard's files. Return the shard's fingerprint."""
        self._file.close()
        np.save(self._folder / ENDS, np.frombuffer(self._ends, np.int64))
        np.save(self._folder / NUMBERS, np.frombuffer(self._numbers, np.bool_))
        return self._digest.hexdigest()

    def abandon(self) -> None:
        self._file.close()


class _Lazy(Sequence[T]):
    """A sequence that reads its items on demand. Slices are tuples."""

    def _at(self, number: int) -> T:
        return self._block(number, number + 1)[0]

    def _block(self, start: int, stop: int) -> list[T]:
        raise NotImplementedError

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            numbers = range(len(self))[place]
            return tuple(self._block(numbers.start, numbers.stop) if numbers.step == 1 else map(self._at, numbers))
        return self._at(range(len(self))[place])


class OpenShard(_Lazy[Document]):
    """The documents of a shard, memory-mapped. Raises BadInput if the files are damaged."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            self._ends, self._numbers = _array(folder / ENDS), _array(folder / NUMBERS)
            self._texts = _mapped(folder / TEXTS)
            right = self._numbers.dtype == np.bool_ and self._ends.shape == (FIELDS * self._numbers.size + 1,)
            if not right or self._numbers.ndim != 1 or not _are_ends(self._ends, len(self._texts)):
                raise ValueError("the files do not fit together")
        except (OSError, ValueError) as error:
            raise _damaged(folder, error) from None

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[Document]:
        for start in range(0, len(self), BLOCK):
            yield from self._block(start, min(start + BLOCK, len(self)))

    def _block(self, start: int, stop: int) -> list[Document]:
        if start >= stop:
            return []
        ends = self._ends[FIELDS * start : FIELDS * stop + 1].tolist()
        raw, offset = self._texts[ends[0] : ends[-1]], ends[0]
        made = []
        try:
            for i, number in enumerate(self._numbers[start:stop].tolist()):
                a, b, c, d, e = ends[FIELDS * i : FIELDS * i + FIELDS + 1]
                doc_id = raw[a - offset : b - offset].decode()
                title, text = raw[b - offset : c - offset].decode(), raw[c - offset : d - offset].decode()
                source = raw[d - offset : e - offset].decode()
                made.append(Document(doc_id, text, title, source, _number(doc_id) if number else None))
        except ValueError as error:  # a text is not UTF-8, or an id is not a number
            raise _damaged(self._folder, error) from None
        return made


class CorpusWriter:
    """Write a corpus: `add` each document by ascending id, `cut` after each shard, then `close`.

    documents: number of documents that will be added.
    """

    def __init__(self, folder: Path, documents: int) -> None:
        self._folder = folder
        self._file = (folder / IDS).open("wb")
        self._ends_file = (folder / ID_ENDS).open("wb")
        about = {"descr": "<i8", "fortran_order": False, "shape": (documents + 1,)}
        np.lib.format.write_array_header_1_0(self._ends_file, about)
        self._ends_file.write(bytes(8))
        self._end, self._ends = 0, array("q")  # end of the last id; ends of the ids since the last cut
        self._digest = hashlib.sha256()
        self._shards: list[tuple[str, int]] = []
        self._empty = 0
        self._first_empty: list[str] = []

    def add(self, document: Document, row: bytes) -> None:
        self._end += self._file.write(document.doc_id.encode())
        self._ends.append(self._end)
        self._digest.update(row)
        if not document.indexed_text.strip():
            self._empty += 1
            if self._empty <= FIRST_EMPTY:
                self._first_empty.append(document.doc_id)

    def cut(self, fingerprint: str) -> None:
        """End a shard, which holds the documents added since the last call. fingerprint: from `ShardWriter.close`."""
        self._shards.append((fingerprint, len(self._ends)))
        self._ends_file.write(self._ends.tobytes())
        self._ends = array("q")

    def close(self) -> None:
        self.abandon()
        table = {
            "fingerprint": self._digest.hexdigest(),
            "empty": {"count": self._empty, "first": self._first_empty},
            "shards": self._shards,
        }
        (self._folder / TABLE).write_text(json.dumps(table, ensure_ascii=False, indent=1), "utf-8")

    def abandon(self) -> None:
        self._file.close()
        self._ends_file.close()


class ShardedDocuments(_Lazy[Document]):
    """The documents of a corpus that `CorpusWriter` wrote, by ascending id.

    find: fingerprint -> folder of a shard. whole: whether one index covers all shards.
    """

    def __init__(self, folder: Path, find: Callable[[str], Path], whole: bool = False) -> None:
        self._find, self.whole = find, whole
        try:
            self.fingerprint, self.empty, self.first_empty, shards = _table(folder / TABLE)
            self.by_id: Mapping[str, Document] = _ById(folder, self)
            if any(size < 1 for _, size in shards) or sum(size for _, size in shards) != len(self.by_id):
                raise ValueError("the files do not fit together")
        except (OSError, ValueError) as error:  # BadInput is a ValueError
            raise _damaged(folder, error) from None
        firsts = accumulate((size for _, size in shards), initial=0)
        self.shards = tuple(Shard(one, first, size) for (one, size), first in zip(shards, firsts, strict=False))
        self._firsts = [shard.first for shard in self.shards]
        self._opened = functools.lru_cache(OPEN_SHARDS)(self.shard)

    def shard(self, number: int) -> Sequence[Document]:
        shard = self.shards[number]
        documents = OpenShard(self._find(shard.fingerprint))
        if len(documents) != shard.size:
            raise BadInput(f"The shard {shard.fingerprint} has {len(documents)} documents, but must have {shard.size}.")
        return documents

    def __len__(self) -> int:
        return self.shards[-1].first + self.shards[-1].size if self.shards else 0

    def __iter__(self) -> Iterator[Document]:
        for number in range(len(self.shards)):
            yield from self.shard(number)  # shards are not kept open, so that only one is mapped at a time

    def _block(self, start: int, stop: int) -> list[Document]:
        found: list[Document] = []
        while start < stop:
            shard = self.shards[number := bisect_right(self._firsts, start) - 1]
            end = min(stop, shard.first + shard.size)
            found += self._opened(number)[start - shard.first : end - shard.first]
            start = end
        return found


def _table(path: Path) -> tuple[str, int, tuple[str, ...], list[tuple[str, int]]]:
    match json_file(path):
        case {"fingerprint": str(whole), "empty": {"count": int(empty), "first": [*first]}, "shards": [*shards]}:
            sizes = [(one[0], one[1]) for one in shards if isinstance(one, list) and list(map(type, one)) == [str, int]]
            if len(sizes) == len(shards):
                return whole, empty, tuple(map(str, first)), sizes
    raise ValueError(f"{path.name} is not a table of shards")


class _ById(Mapping[str, Document]):
    """doc_id -> document, by binary search in the memory-mapped ids. Ids sort like their UTF-8 bytes."""

    def __init__(self, folder: Path, documents: Sequence[Document]) -> None:
        self._folder, self._documents = folder, documents
        self._ends, self._texts = _array(folder / ID_ENDS), _mapped(folder / IDS)
        if self._ends.ndim != 1 or not len(self._ends) or not _are_ends(self._ends, len(self._texts)):
            raise ValueError("the ids are damaged")

    def __getitem__(self, doc_id: str) -> Document:
        if (place := self._place(doc_id)) < 0:
            raise KeyError(doc_id)
        return self._documents[place]

    def __contains__(self, doc_id: object) -> bool:
        return isinstance(doc_id, str) and self._place(doc_id) >= 0

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __iter__(self) -> Iterator[str]:
        try:
            for first in range(0, len(self), BLOCK):
                ends = self._ends[first : first + BLOCK + 1].tolist()
                raw = self._texts[ends[0] : ends[-1]]
                yield from (raw[a - ends[0] : b - ends[0]].decode() for a, b in pairwise(ends))
        except UnicodeDecodeError as error:
            raise _damaged(self._folder, error) from None

    def _place(self, doc_id: str) -> int:
        wanted = doc_id.encode("utf-8", "surrogatepass")
        first = STRIDE * (bisect_right(self._landmarks, wanted) - 1)
        stop = min(first + STRIDE, len(self))
        place = bisect_left(range(len(self)), wanted, max(first, 0), max(stop, 0), key=self._id)
        return place if place < stop and self._id(place) == wanted else -1

    @cached_property
    def _landmarks(self) -> list[bytes]:
        return [self._id(number) for number in range(0, len(self), STRIDE)]

    def _id(self, number: int) -> bytes:
        start, end = self._ends[number : number + 2].tolist()
        return self._texts[start:end]


def _array(path: Path) -> np.ndarray:
    _require_file(path)
    try:
        return np.asarray(load_array(path.parent, path.stem))
    except OSError:
        raise
    except Exception as error:  # numpy evaluates the header as Python code, which may raise any error
        raise ValueError(f"{path.name}: {error}") from None


def _require_file(path: Path) -> None:
    """Raise FileNotFoundError unless this is a file: reading a pipe could block for ever."""
    if not path.is_file():
        raise FileNotFoundError(f"{path.name} is not a file")


def _number(doc_id: str) -> int:
    if str(number := int(doc_id)) != doc_id:
        raise ValueError(f"{doc_id!r} is not a number")
    return number


def _mapped(path: Path) -> mmap.mmap | bytes:
    _require_file(path)
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b""


def _are_ends(ends: np.ndarray, size: int) -> bool:
    return bool(ends.dtype == np.int64 and ends[0] == 0 and ends[-1] == size and (ends[1:] >= ends[:-1]).all())


def _damaged(folder: Path, error: Exception) -> BadInput:
    return BadInput(f"{folder} is damaged ({error!s:.400}). Delete this folder: it is made again from the dataset.")
