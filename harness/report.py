"""What people see on the terminal, and the per-query table that goes with a run."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.pipeline import Outcome
from harness.scores import Scores, Summary

if TYPE_CHECKING:
    from rich.console import Console

SNIPPET = 90  # characters of a document shown in a list


def emit(style: str, document: Mapping[str, Any], show: Callable[[Console], None]) -> None:
    """One JSON document on standard output, or `show` on a console there."""
    if style == "json":
        json.dump(document, sys.stdout, ensure_ascii=False, allow_nan=False)
        sys.stdout.write("\n")
        return
    from rich.console import Console

    show(Console(highlight=False, markup=False, soft_wrap=not sys.stdout.isatty()))


def show_scores(console: Console, scores: Scores) -> None:
    """Measures with intervals and splits, the losses, and what was left out."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in (("measure", "left"), ("mean", "right"), ("95 % interval", "right"), ("queries", "right"),
                          ("public", "right"), ("private", "right")):  # fmt: skip
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for name, summary in scores.summary.items():
        table.add_row(
            name, _number(summary.mean), _interval(summary), str(summary.n),
            _number(scores.public[name].mean), _number(scores.private[name].mean),
        )  # fmt: skip
    console.print(table)
    if scores.losses:
        console.print()
        console.print("Where the score is lost (the losses and modified_map@3 add up to 1):", style="bold")
        for name, value in scores.losses.items():
            console.print(f"  {name:<26} {value:.4f}  {'█' * round(40 * value)}".rstrip())
        console.print("With one part perfect, modified_map@3 would be:", style="bold")
        for name, value in scores.ceilings.items():
            console.print(f"  {name:<26} {value:.4f}")
    console.print()
    console.print(_counted(scores))
    notes: dict[str, list[str]] = {}
    for name, summary in scores.summary.items():
        if summary.note:
            notes.setdefault(summary.note, []).append(name)
    for note, names in notes.items():
        console.print(f"{', '.join(names)}: {note}.", style="dim")


def query_table(outcome: Outcome, objective: str) -> dict[str, list[Any]]:
    """column -> values, one row a query: text, signal, decision, first hit, score, documents returned."""
    final, decision, scores = outcome.final, outcome.decision, outcome.scores
    scored = {query_id: i for i, query_id in enumerate(scores.query_ids)} if scores else {}
    measure = scores.values.get(objective) if scores else None
    first = scores.first_hit if scores else None
    rows = range(len(outcome.queries))
    ids = [query.query_id for query in outcome.queries]
    return {
        "query_id": ids,
        "query": [query.text for query in outcome.queries],
        "signal": [None if decision.signal is None else round(float(decision.signal[i]), 6) for i in rows],
        "kept": [bool(decision.keep[i]) for i in rows],
        "returned": [int(n) for n in final.lengths],
        "first_hit": [_at(first, scored.get(i)) for i in ids],
        objective: [_at(measure, scored.get(i)) for i in ids],
        "documents": [" ".join(doc for doc, _ in final.row(i)) for i in rows],
    }


def snippet(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SNIPPET else line[: SNIPPET - 1] + "…"


def _at(values: np.ndarray | None, i: int | None) -> float | None:
    if values is None or i is None or not np.isfinite(values[i]):
        return None
    return round(float(values[i]), 6)


def _number(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.4f}"


def _interval(summary: Summary) -> str:
    return "" if np.isnan(summary.low) else f"{summary.low:.3f} – {summary.high:.3f}"


def _counted(scores: Scores) -> str:
    counts = scores.counts
    text = f"{counts['scored']} labelled queries scored, {counts['needs_no_retrieval']} of them need no retrieval"
    for name in ("unlabelled", "missing", "duplicates"):
        if counts[name]:
            text += f"; {counts[name]} {name}"
    return text + "."
