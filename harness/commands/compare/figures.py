"""Figures of a comparison, as PNG."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from harness.commands.compare.comparison import (
    ALPHA,
    Board,
    Comparison,
    PairedResult,
    RetrievalComparison,
    RetrievalScores,
    ShakeUp,
)
from harness.reports.figure import COLOURS, FONT, WIDTH, label_rows, new_figure, png, with_fonts
from harness.reports.task_figures import INTERVAL, MARKS, ROW, VALUE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


SIGNIFICANT, NOT_SIGNIFICANT = "#2e5eaa", "#8fa8c8"
BETTER, WORSE, TIE = SIGNIFICANT, "#d1495b", "#b8bec6"
NARROW = 15  # columns of shifts that leave room for numbers


def run_figures(comparison: RetrievalComparison) -> dict[str, bytes]:
    """name -> PNG.

    "differences" with their intervals; "queries" of the first pair; "losses", if the runs have them; "shake_up", if
    ranks can shift.
    """
    figures = file_figures(comparison) | {"queries": png(draw_queries(comparison), quick=False)}
    if comparison.loses:
        figures["losses"] = png(draw_losses(comparison.runs), quick=False)
    return figures


def file_figures(comparison: Comparison) -> dict[str, bytes]:
    """name -> PNG: "differences" with their intervals, if any is known; "shake_up", if ranks can shift."""
    figures = {}
    if _drawable(comparison):
        figures["differences"] = png(draw_differences(comparison), quick=False)
    if comparison.shake_up:
        boards = {run.label: run.board for run in comparison.runs if run.board}
        figures["shake_up"] = png(draw_shake_up(comparison.metric, boards, comparison.shake_up))
    return figures


def draw_differences(comparison: Comparison) -> Figure:
    """One line per pair in the metric, or per measure if there is only one pair; dark if significant."""
    metric, several, rows = comparison.metric, comparison.several, _drawable(comparison)
    figure = new_figure(7, 1.1 + 0.28 * len(rows))
    axes = figure.subplots()
    for place, one in enumerate(rows):
        shown = _drawn(one)
        colour = SIGNIFICANT if shown.p <= ALPHA else NOT_SIGNIFICANT
        if math.isfinite(shown.low):
            axes.plot([shown.low, shown.high], [place, place], color=colour, linewidth=2.2)
        axes.plot([shown.mean], [place], "o", color=colour, markersize=6)
    axes.axvline(0, color="#444", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [str(one.pair) if several else one.measure for one in rows], fontsize=FONT)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    what = f"{metric}, first − second" if several else str(comparison.first_pair)
    axes.set_xlabel(f"{what}, with 95 % interval; dark: p (Holm) up to {ALPHA}", fontsize=FONT)
    return with_fonts(figure)


def _drawable(comparison: Comparison) -> list[PairedResult]:
    wanted = comparison.in_metric if comparison.several else comparison.differences
    return [one for one in wanted if math.isfinite(_drawn(one).mean)]


@dataclass(frozen=True)
class _Drawn:
    """A difference with the ends of its interval, and its p after Holm's correction."""

    mean: float
    low: float
    high: float
    p: float


def _drawn(one: PairedResult) -> _Drawn:
    """The estimate, where labels come partly from a model."""
    if one.estimate:
        found = one.estimate.found
        return _Drawn(found.value, found.low, found.high, one.estimate.p_holm)
    return _Drawn(one.found.mean, one.found.low, one.found.high, one.found.p_holm)


def draw_losses(runs: Sequence[RetrievalScores]) -> Figure:
    """One bar per run: the parts that its score lacks."""
    figure = new_figure(7, 1.3 + 0.32 * len(runs))
    axes = figure.subplots()
    kinds = [name for name in COLOURS if any(name in run.losses for run in runs)]
    left = [0.0] * len(runs)
    for kind in kinds:
        widths = [run.losses.get(kind, 0.0) for run in runs]
        bars = axes.barh(range(len(runs)), widths, 0.7, left, color=COLOURS[kind], label=kind)
        axes.bar_label(bars, [f"{w:.3f}" if w > 0.015 else "" for w in widths], label_type="center", fontsize=7)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.set_yticks(range(len(runs)), [run.label for run in runs])
    axes.set_ylim(len(runs) - 0.5, -0.5)
    axes.set_xlabel("lost of modified_map@3", fontsize=FONT)
    figure.legend(loc="outside upper center", ncols=4, fontsize=FONT, frameon=False)
    return with_fonts(figure)


