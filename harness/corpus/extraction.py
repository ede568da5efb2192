"""Files to text: each file is read by the reader of its kind, and its text brought into one form.

To add a format, write a function from a path to the texts of the pages, and a row in READERS.
"""

from __future__ import annotations

import re
import stat
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.corpus.apart import Apart, Ended
from harness.corpus.kinds import HEAD, advice_on, kind_of
from harness.corpus.readers import html, hwpx, pdf, text
from harness.errors import BadInput, did_you_mean

_MB = 1 << 20
_SECONDS, _MEMORY = 60, 1536 * _MB  # for a file that a foreign library parses
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

    name, version: recorded; raise the version when the same file gives another text. read: path -> the texts of its
    pages, or one text; raises BadInput that names the path. suffixes: of the files, in lower case. largest: bytes of a
    file that it takes. begins: what the first bytes of such files contain; empty for text. package: the library that
    parses, if there is one. apart: whether it does so in a process of its own. paged: whether the texts are pages.
    """

    name: str
    version: int
    read: Callable[[Path], Sequence[str]]
    suffixes: tuple[str, ...]
    largest: int
    begins: bytes = b""
    package: str = ""
    apart: bool = False
    paged: bool = False

    @property
    def recorded(self) -> str:
        """Name and versions, such as "pdf 1, pypdfium2 5.15.2"."""
        from importlib.metadata import version

        return f"{self.name} {self.version}" + (f", {self.package} {version(self.package)}" if self.package else "")


READERS = (
    Reader("text", 1, text.read, (".txt", ".text", ".md", ".markdown", ""), 128 * _MB),
    Reader("html", 1, html.read, (".html", ".htm", ".xhtml"), 64 * _MB, package="selectolax", apart=True),
    Reader("pdf", 1, pdf.read, (".pdf",), 512 * _MB, b"%PDF-", "pypdfium2", apart=True, paged=True),
    Reader("hwpx", 1, hwpx.read, (".hwpx",), 256 * _MB, b"PK\x03\x04", apart=True),
)
_apart = Apart(f"{__name__}:extract_here", _SECONDS, _MEMORY)


def extract(path: Path) -> Extracted:
    """The text of a file. BadInput, which names the file and if possible the line or page, if it cannot be read.

    HTML, PDF and HWPX are parsed in a process of its own, within limits of time and memory.
    """
    reader = reader_of(path)
    if not reader.apart:
        return _formed(reader, path)
    try:
        found = _apart(str(path.absolute()))
    except Ended as ended:
        raise BadInput(f"{path}: reading it {ended}. Split the file, or leave it out of files.") from None
    except BadInput as error:
        raise BadInput(str(error).replace(str(path.absolute()), str(path))) from None
    return Extracted(found["text"], None if found["pages"] is None else tuple(found["pages"]), found["reader"])


def extract_here(path: str) -> dict[str, Any]:
    """The fields of what `extract` returns, read in this process and without its limits of time and memory."""
    return asdict(_formed(reader_of(Path(path)), Path(path)))


def reader_of(path: Path) -> Reader:
    """The reader of a file. BadInput if there is none, if the file is empty or too large for it, or of another kind."""
    suffix = path.suffix.lower()
    reader = next((one for one in READERS if suffix in one.suffixes), None)
    size, head = _looked_at(path)
    kind, advice = kind_of(head)
    if reader is None:
        raise _unknown(path, suffix, kind, advice)
    if not size:
        raise BadInput(f"{path}: the file is empty. Fill it, or leave it out of files.")
    if size > reader.largest:
        raise BadInput(
            f"{path}: the file has {size / _MB:,.0f} MB, but {reader.name} is read up to {reader.largest // _MB} MB. "
            "Split it."
        )
    if reader.begins not in head:
        what = f"but is {kind}. {advice}" if kind else f"but does not begin with {reader.begins!r:.10}. Is it complete"
        raise BadInput(f"{path}: the name says {reader.name.upper()}, {what}{'.' if kind else '?'}")
    if kind and not reader.begins:
        raise BadInput(f"{path}: the name says {reader.name}, but the file is {kind}. {advice}.")
    return reader


def _looked_at(path: Path) -> tuple[int, bytes]:
    """Size and first bytes of a file."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise BadInput(f"{path} is no file. Name a file.")
        with path.open("rb") as file:
            return found.st_size, file.read(HEAD)
    except (OSError, ValueError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{path} cannot be opened: {error}.") from None


def _unknown(path: Path, suffix: str, kind: str, advice: str) -> BadInput:
    """The error for a file without a reader."""
    known = [one for reader in READERS for one in reader.suffixes if one]
    what = f"{path} is {kind}, which is not read" if kind else f"{path}: there is no reader for {suffix}"
    remedy = advice_on(suffix) or advice or f"Readable are {', '.join(known)}: rename it if it is text, or leave it out"
    return BadInput(f"{what}.{did_you_mean(suffix, known)} {remedy}.")


def _formed(reader: Reader, path: Path) -> Extracted:
    """The texts of a file's pages as one: each in NFC, a line end between two."""
    try:
        pages = reader.read(path)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error}.") from None
    formed = [unicodedata.normalize("NFC", _LINE_END.sub("\n", page.lstrip("\ufeff"))) for page in pages]
    if all(not page or page.isspace() for page in formed):
        raise BadInput(f"{path}: the file holds no text, only white space. Fill it, or leave it out of files.")
    starts, at = [], 0
    for page in formed:
        starts.append(at)
        at += len(page) + 1
    return Extracted("\n".join(formed), tuple(starts) if reader.paged else None, reader.recorded)
