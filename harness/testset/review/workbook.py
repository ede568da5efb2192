"""An Excel workbook in which somebody judges: how to judge, queries, and pairs of a query and a document.

Rows are known by an id that says nothing of who ranked the document or what a model said of it. They may be sorted,
filtered and deleted, and columns inserted; `workbook_reader` reads what was filled in.

Texts as they may stand in a cell of a workbook, and what a person writes into one.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import BadInput
from harness.progress import watch
from harness.testset.judge.judgements import text_digest
from harness.testset.review.desk import Item
from retrievers.base import Document, Query

if TYPE_CHECKING:
    from openpyxl import Workbook

MOST = 32_767  # UTF-16 code units: what Excel keeps of a cell
_CONTROLS = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n"}  # XML has no control characters
_SHOWN = {**_CONTROLS, 0xFFFE: "\ufffd", 0xFFFF: "\ufffd"}
_ESCAPED = re.compile(r"_(?=x[0-9A-Fa-f]{4}_)")  # Excel reads _x0041_ as A
_YES, _NO = frozenset(("yes", "y", "true", "예", "네")), frozenset(("no", "n", "false", "아니요", "아니오"))


def cell_text(text: str, whole: str) -> str:
    """A text for a cell. A control character is shown as a picture of it, such as ␀; a text too long for a cell is cut,
    and ends by saying so. whole: where all of it is."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").translate(_SHOWN)
    text = _ESCAPED.sub("_x005F_", text)
    if _units(text) <= MOST:
        return text
    mark = f"\n[… cut: {len(text):,} characters. All of it: {whole}]"
    room = text.encode("utf-16-le")[: 2 * (MOST - _units(mark))]
    return room.decode("utf-16-le", "ignore") + mark


def _units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def grade_of(value: Any, kind: str) -> int | str:
    """The grade in a cell that is not blank: 0 to 3; "?" if the person cannot tell. ValueError, with what is there
    instead, for anything else. kind: the cell's data type in openpyxl."""
    shown = _plain(value, kind)
    if isinstance(shown, str):
        if shown == "?":
            return shown
        if shown in ("0", "1", "2", "3"):
            return int(shown)
    elif not isinstance(shown, bool) and shown in (0, 1, 2, 3):
        return int(shown)
    raise ValueError(f"is {shown!r:.60}, but must be 0, 1, 2, 3, ? or empty")


def need_of(value: Any, kind: str) -> bool | str:
    """As `grade_of`, for whether a query needs retrieval: true, false or "?"."""
    shown = _plain(value, kind)
    if isinstance(shown, bool) or shown == "?":
        return shown
    word = str(shown).casefold()
    if word in _YES or word in _NO:
        return word in _YES
    raise ValueError(f"is {shown!r:.60}, but must be yes, no, ? or empty")


def blank(value: Any) -> bool:
    """Whether a cell has nothing but white space."""
    return value is None or (isinstance(value, str) and not value.strip())


def _plain(value: Any, kind: str) -> str | float | bool:
    """Text without white space around it and with full-width signs as plain ones, a number or a truth value."""
    if kind == "f":
        raise ValueError("is a formula. Write what it comes to")
    if kind == "e":
        raise ValueError(f"is the error {value!s:.20}")
    if isinstance(value, date | time | timedelta):
        raise ValueError(f"is the date or time {value!s:.30}. Format the cell as a number or text")
    return unicodedata.normalize("NFKC", value).strip() if isinstance(value, str) else value


