"""The proof that predictions and metrics are those of a run: their hash, stored rows, the first differences."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.data.files import field as entry
from harness.data.files import json_lines, json_text, unique_rows
from harness.errors import BadInput
from harness.tracking.tracker import TIMES, mlflow_name

TOLERANCE = 1e-12  # metrics that differ by more are different
LISTED = 10  # differing queries that are shown
Row = dict[str, Any]  # of a submission


@dataclass
class Proof:
    """The results of checking a run.

    then, now: sha256 of the predictions that the run made, and of those made again; None: none were.
    rows: those that the run made, without the documents' texts.
    wrong: sentences about what is wrong.
    differences: {queries: number of queries whose predictions differ, first: [{query_id, query, then, now}, ...]};
        then and now are [[document, score], ...], or None without a row.
    metrics: {compared: how many, differ: [{name, then, now}, ...], times: [{name, then, now}, ...]}, by their logged
        names. Times are told and decide nothing.
    """

    then: str | None
    now: str | None = None
    rows: list[Row] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    differences: dict[str, Any] = field(default_factory=lambda: {"queries": 0, "first": []})
    metrics: dict[str, Any] = field(default_factory=lambda: {"compared": 0, "differ": [], "times": []})

    def check_repeated(self, rows: Sequence[Row]) -> None:
        """Compare rows that were made again with those that the run made, both without the documents' texts."""
        self.now = rows_sha256(rows)
        self.differences = _differences(self.rows, rows)
        if self.now != self.then:
            self.wrong.append("The predictions made now differ from those that the run made.")

    def check_metrics(self, then: Mapping[str, float], now: Mapping[str, float]) -> None:
        """Compare metrics with those that the run logged, by MLflow's names; others are left out."""
        logged = {name: value for ours, value in now.items() if (name := mlflow_name(ours)) in then}
        times = {name: value for name, value in logged.items() if name.startswith(TIMES)}
        changed = [
            {"name": name, "then": then[name], "now": value}
            for name, value in logged.items()
            if abs(then[name] - value) > TOLERANCE
        ]
        differ = [one for one in changed if one["name"] not in times]
        self.metrics = {
            "compared": len(logged) - len(times),
            "differ": differ,
            "times": [one for one in changed if one["name"] in times],
        }
        if differ:
            compared = self.metrics["compared"]
            self.wrong.append(f"{len(differ)} of {compared} metrics differ from those that the run logged.")


def rows_sha256(rows: Iterable[Row]) -> str:
    return hashlib.sha256(json_text(rows).encode()).hexdigest()


def bare_rows(file: Path) -> list[Row]:
    """The rows of a submission without the documents' texts. BadInput if the file is damaged."""
    rows = []
    for where, _, _, row in unique_rows(file, json_lines(file), "eval_id"):
        entry(row, "topk", list, where)
        references = entry(row, "references", list, where)
        if not all(isinstance(one, dict) for one in references):
            raise BadInput(f"{where}: every entry of references must be an object.")
        bare = [{key: value for key, value in one.items() if key != "content"} for one in references]
        rows.append({**row, "references": bare})
    return rows


def _differences(then: Sequence[Row], now: Sequence[Row]) -> dict[str, Any]:
    before = {str(row["eval_id"]): row for row in then}
    pairs = [(before.get(str(row["eval_id"])), row) for row in now]
    changed = [(old, new) for old, new in pairs if old != new]
    first = [
        {"query_id": str(new["eval_id"]), "query": new["standalone_query"], "then": _listed(old), "now": _listed(new)}
        for old, new in changed[:LISTED]
    ]
    return {"queries": len(changed), "first": first}


def _listed(row: Row | None) -> list[list[Any]] | None:
    if row is None:
        return None
    return [[doc_id, one.get("score")] for doc_id, one in zip(row["topk"], row["references"], strict=False)]
