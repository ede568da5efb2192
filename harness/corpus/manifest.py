"""What a documents folder holds, and what it was made of: its `manifest.json`, which is written last.

What an unfinished preparation has done so far: the texts of files and, where they are slow, the spans of chunks.

Each is a line that is written when it is done, so that a killed preparation goes on with the next file. What a damaged
line held is done again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.data.documents_folder import DOCUMENTS, FILES, MANIFEST, NEAR_DUPLICATES, VERSION
from harness.data.files import json_file, sha256_of
from harness.storage.append_log import AppendLog
from harness.storage.atomic import write_text
from harness.storage.typed import fields_of, row_as

SUMMED = (FILES, DOCUMENTS, NEAR_DUPLICATES)
BINS = 10  # of the documents' lengths, about


@dataclass(frozen=True)
class Lengths:
    """How long the documents are, in characters. bins: (at most so many, how many documents), ascending."""

    least: int
    median: int
    most: int
    bins: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if any(len(one) != 2 for one in self.bins):
            raise ValueError("bins must be a list of pairs of whole numbers.")

    @classmethod
    def of(cls, lengths: np.ndarray) -> Lengths:
        """Return those of at least one document."""
        most = int(lengths.max())
        step = next(size for power in range(20) for n in (1, 2, 5) if (size := n * 10**power) * BINS >= most)
        ends = range(step, most + step, step)
        counts = np.diff(np.searchsorted(np.sort(lengths), ends, side="right"), prepend=0)
        return cls(int(lengths.min()), int(np.median(lengths)), most, tuple(zip(ends, counts.tolist(), strict=True)))


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

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, int) and value < 0:
                raise ValueError(f"{name} is {value}, but must be a whole number, at least 0.")


@dataclass(frozen=True)
class _Origin:
    inputs: str
    chunk: Mapping[str, Any]
    sha256: Mapping[str, str]

    def __post_init__(self) -> None:
        if {*self.sha256} != {*SUMMED}:
            raise ValueError(f"sha256 must hold a text for {', '.join(SUMMED)}.")


@dataclass(frozen=True)
class Manifest(_Origin):
    """inputs: digest of the files and settings. chunk: the settings. sha256: of the other files, by name."""

    prepared: Prepared

    def write(self, folder: Path) -> None:
        """Write `manifest.json`; equal manifests give equal bytes."""
        row = {"version": VERSION, "inputs": self.inputs, "chunk": self.chunk}
        text = json.dumps({**row, **fields_of(self.prepared), "sha256": self.sha256}, ensure_ascii=False)
        write_text(folder / MANIFEST, f"{text}\n")

    def changed(self, folder: Path) -> str | None:
        """Return the first of the other files in a folder that is not as it was written; None if all are."""
        for name, sha256 in self.sha256.items():
            if not (folder / name).is_file() or sha256_of(folder / name) != sha256:
                return name
        return None

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Return the manifest in a finished folder. Raise BadInput, with the file, for anything else."""
        path = folder / MANIFEST
        row = json_file(path)
        row.pop("version", None)
        about = {key: row.pop(key) for key in ("inputs", "chunk", "sha256") if key in row}
        origin = row_as(_Origin, about, str(path))
        return cls(**vars(origin), prepared=row_as(Prepared, row, str(path)))


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
