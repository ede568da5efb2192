"""What an unfinished preparation has done so far: the texts of files and, where they are slow, the spans of chunks.

Each is a line of JSON that is written when it is done, so that a killed preparation goes on with the next file. Lines
that a kill has cut off, and whatever else is no such line, count as not done.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

FOLDER, FILES, SPANS = "work", "files.jsonl", "spans.jsonl"


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
    pages: tuple[int, ...] | None
    reader: str


class WorkLog:
    """The log of a preparation. folder: it is kept in `work/` there. chunking: digest of the settings of the spans."""

    def __init__(self, folder: Path, chunking: str) -> None:
        place = folder / FOLDER
        place.mkdir(parents=True, exist_ok=True)
        self._chunking = chunking
        self._extractions: dict[tuple[str, str], Extraction] = {}
        self._spans: dict[str, np.ndarray] = {}
        _read(place / FILES, self._take_extraction)
        _read(place / SPANS, self._take_spans)
        self._files: IO[str] = (place / FILES).open("a", encoding="utf-8")
        self._slow: IO[str] = (place / SPANS).open("a", encoding="utf-8")

    def __enter__(self) -> WorkLog:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()
        self._slow.close()

    def __len__(self) -> int:
        """Number of files whose text is known."""
        return len(self._extractions)

    def extraction(self, file: str, suffix: str) -> Extraction | None:
        """What was read from a file with this sha256 and suffix; None if that is not known."""
        return self._extractions.get((file, suffix))

    def spans(self, text: str, characters: int) -> list[tuple[int, int]] | None:
        """The chunks of a text of so many characters; None if they are not known."""
        found = self._spans.get(text)
        if found is None or found[0, 0] < 0 or found[-1, 1] > characters:
            return None
        return [(start, end) for start, end in found.tolist()]

    def _take_extraction(self, row: dict[str, Any]) -> None:
        if one := _extraction(row):
            self._extractions[one.file, one.suffix] = one

    def _take_spans(self, row: dict[str, Any]) -> None:
        if row.get("chunk") == self._chunking and (spans := _spans(row.get("spans"))) is not None:
            self._spans[str(row.get("text"))] = spans

    def add_extraction(self, one: Extraction) -> None:
        self._extractions[one.file, one.suffix] = one
        _write(self._files, asdict(one))

    def add_spans(self, text: str, spans: Sequence[tuple[int, int]]) -> None:
        self._spans[text] = np.array(spans, np.int32).reshape(-1, 2)
        _write(self._slow, {"chunk": self._chunking, "text": text, "spans": spans})


def _write(file: IO[str], row: Any) -> None:
    file.write(json.dumps(row) + "\n")
    file.flush()


def _read(file: Path, take: Callable[[dict[str, Any]], None]) -> None:
    """Take every object in a log; the file is cut behind the last line that holds one."""
    if not file.is_file():
        return
    good = 0
    with file.open("r+b") as log:
        for line in log:
            try:
                row = json.loads(line) if line.endswith(b"\n") else None
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                break
            take(row)
            good += len(line)
        log.truncate(good)


def _extraction(row: dict[str, Any]) -> Extraction | None:
    match row:
        case {
            "file": str(),
            "suffix": str(),
            "text": str(),
            "characters": int(),
            "pages": list() | None,
            "reader": str(),
        } if len(row) == 6 and all(isinstance(page, int) for page in row["pages"] or ()):
            return Extraction(**row | {"pages": None if row["pages"] is None else tuple(row["pages"])})
    return None


def _spans(value: Any) -> np.ndarray | None:
    try:
        found = np.array(value, np.int32).reshape(-1, 2)
    except (ValueError, TypeError, OverflowError):
        return None
    starts, ends = found.T
    return found if len(found) and (starts < ends).all() and (np.diff(ends) > 0).all() else None
