"""The page of compared submissions to a text task: the tables, and every item with what each submission made of it.

The page is the template `comparison.html` filled with the comparison's data. Retrieval runs have a board: on_board.py.
"""

from __future__ import annotations

import base64
from typing import Any

from harness.commands.compare import figures, page
from harness.commands.compare.comparison import ComparedItem, TaskComparison
from harness.reports.markup import finite
from harness.reports.page import TEMPLATES, filled

TEMPLATE = TEMPLATES / "comparison.html"


def html(comparison: TaskComparison) -> str:
    """The page, with the items on which the submissions differ most."""
    drawn = figures.file_figures(comparison)
    return filled(
        TEMPLATE,
        {
            "title": page.title(comparison),
            "metric": comparison.metric,
            "nouns": ["item", "items"],
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
                for one in page.file_report(comparison)
            ],
            "figures": {name: base64.b64encode(png).decode() for name, png in drawn.items()},
            "rows": [_item(one) for one in comparison.items],
        },
    )


def _item(one: ComparedItem) -> dict[str, Any]:
    """said: for each run its prediction in pieces, each [text, mark]; null where it is unknown."""
    texts = [[name, text] for name, text in one.texts.items() if text]
    return {
        "id": one.item_id,
        "texts": texts,
        "values": [finite(value) for value in one.values.values()],
        "said": [None if pieces is None else [[*piece] for piece in pieces] for pieces in one.predictions.values()],
    }
