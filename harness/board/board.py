"""A board, assembled: the runs, the leaderboard, what matters, the queries."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.board.expected import Expected
from harness.board.leaderboard import Leaderboard, leaderboard
from harness.board.matters import Matters, matters
from harness.board.queries import Details, details
from harness.board.runs import BoardRuns
from harness.reports.report import Report
from harness.tracking.tracker import Tracker


@dataclass(frozen=True, eq=False)
class Board:
    """What the page of a board shows.

    matters: None where nothing was varied. report: of a comparison, whose title and verdict the page begins with; None
    for the board of an experiment.
    """

    experiment: str
    runs: BoardRuns
    leaderboard: Leaderboard
    matters: Matters | None
    details: Details
    report: Report | None = None


def assembled(
    runs: BoardRuns,
    tracker: Tracker,
    folder: Path,
    expected: Expected | None,
    report: Report | None = None,
) -> Board:
    """Return the board of the runs. folder: for downloads. expected: of the best run. report: as in `Board`."""
    experiment = runs.runs[0].run.experiment
    return Board(
        experiment=experiment,
        runs=runs,
        leaderboard=leaderboard(runs, expected),
        matters=matters(runs),
        details=details(runs, tracker, folder),
        report=report,
    )
