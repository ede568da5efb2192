"""An Excel file from somebody else: opened only if it is one, is not too large, and declares no entities."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from harness.errors import BadInput

if TYPE_CHECKING:
    from openpyxl import Workbook

_MOST_FILE, _MOST_UNPACKED = 256 << 20, 512 << 20  # bytes
_MOST_PART = 16 << 20  # of a part that is neither a sheet nor the table of texts, which alone are read piece by piece
_MOST_PARTS = 1_000
_BLOCK = 1 << 16
_TYPES = "[Content_Types].xml"
_LARGE = ("worksheet+xml", "sharedStrings+xml")  # ends of the types of those two
_NO_XML = (".bin", ".png", ".jpg", ".jpeg", ".gif", ".emf", ".wmf")
_OLE = b"\xd0\xcf\x11\xe0"  # the container of .xls, and of encrypted workbooks
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, ValueError)


@contextmanager
def opened_workbook(path: Path) -> Iterator[Workbook]:
    """The workbook, whose sheets are read row by row. BadInput where it is none, or what openpyxl cannot read."""
    _check(path)
    from openpyxl import load_workbook

    try:
        book = load_workbook(path, read_only=True, keep_links=False)
    except Exception as error:  # openpyxl refuses damaged files with errors of all kinds
        raise _damaged(path, error) from None
    try:
        yield book
    finally:
        book.close()


def _damaged(path: Path, error: Exception) -> BadInput:
    return BadInput(f"{path}: the workbook is damaged ({_brief(error)}). Save it again as .xlsx.")


def _brief(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def _check(path: Path) -> None:
    if path.suffix.lower() != ".xlsx":
        raise BadInput(f"{path}: a workbook is a file .xlsx. Save it as Excel workbook (.xlsx).")
    if not path.is_file():
        what = "is no file" if path.exists() else "does not exist"
        raise BadInput(f"{path} {what}. Name the workbook that was filled in.")
    if (size := path.stat().st_size) > _MOST_FILE:
        raise BadInput(f"{path}: the file has {size:,} bytes, more than {_MOST_FILE:,}. Is it the right one?")
    try:
        with path.open("rb") as file:
            if file.read(4) == _OLE:
                raise BadInput(
                    f"{path}: the file is encrypted, or an .xls of old. Save it as Excel workbook (.xlsx) without a "
                    "password."
                )
        with zipfile.ZipFile(path) as packed:
            _check_parts(packed, path)
    except BadInput:
        raise
    except zipfile.BadZipFile as error:
        raise BadInput(f"{path}: the file is no Excel workbook ({_brief(error)}). Is it complete?") from None
    except _DAMAGED as error:
        raise _damaged(path, error) from None


def _check_parts(packed: zipfile.ZipFile, path: Path) -> None:
    """BadInput for what would fill the memory, or what no workbook has. Sizes are counted, not those declared."""
    if len(packed.filelist) > _MOST_PARTS:
        raise BadInput(f"{path}: the file packs {len(packed.filelist):,} files, more than a workbook has.")
    left, large = _MOST_UNPACKED, _large_parts(packed, path)
    for part in packed.filelist:
        if part.flag_bits & 1:
            raise BadInput(f"{path}: {part.filename:.60} is encrypted. Save the workbook without a password.")
        if part.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise BadInput(f"{path}: {part.filename:.60} is packed in a way that workbooks are not. Save it again.")
        most = min(left, _MOST_UNPACKED if part.filename in large else _MOST_PART)
        left -= _unpacked(packed, part, most, path)


def _large_parts(packed: zipfile.ZipFile, path: Path) -> set[str]:
    """The names of the parts that are read piece by piece: by their types, as openpyxl goes, whatever they are called.

    A part that is also of another type, such as the workbook itself, is not among them.
    """
    from xml.etree import ElementTree

    if _TYPES not in packed.namelist():
        return set()
    _unpacked(packed, packed.getinfo(_TYPES), _MOST_PART, path)
    types: dict[str, list[str]] = {}
    try:
        for one in ElementTree.fromstring(packed.read(_TYPES)):  # noqa: S314 (without a document type)
            types.setdefault(one.get("PartName", "").removeprefix("/"), []).append(one.get("ContentType", ""))
    except ElementTree.ParseError as error:
        raise BadInput(f"{path}: {_TYPES}: broken XML ({error}). Save the workbook again.") from None
    return {name for name, found in types.items() if all(one.endswith(_LARGE) for one in found)}


def _unpacked(packed: zipfile.ZipFile, part: zipfile.ZipInfo, most: int, path: Path) -> int:
    """The size of a part, whose beginning must be that of an XML document without a document type."""
    size, prolog = 0, _Prolog(f"{path}: {part.filename:.60}")
    with packed.open(part) as file:
        while block := file.read(_BLOCK):
            size += len(block)
            if size > most:
                raise BadInput(
                    f"{path}: {part.filename:.60} unpacks to more than {most >> 20} MB. Is it the right one?"
                )
            if not part.filename.lower().endswith(_NO_XML):
                prolog.read(block)
    return size


class _Prolog:
    """The beginning of an XML document, up to its first element."""

    def __init__(self, where: str) -> None:
        from xml.parsers import expat

        self._where, self._over = where, False
        self._parser = expat.ParserCreate()
        self._parser.StartDoctypeDeclHandler = self._doctype
        self._parser.StartElementHandler = self._element

    def read(self, block: bytes) -> None:
        from xml.parsers import expat

        if self._over:
            return
        try:
            self._parser.Parse(block)
        except expat.ExpatError as error:
            if not self._over:
                raise BadInput(f"{self._where}: broken XML ({error}). Save the workbook again.") from None

    def _doctype(self, *_: object) -> NoReturn:
        raise BadInput(f"{self._where}: it declares a document type, which workbooks do not. Entities are not read.")

    def _element(self, *_: object) -> None:
        self._over = True
