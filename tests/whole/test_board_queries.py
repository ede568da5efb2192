"""The queries of a board in a real browser: what is packed comes out, and the numbers are those that Python computes.

Skipped without Chromium. HARNESS_PICTURES=docs/pictures saves the screenshots.
"""

import re

import numpy as np
import pytest
from board_lists import made_dataset
from board_pages import made_board
from boards import made_runs
from browsers import CHROMIUM, launched, narrow, serious_faults

from harness.runs.board import page
from harness.runs.board.lists import Returned
from harness.runs.board.queries import Collected, Notice, ReadAgain
from harness.runs.board.runs import LOSSES

PATIENCE = 20_000  # ms that a test waits for an element

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")]


@pytest.fixture(scope="module")
def runs():
    found = made_runs(queries=60)
    found.values[3, 5] = np.nan  # where a measure is not defined
    return found


@pytest.fixture(scope="module")
def browser():
    with launched() as opened:
        yield opened


@pytest.fixture(scope="module")
def address(runs, tmp_path_factory):
    path = tmp_path_factory.mktemp("board") / "board.html"
    path.write_text(page.html(made_board(runs)), "utf-8")
    return path.as_uri()


@pytest.fixture
def opened(browser, address):
    """Open the queries of the board, in which nothing may go wrong: (place, **how) -> page."""
    contexts, errors = [], []

    def call(place="#queries", address=address, width=1500, locale="en", **how):
        contexts.append(browser.new_context(viewport={"width": width, "height": 950}, locale=locale, **how))
        tab = contexts[-1].new_page()
        tab.set_default_timeout(PATIENCE)
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.on("console", lambda said: errors.append(said.text) if said.type in ("error", "warning") else None)
        tab.goto(address + place)
        tab.locator(".cells canvas").wait_for()
        return tab

    yield call
    for one in contexts:
        one.close()
    assert not errors


def readout(tab):
    return tab.locator(".readout").inner_text()


def listed(tab):
    """The ids of the queries in the order of the matrix."""
    tab.locator(".in-words").evaluate("one => { one.open = true; }")
    while tab.locator(".in-words .more").is_visible():
        tab.locator(".in-words .more").click()
    return tab.locator(".lines .id").all_inner_texts()


def test_what_is_packed_comes_out(opened, runs):
    found = opened().evaluate("""async () => {
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


def test_what_a_run_did_on_a_query_comes_out(opened, runs):
    dataset = made_dataset(runs)
    [full, light, turns, relevant] = opened().evaluate("""async () => {
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
    tab = opened()
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
    tab = opened()
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
    tab = opened()
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
    marks = opened().evaluate("""() => {
      const words = queryMarks.wordsOf("달의 모양은 Rivers H2O DNA 왜 a");
      const texts = ["달은 모양이 바뀐다", "달의", "왜 그런가", "river riverside rivet rise", "H2O h2 DNA dna",
        "외모양", "a"];
      return texts.map((text) =>
        queryMarks.markedText(text, words).filter((one) => typeof one !== "string").map((one) => one.textContent));
    }""")
    assert marks == [["모양"], ["달의"], [], ["river", "rivers", "rive"], ["H2O", "DNA"], [], []]


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (820, "light")])
def test_narrow_windows_show_an_open_query(opened, width, scheme):
    tab = opened("#queries/q0001", width=width, locale="ko", color_scheme=scheme, bypass_csp=True)
    tab.locator("#query").wait_for()
    assert narrow(tab)
    assert serious_faults(tab) == []


def test_the_matrix_shows_colours_of_the_cells(opened, runs):
    """By value: the cells of the query that runs solve most often have the darker colour."""
    tab = opened()
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
    tab = opened("#queries/q0000", address=path.as_uri())
    tab.locator("#query").wait_for()
    assert tab.locator(".foot-notes").inner_text() == (
        "Texts and relevant documents of 24 runs are not shown: The labels have moved."
    )
    assert re.search(r"d1\s*\(text not known\)", tab.locator(".side").first.inner_text())
    assert "The list of this run is not known." in tab.locator(".side").nth(1).inner_text()
