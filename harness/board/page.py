"""A board as one HTML page: which run, why, what next. Its tabs read the JSON of their parts.

The page is the template `board.html`, filled; `board.js` says what a tab's file must do.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from harness.board.runs import BoardRun, BoardRuns
from harness.reports.markup import finite
from harness.reports.page import TEMPLATES, filled
from harness.reports.sections import Section

TEMPLATE = TEMPLATES / "board.html"


class Part(Protocol):
    """What one tab shows."""

    def to_json(self) -> dict[str, Any]: ...


class Shown(Protocol):
    """A board as its page shows it.

    matters: None where no setting was varied. sections: a report to be read from top to bottom, with its
    figures, name -> PNG.
    """

    @property
    def experiment(self) -> str: ...
    @property
    def runs(self) -> BoardRuns: ...
    @property
    def leaderboard(self) -> Part: ...
    @property
    def matters(self) -> Part | None: ...
    @property
    def details(self) -> Part: ...
    @property
    def sections(self) -> Sequence[Section]: ...
    @property
    def figures(self) -> Mapping[str, bytes]: ...


def html(board: Shown) -> str:
    """The whole page, which needs no other file and no network."""
    return filled(TEMPLATE, document(board))


def document(board: Shown) -> dict[str, Any]:
    """What the page's scripts read; a tab whose part is null is not shown."""
    runs = board.runs
    return {
        "nouns": ["query", "queries"],
        "head": {
            "experiment": board.experiment,
            "metric": runs.metric,
            "select_on": runs.select_on,
            "queries": len(runs.query_ids),
            "notes": [*runs.notes],
        },
        "runs": _runs(runs.runs),
        "leaderboard": board.leaderboard.to_json(),
        "matters": board.matters and board.matters.to_json(),
        "queries": board.details.to_json(),
        "sections": [_section(one, board.figures) for one in board.sections],
        "figures": {name: base64.b64encode(png).decode() for name, png in board.figures.items()},
    }


def _runs(runs: Sequence[BoardRun]) -> list[dict[str, Any]]:
    """params: the keys in which the runs differ; null where a run has none of them."""
    keys = sorted({key for one in runs for key in one.run.params})
    varied = [key for key in keys if len({one.run.params.get(key) for one in runs}) > 1]
    return [
        {
            "id": one.run.run_id,
            "short": one.name,
            "name": one.run.name,
            "value": finite(one.score.value),
            "low": finite(one.score.low),
            "high": finite(one.score.high),
            "kind": one.score.kind,
            "params": {key: one.run.params.get(key) for key in varied},
        }
        for one in runs
    ]


def _section(one: Section, figures: Mapping[str, bytes]) -> dict[str, Any]:
    return {
        "title": one.title,
        "lines": [*one.lines],
        "header": [*one.header],
        "rows": [[*row] for row in one.rows],
        "figures": [name for name in one.figures if name in figures],
    }
