"""Retrieval runs that compare: what ranks each, and its value and its kind of loss on every query."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.evaluation.objective import Objective
from harness.tracking.tracker import LoggedRun

LOSSES = ("", "wrongly_returned", "wrongly_withheld", "not_found", "misranked", "not_found_or_misranked")


@dataclass(frozen=True, eq=False)
class BoardRun:
    """A finished run on a board.

    name: short, unique on the board, such as "hybrid_light · auto". score: what ranks the run.
    """

    run: LoggedRun
    name: str
    score: Objective


@dataclass(frozen=True, eq=False)
class BoardRuns:
    """R runs that compare by a measure, the best first, on the same Q queries.

    select_on: the queries that rank the runs, "all" or "public".
    query_ids: ascending.
    needs, multi_turn, public: bool [Q], as in `evaluation.score_table.Table`.
    values: float64 [R, Q], the measure, out of fold where something was learnt from labels; NaN where it is undefined.
    losses: int8 [R, Q], the place in LOSSES of the kind of loss that the written list has; 0 for none.
    notes: what a reader must know besides, such as which runs of the experiment are not here, and why.
    """

    metric: str
    select_on: str
    runs: tuple[BoardRun, ...]
    query_ids: tuple[str, ...]
    needs: np.ndarray
    multi_turn: np.ndarray
    public: np.ndarray
    values: np.ndarray
    losses: np.ndarray
    notes: tuple[str, ...] = ()
