"""Excel workbooks for reviewers: how to judge, the queries, and the pairs of a query and a document.

Reviewers may sort, filter and delete rows, and insert columns. A blank cell or a deleted row judges nothing and
withdraws nothing. "?" means that the reviewer cannot tell.
"""

from __future__ import annotations

import json
import re
import secrets
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, time, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from harness.data.files import some
from harness.errors import BadInput
from harness.progress import watch
from harness.testset.audit.auditing import AuditSample
from harness.testset.judge.judgements import ADJUDICATED, GRADES, HUMAN, JudgedSet, Judgement, text_digest
from harness.testset.review.desk import UNKNOWN, WORDS, Item, Value
from retrievers.base import Document, Query

if TYPE_CHECKING:
    from openpyxl import Workbook

HOW, QUERIES, PAIRS, ABOUT = "how to judge", "queries", "pairs", "about"  # the sheets; the last is hidden
ID, GRADE, NEEDS = "id", "grade · 점수", "needs retrieval? · 검색 필요?"  # the columns that `read_workbook` reads
NUMBER, QUERY, DOCUMENT = "query no.", "query · 질의", "document · 문서"
MOST = 32_767  # maximum number of UTF-16 code units in a cell
MOST_ROWS = 1_048_575  # maximum number of rows of a sheet, below its header
_WIDTHS = {ID: 8, NUMBER: 7, QUERY: 45, DOCUMENT: 100, GRADE: 12, NEEDS: 18}  # column -> characters
_ANSWERS = {QUERIES: NEEDS, PAIRS: GRADE}
_CHOICES = {QUERIES: ("yes", "no", "?"), PAIRS: ("0", "1", "2", "3", "?")}
_MEANINGS: dict[str, dict[str, Value]] = {  # sheet -> text of an answer in lower case -> its value
    QUERIES: {
        **dict.fromkeys(("yes", "y", "true", "예", "네"), 1),
        **dict.fromkeys(("no", "n", "false", "아니요", "아니오"), 0),
        UNKNOWN: UNKNOWN,
    },
    PAIRS: {**{str(grade): grade for grade in GRADES}, UNKNOWN: UNKNOWN},
}
_SHOWN = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n"}  # XML forbids these characters.
_SHOWN |= {0xFFFE: "\ufffd", 0xFFFF: "\ufffd"}
_ESCAPED = re.compile(r"_(?=x[0-9A-Fa-f]{4}_)")  # Excel would read _x0041_ as A.


@dataclass(frozen=True)
class Questions:
    """The content of a workbook. by: the reviewer, such as human:kim. items: items in the order of the rows. queries,
    documents: by id. place: the file with the whole documents; cells with cut texts name this file."""

    by: str
    sample: str
    items: Sequence[Item]
    queries: Mapping[str, Query]
    documents: Mapping[str, Document]
    place: str


