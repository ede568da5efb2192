"""What a system outside returns for a batch of queries, checked and made a ranking."""

from __future__ import annotations

import math
import numbers
from collections.abc import Collection, Sequence
from typing import Any

from retrievers.base import BadInput, Query, Ranking

Found = list[tuple[str, float]]  # (doc_id, score) of one query, in any order
_SHOWN = 60  # characters of a value in a message


def ranking_of(queries: Sequence[Query], answers: Any, k: int, known: Collection[str], where: str) -> Ranking:
    """The ranking of `answers`, a list of (doc_id, score) pairs for each query: by score, ties as they are given.

    BadInput, with the query, unless every list has at most k documents of `known`, each once, with finite scores.

    where: names what has answered, for errors.
    """
    if not isinstance(answers, Sequence) or isinstance(answers, str | bytes):
        raise BadInput(f"{where} returned {_shown(answers)}: return a list with one list of pairs for each query.")
    if len(answers) != len(queries):
        raise BadInput(
            f"{where} returned {len(answers)} lists for {len(queries)} queries: return one for each, in their order."
        )
    scores = {}
    for query, answer in zip(queries, answers, strict=True):
        scores[query.query_id] = _checked(answer, k, known, f"{where}, query {query.query_id:.60}")
    return Ranking.from_scores(scores, k)


def _checked(answer: Any, k: int, known: Collection[str], where: str) -> dict[str, float]:
    if not isinstance(answer, Sequence) or isinstance(answer, str | bytes):
        raise BadInput(f"{where}: {_shown(answer)} is no list of (doc_id, score) pairs.")
    if len(answer) > k:
        raise BadInput(f"{where}: {len(answer)} documents, but k is {k}. Return the best k.")
    row: dict[str, float] = {}
    for pair in answer:
        if not isinstance(pair, Sequence) or isinstance(pair, str | bytes) or len(pair) != 2:
            raise BadInput(f"{where}: {_shown(pair)} is no (doc_id, score) pair.")
        doc_id, score = pair
        if not isinstance(doc_id, str):
            raise BadInput(f"{where}: the doc_id {_shown(doc_id)} is no text. Return ids as text: str(doc_id).")
        if doc_id not in known:
            raise BadInput(f"{where}: the dataset has no document {_shown(doc_id)}. Is the index of these documents?")
        if doc_id in row:
            raise BadInput(f"{where}: document {_shown(doc_id)} is there twice. Return each once.")
        value = _number(score)
        if not math.isfinite(value):
            raise BadInput(f"{where}: document {_shown(doc_id)} scores {_shown(score)}, which is not a finite number.")
        row[doc_id] = value
    ordered = sorted(row, key=row.__getitem__, reverse=True)  # stable
    return descending(ordered, [row[doc_id] for doc_id in ordered])


def _number(score: Any) -> float:
    """The score; nan for what is no number or too large for one."""
    try:
        return float(score) if isinstance(score, numbers.Real) and not isinstance(score, bool) else math.nan
    except (OverflowError, ValueError, TypeError):
        return math.nan


def descending(doc_ids: Sequence[str], scores: Sequence[float] | None) -> dict[str, float]:
    """doc_id -> score in this order, each below the one before: a tie is lowered by the least that keeps the order.

    scores: finite, none above the one before it; None: rank r scores 1 / r.
    """
    if scores is None:
        return {doc_id: 1 / rank for rank, doc_id in enumerate(doc_ids, start=1)}
    found: dict[str, float] = {}
    limit = math.inf
    for doc_id, score in zip(doc_ids, scores, strict=True):
        found[doc_id] = limit = score if score < limit else math.nextafter(limit, -math.inf)
    return found


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # whole numbers of thousands of digits, and classes of somebody else's
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