def draw_queries(comparison: RetrievalComparison) -> Figure:
    """One point per pair of values of the first pair of runs, with the number of its queries as its size and label."""
    pair, labels = comparison.first_pair, [run.label for run in comparison.runs]
    first, second = (comparison.by_query[labels.index(label)].tolist() for label in (pair.first, pair.second))
    counts = Counter((round(y, 4), round(x, 4)) for y, x in zip(first, second, strict=True) if x == x and y == y)
    figure = new_figure(4.6, 4.4)
    axes = figure.subplots()
    most = max(counts.values(), default=1)
    for (y, x), count in counts.items():
        colour = TIE if x == y else BETTER if y > x else WORSE
        axes.scatter([x], [y], s=40 + 900 * count / most, color=colour, alpha=0.75, linewidths=0)
        axes.annotate(str(count), (x, y), ha="center", va="center", fontsize=7)
    axes.axline((0, 0), slope=1, color="#888", linewidth=0.7, zorder=0)
    axes.set(xlabel=f"{comparison.metric} of {pair.second}", ylabel=f"of {pair.first}")
    axes.set(xlim=(-0.12, 1.12), ylim=(-0.12, 1.12))
    axes.set_title(f"Queries by their value: above the line {pair.first} is better", fontsize=9)
    return with_fonts(figure)


def draw_shake_up(metric: str, boards: Mapping[str, Board], shake_up: ShakeUp) -> Figure:
    """Left: scores on the public and the private part. Right: how ranks shift between them.

    boards: label -> scores and ranks in the actual split, in the order of `shake_up.runs`.
    """
    rows, several = range(len(boards)), list(boards.values())
    public = np.array([board.public for board in several], np.float64)  # None: NaN
    private = np.array([board.private for board in several], np.float64)
    figure = new_figure(WIDTH, 1.2 + ROW * len(boards))
    left, right = figure.subplots(1, 2, sharey=True)
    left.hlines(rows, np.minimum(public, private), np.maximum(public, private), color=INTERVAL, linewidth=2, zorder=1)
    left.plot(public, rows, "o", color=VALUE, markerfacecolor="white", label="public")
    left.plot(private, rows, "o", color=VALUE, markersize=4, label="private")
    left.set_title(f"{metric} in the actual split", fontsize=9)
    figure.legend(loc="outside lower left", ncols=2, fontsize=FONT, frameon=False)
    shares = [{int(shift): count / shake_up.draws for shift, count in run.shifts.items()} for run in shake_up.runs]
    _shifts(right, shares, [board.private_rank - board.public_rank for board in several])
    right.set_title(f"How ranks move in {shake_up.draws:,} random splits", fontsize=9)
    label_rows(left, boards)
    right.tick_params(labelsize=FONT)
    return with_fonts(figure)


def _shifts(panel: Axes, shares: Sequence[Mapping[int, float]], actual: Sequence[int]) -> None:
    """One row per run: how often its rank shifts by how much, and its actual shift, outlined.

    shares: shift -> share of the draws. actual: the shift in the actual split.
    """
    from matplotlib.patches import Rectangle

    most = max(abs(shift) for shifts in [actual, *shares] for shift in shifts)
    shifts = range(-most, most + 1)
    cells = [[of.get(shift, 0) for shift in shifts] for of in shares]
    panel.imshow(cells, cmap="Blues", vmin=0, aspect="auto",
                 extent=(-most - 0.5, most + 0.5, len(shares) - 0.5, -0.5))  # fmt: skip
    for row, (of, shifted) in enumerate(zip(shares, actual, strict=True)):
        for shift, share in of.items() if len(shifts) <= NARROW else ():
            ink = "white" if 2 * share > np.max(cells) else "black"
            panel.text(shift, row, f"{share:.0%}", ha="center", va="center", fontsize=7, color=ink)
        panel.add_patch(Rectangle((shifted - 0.5, row - 0.5), 1, 1, fill=False, edgecolor=MARKS["fp"], linewidth=1.5))
    step = 1 + most // 8
    panel.set_xticks([shift for shift in shifts if shift % step == 0])
    panel.set_xlabel("private − public rank; outlined: in the actual split", fontsize=FONT)
