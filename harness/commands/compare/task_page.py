"""What a comparison of submissions tells people: sections and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.commands.compare.figures import differences
from harness.commands.compare.shake_up_figure import shake_up
from harness.reports.sections import Section, number, p_value, signed

GIVEN = ("question", "source", "reference")  # texts of an item that all submissions share


def title(document: Mapping[str, Any]) -> str:
    return f"{len(document['runs'])} submissions of {document['experiment']} on {document['items']} items"


def described(document: Mapping[str, Any], whole: bool) -> list[Section]:
    """whole: all pairs and measures; the short form has the pairs by the metric, and the items of the first pair."""
    runs, metric = document["runs"], document["metric"]
    names = list(runs[0]["metrics"])
    header = ["", "id", *names, "public", "rank", "private", "rank", "run"]
    rows = [
        [
            run["label"],
            run["run_id"] if whole else run["run_id"][:12],
            *(number(run["metrics"][name]) for name in names),
            *(cell for part in ("public", "private") for cell in (number(run[part]), str(run[f"{part}_rank"]))),
            run["name"],
        ]
        for run in runs
    ]
    wanted = [one for one in document["differences"] if whole or len(runs) == 2 or one["measure"] == metric]
    found = [
        Section("Submissions", [f"Public and private: {metric}."], header, rows),
        Section("Verdict", [*document["verdicts"], *document["notes"]], figures=["shake_up"]),
        _differences(document, wanted),
    ]
    if document["splits"]:
        found.append(_by_kind(document))
    first = (runs[0]["label"], runs[1]["label"])
    changed = [one for one in document["changed"] if whole or (one["a"], one["b"]) == first]
    return found + _most_changed(document["metric"], changed)


def _differences(document: Mapping[str, Any], wanted: Sequence[Mapping[str, Any]]) -> Section:
    tests = {(one["a"], one["b"], one["measure"]): one for one in document["tests"]}
    rows: list[list[str]] = []
    notes: dict[str, list[str]] = {}
    for one in wanted:
        test = tests[one["a"], one["b"], one["measure"]]
        interval = "–" if one["low"] is None else f"{one['low']:+.3f} to {one['high']:+.3f}"
        counts = f"{one['wins']}/{one['ties']}/{one['losses']}"
        pair = f"{one['a']} − {one['b']}"
        rows.append(
            [pair, one["measure"], signed(one["mean"]), interval, p_value(test["p_holm"]), p_value(test["p"]), counts]
        )
        if one["note"]:
            notes.setdefault(one["note"], []).append(f"{pair} {one['measure']}")
    header = ["pair", "measure", "difference", "95 % interval", "p (Holm)", "p", "win/tie/loss"]
    lines = [f"{', '.join(where[:5])}{' …' if len(where) > 5 else ''}: {note}." for note, where in notes.items()]
    return Section("Differences", lines, header, rows, ["differences"])


def _by_kind(document: Mapping[str, Any]) -> Section:
    pairs = list(dict.fromkeys(f"{one['a']} − {one['b']}" for one in document["splits"]))
    parts: dict[str, list[str]] = {}
    for one in document["splits"]:
        parts.setdefault(f"{one['part']} ({one['n']})", []).append(signed(one["mean"]))
    heading = f"Differences in {document['metric']} by kind of item"
    return Section(heading, ["Items in brackets; not tested."], ["", *pairs], [[k, *v] for k, v in parts.items()])


def _most_changed(metric: str, changed: Sequence[Mapping[str, Any]]) -> list[Section]:
    """A section for each pair."""
    pairs: dict[tuple[str, str], list[list[str]]] = {}
    for one in changed:
        labels = (one["a"], one["b"])
        texts = [one[name] for name in GIVEN if one.get(name)]
        row = [one["id"], *(number(one["values"][label]) for label in labels), "\n".join(texts)]
        pairs.setdefault(labels, []).append([*row, *(one["predictions"][label] or "–" for label in labels)])
    return [
        Section(
            f"Items that differ most in {metric} between {a} and {b}",
            (),
            ["id", a, b, "given", f"{a} says", f"{b} says"],
            rows,
        )
        for (a, b), rows in pairs.items()
    ]


def figures(document: Mapping[str, Any]) -> dict[str, bytes]:
    """name -> PNG: "differences" with their intervals, and how ranks shift, "shake_up"."""
    found = {"differences": differences(document)}
    return found | ({"shake_up": shake_up(document)} if document["shake_up"] else {})
