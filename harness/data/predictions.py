"""Predictions from files in the contest's format, TREC runs, mappings, tables, and functions that search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from harness.data.dataset import Dataset, search_queries
from harness.data.files import as_id, field, finite_number, json_lines, no_rows, numbered_lines, some, unique_rows
from harness.errors import BadInput
from retrievers.base import Ranking
from retrievers.external.function import Search, check_callable, ranking_of

COLUMNS = ("query_id", "doc_id", "score")
FORMS = (
    "{query_id: [doc_id, ...]}, {query_id: {doc_id: score}}, a table with the columns query_id, doc_id and score, "
    "a file, or a function search(queries, k)"
)
_TREC_FIELDS = 6  # query_id Q0 doc_id rank score tag


@dataclass(frozen=True, eq=False)
class Predictions:
    """Ranked lists of Q queries, in the file's order, with duplicates kept.

    docs: int32 [Q, K], indices into the unique `doc_ids`; -1 pads the end of a row.
    whole: whether the lists hold all documents that the system ranked, as in a TREC run; False if they may be cut off.
    """

    query_ids: tuple[str, ...]
    doc_ids: tuple[str, ...]
    docs: np.ndarray
    whole: bool = False


def read_predictions(path: Path) -> Predictions:
    """Return the lists in a file of contest JSON lines {eval_id, topk: [docid, ...]} or in a TREC run.

    Contest lists keep their order and duplicates. A TREC run is sorted by `trec_order`. Raise BadInput for other
    formats, for a query with two contest rows, and for a query that has a document twice in a TREC run.
    """
    number, line = next(numbered_lines(path), (0, ""))
    if not number:
        raise no_rows(path)
    if is_contest(line):
        return predictions_of({query_id: topk for _, query_id, topk, _ in contest_rows(path)})
    lists = {query_id: trec_order(scores) for query_id, scores in trec_scores(path).items()}
    return replace(predictions_of(lists), whole=True)


def is_contest(line: str) -> bool:
    """Return True if a file that begins with this line has contest rows, False if it is a TREC run."""
    return line.lstrip().startswith(("{", "["))


def contest_rows(path: Path) -> Iterator[tuple[str, str, list[str], list[float] | None]]:
    """Yield (file:line, query_id, doc_ids, scores) for each contest row. scores: None if a document has no score."""
    for where, query_id, _, row in unique_rows(path, "eval_id", _prediction_lines(path)):
        topk = [as_id(value, "an id in topk", where)[0] for value in field(row, "topk", list, where)]
        yield where, query_id, topk, _scores(row.get("references"), len(topk))


def _scores(references: Any, count: int) -> list[float] | None:
    if not isinstance(references, list) or len(references) != count:
        return None
    found = [one.get("score") for one in references if isinstance(one, dict)]
    numbers = [float(one) for one in found if isinstance(one, int | float) and not isinstance(one, bool)]
    return numbers if len(numbers) == count else None


def _prediction_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, row in json_lines(path):
        if "eval_id" not in row and row and all(isinstance(value, dict) for value in row.values()):
            raise BadInput(
                f"{path}:{number}: an object that maps queries to lists is not supported. Give JSON lines "
                "{eval_id, topk: [docid, ...]} or a TREC run (query_id Q0 doc_id rank score tag)."
            )
        yield number, row


def trec_scores(path: Path) -> dict[str, dict[str, float]]:
    """Return query_id -> {doc_id: score} of a TREC run, with the queries in order of their first lines."""
    run: dict[str, dict[str, float]] = {}
    for number, line in numbered_lines(path):
        fields = line.split()
        if len(fields) != _TREC_FIELDS:
            raise BadInput(
                f"{path}:{number}: {len(fields)} fields. A TREC run has six: query_id Q0 doc_id rank score tag. "
                "Contest predictions are JSON lines {eval_id, topk: [docid, ...]}."
            )
        query_id, _, doc_id, _, score, _ = fields
        scores = run.setdefault(query_id, {})
        if doc_id in scores:
            first = next(n for n, other in numbered_lines(path) if other.split()[:3:2] == [query_id, doc_id])
            raise BadInput(
                f"{path}:{number}: query {query_id!r:.60} already has document {doc_id!r:.60} at {path}:{first}. "
                "Remove one of them."
            )
        scores[doc_id] = finite_number(score, "score", f"{path}:{number}")
    return run


def trec_order(scores: Mapping[str, float]) -> list[str]:
    """Sort doc_ids as trec_eval does: by score in single precision, then by doc_id, both descending."""
    with np.errstate(over="ignore"):  # scores beyond float32 become infinite, as in trec_eval
        single = np.fromiter(scores.values(), np.float64, len(scores)).astype(np.float32).tolist()
    return [doc_id for _, doc_id in sorted(zip(single, scores, strict=True), reverse=True)]


def predictions_of(lists: Mapping[str, Sequence[str]]) -> Predictions:
    """Convert query_id -> doc_ids to predictions. There must be at least one query."""
    index_of: dict[str, int] = {}
    docs = np.full((len(lists), max(map(len, lists.values()))), -1, np.int32)
    for row, doc_ids in enumerate(lists.values()):
        docs[row, : len(doc_ids)] = [index_of.setdefault(doc_id, len(index_of)) for doc_id in doc_ids]
    return Predictions(tuple(lists), tuple(index_of), docs)


def from_mapping(given: Mapping[Any, Any]) -> Predictions:
    """Return predictions from {query_id: [doc_id, ...]} or {query_id: {doc_id: score}} (sorted by `trec_order`)."""
    if not given:
        raise BadInput("predictions are empty. Give a list of document ids for each query.")
    scored = [isinstance(row, Mapping) for row in given.values()]
    lists: dict[str, list[str]] = {}
    for key, row in given.items():
        query_id = as_id(key, "a query id", "predictions")[0]
        if query_id in lists:
            raise BadInput(f"predictions: query {query_id!r:.60} is there twice, as a number and as text. Remove one.")
        lists[query_id] = _listed(row, f"predictions[{key!r:.60}]")
    if any(scored) and not all(scored):
        raise BadInput("predictions: some queries have {doc_id: score}, others a list. Give all in the same form.")
    return replace(predictions_of(lists), whole=all(scored))


def from_table(table: Any) -> Predictions:
    """Return predictions from a DataFrame with COLUMNS. Raise BadInput if a column is missing or a document repeats."""
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing:
        raise BadInput(
            f"predictions have no column {' and no column '.join(missing)}, only {some([*map(str, table.columns)])}. "
            f"Give a table with {', '.join(COLUMNS)}."
        )
    scores: dict[Any, dict[Any, Any]] = {}
    for query_id, doc_id, score in zip(*(table[name].tolist() for name in COLUMNS), strict=True):
        row = scores.setdefault(query_id, {})
        if doc_id in row:
            raise BadInput(
                f"predictions: query {query_id!r:.60} has document {doc_id!r:.60} twice. Remove one of the rows."
            )
        row[doc_id] = score
    return from_mapping(scores)


def searched(search: Search, dataset: Dataset, k: int) -> Ranking:
    """Return the k best documents that a function finds for each query. Raise BadInput for a malformed result."""
    name = getattr(search, "__name__", type(search).__name__)
    check_callable(search, name)
    if not dataset.queries:
        raise BadInput(
            "The dataset has only labels, but a function also needs queries and documents. Use another dataset."
        )
    queries = search_queries(dataset)
    return ranking_of(queries, search([query.text for query in queries], k), k, dataset.by_id, name)


def _listed(row: Any, where: str) -> list[str]:
    if isinstance(row, Mapping):
        scores = {as_id(key, "a document id", where)[0]: _number(value, where) for key, value in row.items()}
        return trec_order(scores)
    plain = row.tolist() if hasattr(row, "tolist") else row
    if not isinstance(plain, list | tuple):
        raise BadInput(f"{where}: {row!r:.60} is not a list.")
    return [as_id(one, "a document id", where)[0] for one in plain]


def _number(value: Any, where: str) -> float:
    if isinstance(value, str | bytes | bool) or not hasattr(value, "__float__"):
        raise BadInput(f"{where}: score {value!r:.60} is not a finite number.")
    return finite_number(repr(float(value)), "score", where)
