"""`harness testset review via=xlsx`: a workbook is written, filled in and read, and what is wrong changes nothing."""

import openpyxl
import pytest
from filelock import FileLock, Timeout
from judged_sets import copied_set, judged_set

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
    copied_set(judged.folder.parent, tmp_path)
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
    fill(here / "a.xlsx", 7)
    before = (here / "ts" / "judgements.jsonl").read_bytes()
    done = harness("testset review", *XLSX, "from=a.xlsx")
    assert (done.code, "pairs!E17: grade is 7, but must be 0, 1, 2, 3, ? or empty." in done.err) == (2, True)
    assert (here / "ts" / "judgements.jsonl").read_bytes() == before
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


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["via=xlsx", "reviewer=kim"], "needs output=FILE to write a workbook, or from=FILE to read one: neither"),
        (["via=xlsx", "reviewer=kim", "output=a.xlsx", "from=b.xlsx"], "both are given"),
        (["reviewer=kim", "from=b.xlsx"], "from=b.xlsx, but via=page: only via=xlsx has a file."),
        (["via=xlsx", "reviewer=[kim,lee]", "output=a.xlsx"], "a workbook is for one. Write one for each."),
        (["via=xlsx", "reviewer=kim", "from=none.xlsx"], "none.xlsx does not exist"),
        (["via=xlsx", "reviewer=kim", "output=a.csv"], "a workbook is a file .xlsx. Name it a.xlsx"),
        (["via=xlsx", "reviewer=kim", "output=x/a.xlsx"], "there is no folder x"),
        (["via=xlsx", "reviewer=kim", "output=there.xlsx"], "the file exists. Read it back first"),
        (["via=xlsx", "reviewer=kim", "from=ts/pool.json"], "a workbook is a file .xlsx. Save it as Excel workbook"),
        (["via=xlsx", "reviewer=kim", "output=a.xlsx", "sample=open"], "there are no disagreements"),
    ],
)
def test_what_is_refused(harness, here, words, says):
    (here / "there.xlsx").write_text("")
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
