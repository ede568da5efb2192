"""The task `corrections`: corrected sentences, judged edit by edit. `harness.tasks.alignment` defines edits."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from harness.data.files import check_pairs, field, json_lines, no_rows, numbered_lines, optional_text, some, unique_rows
from harness.data.tables import strict_reader
from harness.errors import BadInput, did_you_mean
from harness.progress import watch
from harness.storage.cache import Cache
from harness.tasks.alignment import JudgedEdits, judge_edits
from harness.tasks.task import JudgedItems, Marked, nfc
from retrievers.base import AtMost

COLUMNS = {"id": "id", "source": "source", "reference": "reference", "prediction": "prediction", "type": "error_type"}
COUNTS = ("tp", "fp", "fn", "fr")
PROGRESS_STEP = 1000  # sentences between two reports of progress
JSON_SUFFIXES = {".json", ".jsonl", ".ndjson"}

Sums = Mapping[str, np.ndarray]
Rows = Iterator[tuple[int | str, dict[str, Any]]]


class _Expected(NamedTuple):
    """A reference. kind: the error type, or ""."""

    source: str
    reference: str
    kind: str


class Corrections:
    """Predictions {id, prediction} compared with references {id, source, reference}, in CSV or JSON lines.

    A CSV file has a header. `error_type` in references gives the kind of a sentence; without it, the kinds are
    `to correct` and `nothing to correct`. A blank prediction deletes all words; a blank source or reference is refused.

    scheme: whether each changed word (`token`) or each group of neighbouring changed words (`span`) is an edit.
    merge_gap: under `span`, an edit joins the previous edit if their beginnings are at most this many words apart.
    columns: id, source, reference, prediction or type -> the column's name in the files, if it is not the default.
    """

    recorded_as = "task/corrections"
    name = "corrections"
    measures = ("correction_recall", "correction_precision")
    counts = COUNTS
    subset: Mapping[str, str] = {}  # Every sentence enters both measures.
    version = 1

    def __init__(
        self,
        scheme: Literal["token", "span"] = "token",
        merge_gap: Annotated[int, AtMost(1_000_000, "no sentence is as long")] = 2,
        columns: Mapping[str, str] | None = None,
    ) -> None:
        if merge_gap < 0:
            raise BadInput(f"merge_gap={merge_gap} is too small: give 0 (no span joins another) or more.")
        self._scheme, self._merge_gap = scheme, merge_gap
        self._columns = _columns(columns or {})

    def judge(self, predictions: Path, references: Path, wanted: Sequence[str], cache: Cache) -> JudgedItems:
        """Count tp, fp, fn and fr of each sentence. Nothing is cached, since counting is fast.

        Raise BadInput, with file and line, if columns or rows are missing, or if the files do not have the same ids.
        """
        expected, column = self._references(references), self._columns["prediction"]
        rows = self._rows(predictions, ["id", "prediction"])
        predicted = {row_id: field(row, column, str, where) for where, row_id, row in rows}
        check_pairs(predictions, predicted, references, expected)
        sources, right = [one.source for one in expected.values()], [one.reference for one in expected.values()]
        made = [predicted[item_id] for item_id in expected]
        judged = judge_edits(sources, right, made, self._scheme, self._merge_gap)
        needs = ["to correct" if differs else "nothing to correct" for differs in judged.wanted.tolist()]
        counts = dict(zip(COUNTS, judged.counts.T.astype(np.float64), strict=True))
        edits, marked = _shown(judged, len(made))
        table: dict[str, list[Any]] = {
            "id": list(expected),
            "kind": [one.kind or need for one, need in zip(expected.values(), needs, strict=True)],
            "source": sources,
            "reference": right,
            "prediction": made,
            "edits": edits,
            **dict(zip(COUNTS, judged.counts.T.tolist(), strict=True)),
            "correction_recall": self.measure(counts)["correction_recall"].tolist(),
        }
        return JudgedItems(counts, table, marked, notes=_notes(judged, made))

    def marked(self, item: Mapping[str, str]) -> Marked:
        source, reference, made = ([item[name]] for name in ("source", "reference", "prediction"))
        return judge_edits(source, reference, made, self._scheme, self._merge_gap).show(0).prediction

    def measure(self, sums: Sums) -> dict[str, np.ndarray]:
        """Return both measures of all sentences together, each in [0, 1].

        correction_recall: TP / (TP + FP + FN); the contest ranks submissions by it. Wrong edits lower it too: it is the
            Jaccard index of wanted and made edits (Jaccard 1912). TP 79, FP 68, FN 98 -> 79 / 245 = 0.3224.
        correction_precision: TP / (TP + FP + FR). Under scheme `token` a needless edit counts twice, in FP and in FR.
            TP 79, FP 68, FR 414 -> 79 / 561 = 0.1408.
        A measure with denominator 0 is 1 if there is no edit at all, else 0.
        """
        parts = {"correction_recall": ("fp", "fn"), "correction_precision": ("fp", "fr")}
        no_edits = sum(sums[name] for name in COUNTS) == 0
        found = {}
        for measure, others in parts.items():
            denominator = sums["tp"] + sum(sums[name] for name in others)
            found[measure] = np.where(no_edits, 1.0, sums["tp"] / np.where(denominator > 0, denominator, 1.0))
        return found

    def says_nothing(self, sums: Mapping[str, float]) -> Collection[str]:
        """Return `correction_recall` if no sentence needs a correction: its value, 0 or 1, is then a convention."""
        needless = sums["fr"] if self._scheme == "token" else 0.0  # Under `span`, FP does not count needless edits.
        wanted = sums["tp"] + sums["fn"] + sums["fp"] - needless
        return () if wanted else ("correction_recall",)

    def _references(self, path: Path) -> dict[str, _Expected]:
        type_column = self._columns["type"]
        roles = ["id", "source", "reference"] + (["type"] if type_column != COLUMNS["type"] else [])
        return {
            row_id: _Expected(
                source=_text(row, self._columns["source"], where),
                reference=_text(row, self._columns["reference"], where),
                kind=optional_text(row, type_column, where).strip(),
            )
            for where, row_id, row in self._rows(path, roles)
        }

    def _rows(self, path: Path, roles: Sequence[str]) -> Iterator[tuple[str, str, dict[str, Any]]]:
        needed = {self._columns[role]: role for role in roles}
        first, line = next(numbered_lines(path), (0, ""))
        if not first:
            raise no_rows(path)
        is_json = line.lstrip().startswith(("{", "[")) or not JSON_SUFFIXES.isdisjoint(path.suffixes)
        rows = _json_rows(path, needed) if is_json else _csv_rows(path, needed)
        for where, row_id, _, row in unique_rows(path, self._columns["id"], rows):
            yield where, row_id, row


def _shown(judged: JudgedEdits, sentences: int) -> tuple[list[str], dict[str, list[Marked]]]:
    edits: list[str] = []
    marked: dict[str, list[Marked]] = {"source": [], "reference": [], "prediction": []}
    with watch("corrections") as progress:
        for row in range(sentences):
            shown = judged.show(row)
            edits.append("; ".join(map(str, shown.edits)))
            for name, column in marked.items():
                column.append(getattr(shown, name))
            if row % PROGRESS_STEP == 0:
                progress(row, sentences, "sentences")
        progress(sentences, sentences, "sentences")
    return edits, marked


def _columns(given: Mapping[str, str]) -> dict[str, str]:
    for role, column in given.items():
        if role not in COLUMNS:
            hint = did_you_mean(str(role), COLUMNS)
            raise BadInput(f"columns.{role} is unknown.{hint} Known are {', '.join(COLUMNS)}.")
        if not isinstance(column, str) or not column.strip():
            raise BadInput(f"columns.{role}={column!r} is not the name of a column. Give the name that the file uses.")
    columns = COLUMNS | {role: nfc(column) for role, column in given.items()}
    for roles in (("id", "source", "reference", "type"), ("id", "prediction")):
        for one, other in combinations(roles, 2):
            if columns[one] == columns[other]:
                raise BadInput(
                    f"columns.{one} and columns.{other} are both {columns[one]!r}. Name two different columns."
                )
    return columns


def _json_rows(path: Path, needed: Mapping[str, str]) -> Rows:
    for number, row in json_lines(path):
        composed = {nfc(column): nfc(cell) if isinstance(cell, str) else cell for column, cell in row.items()}
        _check_columns(composed, needed, f"{path}:{number}")
        yield number, composed


def _csv_rows(path: Path, needed: Mapping[str, str]) -> Rows:
    taken: list[int] = []  # line numbers of the current row

    def lines() -> Iterator[str]:
        for number, line in numbered_lines(path):
            taken.append(number)
            yield nfc(line) + "\n"

    header: list[str] = []
    try:
        for cells in strict_reader(lines()):
            where = f"{path}:{taken[0]}"
            if not header:
                header = cells
                if len(set(header)) < len(header):
                    raise BadInput(f"{where}: the header names a column twice: {some(header, 20)}. Rename one.")
                _check_columns(header, needed, where)
            elif len(cells) != len(header):
                raise BadInput(
                    f"{where}: {len(cells)} cells, but the header has {len(header)}: {some(header, 20)}. Quote a text "
                    "that contains a comma; leave the cell empty if there is no text."
                )
            else:
                yield taken[0], dict(zip(header, cells, strict=True))
            taken.clear()
    except csv.Error as error:
        raise BadInput(
            f"{path}:{taken[0]}: broken CSV in the row that begins here ({error}). Is a closing quote missing?"
        ) from None


def _check_columns(there: Collection[str], needed: Mapping[str, str], where: str) -> None:
    for column, role in needed.items():
        if column not in there:
            raise BadInput(
                f"{where}: there is no column {column!r} ({some(there, 20)}).{did_you_mean(column, there)} If it has "
                f"another name, give task.columns.{role}=NAME."
            )


def _text(row: Mapping[str, Any], column: str, where: str) -> str:
    text = field(row, column, str, where)
    if not text.strip():
        raise BadInput(f"{where}: {column} is empty. Write the sentence, or remove the row from both files.")
    return text


def _notes(judged: JudgedEdits, predictions: Sequence[str]) -> tuple[str, ...]:
    notes = []
    needed, unchanged = int(judged.wanted.sum()), int((judged.wanted & ~judged.made).sum())
    if 2 * unchanged > needed:
        notes.append(f"{unchanged:,} of {needed:,} sentences that need correction were left unchanged.")
    if blank := sum(not text.strip() for text in predictions):
        notes.append(
            f"{blank:,} of {len(predictions):,} predictions are empty: all words of their sentences are deleted."
        )
    return tuple(notes)
