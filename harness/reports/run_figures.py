"""The figures of a finished run, of a scored file of answers or corrections, and of a load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.experiment.loading import LevelTimes, slowest_p95
from harness.measures.scores import Scores, Summary
from harness.reports.figure import COLOURS, FONT, WIDTH, label_rows, new_figure, save, with_fonts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BINS = ((1, 1, "1"), (2, 2, "2"), (3, 3, "3"), (4, 10, "4–10"), (11, None, "11+"))
VALUE, INTERVAL, ABSENT = "#2e5eaa", "#8fa8c8", "#8b929a"
MARKS = {"tp": "#1d7a4f", "fp": "#c22f44", "fn": "#b05c00", "fr": "#7a4fa3"}
MOST = 20  # a figure shows at most this many kinds of items
ROW = 0.3  # inches for each row of a figure
PERCENTILES = {"p50_ms": "#8fa8c8", "p95_ms": VALUE, "p99_ms": "#c22f44"}


def overview(scores: Scores, file: Path, held_out: Scores | None = None) -> None:
    """Draw a histogram of the rank of the first relevant document before the gate; draw the score and its losses."""
    figure = new_figure(WIDTH, 3.4, constrained=False)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    figure.subplots_adjust(left=0.07, right=0.99, top=0.9, bottom=0.15, wspace=0.15)

    hits = scores.first_hit[np.isfinite(scores.first_hit)]
    counts = [int(((hits >= low) & (hits <= (high or np.inf))).sum()) for low, high, _ in BINS]
    labels = [label for *_, label in BINS]
    bars = left.bar([*labels, "none"], [*counts, int((hits == 0).sum())], color="#2e5eaa")
    bars[-1].set_color(COLOURS["not_found"])
    left.bar_label(bars, fontsize=8)
    left.set(title="Rank of the first relevant document", xlabel="rank", ylabel="queries")

    lost = (held_out or scores).losses
    parts = {"modified_map@3": 1 - sum(lost[name] for name in COLOURS if name in lost)}
    parts |= {name: lost[name] for name in COLOURS if name in lost}
    below = 0.0
    for name, value in parts.items():
        right.bar(["run"], [value], bottom=below, width=0.5, color=COLOURS[name], label=f"{name} {value:.3f}")
        below += value
    right.set(title=f"Score and losses{', out of fold' if held_out else ''}", ylim=(0, 1), xlim=(-0.5, 2.2))
    right.legend(loc="center right", fontsize=8, frameon=False, reverse=True)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    save(figure, file)


def draw_scored(
    summary: Mapping[str, Summary],
    by_kind: Mapping[str, tuple[int, float]],
    objective: str,
    counts: Mapping[str, float],
) -> Figure:
    """Draw the measures with their intervals, the sums of counts, and the objective of each kind of item.

    summary: name -> measure, at least one; the mean of an absent measure is NaN.
    by_kind: kind -> (number of items, objective of these items); a single kind is not drawn.
    counts: name -> sum over all items.
    """
    kinds = sorted(by_kind.items(), key=lambda one: -one[1][0])[:MOST] if len(by_kind) > 1 else []
    heights = [len(rows) + 1.5 for rows in (summary, counts) if rows]
    heights.append(max(len(kinds) + 1.5 - sum(heights), 0.01))  # room below the measures if there are many kinds
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
    bars = panel.barh(range(len(values)), np.nan_to_num([*values.values()]), 0.65, color=VALUE)
    panel.bar_label(bars, labels, fontsize=FONT, padding=3)
    panel.margins(x=0.2)
    label_rows(panel, values)
    panel.set_title(title, fontsize=9)


def draw_load(levels: Sequence[LevelTimes]) -> Figure:
    """Draw latencies and answers per second against concurrency, and against the offered rate if rates were measured.

    levels: at least one; those of the closed loop first. Unknown latencies are not drawn.
    """
    closed, opened = ([one for one in levels if (one.rate is None) == kind] for kind in (True, False))
    kinds = {"queries under way (closed loop)": closed, "offered queries per second (open loop)": opened}
    shown = {label: rows for label, rows in kinds.items() if rows}
    figure = new_figure(WIDTH, 4.6)
    panels = figure.subplots(2, len(shown), sharex="col", sharey="row", squeeze=False)
    for (label, rows), (above, below) in zip(shown.items(), panels.T, strict=True):
        loads = [one.concurrency if one.rate is None else one.rate for one in rows]
        for name, colour in PERCENTILES.items():
            above.plot(loads, [getattr(one, name) for one in rows], "o-", color=colour, label=name.removesuffix("_ms"))
        below.plot(loads, [one.qps for one in rows], "o-", color=VALUE, label="answered")
        if rows is opened:
            below.plot(loads, loads, "--", color=ABSENT, label="offered")
        below.set_xlabel(label, fontsize=FONT)
        below.set_xticks(loads, [f"{load:g}" for load in loads])
        above.axhline(slowest_p95(levels), linestyle=":", color=ABSENT, label="the highest p95 that keeps up")
        for panel in (above, below):
            panel.tick_params(labelsize=FONT)
            panel.legend(fontsize=FONT, frameon=False)
    if any(one.p50_ms == one.p50_ms for one in levels):
        _scale_logarithmically(panels[0][0])
    panels[1][0].set_ylim(bottom=0)
    for row, label in zip(panels, ("latency in ms, logarithmic", "answers per second"), strict=True):
        row[0].set_ylabel(label, fontsize=FONT)
    return with_fonts(figure)


def _scale_logarithmically(panel: Axes) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    panel.set_yscale("log")
    panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.yaxis.set_major_formatter("{x:g}")
    panel.yaxis.set_minor_formatter(NullFormatter())
