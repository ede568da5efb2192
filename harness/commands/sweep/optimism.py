"""How much of a sweep's best score is luck, from what its trials have logged."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from harness.board.optimism import Optimism, optimism
from harness.commands.sweep.trials import Context, Result
from harness.evaluation.score_table import Table, read_table
from harness.tracking import file_hashes
from harness.tracking.mlflow_client import Unreachable
from harness.tracking.run_kind import kind_of
from harness.tracking.tracker import Tracker
from retrievers.base import BadInput

log = logging.getLogger(__name__)
SCORES = "scores.csv"


def optimism_of(
    results: Mapping[int, Result],
    tracker: Tracker,
    context: Context,
    config: Mapping[str, Any],
    best: int | None = None,
) -> Optimism | None:
    """How much of the best trial's score is luck, computed from the scores by query of the finished trials.

    None with fewer than two different trials, if their queries or public parts differ, if their scores cannot be
    read, and if the objective is not a plain mean over queries. best: the trial that is taken, as for `optimism`.
    """
    objective = config["objective"]
    if not kind_of(config).is_query_mean(objective):
        return None
    try:
        tracker.has(next((result.run_id for result in results.values() if result.run_id), ""))
    except Unreachable:
        return None
    finished = sorted(results.items(), key=lambda one: one[0] == best)  # of those that are the same, the best remains
    different = {result.key: (number, result) for number, result in finished if result.status == "FINISHED"}
    values: dict[int, np.ndarray] = {}
    first: Table | None = None
    for number, result in different.values():
        table = _scores(result, objective, tracker, context)
        if table is None:
            return None
        table = table.by_id()  # as on a board, which then says the same
        first = first or table
        if table.query_ids != first.query_ids or (table.public != first.public).any():
            return None
        values[number] = (table.oof or table.values)[objective]
    if first is None:
        return None
    chooses = first.public if config["select_on"] == "public" else np.ones(len(first.public), bool)
    return optimism(objective, values, first.needs, chooses, config["seed"], best)


def _scores(result: Result, objective: str, tracker: Tracker, context: Context) -> Table | None:
    """The scores.csv of a trial; None if it cannot be read."""
    run, file = result.logged(context), context.folder / "trials" / str(result.number) / SCORES
    if not (result.run_id or file.exists()):
        return None  # a run that is not logged yet
    with tempfile.TemporaryDirectory() as folder:
        try:
            if result.run_id:
                file = tracker.download(run, SCORES, Path(folder))
            else:
                file_hashes.verify(run, SCORES, file)
            return read_table(file, objective)
        except BadInput as error:
            log.warning("The sweep cannot tell how much of the best score is luck: %s", error)
            return None
