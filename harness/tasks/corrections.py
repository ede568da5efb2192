"""The task `corrections`: sentences whose mistakes are to be put right, judged edit by edit.

`tasks.alignment` defines an edit; the counts of all sentences are added up before the measures divide them.
"""

from __future__ import annotations

import csv
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from harness.data.files import check_pairs, field, json_lines, no_rows, numbered_lines, optional_text, unique_rows
from harness.pipeline.cache import Cache
from harness.progress import watch
from harness.tasks.alignment import Compared, Scheme, compare
from harness.tasks.task import JudgedItems, Marked
from retrievers.base import BadInput, did_you_mean

COLUMNS = {"id": "id", "source": "source", "reference": "reference", "prediction": "prediction", "type": "error_type"}
COUNTS = ("tp", "fp", "fn", "fr")
TOLD = 1000  # sentences between two looks at the progress
JSON_SUFFIXES = {".json", ".jsonl", ".ndjson"}

Sums = Mapping[str, np.ndarray]
Rows = Iterator[tuple[int | str, dict[str, Any]]]


def correction_recall(sums: Sums) -> np.ndarray:
    """TP / (TP + FP + FN) over all sentences together: right edits, of all edits wanted or wrongly made.

    The founding contest calls it recall and ranks by it; since wrong edits lower it too, it is the Jaccard index of
    wanted and made edits (Jaccard 1912). Range [0, 1]. With denominator 0: 1 where nobody edits (FR = 0), else 0.
    TP 79, FP 68, FN 98 -> 79 / 245 = 0.3224.
    """
    return _ratio(sums, "fp", "fn")


def correction_precision(sums: Sums) -> np.ndarray:
    """TP / (TP + FP + FR) over all sentences together, as the founding contest counts precision.

    Under scheme `token` a needless edit is in FP and in FR, so that it weighs twice. Range [0, 1]. With denominator
    0: 1 where nobody edits (FN = 0), else 0. TP 79, FP 68, FR 414 -> 79 / 561 = 0.1408.
    """
    return _ratio(sums, "fp", "fr")


class Corrections:
    """Predictions {id, prediction} held against references {id, source, reference}, in CSV or JSON lines.

    A CSV file has a header; cells may be quoted. References may have a column `error_type`, the kind of a sentence;
    where it is missing or blank, the kind is whether the sentence needs correction. A blank prediction deletes all
    words; a blank source or reference is refused. Further columns do not matter.

    scheme, merge_gap: as in `tasks.alignment`; merge_gap has a say under `span` alone. columns: the names in the
    files of id, source, reference, prediction and type, where they are others.
    """

    recorded_as = "task/corrections"
    name = "corrections"
    measures = ("correction_recall", "correction_precision")
    counts = COUNTS
    subset: Mapping[str, str] = {}  # every sentence enters both
    version = 1

    def __init__(
        self,
        scheme: Literal["token", "span"] = "token",
        merge_gap: int = 2,
        columns: Mapping[str, str] | None = None,
    ) -> None:
        schemes = get_args(Scheme)
        if scheme not in schemes:
            raise BadInput(f"scheme={scheme!r} is not one of {', '.join(schemes)}.{did_you_mean(str(scheme), schemes)}")
        if merge_gap < 0:
            raise BadInput(f"merge_gap={merge_gap} is too small: the least is 0, where no span joins another.")
        self._scheme, self._merge_gap = scheme, merge_gap
        self._columns = _columns(columns or {})

    def judge(self, predictions: Path, references: Path, wanted: Sequence[str], cache: Cache) -> JudgedItems:
        """One item a sentence, its tallies tp, fp, fn, fr, which take so little time that nothing is stored.

        Raises BadInput, with file and line, for files without these columns or rows, and for ids that do not pair.
        """
        expected, made = self._references(references), self._predictions(predictions)
        check_pairs(predictions, made, references, expected)
        ids, made_texts = tuple(expected), [made[one] for one in expected]
        sources, right, types = map(list, zip(*expected.values(), strict=True))
        compared = compare(sources, right, made_texts, self._scheme, self._merge_gap)
        needs = zip(types, compared.wanted.tolist(), strict=True)
        kinds = [its_type or ("to correct" if differs else "nothing to correct") for its_type, differs in needs]
        tallies = dict(zip(COUNTS, compared.counts.T.astype(np.float64), strict=True))
        edits: list[str] = []
        marked: dict[str, list[Marked]] = {"source": [], "reference": [], "prediction": []}
        with watch("corrections") as progress:
            for row in range(len(ids)):
                found, *texts = compared.show(row)
                edits.append("; ".join(map(str, found)))
                for column, text in zip(marked.values(), texts, strict=True):
                    column.append(text)
                if row % TOLD == 0:
                    progress(row, len(ids), "sentences")
            progress(len(ids), len(ids), "sentences")
        table: dict[str, list[Any]] = {
            "id": list(ids),
            "kind": kinds,
            "source": sources,
            "reference": right,
            "prediction": made_texts,
            "edits": edits,
            **dict(zip(COUNTS, compared.counts.T.tolist(), strict=True)),
            "correction_recall": correction_recall(tallies).tolist(),
        }
        return JudgedItems(ids, tuple(kinds), tallies, table, marked, notes=_notes(compared, made_texts))

    def measure(self, sums: Sums) -> dict[str, np.ndarray]:
        """Both measures, from sums of tp, fp, fn and fr of any shape."""
        return {"correction_recall": correction_recall(sums), "correction_precision": correction_precision(sums)}

    def _references(self, path: Path) -> dict[str, tuple[str, str, str]]:
        """id -> (source, reference, type or the empty string), in the file's order."""
        of_type = self._columns["type"]
        asked = ["id", "source", "reference"] + (["type"] if of_type != COLUMNS["type"] else [])
        found = {}
        for where, row_id, row in self._rows(path, asked):
            source, reference = (_text(row, self._columns[role], where) for role in ("source", "reference"))
            found[row_id] = (source, reference, optional_text(row, of_type, where).strip())
        return found

    def _predictions(self, path: Path) -> dict[str, str]:
        """id -> prediction."""
        column = self._columns["prediction"]
        return {row_id: field(row, column, str, where) for where, row_id, row in self._rows(path, ["id", "prediction"])}

    def _rows(self, path: Path, roles: Sequence[str]) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """(file:line, id, row) of every row; each has the columns of these roles."""
        needed = {self._columns[role]: role for role in roles}
        first, line = next(numbered_lines(path), (0, ""))
        if not first:
            raise no_rows(path)
        is_json = line.lstrip().startswith(("{", "[")) or not JSON_SUFFIXES.isdisjoint(path.suffixes)
        rows = _json_rows(path, needed) if is_json else _csv_rows(path, needed)
        for where, row_id, _, row in unique_rows(path, rows, self._columns["id"]):
            yield where, row_id, row


