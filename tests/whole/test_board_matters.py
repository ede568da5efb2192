"""The tab *What matters* in a real browser. Skipped without Chromium; HARNESS_PICTURES=FOLDER saves pictures."""

import pytest
from board_pages import made_board
from boards import made_runs
from browsers import CHROMIUM, launched, narrow, serious_faults

from harness.runs.board import page

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")]


@pytest.fixture(scope="module")
def board():
    return made_board(made_runs(queries=60))


@pytest.fixture(scope="module")
def opened(board, tmp_path_factory):
    """Open the tab in a window of its own, in which nothing may go wrong."""
    path, errors = tmp_path_factory.mktemp("board") / "board.html", []
    path.write_text(page.html(board), "utf-8")
    with launched() as browser:

        def call(width=1500, locale="en", **how):
            tab = browser.new_context(viewport={"width": width, "height": 950}, locale=locale, **how).new_page()
            tab.on("pageerror", lambda error: errors.append(str(error)))
            tab.on("console", lambda said: errors.append(said.text) if said.type in ("error", "warning") else None)
            tab.goto(f"{path.as_uri()}#matters")
            tab.locator(".over").wait_for()
            return tab

        yield call
    assert not errors


def test_keys_stand_in_the_order_of_their_importance(opened, board):
    tab = opened()
    keys = board.matters.groups[0].keys
    rows = tab.locator(".matters tbody tr").all()
    assert [row.locator("th").inner_text() for row in rows] == [one.key.name for one in keys]
    for row, one in zip(rows, keys, strict=True):
        low, high = [float(part) for part in row.locator("td.figure .soft").inner_text().replace(" %", "").split(" – ")]
        assert low == pytest.approx(100 * one.alone.low, abs=0.51)
        assert high == pytest.approx(100 * one.alone.high, abs=0.51)


def test_means_plateaus_and_maps_are_those_of_python(opened, board):
    tab = opened()
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
    tab = opened()
    tab.locator(".brushes label", has_text="gate").locator("select").select_option(label="none")
    assert "12 runs of 24" in tab.locator("section", has=tab.locator(".over")).inner_text()
    assert tab.locator(".under path").count() == 12
    best = next(one for one in board.runs.runs if one.run.params["gate"] == "none")
    assert tab.locator(".passing button").first.inner_text() == best.name
    tab.locator(".over").focus()
    tab.keyboard.press("ArrowDown")
    tab.wait_for_timeout(100)
    assert best.name in tab.locator("#spoken").inner_text()
    tab.keyboard.press("Escape")
    assert tab.locator(".under path").count() == 24


@pytest.mark.parametrize(("width", "scheme", "locale"), [(390, "dark", "ko"), (1500, "light", "en")])
def test_it_fits_and_has_no_serious_fault(opened, width, scheme, locale):
    tab = opened(width=width, locale=locale, color_scheme=scheme, bypass_csp=True)
    assert narrow(tab)
    assert not serious_faults(tab)
    if locale == "ko":
        assert "무엇이 중요한가" in tab.locator("#tab-matters").inner_text()
