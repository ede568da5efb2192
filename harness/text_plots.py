"""Figures of scored texts, and of submissions compared. Drawn as those of a run: no global state, no display."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.plots import QUICK
from harness.scores import Summary
from harness.sweep_plots import shortened, with_fonts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

VALUE, INTERVAL, ABSENT = "#2e5eaa", "#8fa8c8", "#8b929a"
MARKS = {"tp": "#1d7a4f", "fp": "#c22f44", "fn": "#b05c00", "fr": "#7a4fa3"}
MOST = 20  # kinds in a figure
LONGEST = 28  # characters of a label
NARROW = 15  # columns of shifts that leave room for numbers
ROW = 0.3  # inches
FONT = 8


def scored(
    measured: Mapping[str, Summary],
    by_kind: Mapping[str, tuple[int, float]],
    objective: str,
    target: Path,
    counts: Mapping[str, float] | None = None,
) -> None:
    """Measures with their intervals, sums of counts, and the objective of each kind of item, as PNG.

    measured: one at least; its mean is NaN where it is not to be had. by_kind: kind -> (items, their objective), shown
    where there are several. counts: name -> sum over all items.
    """
    draw_scored(measured, by_kind, objective, counts or {}).savefig(target, dpi=120, pil_kwargs=QUICK)


def shake_up(document: Mapping[str, Any]) -> bytes:
    """What becomes of the ranks of submissions between the public and the private part, as PNG.

    document: a comparison, of which are told: metric; runs, with label, public, private, public_rank and private_rank
    each; shake_up, with draws, and of each run its shifts, ranks lost -> in how many draws.
    """
    written = io.BytesIO()
    draw_shake_up(document).savefig(written, dpi=120, pil_kwargs=QUICK)
    return written.getvalue()


def draw_scored(
    measured: Mapping[str, Summary],
    by_kind: Mapping[str, tuple[int, float]],
    objective: str,
    counts: Mapping[str, float],
) -> Figure:
    kinds = sorted(by_kind.items(), key=lambda one: -one[1][0])[:MOST] if len(by_kind) > 1 else []
    heights = [len(rows) + 1.5 for rows in (measured, counts) if rows]
    heights.append(max(len(kinds) + 1.5 - sum(heights), 0.01))  # below the measures, where there are many kinds
    figure = _figure(0.4 + ROW * sum(heights))
    names = ["measures", "counts", "."] if counts else ["measures", "."]
    mosaic: list[Any] = [[name, "kinds"] if kinds else [name] for name in names]
    panels = figure.subplot_mosaic(mosaic, height_ratios=heights)
    _measures(panels["measures"], measured)
    if counts:
        _bars(panels["counts"], counts, [f"{value:,.10g}" for value in counts.values()], "Counts")
        for bar, name in zip(panels["counts"].patches, counts, strict=True):
            bar.set_color(MARKS.get(name, VALUE))
    if kinds:
        said = [f"{value:.4f} ({n:,})" if value == value else f"none ({n:,})" for _, (n, value) in kinds]
        means = {kind: value for kind, (_, value) in kinds}
        _bars(panels["kinds"], means, said, f"{objective} by kind (items)")
        panels["kinds"].set_xlim(0, 1)
        if len(by_kind) > MOST:
            panels["kinds"].set_xlabel(f"the {MOST} largest of {len(by_kind)} kinds", fontsize=FONT)
    return with_fonts(figure)


def draw_shake_up(document: Mapping[str, Any]) -> Figure:
    runs, draws = document["runs"], document["shake_up"]["draws"]
    rows = range(len(runs))
    public, private = (np.array([one[part] for one in runs], np.float64) for part in ("public", "private"))  # None: NaN
    figure = _figure(1.2 + ROW * len(runs))
    left, right = figure.subplots(1, 2, sharey=True)
    left.hlines(rows, np.minimum(public, private), np.maximum(public, private), color=INTERVAL, linewidth=2, zorder=1)
    left.plot(public, rows, "o", color=VALUE, markerfacecolor="white", label="public")
    left.plot(private, rows, "o", color=VALUE, markersize=4, label="private")
    left.set_title(f"{document['metric']} in the split that counts", fontsize=9)
    figure.legend(loc="outside lower left", ncols=2, fontsize=FONT, frameon=False)
    shares = [
        {int(move): count / draws for move, count in one["shifts"].items()} for one in document["shake_up"]["runs"]
    ]
    _shifts(right, shares, [one["private_rank"] - one["public_rank"] for one in runs])
    right.set_title(f"How ranks move in {draws:,} random splits", fontsize=9)
    _rows(left, [one["label"] for one in runs])
    right.tick_params(labelsize=FONT)
    return with_fonts(figure)


def _measures(panel: Axes, measured: Mapping[str, Summary]) -> None:
    """A dot and a whisker for each, its value beside it; grey where it is absent."""
    _rows(panel, measured)
    for row, (one, label) in enumerate(zip(measured.values(), panel.get_yticklabels(), strict=True)):
        there = one.mean == one.mean
        panel.plot([one.low, one.high], [row, row], color=INTERVAL, linewidth=2.2)
        panel.plot([one.mean], [row], "o", color=VALUE, clip_on=False)
        label.set_color("black" if there else ABSENT)
        panel.text(1.03, row, f"{one.mean:.4f}" if there else "absent", transform=panel.get_yaxis_transform(),
                   va="center", fontsize=FONT, color=label.get_color())  # fmt: skip
    panel.set_xlim(0, 1)
    panel.set_title("Measures with their 95 % intervals", fontsize=9)


def _bars(panel: Axes, values: Mapping[str, float], said: Sequence[str], title: str) -> None:
    """A bar for each value, with what is said of it at its end."""
    bars = panel.barh(range(len(values)), np.nan_to_num([*values.values()]), 0.65, color=VALUE)
    panel.bar_label(bars, said, fontsize=FONT, padding=3)
    panel.margins(x=0.2)
    _rows(panel, values)
    panel.set_title(title, fontsize=9)


def _shifts(panel: Axes, shares: Sequence[Mapping[int, float]], actual: Sequence[int]) -> None:
    """A row for each submission: how often its rank moves by how much; outlined, by how much it did."""
    from matplotlib.patches import Rectangle

    most = max(abs(move) for moves in [actual, *shares] for move in moves)
    moves = range(-most, most + 1)
    cells = [[of.get(move, 0) for move in moves] for of in shares]
    panel.imshow(cells, cmap="Blues", vmin=0, aspect="auto",
                 extent=(-most - 0.5, most + 0.5, len(shares) - 0.5, -0.5))  # fmt: skip
    for row, (of, moved) in enumerate(zip(shares, actual, strict=True)):
        for move, share in of.items() if len(moves) <= NARROW else ():
            ink = "white" if 2 * share > np.max(cells) else "black"
            panel.text(move, row, f"{share:.0%}", ha="center", va="center", fontsize=7, color=ink)
        panel.add_patch(Rectangle((moved - 0.5, row - 0.5), 1, 1, fill=False, edgecolor=MARKS["fp"], linewidth=1.5))
    step = 1 + most // 8
    panel.set_xticks([move for move in moves if move % step == 0])
    panel.set_xlabel("private − public rank; outlined: the split that counts", fontsize=FONT)


def _rows(panel: Axes, labels: Iterable[str]) -> None:
    short = [shortened(label, LONGEST) for label in labels]
    panel.set_yticks(range(len(short)), short, parse_math=False)
    panel.set_ylim(len(short) - 0.5, -0.5)
    panel.tick_params(labelsize=FONT)


def _figure(height: float) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure
