"""Predictions given as Python objects: mappings, tables, and functions that search."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.config.text import counted
from harness.data.dataset import Dataset, search_queries
from harness.data.files import as_id, finite, some
from harness.data.predictions import predictions_of, trec_order
from retrievers.base import BadInput, Predictions, Ranking

Search = Callable[[list[str], int], Sequence[Sequence[tuple[str, float]]]]
"""Texts of queries, k -> for each query at most k (doc_id, score)."""

COLUMNS = ("query_id", "doc_id", "score")
FORMS = (
    "{query_id: [doc_id, ...]}, {query_id: {doc_id: score}}, a table with the columns query_id, doc_id and score, "
    "a file, or a function search(queries, k)"
)


def from_mapping(given: Mapping[Any, Any]) -> Predictions:
    """From {query_id: [doc_id, ...]}, or {query_id: {doc_id: score}} in trec_eval's order, which is whole.

    Duplicates in a list stay, as they do in a file. BadInput for other forms, and for scores that are not finite.
    """
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
    """From the rows of a DataFrame with COLUMNS. BadInput where one is missing, and for a document twice in a list."""
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
    """The k best documents that a function finds for each query of a dataset, ties by ascending doc_id.

    BadInput where it does not return, for each query, at most k pairs of a document of the dataset and a finite score.
    """
    _check_signature(search)
    if not dataset.queries:
        raise BadInput("The dataset has labels alone: a function needs its queries and documents, too.")
    queries = search_queries(dataset)
    found = _as_list(search([query.text for query in queries], k), "search")
    if len(found) != len(queries):
        raise BadInput(
            f"search returned {counted(len(found), 'list')} for {counted(len(queries), 'query')}. Return one for each."
        )
    scores: dict[str, dict[str, float]] = {}
    for query, pairs in zip(queries, found, strict=True):
        where = f"search, query {query.query_id!r:.60}"
        scores[query.query_id] = row = _scored(pairs, k, where)
        if unknown := [doc_id for doc_id in row if doc_id not in dataset.by_id]:
            raise BadInput(
                f"{where}: the dataset has no {counted(len(unknown), 'document')} of those returned: {some(unknown)}. "
                "Return ids of its documents."
            )
    return Ranking.from_scores(scores)


def _listed(row: Any, where: str) -> list[str]:
    if isinstance(row, Mapping):
        scores = {as_id(key, "a document id", where)[0]: _number(value, where) for key, value in row.items()}
        return trec_order(scores)
    return [as_id(one, "a document id", where)[0] for one in _as_list(row, where)]


def _scored(pairs: Any, k: int, where: str) -> dict[str, float]:
    """doc_id -> score of one query's list."""
    listed = _as_list(pairs, where)
    if len(listed) > k:
        raise BadInput(f"{where}: {counted(len(listed), 'document')}, but at most {k} were asked for.")
    row: dict[str, float] = {}
    for pair in listed:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise BadInput(f"{where}: {pair!r:.60} is not (doc_id, score).")
        doc_id = as_id(pair[0], "a document id", where)[0]
        if doc_id in row:
            raise BadInput(f"{where}: document {doc_id!r:.60} is there twice. Return each document once.")
        row[doc_id] = _number(pair[1], where)
    return row


def _number(value: Any, where: str) -> float:
    """A finite score, as Python or NumPy has it."""
    if isinstance(value, str | bytes | bool) or not hasattr(value, "__float__"):
        raise BadInput(f"{where}: score {value!r:.60} is not a finite number.")
    return finite(repr(float(value)), "score", where)


def _as_list(value: Any, where: str) -> Sequence[Any]:
    """A list, a tuple, or a NumPy array as a list. BadInput for anything else, such as a set, which has no order."""
    plain = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(plain, list | tuple):
        raise BadInput(f"{where}: {value!r:.60} is no list.")
    return plain


def _check_signature(search: Search) -> None:
    """BadInput for a function that does not take (queries, k)."""
    try:
        signature = inspect.signature(search)
    except (TypeError, ValueError):  # a function of a compiled module does not say
        return
    try:
        signature.bind([], 1)
    except TypeError as error:
        name = getattr(search, "__name__", type(search).__name__)
        raise BadInput(
            f"{name}{signature} cannot be called as search(queries, k): {error}. It gets a list of texts and the "
            "number of documents to return."
        ) from None
