"""A board, and its one HTML page: which run, why, what next. Its tabs read the JSON of their parts.

The page is the template `board.html`, filled; `board.js` says what a tab's file must do.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.analysis.board.expected import Expected
from harness.analysis.board.leaderboard import Leaderboard, leaderboard
from harness.analysis.board.matters import Matters, matters
from harness.analysis.board.queries import DETAILED, details, item_details, packed_json
from harness.analysis.board.runs import LOSSES, BoardRuns
from harness.analysis.board.settings import changed_settings
from harness.reports.markup import rounded_or_none
from harness.reports.page import TEMPLATES, fill_page
from harness.reports.report import Report, page_data
from harness.storage.typed import encoded
from harness.tracking.tracker import Tracker

TEMPLATE = TEMPLATES / "board.html"
PAIRED = 40  # the best runs, of which the page knows every pair; beyond them it knows pairs with the best run
PAIRED_SUMS = 5  # the same of submissions to a text task, which take longer


@dataclass(frozen=True, eq=False)
class Board:
    """What the page of a board shows.

    matters: None where nothing was varied. details: as `queries.details` returns them. report: of a comparison, whose
    title and verdict the page begins with; None for the board of an experiment.
    """

    runs: BoardRuns
    leaderboard: Leaderboard
    matters: Matters | None
    details: Mapping[str, Any]
    report: Report | None = None

    @property
    def experiment(self) -> str:
        return self.runs.runs[0].run.experiment


def assembled(
    runs: BoardRuns, tracker: Tracker, folder: Path, expected: Expected | None, report: Report | None = None
) -> Board:
    """Return the board of the runs. folder: for downloads. expected: of the best run. report: as in `Board`."""
    shown = item_details(runs, runs.submissions) if runs.submissions else details(runs, tracker, folder)
    return Board(runs, leaderboard(runs, expected), matters(runs), shown, report)


def is_board(path: Path) -> bool:
    """Return whether a file is a page that `html` has made, by its beginning."""
    with path.open("rb") as file:
        start = file.read(8192)
    return start.startswith(b"<!DOCTYPE html>") and b"<title>Board</title>" in start


def html(board: Board) -> str:
    """Return the whole page, which needs no other file and no network."""
    return fill_page(TEMPLATE, document(board))


def document(board: Board) -> dict[str, Any]:
    """Return what the page's scripts read; a tab whose part is null is not shown."""
    runs = board.runs
    return {
        "nouns": ["item", "items"] if runs.submissions else ["query", "queries"],
        "head": {
            "experiment": board.experiment,
            "task": runs.submissions.task.name if runs.submissions else None,
            "metric": runs.metric,
            "select_on": runs.select_on,
            "queries": len(runs.query_ids),
            "notes": [*runs.notes],
            "title": board.report.title if board.report else "",
            "verdicts": [*board.report.verdict] if board.report else [],
        },
        "runs": _runs(runs),
        "leaderboard": encoded(board.leaderboard),
        "matters": encoded(board.matters),
        "queries": board.details,
        "pairs": packed_json(pairs_on_parts(runs)),
        "sections": page_data(board.report) if board.report else [],
    }


def pairs_on_parts(runs: BoardRuns) -> dict[str, list[tuple[float | None, ...]]]:
    """Return part of the queries -> (first run, second run, mean difference, low, high, p) of each pair that is tested.

    p and the interval are those of `harness compare`, with the same draws, without correction for other pairs. {} where
    labels come partly from a model.
    """
    if any(one.score.estimate for one in runs.runs):
        return {}
    most = PAIRED_SUMS if runs.submissions else PAIRED
    best, detailed = range(min(most, len(runs.runs))), range(min(DETAILED, len(runs.runs)))
    pairs = [*itertools.combinations(best, 2), *((0, place) for place in detailed[most:])]
    parts = {"all": np.ones(len(runs.public), bool)}
    parts |= {"public": runs.public, "private": ~runs.public} if 0 < runs.public.sum() < len(runs.public) else {}
    return {
        name: [
            (*pair, *map(rounded_or_none, (one.mean, one.low, one.high)), one.p)
            for pair, one in zip(pairs, runs.differences(pairs, rows), strict=True)
            if one.n > 1
        ]
        for name, rows in parts.items()
    }


def _runs(runs: BoardRuns) -> list[dict[str, Any]]:
    """Return the runs for the page. params: the settings that differ. losses: kind -> number of queries."""
    changed = changed_settings([one.run.params if one.run.has_settings else {} for one in runs.runs])
    return [
        {
            "id": one.run.run_id,
            "short": one.name,
            "name": one.run.name,
            "also": one.twins,
            "value": rounded_or_none(one.score.value),
            "low": rounded_or_none(one.score.low),
            "high": rounded_or_none(one.score.high),
            "kind": one.score.kind,
            "params": {key: values[place] for key, values in changed.items()},
            "losses": {
                LOSSES[kind]: count for kind, count in enumerate(np.bincount(losses).tolist()) if LOSSES[kind] and count
            },
        }
        for place, (one, losses) in enumerate(zip(runs.runs, runs.losses, strict=True))
    ]