VERSION = 1
HOW, QUERIES, PAIRS, ABOUT = "how to judge", "queries", "pairs", "about"  # the sheets; the last is hidden
ID, GRADE, NEEDS = "id", "grade · 점수", "needs retrieval? · 검색 필요?"  # the columns that are read
NUMBER, QUERY, DOCUMENT = "query no.", "query · 질의", "document · 문서"
MOST_ROWS = 1_048_575  # of a sheet, below its header
GUIDE = (
    ("How to judge", "판정 방법"),
    (
        "Fill in the last column of the sheets “queries” and “pairs”. Rows may be sorted, filtered or left empty.",
        "‘queries’와 ‘pairs’ 시트의 마지막 열을 채워 주세요. 행은 정렬하거나 걸러도 되고, 비워 두어도 됩니다.",
    ),
    ("", ""),
    (
        "queries: does one have to look something up to reply to the last message?",
        "queries: 마지막 말에 답하려면 자료를 찾아보아야 합니까?",
    ),
    ("yes: one has to look something up.", "yes: 자료를 찾아보아야 한다."),
    (
        "no: a greeting, thanks, a request to translate or calculate … Leave its rows in “pairs” empty.",
        "no: 인사, 감사, 번역이나 계산 부탁 … 이 질의의 ‘pairs’ 행은 비워 둔다.",
    ),
    ("?: you cannot tell.", "?: 판단할 수 없다."),
    ("", ""),
    ("pairs: how well does the document answer the query?", "pairs: 문서가 질의에 얼마나 잘 답합니까?"),
    ("0: it has nothing to do with the query.", "0: 질의와 관련이 없다."),
    ("1: it is about the same subject, but does not answer.", "1: 주제는 같지만 답이 없다."),
    (
        "2: it answers in part, or the answer is unclear or hidden among other things.",
        "2: 답이 일부만 있거나, 분명하지 않거나, 다른 내용에 섞여 있다.",
    ),
    ("3: it is about the query and contains the whole answer.", "3: 질의에 관한 문서이고 답이 모두 들어 있다."),
    ("?: you cannot tell.", "?: 판단할 수 없다."),
    ("", ""),
    (
        "Judge by what the document says, not by what you know. Do not change the column “id”.",
        "알고 있는 것이 아니라 문서에 적힌 것만으로 판정해 주세요. ‘id’ 열은 바꾸지 마세요.",
    ),
)


@dataclass(frozen=True)
class Questions:
    """What a workbook asks.

    by: who is asked, such as human:kim. sample: why. items: in the order of the rows.
    queries: query_id -> query. documents: doc_id -> document. place: of all documents, for texts too long for a cell.
    """

    by: str
    sample: str
    items: Sequence[Item]
    queries: Mapping[str, Query]
    documents: Mapping[str, Document]
    place: str


def row_id(query_id: str, doc_id: str | None, again: int) -> str:
    """The id of a row. It begins with a letter, so that no program takes it for a number. again: the round."""
    return "r" + hashlib.sha256(f"{query_id}\0{doc_id or ''}\0{again}".encode()).hexdigest()[:15]


def conversation(query: Query) -> str:
    """The turns of a query, each after who speaks; of a single question, its text alone."""
    if len(query.turns) == 1:
        return query.turns[0].content
    return "\n".join(f"[{turn.role}] {turn.content}" for turn in query.turns)


def write_workbook(path: Path, asked: Questions) -> None:
    """Write the workbook. BadInput if the file exists: what somebody filled in is never overwritten."""
    if path.suffix.lower() != ".xlsx":
        raise BadInput(f"output={path}: a workbook is a file .xlsx. Name it {path.with_suffix('.xlsx').name}.")
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
    order = {query_id: place for place, query_id in enumerate(dict.fromkeys(one.query_id for one in asked.items), 1)}
    texts = {query_id: conversation(asked.queries[query_id]) for query_id in order}
    needs = [one for one in asked.items if one.doc_id is None]
    pairs = [one for one in asked.items if one.doc_id is not None]
    with watch("writing rows") as progress:
        done = 0

        def counted(rows: Iterable[list[Any]]) -> Iterator[list[Any]]:
            nonlocal done
            for row in rows:
                done += 1
                progress(done, len(asked.items), "rows")
                yield row

        for title, several, header in (
            (QUERIES, needs, (NUMBER, QUERY, NEEDS)),
            (PAIRS, pairs, (NUMBER, QUERY, DOCUMENT, GRADE)),
        ):
            if several:
                _sheet(book, title, header, counted(_rows(several, order, texts, asked)), len(several))
    _about(book, asked, order)
    return book


def _rows(
    items: Sequence[Item], order: Mapping[str, int], texts: Mapping[str, str], asked: Questions
) -> Iterator[list[Any]]:
    """Yield the rows of a sheet: id, number, query, document if it is about one, and an empty answer."""
    for one in items:
        text = cell_text(texts[one.query_id], f"queries.jsonl, {one.query_id}")
        row = [row_id(one.query_id, one.doc_id, one.round), order[one.query_id], text]
        if one.doc_id is not None:
            document = asked.documents[one.doc_id]
            whole = f"{document.title}\n\n{document.text}" if document.title else document.text
            row.append(cell_text(whole, f"{asked.place}, {document.doc_id}"))
        yield [*row, None]


