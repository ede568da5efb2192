"""Files to text: each file is read by the reader of its kind, and its text brought into one form.

To add a format, write a function from a path to the texts of the pages, and a row in READERS.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.corpus.readers import text as plain_text
from retrievers.base import BadInput, did_you_mean

_LINE_END = re.compile(r"\r\n?")


@dataclass(frozen=True)
class Extracted:
    """What a file says.

    text: in Unicode NFC, with `\\n` as line end and no byte order mark. pages: where each page starts, as a number of
    code points; None if the format has no pages. reader: name and version of what has read it.
    """

    text: str
    pages: tuple[int, ...] | None
    reader: str


@dataclass(frozen=True)
class Reader:
    """How the files of a kind are read.

    read: path -> the texts of the pages, or one text; raises BadInput that names the path. suffixes: of the files, in
    lower case. largest: bytes of a file that it takes. paged: whether the texts are pages.
    """

    name: str
    read: Callable[[Path], Sequence[str]]
    suffixes: tuple[str, ...]
    largest: int
    paged: bool = False


_MB = 1 << 20
READERS = (Reader("text", plain_text.read, (".txt", ".text", ".md", ".markdown"), 128 * _MB),)


def extract(path: Path) -> Extracted:
    """The text of a file. BadInput, which names the file and if possible the line or page, if it cannot be read."""
    reader = _reader_of(path)
    return _formed(reader, reader.read(path), path)


def _reader_of(path: Path) -> Reader:
    suffix = path.suffix.lower()
    for reader in READERS:
        if suffix in reader.suffixes:
            return reader
    known = [one for reader in READERS for one in reader.suffixes]
    raise BadInput(
        f"{path}: there is no reader for {suffix!r}.{did_you_mean(suffix, known)} Readable: {', '.join(known)}."
    )


def _formed(reader: Reader, pages: Sequence[str], path: Path) -> Extracted:
    """The pages as one text: each in NFC, a line end between two."""
    formed = [unicodedata.normalize("NFC", _LINE_END.sub("\n", page.lstrip("\ufeff"))) for page in pages]
    if not any(page.strip() for page in formed):
        raise BadInput(f"{path}: the file holds no text. Fill it, or leave it out of files.")
    starts, at = [], 0
    for page in formed:
        starts.append(at)
        at += len(page) + 1
    return Extracted("\n".join(formed), tuple(starts) if reader.paged else None, reader.name)
