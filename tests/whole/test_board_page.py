"""The page of a board in a real browser: of made-up runs, whose numbers Python computes as well.

And of a sweep over the sample, of which HARNESS_PICTURES=docs/pictures saves screenshots. Skipped without Chromium.
"""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from board_lists import made_dataset
from board_pages import made_board
from boards import made_runs
from browsers import CHROMIUM, Windows, launched, narrow, picture, serious_faults
from logged_runs import told, with_store

from harness.analysis.board import page
from harness.analysis.board.lists import Returned
from harness.analysis.board.queries import Collected, Notice, ReadAgain
from harness.analysis.board.runs import LOSSES
from harness.reports.report import Report
from harness.reports.tables import Column, Number, Table
from harness.statistics.significance import differences

PATIENCE = 20_000  # ms that a test waits for an element
READY = {"#matters": ".over", "#queries": ".cells canvas", "#pair": "#panel-pair .verdict"}  # tab -> shown at last
HANGUL = re.compile("[가-힣]")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")]


@pytest.fixture(scope="module")
def board():
    gaps = [["A − B", Number(0.1, 0.05, 0.15)], ["A − C", Number(-0.2, -0.3, 0.1)]]
    differences = Table("Differences", [Column("pair"), Column("difference", "difference")], gaps)
    texts = [[str(number), "a text " * 20] for number in range(60)]
    queries = Table("All queries", [Column("query"), Column("text")], texts)
    runs = made_runs(queries=60)
    runs.values[3, 5] = np.nan  # where a measure is not defined
    return made_board(runs, report=Report("", ["A is better than B."], [differences, queries]))


@pytest.fixture(scope="module")
def runs(board):
    return board.runs


