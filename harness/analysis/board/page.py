"""A board and its HTML page, made from the template `board.html`. `board.js` explains how to add a tab."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.analysis.board.expected import Expected
from harness.analysis.board.leaderboard import Leaderboard, leaderboard
from harness.analysis.board.lists import DETAILED
from harness.analysis.board.matters import Matters, matters
from harness.analysis.board.queries import details, item_details, packed_json
from harness.analysis.board.runs import LOSSES, BoardRuns
from harness.analysis.board.settings import changed_settings
from harness.recording.load_run import loads_beside
from harness.reports.markup import TEMPLATES, fill_page, rounded_or_none
from harness.reports.report import Report, page_data
from harness.storage.typed import encoded
from harness.tracking.tracker import Tracker

TEMPLATE = TEMPLATES / "board.html"
PAIRED = 40  # the number of best runs that are tested pair by pair; other runs are only tested against the best
PAIRED_SUMS = 5  # the same for submissions to a text task, whose tests take longer


@dataclass(frozen=True, eq=False)
class Board:
    """The content of a board's page. matters: None if no key varies. report: the report of a comparison, or None."""

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
    """Return the board of the runs. folder: for downloads. expected: the score to expect of the best run."""
    shown = item_details(runs, runs.submissions) if runs.submissions else details(runs, tracker, folder)
    loads = loads_beside(tracker, (one.run for one in runs.runs))
    return Board(runs, leaderboard(runs, expected, loads), matters(runs), shown, report)


def is_board(path: Path) -> bool:
    """Return whether a file begins like a page made by `html`."""
    with path.open("rb") as file:
        start = file.read(8192)
    return start.startswith(b"<!DOCTYPE html>") and b"<title>Board</title>" in start


def html(board: Board) -> str:
    """Return the page, which needs no other file and no network."""
    return fill_page(TEMPLATE, document(board))


def document(board: Board) -> dict[str, Any]:
    """Return the data that the scripts of a board's page read. A tab is hidden if its data are null."""
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
    """Return {part of the queries: (first run, second run, mean difference, low, high, p) of each tested pair}.

    The interval and the uncorrected p are those of `harness compare` for each pair alone. Return {} if labels come
    partly from a model.
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
