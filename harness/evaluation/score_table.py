"""scores.csv: every measure of every query, written and read."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.evaluation.measures import OOF
from harness.evaluation.scores import Scores

FLAGS = ("needs", "multi_turn", "public")


@dataclass(frozen=True, eq=False)
class Table:
    """What a run's `scores.csv` says of each query.

    needs, multi_turn, public: bool [Q]. values: measure -> float64 [Q], NaN where it does not apply.
    oof: the same, out of fold, of a run whose gate was fitted on labels; else empty.
    """

    query_ids: tuple[str, ...]
    needs: np.ndarray
    multi_turn: np.ndarray
    public: np.ndarray
    values: dict[str, np.ndarray]
    oof: dict[str, np.ndarray]


def table_text(scores: Scores, oof: Scores | None = None) -> str:
    """`scores.csv`: a row for each scored query, a column for each measure that is a mean of queries."""
    columns: dict[str, list[Any]] = {"query_id": list(scores.query_ids)}
    flags = (scores.needs, scores.multi_turn, scores.in_public)
    columns |= {name: values.astype(int).tolist() for name, values in zip(FLAGS, flags, strict=True)}
    columns |= {name: _cells(values) for name, values in scores.values.items()}
    columns |= {f"{OOF}{name}": _cells(values) for name, values in (oof.values if oof else {}).items()}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()


def read_table(file: Path, only: str | None = None) -> Table:
    """Read what `table_text` wrote, to the last bit. only: the one measure that is wanted; None = all."""
    with file.open(encoding="utf-8", newline="") as lines:
        header, *rows = csv.reader(lines)
    columns = dict(zip(header, zip(*rows, strict=True) if rows else [()] * len(header), strict=True))
    query_ids = columns.pop("query_id")
    needs, turns, public = (np.array([cell == "1" for cell in columns.pop(name)], bool) for name in FLAGS)
    wanted = {name: cells for name, cells in columns.items() if only in (None, name.removeprefix(OOF))}
    found = {name: np.array([float(cell or "nan") for cell in cells]) for name, cells in wanted.items()}
    values = {name: one for name, one in found.items() if not name.startswith(OOF)}
    oof = {name.removeprefix(OOF): one for name, one in found.items() if name.startswith(OOF)}
    return Table(query_ids, needs, turns, public, values, oof)


def _cells(values: np.ndarray) -> list[Any]:
    return [value if value == value else None for value in values.tolist()]
