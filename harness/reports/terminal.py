"""What people see on the terminal, and the per-query table that goes with a run."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.evaluation.measures import OOF
from harness.evaluation.scores import Scores, Summary

if TYPE_CHECKING:
    from rich.console import Console


SAID = {
    "plateau": "thresholds within one standard error of the best",
    "threshold_interval": "95 % interval of the threshold",
    "objective_interval": "95 % interval of the score on the queries that it was fitted on",
}


def emit(style: str, document: Mapping[str, Any], show: Callable[[Console], None]) -> None:
    """One JSON document on standard output, or `show` on a console there."""
    if style == "json":
        json.dump(document, sys.stdout, ensure_ascii=False, allow_nan=False)
        sys.stdout.write("\n")
        return
    from rich.console import Console

    show(Console(highlight=False, markup=False, soft_wrap=not sys.stdout.isatty()))


def show_scores(console: Console, scores: Scores, held_out: Scores | None = None) -> None:
    """Measures with intervals and splits, the losses, and what was left out.

    held_out: the same out of fold, where a gate was fitted on labels; it is what such a run is compared by.
    """
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in (("measure", "left"), ("mean", "right"), ("95 % interval", "right"), ("queries", "right"),
                          ("public", "right"), ("private", "right")):  # fmt: skip
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for name, of in [(name, of) for name in scores.summary for of in (scores, held_out) if of and name in of.summary]:
        summary = of.summary[name]
        table.add_row(
            f"{OOF}{name}" if of is held_out else name, _number(summary.mean), _interval(summary), str(summary.n),
            _number(of.public[name].mean), _number(of.private[name].mean),
        )  # fmt: skip
    console.print(table)
    if held_out:
        console.print(
            f"The gate was fitted on labels of these queries: {OOF}NAME is the score when each query's label had no "
            "part in it. Compare runs by that.",
            style="bold",
        )
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


def peeked(experiment: str, peeks: int) -> str:
    """What it means that private scores were looked at."""
    return (
        f"Private scores of experiment {experiment!r} have been seen {peeks} time{'s' * (peeks != 1)}. Each look that "
        "decides what is tried next makes them worth less."
    )


def show_gate(console: Console, fitted: Mapping[str, Any]) -> None:
    """What a gate learnt from labels, in a few lines."""
    rule, learnt = fitted["rule"], fitted["learnt_from"]
    read = " ".join(filter(None, rule["features"][0])) if len(rule["features"]) == 1 else "logistic regression"
    console.print()
    console.print(f"Gate, learnt from {learnt['queries']} queries ({learnt['needs_no_retrieval']} need no retrieval):")
    levels = ", ".join(
        f"{level} from {_end(threshold)}" for level, threshold in zip(rule["levels"], rule["thresholds"], strict=False)
    )
    console.print(f"  {read}: documents shown: {levels}; below that none.")
    for name in ("plateau", "threshold_interval", "objective_interval"):
        if name in fitted:
            low, high = map(_end, fitted[name])
            console.print(f"  {SAID[name]}: {low} to {high}")
    for note in fitted["notes"]:
        console.print(f"  Note: {note}.")


def _end(value: float | str) -> str:
    return f"{float(value):.4g}"


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
