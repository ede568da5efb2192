"""`harness testset review`: who is asked what, that neither page nor workbook tells more, and what is refused."""

import shutil
from contextlib import suppress

import openpyxl
import pytest
from filelock import FileLock, Timeout
from judged_sets import copied_set, judged_set
from review_visits import asked, said, visiting

from harness.commands.testset import review
from harness.testset.judge.judgements import JudgementLog

MODEL = "llm:secret-model#0123abcd"


@pytest.fixture
def reviewed(harness, monkeypatch):
    """Call the command, visit its links with a function, and interrupt it: (visit, *words) -> Done."""
    with visiting(monkeypatch) as use:

        def call(visit, *words):
            use(visit)
            return harness("testset review", "testset=ts", "port=5050", *words)

        yield call


def keys(link):
    return [key for group in asked(link, "api/items")["queries"] for key in group]


def test_what_was_judged_is_shown_again_and_the_counts_are_printed(reviewed, tmp_path):
    made = judged_set(tmp_path, 3)
    made.pool()
    count = []

    def judge(links):
        found = keys(links["kim"])
        count.append(len(found))
        said(links["kim"], found[1], 2)
        said(links["lee"], asked(links["lee"], "api/items")["needs"][0], 0)  # the documents of this query are left out

    done = reviewed(judge, "reviewer=[kim,lee]", "sample=all")
    assert done.code == 0
    assert f"kim: 1 of {count[0]} judged." in done.out
    assert "lee: 1 of " in done.out
    assert f"lee: 1 of {count[0]} " not in done.out
    assert "  harness testset freeze testset=ts" in done.out
    assert done.out.count("http://127.0.0.1:") == 2

    def again(links):
        assert [*asked(links["kim"], "api/items")["values"].values()] == [2]

    assert reviewed(again, "reviewer=kim", "sample=all").code == 0


def test_an_audit_draws_queries_and_goes_on(reviewed, tmp_path):
    judged_set(tmp_path, 3).pool()
    links = []
    told = reviewed(links.append, "reviewer=kim", "format=json").json
    assert (told["links"], told["sample"], (tmp_path / "ts" / "audit.json").is_file()) == (links[0], "audit", True)
    done = reviewed(links.append, "reviewer=kim")
    assert "  harness testset review testset=ts reviewer=kim sample=audit    # continue" in done.out
    assert "testset audit" not in done.out, "nothing is judged yet"


def test_who_adjudicates_sees_what_the_others_said(reviewed, tmp_path):
    made = judged_set(tmp_path, 3)
    made.pool()
    made.judge("human:kim")
    made.judge("human:lee", grade=lambda *pair: 3 - made.truth(*pair))
    made.judge(MODEL)

    def settle(links):
        found = keys(links["park"])
        texts = asked(links["park"], f"api/texts?keys={','.join(found)}")
        for key in found:
            given = {one["judge"]: one["value"] for one in texts[key]["given"]}
            assert given["kim"] + given["lee"] == 3
            assert given["secret-model#0123abcd"] == given["kim"]
            said(links["park"], key, given["kim"])

    done = reviewed(settle, "reviewer=park", "sample=open")
    assert done.code == 0, done.err
    mine = [one for one in JudgementLog(made.folder).read() if one.judge == "park"]
    assert mine
    assert {(one.by, one.blind) for one in mine} == {("adjudicated:park", False)}
    refused = reviewed(settle, "reviewer=park", "sample=open")
    assert (refused.code, "there are no disagreements" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "reviewer is missing. Say who judges"),
        (["reviewer=[kim,Kim]"], "kim is named twice"),
        (["reviewer=' '"], "is not a name"),
        (["reviewer=" + "k" * 61], "is not a name. Give 1 to 60 letters"),
        (["reviewer=kim", "sample=repair"], "no pair looks suspicious"),
        (["reviewer=kim", "host=192.0.2.1"], "Use an address of this machine"),
    ],
)
def test_what_is_refused(reviewed, tmp_path, words, message):
    judged_set(tmp_path, 2).pool()
    done = reviewed(lambda links: None, *words)
    assert done.code == 2
    assert message in done.err


def test_a_test_set_without_a_pool_and_documents_that_are_gone_are_refused(reviewed, tmp_path):
    def refused(message, *words):
        done = reviewed(lambda links: None, "reviewer=kim", *words)
        assert (done.code, message in done.err) == (2, True)

    made = judged_set(tmp_path, 2)
    refused("nothing is pooled")
    made.pool()
    refused("pooled documents: ", f"documents={judged_set(tmp_path / 'other', 1).documents}")
    shutil.rmtree(made.documents)
    refused("documents.path")


XLSX = ("testset=ts", "via=xlsx", "reviewer=kim")


@pytest.fixture(scope="module")
def twenty(tmp_path_factory):
    """Twenty topics, of which a model has judged all."""
    made = judged_set(tmp_path_factory.mktemp("made"), topics=20)
    made.pool()
    made.judge("llm:judge#01")
    return made


@pytest.fixture
def here(twenty, tmp_path):
    """A copy of it in the working folder."""
    copied_set(twenty.folder.parent, tmp_path)
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
        (["reviewer=kim", "from=b.xlsx"], "from=b.xlsx, but via=page: only via=xlsx uses a file."),
        (["via=xlsx", "reviewer=[kim,lee]", "output=a.xlsx"], "a workbook is for one. Write a workbook for each."),
        (["via=xlsx", "reviewer=kim", "from=none.xlsx"], "none.xlsx does not exist"),
        (["via=xlsx", "reviewer=kim", "output=a.csv"], "a workbook must be an .xlsx file. Name it a.xlsx"),
        (["via=xlsx", "reviewer=kim", "output=x/a.xlsx"], "there is no folder x"),
        (["via=xlsx", "reviewer=kim", "output=there.xlsx"], "the file exists. Read it back first"),
        (["via=xlsx", "reviewer=kim", "from=ts/pool.json"], "a workbook must be an .xlsx file. Save it as an Excel"),
        (["via=xlsx", "reviewer=kim", "output=a.xlsx", "sample=open"], "there are no disagreements"),
    ],
)
def test_workbooks_that_are_refused(harness, here, words, says):
    (here / "there.xlsx").write_text("")
    done = harness("testset review", "testset=ts", *words)
    assert done.code == 2
    assert says in done.err
    assert not (here / "a.xlsx").exists()


def test_a_workbook_is_read_while_no_other_process_can_add_its_judgements(harness, here, monkeypatch):
    assert harness("testset review", *XLSX, "output=a.xlsx").code == 0
    free, read = [], review.read_workbook

    def reading(*given):
        with suppress(Timeout), FileLock(here / "ts" / ".judgements.jsonl.lock").acquire(timeout=0):
            free.append(given)
        return read(*given)

    monkeypatch.setattr(review, "read_workbook", reading)
    assert harness("testset review", *XLSX, "from=a.xlsx").code == 0
    assert not free, "three processes would each add what all have read"
