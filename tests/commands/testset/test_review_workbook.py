"""`harness testset review via=xlsx`: a workbook is written, filled in and read, and what is wrong changes nothing."""

import shutil
from pathlib import Path

import openpyxl
import pytest
from filelock import FileLock, Timeout
from judged_sets import judged_set

from harness.commands.testset import review
from harness.testset.judge.judgements import JudgementLog

XLSX = ("testset=ts", "via=xlsx", "reviewer=kim")


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """Twenty topics, of which a model has judged all."""
    made = judged_set(tmp_path_factory.mktemp("made"), topics=20)
    made.pool()
    made.judge("llm:judge#01")
    return made


@pytest.fixture
def here(judged, tmp_path):
    """A copy of it in the working folder."""
    for name in ("ts", "docs"):
        shutil.copytree(judged.folder.parent / name, tmp_path / name)
    return tmp_path


def fill(path, grade, need="yes"):
    book = openpyxl.load_workbook(path)
    for title, value in (("queries", need), ("pairs", grade)):
        for row in book[title].iter_rows(min_row=2):
            row[-1].value = value
    book.save(path)


def test_a_pilot_and_then_the_rest_are_judged_in_workbooks(harness, here):
    done = harness("testset review", *XLSX, "output=a.xlsx", "audit.queries=16")
    assert "a.xlsx: 10 queries, with 10 questions on the need for retrieval and 70 documents to grade" in done.out
    assert "These are the first 10 of 16 queries. Once people have judged them" in done.out
    assert "harness testset review testset=ts via=xlsx reviewer=kim from=a.xlsx" in done.out
    fill(here / "a.xlsx", 2)
    done = harness("testset review", *XLSX, "from=a.xlsx")
    assert "a.xlsx: 80 judgements added to ts/judgements.jsonl." in done.out
    found = [one for one in JudgementLog(here / "ts").read() if one.by == "human:kim"]
    assert {(one.sample, one.grade, one.needs, one.blind) for one in found} == {
        ("audit", 2, None, True), ("audit", None, True, True)
    }  # fmt: skip
    again = harness("testset review", *XLSX, "from=a.xlsx", "format=json").json
    assert (again["new"], again["same"]) == (0, 80)
    rest = harness("testset review", *XLSX, "output=b.xlsx", "audit.queries=16", "format=json").json
    assert (rest["queries"], rest["needs"], rest["reasons"]) == (6, 6, {"first round": 6 + rest["pairs"]})


def test_a_workbook_with_one_wrong_cell_changes_nothing(harness, here):
    harness("testset review", *XLSX, "sample=all", "output=a.xlsx")
    fill(here / "a.xlsx", 2)
    book = openpyxl.load_workbook(here / "a.xlsx")
    book["pairs"]["E17"].value = 7
    book.save(here / "a.xlsx")
    before = (here / "ts" / "judgements.jsonl").read_bytes()
    done = harness("testset review", *XLSX, "from=a.xlsx")
    assert done.code == 2
    assert "pairs!E17: grade is 7, but must be 0, 1, 2, 3, ? or empty." in done.err
    assert (here / "ts" / "judgements.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["via=xlsx", "reviewer=kim"], "needs output=FILE to write a workbook, or from=FILE to read one: neither"),
        (["via=xlsx", "reviewer=kim", "output=a.xlsx", "from=b.xlsx"], "both are given"),
        (["reviewer=kim", "from=b.xlsx"], "from=b.xlsx, but via=page: only via=xlsx has a file."),
        (["via=xlsx", "reviewer=[kim,lee]", "output=a.xlsx"], "a workbook is for one. Write one for each."),
        (["via=xlsx", "reviewer=kim", "from=none.xlsx"], "none.xlsx does not exist"),
        (["via=xlsx", "reviewer=kim", "output=a.csv"], "a workbook is a file .xlsx. Name it a.xlsx"),
        (["via=xls", "reviewer=kim", "output=a.xlsx"], "via='xls' is not one of page, xlsx"),
        (["via=xlsx", "reviewer=kim", "output=a.xlsx", "sample=open"], "there are no disagreements"),
    ],
)
def test_what_is_refused(harness, here, words, says):
    done = harness("testset review", "testset=ts", *words)
    assert done.code == 2
    assert says in done.err
    assert not (here / "a.xlsx").exists()


def test_a_workbook_is_read_while_no_other_process_can_add_its_judgements(harness, here, monkeypatch):
    assert harness("testset review", *XLSX, "output=a.xlsx").code == 0
    free = []
    read = review.read_workbook

    def reading(*given):
        lock = FileLock(here / "ts" / ".judgements.jsonl.lock")
        try:
            lock.acquire(timeout=0)
            free.append(lock)
        except Timeout:
            pass
        return read(*given)

    monkeypatch.setattr(review, "read_workbook", reading)
    assert harness("testset review", *XLSX, "from=a.xlsx").code == 0
    assert not free, "three processes would each add what all have read"


def test_a_wrong_folder_is_not_made(harness, here):
    assert harness("testset review", "testset=nowhere", *XLSX[1:], "from=a.xlsx").code == 2
    assert not Path("nowhere").exists()
