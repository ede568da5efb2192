"""`harness board`: the runs of an experiment side by side on one page, and which of them to take."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.board import expected, page, runs
from harness.board.board import Board, assembled
from harness.board.choice import Asked
from harness.board.leaderboard import ALPHA, Part, Row
from harness.config.check import Invocation
from harness.config.text import counted
from harness.evaluation.prediction_powered import Estimate
from harness.progress import stage
from harness.reports import sections, terminal
from harness.reports.markup import ABSENT, interval, number, p_value
from harness.reports.next_steps import Place
from harness.reports.sections import Section
from harness.reports.tables import MARK, Cell, Column, Number, Table, best_marked
from harness.storage.atomic import write_text
from harness.tracking.ranking import needed_metric, settled
from harness.tracking.recording import open_tracker
from harness.tracking.run_kind import require_retrieval
from harness.tracking.tracker import refusal
from retrievers.base import BadInput

if TYPE_CHECKING:
    from rich.console import Console

SHOWN = 20  # rows of a table on the terminal


def board(config: dict[str, Any], invocation: Invocation) -> dict[str, Any]:
    """Write the page of a board and print the leaderboard. Returns the JSON document of `harness board format=json`."""
    require_retrieval(config, "board")
    tracker = open_tracker(config)
    if not tracker.keeps_files:
        raise refusal(tracker, "keeps no runs for a board")
    output = Path(config["output"]).absolute()
    if output.exists() and not (output.is_file() and page.is_board(output)):
        raise BadInput(f"output={config['output']} is there already, and not a board. Name another file for the page.")
    with tempfile.TemporaryDirectory() as folder:
        config, notes = settled(tracker, config)
        found = runs.read(tracker, Asked.of(config), Path(folder))
        found = replace(found, notes=(*notes, *found.notes))
        with stage("comparing the runs"):
            whole = config["runs"] is None
            one = assembled(found, tracker, Path(folder), expected.of_board(tracker, found, whole))
        output.parent.mkdir(parents=True, exist_ok=True)
        write_text(output, page.html(one))
    peeks = tracker.count_private_view(one.experiment)
    document = _document(one) | {"files": {"html": str(output)}, "private_peeks": peeks}

    def show(console: Console) -> None:
        sections.show(console, _title(one), _sections(one))
        console.print(f"The page, query by query: {output}")
        console.print("Next:")
        for step in _next(one, Place.of(config, invocation)):
            console.print(f"  {step}")

    terminal.emit(config["format"], document, show, lambda _: [_pasted(one)])
    return document


def _title(one: Board) -> str:
    """`Experiment 'first': 12 runs by modified_map@3, out of fold or in sample, 110 queries`."""
    runs = one.runs
    kinds = " or ".join(dict.fromkeys(run.score.kind for run in runs.runs))
    over = int(runs.public.sum()) if runs.select_on == "public" else len(runs.query_ids)
    said = f"{counted(len(runs.runs), 'run')} by {runs.metric}, {kinds}, {counted(over, 'query')}"
    return f"Experiment {one.experiment!r}: {said}"


def _document(one: Board) -> dict[str, Any]:
    """What is found, with ids of runs in place of places."""
    runs, found = one.runs, one.leaderboard.to_json()
    ids = [run.run.run_id for run in runs.runs]
    rows = [
        {
            "run_id": run_id,
            "short_name": run.name,
            "name": run.run.name,
            "objective": run.score.to_json(),
            "also": [other.run_id for other in run.also],
        }
        | {key: value for key, value in row.items() if key != "run"}
        for run_id, run, row in zip(ids, runs.runs, found["rows"], strict=True)
    ]
    pick = one.leaderboard.pick
    instead = None if pick.instead is None else ids[pick.instead]
    return {
        "experiment": one.experiment,
        "metric": runs.metric,
        "select_on": runs.select_on,
        "queries": len(runs.query_ids),
        "rows": rows,
        "recommended": {"run_id": ids[pick.run], "reason": pick.reason.en, "instead": instead},
        "not_told_apart": [ids[row.run] for row in one.leaderboard.tied],
        "facts": [fact.en for fact in one.leaderboard.facts],
        "expected": found["expected"],
        "notes": [*runs.notes, *found["notes"]],
    }


def _sections(one: Board) -> list[Section]:
    """What the terminal shows: which run to take, those that are not told apart from the best, the others."""
    runs, found = one.runs, one.leaderboard
    worse = [row for row in found.rows if row.tied is False]
    first = [row for row in found.rows if row.tied is not False]
    title = "Not told apart from the best" if len(first) > 1 and worse else "The best" if worse else "Runs"
    notes = [*runs.notes, *found.notes]
    return [
        Section("Recommended", [found.pick.reason.en, *(fact.en for fact in found.facts)]),
        _table(one, title, first),
        *([_table(one, "Worse than the best", worse)] if worse else []),
        *([one.matters.section()] if one.matters else []),
        *([Section("Notes", notes)] if notes else []),
    ]


def _table(one: Board, title: str, rows: Sequence[Row]) -> Section:
    """A table of rows; columns that say nothing of this board are left out."""
    runs, every = one.runs.runs, one.leaderboard.rows
    estimated = any(run.score.estimate for run in runs)
    columns: dict[str, Callable[[Row], str]] = {
        "raw" if estimated else "score": lambda row: number(runs[row.run].score.value),
        "95 % interval": lambda row: interval(runs[row.run].score.low, runs[row.run].score.high),
        "estimate": lambda row: _estimate(runs[row.run].score.estimate),
        _p_title(one): lambda row: p_value(row.p_holm),
        "public": lambda row: _part(row.public),
        "private": lambda row: _part(row.private),
        "ms/query": lambda row: _short(row.ms),
        "index MB": lambda row: _short(row.index_mb),
        "id": lambda row: runs[row.run].run.short_id,
        "run": lambda row: ", ".join(filter(None, (runs[row.run].name, runs[row.run].twins))),
    }
    said = {name: of for name, of in columns.items() if any(of(row) != ABSENT for row in every)}
    left = len(rows) - SHOWN
    lines = [f"{left:,} more are on the page."] if left > 0 else []
    return Section(title, lines, [*said], [[of(row) for of in said.values()] for row in rows[:SHOWN]])


def _pasted(one: Board) -> Table:
    """The leaderboard to paste into a paper."""
    runs, rows = one.runs.runs, one.leaderboard.rows
    scores = [run.score for run in runs]
    estimated = any(score.estimate for score in scores)
    shown = [score.estimate or score if estimated else score for score in scores]
    apart = [row.tied is False for row in rows]
    values = best_marked([Number(n.value, n.low, n.high, mark) for n, mark in zip(shown, apart, strict=True)])
    columns = [
        Column("run"),
        Column("run id"),
        Column("kind"),
        Column(one.runs.metric, "value"),
        Column("difference", "difference"),
        Column(_p_title(one), "p"),
        Column("ms per query", "value"),
        Column("index MB", "value"),
    ]
    cells: list[list[Cell]] = [
        [run.name, run.run.short_id, run.score.kind, value, *map(_number, numbers)]
        for run, value, numbers in zip(
            runs,
            values,
            [(row.difference if row.run else None, row.p_holm, row.ms, row.index_mb) for row in rows],
            strict=True,
        )
    ]
    kept = [
        place for place, column in enumerate(columns) if column.shows == "text" or _any(row[place] for row in cells)
    ]
    note = (
        f"Bold: the highest. {MARK} differs from the first at {ALPHA}: two-sided paired randomisation test, Holm's "
        f"correction over {counted(len(runs) - 1, 'pair')}. Differences are to the first run."
    )
    return Table(
        "board",
        f"{_title(one)}, 95 % intervals in brackets.",
        [columns[place] for place in kept],
        [[row[place] for place in kept] for row in cells],
        [*one.leaderboard.notes] if estimated else [note],
    )


def _p_title(one: Board) -> str:
    """The heading of p: `p (Holm, 4 pairs)`, which are those of the best run with each other one."""
    pairs, part = len(one.runs.runs) - 1, ", public" if one.runs.select_on == "public" else ""
    return f"p (Holm, {pairs:,} pairs{part})" if pairs > 1 else "p"


def _number(value: float | None) -> Number:
    return Number(math.nan if value is None else value)


def _any(cells: Iterable[Cell]) -> bool:
    return any(isinstance(one, Number) and not math.isnan(one.value) for one in cells)


def _estimate(one: Estimate | None) -> str:
    return ABSENT if one is None else f"{number(one.value)} ({interval(one.low, one.high)})"


def _part(one: Part | None) -> str:
    """A score and its rank."""
    return ABSENT if one is None else f"{number(one.value)} ({one.rank})"


def _short(value: float | None) -> str:
    return ABSENT if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _next(one: Board, place: Place) -> list[str]:
    """To compare the one to take with the best that differs from it on any query, and to submit it."""
    runs, taken = one.runs, one.leaderboard.pick
    gaps = np.nan_to_num(runs.values - runs.values[taken.run]).any(axis=1)
    others = [n for n in (taken.instead, *range(len(gaps))) if n is not None and gaps[n]]
    pair = [runs.runs[n].run for n in (taken.run, *others[:1])]
    words = f"runs=[{','.join(run.short_id for run in pair)}]"
    compared = [place.command("compare", words, metric=needed_metric(runs.metric, *pair))] if others else []
    return [*compared, place.command("export", f"run={pair[0].short_id}")]
