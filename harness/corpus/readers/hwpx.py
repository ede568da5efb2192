"""HWPX, the open format of Hangul (KS X 6101): paragraphs, tables, text boxes and notes of all sections, in order.

Left out: headers and footers of pages, comments, and text that a tracked change deletes. Cells of a table row are
separated by tabs; a note follows the paragraph that refers to it; of an equation there is its script.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from pathlib import Path
from typing import IO

from harness.corpus.readers.layout import Lines
from harness.errors import BadInput

_MOST_BYTES = 256 << 20  # of all sections, unpacked
_MOST_ENTRIES = 10_000
_DEEPEST = 1_000  # elements in each other
_BLOCK = 1 << 16
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, ValueError)
_SECTION = re.compile(r"Contents/section(\d{1,6})\.xml")
_TEXTS = frozenset(("t", "script", "mainText", "subText"))
_SIGNS = {"tab": "\t", "lineBreak": "\n", "nbSpace": " ", "fwSpace": " ", "hyphen": "-"}
_NOTES = frozenset(("footNote", "endNote"))
_LEFT_OUT = frozenset(("header", "footer", "hiddenComment", "fieldBegin"))  # the last holds comments and hints


def read(path: Path) -> list[str]:
    """The text of the document."""
    try:
        with zipfile.ZipFile(path) as packed:
            return ["\n".join(_sections(packed, path))]
    except _DAMAGED as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{path}: the HWPX file is damaged ({error}). Is it complete?") from None


def _sections(packed: zipfile.ZipFile, path: Path) -> list[str]:
    """The text of each section, by number."""
    if len(packed.filelist) > _MOST_ENTRIES:
        raise BadInput(f"{path}: the HWPX file packs {len(packed.filelist):,} files, more than {_MOST_ENTRIES:,}.")
    numbered = {int(found[1]): name for name in packed.namelist() if (found := _SECTION.fullmatch(name))}
    if not numbered:
        raise BadInput(f"{path}: there is no Contents/section0.xml in it, so it is no HWPX document. What made it?")
    if _encrypted(packed):
        raise BadInput(f"{path}: the document is encrypted. Save it without a password.")
    left, texts = _MOST_BYTES, []
    for _, name in sorted(numbered.items()):
        with _opened(packed, name) as file:
            section = _Section(f"{path}: {name}")
            left = section.parse(file, left)
            texts.append(section.text())
    return [text for text in texts if text]


def _encrypted(packed: zipfile.ZipFile) -> bool:
    """Whether the manifest says so. It is small where it is honest."""
    try:
        with _opened(packed, "META-INF/manifest.xml") as file:
            return b"encryption-data" in file.read(1 << 20)
    except KeyError:
        return False


def _opened(packed: zipfile.ZipFile, name: str) -> IO[bytes]:
    """A packed file, as the format has them packed. The standard library unpacks others, and fails in other ways."""
    method = packed.getinfo(name).compress_type
    if method not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise NotImplementedError(f"{name} is compressed by method {method}")
    return packed.open(name)


class _Section:
    """The text of one section's XML. where: names it in errors."""

    def __init__(self, where: str) -> None:
        self.where = where
        self._lines = [Lines()]  # of the section, then of notes that are in work
        self._notes: list[str] = []
        self._open: list[str] = []  # names of the elements around
        self._paragraphs = 0  # of those
        self._cells: list[int] = []  # of each row around, so far
        self._skipped = 0  # how many of them are left out
        self._deleted = False

    def parse(self, file: IO[bytes], left: int) -> int:
        """Read a section of at most `left` bytes; returns how many are left then."""
        from xml.parsers import expat

        parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = self._doctype
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        try:
            while block := file.read(_BLOCK):
                left -= len(block)
                if left < 0:
                    raise BadInput(f"{self.where}: the sections have more than {_MOST_BYTES >> 20} MB. Split it.")
                parser.Parse(block)
            parser.Parse(b"", True)
        except expat.ExpatError as error:
            raise BadInput(f"{self.where}:{error.lineno}: broken XML ({error}). Save the document again.") from None
        return left

    def text(self) -> str:
        return self._lines[0].text()

    def _doctype(self, *_: object) -> None:
        raise BadInput(f"{self.where}: it declares a document type, which HWPX does not. Entities are not expanded.")

    def _start(self, full_name: str, attributes: dict[str, str]) -> None:
        name = full_name.rpartition(" ")[2]
        self._open.append(name)
        if len(self._open) > _DEEPEST:
            raise BadInput(f"{self.where}: elements are nested more than {_DEEPEST:,} deep.")
        if self._skipped or name in _LEFT_OUT:
            self._skipped += 1
        elif name in _NOTES:
            self._lines.append(Lines())
        elif name == "p":
            self._paragraphs += 1
            self._lines[-1].block()
        elif name == "tr":
            self._cells.append(0)
            self._lines[-1].row()
        elif name == "tc" and self._cells:
            if self._cells[-1]:
                self._lines[-1].next_cell()
            self._cells[-1] += 1
        elif name in _SIGNS:
            self._characters(_SIGNS[name])
        elif name == "compose":
            self._lines[-1].exactly(attributes.get("composeText", ""))
        elif name in ("deleteBegin", "deleteEnd"):
            self._deleted = name == "deleteBegin"

    def _end(self, full_name: str) -> None:
        name = self._open.pop()
        if self._skipped:
            self._skipped -= 1
        elif name in _NOTES:
            self._notes.append(self._lines.pop().text())
        elif name == "p":
            self._paragraphs -= 1
            self._lines[-1].block()
            if not self._paragraphs:
                self._put_notes()
        elif name == "tr":
            self._cells.pop()
            self._lines[-1].end_row()

    def _characters(self, text: str) -> None:
        if not self._skipped and not self._deleted and _TEXTS.intersection(self._open[-2:]):
            self._lines[-1].exactly(text)

    def _put_notes(self) -> None:
        for note in self._notes:
            self._lines[-1].exactly(note)
            self._lines[-1].block()
        self._notes.clear()
