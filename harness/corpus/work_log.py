"""What an unfinished preparation has done so far: the texts of files and, where they are slow, the spans of chunks.

Each is a line that is written when it is done, so that a killed preparation goes on with the next file. A line is a
checksum and JSON: one that a kill has cut off, or that is damaged in any other way, counts as not done, and so does all
that follows it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

FOLDER, FILES, SPANS = "work", "files.log", "spans.log"
FORM = b"1"  # of the lines, part of their checksums; raise it when they change


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


class WorkLog:
    """The log of a preparation. folder: it is kept in `work/` there, which must exist. chunking: digest of the settings
    of the spans.
    """

    def __init__(self, folder: Path, chunking: str) -> None:
        place = folder / FOLDER
        self._chunking = chunking
        self._extractions: dict[tuple[str, str], Extraction] = {}
        self._spans: dict[str, np.ndarray] = {}
        for row in _rows(place / FILES):
            self._extractions[row["file"], row["suffix"]] = Extraction(**row)
        for row in _rows(place / SPANS):
            if row["chunk"] == chunking:
                self._spans[row["text"]] = np.array(row["spans"], np.int32)
        self._files: IO[bytes] = (place / FILES).open("ab")
        self._slow: IO[bytes] = (place / SPANS).open("ab")

    def __enter__(self) -> WorkLog:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()
        self._slow.close()

    def extraction(self, file: str, suffix: str) -> Extraction | None:
        """What was read from a file with this sha256 and suffix; None if that is not known."""
        return self._extractions.get((file, suffix))

    def spans(self, text: str) -> list[tuple[int, int]] | None:
        """The chunks of a text; None if they are not known."""
        found = self._spans.get(text)
        return None if found is None else [(start, end) for start, end in found.tolist()]

    def add_extraction(self, one: Extraction) -> None:
        self._extractions[one.file, one.suffix] = one
        _write(self._files, asdict(one))

    def add_spans(self, text: str, spans: Sequence[tuple[int, int]]) -> None:
        """spans: at least one."""
        self._spans[text] = np.array(spans, np.int32)
        _write(self._slow, {"chunk": self._chunking, "text": text, "spans": spans})


def _write(file: IO[bytes], row: Any) -> None:
    text = json.dumps(row).encode()
    file.write(_checksum(text) + text + b"\n")
    file.flush()


def _checksum(text: bytes) -> bytes:
    return b"%08x " % zlib.crc32(FORM + text)


def _rows(file: Path) -> Iterator[Any]:
    """What a log holds; it is cut before the first damaged line."""
    if not file.is_file():
        return
    whole = 0
    with file.open("r+b") as log:
        for line in log:
            text = line[9:-1]
            if line != _checksum(text) + text + b"\n":
                break
            yield json.loads(text)
            whole += len(line)
        log.truncate(whole)
