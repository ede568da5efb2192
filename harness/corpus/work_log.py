"""What an unfinished preparation has done so far: the texts of files and, where they are slow, the spans of chunks.

Each is a line that is written when it is done, so that a killed preparation goes on with the next file. What a damaged
line held is done again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.storage.append_log import AppendLog

FOLDER, FILES, SPANS = "work", "files.log", "spans.log"


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
        files = AppendLog(folder / FOLDER / FILES, Extraction, lenient=True)
        slow = AppendLog(folder / FOLDER / SPANS, _Spans, lenient=True)
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
