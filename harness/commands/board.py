"""`harness board`: the runs of an experiment side by side on one page, and which of them to take."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.board import page, runs
from harness.board.board import Board, assembled
from harness.board.choice import Asked
from harness.board.leaderboard import Row
from harness.config.check import Invocation
from harness.config.text import counted
from harness.data.files import write_text
from harness.progress import stage
from harness.reports import sections, terminal
from harness.reports.markup import ABSENT, interval, number
from harness.reports.next_steps import Place
from harness.reports.sections import Section
from harness.tracking.recording import open_tracker
from harness.tracking.tracker import NO_RUNS, refusal

if TYPE_CHECKING:
    from rich.console import Console

SHOWN = 20  # runs on the terminal


def board(config: dict[str, Any], invocation: Invocation) -> dict[str, Any]:
    """Write the page of a board and print the leaderboard. Returns the JSON document of `harness board format=json`."""
    tracker = open_tracker(config)
    if tracker.uri is None:
        raise refusal(tracker, NO_RUNS)
    output = Path(config["output"]).absolute()
    with tempfile.TemporaryDirectory() as folder:
        found = runs.read(tracker, Asked.of(config), Path(folder))
        with stage("comparing the runs"):
            one = assembled(found, tracker, Path(folder))
        write_text(output, page.html(one))
    document = _document(one) | {"files": {"html": str(output)}}

    def show(console: Console) -> None:
        sections.show(console, one.title, _sections(one))
        console.print(f"The board: {output}")
        console.print("Next:")
        for step in _next(one, Place.of(config, invocation)):
            console.print(f"  {step}")

    terminal.emit(config["format"], document, show)
    return document


def _document(one: Board) -> dict[str, Any]:
    runs, found = one.runs, one.leaderboard.to_json()
    rows = [
        {
            "run_id": run.run.run_id,
            "short_name": run.name,
            "name": run.run.name,
            "objective": run.score.to_json(),
            **{key: value for key, value in row.items() if key != "run"},
        }
        for run, row in zip(runs.runs, found["rows"], strict=True)
    ]
    pick = found["pick"]
    pick |= {"run_id": runs.runs[pick.pop("run")].run.run_id}
    pick["instead"] = None if pick["instead"] is None else runs.runs[pick["instead"]].run.run_id
    return {
        "experiment": one.experiment,
        "metric": runs.metric,
        "select_on": runs.select_on,
        "queries": len(runs.query_ids),
        "rows": rows,
        "recommended": pick,
        "tied": [runs.runs[row.run].run.run_id for row in one.leaderboard.tied],
        "luck": found["luck"],
        "notes": [*runs.notes, *found["notes"]],
    }


def _sections(one: Board) -> list[Section]:
    """What the terminal shows."""
    runs, found = one.runs, one.leaderboard
    rows = found.rows[:SHOWN]
    left = len(found.rows) - len(rows)
    header = ["", runs.metric, "95 % interval", "kind", "p (Holm)", "ms/query", "index MB", "id", "run"]
    lines = [f"{left} more on the page."] if left else []
    tied = len(found.tied)
    tied_line = f"= not told apart from the best: {counted(tied - 1, 'run')}" if tied > 1 else ""
    return [
        Section("Leaderboard", [*lines, *filter(None, [tied_line])], header, [_cells(one, row) for row in rows]),
        Section("Recommended", [found.pick.reason, *([found.luck.sentence()] if found.luck else [])]),
        *([Section("Notes", notes)] if (notes := [*runs.notes, *found.notes]) else []),
    ]


def _cells(one: Board, row: Row) -> list[str]:
    run = one.runs.runs[row.run]
    score = run.score
    p = ABSENT if row.p_holm is None else f"{row.p_holm:.3f}"
    costs = [ABSENT if value is None else f"{value:.3g}" for value in (row.ms, row.index_mb)]
    head = ["=" if row.tied else "", number(score.value), interval(score.low, score.high), score.kind]
    return [*head, p, *costs, run.run.short_id, run.name]


def _next(one: Board, place: Place) -> list[str]:
    first, second = one.runs.runs[:2]
    pair = f"runs=[{first.run.short_id},{second.run.short_id}]"
    picked = one.runs.runs[one.leaderboard.pick.run].run.short_id
    return [place.command("compare", pair, metric=one.runs.metric), place.command("export", f"run={picked}")]
