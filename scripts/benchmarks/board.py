"""The page of a large board."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from board_lists import made_dataset
from boards import made_runs
from browsers import CHROMIUM, launched
from measuring import Table, timed

from harness.analysis.board import page
from harness.analysis.board.leaderboard import leaderboard
from harness.analysis.board.lists import Returned
from harness.analysis.board.page import Board
from harness.analysis.board.queries import Collected, ReadAgain
from harness.analysis.board.runs import BoardRuns

POOL, TOP, KINDS = 60, 3, 8  # documents per query, documents returned, retrievers and gates of made-up runs


def board(count: int = 5000, queries: int = 1000) -> None:
    """Make the page of a large board and open it.

    The COUNT runs are made up, with lists of three of 60 documents per query. `collect` puts the lists together,
    `leaderboard` tests every run against the best, `page` packs and writes the file. Where Chromium is there, `open` is
    the time until the page shows its first tab, and `queries` from a click on that tab to its matrix.
    """
    table = Table("step", "seconds")

    def step(name: str, work: Any) -> Any:
        spent, result = timed(work)
        table.row(name, spent)
        return result

    runs = made_runs(queries, top_k=range(1, count // KINDS + 1))
    with tempfile.TemporaryDirectory() as folder:
        details = step("collect", lambda: _collected(runs))
        ranked = step("leaderboard", lambda: leaderboard(runs))
        file = Path(folder) / "board.html"
        step("page", lambda: file.write_text(page.html(Board(runs, ranked, None, details)), "utf-8"))
        if CHROMIUM:
            with launched() as browser:
                tab = browser.new_page(viewport={"width": 1400, "height": 900})
                step("open", lambda: (tab.goto(file.as_uri()), tab.wait_for_selector("#panel-leaderboard .board")))
                step("queries", lambda: (tab.click("#tab-queries"), tab.wait_for_selector(".cells canvas")))
        print(f"{len(runs.runs):,} runs of {queries:,} queries: {file.stat().st_size / 1e6:.1f} MB")


def _collected(runs: BoardRuns) -> dict[str, Any]:
    """Return lists whose documents differ from run to run as those of a wide sweep."""
    dataset, rng = made_dataset(runs, documents=20 * len(runs.query_ids)), np.random.default_rng(0)
    collected = Collected(runs, [ReadAgain(dataset, dataset.qrels.grades)])
    names = [document.doc_id for document in dataset.documents]
    for place in range(len(runs.runs)):
        drawn = (rng.gamma(1, 4, (len(dataset.queries), TOP)).astype(int) % POOL).tolist()
        shown = runs.losses[place] != 2
        returned = {}
        for row, query in enumerate(dataset.queries):
            docs = dict.fromkeys(names[(17 * row + one) % len(names)] for one in drawn[row]) if shown[row] else {}
            returned[query.query_id] = Returned(len(docs), tuple(docs), tuple(range(len(docs), 0, -1)), query.text)
        collected.add(place, 0, returned, None)
    return collected.details([None] * len(runs.runs), [])
