"""What a run returned and scored for each query. `harness check` compares two snapshots, and saves one as a baseline.

A baseline file is JSON with one line per query, so that a change of the baseline is easy to read as a diff.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from harness.analysis.board.lists import ListReader, Returned
from harness.analysis.board.runs import SCORES
from harness.analysis.ranking import require_finished, require_labels
from harness.data.files import json_file, required
from harness.data.qrels import Qrels
from harness.errors import BadInput, did_you_mean
from harness.measures.score_table import read_score_table
from harness.recording.logged_run import Ahead
from harness.recording.retrieval_run import LISTS
from harness.recording.run_kind import RunKind, require_kind
from harness.storage.atomic import write_text
from harness.storage.typed import encoded, row_as
from harness.tracking.tracker import LoggedRun, Tracker
from retrievers.base import Query

FORMAT: Literal[1] = 1
UNSAID = ("task", "metrics", "objective", "dataset", "public", "seed", "select_on")  # params about the measurement
DIGITS = 6  # decimals of the values
SHOWN = 3  # number of documents kept for each query
SHORT = 8  # ids of documents are cut to at least this many characters, and to more if they would not differ
SAVE = "To save a baseline of today's data: harness check save=FILE"


@dataclass(frozen=True)
class QueryResult:
    """What a run returned for a query. data: see `fingerprints_of`; "" if unknown.

    values: the value of each measure; None where a measure does not apply. docs: ids of the first documents.
    """

    data: str
    values: Sequence[float | None]
    docs: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The results of a run on all its scored queries.

    baseline: the version of the file's format. measures: the names of the values of each query.
    version: the version of the measures. predictions: sha256 of the returned ids of documents, without their scores,
    which change with every document of the corpus.
    out_of_fold: whether the values are out of fold, because the run learned from the labels.
    cut: the length to which longer ids of documents are cut; 0 if all are whole.
    data: "documents", "queries", "qrels" -> sha256. settings: the params that decide what is retrieved.
    queries: query_id -> result, in the order of the ids.
    """

    baseline: Literal[1] = FORMAT
    name: str
    run_id: str | None
    version: str
    predictions: str
    out_of_fold: bool
    cut: int = 0
    measures: Sequence[str]
    data: Mapping[str, str]
    settings: Mapping[str, str]
    queries: Mapping[str, QueryResult]

    def lists_equal(self, other: Snapshot) -> bool:
        """Return whether both runs returned the same documents for the same queries."""
        return (
            bool(self.predictions)
            and self.predictions == other.predictions
            and self.queries.keys() == other.queries.keys()
        )

    def returns_same(self, other: Snapshot, query_ids: Sequence[str]) -> bool:
        """Return whether both runs are known to have returned the same documents for these queries."""
        if self.predictions and self.predictions == other.predictions:
            return True
        few = [str(number) for number in range(SHOWN + 1)]
        if any(one.settings.get("top_k") not in few for one in (self, other)):  # then `docs` are not all
            return False
        pairs = ((self.queries[one].docs, other.queries[one].docs) for one in query_ids)
        return all(len(ours) == len(theirs) and all(map(other.means, theirs, ours)) for ours, theirs in pairs)

    def means(self, shown: str, doc_id: str) -> bool:
        """Return whether `shown`, one of the ids in `docs`, stands for this document."""
        return shown == doc_id or (bool(self.cut) and len(shown) == self.cut and doc_id.startswith(shown))

    def unlike(self, other: Snapshot) -> list[str]:
        """Return the names of the parts that differ: "queries", "labels"."""
        names = {"queries": "queries", "qrels": "labels"}
        return [name for part, name in names.items() if self.data.get(part) != other.data.get(part)]

    def identified(self, data: Mapping[str, str]) -> Snapshot:
        """Return the snapshot with the `data` of each query. data: see `fingerprints_of`."""
        rows = {query_id: replace(one, data=data.get(query_id, "")) for query_id, one in self.queries.items()}
        return replace(self, queries=rows)

    @property
    def named(self) -> str:
        return f"{self.run_id[:8]} ({self.name})" if self.run_id else self.name

    def values(self, query_ids: Iterable[str], measures: Sequence[str]) -> np.ndarray:
        """Return the values, float64 [M, Q]; NaN where a measure does not apply. Raise BadInput for other measures."""
        if lacking := next((one for one in measures if one not in self.measures), None):
            near = did_you_mean(lacking, self.measures)
            raise BadInput(
                f"{self.named} has no {lacking} by query.{near} It has {', '.join(self.measures)}. To save a baseline "
                f"with other measures: harness check save=FILE 'measures=[{lacking}]'"
            )
        places = [self.measures.index(one) for one in measures]
        rows = [[self.queries[one].values[place] for one in query_ids] for place in places]
        return np.array([[math.nan if value is None else value for value in row] for row in rows], np.float64)

    def save(self, file: Path, measures: Sequence[str]) -> None:
        """Write the snapshot with these measures alone. Ids of documents are cut to a length at which they differ."""
        cut = told_apart(doc for one in self.queries.values() for doc in one.docs)
        values = self.values(self.queries, measures).T
        rows = {
            query_id: QueryResult(one.data, encoded(row), [doc[:cut] for doc in one.docs])
            for (query_id, one), row in zip(self.queries.items(), values, strict=True)
        }
        head = encoded(replace(self, cut=cut, measures=[*measures], queries={}))
        lines = [f"  {json.dumps(name)}: {_json(one)}" for name, one in head.items() if name != "queries"]
        listed = ",\n".join(f"    {_json(query_id)}: {_json(encoded(one))}" for query_id, one in rows.items())
        lines.append(f'  "queries": {{\n{listed}\n  }}')
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, "{\n" + ",\n".join(lines) + "\n}\n")


