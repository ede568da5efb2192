"""`harness board`: write one page with the runs of an experiment side by side, and recommend one of them."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from harness.analysis.board import expected, page, runs
from harness.analysis.board.leaderboard import ALPHA
from harness.analysis.board.page import Board, assembled
from harness.analysis.ranking import Wanted, needed_metric, settled
from harness.config.check import Invocation
from harness.config.commands import BoardConfig
from harness.config.text import counted, plural
from harness.errors import BadInput
from harness.progress import stage
from harness.recording.recording import open_store
from harness.recording.run_kind import RunKind
from harness.reports.next_steps import Place
from harness.reports.report import Report
from harness.reports.result import CommandAnswer
from harness.reports.tables import MARK, Cell, Column, Number, Rows, Table, best_marked
from harness.storage.atomic import write_text
from harness.storage.typed import encoded

SHOWN = 20  # maximum number of rows of a table on the terminal


def board(config: BoardConfig, invocation: Invocation) -> CommandAnswer:
    tracker = open_store(config, "keeps no runs for a board")
    output = config.output.absolute()
    if output.exists() and not (output.is_file() and page.is_board(output)):
        raise BadInput(f"output={config.output} exists and is not a board. Name another file for the page.")
    with tempfile.TemporaryDirectory() as folder:
        config, notes = settled(tracker, config, RunKind(config.task).name)
        found = runs.read_board_runs(tracker, Wanted.of(config), Path(folder))
        found = replace(found, notes=(*notes, *found.notes))
        with stage("comparing the runs"):
            whole = config.runs is None
            one = assembled(found, tracker, Path(folder), expected.of_board(tracker, found, whole))
        output.parent.mkdir(parents=True, exist_ok=True)
        write_text(output, page.html(one))
    peeks = tracker.count_private_view(one.experiment)
    document = _document(one) | {"files": {"html": output}, "private_peeks": peeks}
    files = [f"The page, {one.runs.unit} by {one.runs.unit}: {output}"]
    said = replace(board_report(one), files=files, steps=_next(one, Place.of(config, invocation)))
    return CommandAnswer(document, said, lambda _: [leaderboard_table(one)])


def _title(one: Board) -> str:
    runs = one.runs
    kinds = " or ".join(dict.fromkeys(run.score.kind for run in runs.runs))
    over = counted(int(runs.public.sum()) if runs.select_on == "public" else len(runs.query_ids), runs.unit)
    return f"Experiment {one.experiment!r}: {counted(len(runs.runs), 'run')} by {runs.metric}, {kinds}, {over}"


def _document(one: Board) -> dict[str, Any]:
    runs, found, pick = one.runs, one.leaderboard, one.leaderboard.pick
    ids = [run.run.run_id for run in runs.runs]
    rows = [
        {key: value for key, value in encoded(row).items() if key != "run"}
        | {"run_id": run.run.run_id, "short_name": run.name, "name": run.run.name}
        | {"objective": run.score, "also": [other.run_id for other in run.also]}
        for run, row in zip(runs.runs, found.rows, strict=True)
    ]
    return {
        "experiment": one.experiment,
        "metric": runs.metric,
        "select_on": runs.select_on,
        plural(runs.unit): len(runs.query_ids),
        "rows": rows,
        "recommended": {
            "run_id": ids[pick.run],
            "reason": pick.reason.en,
            "instead": None if pick.instead is None else ids[pick.instead],
        },
        "not_told_apart": [ids[row.run] for row in found.rows if row.tied],
        "facts": [fact.en for fact in found.facts],
        "expected": found.expected,
        "notes": [*runs.notes, *found.notes],
    }


def board_report(one: Board) -> Report:
    """Return a report: the recommended run, the runs that may be as good, the worse runs, and the keys that matter."""
    found = one.leaderboard
    whole = leaderboard_table(one)
    worse = [cells for row, cells in zip(found.rows, whole.rows, strict=True) if row.group == "worse"]
    first = [cells for row, cells in zip(found.rows, whole.rows, strict=True) if row.group != "worse"]
    caption = "Not told apart from the best" if len(first) > 1 and worse else "The best" if worse else "Runs"
    tables = [replace(whole, caption=caption, **_cut(first))]
    tables += [replace(whole, caption="Worse than the best", **_cut(worse))] if worse else []
    return Report(
        _title(one),
        [found.pick.reason.en, *(fact.en for fact in found.facts)],
        [*tables, *([one.matters.table] if one.matters else [])],
        [*one.runs.notes, *found.notes],
    )


def _cut(rows: Sequence[Sequence[Cell]]) -> dict[str, Any]:
    left = len(rows) - SHOWN
    return {"rows": rows[:SHOWN], "notes": [f"{left:,} more rows are on the page."] if left > 0 else []}


def leaderboard_table(one: Board) -> Table:
    """Return a table with one row per run, the best first. Leave out columns that would be empty."""
    runs, rows = one.runs.runs, one.leaderboard.rows
    scores = [run.score for run in runs]
    estimated = any(score.estimate for score in scores)
    values = [
        Number(shown.value, shown.low, shown.high, row.group == "worse")
        for shown, row in zip([score.estimate or score for score in scores], rows, strict=True)
    ]
    pairs, part = len(runs) - 1, ", public" if one.runs.select_on == "public" else ""
    columns = [
        Column("run", on="paste"),
        Column("run id", on="paste"),
        Column("kind", on="paste"),
        Column(one.runs.metric, "value"),
        Column("raw", "value", on="screen"),
        Column("difference", "difference", on="paste"),
        Column(f"p (Holm, {pairs:,} pairs{part})" if pairs > 1 else "p", "p"),
        Column("public", "value", on="screen"),
        Column("private", "value", on="screen"),
        Column("ms/query", "rough"),
        Column("index MB", "rough"),
        Column("p95 ms", "rough"),
        Column("qps", "rough"),
        Column("id", on="screen"),
        Column("run", on="screen"),
    ]
    cells: Rows = [
        [
            run.name,
            run.run.short_id,
            run.score.kind,
            value,
            run.score.value if estimated else None,
            row.difference if row.run else None,
            None if math.isnan(row.p_holm) else row.p_holm,
            None if row.public is None else Number(row.public, beside=row.public_rank),
            None if row.private is None else Number(row.private, beside=row.private_rank),
            row.ms,
            row.mb,
            row.p95_ms,
            row.qps,
            run.run.short_id,
            ", ".join(filter(None, (run.name, run.twins))),
        ]
        for run, value, row in zip(runs, best_marked(values), rows, strict=True)
    ]
    note = (
        f"Bold: the highest value. {MARK}: the run differs from the first at {ALPHA} (two-sided paired randomisation "
        f"test, Holm's correction over {counted(pairs, 'pair')}). Differences are from the first run."
    )
    notes = [*one.leaderboard.notes] if estimated else [note]
    caption = f"{_title(one)}, 95 % intervals in brackets."
    return Table(caption, columns, cells, notes, "board").without_empty()


def _next(one: Board, place: Place) -> list[str]:
    runs, taken = one.runs, one.leaderboard.pick
    gaps = np.nan_to_num(runs.values - runs.values[taken.run]).any(axis=1)
    others = [n for n in (taken.instead, *range(len(gaps))) if n is not None and gaps[n]]
    pair = [runs.runs[n].run for n in (taken.run, *others[:1])]
    words = f"runs=[{','.join(run.short_id for run in pair)}]"
    compared = [place.command("compare", words, metric=needed_metric(runs.metric, *pair))] if others else []
    run, metric = f"run={pair[0].short_id}", needed_metric(runs.metric, pair[0])
    return [*compared, place.command("export", run, metric=metric)]
