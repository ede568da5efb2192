"""MLflow's pages of a sweep and its runs, and the report page of a run, in a real browser.

Skipped without Chromium. HARNESS_PICTURES=docs/pictures saves the screenshots.
"""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from unicodedata import normalize

import pytest
from browsers import CHROMIUM, launched, narrow, picture
from logged_runs import told, with_store

from harness.analysis.board.settings import overrides_in_words

PATIENCE = 90_000  # ms that a test waits for an element

pytestmark = [
    pytest.mark.slow,
    pytest.mark.local,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def work(tmp_path_factory, fresh_database):
    """A folder with a sweep of three trials and two runs of the sample; the first run has traces of its errors."""
    folder = with_store(tmp_path_factory.mktemp("browser"), fresh_database)
    sweep = ("sweep", "gate=score", "gate.threshold=1,5,10")
    return folder, *told(folder, sweep, ("run", "gate=auto", "trace=errors"), ("run", "retriever=hybrid_lexical"))


@pytest.fixture(scope="module")
def pages(work):
    """The addresses that `harness ui` prints; it runs until Ctrl-C and leaves no process behind."""
    command = [sys.executable, "-c", "from harness.cli import main; main()", "ui", "format=json", "port=5123"]
    server = subprocess.Popen(command, cwd=work[0], stdout=subprocess.PIPE, text=True)
    try:
        yield json.loads(server.stdout.readline())
    finally:
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 0


@pytest.fixture(scope="module")
def browser():
    with launched() as opened:
        yield opened.new_context(viewport={"width": 1500, "height": 950})  # one for all: MLflow's scripts are kept


@pytest.fixture
def tab(browser):
    opened = browser.new_page()
    opened.set_default_timeout(PATIENCE)
    errors = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    opened.close()
    assert not errors


WITHOUT_FOLDERS = r"""() => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode())
    texts.currentNode.textContent =
      texts.currentNode.textContent.replace(/(file:\/\/)?(\/[\w.-]+)+\/(?=(outputs|corrections)\/)/g, "");
}"""


def keep(tab, name):
    """Save a screenshot if HARNESS_PICTURES is set, without MLflow's assistant and this machine's folders."""
    if os.environ.get("HARNESS_PICTURES"):
        for close in tab.get_by_role("button", name="Close", exact=True).all()[:1]:
            close.click()
        tab.wait_for_timeout(2000)
        tab.evaluate(WITHOUT_FOLDERS)
        picture(tab, name)


def run_page(pages, run_id, inside=""):
    return f"{pages['url'].partition('?')[0]}/{run_id}{inside}?workflowType=machine_learning"


def test_the_experiment_lists_its_runs_the_best_first_with_what_ranks_them(tab, pages, work):
    _, sweep, auto, hybrid = work
    tab.goto(pages["url"])
    tab.get_by_role("link", name="threshold 1", exact=True).wait_for()
    keep(tab, "experiment")
    tab.set_viewport_size({"width": 2600, "height": 950})  # the table has only the columns that are in sight

    def column(name):
        return tab.locator(f"[role=gridcell][col-id='{name}']").all_inner_texts()

    tab.locator("[role=gridcell][col-id='tags.`objective.kind`']").first.wait_for()
    shown = [float(cell) for cell in column("metrics.`objective`")]
    runs = [one["objective"]["value"] for one in (auto, hybrid)]
    trials = [one["value"] for one in sweep["top"]]
    assert shown == pytest.approx(sorted([*runs, *trials], reverse=True))
    ends = [column(f"metrics.`objective_{end}`") for end in ("low", "high")]
    assert all(float(low) < value < float(high) for low, value, high in zip(ends[0], shown, ends[1], strict=True))
    assert sorted(column("tags.`objective.kind`")) == ["in sample"] * (len(shown) - 1) + ["out of fold"]
    assert set(column("tags.`objective.name`")) == {"modified_map@3"}


def test_the_view_of_a_sweep_lists_its_trials_the_best_first(tab, pages, work):
    sweep = work[1]
    tab.goto(pages["sweep"])
    rows = tab.locator("a", has_text=re.compile(r"^threshold "))
    rows.first.wait_for()
    names = [row.inner_text() for row in rows.all()]
    assert names == [overrides_in_words(one["overrides"]) for one in sweep["top"]]
    tab.get_by_text("Parameters", exact=True).wait_for()  # each swept key has a column
    keep(tab, "sweep")
    tab.goto(pages["sweep"] + "&compareRunsMode=CHART")
    # Parallel coordinates, and the objective by the threshold.
    tab.get_by_text(re.compile(r"^Sweep\s*\(2\)$")).first.wait_for()


def test_the_page_of_a_sweep_leads_to_its_trials(tab, pages, work):
    tab.goto(run_page(pages, work[1]["run_id"]))
    tab.get_by_role("link", name="The runs, best first").click()
    tab.get_by_role("link", name="threshold 1", exact=True).wait_for()


def test_the_page_of_a_run_tells_what_was_run(tab, pages, work):
    auto = work[2]
    tab.goto(run_page(pages, auto["run_id"]))
    tab.get_by_text("Show more").click()
    text = tab.locator("table", has_text="needs no retrieval").first
    text.wait_for()  # the table of the gate's decisions
    tab.get_by_text(f"{auto['out_of_fold']['modified_map@3']:.4f}").first.wait_for()
    text.scroll_into_view_if_needed()
    keep(tab, "run")
    with tab.context.expect_page() as opened:  # MLflow opens a link of a description in a tab of its own
        tab.get_by_role("link", name="report.html", exact=True).click()
    opened.value.frame_locator("iframe").first.get_by_role("slider", name="threshold").wait_for(timeout=PATIENCE)
    opened.value.close()


def test_the_table_of_queries_and_the_figures_show(tab, pages, work):
    auto = work[2]
    tab.goto(run_page(pages, auto["run_id"], "/artifacts/queries.json"))
    tab.get_by_role("columnheader", name="query_id").wait_for()
    keep(tab, "queries")
    tab.get_by_text("gate.png").first.click()
    picture = tab.locator("img[src*='blob'], img[src*='gate.png']").first
    picture.wait_for()
    assert picture.evaluate("one => one.complete && one.naturalWidth") > 500
    keep(tab, "gate")


def test_the_own_page_of_a_run_answers(tab, pages, work):
    """In MLflow's sandboxed frame: scripts run, the table sorts and filters, the threshold moves the counts."""
    auto = work[2]
    tab.goto(run_page(pages, auto["run_id"], "/artifacts/report.html"))
    frame = tab.frame_locator("iframe").first
    frame.get_by_text(f"{auto['out_of_fold']['modified_map@3']:.4f}").first.wait_for()
    readout = frame.locator("#gate .big.number")
    assert readout.inner_text() == f"{auto['metrics']['modified_map@3']:.4f}"  # the gate as it ran
    slider = frame.get_by_role("slider", name="threshold")
    slider.focus()
    slider.press("End")  # nothing passes: only the 12 of 60 queries without need of retrieval score
    assert readout.inner_text() == "0.2000"
    assert slider.get_attribute("aria-valuetext").endswith(": 60 of 60 withheld")
    assert frame.locator("[data-kind=wrongly_withheld] .number").inner_text() == "48"
    assert frame.locator("#queries tr.row").first.locator("[data-head=verdict]").inner_text() == "wrongly withheld"
    at = slider.get_attribute("aria-valuetext").split()[1].rstrip(":")
    assert frame.locator(".command code").inner_text().endswith(f" gate.threshold={at}")
    slider.press("Home")  # everything passes
    assert readout.inner_text() == "0.5750"  # BM25 without a gate, as in docs/results.md
    rows = frame.locator("#queries tr.row")
    frame.get_by_label("filter").fill("132")
    assert rows.count() == 1
    rows.first.click()
    assert len(frame.locator("#queries tr[data-of]").inner_text()) > 100  # the texts of its documents
    frame.get_by_label("filter").fill("")
    head = frame.locator("#queries th button", has_text=re.compile("^modified_map@3"))
    head.click()
    first = [cell.inner_text() for cell in rows.first.locator("td").all()]
    head.click()
    assert first != [cell.inner_text() for cell in rows.first.locator("td").all()]  # the order is reversed
    keep(tab, "report")


def test_the_own_page_of_a_run_opens_from_the_disk_and_its_threshold_moves_and_is_copied(tab, work):
    tab.goto((Path(work[2]["files"]["folder"]) / "report.html").as_uri())
    tab.get_by_text(f"{work[2]['out_of_fold']['modified_map@3']:.4f}").first.wait_for()
    keep(tab, "report-alone")
    slider = tab.get_by_role("slider", name="threshold")
    for key in ("Home", "End", "PageDown"):
        slider.press(key)
        box, moved = slider.bounding_box(), int(slider.input_value()) / 1000
        line = tab.locator(".tracker > line").last.bounding_box()
        thumb = box["x"] + box["height"] / 2 + moved * (box["width"] - box["height"])  # as wide as high
        assert abs(thumb - line["x"] - line["width"] / 2) < 1
    slider.press("Home")
    slider.press("Enter")
    tab.get_by_text("copied", exact=True).wait_for()
    field = tab.get_by_label("filter")
    field.focus()
    tab.keyboard.press("Control+v")
    assert field.input_value() == tab.locator(".command code").inner_text()
    assert field.input_value().startswith("harness run trace=errors format=json gate=score gate.signal=")


def test_a_link_to_a_query_opens_its_row_on_a_phone_too(tab, work):
    page = (Path(work[2]["files"]["folder"]) / "report.html").as_uri()
    tab.set_viewport_size({"width": 390, "height": 800})
    tab.goto(page)
    last = tab.locator("#queries tr.row").last.get_attribute("id")
    tab.goto(f"{page}#{last}")
    row = tab.locator(f"#{last}")
    assert row.get_attribute("aria-expanded") == "true"
    assert row.evaluate("one => one === document.activeElement")
    tab.locator("#queries tr[data-of] .document").first.wait_for()
    assert narrow(tab)


def test_two_runs_are_compared(tab, pages, work):
    _, _, auto, hybrid = work
    ids = json.dumps([auto["run_id"], hybrid["run_id"]]).replace(" ", "")
    tab.goto(pages["url"].partition("#")[0] + f"#/compare-runs?runs={ids}&experiments=[%22{experiment(pages)}%22]")
    tab.get_by_text("Comparing 2 Runs").wait_for()
    tab.get_by_text("hybrid_lexical-kiwi").first.wait_for()
    keep(tab, "compare")


def test_traces_of_a_run_show(tab, pages, work):
    auto = work[2]
    assert auto["traces"]
    tab.goto(run_page(pages, auto["run_id"], "/traces"))
    tab.get_by_text("retrieval", exact=True).first.wait_for()
    keep(tab, "traces")


@pytest.fixture(scope="module")
def submissions(work):
    """Two scored submissions of the sample's corrections: JSON of the second, and of their comparison."""
    folder = Path(__file__).resolve().parents[2] / "harness" / "sample" / "corrections"
    score = ("score", "task=corrections", f"references={folder / 'references.csv'}")
    scores = [(*score, f"predictions={folder / name}.csv") for name in ("careful", "eager")]
    return told(work[0], *scores, ("compare", "task=corrections"))[1:]


def test_the_page_of_corrections_shows_every_edit(tab, submissions):
    [eager, _] = submissions
    tab.goto((Path(eager["files"]["folder"]) / "report.html").as_uri())
    tab.get_by_text(f"{eager['metrics']['correction_recall']:.4f}").first.wait_for()
    tab.get_by_text("the worst by correction_recall first").evaluate("one => one.scrollIntoView()")
    tab.locator("table .tp").first.wait_for()
    keep(tab, "corrections")
    ids, missed = tab.locator("#items td.id"), tab.get_by_role("button", name="missed correction")
    every = ids.all_inner_texts()
    for backwards in (False, True):
        tab.get_by_role("button", name=re.compile("^id")).click()
        assert ids.all_inner_texts() == sorted(every, reverse=backwards)
    assert tab.locator("#items td mark.fr").first.get_attribute("title") == "needless correction"
    missed.click()
    assert 0 < ids.count() == tab.locator("#items tr:has(mark.fn) td.id").count() < len(every)
    missed.click()
    words = tab.locator("#items .text").first.inner_text().split()[-2:]
    tab.get_by_label("filter").fill(normalize("NFD", " ".join(reversed(words))))  # in any order, however it is typed
    assert 0 < ids.count() < len(every)


def test_the_page_of_a_comparison_shows_how_ranks_shift(tab, submissions):
    tab.goto(Path(submissions[1]["files"]["html"]).as_uri())
    tab.get_by_role("tab", name="Report").click()
    moves = tab.get_by_role("region", name="How ranks move from public to private")
    moves.scroll_into_view_if_needed()
    assert moves.locator("tbody tr").count() == 2
    assert tab.locator(".report td.scale svg").count() > 0
    keep(tab, "leaderboards")
    tab.get_by_role("tab", name="Items").click()
    tab.get_by_label("Search items").wait_for()
    assert tab.locator("#panel-queries h2 small").first.inner_text() == "60 of 60 items"
    tab.keyboard.press("j")
    tab.locator("article.side mark.tp").first.wait_for()
    tab.get_by_role("tab", name="Two runs").click()
    assert tab.locator("#panel-pair h2 small").first.inner_text() == "60 items"
    assert "quer" not in tab.locator("#panel-pair").inner_text().lower()
    tab.set_viewport_size({"width": 390, "height": 800})
    assert narrow(tab)


def test_the_page_of_a_comparison_of_runs_is_their_board_with_a_report(tab, work):
    ids = ",".join(one["run_id"] for one in work[2:])
    [found] = told(work[0], ("compare", f"runs=[{ids}]"))
    tab.goto(Path(found["files"]["html"]).as_uri())
    assert tab.locator("tr.run").count() == 2
    tab.get_by_role("tab", name="Two runs").click()
    assert tab.locator("#panel-pair h2 small").first.inner_text() == f"{found['queries']} queries"
    tab.get_by_role("tab", name="Report").click()
    assert tab.locator("#panel-report td.scale svg").count() > 0
    for verdict in found["verdicts"]:
        assert tab.get_by_text(verdict, exact=True).count() == 2, "above the tabs and in the report"
    tab.set_viewport_size({"width": 390, "height": 800})
    assert narrow(tab)


def experiment(pages):
    return pages["url"].partition("experiments/")[2].partition("/")[0]
