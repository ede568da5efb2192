"""Write CSV tables (RFC 4180 with LF line ends), and read them back unchanged."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.data.files import DAMAGED, finite_number, open_unpacked
from harness.errors import BadInput

_QUOTED = re.compile(r'[",\r\n]')
AGAIN = "The file is damaged: make it again."


def strict_reader(lines: Iterable[str]) -> Any:
    """Return a csv.reader that accepts cells of any length and raises csv.Error for broken quotes."""
    csv.field_size_limit(sys.maxsize)  # the default, 131,072 characters, is less than some documents have
    return csv.reader(lines, strict=True)


def csv_text(columns: Mapping[str, Iterable[Any]]) -> str:
    """Return CSV with a header. columns: name -> values, the same number per column. None becomes an empty cell."""
    return "".join(csv_lines(columns))


def csv_lines(columns: Mapping[str, Iterable[Any]]) -> Iterator[str]:
    """Yield the lines of `csv_text`."""
    yield csv_line(columns)
    yield from map(csv_line, zip(*columns.values(), strict=True))


def read_columns(path: Path) -> dict[str, list[str]]:
    """Return name -> cells from a file that `csv_text` made. If it is damaged, raise BadInput with file and line."""
    number = 1
    try:
        with open_unpacked(path) as file, io.TextIOWrapper(file, "utf-8", newline="") as text:
            reader = strict_reader(text)
            rows: list[list[str]] = []
            for cells in reader:
                if rows and len(cells) != len(rows[0]):
                    raise BadInput(f"{path}:{number}: {len(cells)} cells, but the header has {len(rows[0])}. {AGAIN}")
                rows.append(cells)
                number = reader.line_num + 1
    except (csv.Error, UnicodeDecodeError, *DAMAGED) as error:
        raise BadInput(f"{path}:{number}: broken CSV ({error}). {AGAIN}") from None
    header, *rows = rows or [[]]
    name, count = Counter(header).most_common(1)[0] if header else ("", 0)
    if count != 1:
        raise BadInput(f"{path}:1: {f'two columns are named {name!r:.60}' if count else 'there is no header'}. {AGAIN}")
    columns = [list(cells) for cells in zip(*rows, strict=True)] or [[] for _ in header]
    return dict(zip(header, columns, strict=True))


def taken(columns: dict[str, list[str]], name: str, path: Path) -> list[str]:
    """Remove a column from `columns` and return it. Raise BadInput if it is missing."""
    if name not in columns:
        raise BadInput(f"{path}:1: there is no column {name!r}. {AGAIN}")
    return columns.pop(name)


def taken_ids(columns: dict[str, list[str]], name: str, path: Path) -> tuple[str, ...]:
    """Remove a column of ids and return it, like `taken`. If an id occurs twice, raise BadInput with both rows."""
    ids, rows = taken(columns, name, path), dict[str, int]()
    for row, one in enumerate(ids, start=1):
        if rows.setdefault(one, row) != row:
            raise BadInput(f"{path}: rows {rows[one]} and {row} have the same {name} {one!r:.60}. {AGAIN}")
    return tuple(ids)


def number_column(cells: Sequence[str], name: str, path: Path, lacking: bool = False) -> np.ndarray:
    """Return a column, float64 [n]. Raise BadInput for cells that are not finite. lacking: read empty cells as NaN."""
    given = [cell or "nan" for cell in cells] if lacking else cells
    try:
        values = np.fromiter(map(float, given), np.float64, len(cells))
    except ValueError:
        values = np.full(len(cells), np.nan)
    absent = cells.count("") if lacking else 0
    if np.isfinite(values).sum() + absent < len(cells) or "_" in "".join(cells):  # find the cell to name
        for row, cell in enumerate(cells, start=1):
            if cell or not lacking:
                finite_number(cell, name, f"{path}: row {row}")
    return values


def csv_line(cells: Iterable[Any]) -> str:
    shown = ["" if cell is None else str(cell) for cell in cells]
    if shown == [""]:
        return '""\n'
    if _QUOTED.search("".join(shown)):
        shown = ['"' + cell.replace('"', '""') + '"' if _QUOTED.search(cell) else cell for cell in shown]
    return ",".join(shown) + "\n"
