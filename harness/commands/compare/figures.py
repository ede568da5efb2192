"""Figures of a comparison, as PNG. Drawn as those of a run, with matplotlib's object interface: no global state."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.commands.compare.shake_up_figure import shake_up
from harness.reports.figure import COLOURS, with_fonts

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TOLD, UNTOLD, TIE = "#2e5eaa", "#8fa8c8", "#b8bec6"
ALPHA = 0.05


def figures(document: Mapping[str, Any], ours: Sequence[float], theirs: Sequence[float]) -> dict[str, bytes]:
    """name -> PNG: "differences" with their intervals, "losses" where runs have them, "queries" of the first pair.

    document: the comparison. ours, theirs: the metric by query of the first two runs.
    """
    found = {"queries": _queries(document, ours, theirs)}
    if any(run["losses"] for run in document["runs"]):
        found["losses"] = _losses(document["runs"])
    drawn = {"differences": differences(document)} | {name: _png(figure) for name, figure in found.items()}
    return drawn | ({"shake_up": shake_up(document)} if document["shake_up"] else {})


def differences(document: Mapping[str, Any]) -> bytes:
    """PNG of the differences with their intervals."""
    return _png(_forest(document))


def _forest(document: Mapping[str, Any]) -> Figure:
    """A line for each pair in the metric, or for each measure where there is one pair; strong where told apart."""
    metric, several = document["metric"], len(document["runs"]) > 2
    rows = [
        (one, test["p_holm"])
        for one, test in zip(document["differences"], document["tests"], strict=True)
        if one["mean"] is not None and (one["measure"] == metric or not several)
    ]
    figure = _figure(7, 1.1 + 0.28 * len(rows))
    axes = figure.subplots()
    for place, (one, p) in enumerate(rows):
        colour = TOLD if p <= ALPHA else UNTOLD
        if one["low"] is not None:
            axes.plot([one["low"], one["high"]], [place, place], color=colour, linewidth=2.2)
        axes.plot([one["mean"]], [place], "o", color=colour, markersize=6)
    axes.axvline(0, color="#444", linewidth=0.8)
    axes.set_yticks(
        range(len(rows)), [f"{one['a']} − {one['b']}" if several else one["measure"] for one, _ in rows], fontsize=8
    )
    axes.set_ylim(len(rows) - 0.5, -0.5)
    labels = [run["label"] for run in document["runs"]]
    what = f"{metric}, first − second" if several else f"{labels[0]} − {labels[1]}"
    axes.set_xlabel(f"{what}, with 95 % interval; dark: p (Holm) up to {ALPHA}", fontsize=8)
    return figure


def _losses(runs: Sequence[Mapping[str, Any]]) -> Figure:
    """A bar for each run: the parts that its score lacks."""
    figure = _figure(7, 1.3 + 0.32 * len(runs))
    axes = figure.subplots()
    kinds = [name for name in COLOURS if any(name in run["losses"] for run in runs)]
    left = [0.0] * len(runs)
    for kind in kinds:
        widths = [run["losses"].get(kind, 0.0) for run in runs]
        bars = axes.barh(range(len(runs)), widths, 0.7, left, color=COLOURS[kind], label=kind)
        axes.bar_label(bars, [f"{w:.3f}" if w > 0.015 else "" for w in widths], label_type="center", fontsize=7)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.set_yticks(range(len(runs)), [run["label"] for run in runs])
    axes.set_ylim(len(runs) - 0.5, -0.5)
    axes.set_xlabel("lost of modified_map@3", fontsize=8)
    figure.legend(loc="outside upper center", ncols=4, fontsize=8, frameon=False)
    return figure


def _queries(document: Mapping[str, Any], ours: Sequence[float], theirs: Sequence[float]) -> Figure:
    """A point for each pair of values of the first two runs, as large as it has queries, which it counts."""
    counts = Counter((round(y, 4), round(x, 4)) for y, x in zip(ours, theirs, strict=True) if x == x and y == y)
    figure = _figure(4.6, 4.4)
    axes = figure.subplots()
    most = max(counts.values(), default=1)
    for (y, x), count in counts.items():
        colour = TIE if x == y else TOLD if y > x else "#d1495b"
        axes.scatter([x], [y], s=40 + 900 * count / most, color=colour, alpha=0.75, linewidths=0)
        axes.annotate(str(count), (x, y), ha="center", va="center", fontsize=7)
    axes.axline((0, 0), slope=1, color="#888", linewidth=0.7, zorder=0)
    a, b = (run["label"] for run in document["runs"][:2])
    axes.set(xlabel=f"{document['metric']} of {b}", ylabel=f"of {a}", xlim=(-0.12, 1.12), ylim=(-0.12, 1.12))
    axes.set_title(f"Queries by their value: above the line {a} is better", fontsize=9)
    return figure


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _png(figure: Figure) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(with_fonts(figure))
    written = io.BytesIO()
    figure.savefig(written, dpi=120)
    return written.getvalue()