_WIDTHS = {ID: 8, NUMBER: 7, QUERY: 45, DOCUMENT: 100, GRADE: 12, NEEDS: 18}  # in characters
_CHOICES = {GRADE: "0,1,2,3,?", NEEDS: "yes,no,?"}


def _sheet(book: Workbook, title: str, columns: Sequence[str], rows: Iterable[list[Any]], count: int) -> None:
    """A sheet with a header that stays in sight, and a drop-down in its last column."""
    from openpyxl.utils import get_column_letter
    from openpyxl.worksheet.datavalidation import DataValidation

    header = (ID, *columns)
    sheet = book.create_sheet(title)
    for number, name in enumerate(header, start=1):
        sheet.column_dimensions[get_column_letter(number)].width = _WIDTHS[name]
    last = get_column_letter(len(header))
    choice = DataValidation("list", formula1=f'"{_CHOICES[header[-1]]}"', allow_blank=True, showErrorMessage=True)
    choice.errorTitle, choice.error = header[-1], f"Choose one of {_CHOICES[header[-1]]}, or leave the cell empty."
    choice.add(f"{last}2:{last}{count + 1}")
    sheet.data_validations.append(choice)
    sheet.freeze_panes = "A2"
    sheet.auto_filter.ref = f"A1:{last}{count + 1}"
    cells = _Cells(sheet)
    sheet.append([cells.header(name) for name in header])
    for row in rows:
        sheet.append(cells.row(row))


class _Cells:
    """Styled cells of a sheet. Each style is made once and shared, which takes half of the time."""

    def __init__(self, sheet: Any) -> None:
        from openpyxl.cell import WriteOnlyCell
        from openpyxl.styles import Alignment, Font, PatternFill, Protection

        self._make: Any = WriteOnlyCell
        self._sheet = sheet
        wrapped = Alignment(wrap_text=True, vertical="top")
        grey = PatternFill("solid", fgColor="E7E6E6")
        self._header = self._style(font=Font(bold=True), fill=grey, alignment=wrapped)
        self._id = self._style(font=Font(color="808080", size=8), fill=grey, alignment=Alignment(vertical="top"))
        self._text = self._style(alignment=wrapped, quotePrefix=True)
        self._plain = self._style(alignment=Alignment(vertical="top"))
        self._answer = self._style(
            alignment=Alignment(horizontal="center", vertical="top"), protection=Protection(locked=False)
        )

    def _style(self, **parts: Any) -> Any:
        cell = self._make(self._sheet, None)
        for name, value in parts.items():
            setattr(cell, name, value)
        return cell._style

    def header(self, name: str) -> Any:
        return self._cell(name, self._header)

    def row(self, values: Sequence[Any]) -> list[Any]:
        """The cells of a row: its id, numbers and texts, and the answer at the end."""
        middle = [self._cell(one, self._text if isinstance(one, str) else self._plain) for one in values[1:-1]]
        return [self._cell(values[0], self._id), *middle, self._cell(values[-1], self._answer)]

    def _cell(self, value: Any, style: Any) -> Any:
        cell = self._make(self._sheet, value)
        if isinstance(value, str):
            cell.data_type = "s"  # whatever it begins with: a text is no formula
        cell._style = style
        return cell


def _guide(book: Workbook) -> None:
    from openpyxl.cell import WriteOnlyCell
    from openpyxl.styles import Alignment, Font

    sheet = book.create_sheet(HOW)
    for letter in "AB":
        sheet.column_dimensions[letter].width = 70
    for number, texts in enumerate(GUIDE):
        row = [WriteOnlyCell(sheet, text) for text in texts]
        for cell in row:
            cell.alignment = Alignment(wrap_text=True, vertical="top")
            cell.font = Font(bold=number == 0, size=14 if number == 0 else 11)
        sheet.append(row)


def _about(book: Workbook, asked: Questions, order: Iterable[str]) -> None:
    """What the reader checks: for whom and what the workbook was written, and the queries as they were."""
    sheet = book.create_sheet(ABOUT)
    sheet.sheet_state = "hidden"
    sheet.append(["version", VERSION])
    sheet.append(["by", asked.by])
    sheet.append(["sample", asked.sample])
    for title, none in ((QUERIES, True), (PAIRS, False)):
        sheet.append([f"rows of {title}", sum((one.doc_id is None) == none for one in asked.items)])
    for query_id in order:
        sheet.append([row_id(query_id, None, 1), text_digest(asked.queries[query_id])])
