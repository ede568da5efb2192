"""What every scored run has for people: the head and the measures of its page, and its description in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.measures.objective import Objective
from harness.measures.scores import Summary
from harness.reports.markup import bullets, description, estimated, marked, raw, rounded_interval, rounded_or_none
from harness.statistics.prediction_powered import Estimate

Facts = Sequence[tuple[str, str]]
REPORT = "report.html"
FILES = {
    REPORT: "the page of this run: its measures, and every query or the worst items; opens without a network",
    "queries.json": "one row per query: signal, decision, hits, score and documents",
    "items.json": "the worst items, one row each",
    "overview.png": "rank of the first relevant document, and where the score is lost",
    "gate.png": "the score at every threshold of the gate, and how well the signal separates the queries",
    "measures.png": "measures with their intervals, and by kind of item",
    "gate.json": "the rule that the gate learned from labels",
    "fusion.json": "the rule that the fusion learned from labels, and what it was chosen from",
    "predictions": "the predictions: what is submitted",  # whatever its suffix
    "metrics.json": "every number of this run",
    "scores.csv": "every measure for every query, at full precision",
    "checked.csv": "the same by people's and by the model's labels: what estimates are made of",
    "items.csv": "every item: its texts and measures",
    "tallies.csv": "the counts of every item: all that a comparison needs",
    "run.trec": "the ranking before the gate, in TREC format",
    "config.yaml": "the resolved configuration",
    "requirements.txt": "versions of all installed packages",
}


def measure_row(
    name: str, n: int, cells: Sequence[float], of: Mapping[str, Summary | Estimate], why: str = ""
) -> dict[str, Any]:
    """Return a row of the table of measures as the page has it.

    cells: below the page's `columns`; NaN where there is none. of: logged name -> the value that is drawn with its
    interval; {} if the measure is absent. why: the reason for a missing value or interval.
    """
    values = [(logged, one, one.value if isinstance(one, Estimate) else one.mean) for logged, one in of.items()]
    marks = [{"name": logged, "n": n} | rounded_interval(value, one.low, one.high) for logged, one, value in values]
    return {"name": name, "n": n, "cells": [*map(rounded_or_none, cells)], "marks": marks, "why": why}


def first_number(one: Objective | None, n: int) -> dict[str, Any] | None:
    """Return what a page begins with; None where nothing has a value. n: how many queries or items it is a mean of."""
    if one is None:
        return None
    about = {"name": one.name, "kind": one.kind, "n": n}
    if found := one.estimate:
        said = {"estimated": estimated(found, one.title), "raw": raw(found, one.value)}
        return about | rounded_interval(found.value, found.low, found.high) | said
    return about | rounded_interval(one.value, one.low, one.high)


def scored_note(first: str, facts: Facts, found: Iterable[str], notes: Sequence[str], files: Iterable[str]) -> str:
    """Return the description of a run.

    first: the result in one line, since MLflow folds everything after the first few. found: its tables and sentences.
    files: names of the files that the run leaves; the tracker makes a link of the page's name.
    """
    left = {"predictions" if name.startswith("predictions.") else name: name for name in files}
    others = [f"`{left[name]}`: {text}" for name, text in FILES.items() if name in left and name != REPORT]
    return description(
        [
            first,
            f"[{REPORT}]({REPORT}): {FILES[REPORT]}" if REPORT in left else "",
            bullets(f"**{marked(name)}**: {marked(text)}" for name, text in facts),
            *found,
            bullets(map(marked, notes)),
            bullets(others),
        ]
    )
