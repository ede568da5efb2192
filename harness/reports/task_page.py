"""What people read of answers or corrections that were scored: one page with every item, and a description.

The page is `text_page.html`, a template, with the run's data in it.

The functions share their words for what was found. facts: what was scored, in words. summary: measure -> numbers over
all items, public and private: over one part; a mean that is NaN is not to be had. counts: name -> sum over all items.
judged: the N items. shown: the measure that is told first, and by which items are listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.evaluation.scores import Summary
from harness.reports.markup import bullets, description, finite, grid, interval, marked, result
from harness.reports.page import filled
from harness.tasks.task import JudgedItems

TEMPLATE = Path(__file__).parent / "templates" / "task.html"
LIMIT = 1000  # items on a page
FILES = {
    "report.html": "the page of this run: measures, counts, the worst items; opens without a network",
    "measures.png": "measures with their intervals, and by kind of item",
    "items.json": "the worst items, a row each",
    "items.csv": "every item: its texts and measures",
    "tallies.csv": "what is counted of every item: all that a comparison needs",
    "predictions": "the predictions as they were given",  # whatever its suffix
    "config.yaml": "the resolved configuration",
    "requirements.txt": "versions of all installed packages",
}

Summaries = Mapping[str, Summary]


def page(
    task_name: str,
    facts: Mapping[str, str],
    summary: Summaries,
    public: Summaries,
    private: Summaries,
    counts: Mapping[str, float],
    by_kind: Mapping[str, Mapping[str, tuple[int, float]]],
    judged: JudgedItems,
    values: np.ndarray,
    shown: str,
) -> str:
    """The whole page as HTML, with at most the LIMIT worst items.

    by_kind: measure -> kind of item -> (how many, value). values: float64 [N], `shown` of each item, the less the
    worse; NaN where an item has none, which comes last.
    """
    names = dict.fromkeys([shown, *summary, *judged.absent])
    known = {name: of for name, of in by_kind.items() if any(value == value for _, value in of.values())}
    kinds = list(dict.fromkeys(kind for of in known.values() for kind in of))
    told = {
        "title": task_name,
        "facts": list(facts.items()),
        "notes": judged.notes,
        "nouns": ["item", "items"],
        "shown": shown,
        "measures": [_measure(name, summary, public, private, judged.absent) for name in names],
        "counts": [(name, float(value)) for name, value in counts.items()],
        "kinds": {
            "measures": list(known),
            "rows": [[kind, *(_counted(of.get(kind)) for of in known.values())] for kind in kinds],
        },
        "items": _items(judged, values, shown),
        "total": len(values),
    }
    return filled(TEMPLATE, told)


def note(
    facts: Mapping[str, str],
    summary: Summaries,
    public: Summaries,
    private: Summaries,
    counts: Mapping[str, float],
    judged: JudgedItems,
    shown: str,
    files: Iterable[str],
) -> str:
    """The description of a run in Markdown. files: names of those that it leaves."""
    order = sorted(summary, key=lambda name: name != shown)
    known = {name: summary[name] for name in order if summary[name].mean == summary[name].mean}
    rows = [
        (marked(name), _mean(one), interval(one), _mean(public.get(name)), _mean(private.get(name)), f"{one.n:,}")
        for name, one in known.items()
    ]
    left = {"predictions" if name.startswith("predictions.") else name: name for name in files}
    return description(
        [
            result(*next(iter(known.items()))) if known else "Nothing could be scored.",
            bullets(f"**{marked(name)}**: {marked(words)}" for name, words in facts.items()),
            grid(("measure", "value", "95 % interval", "public", "private", "items"), rows) if known else "",
            bullets(f"**{marked(name)}** is absent: {marked(why)}" for name, why in judged.absent.items()),
            ", ".join(f"{marked(name)} {value:,.10g}" for name, value in counts.items()),
            bullets(map(marked, judged.notes)),
            bullets(f"`{left[name]}`: {what}" for name, what in FILES.items() if name in left),
        ]
    )


def _measure(
    name: str, summary: Summaries, public: Summaries, private: Summaries, absent: Mapping[str, str]
) -> dict[str, Any]:
    """A measure for the page; its mean is null where it is not to be had, and `why` says why."""
    none = Summary(np.nan, 0)
    one = summary.get(name, none)
    return {
        "name": name,
        "mean": None if name in absent else finite(one.mean),
        "low": finite(one.low),
        "high": finite(one.high),
        "n": one.n,
        "public": finite(public.get(name, none).mean),
        "private": finite(private.get(name, none).mean),
        "why": absent.get(name, one.note),
    }


def _counted(of: tuple[int, float] | None) -> tuple[int, float | None]:
    return (of[0], finite(of[1])) if of else (0, None)


def _items(judged: JudgedItems, values: np.ndarray, shown: str) -> dict[str, Any]:
    """The worst items, the worst first: columns of texts and of numbers, and a row each.

    A row is [id, kind, *texts, *numbers]; a text that is marked is a list of pieces, each [text, mark].
    """
    worst = np.argsort(values, kind="stable")[:LIMIT].tolist()
    table = {shown: [None if value != value else value for value in values.tolist()]}
    table |= {name: cells for name, cells in judged.table.items() if name not in ("id", "kind", shown)}
    table = {name: cells for name, cells in table.items() if any(cell is not None for cell in cells)}
    texts = [name for name, cells in table.items() if any(isinstance(cell, str) for cell in cells)]
    numbers = [name for name in table if name not in texts]
    columns: list[Sequence[Any]] = [judged.item_ids, judged.kinds]
    columns += [judged.marked.get(name, table[name]) for name in texts] + [table[name] for name in numbers]
    return {
        "texts": texts,
        "numbers": numbers,
        "rows": [[_cell(column[place]) for column in columns] for place in worst],
    }


def _cell(value: Any) -> Any:
    """A text, pieces of a text or None as they are, a number as JSON has it."""
    if value is None or isinstance(value, str):
        return value
    return [tuple(piece) for piece in value] if isinstance(value, Iterable) else finite(value)


def _mean(one: Summary | None) -> str:
    return f"{one.mean:.4f}" if one and one.mean == one.mean else "–"
