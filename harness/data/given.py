"""Predictions from Python objects: mappings, tables, and functions that search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.data.dataset import Dataset, search_queries
from harness.data.files import as_id, finite_number, some
from harness.data.predictions import Predictions, predictions_of, trec_order
from harness.errors import BadInput
from retrievers.base import Ranking
from retrievers.external.function import Search, check_callable, ranking_of

COLUMNS = ("query_id", "doc_id", "score")
FORMS = (
    "{query_id: [doc_id, ...]}, {query_id: {doc_id: score}}, a table with the columns query_id, doc_id and score, "
    "a file, or a function search(queries, k)"
)


def from_mapping(given: Mapping[Any, Any]) -> Predictions:
    """Return predictions from {query_id: [doc_id, ...]}, or {query_id: {doc_id: score}} in trec_eval's order."""
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
            f"predictions have no column {' and no '.join(missing)}, but {some([*map(str, table.columns)])}. "
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
        raise BadInput("The dataset has labels alone: a function needs its queries and documents, too.")
    queries = search_queries(dataset)
    return ranking_of(queries, search([query.text for query in queries], k), k, dataset.by_id, name)


def _listed(row: Any, where: str) -> list[str]:
    if isinstance(row, Mapping):
        scores = {as_id(key, "a document id", where)[0]: _number(value, where) for key, value in row.items()}
        return trec_order(scores)
    return [as_id(one, "a document id", where)[0] for one in _as_list(row, where)]


def _number(value: Any, where: str) -> float:
    if isinstance(value, str | bytes | bool) or not hasattr(value, "__float__"):
        raise BadInput(f"{where}: score {value!r:.60} is not a finite number.")
    return finite_number(repr(float(value)), "score", where)


def _as_list(value: Any, where: str) -> Sequence[Any]:
    plain = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(plain, list | tuple):
        raise BadInput(f"{where}: {value!r:.60} is not a list.")
    return plain
