"""What somebody filled in: a workbook read back, every cell of it checked before anything counts.

Blank cells and rows that were deleted are not judged. They take nothing back either: what the same person has judged
elsewhere stays, and "?" says that nobody can tell.

An Excel file from somebody else: opened only if it is one, is not too large, and declares no entities.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from harness.data.files import some
from harness.errors import BadInput, did_you_mean
from harness.testset.audit.sample import AuditSample
from harness.testset.judge.judgements import ADJUDICATED, HUMAN, JudgedSet, Judgement, text_digest
from harness.testset.review.desk import Item
from harness.testset.review.workbook import (
    ABOUT,
    GRADE,
    ID,
    MOST_ROWS,
    NEEDS,
    PAIRS,
    QUERIES,
    VERSION,
    blank,
    grade_of,
    need_of,
    row_id,
)

if TYPE_CHECKING:
    from openpyxl import Workbook

_MOST_FILE, _MOST_UNPACKED = 256 << 20, 512 << 20  # bytes
_MOST_TEXTS = 128 << 20  # of the table of texts, which is in memory at twice its size
_MOST_PART = 16 << 20  # of a part that is neither a sheet, which is read piece by piece, nor the table of texts
_MOST_PARTS = 1_000
_BLOCK = 1 << 16
_TYPES = "[Content_Types].xml"
_LARGE = {"worksheet+xml": _MOST_UNPACKED, "sharedStrings+xml": _MOST_TEXTS}  # ends of the types of those two
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
    left, limits = _MOST_UNPACKED, _limits(packed, path)
    for part in packed.filelist:
        if part.flag_bits & 1:
            raise BadInput(f"{path}: {part.filename:.60} is encrypted. Save the workbook without a password.")
        if part.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise BadInput(f"{path}: {part.filename:.60} is packed in a way that workbooks are not. Save it again.")
        left -= _unpacked(packed, part, min(left, limits.get(part.filename, _MOST_PART)), path)


def _limits(packed: zipfile.ZipFile, path: Path) -> dict[str, int]:
    """Return the most bytes of parts, by their types, as openpyxl goes, whatever they are called.

    A part of several types, such as a sheet that is also the workbook itself, has the least of their limits.
    """
    from xml.etree import ElementTree

    if _TYPES not in packed.namelist():
        return {}
    _unpacked(packed, packed.getinfo(_TYPES), _MOST_PART, path)
    found: dict[str, int] = {}
    try:
        for one in ElementTree.fromstring(packed.read(_TYPES)):  # noqa: S314 (without a document type)
            name, kind = one.get("PartName", "").removeprefix("/"), one.get("ContentType", "")
            most = next((limit for end, limit in _LARGE.items() if kind.endswith(end)), _MOST_PART)
            found[name] = min(most, found.get(name, most))
    except ElementTree.ParseError as error:
        raise BadInput(f"{path}: {_TYPES}: broken XML ({error}). Save the workbook again.") from None
    return found


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


_SAMPLES = ("audit", "repair", "all", "open")
_MOST_COLUMNS = 100  # that are read
_MOST_ERRORS = 200  # that a message lists
_ANSWERS = {QUERIES: NEEDS, PAIRS: GRADE}


@dataclass(frozen=True)
class Filled:
    """What a workbook says.

    new: judgements to append. changed: how many of them replace one by the same person. same: answers that the log has
    already. empty: rows without an answer. kept: how many of those the person has judged otherwise, which stays.
    """

    new: tuple[Judgement, ...]
    changed: int
    same: int
    empty: int
    kept: int


_Answer = tuple[Item, int | bool | str | None]  # a row of a sheet; None if its answer is blank


def read_workbook(path: Path, reviewer: str, judged: JudgedSet, audit: AuditSample | None, at: str) -> Filled:
    """What a filled workbook adds to the judgements. BadInput lists all that is wrong in it, by sheet and cell.

    reviewer: the name of who filled it in. judged: the test set as it is now. at: the time of the judgements.
    """
    with opened_workbook(path) as book:
        sheets = {sheet.title: sheet for sheet in book.worksheets}
        about = _about(path, sheets)
        _check_about(path, about, reviewer, judged)
        errors: list[str] = []
        known = _known(judged, str(about["sample"]), audit)
        answers: list[_Answer] = []
        for title in _ANSWERS:
            if about.get(f"rows of {title}"):
                rows = _rows(path, sheets, title)
                answers += _sheet(title, rows, known, errors)
    if errors:
        more = f"\n  and {len(errors) - _MOST_ERRORS:,} more" if len(errors) > _MOST_ERRORS else ""
        listed = "".join(f"\n  {one}" for one in errors[:_MOST_ERRORS])
        raise BadInput(f"{path}: nothing was taken from it, as this must be mended first:{listed}{more}")
    return _filled(answers, str(about["by"]), judged, at)


def _rows(path: Path, sheets: Mapping[str, Any], title: str) -> Iterator[tuple[Any, ...]]:
    """The rows of a sheet, from the first. BadInput where it is missing or damaged, or has too many."""
    if title not in sheets:
        raise BadInput(f"{path}: the sheet {title!r} is missing (sheets here: {some(sheets)}). Put it back.")
    sheet = sheets[title]
    try:
        sheet.reset_dimensions()  # what the file says of its size need not be true
        for number, row in enumerate(sheet.iter_rows(max_col=_MOST_COLUMNS), start=1):
            if number > MOST_ROWS + 1:
                raise BadInput(f"{path}: the sheet {title!r} has more rows than a sheet can have.")
            yield row
    except BadInput:
        raise
    except Exception as error:  # openpyxl refuses damaged sheets with errors of all kinds
        said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise BadInput(f"{path}: the sheet {title!r} is damaged ({said}). Save the workbook again.") from None


def _about(path: Path, sheets: Mapping[str, Any]) -> dict[str, Any]:
    """What the hidden sheet says: name -> value."""
    if ABOUT not in sheets:
        raise BadInput(
            f"{path}: the hidden sheet {ABOUT!r} is missing, so that nobody knows what was judged. Fill in the "
            "workbook that `harness testset review via=xlsx output=FILE` wrote; do not copy its rows to another."
        )
    found = {str(row[0].value): row[1].value for row in _rows(path, sheets, ABOUT) if len(row) > 1}
    missing = [name for name in ("version", "by", "sample") if name not in found]
    if missing or found["sample"] not in _SAMPLES:
        raise BadInput(f"{path}: the hidden sheet {ABOUT!r} has been changed ({some(missing) or 'sample'}). Undo that.")
    if found["version"] != VERSION:
        said = f"{found['version']!r:.60}"
        raise BadInput(f"{path}: version is {said}, but this harness reads version {VERSION}. Write the workbook anew.")
    return found


def _check_about(path: Path, about: Mapping[str, Any], reviewer: str, judged: JudgedSet) -> None:
    """BadInput unless the workbook was written for this person and for the queries as they are now."""
    basis, _, name = str(about["by"]).partition(":")
    if basis not in (HUMAN, ADJUDICATED) or name != reviewer:
        raise BadInput(
            f"{path}: the workbook was written for {name or basis:.60}, and the command says reviewer={reviewer}. Give "
            "the right name or file: nobody fills in the workbook of another."
        )
    now = {row_id(query_id, None, 1): query_id for query_id in judged.queries}
    asked = {row: digest for row, digest in about.items() if row.startswith("r") and not row.startswith("rows of ")}
    gone = [row for row in asked if row not in now]
    if asked and len(gone) == len(asked):
        raise BadInput(f"{path}: none of its queries is in this test set. Is it the workbook of another?")
    changed = [
        now[row]
        for row, digest in asked.items()
        if row in now and text_digest(judged.queries[now[row]].query) != str(digest)
    ]
    if changed or gone:
        said = [f"{len(changed)} changed: {some(changed)}"] if changed else []
        said += [f"{len(gone)} are no longer there"] if gone else []
        raise BadInput(
            f"{path}: the workbook was written for another version of the test set; of its queries, "
            f"{'; '.join(said)}. Put those queries back, or write the workbook anew."
        )


def _known(judged: JudgedSet, sample: str, audit: AuditSample | None) -> dict[str, Item]:
    """Row id -> item, of all rows that a workbook may have."""
    drawn = {query_id: audit.pi(query_id) for query_id in audit.drawn if query_id in judged.queries} if audit else {}
    found: dict[str, Item] = {}
    for query_id, pairs in judged.pooled.items():
        if sample == "audit" and query_id not in drawn:
            continue
        why = ("audit" if query_id in drawn else "repair") if sample == "open" else sample
        pi = drawn[query_id] if why == "audit" else 1.0
        for again in (1, 2):
            for doc_id in (None, *(one.doc_id for one in pairs)):
                found[row_id(query_id, doc_id, again)] = Item(query_id, doc_id, again, why, pi)
    return found


def _sheet(title: str, rows: Iterator[tuple[Any, ...]], known: Mapping[str, Item], errors: list[str]) -> list[_Answer]:
    """The answers of a sheet. What is wrong is added to `errors`."""
    header = [str(one.value).strip() if one.value is not None else "" for one in next(rows, ())]
    columns = {name: _column(title, header, name, errors) for name in (ID, _ANSWERS[title])}
    if None in columns.values():
        return []
    id_at, answer_at = (columns[name] or 0 for name in (ID, _ANSWERS[title]))
    found: list[_Answer] = []
    seen: dict[str, int] = {}
    for number, row in enumerate(rows, start=2):
        given, answer = (row[at] if at < len(row) else None for at in (id_at, answer_at))
        if (given is None or blank(given.value)) and (answer is None or blank(answer.value)):
            continue
        here = f"{title}!{_letter(id_at)}{number}"
        name = "" if given is None or given.value is None else str(given.value).strip()
        if name in seen:
            errors.append(f"{here}: the id {name:.40} is also in row {seen[name]}. Delete one of the rows.")
        elif name not in known or (known[name].doc_id is None) != (title == QUERIES):
            errors.append(f"{here}: {_unknown(name)}")
        else:
            seen[name] = number
            value = _value(title, answer, f"{title}!{_letter(answer_at)}{number}", errors)
            found.append((known[name], value))
    return found


def _unknown(name: str) -> str:
    if not name:
        return "the id is missing. Put it back, or delete the row."
    return f"no question of this test set has the id {name!r:.40}. Put the id back, or delete the row."


def _value(title: str, cell: Any, where: str, errors: list[str]) -> int | bool | str | None:
    if cell is None or blank(cell.value):
        return None
    try:
        return (need_of if title == QUERIES else grade_of)(cell.value, cell.data_type)
    except ValueError as error:
        errors.append(f"{where}: {'needs' if title == QUERIES else 'grade'} {error}.")
        return None


def _column(title: str, header: Sequence[str], name: str, errors: list[str]) -> int | None:
    """The place of a column; None, with an error, unless there is exactly one of this name."""
    places = [place for place, one in enumerate(header) if one == name]
    if len(places) == 1:
        return places[0]
    here = ", ".join(f"{one:.40}" for one in header if one) or "none"
    if places:
        errors.append(f"{title}!{_letter(places[1])}1: the column {name!r} is there twice. Delete one of them.")
    else:
        near = did_you_mean(name, [one for one in header if one])
        errors.append(f"{title}!A1: the column {name!r} is missing (columns here: {here}).{near} Put it back.")
    return None


def _letter(place: int) -> str:
    from openpyxl.utils import get_column_letter

    return get_column_letter(place + 1)


def _filled(answers: Sequence[_Answer], by: str, judged: JudgedSet, at: str) -> Filled:
    before = {(one.pair, one.round): one for one in judged.judgements if one.by == by}
    new: list[Judgement] = []
    changed = same = empty = kept = 0
    for item, value in answers:
        earlier = before.get((item.pair, item.round))
        if value is None:
            empty, kept = empty + 1, kept + (earlier is not None)
            continue
        text = text_digest(judged.queries[item.query_id].query)
        needs = value if isinstance(value, bool) else None
        grade = value if isinstance(value, int) and needs is None else None
        said = Judgement(
            item.query_id, text, item.doc_id, grade, by, at, needs, round=item.round, sample=item.sample, pi=item.pi
        )
        if earlier and (earlier.grade, earlier.needs, earlier.sample) == (said.grade, said.needs, said.sample):
            same += 1
            continue
        changed += earlier is not None
        new.append(said)
    return Filled(tuple(new), changed, same, empty, kept)
