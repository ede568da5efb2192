"""The figure of a scored file of a text task. It is drawn without global state and without a display."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.evaluation.scores import Summary
from harness.reports.figure import FONT, WIDTH, label_rows, new_figure, save, with_fonts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


VALUE, INTERVAL, ABSENT = "#2e5eaa", "#8fa8c8", "#8b929a"
MARKS = {"tp": "#1d7a4f", "fp": "#c22f44", "fn": "#b05c00", "fr": "#7a4fa3"}
MOST = 20  # kinds in a figure
ROW = 0.3  # inches


def scored(
    summary: Mapping[str, Summary],
    by_kind: Mapping[str, tuple[int, float]],
    objective: str,
    target: Path,
    counts: Mapping[str, float] | None = None,
) -> None:
    """Measures with their intervals, sums of counts, and the objective of each kind of item, as PNG.

    summary:   measure -> its value, NaN if it is absent; at least one measure.
    by_kind:   kind -> (number of items, their objective); drawn if there are several kinds.
    objective: the name of the measure in `by_kind`.
    target:    the file to write.
    counts:    name -> sum over all items.
    """
    save(draw_scored(summary, by_kind, objective, counts or {}), target)


def draw_scored(
    summary: Mapping[str, Summary],
    by_kind: Mapping[str, tuple[int, float]],
    objective: str,
    counts: Mapping[str, float],
) -> Figure:
    kinds = sorted(by_kind.items(), key=lambda one: -one[1][0])[:MOST] if len(by_kind) > 1 else []
    heights = [len(rows) + 1.5 for rows in (summary, counts) if rows]
    heights.append(max(len(kinds) + 1.5 - sum(heights), 0.01))  # below the measures, where there are many kinds
    figure = new_figure(WIDTH, 0.4 + ROW * sum(heights))
    names = ["measures", "counts", "."] if counts else ["measures", "."]
    mosaic: list[Any] = [[name, "kinds"] if kinds else [name] for name in names]
    panels = figure.subplot_mosaic(mosaic, height_ratios=heights)
    _measures(panels["measures"], summary)
    if counts:
        _bars(panels["counts"], counts, [f"{value:,.10g}" for value in counts.values()], "Counts")
        for bar, name in zip(panels["counts"].patches, counts, strict=True):
            bar.set_color(MARKS.get(name, VALUE))
    if kinds:
        labels = [f"{value:.4f} ({n:,})" if value == value else f"none ({n:,})" for _, (n, value) in kinds]
        means = {kind: value for kind, (_, value) in kinds}
        _bars(panels["kinds"], means, labels, f"{objective} by kind (items)")
        panels["kinds"].set_xlim(0, 1)
        if len(by_kind) > MOST:
            panels["kinds"].set_xlabel(f"the {MOST} largest of {len(by_kind)} kinds", fontsize=FONT)
    return with_fonts(figure)


def _measures(panel: Axes, summary: Mapping[str, Summary]) -> None:
    """One dot and whisker per measure, its value beside it; grey if it is absent."""
    label_rows(panel, summary)
    for row, (one, label) in enumerate(zip(summary.values(), panel.get_yticklabels(), strict=True)):
        defined = one.mean == one.mean
        panel.plot([one.low, one.high], [row, row], color=INTERVAL, linewidth=2.2)
        panel.plot([one.mean], [row], "o", color=VALUE, clip_on=False)
        label.set_color("black" if defined else ABSENT)
        panel.text(1.03, row, f"{one.mean:.4f}" if defined else "absent", transform=panel.get_yaxis_transform(),
                   va="center", fontsize=FONT, color=label.get_color())  # fmt: skip
    panel.set_xlim(0, 1)
    panel.set_title("Measures with their 95 % intervals", fontsize=9)


def _bars(panel: Axes, values: Mapping[str, float], labels: Sequence[str], title: str) -> None:
    """One bar per value, with its label at the end."""
    bars = panel.barh(range(len(values)), np.nan_to_num([*values.values()]), 0.65, color=VALUE)
    panel.bar_label(bars, labels, fontsize=FONT, padding=3)
    panel.margins(x=0.2)
    label_rows(panel, values)
    panel.set_title(title, fontsize=9)
