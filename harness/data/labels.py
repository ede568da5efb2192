"""Labels that leave some documents unjudged: JSON lines, one row per query.

{eval_id, needs, kind, relevant: {docid: grade}, not_relevant: [docid, ...], basis}

A document in neither `relevant` nor `not_relevant` is unjudged. A row in the contest's form, {eval_id, relevant}, does
not say which documents were judged. If its `relevant` is empty, the query needs no retrieval.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.data.files import as_id, field, optional_text, required, some
from harness.data.qrels import Qrels
from harness.data.source import grade_of
from harness.data.testset import check_kind
from harness.errors import BadInput

ROW = '{"eval_id": 7, "needs": true, "relevant": {"d1": 2}, "not_relevant": ["d2"]}'  # for messages
UNANSWERABLE = "unanswerable"  # the kind of a query that needs retrieval, but has no answer in the documents


@dataclass(frozen=True)
class Label:
    """The label of a query.

    kind: one of `harness.data.testset.KINDS`; "" if unknown. relevant: doc_id -> grade, finite and > 0.
    not_relevant: documents judged not relevant; None if it is unknown which documents were judged.
    basis: who judged, such as "human" or "llm"; "" if unknown.
    """

    query_id: str
    needs: bool
    relevant: Mapping[str, float]
    not_relevant: frozenset[str] | None = None
    kind: str = ""
    basis: str = ""


def read_label(row: Mapping[str, Any], where: str, query_id: str) -> Label:
    """Return the label in a row, which may lack `needs`. Raise BadInput if the row contradicts itself."""
    relevant = _relevant(row, where)
    if "needs" not in row:
        if "not_relevant" in row or row.get("kind") == UNANSWERABLE:
            there = "not_relevant" if "not_relevant" in row else "kind"
            raise BadInput(
                f"{where}: the row has the field {there}, but lacks the field needs. Add needs: true, or needs: false "
                f"if the query needs no retrieval, as in {ROW}"
            )
        return Label(query_id, bool(relevant), relevant)
    label = Label(
        query_id,
        field(row, "needs", bool, where),
        relevant,
        _not_relevant(row, where, relevant),
        optional_text(row, "kind", where),
        optional_text(row, "basis", where),
    )
    _check_kind(label, where)
    return label


def _relevant(row: Mapping[str, Any], where: str) -> dict[str, float]:
    relevant = required(row, "relevant", where)
    if isinstance(relevant, list):
        return dict.fromkeys(_ids(relevant, "relevant", where), 1.0)
    if not isinstance(relevant, dict):
        raise BadInput(f"{where}: relevant is {relevant!r:.60}, but must be a list of ids or {{docid: grade}}.")
    remedy = f" Put documents judged not relevant into not_relevant, and leave out those that were not judged: {ROW}"
    for doc_id in relevant:
        as_id(doc_id, "an id in relevant", where)
    return {
        doc_id: grade_of(grade, f"the grade of {doc_id!r:.60}", where, remedy) for doc_id, grade in relevant.items()
    }


def _not_relevant(row: Mapping[str, Any], where: str, relevant: Mapping[str, float]) -> frozenset[str] | None:
    if "not_relevant" not in row:
        return None
    ids = frozenset(_ids(field(row, "not_relevant", list, where), "not_relevant", where))
    if both := sorted(ids & set(relevant)):
        raise BadInput(f"{where}: the fields relevant and not_relevant both name {some(both)}. Keep each in one field.")
    return ids


def _ids(values: list[Any], key: str, where: str) -> list[str]:
    ids = [as_id(value, f"an id in {key}", where)[0] for value in values]
    if len(set(ids)) < len(ids):
        twice = Counter(ids).most_common(1)[0][0]
        raise BadInput(f"{where}: the field {key} names {twice!r:.60} twice. Remove one of them.")
    return ids


def _check_kind(label: Label, where: str) -> None:
    if label.kind:
        check_kind(label.kind, label.needs, where)
    if label.relevant and not label.needs:
        raise BadInput(
            f"{where}: needs is false, but the field relevant names {some(list(label.relevant))}. Write needs: true, "
            "or move these documents to not_relevant."
        )
    if label.relevant and label.kind == UNANSWERABLE:
        raise BadInput(
            f"{where}: the kind is unanswerable, but the field relevant names {some(list(label.relevant))}. Change the "
            "kind, or move these documents to not_relevant."
        )


def label_row(label: Label, native_id: int | None = None) -> dict[str, Any]:
    """Return a row from which `read_label` reads the same label. native_id: the query's id if it is a number."""
    row: dict[str, Any] = {
        "eval_id": label.query_id if native_id is None else native_id,
        "needs": label.needs,
        "kind": label.kind,
        "relevant": dict(sorted(label.relevant.items())),
    }
    if label.not_relevant is not None:
        row["not_relevant"] = sorted(label.not_relevant)
    return row | {"basis": label.basis}


def qrels_of(labels: Iterable[Label]) -> Qrels:
    """Return the labels of all queries.

    If only some labels say which documents were judged, only the relevant documents of the others count as judged.
    """
    rows = list(labels)
    answerable = [one for one in rows if one.kind != UNANSWERABLE]
    known = any(one.not_relevant is not None for one in rows)
    return Qrels(
        grades={one.query_id: dict(one.relevant) for one in answerable},
        not_relevant={one.query_id: one.not_relevant for one in answerable if one.not_relevant} if known else None,
        unmet=frozenset(one.query_id for one in answerable if one.needs and not one.relevant),
        unanswerable=tuple(one.query_id for one in rows if one.kind == UNANSWERABLE),
    )
