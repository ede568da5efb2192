"""What a board shows of single queries: every run's value and kind of loss on each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.board.packing import PackedMatrix
from harness.board.runs import LOSSES, BoardRuns
from harness.tracking.tracker import Tracker


@dataclass(frozen=True, eq=False)
class Details:
    """R runs on Q queries, as the page of a board unpacks them.

    query_ids: ascending.
    needs, multi_turn, public: bool [Q], as in `BoardRuns`.
    matrix: every run's value and kind of loss on each query.
    """

    query_ids: tuple[str, ...]
    needs: np.ndarray
    multi_turn: np.ndarray
    public: np.ndarray
    matrix: PackedMatrix

    def to_json(self) -> dict[str, Any]:
        flags = {"needs": self.needs, "multi_turn": self.multi_turn, "public": self.public}
        return {
            "kinds": LOSSES,
            "ids": self.query_ids,
            **{name: "".join("01"[int(one)] for one in values) for name, values in flags.items()},
            "matrix": self.matrix.to_json(),
        }


def details(runs: BoardRuns, tracker: Tracker, folder: Path) -> Details:
    """What the runs did on each query. folder: for downloads."""
    return Details(runs.query_ids, runs.needs, runs.multi_turn, runs.public, PackedMatrix.of(runs.values, runs.losses))
