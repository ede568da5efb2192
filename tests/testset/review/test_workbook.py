"""The workbook: what a person sees in it, and what comes back."""

import datetime
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
from harness.testset.judge.judgements import JudgedSet, read_judged_set
from harness.testset.review import workbook
from harness.testset.review.desk import Item, items
from harness.testset.review.workbook import (
    ABOUT,
    DOCUMENT,
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

    def write(self, path):
        ids = (doc_id for row in self.made.doc_ids for doc_id in row)
        documents = {doc_id: Document(doc_id, f"text of {doc_id}", "title") for doc_id in ids}
        questions = Questions("human:kim", "audit", [*self.asked], self.made.queries, documents, "docs/documents.jsonl")
        write_workbook(path, questions)
        return path

    def read(self, path, reviewer="kim"):
        return read_workbook(path, reviewer, self.judged, self.audit, AT)


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


def place(sheet, name, row):
    """The cell of a row in the column with this name."""
    return sheet.cell(row, [cell.value for cell in sheet[1]].index(name) + 1)


def fill(book):
    """Answer every question: the needs with yes, and grades from 0 to 3 in turn."""
    for title, name in ((QUERIES, NEEDS), (PAIRS, GRADE)):
        for row in range(2, book[title].max_row + 1):
            place(book[title], name, row).value = "yes" if title == QUERIES else row % 4
    return book


def changed(blank, tmp_path, change=lambda book: None):
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
        assert (choice.allow_blank, choice.showErrorMessage, choice.showDropDown) == (
            True,
            True,
            False,
        )  # True hides it
        assert (sheet.freeze_panes, sheet.protection.sheet) == ("A2", False)
        assert all(one.alignment.wrap_text for one in sheet[2] if isinstance(one.value, str) and one.column > 1)
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
    path = changed(blank, tmp_path)
    found = small.read(path)
    assert (len(found.new), found.changed, found.same, found.empty, found.kept) == (len(small.asked), 0, 0, 0, 0)
    by_pair = {one.pair: one for one in found.new}
    rows = openpyxl.load_workbook(path)[PAIRS].iter_rows(min_row=2, values_only=True)
    graded = {row[0]: row[-1] for row in rows}
    for item in small.asked:
        said = by_pair[item.pair]
        assert (said.by, said.sample, said.pi, said.round) == ("human:kim", "audit", item.pi, 1)
        assert (said.needs, said.grade) == ((True, None) if item.doc_id is None else (None, graded[item.key]))

    def mixed(book):
        """Columns in another order, rows sorted, a column inserted, one deleted that is not needed."""
        for title in (QUERIES, PAIRS):
            head, *body = [[cell.value for cell in row] for row in book[title]]
            book[title].delete_rows(1, len(body) + 1)
            for row in [head, *sorted(body, key=lambda row: str(row[-1]))]:
                book[title].append([row[-1], "a note", *row[2:-1], row[0]])

    assert {one.pair: one for one in small.read(changed(blank, tmp_path, mixed)).new} == by_pair


def test_reading_twice_adds_nothing_and_a_changed_grade_replaces_one(small, blank, tmp_path):
    first = small.read(changed(blank, tmp_path))
    known = JudgedSet(small.judged.queries, small.judged.pairs, [*small.judged.judgements, *first.new])
    later = replace(small, judged=known)
    again = later.read(changed(blank, tmp_path))
    assert (again.new, again.same) == ((), len(first.new))

    def change(book):
        place(book[PAIRS], GRADE, 2).value = "?"
        place(book[PAIRS], GRADE, 3).value = None

    third = later.read(changed(blank, tmp_path, change))
    assert [one.grade for one in third.new] == [None]
    assert (third.changed, third.empty, third.kept) == (1, 1, 1)


WAYS = {  # ways to write an answer, and what they mean
    PAIRS: [*((written, 2) for written in (2, 2.0, "2", " 2 ", "２")), ("?", None), ("？", None)],
    QUERIES: [("yes", True), ("예", True), (True, True), ("NO", False), ("아니요", False), ("?", None), (" ", "empty")],
}


def test_ways_to_write_an_answer_and_to_give_none(small, blank, tmp_path):
    keys = {}

    def change(book):
        for title, ways in WAYS.items():
            for row, (written, means) in enumerate(ways, start=2):
                place(book[title], GRADE if title == PAIRS else NEEDS, row).value = written
                keys[book[title].cell(row, 1).value] = means
        book[PAIRS].delete_rows(20, 3)
        book[PAIRS].append([None] * 5)

    found = small.read(changed(blank, tmp_path, change))
    assert (len(found.new), found.empty) == (len(small.asked) - 4, 1)
    said = {one.pair: one.needs if one.doc_id is None else one.grade for one in found.new}
    asked = {one.key: one.pair for one in small.asked}
    assert {key: said.get(asked[key], "empty") for key in keys} == keys


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
    whole = f"{title}\n\n{text}" if title else text
    shown = {"D2": cell_text(whole, "docs, d"), "C2": cell_text(query, "queries.jsonl, q")}
    for cell, expected in [(book[PAIRS][at], said) for at, said in shown.items()] + [
        (book[QUERIES]["C2"], shown["C2"])
    ]:
        assert cell.value is None or (cell.data_type == "s" and cell.quotePrefix)
        assert (cell.value or "") == expected
        assert len(expected.encode("utf-16-le")) // 2 <= MOST


def test_what_a_cell_cannot_hold_is_seen():
    assert cell_text("a\x00b\x1f\r\nc\ufffe", "x") == "a␀b␟\nc\ufffd"
    assert cell_text("_x0041_", "x") == "_x005F_x0041_"  # Excel shows _x0041_ again
    long = cell_text("😀" * 20_000, "docs/documents.jsonl, 5ab")
    assert long.endswith("[… cut: 20,000 characters. All of it: docs/documents.jsonl, 5ab]")
    assert len(long.encode("utf-16-le")) // 2 <= MOST


CELLS = [  # a cell, what stands in it, and what is said of it
    (QUERIES, NEEDS, "maybe", "queries!D2: needs is 'maybe', but must be yes, no, ? or empty."),
    (QUERIES, NEEDS, 2, "queries!D3: needs is 2, but must be yes, no, ? or empty."),
    (PAIRS, GRADE, 7, "pairs!E2: grade is 7, but must be 0, 1, 2, 3, ? or empty."),
    (PAIRS, GRADE, 2.5, "pairs!E3: grade is 2.5, but must be"),
    (PAIRS, GRADE, -1, "pairs!E4: grade is -1, but must be"),
    (PAIRS, GRADE, "good", "pairs!E5: grade is 'good', but must be"),
    (PAIRS, GRADE, True, "pairs!E6: grade is True, but must be"),
    (PAIRS, GRADE, datetime.datetime(2026, 1, 2), "pairs!E7: grade is the date or time 2026-01-02"),
    (PAIRS, GRADE, "=1+1", "pairs!E8: grade is a formula. Write its value."),
    (PAIRS, ID, "r0123", "pairs!A9: no question of this test set has the id 'r0123'"),
    (PAIRS, ID, None, "pairs!A10: the id is missing. Put it back, or delete the row."),
    (PAIRS, ID, "of a query", "pairs!A11: no question of this test set has the id 'r"),
    (PAIRS, ID, "copied", " is also in row 12. Delete one of the rows."),
]


def test_all_wrong_cells_are_named_at_once(small, blank, tmp_path):
    def change(book):
        rows = {QUERIES: 2, PAIRS: 2}
        ids = {"of a query": book[QUERIES]["A2"].value, "copied": book[PAIRS]["A13"].value}
        for title, name, value, _ in CELLS:
            place(book[title], name, rows[title]).value = ids.get(value, value)
            rows[title] += 1

    with pytest.raises(BadInput) as refused:
        small.read(changed(blank, tmp_path, change))
    first, *lines = str(refused.value).splitlines()
    assert first.startswith(f"{tmp_path / 'filled.xlsx'}: nothing was imported.")
    assert [said in line for (*_, said), line in zip(CELLS, lines, strict=True)] == [True] * len(CELLS), lines


def about(name, value):
    def change(book):
        [row] = [row for row in book[ABOUT] if row[0].value == name]
        row[1].value = value

    return change


def head(title, name, to):
    return lambda book: setattr(place(book[title], name, 1), "value", to)


WRONG = [
    (head(PAIRS, GRADE, "grades"), "pairs!A1: the column 'grade · 점수' is missing. Put it back (columns here: id"),
    (lambda book: book[QUERIES].delete_cols(1), "queries!A1: the column 'id' is missing"),
    (head(PAIRS, DOCUMENT, GRADE), "the column 'grade · 점수' is there twice. Delete one of them"),
    (lambda book: book.remove(book[PAIRS]), "the sheet 'pairs' is missing (sheets here: how"),
    (lambda book: setattr(book[QUERIES], "title", "x"), "the sheet 'queries' is missing"),
    (lambda book: book.remove(book[ABOUT]), "the hidden sheet 'about', which says what was judged, is missing"),
    (about("sample", "mine"), "the hidden sheet 'about' has been changed. Undo that."),
    (about("by", "human:lee"), "was written for lee, but the command says reviewer=kim"),
    (about("by", "llm:kim"), "the command says reviewer=kim"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "says"), WRONG, ids=[says for _, says in WRONG])
def test_a_workbook_that_was_rebuilt_is_refused(change, says, small, blank, tmp_path):
    with pytest.raises(BadInput) as refused:
        small.read(changed(blank, tmp_path, change))
    assert says in str(refused.value)


def test_another_version_of_the_test_set_is_refused(small, blank, tmp_path):
    path = changed(blank, tmp_path)
    first, second, *_ = (one.query_id for one in small.asked if one.doc_id is None)
    queries = dict(small.judged.queries)
    queries[first] = replace(queries[first], query=Query.of(first, "changed"))
    edited = Workbook(small.made, JudgedSet(queries, small.judged.pairs, ()), small.audit, small.asked)
    with pytest.raises(BadInput, match=f"Of the workbook's queries, 1 changed: {first}"):
        edited.read(path)
    del queries[second], queries[first]
    edited.judged = JudgedSet(queries, small.judged.pairs, ())
    with pytest.raises(BadInput, match="Of the workbook's queries, 2 are no longer there"):
        edited.read(path)
    edited.judged = JudgedSet({}, (), ())
    with pytest.raises(BadInput, match="none of its queries is in this test set"):
        edited.read(path)


def packed(blank, edit, named=str):
    """The bytes of a workbook whose parts have been changed. edit: name, bytes -> bytes. named: name -> new name."""
    with zipfile.ZipFile(blank) as old:
        return zipped({named(name): edit(name, old.read(name)) for name in old.namelist()})


def in_part(part, old, new):
    return lambda name, content: content.replace(old, new) if name.endswith(part) else content


def moved(name):
    return name.replace("xl/workbook", "xl/worksheets/wb").replace("xl/_rels/workbook", "xl/worksheets/_rels/wb")


def hidden_workbook(blank):
    """A workbook whose main part, which is read whole, stands among the sheets and is large."""
    large = b"<a>" + b"<a/>" * (5 << 20) + b"</a><sheets"
    return packed(blank, lambda name, content: content.replace(b"xl/workbook.xml", b"xl/worksheets/wb.xml").replace(
        b"<sheets", large if name == "xl/workbook.xml" else b"<sheets"), moved)  # fmt: skip


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


@pytest.mark.slow
def test_a_sheet_that_lies_about_its_size_is_read_at_once(small, blank, tmp_path):
    """A file may say that it has 17 thousand million cells, and may have one in its last corner."""
    corner = b'<row r="1048576"><c r="XFD1048576" t="inlineStr"><is><t>x</t></is></c></row></sheetData>'
    content = packed(blank, in_part("sheet3.xml", b"</sheetData>", corner))
    (tmp_path / "filled.xlsx").write_bytes(content)
    assert small.read(tmp_path / "filled.xlsx").new == ()
