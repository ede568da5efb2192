"""The workbook: what a person sees in it, and what comes back."""

import datetime
import io
import zipfile
from dataclasses import dataclass, replace

import openpyxl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judged_sets import AT, judged_set
from text_files import zipped

from harness.errors import BadInput
from harness.testset.audit.auditing import draw_sample
from harness.testset.judge.judgements import JudgedSet, JudgementLog, read_judged_set
from harness.testset.review import workbook
from harness.testset.review.desk import Item, items
from harness.testset.review.workbook import (
    ABOUT,
    GRADE,
    ID,
    MOST,
    NEEDS,
    PAIRS,
    QUERIES,
    Questions,
    cell_text,
    read_workbook,
    write_workbook,
)
from retrievers.base import Document, Query


@dataclass
class Workbook:
    made: object
    judged: JudgedSet
    audit: object
    asked: object

    def write(self, path, by="human:kim", sample="audit"):
        write_workbook(path, questions(self, by, sample))
        return path

    def read(self, path, reviewer="kim"):
        return read_workbook(path, reviewer, self.judged, self.audit, AT)


def questions(one, by, sample):
    documents = {doc_id: Document(doc_id, f"text of {doc_id}", "title") for ids in one.made.doc_ids for doc_id in ids}
    return Questions(by, sample, [*one.asked], one.made.queries, documents, "docs/documents.jsonl")


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Ten queries, of which eight are audited."""
    made = judged_set(tmp_path_factory.mktemp("set"), topics=10)
    made.pool()
    made.judge("llm:judge#01")
    judged = read_judged_set(made.folder)
    audit = draw_sample(None, judged, 8, 0)
    return Workbook(made, judged, audit, items("audit", "kim", judged, audit))


@pytest.fixture(scope="module")
def blank(small, tmp_path_factory):
    """The workbook before anybody has filled it in."""
    return small.write(tmp_path_factory.mktemp("book") / "blank.xlsx")


def column(sheet, name):
    """The number of a column, from 1."""
    return [cell.value for cell in sheet[1]].index(name) + 1


def fill(book, answers=None):
    """Answer every question: the needs with yes, and grades from 0 to 3 in turn. answers: (sheet, row) -> value."""
    for title, name in ((QUERIES, NEEDS), (PAIRS, GRADE)):
        sheet = book[title]
        for row in range(2, sheet.max_row + 1):
            value = "yes" if title == QUERIES else row % 4
            sheet.cell(row, column(sheet, name)).value = (answers or {}).get((title, row), value)
    return book


def changed(blank, tmp_path, change):
    """A filled workbook that somebody has changed."""
    book = fill(openpyxl.load_workbook(blank))
    change(book)
    book.save(tmp_path / "filled.xlsx")
    return tmp_path / "filled.xlsx"


def test_a_person_finds_what_to_do(blank, small):
    book = openpyxl.load_workbook(blank)
    assert book.sheetnames == ["how to judge", QUERIES, PAIRS, ABOUT]
    assert book[ABOUT].sheet_state == "hidden"
    guide = " ".join(cell.value or "" for row in book["how to judge"] for cell in row)
    assert "0: It has nothing to do" in guide
    assert "0: 묻는 것과 관계가 없습니다" in guide
    for title, choices in ((QUERIES, '"yes,no,?"'), (PAIRS, '"0,1,2,3,?"')):
        sheet = book[title]
        last = sheet.cell(1, sheet.max_column).column_letter
        [choice] = sheet.data_validations.dataValidation
        assert (choice.type, choice.formula1, str(choice.sqref)) == ("list", choices, f"{last}2:{last}{sheet.max_row}")
        assert choice.allow_blank
        assert choice.showErrorMessage
        assert not choice.showDropDown  # which hides the arrow
        assert sheet.freeze_panes == "A2"
        assert not sheet.protection.sheet
        texts = [cell for cell in sheet[2] if isinstance(cell.value, str) and cell.column > 1]
        assert all(
            cell.alignment.wrap_text and sheet.column_dimensions[cell.column_letter].width > 40 for cell in texts
        )
        assert sheet.cell(2, 1).fill.fgColor.rgb.endswith("E7E6E6")
        assert not sheet.cell(2, sheet.max_column).protection.locked
    rows = list(book[PAIRS].iter_rows(min_row=2, values_only=True))
    assert [row[1] for row in rows] == sorted(row[1] for row in rows), "documents stand together with their query"
    assert "[user] 가람" in " ".join(row[2] for row in rows), "a conversation says who speaks"
    assert len(rows) + book[QUERIES].max_row - 1 == len(small.asked)


def test_nothing_in_it_tells_who_ranked_a_document_or_what_a_model_said(small, blank):
    """The same questions, with other ranks, seeds and grades, give the same cells."""
    told = small.judged
    other = JudgedSet(told.queries, [type(one)(one.query_id, one.doc_id) for one in told.pairs], ())
    again = items("audit", "kim", other, small.audit)
    assert [*again] == [*small.asked]
    cells = [[cell.value for cell in row] for sheet in openpyxl.load_workbook(blank) for row in sheet]
    said = {str(value) for row in cells for value in row}
    for word in (*small.made.query_ids, "bm25-invented", "a" * 32, "judge#01"):
        assert not any(word in one for one in said)


def test_what_was_filled_in_becomes_judgements(small, blank, tmp_path):
    path = changed(blank, tmp_path, lambda book: None)
    found = small.read(path)
    assert len(found.new) == len(small.asked)
    assert (found.changed, found.same, found.empty, found.kept) == (0, 0, 0, 0)
    by_pair = {one.pair: one for one in found.new}
    rows = openpyxl.load_workbook(path)[PAIRS].iter_rows(min_row=2, values_only=True)
    graded = {row[0]: row[-1] for row in rows}
    for item in small.asked:
        said = by_pair[item.pair]
        assert (said.by, said.sample, said.pi, said.round) == ("human:kim", "audit", item.pi, 1)
        if item.doc_id is None:
            assert (said.needs, said.grade) == (True, None)
        else:
            assert (said.needs, said.grade) == (None, graded[item.key])


def test_reading_twice_adds_nothing_and_a_changed_grade_replaces_one(tmp_path):
    made = judged_set(tmp_path, topics=3)
    made.pool()
    judged = read_judged_set(made.folder)
    one = Workbook(made, judged, None, items("all", "kim", judged))
    one.write(tmp_path / "b.xlsx", sample="all")
    book = fill(openpyxl.load_workbook(tmp_path / "b.xlsx"))
    book.save(tmp_path / "filled.xlsx")
    first = one.read(tmp_path / "filled.xlsx")
    JudgementLog(made.folder).append(first.new)
    one.judged = read_judged_set(made.folder)
    again = one.read(tmp_path / "filled.xlsx")
    assert (again.new, again.same) == ((), len(first.new))
    sheet = book[PAIRS]
    sheet.cell(2, sheet.max_column).value = "?"
    sheet.cell(3, sheet.max_column).value = None
    book.save(tmp_path / "filled.xlsx")
    third = one.read(tmp_path / "filled.xlsx")
    assert [one.grade for one in third.new] == [None]
    assert (third.changed, third.empty, third.kept) == (1, 1, 1)


def _shuffled(book):
    """Columns in another order, rows sorted, a column inserted, one deleted that is not needed."""
    for title in (QUERIES, PAIRS):
        sheet = book[title]
        rows = [[cell.value for cell in row] for row in sheet]
        body = sorted(rows[1:], key=lambda row: row[-1] if isinstance(row[-1], str) else str(row[-1]))
        mixed = [[row[-1], "a note", *row[2:-1], row[0]] for row in [rows[0], *body]]
        sheet.delete_rows(1, sheet.max_row)
        for row in mixed:
            sheet.append(row)


def test_sorted_rows_moved_columns_and_another_program_change_nothing(small, blank, tmp_path):
    plain = {one.pair: one for one in small.read(changed(blank, tmp_path, lambda book: None)).new}
    moved = {one.pair: one for one in small.read(changed(blank, tmp_path, _shuffled)).new}
    assert moved == plain


def test_deleted_rows_and_empty_cells_are_not_judged(small, blank, tmp_path):
    def change(book):
        book[PAIRS].delete_rows(2, 3)
        book[QUERIES].cell(2, column(book[QUERIES], NEEDS)).value = "  "
        book[PAIRS].append([None, None, None, None, None])

    found = small.read(changed(blank, tmp_path, change))
    assert (len(found.new), found.empty) == (len(small.asked) - 4, 1)


@pytest.mark.parametrize(
    ("title", "written", "means"),
    [
        *((PAIRS, written, 2) for written in (2, 2.0, "2", " 2 ", "２")),
        *((PAIRS, written, None) for written in ("?", "？")),
        *((QUERIES, written, True) for written in ("yes", "예", True)),
        *((QUERIES, written, False) for written in ("NO", "아니요")),
        (QUERIES, "?", None),
    ],
)
def test_ways_to_write_an_answer(small, blank, tmp_path, title, written, means):
    path = changed(blank, tmp_path, put(title, GRADE if title == PAIRS else NEEDS, 2, written))
    [item] = [one for one in small.asked if one.key == openpyxl.load_workbook(path)[title].cell(2, 1).value]
    [found] = [one for one in small.read(path).new if one.pair == item.pair]
    assert (found.grade if title == PAIRS else found.needs) == means


NASTY = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
    st.sampled_from(["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "a\x00b", "\x0b", "_x0041_", "שלום",
                     "😀" * 20_000, "가" * 40_000, "a\nb\r\nc", "\ufffe", "\uffff", " lead", "trail ", "1e5", "TRUE"]),
)  # fmt: skip


@settings(max_examples=15, deadline=None)
@given(texts=st.lists(NASTY, min_size=3, max_size=3))
def test_any_text_stays_a_text(texts, tmp_path_factory):
    path = tmp_path_factory.mktemp("nasty") / "b.xlsx"
    asked = [Item("q", None, 1, "all", 1.0), Item("q", "d", 1, "all", 1.0)]
    text, title, query = texts
    documents = {"d": Document("d", text, title)}
    write_workbook(path, Questions("human:kim", "all", asked, {"q": Query.of("q", query)}, documents, "docs"))
    book = openpyxl.load_workbook(path)
    for title_, place, whole in (
        (PAIRS, 4, f"{title}\n\n{text}" if title else text),
        (PAIRS, 3, query),
        (QUERIES, 3, query),
    ):
        cell = book[title_].cell(2, place)
        assert cell.value is None or (cell.data_type == "s" and cell.quotePrefix)
        shown = cell.value or ""
        assert len(shown.encode("utf-16-le")) // 2 <= MOST
        assert shown in (cell_text(whole, "docs, d"), cell_text(whole, "queries.jsonl, q"))


def test_what_a_cell_cannot_hold_is_seen():
    assert cell_text("a\x00b\x1f\r\nc\ufffe", "x") == "a␀b␟\nc\ufffd"
    assert cell_text("_x0041_", "x") == "_x005F_x0041_"  # Excel shows _x0041_ again
    long = cell_text("😀" * 20_000, "docs/documents.jsonl, 5ab")
    assert long.endswith("[… cut: 20,000 characters. All of it: docs/documents.jsonl, 5ab]")
    assert len(long.encode("utf-16-le")) // 2 <= MOST


def put(title, name, row, value):
    def change(book):
        book[title].cell(row, column(book[title], name)).value = value

    return change


def about(name, value):
    def change(book):
        [row] = [row for row in book[ABOUT] if row[0].value == name]
        row[1].value = value

    return change


def repeat_a_row(book):
    book[PAIRS].append([cell.value for cell in book[PAIRS][2]])


def drop(title, name):
    return lambda book: book[title].delete_cols(column(book[title], name))


def rename(title, name, to):
    return put(title, name, 1, to)


def double(book):
    book[PAIRS].cell(1, 7).value = GRADE


WRONG = {
    "a grade of 7": (put(PAIRS, GRADE, 3, 7), "pairs!E3: grade is 7, but must be 0, 1, 2, 3, ? or empty."),
    "a grade of 2.5": (put(PAIRS, GRADE, 3, 2.5), "pairs!E3: grade is 2.5"),
    "a grade of -1": (put(PAIRS, GRADE, 3, -1), "pairs!E3: grade is -1"),
    "a word": (put(PAIRS, GRADE, 3, "good"), "pairs!E3: grade is 'good'"),
    "true": (put(PAIRS, GRADE, 3, True), "pairs!E3: grade is True"),
    "a date": (put(PAIRS, GRADE, 3, datetime.datetime(2026, 1, 2)), "pairs!E3: grade is the date or time 2026-01-02"),
    "a formula": (put(PAIRS, GRADE, 3, "=1+1"), "pairs!E3: grade is a formula. Write its value."),
    "a need of maybe": (put(QUERIES, NEEDS, 2, "maybe"), "queries!D2: needs is 'maybe', but must be yes, no, ?"),
    "a need of 2": (put(QUERIES, NEEDS, 2, 2), "queries!D2: needs is 2"),
    "an id changed": (put(PAIRS, ID, 4, "r0123"), "pairs!A4: no question of this test set has the id 'r0123'"),
    "an id deleted": (put(PAIRS, ID, 4, None), "pairs!A4: the id is missing. Put it back, or delete the row."),
    "a row copied": (repeat_a_row, "is also in row 2. Delete one of the rows."),
    "the id of another sheet": (lambda book: put(PAIRS, ID, 4, book[QUERIES]["A2"].value)(book), "pairs!A4: no"),
    "no column of grades": (drop(PAIRS, GRADE), "pairs!A1: the column 'grade · 점수' is missing. Put it back (columns"),
    "no column of ids": (drop(QUERIES, ID), "queries!A1: the column 'id' is missing"),
    "a column renamed": (rename(PAIRS, GRADE, "grades · 점수"), "the column 'grade · 점수' is missing"),
    "two columns of grades": (double, "the column 'grade · 점수' is there twice. Delete one of them"),
    "a sheet deleted": (lambda book: book.remove(book[PAIRS]), "the sheet 'pairs' is missing (sheets here: how"),
    "a sheet renamed": (lambda book: setattr(book[QUERIES], "title", "x"), "the sheet 'queries' is missing"),
    "rows moved to another file": (lambda book: book.remove(book[ABOUT]), "the hidden sheet 'about' is missing"),
    "the hidden sheet changed": (about("sample", "mine"), "the hidden sheet 'about' has been changed. Undo that."),
    "another person's": (about("by", "human:lee"), "was written for lee, but the command says reviewer=kim"),
    "a model's": (about("by", "llm:kim"), "the command says reviewer=kim"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_cells_are_named(name, small, blank, tmp_path):
    change, says = WRONG[name]
    path = changed(blank, tmp_path, change)
    with pytest.raises(BadInput) as refused:
        small.read(path)
    assert says in str(refused.value)
    assert str(refused.value).startswith(str(path))


def test_all_that_is_wrong_is_said_at_once(small, blank, tmp_path):
    def change(book):
        for row in range(2, 42):
            put(PAIRS, GRADE, row, 7)(book)
        put(QUERIES, NEEDS, 2, 7)(book)

    with pytest.raises(BadInput) as refused:
        small.read(changed(blank, tmp_path, change))
    lines = str(refused.value).splitlines()
    assert "queries!D2" in lines[1]
    assert [line.split(":")[0].strip() for line in lines[2:]] == [f"pairs!E{row}" for row in range(2, 42)]


def test_another_version_of_the_test_set_is_refused(small, blank, tmp_path):
    path = changed(blank, tmp_path, lambda book: None)
    first, second, *_ = (one.query_id for one in small.asked if one.doc_id is None)
    queries = dict(small.judged.queries)
    queries[first] = replace(queries[first], query=Query.of(first, "changed"))
    edited = Workbook(small.made, JudgedSet(queries, small.judged.pairs, ()), small.audit, small.asked)
    with pytest.raises(BadInput, match=f"another version of the test set; of its queries, 1 changed: {first}"):
        edited.read(path)
    del queries[second], queries[first]
    edited.judged = JudgedSet(queries, small.judged.pairs, ())
    with pytest.raises(BadInput, match="of its queries, 2 are no longer there"):
        edited.read(path)
    edited.judged = JudgedSet({}, (), ())
    with pytest.raises(BadInput, match="none of its queries is in this test set"):
        edited.read(path)


def packed(blank, edit):
    """The bytes of a workbook whose parts have been changed. edit: name, bytes -> bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(blank) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, edit(name, old.read(name)))
    return out.getvalue()


