"""A board, assembled: the runs, the leaderboard, what matters, the queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.board.expected import Expected
from harness.board.leaderboard import Leaderboard, leaderboard
from harness.board.matters import Matters, matters
from harness.board.queries import Details, details
from harness.board.runs import BoardRuns
from harness.reports.sections import Section
from harness.tracking.tracker import Tracker


@dataclass(frozen=True, eq=False)
class Board:
    """What the page of a board shows.

    matters: None where nothing was varied. sections: a report to be read from top to bottom, with its figures,
    name -> PNG. title, verdicts: what the page is called, and what it says first; "" and () for the board of an
    experiment.
    """

    experiment: str
    runs: BoardRuns
    leaderboard: Leaderboard
    matters: Matters | None
    details: Details
    sections: Sequence[Section] = ()
    figures: Mapping[str, bytes] = field(default_factory=dict)
    title: str = ""
    verdicts: Sequence[str] = ()


def assembled(
    runs: BoardRuns,
    tracker: Tracker,
    folder: Path,
    expected: Expected | None,
    sections: Sequence[Section] = (),
    figures: Mapping[str, bytes] | None = None,
) -> Board:
    """The board of the runs. folder: for downloads. expected: of the best run. sections, figures: as in `Board`."""
    experiment = runs.runs[0].run.experiment
    return Board(
        experiment=experiment,
        runs=runs,
        leaderboard=leaderboard(runs, expected),
        matters=matters(runs),
        details=details(runs, tracker, folder),
        sections=sections,
        figures=figures or {},
    )
