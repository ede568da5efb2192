"""Write a documents folder from files: cut each file's text into chunks, and make equal chunks one document.

`harness.data.documents_folder` describes the folder, and `Manifest` its manifest.json. In addition:

files.jsonl has a line {path, sha256, bytes, text, characters, title, pages, reader} for each file, in order of paths.
`sha256` and `bytes` describe the file. `characters` is the length of its text. `title` is a note about the file, which
all its documents get. `pages` lists the start of each page in the text, or is null. `reader`: its name and versions.

Chunks with equal texts and equal notes are one document, with a span for each place where this text stands. Memory: 18
bytes per place. Logs keep finished work, so a repeated call continues where a killed preparation stopped.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from harness.config.canonical import digest
from harness.config.text import counted
from harness.corpus import near_duplicates
from harness.corpus.chunking import Chunking
from harness.corpus.extraction import extract
from harness.corpus.files import SourceFile, corpus_error
from harness.data.documents_folder import (
    DOCUMENTS,
    FILES,
    MANIFEST,
    NEAR_DUPLICATES,
    TEXTS,
    VERSION,
    Chunk,
    DocumentsFolder,
)
from harness.data.files import json_file, json_line, sha256_of, some
from harness.data.spans import Span
from harness.errors import BadInput
from harness.progress import stage, watch
from harness.storage.append_log import AppendLog
from harness.storage.atomic import write_text
from harness.storage.entries import delete
from harness.storage.typed import encoded, row_as
from retrievers.base import Document

SUMMED = (FILES, DOCUMENTS, NEAR_DUPLICATES)
BINS = 10  # approximate number of bins for the documents' lengths
WORK_FOLDER, FILES_LOG, SPANS_LOG = "work", "files.log", "spans.log"
ID_BYTES = 10  # bytes of a document's id, which has 20 hexadecimal digits
KB = 1000
UNFINISHED, REPLACED = ".unfinished", ".replaced"  # suffixes of a new output folder, and of the one it replaces
NAMES = {*SUMMED, MANIFEST, TEXTS}
Unreadable = Literal["stop", "skip"]


@dataclass(frozen=True)
class Lengths:
    """Lengths of the documents in characters. bins: (upper end, number of documents), ascending."""

    least: int
    median: int
    most: int
    bins: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if any(len(one) != 2 for one in self.bins):
            raise ValueError("bins must be a list of pairs of whole numbers.")

    @classmethod
    def of(cls, lengths: np.ndarray) -> Lengths:
        most = int(lengths.max())
        step = next(size for power in range(20) for n in (1, 2, 5) if (size := n * 10**power) * BINS >= most)
        ends = range(step, most + step, step)
        counts = np.diff(np.searchsorted(np.sort(lengths), ends, side="right"), prepend=0)
        return cls(int(lengths.min()), int(np.median(lengths)), most, tuple(zip(ends, counts.tolist(), strict=True)))


@dataclass(frozen=True)
class Manifest:
    """The manifest.json of a documents folder.

    inputs: digest of the files and settings. chunk: the settings.
    files, texts, documents: number of each; equal texts count once. spans: number of places of all documents.
    characters: number of characters of the texts. near_duplicates: number of pairs.
    skipped: path -> why the file could not be read. sha256: file name -> sha256.
    """

    inputs: str
    chunk: Mapping[str, Any]
    files: int
    texts: int
    documents: int
    spans: int
    characters: int
    near_duplicates: int
    lengths: Lengths
    skipped: Mapping[str, str]
    sha256: Mapping[str, str]

    def __post_init__(self) -> None:
        if {*self.sha256} != {*SUMMED}:
            raise ValueError(f"sha256 must have exactly one hash for each of {', '.join(SUMMED)}.")

    def write(self, folder: Path) -> None:
        file = folder / WORK_FOLDER / MANIFEST  # a file left there by a killed process does no harm
        write_text(file, json_line({"version": VERSION} | encoded(self)))
        file.replace(folder / MANIFEST)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read the manifest of a finished folder. Raise BadInput, which names the file, if the folder is unfinished."""
        row = json_file(folder / MANIFEST)
        row.pop("version", None)
        return row_as(cls, row, str(folder / MANIFEST))


