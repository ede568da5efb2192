"""Two runs that are named, or the best two of an experiment, with what one measure says of them query by query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from harness.config.text import counted
from harness.errors import BadInput
from harness.recording.logged_run import recommended
from harness.recording.retrieval_run import CHECKED
from harness.runs.board import runs as board_runs
from harness.runs.board.choice import Asked, chosen_runs
from harness.runs.board.runs import BoardRun, BoardRuns
from harness.tracking.tracker import Tracker


@dataclass(frozen=True, eq=False)
class PairValues:
    """Two runs, the better first.

    gaps: float64 [Q], the first run's value less the second's on each query that judges; NaN where the measure does not
        apply. judges: which queries these are, "" for all or "private ".
    notes: how the runs were chosen.
    """

    metric: str
    first: BoardRun
    second: BoardRun
    gaps: np.ndarray
    judges: str
    notes: Sequence[str]


def read_pair(tracker: Tracker, asked: Asked, folder: Path) -> PairValues:
    """The two runs that are asked for, of a sweep the trial that it recommends; else the best run, and the best of
    those that differ from it on any query. folder: for downloads.

    BadInput unless they compare query by query, by labels that people have given.
    """
    board_runs.check_by_query(asked.metric)
    if asked.runs is not None:
        return _pair(tracker, asked, _named(tracker, asked), [], folder)
    (best, *others), notes = _best(tracker, asked)
    for other in others:
        own = folder / other
        own.mkdir()
        pair = _pair(tracker, asked, [best, other], notes, own)
        if np.nansum(np.abs(pair.gaps)) > 0:
            break
    return pair


def _pair(tracker: Tracker, asked: Asked, ids: list[str], notes: Sequence[str], folder: Path) -> PairValues:
    found = board_runs.read_board_runs(tracker, replace(asked, runs=ids), folder)
    first, second = found.runs
    if partly := [one.run.named for one in found.runs if CHECKED in one.run.tags]:
        raise BadInput(
            f"The labels of {' and '.join(partly)} come partly from a model. How sure a difference is then depends on "
            "how many queries people have checked: `harness compare` estimates it, and `harness testset audit` says "
            "what checking more of them is worth."
        )
    judging = _judging(found)
    values = found.values[:, judging]
    if (np.isnan(values[0]) != np.isnan(values[1])).any():
        raise BadInput(
            f"metric={asked.metric} counts other queries in each run, so that its values do not pair. Choose another: "
            "metric=NAME."
        )
    judges = "private " if found.select_on == "public" else ""
    return PairValues(found.metric, first, second, values[0] - values[1], judges, [*notes, *found.notes])


def _named(tracker: Tracker, asked: Asked) -> list[str]:
    words = asked.runs or ()
    if len(words) != 2:
        raise BadInput(
            f"runs names {counted(len(words), 'run')}. Name the two that are to be told apart: 'runs=[ID,ID]'."
        )
    ids = [recommended(tracker, tracker.run(word)).run_id for word in words]
    if ids[0] == ids[1]:
        raise BadInput(f"runs names {tracker.run(ids[0]).named} twice. Name different runs.")
    return ids


def _best(tracker: Tracker, asked: Asked) -> tuple[list[str], list[str]]:
    """(the ids of the runs, the best first, at least two; what to know of such a choice)."""
    ranked = chosen_runs(tracker, asked).runs
    notes = [f"The best two of {counted(len(ranked), 'run')} by {asked.metric} that differ on any query."]
    if len(ranked) > 2:
        notes = [
            f"{notes[0]} Of runs that were chosen for their scores the lead is partly luck: the true difference is "
            "likely smaller, and takes more queries to find. Other pairs: 'runs=[ID,ID]'."
        ]
    return [one.run.run_id for one in ranked], notes


def _judging(found: BoardRuns) -> np.ndarray:
    """bool [Q], the queries that judge: all, or the private ones where the public ones have chosen."""
    if found.select_on == "all":
        return np.ones(len(found.public), bool)
    if found.public.all():
        raise BadInput(
            f"select_on=public: all {len(found.public):,} queries of these runs are public, so that none are left to "
            "judge. Score the runs with a smaller share: public=0.4."
        )
    judging: np.ndarray = ~found.public
    return judging
