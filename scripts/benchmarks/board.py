"""The page of a large board."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from board_lists import made_dataset
from boards import made_run
from measuring import Table, timed

from harness.analysis.board import page
from harness.analysis.board.leaderboard import leaderboard
from harness.analysis.board.lists import Returned
from harness.analysis.board.page import Board
from harness.analysis.board.queries import Collected, ReadAgain
from harness.analysis.board.runs import LOSSES, BoardRun, BoardRuns

POOL, COMPONENTS, TOP = 60, 4, 3  # documents per query, rankings, documents returned
WITHHELD, MISRANKED = LOSSES.index("wrongly_withheld"), LOSSES.index("misranked")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@dataclass(frozen=True, eq=False)
class MadeLists:
    """docs: int [Q, TOP], places in the pool. scores: float [Q, TOP]. shown: bool [Q]."""

    docs: np.ndarray
    scores: np.ndarray
    shown: np.ndarray


def board(count: int = 5000, queries: int = 1000) -> None:
    """Make the page of a large board and open it.

    The COUNT runs are made up: each fuses four rankings of 60 documents per query with weights of its own and cuts the
    list at a threshold of its own, so that lists differ as much as those of a wide sweep. `collect` puts the lists
    together, `leaderboard` tests every run against the best, `page` packs and writes the file. Where Chromium is there,
    `open` is the time until the page shows its first tab, and `queries` from a click on that tab to its matrix.
    """
    lists = list(made_lists(count, queries))
    runs, order = board_runs(lists, queries)
    table = Table("step", "seconds")

    def step(name, work):
        spent, result = timed(work)
        table.row(name, spent)
        return result

    with tempfile.TemporaryDirectory() as folder:
        details = step("collect", lambda: collected(runs, [lists[place] for place in order]))
        ranked = step("leaderboard", lambda: leaderboard(runs))
        file = Path(folder) / "board.html"
        step("page", lambda: file.write_text(page.html(Board(runs, ranked, None, details)), "utf-8"))
        slowest = opened(file, step) if CHROMIUM else None
        print(f"{count:,} runs of {queries:,} queries: {file.stat().st_size / 1e6:.1f} MB")
        if slowest is not None:
            print(f"scrolling: {slowest:.1f} ms a frame, the slowest of 60")


def made_lists(count: int, queries: int) -> Iterator[MadeLists]:
    """The first document of a pool is relevant, and the rankings know it by and by."""
    rng = np.random.default_rng(0)
    known = rng.gamma(3, 1, (COMPONENTS, queries, POOL)).astype(np.float32)
    known[:, :, 0] += rng.gamma(4, 0.9, (COMPONENTS, queries))
    for weights, threshold in zip(rng.dirichlet(np.ones(COMPONENTS), count), rng.uniform(3, 6, count), strict=True):
        total = np.tensordot(weights.astype(np.float32), known, axes=1)
        first = np.argpartition(-total, TOP, axis=1)[:, :TOP]
        scores = np.take_along_axis(total, first, axis=1)
        by_score = np.argsort(-scores, axis=1)
        docs, scores = (np.take_along_axis(one, by_score, axis=1) for one in (first, scores))
        yield MadeLists(docs, scores, scores[:, 0] >= threshold)


def board_runs(lists: list[MadeLists], queries: int) -> tuple[BoardRuns, np.ndarray]:
    """(the runs, the best first; the places of their lists)."""
    values = np.stack([((one.docs == 0) / (1 + np.arange(TOP))).sum(axis=1) * one.shown for one in lists])
    kinds = np.stack([np.where(one.shown, MISRANKED, WITHHELD) for one in lists])
    order = np.argsort(-values.mean(axis=1), kind="stable")
    names = ("bm25", "hybrid_lexical", "hybrid_light", "dense")
    runs = []
    for place in order:
        one = made_run(int(place), names[place % 4], "score", 1 + place % 3, values[place].mean())
        runs.append(BoardRun(one.run, f"{one.name} · {place}", one.score))
    flags = np.arange(queries)
    ids, losses = tuple(f"q{number:05}" for number in range(queries)), np.where(values >= 1, 0, kinds)[order]
    flags = (np.ones(queries, bool), flags % 5 == 0, flags % 2 == 0)  # needs, multi_turn, public
    found = BoardRuns("modified_map@3", "all", tuple(runs), ids, *flags, values[order], losses.astype(np.int8))
    return found, order


def collected(runs: BoardRuns, lists: list[MadeLists]):
    dataset = made_dataset(runs, documents=20 * len(runs.query_ids))
    result = Collected(runs, [ReadAgain(dataset, dataset.qrels.grades)])
    names = [document.doc_id for document in dataset.documents]
    for place, one in enumerate(lists):
        returned = {}
        for row, query in enumerate(dataset.queries):
            at = 17 * row
            docs = [names[(at + doc) % len(names)] for doc in one.docs[row]] if one.shown[row] else []
            scores = one.scores[row].tolist() if docs else None
            returned[query.query_id] = Returned(len(docs), tuple(docs), scores and tuple(scores), query.text)
        result.add(place, 0, returned, None)
    return result.details([None] * len(lists), [])


def opened(file, step):
    """Open the page in Chromium; return the ms of the slowest frame while scrolling."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page(viewport={"width": 1400, "height": 900})

        def shown(selector: str) -> None:
            tab.wait_for_selector(selector)
            tab.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

        step("open", lambda: (tab.goto(file.as_uri()), shown("#panel-leaderboard .board")))
        step("queries", lambda: (tab.click("#tab-queries"), shown(".cells canvas")))
        button = tab.get_by_role("button", name="all rows at once")
        step("all at once", lambda: (button.click(), shown(".cells.whole canvas")))
        scrolled = tab.evaluate(SCROLL)
        browser.close()
        return scrolled


SCROLL = """async () => {
  [...document.querySelectorAll("button")].find((one) => one.textContent === "all rows at once").click();
  const grid = document.querySelector(".cells"), next = () => new Promise((done) => requestAnimationFrame(done));
  let slowest = 0, before = await next();
  for (let i = 0; i < 60; i += 1) {
    grid.scrollTop += 97;
    const now = await next();
    slowest = Math.max(slowest, now - before);
    before = now;
  }
  return slowest;
}"""