def in_part(part, old, new):
    return lambda name, content: content.replace(old, new) if name.endswith(part) else content


def hidden_workbook(blank):
    """A workbook whose main part, which is read whole, stands among the sheets and is large."""
    out = io.BytesIO()
    moved = {"xl/workbook.xml": "xl/worksheets/wb.xml", "xl/_rels/workbook.xml.rels": "xl/worksheets/_rels/wb.xml.rels"}
    with zipfile.ZipFile(blank) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            content = old.read(name).replace(b"xl/workbook.xml", b"xl/worksheets/wb.xml")
            if name == "xl/workbook.xml":
                content = content.replace(b"<sheets", b"<a>" + b"<a/>" * (5 << 20) + b"</a><sheets")
            new.writestr(moved.get(name, name), content)
    return out.getvalue()


LAUGHS = b'<!DOCTYPE lolz [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]><worksheet'
TYPES = '<Types><Override PartName="/xl/t.xml" ContentType="sheet.sharedStrings+xml"/></Types>'
OTHER = {
    "no zip": (lambda blank: b"id,grade\nr1,2\n", "not a whole Excel workbook"),
    "half of it": (lambda blank: blank.read_bytes()[:3000], "not a whole Excel workbook"),
    "an empty file": (lambda blank: b"", "not a whole Excel workbook"),
    "encrypted": (lambda blank: b"\xd0\xcf\x11\xe0" + bytes(600), "is encrypted or an old .xls"),
    "another zip": (lambda blank: zipped({"a.xml": "<a/>"}), "not a whole Excel workbook (KeyError"),
    "laughs": (lambda blank: packed(blank, in_part("sheet2.xml", b"<worksheet", LAUGHS)), "declares a document type"),
    "broken XML": (lambda blank: packed(blank, in_part("sheet3.xml", b"</sheetData>", b"<")), "(ParseError"),
    "no XML": (lambda blank: packed(blank, in_part("workbook.xml", b"<", b"[")), "broken XML"),
    "a bomb": (lambda blank: zipped({"xl/styles.xml": b"<a>" + bytes(17 << 20)}), "unpacks to more than 16 MB"),
    "long texts": (lambda blank: zipped({"[Content_Types].xml": TYPES, "xl/t.xml": b"<a>" + bytes(2 << 20)}),
                   "xl/t.xml unpacks to more than 1 MB"),
    "a workbook among the sheets": (hidden_workbook, "xl/worksheets/wb.xml unpacks to more than 16 MB"),
    "types that are no XML": (lambda blank: zipped({"[Content_Types].xml": "<a"}), "broken XML"),
    "packed otherwise": (lambda blank: zipped({"a.xml": "<a/>"}, zipfile.ZIP_BZIP2), "packed in a way that"),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER)
def test_what_is_no_workbook_is_refused(name, small, blank, tmp_path, monkeypatch):
    monkeypatch.setitem(workbook._LARGE, "sharedStrings+xml", 1 << 20)
    make, says = OTHER[name]
    path = tmp_path / "filled.xlsx"
    path.write_bytes(make(blank))
    with pytest.raises(BadInput) as refused:
        small.read(path)
    assert says in str(refused.value)
    assert "filled.xlsx" in str(refused.value)


def test_a_sheet_that_lies_about_its_size_is_read_at_once(small, blank, tmp_path):
    """A file may say that it has 17 thousand million cells, and may have one in its last corner."""
    corner = b'<row r="1048576"><c r="XFD1048576" t="inlineStr"><is><t>x</t></is></c></row></sheetData>'
    content = packed(blank, in_part("sheet3.xml", b"</sheetData>", corner))
    (tmp_path / "filled.xlsx").write_bytes(content)
    assert small.read(tmp_path / "filled.xlsx").new == ()
