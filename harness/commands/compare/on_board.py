"""The page of a comparison of retrieval runs: the board of these runs, with the comparison as its report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.board import page as board_page
from harness.board.board import Board, assembled
from harness.board.runs import BoardRun, of_tables
from harness.board.settings import short_names
from harness.commands.compare import figures, page
from harness.commands.compare.comparison import RetrievalComparison, Settings
from harness.commands.compare.retrieval_runs import ComparedRun
from harness.evaluation.objective import Objective, kind_of
from harness.tracking.tracker import Tracker


def html(
    comparison: RetrievalComparison, runs: Sequence[ComparedRun], tracker: Tracker, folder: Path, settings: Settings
) -> str:
    """The page. runs: those that are compared. folder: for downloads."""
    return board_page.html(board(comparison, runs, tracker, folder, settings))


def board(
    comparison: RetrievalComparison, runs: Sequence[ComparedRun], tracker: Tracker, folder: Path, settings: Settings
) -> Board:
    """The board of compared runs, which have their labels in their names."""
    names = short_names([run.run for run in runs])
    placed = [
        (BoardRun(run.run, f"{run.label}: {name}", _score(run, settings)), run.table)
        for run, name in zip(runs, names, strict=True)
    ]
    placed.sort(key=lambda one: -one[0].score.value)
    found = of_tables(settings.metric, settings.select_on, placed, comparison.notes)
    drawn = figures.run_figures(comparison)
    made = assembled(found, tracker, folder, comparison.expected, page.run_report(comparison), drawn)
    return replace(made, title=page.heading(comparison), verdicts=page.verdicts(comparison))


def _score(run: ComparedRun, settings: Settings) -> Objective:
    """What ranks a run; its mean where it has logged none by this measure."""
    if known := run.run.score(settings.metric, settings.select_on):
        return known
    values = run.values[settings.metric]
    counted = values[run.table.public] if settings.select_on == "public" else values
    counted = counted[~(counted != counted)]
    mean = float(counted.mean()) if len(counted) else math.nan
    return Objective(settings.metric, mean, kind=kind_of(bool(run.table.oof), settings.select_on))
