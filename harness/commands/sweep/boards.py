"""The board of a sweep's trials, which its parent run keeps."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from harness.board import page
from harness.board.choice import of_runs
from harness.board.expected import Expected
from harness.board.runs import of_chosen
from harness.commands.sweep.execution import Execution, tell
from harness.commands.sweep.summary import SweepSummary
from harness.errors import BadInput
from harness.storage.atomic import write_text
from harness.tracking.mlflow_client import Unreachable
from harness.tracking.ranking import distinct
from harness.tracking.run_kind import Retrieval


def write_boards(execution: Execution, summary: SweepSummary, folder: Path) -> None:
    """Write `board.html`, and `board-0.html` … of groups of trials that do not compare.

    There is none of a text task, of an objective that is no mean over queries, and of fewer than two different trials;
    and none where the public part chooses, since it would show the private scores of all trials.
    """
    kind, settings = execution.sweep.kind, execution.sweep.settings
    shown = isinstance(kind, Retrieval) and execution.tracker.keeps_files and settings["select_on"] == "all"
    if not shown or not kind.is_query_mean(settings["objective"]):
        return
    for place, part in enumerate(summary.parts):
        ids = {result.key: result.run_id for result in part.results.values() if result.status == "FINISHED"}
        wanted = set(filter(None, ids.values()))
        if len(wanted) < 2:
            continue
        try:
            if content := _board(execution, wanted, part.expected):
                write_text(folder / f"board{f'-{place}' if part.apart else ''}.html", content)
        except (BadInput, Unreachable) as error:
            tell([f"There is no board of the trials: {error}"])


def _board(execution: Execution, wanted: set[str], expected: Expected | None) -> str:
    """The page; "" if all of the runs are the same.

    wanted: ids of runs. expected: on new queries, as the end of the sweep says.
    """
    tracker, settings = execution.tracker, execution.sweep.settings
    logged = tracker.runs(settings["experiment_name"], {}, "FINISHED")  # the latest first
    trials = [run for run in reversed(logged) if run.run_id in wanted]
    objective = settings["objective"]
    found = of_runs(tracker, trials, objective, settings["select_on"])
    chosen = replace(found, runs=distinct(found.runs))
    if len(chosen.runs) < 2:
        return ""
    with tempfile.TemporaryDirectory() as downloads:
        runs = of_chosen(tracker, chosen, objective, Path(downloads))
        return page.html(page.assembled(runs, tracker, Path(downloads), expected))