@dataclass(frozen=True, slots=True)
class Extraction:
    """The text that was extracted from a file.

    file: sha256 of the file. suffix: suffix of its name, in lower case, which decides the reader. text: id of the text.
    characters: number of characters of the text. pages, reader: see `harness.corpus.extraction.Extracted`.
    """

    file: str
    suffix: str
    text: str
    characters: int
    pages: Sequence[int] | None
    reader: str


@dataclass(frozen=True, slots=True)
class _Spans:
    chunk: str
    text: str
    spans: Sequence[Sequence[int]]


def bytes_id(content: bytes) -> str:
    """Return the id of a text: the first 20 hexadecimal digits of its sha256."""
    return hashlib.sha256(content).hexdigest()[: 2 * ID_BYTES]


class _Grouped(NamedTuple):
    """The places (spans in texts) of each document. Documents are in the order of their first places."""

    ids: np.ndarray  # uint8 [places, ID_BYTES]
    spans: np.ndarray  # int32 [places, 2]
    order: np.ndarray  # indices of places, grouped by document, ascending within each document
    starts: np.ndarray  # start of each document in `order`, then the length of `order`
    firsts: np.ndarray  # index of each document's first place, ascending


class Occurrences:
    """The places of all chunks, in the order in which they were added. `len` gives the number of documents."""

    def __init__(self) -> None:
        self._sources: list[tuple[str, str, str]] = []  # (name of the file, note, id of the text)
        self._ends = [0]  # number of chunks before each source; at the end, the number of all chunks
        self._known: set[tuple[str, str]] = set()
        self._ids: list[np.ndarray] = [np.zeros((0, ID_BYTES), np.uint8)]
        self._spans: list[np.ndarray] = [np.zeros((0, 2), np.int32)]

    def add(self, name: str, note: str, text_id: str, text: str, spans: Sequence[tuple[int, int]]) -> None:
        """Add the chunks of a file's text, unless this text was added before with the same note."""
        if (note, text_id) in self._known:
            return
        self._known.add((note, text_id))
        noted = hashlib.sha256(f"{note}\0".encode())
        ids = bytearray()
        for start, end in spans:
            one = noted.copy()
            one.update(text[start:end].encode())
            ids += one.digest()[:ID_BYTES]
        self._sources.append((name, note, text_id))
        self._ends.append(self._ends[-1] + len(spans))
        self._ids.append(np.frombuffer(ids, np.uint8).reshape(-1, ID_BYTES))
        self._spans.append(np.array(spans, np.int32).reshape(-1, 2))

    def __len__(self) -> int:
        return len(self._grouped.firsts)

    @property
    def places(self) -> int:
        return self._ends[-1]

    def doc_ids(self, documents: Sequence[int]) -> list[str]:
        """Return the ids of the documents at these positions."""
        ids = self._grouped.ids[self._grouped.firsts[np.array(documents, np.int64)]]
        return [one.tobytes().hex() for one in ids]

    def lengths(self) -> np.ndarray:
        """Return the number of characters of each document, int32."""
        starts, ends = self._grouped.spans[self._grouped.firsts].T
        found: np.ndarray = ends - starts
        return found

    def contents(self, read: Callable[[str], str]) -> Iterator[str]:
        """Yield the content of each document. read: text id -> text."""
        for number, first, last in self._runs():
            text = read(self._sources[number][2])
            for start, end in self._grouped.spans[self._grouped.firsts[first:last]].tolist():
                yield text[start:end]

    def rows(self, read: Callable[[str], str]) -> Iterator[Chunk]:
        """Yield the documents with all their places, in the order of their first places. read: text id -> text."""
        grouped, contents = self._grouped, self.contents(read)
        for number, first, last in self._runs():
            (name, note, _), ids = self._sources[number], self.doc_ids(range(first, last))
            borders = grouped.starts[first : last + 1]
            places = grouped.order[borders[0] : borders[-1]]
            sources = (np.searchsorted(self._ends, places, side="right") - 1).tolist()
            spans = [
                Span(self._sources[source][2], start, end)
                for source, (start, end) in zip(sources, grouped.spans[places].tolist(), strict=True)
            ]
            for doc_id, (begin, end) in zip(ids, pairwise((borders - borders[0]).tolist()), strict=True):
                yield Chunk(Document(doc_id, next(contents), note, name), tuple(spans[begin:end]))

    def _runs(self) -> Iterator[tuple[int, int, int]]:
        borders = np.searchsorted(self._grouped.firsts, self._ends).tolist()
        for number, (first, last) in enumerate(pairwise(borders)):
            if first < last:
                yield number, first, last

    @cached_property
    def _grouped(self) -> _Grouped:
        ids, spans = np.concatenate(self._ids), np.concatenate(self._spans)
        self._ids, self._spans = [], []
        _, firsts, groups = np.unique(ids.view(f"S{ID_BYTES}").ravel(), return_index=True, return_inverse=True)
        by_first = np.argsort(firsts)
        documents = np.argsort(by_first)[groups]
        starts = np.concatenate([[0], np.cumsum(np.bincount(documents))])
        return _Grouped(ids, spans, np.argsort(documents, kind="stable"), starts, firsts[by_first])


