"""What a documents folder holds, and what it was made of: its `manifest.json`, which is written last.

What an unfinished preparation has done so far: the texts of files and, where they are slow, the spans of chunks.

Each is a line that is written when it is done, so that a killed preparation goes on with the next file. What a damaged
line held is done again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.data.documents_folder import DOCUMENTS, FILES, MANIFEST, NEAR_DUPLICATES, VERSION
from harness.data.files import field, json_file, required, sha256_of
from harness.errors import BadInput
from harness.storage.append_log import AppendLog
from harness.storage.atomic import write_text

SUMMED = (FILES, DOCUMENTS, NEAR_DUPLICATES)
COUNTS = ("files", "texts", "documents", "spans", "characters", "near_duplicates")
BINS = 10  # of the documents' lengths, about


@dataclass(frozen=True)
class Lengths:
    """How long the documents are, in characters. bins: (at most so many, how many documents), ascending."""

    least: int
    median: int
    most: int
    bins: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, lengths: np.ndarray) -> Lengths:
        """lengths: of at least one document."""
        most = int(lengths.max())
        step = next(size for power in range(20) for n in (1, 2, 5) if (size := n * 10**power) * BINS >= most)
        ends = range(step, most + step, step)
        counts = np.diff(np.searchsorted(np.sort(lengths), ends, side="right"), prepend=0)
        return cls(int(lengths.min()), int(np.median(lengths)), most, tuple(zip(ends, counts.tolist(), strict=True)))

    @classmethod
    def read(cls, value: Mapping[str, Any], where: str) -> Lengths:
        least, median, most = (_number(value, name, where) for name in ("least", "median", "most"))
        bins = field(value, "bins", list, where)
        if not all(isinstance(one, list) and [type(inner) for inner in one] == [int, int] for one in bins):
            raise BadInput(f"{where}: bins must be a list of pairs of whole numbers.")
        return cls(least, median, most, tuple((end, count) for end, count in bins))


@dataclass(frozen=True)
class Prepared:
    """What a documents folder holds.

    files, texts: how many; equal texts count once. spans: places of the documents. characters: of the texts.
    near_duplicates: pairs. skipped: path -> why the file could not be read.
    """

    files: int
    texts: int
    documents: int
    spans: int
    characters: int
    near_duplicates: int
    lengths: Lengths
    skipped: Mapping[str, str]


@dataclass(frozen=True)
class Manifest:
    """inputs: digest of the files and settings. chunk: the settings. sums: name -> sha256 of the other files."""

    inputs: str
    chunk: Mapping[str, Any]
    prepared: Prepared
    sums: Mapping[str, str]

    def write(self, folder: Path) -> None:
        """Write `manifest.json`; equal manifests give equal bytes."""
        row = {"version": VERSION, "inputs": self.inputs, "chunk": self.chunk}
        text = json.dumps({**row, **asdict(self.prepared), "sha256": self.sums}, ensure_ascii=False)
        write_text(folder / MANIFEST, f"{text}\n")

    def changed(self, folder: Path) -> str | None:
        """The first of the other files in a folder that is not as it was written; None if all are."""
        sums = self.sums.items()
        return next((one for one, sha in sums if not (folder / one).is_file() or sha256_of(folder / one) != sha), None)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """The manifest in a finished folder. BadInput, with the file, for anything that is none."""
        path = folder / MANIFEST
        where, row = str(path), json_file(path)
        sums, skipped = field(row, "sha256", dict, where), field(row, "skipped", dict, where)
        if {*sums} != {*SUMMED} or not all(isinstance(one, str) for one in [*sums.values(), *skipped.values()]):
            raise BadInput(f"{where}: sha256 and skipped must hold texts, and sha256 one for {', '.join(SUMMED)}.")
        prepared = Prepared(
            **{name: _number(row, name, where) for name in COUNTS},
            lengths=Lengths.read(field(row, "lengths", dict, where), where),
            skipped=skipped,
        )
        return cls(field(row, "inputs", str, where), field(row, "chunk", dict, where), prepared, sums)


def _number(row: Mapping[str, Any], name: str, where: str) -> int:
    value = required(row, name, where)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadInput(f"{where}: {name} is {value!r:.60}, but must be a whole number, at least 0.")
    return value


WORK_FOLDER, FILES_LOG, SPANS_LOG = "work", "files.log", "spans.log"


@dataclass(frozen=True, slots=True)
class Extraction:
    """What was read from a file.

    file: sha256 of its bytes. suffix: of its name, in lower case; it decides how the bytes are read. text: id of the
    text. characters: of the text. pages, reader: as `harness.corpus.extraction.Extracted` has them.
    """

    file: str
    suffix: str
    text: str
    characters: int
    pages: Sequence[int] | None
    reader: str


@dataclass(frozen=True, slots=True)
class _Spans:
    """The chunks of a text. chunk: digest of the settings that made them."""

    chunk: str
    text: str
    spans: Sequence[Sequence[int]]


class WorkLog:
    """The log of a preparation, kept in `work/` of a folder, which must exist. chunking: digest of the settings."""

    def __init__(self, folder: Path, chunking: str) -> None:
        self._chunking = chunking
        files = AppendLog(folder / WORK_FOLDER / FILES_LOG, Extraction, lenient=True)
        slow = AppendLog(folder / WORK_FOLDER / SPANS_LOG, _Spans, lenient=True)
        self._extractions = {(one.file, one.suffix): one for one in files.read()}
        self._spans = {one.text: np.array(one.spans, np.int32) for one in slow.read() if one.chunk == chunking}
        self._open = ExitStack()
        self._add_file = self._open.enter_context(files.appending())
        self._add_spans = self._open.enter_context(slow.appending())

    def __enter__(self) -> WorkLog:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def extraction(self, file: str, suffix: str) -> Extraction | None:
        """What was read from a file with this sha256 and suffix; None if that is not known."""
        return self._extractions.get((file, suffix))

    def spans(self, text: str) -> list[tuple[int, int]] | None:
        """The chunks of a text; None if they are not known."""
        found = self._spans.get(text)
        return None if found is None else [(start, end) for start, end in found.tolist()]

    def add_extraction(self, one: Extraction) -> None:
        self._extractions[one.file, one.suffix] = one
        self._add_file(one)

    def add_spans(self, text: str, spans: Sequence[tuple[int, int]]) -> None:
        """spans: at least one."""
        self._spans[text] = np.array(spans, np.int32)
        self._add_spans(_Spans(self._chunking, text, spans))