def _ratio(sums: Sums, *others: str) -> np.ndarray:
    """tp / (tp + the others); where that divides by 0, 1 if all four counts are 0 and else 0."""
    below = sums["tp"] + sum(sums[name] for name in others)
    nothing = sum(sums[name] for name in COUNTS) == 0
    return np.where(nothing, 1.0, sums["tp"] / np.where(below > 0, below, 1.0))


def _columns(given: Mapping[str, str]) -> dict[str, str]:
    """Role -> the column's name. No two of the columns of one file may be the same."""
    for role, column in given.items():
        if role not in COLUMNS:
            hint = did_you_mean(str(role), COLUMNS)
            raise BadInput(f"columns.{role} is unknown.{hint} Known are {', '.join(COLUMNS)}.")
        if not isinstance(column, str) or not column.strip():
            raise BadInput(f"columns.{role}={column!r} is no column's name. Give the one that stands in the file.")
    columns = COLUMNS | {role: _nfc(column) for role, column in given.items()}
    for roles in (("id", "source", "reference", "type"), ("id", "prediction")):
        for one, other in combinations(roles, 2):
            if columns[one] == columns[other]:
                raise BadInput(f"columns.{one} and columns.{other} are both {columns[one]!r}. Name two columns.")
    return columns


def _json_rows(path: Path, needed: Mapping[str, str]) -> Rows:
    for number, row in json_lines(path):
        composed = {_nfc(column): _nfc(cell) if isinstance(cell, str) else cell for column, cell in row.items()}
        _check_columns(composed, needed, f"{path}:{number}")
        yield number, composed


def _csv_rows(path: Path, needed: Mapping[str, str]) -> Rows:
    """(line on which it begins, {column: cell}) of every row below the header; a cell may hold several lines."""
    taken: list[int] = []  # numbers of the lines that the row at hand has taken up

    def lines() -> Iterator[str]:
        for number, line in numbered_lines(path):
            taken.append(number)
            yield _nfc(line) + "\n"

    header: list[str] = []
    try:
        for cells in csv.reader(lines(), strict=True):
            where = f"{path}:{taken[0]}"
            if not header:
                header = cells
                if len(set(header)) < len(header):
                    raise BadInput(f"{where}: the header names a column twice: {', '.join(header)}. Rename one.")
                _check_columns(header, needed, where)
            elif len(cells) != len(header):
                raise BadInput(
                    f"{where}: {len(cells)} cells, but the header has {len(header)}: {', '.join(header)}. Quote a text "
                    "with a comma in it; leave a cell empty where nothing stands."
                )
            else:
                yield taken[0], dict(zip(header, cells, strict=True))
            taken.clear()
    except csv.Error as error:
        raise BadInput(
            f"{path}:{taken[0]}: broken CSV in the row that begins here ({error}). Is a quote open?"
        ) from None


def _nfc(text: str) -> str:
    """In composed form: ids, names of columns and texts are the same however their characters are written."""
    return unicodedata.normalize("NFC", text)


def _check_columns(there: Collection[str], needed: Mapping[str, str], where: str) -> None:
    for column, role in needed.items():
        if column not in there:
            raise BadInput(
                f"{where}: there is no column {column!r} ({', '.join(there)}).{did_you_mean(column, there)} If it has "
                f"another name, give task.columns.{role}=NAME."
            )


def _text(row: Mapping[str, Any], column: str, where: str) -> str:
    """A text that is not blank."""
    text = field(row, column, str, where)
    if not text.strip():
        raise BadInput(f"{where}: {column} is empty. Write the sentence, or remove the row from both files.")
    return text


def _notes(compared: Compared, predictions: Sequence[str]) -> tuple[str, ...]:
    """What should be looked at: most of what needs correction left as it was, and predictions without a word."""
    notes = []
    needed, left = int(compared.wanted.sum()), int((compared.wanted & ~compared.made).sum())
    if 2 * left > needed:
        notes.append(f"{left:,} of {needed:,} sentences that need correction were left as they were.")
    if blank := sum(not text.strip() for text in predictions):
        notes.append(
            f"{blank:,} of {len(predictions):,} predictions are empty: all words of their sentences are deleted."
        )
    return tuple(notes)