@dataclass(frozen=True, slots=True)
class _Read:
    name: str
    size: int
    extraction: Extraction
    note: str

    def row(self) -> dict[str, Any]:
        one = self.extraction
        about = {"path": self.name, "sha256": one.file, "bytes": self.size, "text": one.text}
        return about | {"characters": one.characters, "title": self.note, "pages": one.pages, "reader": one.reader}


def preparation_identity(files: Sequence[SourceFile], chunking: Chunking) -> dict[str, Any]:
    """Read the files. Return everything that determines the content of a documents folder, as plain JSON."""
    sums: dict[str, str | None] = {}
    with stage("reading the files"):
        for one in files:
            try:
                sums[one.name] = one.sha256()
            except BadInput:
                sums[one.name] = None  # `prepare_documents` reports the problem
    return {"version": VERSION, "files": sums, "chunk": chunking.identity()}


def prepare_documents(
    files: Sequence[SourceFile],
    chunking: Chunking,
    folder: Path,
    unreadable: Unreadable = "stop",
    keys: str = "",
) -> Manifest:
    """Fill a folder with the documents of the files.

    Reuse the texts of an interrupted call, and its chunks if they are slow to make. Memory: about 100 bytes per
    document, plus what `find_near_duplicates` needs, plus several times the size of the largest file.

    files: from `find_files`.
    unreadable: "stop" raises BadInput that lists all unreadable files, and keeps the texts of all other files for the
        next call; "skip" leaves out unreadable files and lists them in the manifest.
    keys: prefix of config keys in errors.
    """
    settings = chunking.identity()
    for place in (folder / TEXTS, folder / WORK_FOLDER):
        place.mkdir(parents=True, exist_ok=True)
        _keep_plain_files(place)
    (folder / MANIFEST).unlink(missing_ok=True)
    reading = _Reading(folder, chunking, digest(settings))
    read = reading.files(files, unreadable, keys)
    documents = reading.chunks(read)
    with stage("writing the documents"):
        sums = {FILES: _write(folder / FILES, (json_line(one.row()) for one in read))}
        sums[DOCUMENTS] = _write(folder / DOCUMENTS, _document_lines(documents, reading.text))
    pairs = _near_duplicates(documents, reading.text, folder / WORK_FOLDER)
    sums[NEAR_DUPLICATES] = _write(folder / NEAR_DUPLICATES, map(json_line, pairs))
    texts = {one.extraction.text: one.extraction.characters for one in read}
    for stale in (folder / TEXTS).iterdir():
        if stale.stem not in texts:
            stale.unlink()
    manifest = Manifest(
        inputs=digest({"version": VERSION, "files": reading.sums, "chunk": settings}),
        chunk=settings,
        files=len(read),
        texts=len(texts),
        documents=len(documents),
        spans=documents.places,
        characters=sum(texts.values()),
        near_duplicates=len(pairs),
        lengths=Lengths.of(documents.lengths()),
        skipped=reading.problems,
        sha256=sums,
    )
    manifest.write(folder)
    shutil.rmtree(folder / WORK_FOLDER)
    return manifest


