"""What to expect on new queries after a sweep: of the best run of its experiment, or of its own trials alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from harness.board.choice import Asked
from harness.board.expected import Expected, Family, Replay, Values, of_experiment
from harness.board.runs import SCORES
from harness.commands.sweep.auto.outcome import Automatic
from harness.commands.sweep.trials import Context, Result
from harness.evaluation.score_table import read_table
from harness.tracking import file_hashes
from harness.tracking.mlflow_client import Unreachable
from harness.tracking.ranking import RankedRun
from harness.tracking.run_kind import kind_of
from harness.tracking.tracker import Tracker
from retrievers.base import BadInput


def expected(
    results: Mapping[int, Result],
    best: int,
    tracker: Tracker,
    context: Context,
    config: Mapping[str, Any],
    replay: Replay | None = None,
) -> Expected | None:
    """What to expect of the best run of the experiment that compares with the best trial.

    Where trials are not logged, the sweep speaks of its own alone. None if the objective is no mean over queries, and
    if there is nothing to choose from.

    best: number of the best trial. replay: of its choices.
    """
    objective = config["objective"]
    if not kind_of(config).is_query_mean(objective):
        return None
    finished = sorted(results.items(), key=lambda one: one[0] != best)
    different: dict[str, Result] = {}
    for _, result in finished:
        if result.status == "FINISHED":
            different.setdefault(result.key, result)
    own = list(different.values())
    if not all(result.run_id for result in own):
        return _of_trials(own, context, config, replay)
    try:
        like = tracker.run(own[0].run_id or "")
        asked = Asked(config["experiment_name"], objective, config["select_on"], like=like)
        return of_experiment(tracker, asked, replay=replay)
    except Unreachable:
        return None


def replay_of(automatic: Automatic | None, sweep_id: str) -> Replay | None:
    """The replay of an automatic sweep that is over."""
    if automatic is None:
        return None
    found = automatic.procedure
    return Replay(sweep_id, found.winner, found.value, found.low, found.high)


def _of_trials(
    trials: list[Result], context: Context, config: Mapping[str, Any], replay: Replay | None
) -> Expected | None:
    """What to expect of the best of trials that are not logged, from the files that they left; None if these lack.

    trials: the best first.
    """
    files = [context.folder / "trials" / str(result.number) / SCORES for result in trials]
    ranked = [RankedRun(one.logged(context), one.objective) for one in trials if one.objective]
    if len(ranked) < len(trials) or not all(file.exists() for file in files):
        return None
    objective = config["objective"]

    def read(count: int) -> Values:
        found = []
        for one, file in list(zip(ranked, files, strict=True))[:count]:
            file_hashes.verify(one.run, SCORES, file)
            found.append(read_table(file, objective).by_id())
            if found[-1].query_ids != found[0].query_ids or (found[-1].public != found[0].public).any():
                raise BadInput("the trials are scored on different queries.")
        values = np.stack([one.oof.get(objective, one.values[objective]) for one in found])
        return Values(values, found[0].needs, found[0].public)

    return Family(objective, config["select_on"], ranked, len(ranked), read, alone=True).expected(replay)
