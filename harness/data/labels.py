"""Labels with holes: one row per query, which says what was judged, and what it came to.

{eval_id, needs, kind, relevant: {docid: grade}, not_relevant: [docid, ...], basis}

A document that is in neither list is unjudged. The contest's rows, {eval_id, relevant}, do not say which documents were
judged, and an empty `relevant` of theirs means that the query needs no retrieval.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from retrievers.base import Qrels

UNANSWERABLE = "unanswerable"  # the kind of queries that need retrieval and that the documents do not answer


@dataclass(frozen=True)
class Label:
    """The label of a query.

    needs: whether it needs retrieval. kind: of query; "" if unknown. relevant: doc_id -> grade, finite and > 0.
    not_relevant: documents that were judged and are not relevant; None: the row does not say which were judged.
    basis: who decided, in words such as "human", "llm"; "" if unknown.
    """

    query_id: str
    needs: bool
    relevant: Mapping[str, float]
    not_relevant: frozenset[str] | None = None
    kind: str = ""
    basis: str = ""


def label_row(label: Label, native_id: int | None = None) -> dict[str, Any]:
    """A label as a row of JSON lines. native_id: the query's id as a number, if it is one in its file."""
    return {
        "eval_id": label.query_id if native_id is None else native_id,
        "needs": label.needs,
        "kind": label.kind,
        "relevant": dict(sorted(label.relevant.items())),
        "not_relevant": sorted(label.not_relevant or ()),
        "basis": label.basis,
    }


def qrels_of(labels: Iterable[Label]) -> Qrels:
    """Labels of many queries together. Which documents were judged is known if it is known of any query."""
    rows = list(labels)
    answerable = [one for one in rows if one.kind != UNANSWERABLE]
    known = any(one.not_relevant is not None for one in rows)
    return Qrels(
        grades={one.query_id: dict(one.relevant) for one in answerable},
        not_relevant={one.query_id: one.not_relevant or frozenset() for one in answerable} if known else None,
        unmet=frozenset(one.query_id for one in answerable if one.needs and not one.relevant),
        unanswerable=tuple(one.query_id for one in rows if one.kind == UNANSWERABLE),
    )
