"""The page of `harness testset review` in a real browser: a person clicks and types, and the server is killed.

Skipped without Chromium. HARNESS_PICTURES=docs/pictures saves the screenshots.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from browsers import CHROMIUM, Windows, launched, picture
from judged_sets import judged_set

from harness import cli
from harness.data.documents_folder import DocumentsFolder
from harness.data.testset import read_queries
from harness.testset.judge.judgements import JudgementLog, text_digest
from harness.testset.pool.pool import About, DocumentsPlace, Pool, PooledPair, write_pool

PATIENCE = 60_000  # ms that a test waits for an element
EVIL = "</script><script>document.title = 'broken'</script><img src=x onerror=\"document.title = 1\"> 가람0호의 항해"
REVIEW = [
    sys.executable,
    "-c",
    "from harness.cli import main; main()",
    "testset",
    "review",
    "format=json",
    "sample=all",
]
SAMPLE = Path(__file__).resolve().parents[2] / "harness" / "sample" / "testset"

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")]


def served(folder, reviewer="kim", port=5050):
    """(the link of a reviewer, the process that serves it) of a test set."""
    words = [*REVIEW, f"testset={folder}", f"reviewer={reviewer}", f"port={port}"]
    server = subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, text=True)
    return json.loads(server.stdout.readline())["links"][reviewer], server


class Reviewed:
    """A test set and a server of it, which is started and killed."""

    def __init__(self, folder, topics):
        self.made = judged_set(folder, topics)
        self.log = JudgementLog(self.made.folder)
        path = self.made.documents / "documents.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        rows[0]["content"] = EVIL
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        self.made.pool()

    def start(self, reviewer="kim", port=5050):
        """The link of a reviewer."""
        link, self.server = served(self.made.folder, reviewer, port)
        return link

    def kill(self):
        self.server.kill()
        self.server.wait(30)

    def values(self):
        """The last grade or need of each pair that a person judged; None: withdrawn or not to be told."""
        return {one.pair: None if one.withdrawn else one.grade if one.doc_id else one.needs for one in self.log.read()}


@pytest.fixture(scope="module")
def reviewed(tmp_path_factory):
    one = Reviewed(tmp_path_factory.mktemp("reviewed"), 4)
    yield one
    one.server.terminate()
    assert one.server.wait(30) == 0


@pytest.fixture(scope="module")
def link(reviewed):
    return reviewed.start()


@pytest.fixture(scope="module")
def browser():
    with launched() as opened:
        yield opened


@pytest.fixture
def opened(browser):
    """Open a link in a window of its own; nothing may go wrong in any of them: (link, **how) -> page."""
    windows = Windows(browser, PATIENCE, ("error",))

    def call(link, width=1400, height=900, locale="en", **how):
        page = windows.opened(link, width, height, locale=locale, **how)
        page.locator("#grades button, .whole").first.wait_for()
        return page

    call.errors = windows.errors
    yield call
    windows.close()


def saved(page):
    page.locator("#saved", has_text=re.compile("All saved|모두 저장됨")).wait_for()


def count(page):
    return int(re.match(r"\d+", page.locator("#counts").inner_text())[0])


def keep(page, name):
    page.wait_for_timeout(300 if os.environ.get("HARNESS_PICTURES") else 0)
    picture(page, name)


def test_a_person_judges_by_keyboard_alone(opened, reviewed, link):
    page, press = opened(link), None
    press = page.keyboard.press
    page.get_by_text("Does the last message need documents?").first.wait_for()
    assert page.evaluate("document.activeElement.id") == "main"
    press("1")
    page.locator(".text").wait_for()
    for key in "023x":
        press(key)
    saved(page)
    assert sorted(map(str, reviewed.values().values())) == ["0", "2", "3", "None", "True"]
    assert count(page) == 5

    press("u")  # the one that nobody can tell
    page.locator("#yours", has_text="Not judged yet").wait_for()
    saved(page)
    assert reviewed.log.read()[-1].withdrawn
    press("ArrowLeft")
    page.locator("#grades [data-value='3'][aria-pressed=true]").wait_for()
    assert "saved" in page.locator("#yours").inner_text()
    press("1")
    press("Backspace")
    page.locator("#grades [data-value='3'][aria-pressed=true]").wait_for()
    saved(page)
    assert reviewed.log.read()[-1].grade == 3, "an undone change brings back what was there"
    press("n")
    page.locator("#yours", has_text="Not judged yet").wait_for()
    page.locator("#spoken", has_text=re.compile(r"Query \d of 4, Document \d of")).wait_for(state="attached")

    page.evaluate("dispatch = (key, code) => document.body.dispatchEvent(new KeyboardEvent('keydown', "
                  "{ key, code, bubbles: true, cancelable: true }))")  # fmt: skip
    page.evaluate("dispatch('ㅌ', 'KeyX')")  # x, on a keyboard that writes Korean
    saved(page)
    assert (reviewed.log.read()[-1].grade, reviewed.log.read()[-1].withdrawn) == (None, False)


def test_the_tab_key_reaches_every_button_and_focus_shows(opened, link):
    page, names = opened(link), set()
    page.locator("#main").focus()
    for _ in range(14):
        page.keyboard.press("Tab")
        focused = page.evaluate(
            "[document.activeElement.textContent, getComputedStyle(document.activeElement).outlineStyle]"
        )
        if page.evaluate("document.activeElement.tagName") == "BUTTON":
            names.add(focused[0])
            assert focused[1] != "none"
    assert any("Cannot tell" in name for name in names)
    assert any("Undo" in name for name in names)
    page.keyboard.press("h")
    assert page.locator("dialog").evaluate("one => one.open")
    assert page.locator("dialog dt").count() == 15
    page.keyboard.press("Escape")
    assert not page.locator("dialog").evaluate("one => one.open")


def test_clicks_judge_too_and_a_query_that_needs_none_is_left_out(opened, reviewed, link):
    page = opened(link)
    page.keyboard.press("/")
    page.locator("#what").select_option("need")
    page.locator("#show").select_option("open")
    before = page.locator("#counts").inner_text()
    page.locator("#grades [data-value='0']").click()
    saved(page)
    assert page.evaluate("document.activeElement.id") == "main"
    assert reviewed.log.read()[-1].needs is False
    total, left = (int(re.search(r"of (\d+) judged", one)[1]) for one in (before, page.locator("#counts").inner_text()))
    assert left < total
    page.get_by_role("button", name="Undo").click()
    saved(page)
    assert page.locator("#counts").inner_text() == before


def test_what_is_killed_after_an_acknowledgement_is_not_lost(opened, tmp_path):
    """The server dies by SIGKILL right after it has said that a grade is saved; what it has not said waits."""
    reviewed = Reviewed(tmp_path, 2)
    link = reviewed.start()
    page = opened(link)
    page.keyboard.press("1")
    page.locator(".text").wait_for()
    saved(page)
    with page.expect_response(lambda answer: answer.request.method == "POST") as answered:
        page.keyboard.press("3")
    answered.value.finished()
    reviewed.kill()
    assert answered.value.ok
    page.keyboard.press("2")
    page.locator("#saved.lost", has_text="Not saved yet: 1").wait_for()
    assert [one.grade for one in reviewed.log.read()] == [None, 3]
    assert "net::ERR_CONNECTION_" in opened.errors[0]  # the browser's own message: refused, or reset
    opened.errors.clear()
    with reviewed.log.path.open("ab") as file:
        file.write(b'{"query": "torn')  # as if it had died while it wrote
    again = opened(reviewed.start(port=int(re.search(r":(\d+)/", link)[1])))
    page.locator("#saved.lost", has_text="Not saved: 1. Open the whole link").wait_for()  # the new one
    opened.errors.clear()
    assert count(again) == 2
    again.keyboard.press("2")
    saved(again)
    assert [one.grade for one in reviewed.log.read()] == [None, 3, 2]
    opened.errors.clear()
    page.close(run_before_unload=False)
    opened.errors.clear()
    reviewed.kill()


def test_two_windows_of_one_reviewer_agree(opened, reviewed, link):
    one, other = opened(link), opened(link)
    key = one.evaluate("document.querySelector('.head .number').textContent")
    assert key == other.evaluate("document.querySelector('.head .number').textContent")
    one.keyboard.press("1" if one.locator("#grades button").count() == 3 else "2")
    saved(one)
    value = reviewed.log.read()[-1]
    other.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # it looks when it is looked at
    other.locator(".note", has_text="Judged in another window").wait_for()
    other.locator("#grades [aria-pressed=true]").wait_for()
    assert reviewed.log.read()[-1] == value


def test_texts_are_shown_literally_and_words_of_the_query_are_marked(opened, link):
    page = opened(link)
    page.keyboard.press("/")
    page.keyboard.type("onerror")
    page.locator("#found", has_text=re.compile(r"^[1-9]\d* of")).wait_for()
    page.locator(".text", has_text="</script><script>").wait_for()
    assert page.locator("#main img, #main script").count() == 0
    assert page.title() == "Review of a test set · kim"
    page.locator("#words").fill("첫 항해는")
    page.locator(".text mark").first.wait_for()
    marked = page.evaluate("""async () => {
      const { marked, wordsOf } = await import("./marks.js");
      const of = (query, text) => marked(text, wordsOf(query)).filter(([, is]) => is).map(([word]) => word);
      return [
        of("가람모터스는 배터리를 언제 충전하면 좋아?", "가람모터스가 대한민국에서 충전소에서 배터리 충전을 언제나"),
        of("What is the charging time of model 2?", "The model 2 charges in a time; models 20, what"),
        of("대한민국 A", "대한항공 A a"),
        of("1톤은 2021년에 몇 km를 가? AI가", "1톤, 1회 2022년 2021년까지 211km 3km이다 km이다 air AI는")];
    }""")
    assert marked == [
        ["가람모터스가", "배터리", "충전을", "언제나"],  # 충전소에서 is no form of 충전하면: half of it differs
        ["model", "2", "charges", "time", "models"],
        [],
        ["1톤", "2021년까지", "km이다", "AI는"],
    ]


def test_korean_on_a_phone_and_in_the_dark(opened, link):
    page = opened(link, width=360, height=740, locale="ko-KR", color_scheme="dark")
    assert page.evaluate("document.documentElement.lang") == "ko"
    page.get_by_text("모두 저장됨").wait_for()
    for key in ("j", "h"):
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.keyboard.press(key)
    assert page.locator("dialog").evaluate("one => one.scrollWidth <= one.clientWidth")
    page.keyboard.press("Escape")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(map(int, re.findall(r"\d+", ground))) < 60
    assert all(box["height"] >= 44 for box in (one.bounding_box() for one in page.locator("#grades button").all()))


def test_the_filter_decides_what_comes_next_until_all_is_judged(opened, reviewed, link):
    page = opened(link)
    page.keyboard.press("/")
    page.locator("#what").select_option("need")
    page.locator("#show").select_option("open")
    page.locator("#main").focus()
    left = sum(one is None for one in [reviewed.values().get((query, None)) for query in reviewed.made.query_ids])
    for _ in range(left):
        page.keyboard.press("1")
    saved(page)
    assert all(reviewed.values()[query, None] for query in reviewed.made.query_ids)
    page.keyboard.press("Escape")
    page.locator("#filter").wait_for(state="hidden")
    page.keyboard.press("n")
    page.locator("#yours", has_text="Not judged").wait_for()
    while "Not judged" in page.locator("#yours").inner_text():
        page.keyboard.press("2")
    saved(page)
    page.keyboard.press("n")
    page.locator(".whole", has_text="All judged. Thank you!").wait_for()
    page.reload()
    page.locator(".whole", has_text="All judged. Thank you!").wait_for()
    page.keyboard.press("ArrowLeft")
    page.locator("#grades [aria-pressed=true]").wait_for()


@pytest.fixture
def sample(tmp_path, monkeypatch):
    """The shipped test set with its documents; pooled for each query are those that share most letters with it."""
    monkeypatch.chdir(tmp_path)
    assert cli.call("prepare", ["output=docs"]) == 0
    folder = Path(shutil.copytree(SAMPLE, tmp_path / "ts"))
    documents = [one.document for one in DocumentsFolder(tmp_path / "docs").chunks()]
    queries = {one.query.query_id: one.query for one in read_queries(folder)}
    pairs = []
    for query_id, query in queries.items():
        letters = Counter(query.text)
        near = sorted(documents, key=lambda one: -sum((letters & Counter(one.text)).values()) / len(one.text) ** 0.3)
        pairs += [PooledPair(query_id, one.doc_id) for one in near[:4]]
    pairs.sort(key=lambda one: (one.query_id, one.doc_id))
    about = About(
        DocumentsPlace("../docs", ""), queries={query_id: text_digest(query) for query_id, query in queries.items()}
    )
    write_pool(folder, Pool(tuple(pairs), about))
    return folder


def test_the_shipped_test_set_is_judged(opened, sample):
    link, server = served(sample)
    page = opened(link, height=800, locale="ko-KR")
    for _ in range(5):  # queries with their four documents
        page.locator("#grades [data-value='1']").click()
        page.locator(".text").wait_for()
        for key in "0123":
            page.keyboard.press(key)
        page.locator("#main", has_text="문서가 필요합니까").wait_for()
    saved(page)
    page.keyboard.press("/")
    page.locator("#words").fill("충전하면 211km")  # the document that answers this query
    page.locator("#main mark", has_text="충전").first.wait_for()
    page.locator("#grades [data-value='3']").click()
    saved(page)
    page.keyboard.press("Escape")
    page.locator("#grades [data-value='3'][aria-pressed=true]").wait_for()
    page.mouse.move(700, 500)
    keep(page, "review")
    server.send_signal(signal.SIGINT)
    assert server.wait(30) == 0


def test_all_texts_are_there_in_both_languages():
    folder = Path(__file__).resolve().parents[2] / "harness" / "testset" / "review"
    english, korean = json.loads((folder / "words.json").read_text("utf-8")).values()
    assert english.keys() == korean.keys()
    places = [{key: set(re.findall(r"\{\w+\}", text)) for key, text in one.items()} for one in (english, korean)]
    assert places[0] == places[1]
    script = (folder / "review.js").read_text("utf-8")
    used = set(re.findall(r'say\("(\w+)"', script)) | set(re.findall(r'"(key_\w+|how\w*)"', script))
    assert used <= english.keys()
    assert not any(re.search("[가-힣]", text) for text in english.values())
