"""The file scores.csv, with the scores of each query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from harness.data.tables import AGAIN, csv_line, number_column, read_columns, taken, taken_ids
from harness.errors import BadInput
from harness.measures.measures import KINDS, OOF
from harness.measures.scores import Scores
from harness.storage.typed import encoded
from retrievers.base import in_rows

FLAGS = ("needs", "multi_turn", "public")
LOSS = "loss"  # the column with the kinds of loss


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """The content of a run's `scores.csv`, for Q queries.

    values: measure -> float64 [Q], NaN where the measure does not apply.
    oof: measure -> its out-of-fold values, float64 [Q]; empty if nothing was learnt.
    loss: for each query, the kind of loss of the list that the run wrote, one of `KINDS`; None without this column.
    """

    query_ids: tuple[str, ...]
    needs: np.ndarray
    multi_turn: np.ndarray
    public: np.ndarray
    values: dict[str, np.ndarray]
    oof: dict[str, np.ndarray]
    loss: tuple[str, ...] | None = None

    def by_id(self) -> ScoreTable:
        return self.take(np.array(sorted(range(len(self.query_ids)), key=self.query_ids.__getitem__), np.intp))

    def take(self, rows: np.ndarray) -> ScoreTable:
        """Return the part with the queries in `rows`, in that order. rows: int [n], or bool [Q]."""
        places = np.arange(len(self.query_ids))[rows]
        return ScoreTable(
            query_ids=tuple(self.query_ids[row] for row in places),
            needs=self.needs[rows],
            multi_turn=self.multi_turn[rows],
            public=self.public[rows],
            values={name: column[rows] for name, column in self.values.items()},
            oof={name: column[rows] for name, column in self.oof.items()},
            loss=None if self.loss is None else tuple(self.loss[row] for row in places),
        )


def table_columns(scores: Scores, oof: Scores | None = None) -> dict[str, Iterable[Any]]:
    """Return column -> its cells, one for each scored query. Columns: id, flags (0 or 1), kind of loss, and measures.

    oof: out-of-fold scores of the same queries, if the run learnt from labels.
    """
    columns: dict[str, Iterable[Any]] = {"query_id": scores.query_ids}
    flags = (scores.needs, scores.multi_turn, scores.in_public)
    columns |= {name: in_rows(values.astype(np.int8)) for name, values in zip(FLAGS, flags, strict=True)}
    columns |= {LOSS: scores.loss} if scores.loss is not None else {}
    columns |= {name: map(encoded, in_rows(values)) for name, values in scores.values.items()}
    unseen = oof.values if oof else {}
    return columns | {f"{OOF}{name}": map(encoded, in_rows(values)) for name, values in unseen.items()}


def score_lines(scores: Scores, oof: Scores | None = None) -> Iterator[str]:
    """Yield the lines of a CSV file with the `table_columns`."""
    columns = table_columns(scores, oof)
    yield csv_line(columns)
    measured = [*scores.values.values(), *(oof.values.values() if oof else ())]
    numbers = np.array(measured).reshape(-1, len(scores.query_ids)).T
    plain = zip(*[*columns.values()][: len(columns) - len(measured)], strict=True)
    for cells, row in zip(plain, numbers, strict=True):
        yield _score_line(cells, row.tobytes())


@lru_cache(maxsize=1 << 14)  # trials of a sweep have most lines in common
def _score_line(cells: tuple[Any, ...], numbers: bytes) -> str:
    return csv_line([*cells, *encoded(np.frombuffer(numbers))])


def read_score_table(file: Path, only: str | None = None) -> ScoreTable:
    """Read a file made from `table_columns`, without rounding its numbers. Raise BadInput if it is damaged.

    only: the one measure to read; None: all.
    """
    columns = read_columns(file)
    query_ids = taken_ids(columns, "query_id", file)
    needs, turns, public = (number_column(taken(columns, name, file), name, file) == 1 for name in FLAGS)
    loss = _kinds(columns.pop(LOSS), file) if LOSS in columns else None
    wanted = {name: cells for name, cells in columns.items() if only in (None, name.removeprefix(OOF))}
    measured = {name: number_column(cells, name, file, lacking=True) for name, cells in wanted.items()}
    values = {name: column for name, column in measured.items() if not name.startswith(OOF)}
    oof = {name.removeprefix(OOF): column for name, column in measured.items() if name.startswith(OOF)}
    if lacking := oof.keys() - values.keys():
        raise BadInput(f"{file}:1: there is no column {min(lacking)!r:.60}. {AGAIN}")
    return ScoreTable(query_ids, needs, turns, public, values, oof, loss)


def _kinds(cells: Sequence[str], file: Path) -> tuple[str, ...]:
    if unknown := set(cells).difference(KINDS):
        row = next(row for row, cell in enumerate(cells, start=1) if cell in unknown)
        raise BadInput(
            f"{file}: row {row}: {LOSS} is {cells[row - 1]!r:.60}, not one of {', '.join(KINDS[1:])}. {AGAIN}"
        )
    return tuple(cells)