@pytest.fixture(scope="module")
def address(board, tmp_path_factory):
    path = tmp_path_factory.mktemp("board") / "board.html"
    path.write_text(page.html(board), "utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def sample(tmp_path_factory, fresh_database):
    """The JSON document of a board of twelve trials of the sample."""
    folder = with_store(tmp_path_factory.mktemp("sample"), fresh_database)
    sweep = ("sweep", "retriever=bm25,hybrid_lexical", "gate=none,auto", "top_k=1,2,3")
    return told(folder, sweep, ("board",))[-1]


@pytest.fixture(scope="module")
def browser():
    with launched() as opened:
        yield opened


@pytest.fixture
def opened(browser, address):
    """Open the board in a window of its own, in which nothing may go wrong: (place in it, **how) -> page."""
    windows = Windows(browser, PATIENCE, ("error", "warning"))

    def call(inside="", width=1500, locale="en", page_at=None, **how):
        tab = windows.opened((page_at or address) + inside, width, 950, locale=locale, **how)
        tab.locator("#tabs [aria-selected=true]").wait_for()
        if ready := READY.get(inside.partition("/")[0]):
            tab.locator(ready).wait_for()
        return tab

    yield call
    windows.close()


def names(tab):
    """The tabs of the board, of which each is opened once."""
    for name in tab.evaluate("TABS.map((one) => one.name)"):
        tab.evaluate("(name) => go(name)", name)
        tab.locator(f"#panel-{name} > *").first.wait_for()
        yield name


@pytest.mark.parametrize(
    ("width", "scheme", "locale"), [(390, "dark", "ko"), (820, "light", "en"), (1500, "dark", "en")]
)
def test_nothing_is_wider_than_the_window_and_no_serious_fault_is_found(opened, width, scheme, locale):
    tab = opened(width=width, locale=locale, color_scheme=scheme, bypass_csp=True)
    for name in names(tab):
        assert narrow(tab), name
        assert not serious_faults(tab), name
    tab.evaluate("go('queries', 'q0001')")
    tab.locator("#query").wait_for()
    assert narrow(tab)
    assert not serious_faults(tab)
    ground = [int(one) for one in re.findall(r"\d+", tab.evaluate("getComputedStyle(document.body).backgroundColor"))]
    assert max(ground) < 60 if scheme == "dark" else min(ground) > 200


def test_the_leaderboard_shows_who_is_not_told_apart_from_the_best(opened, board):
    tab = opened()
    assert tab.locator(".pick h2").inner_text() == board.runs.runs[board.leaderboard.pick.run].name
    assert tab.locator(".pick p").first.inner_text() == board.leaderboard.pick.reason.en
    shown = [row.get_attribute("data-run") for row in tab.locator("tr.run").all()]
    legend, first = (tab.locator(one).first.bounding_box() for one in ("#panel-leaderboard .keys", "tr.run"))
    assert legend["y"] + legend["height"] <= first["y"]  # colours are explained before they are met
    tied = [str(row.run) for row in board.leaderboard.rows if row.tied]
    assert shown[: len(tied)] == tied
    assert len(shown) == len(board.runs.runs)
    assert [row.get_attribute("data-run") for row in tab.locator("tr.run.same").all()] == tied
    assert tab.locator("tr.group").count() == 2
    tab.locator(".chip", has_text="not told apart").click()
    assert tab.locator("tr.run").count() == len(tied)
    tab.get_by_label("Filter runs").fill("gate=auto top_k=2")
    assert all("auto · top 2" in one for one in tab.locator("tr.run button.name").all_inner_texts())
    tab.get_by_label("Filter runs").fill("")
    tab.locator("thead button", has_text="Run").click()
    order = tab.locator("tr.run button.name").all_inner_texts()
    assert order == sorted(order)
    assert tab.locator("tr.group").count() == 0


def test_runs_are_selected_four_at_most_and_the_address_keeps_them(opened, board):
    tab = opened()
    chips = tab.locator("#chosen .picked")
    assert chips.count() == 2
    for place in (5, 6, 7):
        tab.locator(f"tr[data-run='{place}'] input").click()
    assert chips.all_inner_texts() == [f"{board.runs.runs[place].name}\n×" for place in (0, 1, 5, 6)]
    assert not tab.locator("tr[data-run='7'] input").is_checked()
    tab.locator("#spoken", has_text="4 runs are already selected").wait_for(state="attached")
    chips.first.get_by_role("button").click()
    again = opened(tab.url.partition("board.html")[2])
    assert again.locator("#chosen .picked .name").all_inner_texts() == [board.runs.runs[n].name for n in (1, 5, 6)]


def test_the_keyboard_alone_selects_compares_and_explains(opened, board):
    tab = opened()
    press = tab.keyboard.press
    focused = "document.activeElement.matches({!r})"
    press("Tab")
    assert tab.evaluate(focused.format("#skip"))
    press("Enter")
    assert tab.evaluate(focused.format("#main"))
    press("/")
    assert tab.evaluate(focused.format("#filter"))
    while not tab.evaluate(focused.format("tr[data-run='0'] input")):
        press("Tab")
    press("ArrowDown")
    press("ArrowDown")
    press("Space")
    assert tab.locator("#chosen .name").last.inner_text() == board.runs.runs[2].name
    press("Tab")
    press("Enter")  # what the run is made of
    assert board.runs.runs[2].run.run_id in tab.locator("tr[data-of]").inner_text()
    press("2")
    assert tab.evaluate(focused.format("[role=tab][aria-selected=true]"))
    press("End")
    tab.locator("#panel-report").wait_for()
    press("ArrowLeft")
    tab.locator("#panel-pair .verdict").wait_for()
    chips = tab.locator("#chosen .name").all_inner_texts()
    press("s")
    assert tab.locator("#chosen .name").all_inner_texts() == [chips[1], chips[0], *chips[2:]]
    press("?")
    keys = tab.locator("#keys[open]")
    assert "swap the two runs" in keys.inner_text()
    press("Escape")
    assert keys.count() == 0
    press("l")
    assert tab.locator("html").get_attribute("lang") == "ko"


def test_every_tab_speaks_korean_and_english(opened):
    tab = opened(locale="ko-KR")
    assert tab.locator("html").get_attribute("lang") == "ko"
    for name in names(tab):
        assert HANGUL.search(tab.locator(f"#tab-{name}").inner_text())
        titles = tab.locator(f"#panel-{name} section:not([lang=en], .pick) h2").all_inner_texts()
        assert [one for one in titles if not HANGUL.search(one)] == []
    tab.get_by_role("button", name="English").click()
    assert tab.locator("html").get_attribute("lang") == "en"
    assert tab.locator("#tab-pair").inner_text() == "Two runs"


def test_the_tab_of_two_runs_says_who_is_better_and_which_queries_decide(opened, board):
    tab = opened("#pair")
    tab.locator(".verdict").wait_for()
    gap = board.runs.values[0] - board.runs.values[1]
    legend = tab.locator("#panel-pair .keys b").all_inner_texts()
    assert [int(one.split()[0]) for one in legend] == [(gap > 0).sum(), (gap == 0).sum(), (gap < 0).sum()]
    tab.get_by_label("Second run", exact=True).select_option("23")
    tab.locator(".verdict", has_text="is better than").wait_for()
    assert tab.locator(".settings tbody th").all_inner_texts() == ["retriever", "gate", "top_k"]
    tab.locator("[data-part=private]").click()
    tab.locator("[data-part=private][aria-pressed=true]").wait_for()
    assert tab.locator("#panel-pair h2 small").first.inner_text() == f"{(~board.runs.public).sum()} queries"


def test_the_report_shows_sections_and_folds_long_tables(opened):
    tab = opened("#report")
    assert tab.locator("#panel-report h2").all_inner_texts() == ["Verdict", "Differences", "All queries"]
    assert tab.locator("#panel-report td.scale svg circle").count() == 2
    assert not tab.get_by_text("a text").first.is_visible()
    tab.get_by_text("60 rows").click()
    tab.get_by_text("a text").first.wait_for()


def test_a_sweep_of_the_sample_has_a_board(opened, sample):
    tab = opened(page_at=Path(sample["files"]["html"]).as_uri())
    assert tab.locator("tr.run").count() == len(sample["rows"]) == 12
    assert tab.locator(".pick h2").inner_text() == sample["rows"][0]["short_name"]
    seen = [*names(tab)]
    assert {"leaderboard", "matters", "queries", "pair"} <= {*seen}
    tab.evaluate("selection.set([0, 11])")
    tab.locator(".verdict").wait_for()
    tab.set_viewport_size({"width": 1500, "height": 1150})
    for name in ("leaderboard", "matters", "queries", "pair"):
        tab.evaluate("(name) => go(name)", name)
        tab.wait_for_timeout(500)
        picture(tab, f"board-{name}")
    tab.evaluate("selection.set([0, 3])")
    tab.evaluate("go('queries', '141')")
    tab.locator("#query h3", has_text=sample["rows"][3]["short_name"]).wait_for()
    tab.wait_for_timeout(500)
    picture(tab, "board-query")


@pytest.mark.parametrize("pair", [(0, 2), (23, 3)])
def test_two_runs_have_the_numbers_of_python(opened, board, pair):
    tab = opened("#pair")
    tab.evaluate("(pair) => selection.set(pair)", list(pair))
    [found] = differences(board.runs.values[list(pair)][:, None])[0, 1]
    tab.locator(".verdict", has_text=f"{abs(found.mean):.4f}").wait_for()
    said = tab.locator(".verdict").inner_text()
    assert ("p < 0.0001" if found.p < 0.0001 else f"{found.p:.{4 if found.p < 0.01 else 3}f}") in said
    ends = (found.low, found.high) if found.mean > 0 else (-found.high, -found.low)
    assert "({} – {})".format(*(f"{one:.3f}".replace("-", "−") for one in ends)) in said


def test_a_pair_that_is_not_tested_names_the_command_that_does(opened, board, monkeypatch, tmp_path):
    monkeypatch.setattr(page, "PAIRED", 2)
    monkeypatch.setattr(page, "DETAILED", 4)
    (tmp_path / "b.html").write_text(page.html(board), "utf-8")
    tab = opened("#pair", page_at=(tmp_path / "b.html").as_uri())
    for pair, known in (((0, 1), True), ((3, 0), True), ((1, 3), False), ((0, 4), False)):
        tab.evaluate("(pair) => selection.set(pair)", list(pair))
        ids = ",".join(board.runs.runs[place].run.short_id for place in pair)
        (tab.get_by_text("the paired randomisation test") if known else tab.get_by_text(f"runs=[{ids}]")).wait_for()
        assert tab.locator("svg.difference").count() == known


def test_a_comparison_has_its_own_title_and_says_its_verdict_first(browser, board, tmp_path):
    made = replace(board, report=Report("A and B compared: e on 60 queries", ["A is better than B by 0.1."], []))
    (tmp_path / "c.html").write_text(page.html(made), "utf-8")
    tab = browser.new_page()
    tab.goto((tmp_path / "c.html").as_uri())
    assert tab.title() == tab.locator("h1").inner_text() == made.report.title
    verdict = tab.locator("#verdicts")
    assert verdict.inner_text() == made.report.verdict[0]
    assert verdict.bounding_box()["y"] < tab.locator("#main").bounding_box()["y"]
    (tmp_path / "b.html").write_text(page.html(replace(board, report=None)), "utf-8")
    tab.goto((tmp_path / "b.html").as_uri())  # the board of an experiment
    assert verdict.is_hidden()
    tab.close()


# ---- What matters


def test_keys_stand_in_the_order_of_their_importance(opened, board):
    tab = opened("#matters")
    keys = board.matters.groups[0].keys
    rows = tab.locator(".matters tbody tr").all()
    assert [row.locator("th").inner_text() for row in rows] == [one.key.name for one in keys]
    for row, one in zip(rows, keys, strict=True):
        low, high = [float(part) for part in row.locator("td.figure .soft").inner_text().replace(" %", "").split(" – ")]
        assert low == pytest.approx(100 * one.alone.low, abs=0.51)
        assert high == pytest.approx(100 * one.alone.high, abs=0.51)


def test_means_plateaus_and_maps_are_those_of_python(opened, board):
    tab = opened("#matters")
    figure = tab.locator("figure", has=tab.locator("h3", has_text="top_k"))
    figure.locator("summary").click()
    [one] = [one for one in board.matters.groups[0].keys if one.key.name == "top_k"]
    shown = [float(row.locator("td.mean").inner_text()) for row in figure.locator("tbody tr").all()]
    assert shown == pytest.approx([level.mean for level in one.levels], abs=5.1e-5)
    said = figure.locator("p").inner_text().lower()
    assert (one.plateau.shape if one.plateau.clear else "no more than by chance") in said
    down, across = tab.get_by_label("Down", exact=True), tab.get_by_label("Across", exact=True)
    down.select_option("top_k")
    across.select_option("retriever")
    [cells] = [one for one in board.matters.maps if {one.first, one.second} == {"top_k", "retriever"}]
    by_retriever = cells.means.tolist() if cells.first == "retriever" else cells.means.T.tolist()
    rows = [[float(one.inner_text()) for one in row.locator("td").all()] for row in tab.locator(".heat tbody tr").all()]
    assert rows == [pytest.approx(row, abs=5.1e-4) for row in zip(*by_retriever, strict=True)]
    across.select_option("top_k")  # both the same: the other one moves
    assert down.input_value() != "top_k"


def test_a_range_of_a_key_keeps_its_runs(opened, board):
    tab = opened("#matters")
    tab.locator(".brushes label", has_text="gate").locator("select").select_option(label="none")
    assert "12 runs of 24" in tab.locator("section", has=tab.locator(".over")).inner_text()
    assert tab.locator(".under path").count() == 12
    best = next(one for one in board.runs.runs if one.run.params["gate"] == "none")
    assert tab.locator(".passing button").first.inner_text() == best.name
    tab.locator(".over").focus()
    tab.keyboard.press("ArrowDown")
    tab.locator("#spoken", has_text=best.name).wait_for(state="attached")
    tab.keyboard.press("Escape")
    assert tab.locator(".under path").count() == 24


# ---- Queries


def readout(tab):
    return tab.locator(".readout").inner_text()


def listed(tab):
    """The ids of the queries in the order of the matrix."""
    tab.locator(".in-words").evaluate("one => { one.open = true; }")
    while tab.locator(".in-words .more").is_visible():
        tab.locator(".in-words .more").click()
    return tab.locator(".lines .id").all_inner_texts()


def test_what_is_packed_comes_out(opened, runs):
    found = opened("#queries").evaluate("""async () => {
      const { values, losses, ids, needs, multi_turn } = await matrix();
      const plain = [...values].map((one) => Number.isNaN(one) ? null : one);
      return { values: plain, losses: [...losses], ids, needs: [...needs], multi_turn: [...multi_turn] };
    }""")
    values = np.array(found["values"], float).reshape(runs.values.shape)
    np.testing.assert_allclose(values, runs.values, atol=1e-6)
    assert found["losses"] == runs.losses.ravel().tolist()
    assert found["ids"] == list(runs.query_ids)
    assert found["needs"] == runs.needs.astype(int).tolist()
    assert found["multi_turn"] == runs.multi_turn.astype(int).tolist()


def test_queries_are_chosen_by_an_attribute(opened, runs):
    """The made-up board has six questions in turn; `Why does the sea …` and `달의 모양은 왜 …` ask why."""
    tab = opened("#queries")
    why = [row for row in range(len(runs.query_ids)) if row % 6 in (0, 3)]
    choices = tab.locator("#panel-queries .choice select")  # sorted by, retrieval, turns, attribute, its value, run
    tab.get_by_label("attribute").select_option("asks")
    tab.get_by_label("sorted by").select_option("id")
    choices.nth(4).select_option(label="why")
    assert listed(tab) == [runs.query_ids[row] for row in why]
    assert {*tab.locator(".lines .pill").all_inner_texts()} >= {"why"}
    means = [cells.split() for cells in tab.locator("#panel-queries .plain-table tbody tr").all_inner_texts()]
    (found,) = [cells for cells in means if cells[0] == "why"]
    first = tab.evaluate("selection[0]")
    assert found[1:3] == [str(len(why)), f"{runs.values[first, why].mean():.4f}"]
    tab.get_by_label("attribute").select_option("")
    assert len(listed(tab)) == len(runs.query_ids)


def test_what_a_run_did_on_a_query_comes_out(opened, runs):
    dataset = made_dataset(runs)
    [full, light, turns, relevant] = opened("#queries").evaluate("""async () => {
      const one = await query(2);
      return [await one.of(0), await one.of(9), one.turns, await one.relevant()];
    }""")
    assert turns == [[turn.role, turn.content] for turn in dataset.queries[2].turns]
    assert [one["id"] for one in relevant] == list(dataset.qrels.grades["q0002"])  # the highest grade first
    assert full["full"]
    assert len(full["documents"]) == 5
    assert full["signal"] == full["documents"][0]["score"]  # as the made-up gate has it
    assert not light["full"]
    assert light["signal"] is None
    for one in (*full["documents"], *light["documents"]):
        document = dataset.by_id[one["id"]]
        assert (one["title"], one["text"]) == (document.title, document.text)
        assert one["grade"] == dataset.qrels.grades["q0002"].get(one["id"])


def test_the_ceilings_are_those_of_the_values(opened, runs):
    tab = opened("#queries")
    best = np.nanmax(runs.values, axis=0)
    pairs = [np.fmax(runs.values[0], other).mean() for other in runs.values[1:]]
    facts = tab.locator(".ceiling .fact b").all_inner_texts()
    assert facts == [f"{value:.4f}" for value in (runs.values[0].mean(), max(pairs), best.mean())]
    others, none = (best >= 1) & (runs.values[0] < 1), best < 1
    buckets = tab.locator(".bucket b")
    assert buckets.all_inner_texts() == [str(others.sum()), str(none.sum())]
    assert others.any()
    buckets.first.click()
    assert sorted(listed(tab)) == [runs.query_ids[q] for q in np.flatnonzero(others)]


def test_queries_are_sorted_and_filtered(opened, runs):
    tab = opened("#queries")
    spread = np.nanvar(runs.values, axis=0)
    order = sorted(range(60), key=lambda q: (-round(spread[q], 6), q))
    assert listed(tab)[:10] == [runs.query_ids[q] for q in order[:10]]  # runs disagree most on the first
    tab.get_by_label("sorted by").select_option("id")
    assert listed(tab) == list(runs.query_ids)
    tab.get_by_label("retrieval").select_option("no")
    assert listed(tab) == [one for one, needs in zip(runs.query_ids, runs.needs, strict=True) if not needs]
    tab.get_by_label("retrieval").select_option("")
    kind = LOSSES.index("not_found")
    chip = tab.locator(".chip", has_text="not found").first
    count = int((runs.losses[0] == kind).sum())
    assert chip.locator(".number").inner_text() == str(count)
    chip.click()
    assert listed(tab) == [runs.query_ids[q] for q in np.flatnonzero(runs.losses[0] == kind)]
    tab.locator(".chip", has_text="not found").first.click()
    tab.get_by_label("Search queries").fill("dna strands")
    assert listed(tab) == [one for one in runs.query_ids if int(one[1:]) % 6 == 4]


def test_a_cell_is_reached_by_keyboard_and_opened(opened, runs):
    tab = opened("#queries")
    tab.get_by_label("sorted by").select_option("id")
    tab.get_by_role("grid").focus()
    for key in ("Control+Home", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight"):
        tab.keyboard.press(key)
    value, kind = runs.values[3, 2], LOSSES[runs.losses[3, 2]] or "right"
    said = f"q0002 · {runs.runs[3].name}: {value:.4f}, {kind.replace('_', ' ')}"
    assert readout(tab) == said
    assert tab.get_by_role("gridcell").text_content() == said
    tab.locator("#spoken", has_text=said).wait_for(state="attached")  # what a screen reader says
    tab.keyboard.press("Enter")
    tab.locator("#query").wait_for()
    assert tab.locator("#query-title .id").inner_text() == "q0002"
    sides = tab.locator(".side h3").all_inner_texts()
    assert [one.strip() for one in sides] == [runs.runs[0].name, runs.runs[3].name]
    assert "#queries/q0002?runs=" in tab.url
    tab.keyboard.press("j")
    tab.locator("#query-title .id", has_text="q0003").wait_for()
    tab.keyboard.press("Escape")
    assert tab.locator("#query").count() == 0
    assert tab.evaluate("document.activeElement.getAttribute('role')") == "grid"
    assert readout(tab).startswith("q0003")


def test_a_link_opens_a_query_with_its_runs(opened, runs):
    ids = ",".join(runs.runs[place].run.run_id for place in (1, 4, 8, 2))
    tab = opened(f"#queries/q0010?runs={ids}")
    tab.locator("#query").wait_for()
    assert tab.locator(".side").count() == 4
    assert tab.locator(".gate-line").first.inner_text().startswith("gate: bm25 top_score ")  # a run in full
    assert "threshold 5.5" in tab.locator(".gate-line").first.inner_text()
    assert tab.locator(".card mark").count() > 0
    assert serious_faults(tab) == []
    tab.evaluate("document.querySelector('#query').scrollIntoView()")
    tab.get_by_role("button", name="한국어").click()
    tab.locator("#query", has_text="게이트").wait_for()  # what was open stays open in another language
    assert "#queries/q0010?" in tab.url


def test_words_are_marked_as_the_page_says(opened):
    """Korean: two letters that begin a word alike; other letters: four; words in capitals or with digits whole."""
    marks = opened("#queries").evaluate("""() => {
      const words = queryMarks.wordsOf("달의 모양은 Rivers H2O DNA 왜 a");
      const texts = ["달은 모양이 바뀐다", "달의", "왜 그런가", "river riverside rivet rise", "H2O h2 DNA dna",
        "외모양", "a"];
      return texts.map((text) =>
        queryMarks.markedText(text, words).filter((one) => typeof one !== "string").map((one) => one.textContent));
    }""")
    assert marks == [["모양"], ["달의"], [], ["river", "rivers", "rive"], ["H2O", "DNA"], [], []]


def test_the_matrix_shows_colours_of_the_cells(opened, runs):
    """By value: the cells of the query that runs solve most often have the darker colour."""
    tab = opened("#queries")
    tab.get_by_role("button", name="colour by value").click()
    tab.get_by_label("sorted by").select_option("mean")
    shade = tab.evaluate("""async () => {
      await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
      const canvas = document.querySelector(".cells canvas"), wide = canvas.width;
      const red = (y) => {
        const copy = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
        copy.drawImage(canvas, wide - 20, y, 1, 1, 0, 0, 1, 1);
        return copy.getImageData(0, 0, 1, 1).data[0];
      };
      const first = red(30);
      document.querySelector(".cells").scrollTop = 1e6;
      await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
      return [first, red(canvas.height - 12)];
    }""")
    assert shade[0] > shade[1] + 60


def test_missing_data_are_said_and_shown_as_missing(opened, tmp_path):
    runs = made_runs(queries=4)
    collected = Collected(runs, [ReadAgain()])
    collected.add(0, 0, {"q0000": Returned(1, ("d1",), None, "물의 끓는점")}, None)
    details = collected.details([None] * len(runs.runs), [Notice("unread", 24, "The labels have moved.")])
    path = tmp_path / "board.html"
    path.write_text(page.html(made_board(runs, details)), "utf-8")
    tab = opened("#queries/q0000", page_at=path.as_uri())
    tab.locator("#query").wait_for()
    assert tab.locator(".foot-notes").inner_text() == (
        "Texts and relevant documents of 24 runs are not shown: The labels have moved."
    )
    assert re.search(r"d1\s*\(text unknown\)", tab.locator(".side").first.inner_text())
    assert "The list of this run is unknown." in tab.locator(".side").nth(1).inner_text()