def cell_text(text: str, whole: str) -> str:
    """Return the text as a cell can hold it: control characters become pictures, such as ␀, and long texts are cut.
    whole: where the whole text is; the end of a cut text names this place."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").translate(_SHOWN)
    text = _ESCAPED.sub("_x005F_", text)
    encoded = text.encode("utf-16-le")
    if len(encoded) <= 2 * MOST:
        return text
    mark = f"\n[… cut: {len(text):,} characters. All of it: {whole}]"
    return encoded[: 2 * MOST - len(mark.encode("utf-16-le"))].decode("utf-16-le", "ignore") + mark


def write_workbook(path: Path, asked: Questions) -> None:
    """Write the workbook. Raise BadInput if the file exists, since it may have answers."""
    if path.suffix.lower() != ".xlsx":
        raise BadInput(f"output={path}: a workbook must be an .xlsx file. Name it {path.with_suffix('.xlsx').name}.")
    if not path.parent.is_dir():
        raise BadInput(f"output={path}: there is no folder {path.parent}. Make it, or name another.")
    if len(asked.items) > MOST_ROWS:
        raise BadInput(f"{len(asked.items):,} rows are more than a sheet holds. Judge a smaller sample.")
    if path.exists():
        raise BadInput(f"output={path}: the file exists. Read it back first (from={path}), or give another name.")
    unfinished = path.with_name(f".{secrets.token_hex(8)}.unfinished")
    try:
        _book(asked).save(unfinished)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _book(asked: Questions) -> Workbook:
    from openpyxl import Workbook

    book = Workbook(write_only=True)
    book.properties.creator = "retrieval-harness"
    _guide(book)
    numbers = {query_id: place for place, query_id in enumerate(dict.fromkeys(one.query_id for one in asked.items), 1)}
    about: list[tuple[str, Any]] = [("by", asked.by), ("sample", asked.sample)]
    done = 0
    with watch("writing rows") as progress:
        for title, header in ((QUERIES, (ID, NUMBER, QUERY, NEEDS)), (PAIRS, (ID, NUMBER, QUERY, DOCUMENT, GRADE))):
            rows = [one for one in asked.items if (one.doc_id is None) == (title == QUERIES)]
            about.append((f"rows of {title}", len(rows)))
            if rows:
                sheet = _sheet(book, title, header, len(rows))
                for cells in _rows(sheet, header, rows, numbers, asked):
                    sheet.append(cells)
                    done += 1
                    progress(done, len(asked.items), "rows")
    hidden = book.create_sheet(ABOUT)  # the reviewer, the sample, and digests of the queries
    hidden.sheet_state = "hidden"
    for row in [*about, *((_query_key(one), text_digest(asked.queries[one])) for one in numbers)]:
        hidden.append(row)
    return book


def _query_key(query_id: str) -> str:
    return Item(query_id, None, 1, "", 1.0).key


def _rows(
    sheet: Any, header: Sequence[str], items: Sequence[Item], numbers: Mapping[str, int], asked: Questions
) -> Iterator[list[Any]]:
    """Yield the header and the rows of a sheet: id, query number, query, document (for pairs), and an empty answer."""
    from openpyxl.cell import WriteOnlyCell

    styles = _styles(sheet)

    def cell(value: Any, style: str) -> Any:
        made: Any = WriteOnlyCell(sheet, value)
        if isinstance(value, str):
            made.data_type = "s"  # text, even if it begins like a formula
        made._style = styles[style]
        return made

    yield [cell(name, "header") for name in header]
    texts = {one: cell_text(_conversation(asked.queries[one]), f"queries.jsonl, {one}") for one in numbers}
    for one in items:
        shown = [texts[one.query_id]]
        if one.doc_id is not None:
            document = asked.documents[one.doc_id]
            whole = f"{document.title}\n\n{document.text}" if document.title else document.text
            shown.append(cell_text(whole, f"{asked.place}, {document.doc_id}"))
        first = [cell(one.key, "id"), cell(numbers[one.query_id], "number")]
        yield [*first, *(cell(text, "text") for text in shown), cell(None, "answer")]


def _conversation(query: Query) -> str:
    if len(query.turns) == 1:
        return query.turns[0].content
    return "\n".join(f"[{turn.role}] {turn.content}" for turn in query.turns)


def _sheet(book: Workbook, title: str, header: Sequence[str], count: int) -> Any:
    from openpyxl.utils import get_column_letter
    from openpyxl.worksheet.datavalidation import DataValidation

    sheet, choices = book.create_sheet(title), ",".join(_CHOICES[title])
    for number, name in enumerate(header, start=1):
        sheet.column_dimensions[get_column_letter(number)].width = _WIDTHS[name]
    last = get_column_letter(len(header))
    choice = DataValidation("list", formula1=f'"{choices}"', allow_blank=True, showErrorMessage=True)
    choice.errorTitle, choice.error = header[-1], f"Choose one of {choices}, or leave the cell empty."
    choice.add(f"{last}2:{last}{count + 1}")
    sheet.data_validations.append(choice)
    sheet.freeze_panes = "A2"
    sheet.auto_filter.ref = f"A1:{last}{count + 1}"
    return sheet


def _styles(sheet: Any) -> dict[str, Any]:
    """Return name -> style of cells. Cells share these styles, which halves the time to write a workbook."""
    from openpyxl.cell import WriteOnlyCell
    from openpyxl.styles import Alignment, Font, PatternFill, Protection

    top, wrapped = Alignment(vertical="top"), Alignment(wrap_text=True, vertical="top")
    grey = PatternFill("solid", fgColor="E7E6E6")
    parts: dict[str, dict[str, Any]] = {
        "header": {"font": Font(bold=True), "fill": grey, "alignment": wrapped},
        "id": {"font": Font(color="808080", size=8), "fill": grey, "alignment": top},
        "number": {"alignment": top},
        "text": {"alignment": wrapped, "quotePrefix": True},
        "answer": {"alignment": Alignment(horizontal="center", vertical="top"), "protection": Protection(locked=False)},
    }
    found = {}
    for name, values in parts.items():
        cell: Any = WriteOnlyCell(sheet, None)
        for part, value in values.items():
            setattr(cell, part, value)
        found[name] = cell._style
    return found


def _guide(book: Workbook) -> None:
    from openpyxl.cell import WriteOnlyCell
    from openpyxl.styles import Alignment, Font

    words = json.loads(WORDS.read_text("utf-8"))
    sheet = book.create_sheet(HOW)
    for letter in "AB":
        sheet.column_dimensions[letter].width = 70
    lines: list[tuple[str, str]] = [("", "how"), ("", "workbook"), ("", "need")]
    lines += zip(("yes: ", "no: ", "?: "), ("about_need_1", "about_need_0", "about_unknown"), strict=True)
    lines += [("", "workbook_skip"), ("", "grades")]
    lines += [(f"{one}: ", f"about_{'unknown' if one == UNKNOWN else one}") for one in _CHOICES[PAIRS]]
    for number, (answer, name) in enumerate(lines):
        row = [WriteOnlyCell(sheet, answer + words[language][name]) for language in ("en", "ko")]
        for cell in row:
            cell.alignment = Alignment(wrap_text=True, vertical="top")
            cell.font = Font(bold=number == 0, size=14 if number == 0 else 11)
        sheet.append(row)


_MOST_FILE, _MOST_UNPACKED = 256 << 20, 512 << 20  # maximum sizes of a workbook and of its unpacked parts, in bytes
_MOST_TEXTS = 128 << 20  # maximum size of the part with the cells' texts, which needs twice its size in memory
_MOST_PART = 16 << 20  # maximum size of other parts; sheets may be larger, since they are read piece by piece
_TYPES = "[Content_Types].xml"
_LARGE = {"worksheet+xml": _MOST_UNPACKED, "sharedStrings+xml": _MOST_TEXTS}  # end of a part's type -> maximum size
_NO_XML = (".bin", ".png", ".jpg", ".jpeg", ".gif", ".emf", ".wmf")
_OLE = b"\xd0\xcf\x11\xe0"  # the first bytes of .xls files and of encrypted workbooks
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, ValueError)


@contextmanager
def _opened(path: Path) -> Iterator[Workbook]:
    """Open a workbook to read its sheets row by row. Raise BadInput if it cannot be read."""
    from openpyxl import load_workbook

    if path.suffix.lower() != ".xlsx":
        raise BadInput(f"{path}: a workbook must be an .xlsx file. Save it as an Excel workbook (.xlsx).")
    if not path.is_file():
        what = "is not a file" if path.exists() else "does not exist"
        raise BadInput(f"{path} {what}. Name the workbook that was filled in.")
    if (size := path.stat().st_size) > _MOST_FILE:
        raise BadInput(f"{path}: the file has {size:,} bytes, more than {_MOST_FILE:,}. Is it the right workbook?")
    try:
        with path.open("rb") as file:
            if file.read(4) == _OLE:
                raise BadInput(f"{path}: the file is encrypted or an old .xls. Save it as .xlsx without a password.")
        with zipfile.ZipFile(path) as packed:
            _check_parts(packed, path)
    except BadInput:
        raise
    except _DAMAGED as error:
        raise _damaged(path, error) from None
    try:
        book = load_workbook(path, read_only=True, keep_links=False)
    except Exception as error:  # Openpyxl raises all kinds of errors for damaged files.
        raise _damaged(path, error) from None
    try:
        yield book
    finally:
        book.close()


def _damaged(path: Path, error: Exception, what: str = "the file is not a whole Excel workbook") -> BadInput:
    said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    return BadInput(f"{path}: {what} ({said}). Save it again as .xlsx.")


def _check_parts(packed: zipfile.ZipFile, path: Path) -> None:
    """Raise BadInput if a part is packed in a way that Excel never uses, or if its unpacked size is above its limit."""
    left = _MOST_UNPACKED
    limits = _limits(packed, path) if _TYPES in packed.namelist() else {}
    for part in packed.filelist:
        if part.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise BadInput(f"{path}: {part.filename:.60} is packed in a way that Excel does not use. Save it again.")
        left -= _unpacked(packed, part, min(left, limits.get(part.filename, _MOST_PART)), path)


def _limits(packed: zipfile.ZipFile, path: Path) -> dict[str, int]:
    """Return name of a part of the zip file -> its maximum size in bytes, which depends on the part's type. If the
    workbook gives a part several types, the lowest limit counts."""
    from xml.etree import ElementTree

    _unpacked(packed, packed.getinfo(_TYPES), _MOST_PART, path)
    found: dict[str, int] = {}
    try:
        for one in ElementTree.fromstring(packed.read(_TYPES)):  # noqa: S314 (`_unpacked` refuses document types)
            name, kind = one.get("PartName", "").removeprefix("/"), one.get("ContentType", "")
            most = next((limit for end, limit in _LARGE.items() if kind.endswith(end)), _MOST_PART)
            found[name] = min(most, found.get(name, most))
    except ElementTree.ParseError as error:
        raise BadInput(f"{path}: {_TYPES}: broken XML ({error}). Save the workbook again.") from None
    return found


def _unpacked(packed: zipfile.ZipFile, part: zipfile.ZipInfo, most: int, path: Path) -> int:
    """Return the size of a part. Raise BadInput if it exceeds `most`, or if its XML declares a document type."""
    size, prolog = 0, _prolog(f"{path}: {part.filename:.60}")
    with packed.open(part) as file:
        while block := file.read(1 << 16):
            size += len(block)
            if size > most:
                raise BadInput(
                    f"{path}: {part.filename:.60} unpacks to more than {most >> 20} MB. Is this the right workbook?"
                )
            if not part.filename.lower().endswith(_NO_XML):
                prolog(block)
    return size


def _prolog(where: str) -> Callable[[bytes], None]:
    """Return a function that reads an XML document block by block. It raises BadInput for a DOCTYPE."""
    from xml.parsers import expat

    parser, elements = expat.ParserCreate(), list[str]()

    def refuse(*_: object) -> NoReturn:
        raise BadInput(f"{where}: it declares a document type, which no workbook does. Save the workbook again.")

    def read(block: bytes) -> None:
        try:
            if not elements:
                parser.Parse(block)
        except expat.ExpatError as error:
            if not elements:
                raise BadInput(f"{where}: broken XML ({error}). Save the workbook again.") from None

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = lambda name, _: elements.append(name)
    return read


@dataclass(frozen=True)
class Filled:
    """The answers in a workbook. new: judgements to append. changed: number of new judgements that replace an earlier
    one by the same person. same: number of answers that are in the log already. empty: number of rows without an
    answer. kept: number of empty rows that the person has judged before; the earlier judgements stay."""

    new: tuple[Judgement, ...]
    changed: int
    same: int
    empty: int
    kept: int


def read_workbook(path: Path, reviewer: str, judged: JudgedSet, audit: AuditSample | None, at: str) -> Filled:
    """Read the answers in a workbook. Raise BadInput with all mistakes, by sheet and cell. reviewer: name of the person
    who filled in the workbook. at: time of the judgements."""
    with _opened(path) as book:
        sheets = {sheet.title: sheet for sheet in book.worksheets}
        about = _read_about(path, sheets, reviewer, judged)
        errors: list[str] = []
        known = _known(judged, str(about["sample"]), audit)
        answers: list[tuple[Item, Value]] = []
        for title in _ANSWERS:
            if about.get(f"rows of {title}"):
                answers += _read_sheet(title, _read_rows(path, sheets, title), known, errors)
    if errors:
        more = f"\n  and {len(errors) - 200:,} more" if len(errors) > 200 else ""
        listed = "".join(f"\n  {one}" for one in errors[:200])
        raise BadInput(f"{path}: nothing was imported. Correct this first:{listed}{more}")
    return _filled(answers, str(about["by"]), judged, at)


def _read_rows(path: Path, sheets: Mapping[str, Any], title: str) -> Iterator[tuple[Any, ...]]:
    if title not in sheets:
        raise BadInput(f"{path}: the sheet {title!r} is missing (sheets here: {some(sheets)}). Put it back.")
    sheet = sheets[title]
    try:
        sheet.reset_dimensions()  # The file may state a wrong size.
        yield from islice(sheet.iter_rows(max_col=30), MOST_ROWS + 1)
    except Exception as error:  # Openpyxl raises all kinds of errors for damaged sheets.
        raise _damaged(path, error, f"the sheet {title!r} is damaged") from None


def _read_about(path: Path, sheets: Mapping[str, Any], reviewer: str, judged: JudgedSet) -> dict[str, Any]:
    """Return the hidden sheet as name -> value. Raise BadInput unless the workbook was written for this person and for
    the present queries."""
    if ABOUT not in sheets:
        raise BadInput(
            f"{path}: the hidden sheet {ABOUT!r}, which says what was judged, is missing. Fill in the workbook that "
            "`harness testset review via=xlsx output=FILE` wrote, instead of a copy of its rows."
        )
    found = {str(row[0].value): row[1].value for row in _read_rows(path, sheets, ABOUT) if len(row) > 1}
    if found.get("sample") not in ("audit", "repair", "all", "open") or "by" not in found:
        raise BadInput(f"{path}: the hidden sheet {ABOUT!r} has been changed. Undo that.")
    basis, _, name = str(found["by"]).partition(":")
    if basis not in (HUMAN, ADJUDICATED) or name != reviewer:
        raise BadInput(
            f"{path}: the workbook was written for {name or basis:.60}, but the command says reviewer={reviewer}. Give "
            "the right name or file, as each workbook belongs to one reviewer."
        )
    now = {_query_key(query_id): query_id for query_id in judged.queries}
    asked = {row: str(digest) for row, digest in found.items() if row.startswith("r") and " " not in row}
    gone = [row for row in asked if row not in now]
    if asked and len(gone) == len(asked):
        raise BadInput(f"{path}: none of its queries is in this test set. Does it belong to another test set?")
    there = [(now[row], digest) for row, digest in asked.items() if row in now]
    changed = [one for one, digest in there if text_digest(judged.queries[one].query) != digest]
    if changed or gone:
        said = [f"{len(changed)} changed: {some(changed)}"] if changed else []
        said += [f"{len(gone)} are no longer there"] if gone else []
        raise BadInput(
            f"{path}: the workbook was written for another version of the test set. Of the workbook's queries, "
            f"{'; '.join(said)}. Restore these queries, or write a new workbook."
        )
    return found


def _known(judged: JudgedSet, sample: str, audit: AuditSample | None) -> dict[str, Item]:
    """Return id of a row -> item, for all rows that a workbook may have."""
    drawn = {query_id: audit.pi(query_id) for query_id in audit.drawn if query_id in judged.queries} if audit else {}
    found: dict[str, Item] = {}
    for query_id, pairs in judged.pooled.items():
        if sample == "audit" and query_id not in drawn:
            continue
        why = ("audit" if query_id in drawn else "repair") if sample == "open" else sample
        pi = drawn[query_id] if why == "audit" else 1.0
        for again in (1, 2):
            for doc_id in (None, *(one.doc_id for one in pairs)):
                item = Item(query_id, doc_id, again, why, pi)
                found[item.key] = item
    return found


def _read_sheet(
    title: str, rows: Iterator[tuple[Any, ...]], known: Mapping[str, Item], errors: list[str]
) -> list[tuple[Item, Value]]:
    """Return the answers in a sheet; None for blank cells. Append mistakes to `errors`."""
    from openpyxl.utils import get_column_letter

    header = [str(one.value).strip() if one.value is not None else "" for one in next(rows, ())]
    wrong = [name for name in (ID, _ANSWERS[title]) if header.count(name) != 1]
    for name in wrong:
        here = ", ".join(f"{one:.40}" for one in header if one) or "none"
        what = "there twice. Delete one of them" if name in header else "missing. Put it back"
        errors.append(f"{title}!A1: the column {name!r} is {what} (columns here: {here}).")
    if wrong:
        return []
    id_at, answer_at = header.index(ID), header.index(_ANSWERS[title])
    found: list[tuple[Item, Value]] = []
    seen: dict[str, int] = {}
    for number, row in enumerate(rows, start=2):
        given, answer = (row[at] if at < len(row) else None for at in (id_at, answer_at))
        if _is_blank(given) and _is_blank(answer):
            continue
        here = f"{title}!{get_column_letter(id_at + 1)}{number}"
        name = "" if given is None or given.value is None else str(given.value).strip()
        if not name:
            errors.append(f"{here}: the id is missing. Put it back, or delete the row.")
        elif name in seen:
            errors.append(f"{here}: the id {name:.40} is also in row {seen[name]}. Delete one of the rows.")
        elif name not in known or (known[name].doc_id is None) != (title == QUERIES):
            errors.append(
                f"{here}: no question of this test set has the id {name!r:.40}. Put the id back, or delete the row."
            )
        else:
            seen[name] = number
            try:
                found.append((known[name], _answer(title, answer)))
            except ValueError as error:
                where = f"{title}!{get_column_letter(answer_at + 1)}{number}"
                errors.append(f"{where}: {'needs' if title == QUERIES else 'grade'} {error}.")
    return found


def _is_blank(cell: Any) -> bool:
    return cell is None or cell.value is None or (isinstance(cell.value, str) and not cell.value.strip())


def _answer(title: str, cell: Any) -> Value:
    """Return the answer in a cell; None if it is blank. Raise ValueError if it is wrong."""
    if _is_blank(cell):
        return None
    value = cell.value
    if cell.data_type == "f":
        raise ValueError("is a formula. Write its value")
    if isinstance(value, date | time | timedelta):
        raise ValueError(f"is the date or time {value!s:.30}. Format the cell as a number or text")
    if isinstance(value, str):
        value = unicodedata.normalize("NFKC", value).strip()  # Full-width characters become plain ones.
    word = f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value).casefold()
    if word not in _MEANINGS[title]:
        raise ValueError(f"is {value!r:.60}, but must be {', '.join(_CHOICES[title])} or empty")
    return _MEANINGS[title][word]


def _filled(answers: Sequence[tuple[Item, Value]], by: str, judged: JudgedSet, at: str) -> Filled:
    before = {(one.pair, one.round): one for one in judged.judgements if one.by == by}
    new: list[Judgement] = []
    changed = same = empty = kept = 0
    for item, value in answers:
        earlier = before.get((item.pair, item.round))
        if value is None:
            empty, kept = empty + 1, kept + (earlier is not None)
        elif item.value(earlier) == value:
            same += 1
        else:
            changed += earlier is not None
            new.append(item.judgement(judged.queries[item.query_id].query, by, at, value))
    return Filled(tuple(new), changed, same, empty, kept)