class _Reading:
    """Read files, keep their texts in a folder, and cut the texts into chunks.

    sums: path -> sha256 of the file; None if it is unreadable. problems: path -> why the file is unreadable.
    """

    def __init__(self, folder: Path, chunking: Chunking, settings: str) -> None:
        self._texts, self._chunking, self._settings = folder / TEXTS, chunking, settings
        self._notes = chunking.notes()
        self._files_log = AppendLog(folder / WORK_FOLDER / FILES_LOG, Extraction, lenient=True)
        self._spans_log = AppendLog(folder / WORK_FOLDER / SPANS_LOG, _Spans, lenient=True)
        self._extractions = {(one.file, one.suffix): one for one in self._files_log.read()}
        self._spans = {
            one.text: np.array(one.spans, np.int32) for one in self._spans_log.read() if one.chunk == settings
        }
        self.sums: dict[str, str | None] = {}
        self.problems: dict[str, str] = {}

    def files(self, files: Sequence[SourceFile], unreadable: Unreadable, keys: str) -> list[_Read]:
        """Return the readable files. Raise BadInput if there are none, or if an unreadable file must stop the call."""
        read: list[_Read] = []
        total, done = sum(one.size for one in files), 0
        with watch("prepare: reading files") as progress:
            for one in files:
                try:
                    read.append(self._file(one))
                except BadInput as error:
                    self.problems[one.name] = str(error).replace(str(one.path), one.name)
                done += one.size
                progress(done // KB, total // KB, "kB")
        if self.problems and (unreadable == "stop" or not read):
            kept = (
                f" The texts of the {counted(len(read), 'other file')} are kept for the next attempt." if read else ""
            )
            raise BadInput(
                f"{corpus_error(list(self.problems.values()))}\nRepair these files, leave them out of {keys}files, or "
                f"set {keys}unreadable=skip.{kept}"
            )
        return read

    def _file(self, one: SourceFile) -> _Read:
        self.sums[one.name] = None
        self.sums[one.name] = found = one.sha256()
        suffix, size = one.path.suffix.lower(), one.size
        known = self._extractions.get((found, suffix))
        kept = self._file_of(known.text) if known else None
        if known is None or not (kept and kept.is_file() and bytes_id(kept.read_bytes()) == known.text):
            extracted = extract(one.path)
            if one.sha256() != found:
                raise BadInput(f"{one.path} changed while it was read. Run the command again.")
            content = extracted.text.encode()
            known = Extraction(found, suffix, bytes_id(content), len(extracted.text), extracted.pages, extracted.reader)
            self._file_of(known.text).write_bytes(content)
            self._extractions[found, suffix] = known
            self._files_log.append([known])
        return _Read(one.name, size, known, self._notes.of(one.name) if self._notes else "")

    def chunks(self, read: Sequence[_Read]) -> Occurrences:
        documents = Occurrences()
        total, done = sum(one.size for one in read), 0
        with watch("prepare: chunks") as progress:
            for one in read:

                def report(share: float, done: int = done, size: int = one.size) -> None:
                    progress(int(done + share * size) // KB, total // KB, "kB")

                text = self.text(one.extraction.text)
                spans = self._chunks(one.extraction.text, text, report)
                documents.add(one.name, one.note, one.extraction.text, text, spans)
                done += one.size
                progress(done // KB, total // KB, "kB")
        return documents

    def _chunks(self, text_id: str, text: str, share: Callable[[float], None]) -> Sequence[tuple[int, int]]:
        if (known := self._spans.get(text_id)) is not None:
            return [(start, end) for start, end in known.tolist()]
        spans = self._chunking.spans(text, share)
        if self._chunking.is_slow:
            self._spans[text_id] = np.array(spans, np.int32)
            self._spans_log.append([_Spans(self._settings, text_id, spans)])
        return spans

    def text(self, text_id: str) -> str:
        return self._file_of(text_id).read_bytes().decode()

    def _file_of(self, text_id: str) -> Path:
        return self._texts / f"{text_id}.txt"


def _keep_plain_files(folder: Path) -> None:
    for one in folder.iterdir():
        if one.is_symlink() or not one.is_file():
            delete(one)


def _document_lines(documents: Occurrences, text: Callable[[str], str]) -> Iterator[str]:
    """Yield the lines of documents.jsonl: the same as from `json_line`, but several times faster."""
    quoted = json.JSONEncoder(ensure_ascii=False).encode
    for row in documents.rows(text):
        one = row.document
        content, title, source = map(quoted, (one.text, one.title, one.source))
        spans = ", ".join(f'{{"text": "{at.text}", "start": {at.start}, "end": {at.end}}}' for at in row.spans)
        about = f'"docid": "{one.doc_id}", "title": {title}, "content": {content}, "src": {source}'
        yield f'{{{about}, "spans": [{spans}]}}\n'


def _near_duplicates(documents: Occurrences, text: Callable[[str], str], folder: Path) -> list[dict[str, Any]]:
    with watch("prepare: near-duplicates") as progress:
        pairs = near_duplicates.find_near_duplicates(documents.contents(text), len(documents), folder, progress)
    ids = documents.doc_ids([one for pair in pairs for one in (pair.a, pair.b)])
    rows = zip(ids[::2], ids[1::2], pairs, strict=True)
    return [{"a": a, "b": b, "similarity": round(pair.similarity, 4)} for a, b, pair in rows]


def _write(file: Path, lines: Iterable[str]) -> str:
    found = hashlib.sha256()
    with file.open("wb") as out:
        for text in lines:
            line = text.encode()
            out.write(line)
            found.update(line)
    return found.hexdigest()


def prepare_output(
    files: Sequence[SourceFile], chunking: Chunking, output: Path, unreadable: Unreadable = "stop"
) -> tuple[Manifest, bool]:
    """Prepare files into the folder `output`. Return the folder's manifest, and whether the folder had to be written.

    Keep a folder that was prepared from the same files with the same settings; else replace it. Raise BadInput for a
    folder that `harness prepare` did not write, or that has been changed since.
    """
    place = Path(str(output.resolve()))  # a link is followed: its target is replaced
    if not place.name:
        raise BadInput(f"output={output} is the root of all folders. Name a folder in it.")
    unfinished = place.with_name(place.name + UNFINISHED)
    for one in files:
        if any(one.path.resolve().is_relative_to(folder) for folder in (place, unfinished)):
            raise BadInput(
                f"The source file {one.path} lies in output={output}. Choose another output, or other files."
            )
    finished = _checked(place, output)
    usable = finished and not (finished.skipped and unreadable == "stop")
    if finished and usable and finished.inputs == digest(preparation_identity(files, chunking)):
        return finished, False
    with _working(unfinished, output):
        prepared = prepare_documents(files, chunking, unfinished, unreadable)
    _replace(place, unfinished)
    return prepared, True


def _checked(place: Path, output: Path) -> Manifest | None:
    if not place.exists():
        return None
    if not place.is_dir():
        raise BadInput(f"output={output} is a file. Name a folder.")
    names = {one.name for one in place.iterdir()}
    if not names:
        return None
    if others := sorted(names - NAMES):
        raise BadInput(
            f"output={output} holds files that `harness prepare` did not write ({some(others)}). Choose another "
            "folder, or move these files away."
        )
    DocumentsFolder(place, "output")
    manifest = Manifest.read(place)
    for name, sha256 in manifest.sha256.items():
        if not (place / name).is_file() or sha256_of(place / name) != sha256:
            raise BadInput(
                f"{output / name} has changed since `harness prepare` wrote it. Choose another output, or delete "
                f"{output} and run the command again."
            )
    return manifest


@contextmanager
def _working(unfinished: Path, output: Path) -> Iterator[None]:
    from filelock import FileLock, Timeout

    if unfinished.exists():
        others = {one.name for one in unfinished.iterdir()} - NAMES - {WORK_FOLDER} if unfinished.is_dir() else {""}
        if others or (unfinished / WORK_FOLDER / "lock").is_dir():
            raise BadInput(
                f"{unfinished} is in the way: `harness prepare` needs this path, but did not make what is there. "
                f"Move it away, or choose another output than {output}."
            )
    work = unfinished / WORK_FOLDER
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"output={output} cannot be made: {error.strerror}. Choose another folder.") from None
    try:
        with FileLock(work / "lock", timeout=0):
            yield
    except Timeout:
        raise BadInput(f"output={output} is being written by another process. Wait until it ends.") from None
    except BaseException:
        if not any((unfinished / TEXTS).glob("*")):
            shutil.rmtree(unfinished, ignore_errors=True)
        raise


def _replace(place: Path, finished: Path) -> None:
    replaced = place.with_name(place.name + REPLACED)
    if replaced.is_dir() and not {one.name for one in replaced.iterdir()} - NAMES:
        shutil.rmtree(replaced)  # left by a killed process
    if place.exists():
        place.rename(replaced)
    finished.rename(place)
    shutil.rmtree(replaced, ignore_errors=True)