def told_apart(ids: Iterable[str]) -> int:
    """Return the least length, from SHORT on, at which cut ids still differ as the whole ids do."""
    every = {*ids}
    longest = max(map(len, every), default=SHORT)
    return next((n for n in range(SHORT, longest) if len({one[:n] for one in every}) == len(every)), longest)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def read_snapshot(file: Path) -> Snapshot:
    """Read a baseline file. Raise BadInput if it is missing, damaged or of another version."""
    if not file.is_file():
        raise BadInput(f"baseline={file}: {'this is not a file' if file.exists() else 'there is no such file'}. {SAVE}")
    content = json_file(file)
    if (version := required(content, "baseline", str(file))) != FORMAT:
        raise BadInput(f"{file}: baseline is {version!r:.60}, but this harness reads version {FORMAT}. {SAVE}")
    try:
        found = row_as(Snapshot, content, str(file))
    except BadInput as error:
        raise BadInput(f"{error} {SAVE}") from None
    for query_id, one in found.queries.items():
        if len(one.values) != len(found.measures):
            raise BadInput(
                f"{file}: query {query_id:.60} has {len(one.values)} values, but the file names "
                f"{len(found.measures)} measures. {SAVE}"
            )
        if wrong := [value for value in one.values if value is not None and not 0 <= value <= 1]:
            raise BadInput(f"{file}: query {query_id:.60} has the value {wrong[0]}, which is not in [0, 1]. {SAVE}")
    return found


def snapshot_of(run: LoggedRun, file: Callable[[str], Path], docs: bool = True) -> Snapshot:
    """Return the snapshot of a finished run. Raise BadInput for a run without scores by query.

    If the run learnt from labels, the values are out of fold. If it was made with select_on=public, only the public
    queries are in the snapshot. file: returns the path of one of the run's files. docs: False leaves out the documents.
    """
    require_finished(run)
    require_kind(RunKind(), run, "check it")
    require_labels(run)
    table = read_score_table(file(SCORES)).by_id()
    if run.select_on == "public":
        table = table.take(table.public)
    measured = {name: one for name, one in (table.oof or table.values).items() if not np.isnan(one).all()}
    reader = ListReader(Ahead(Tracker(), [], Path()))
    lists = reader.read(file(RunKind().predictions(run))) if docs else {}
    values = [encoded(row) for row in np.round(np.array([*measured.values()]).T, DIGITS)]
    nothing = Returned(0, ())
    return Snapshot(
        name=run.brief,
        run_id=run.run_id or None,
        version=run.tags.get("version.measures", ""),
        predictions=run.tags.get(LISTS, ""),
        out_of_fold=bool(table.oof),
        measures=[*measured],
        data={name.removeprefix("data."): one for name, one in run.tags.items() if name.startswith("data.")},
        settings={
            name: one
            for name, one in run.params.items()
            if one != "null" and name not in UNSAID and not name.startswith("dataset.")
        },
        queries={
            query_id: QueryResult("", row, lists.get(query_id, nothing).docs[:SHOWN])
            for query_id, row in zip(table.query_ids, values, strict=True)
        },
    )


def fingerprints_of(queries: Sequence[Query], qrels: Qrels) -> dict[str, str]:
    """Return query_id -> the first digits of the sha256 of the query's turns and labels, for each labelled query."""
    found = {}
    for one in queries:
        if (grades := qrels.grades.get(one.query_id)) is not None:
            judged = sorted((qrels.not_relevant or {}).get(one.query_id, ()))
            turns = [[turn.role, turn.content] for turn in one.turns]
            content = json.dumps([turns, sorted(grades.items()), one.query_id in qrels.unmet, judged])
            found[one.query_id] = hashlib.sha256(content.encode()).hexdigest()[:SHORT]
    return found
