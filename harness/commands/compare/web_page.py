"""A comparison as one HTML page: the tables, and every query or item with what each run made of it.

The page is the template `comparison.html` filled with the comparison's data.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from harness.commands.compare import figures, page
from harness.commands.compare.comparison import (
    LISTED,
    ComparedItem,
    ComparedQuery,
    Comparison,
    RetrievalComparison,
    TaskComparison,
)
from harness.reports.markup import finite
from harness.reports.page import TEMPLATES, filled
from harness.reports.sections import Section

TEMPLATE = TEMPLATES / "comparison.html"


def of_runs(comparison: RetrievalComparison) -> str:
    """The page of retrieval runs, with the LISTED queries on which they differ most."""
    values = comparison.by_query
    order = np.argsort(-np.nan_to_num(values.max(axis=0) - values.min(axis=0)), kind="stable")[:LISTED]
    rows = [_query(comparison.queries[row]) for row in order.tolist()]
    honest = ", ".join(run.label for run in comparison.runs if run.out_of_fold)
    note = f"Values of {honest} are out of fold; the documents are those of the lists as written." if honest else ""
    return _page(comparison, page.run_tables(comparison), figures.run_figures(comparison), rows, note)


def of_files(comparison: TaskComparison) -> str:
    """The page of submissions to a text task, with the LISTED items on which they differ most."""
    rows = [_item(one) for one in comparison.items]
    return _page(comparison, page.file_tables(comparison), figures.file_figures(comparison), rows)


def _page(
    comparison: Comparison,
    sections: Sequence[Section],
    drawn: Mapping[str, bytes],
    rows: Sequence[dict[str, Any]],
    note: str = "",
) -> str:
    """rows: the queries or items. note: what to know about their values."""
    unit = comparison.unit
    return filled(
        TEMPLATE,
        {
            "title": page.title(comparison),
            "metric": comparison.metric,
            "unit": unit,
            "nouns": [{"queries": "query", "items": "item"}[unit], unit],
            "total": comparison.count,
            "runs": [{"label": run.label, "name": run.run.name} for run in comparison.runs],
            "sections": [
                {
                    "title": one.title,
                    "lines": [*one.lines],
                    "header": [*one.header],
                    "rows": [[*row] for row in one.rows],
                    "figures": [name for name in one.figures if name in drawn],
                }
                for one in sections
            ],
            "figures": {name: base64.b64encode(png).decode() for name, png in drawn.items()},
            "rows": rows,
            "note": note,
        },
    )


def _query(one: ComparedQuery) -> dict[str, Any]:
    """documents: for each run [id, snippet or null, relevant or null] of each document."""
    return {
        "id": one.query_id,
        "texts": [["", one.text]] if one.text else [],
        "values": [finite(value) for value in one.values.values()],
        "documents": [[[doc.doc_id, doc.snippet, doc.relevant] for doc in docs] for docs in one.documents.values()],
    }


def _item(one: ComparedItem) -> dict[str, Any]:
    """said: for each run its prediction in pieces, each [text, mark]; null where it is unknown."""
    texts = [[name, text] for name, text in one.texts.items() if text]
    return {
        "id": one.item_id,
        "texts": texts,
        "values": [finite(value) for value in one.values.values()],
        "said": [None if pieces is None else [[*piece] for piece in pieces] for pieces in one.predictions.values()],
    }
