"""Figures of a sweep, drawn with matplotlib's object interface: no global state, no display.

axes: swept key -> its value in each of T trials, all numbers or all texts, None where a trial does not have the key; at
least one key.
values: the objective, float64 [T], NaN where a trial failed.
best: index of the best trial; None if all failed. If it has the minimum of `values`, lower is better.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from harness.config.text import counted
from harness.reports.figure import drawable, new_figure, save, shortened, with_fonts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Swept = Mapping[str, Sequence[str | float | None]]

ABSENT = "–"  # the value of a key that a trial does not have
MOST_KEYS = 12  # in one figure
MOST_BINS = 8  # into which the values of a key are grouped to estimate its effect
TRIAL, GOOD, BEST, EMPTY = "#8fa8c8", "#2e5eaa", "#d1495b", "#e9e9e9"
COLOURS = ("viridis", "viridis_r")  # higher is better, lower is better: good values are bright


class _Key(NamedTuple):
    """A swept key as a coordinate.

    places: float64 [T], its value in each trial if it is a number, else the index of its text in `labels`.
    labels: the different texts; empty for numbers.
    log: whether the logarithms of the numbers are spread more evenly.
    """

    name: str
    places: np.ndarray
    labels: list[str]
    log: bool

    @property
    def levels(self) -> np.ndarray:
        """The places that occur, ascending."""
        return np.unique(self.places)

    @property
    def tick_labels(self) -> list[str]:
        """A label for each level."""
        return self.labels or [f"{level:.6g}" for level in self.levels]

    @property
    def min_gap(self) -> float:
        """The smallest distance of two levels, as a share of the whole range; 1 for a single level."""
        return float(np.diff(self.shares(self.levels)).min(initial=1))

    def shares(self, places: np.ndarray) -> np.ndarray:
        """Places as shares of the range, 0 to 1; 0.5 for a single level."""
        scale = np.log if self.log else np.asarray
        low, high = scale(self.levels[0]), scale(self.levels[-1])
        return (scale(places) - low) / (high - low) if high > low else np.full(len(places), 0.5)


def objective_by_key(axes: Swept, objective: str, values: np.ndarray, best: int | None, file: Path) -> None:
    """One panel per swept key (the 12 with the largest effect), as PNG: all trials, best and median at each value."""
    save(draw_by_key(axes, objective, values, best), file, quick=False)


def overview(axes: Swept, objective: str, values: np.ndarray, best: int | None, file: Path) -> bool:
    """All keys together, as PNG: a heat map for a grid of two keys, else parallel coordinates.

    Returns False and writes no file if fewer than two keys vary or all trials failed.
    """
    figure = draw_overview(axes, objective, values, best)
    if figure is not None:
        save(figure, file, quick=False)
    return figure is not None


def pareto(values: np.ndarray, names: tuple[str, str], front: np.ndarray, file: Path) -> None:
    """The trials by two objectives, as PNG. values: float64 [T, 2], NaN: failed. front: bool [T], the Pareto front."""
    save(draw_pareto(values, names, front), file, quick=False)


def draw_by_key(axes: Swept, objective: str, values: np.ndarray, best: int | None) -> Figure:
    keys = _strongest([_key(name, given) for name, given in axes.items()], values)
    columns = {1: 1, 2: 2, 4: 2}.get(len(keys), 3)
    rows = math.ceil(len(keys) / columns)
    figure = new_figure(max(5.2, 3.4 * columns), 0.7 + 2.6 * rows)
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    for panel, key in zip(panels, keys, strict=False):
        _panel(panel, key, values, best, alone=len(keys) == 1)
        panel.set_xlabel(shortened(key.name, 42))
    for panel in panels[len(keys) :]:
        panel.remove()
    for panel in panels[: len(keys) : columns]:
        panel.set_ylabel(objective)
    panels[0].ticklabel_format(axis="y", useOffset=False)
    figure.suptitle(_title(objective, values, best), fontsize=10)
    if best is not None:
        _shared_legend(figure, list(panels[: len(keys)]))
    return with_fonts(figure)


def _shared_legend(figure: Figure, panels: Sequence[Axes]) -> None:
    """One legend below the panels with every label that one of them has."""
    handles: dict[str, Any] = {}
    for panel in panels:
        handles = dict(zip(*reversed(panel.get_legend_handles_labels()), strict=True)) | handles
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles), frameon=False, fontsize=8
    )


def draw_overview(axes: Swept, objective: str, values: np.ndarray, best: int | None) -> Figure | None:
    keys = [key for key in (_key(name, given) for name, given in axes.items()) if len(key.levels) > 1]
    if len(keys) < 2 or best is None:
        return None
    cells = math.prod(len(key.levels) for key in keys)
    if len(keys) == 2 and cells <= 2 * len(values):  # else most cells are empty: values drawn at random
        few, many = sorted(keys, key=lambda key: len(key.levels))
        figure = _heat_map(many, few, objective, values, best)
    else:
        figure = _parallel(_strongest(keys, values), objective, values, best)
    figure.suptitle(_title(objective, values, best), fontsize=10)
    return with_fonts(figure)


def draw_pareto(values: np.ndarray, names: tuple[str, str], front: np.ndarray) -> Figure:
    figure = new_figure(5.6, 4.2)
    panel = figure.subplots()
    panel.scatter(values[~front, 0], values[~front, 1], s=14, color=TRIAL, alpha=0.6, linewidths=0, label="trial")
    chosen = values[front][np.lexsort(values[front].T)]
    panel.plot(*chosen.T, "o-", color=BEST, markersize=5, linewidth=1.2, label="Pareto front")
    panel.set(xlabel=names[0], ylabel=names[1])
    panel.ticklabel_format(useOffset=False)
    figure.suptitle(
        f"{len(chosen)} of {len(values):,} trials on the Pareto front{_failures(values.sum(axis=1))}", fontsize=10
    )
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return with_fonts(figure)


def _panel(panel: Axes, key: _Key, values: np.ndarray, best: int | None, alone: bool) -> None:
    """All trials as points; if values recur or there is only one key, also the best and the median at each value."""
    done = np.isfinite(values)
    panel.scatter(key.places[done], values[done], s=12, color=TRIAL, alpha=0.5, linewidths=0, label="trial")
    levels = np.unique(key.places[done])
    if alone or 2 * len(key.levels) <= len(values):
        at_level = [values[done & (key.places == level)] for level in levels]
        line = "" if key.labels else "-"
        panel.plot(levels, [np.median(some) for some in at_level], "D", ls=line, color=GOOD, ms=3.5, lw=0.8, alpha=0.45,
                   label="median")  # fmt: skip
        top = np.min if _less_is_better(values, best) else np.max
        panel.plot(levels, [top(some) for some in at_level], "o", ls=line, color=GOOD, ms=4, lw=1.3, label="best")
    if best is not None:
        panel.plot(key.places[best], values[best], "*", color=BEST, ms=12, mec="white", mew=0.7, label="best trial")
    _label_values(panel, key)
    if not done.any():
        panel.scatter(key.levels, np.zeros(len(key.levels)), alpha=0)  # gives the axis its range
        panel.set_yticks([])


def _label_values(panel: Axes, key: _Key) -> None:
    """Scale and label the horizontal axis of a key's panel."""
    if key.labels:
        _name_ticks(panel.xaxis, key.labels, room=40, most=18)
        panel.set_xlim(-0.5, len(key.labels) - 0.5)
    elif key.log:
        panel.set_xscale("log")
    elif len(key.levels) <= 6 and key.min_gap > 0.1:
        panel.set_xticks(key.levels, key.tick_labels)
    else:
        panel.ticklabel_format(axis="x", useOffset=False)
        panel.locator_params(axis="x", nbins=6)


def _heat_map(across: _Key, up: _Key, objective: str, values: np.ndarray, best: int) -> Figure:
    """The best objective at each pair of values, with a frame around the best trial."""
    from matplotlib.patches import Rectangle

    (columns, column), (rows, row) = (np.unique(key.places, return_inverse=True) for key in (across, up))
    cells = np.full((len(rows), len(columns)), np.nan)
    less = _less_is_better(values, best)
    (np.fmin if less else np.fmax).at(cells, (row, column), values)
    width, height = np.clip([0.52 * len(columns), 0.34 * len(rows)], (3.6, 2.0), (11, 9))
    figure = new_figure(width + 2, height + 1.2)
    panel = figure.subplots()
    panel.set_facecolor(EMPTY)
    image = panel.imshow(cells, cmap=COLOURS[less], aspect="auto", origin="lower")
    _name_ticks(panel.xaxis, across.tick_labels, room=12 * width, most=24)
    _name_ticks(panel.yaxis, up.tick_labels, room=6 * height, most=24)
    panel.set(xlabel=shortened(across.name, 60), ylabel=_wrapped(up.name, 30))
    figure.colorbar(image, label=objective, pad=0.02).ax.ticklabel_format(useOffset=False)
    if cells.size <= 100 and width / len(columns) >= 0.4:
        _write_cells(panel, cells, less)
    corner = (column[best] - 0.5, row[best] - 0.5)
    panel.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=BEST, linewidth=2.5, clip_on=False))
    return figure


def _write_cells(panel: Axes, cells: np.ndarray, less: bool) -> None:
    """Write each cell's number into it. less: whether lower is better."""
    low, high = np.nanmin(cells), np.nanmax(cells)
    for y, x in np.argwhere(np.isfinite(cells)):
        brightness = high - cells[y, x] if less else cells[y, x] - low
        ink = "white" if brightness <= 0.6 * (high - low) else "black"
        panel.text(x, y, f"{cells[y, x]:.3f}", ha="center", va="center", fontsize=7, color=ink)


def _parallel(keys: Sequence[_Key], objective: str, values: np.ndarray, best: int) -> Figure:
    """One vertical axis per key and one for the objective; one line per finished trial, good ones on top."""
    done = np.flatnonzero(np.isfinite(values))
    goal = _Key(objective, values[done], [], False)
    height = goal.shares(goal.places)
    points = _polylines(keys, done, height)

    figure = new_figure(max(6.0, 1.3 * (len(keys) + 1)), 4.6)
    panel = figure.subplots()
    less = _less_is_better(values, best)
    _draw_trials(panel, points, height, less)
    panel.plot(*points[np.searchsorted(done, best)].T, "o-", color=BEST, lw=2.4, ms=5, label="best trial")
    for x, key in enumerate((*keys, goal)):
        _scale(panel, x, key, right=key is goal)
    panel.imshow(  # the objective's axis is the scale of the colours
        np.linspace(0, 1, 256)[:, None], cmap=COLOURS[less], aspect="auto", origin="lower",
        extent=(len(keys), len(keys) + 0.07, 0, 1),
    )  # fmt: skip
    panel.set(xlim=(-0.45, len(keys) + 0.45), ylim=(-0.05, 1.05), yticks=[])
    names = [_wrapped(name, 17) for name in (*(key.name for key in keys), objective)]
    panel.set_xticks(range(len(names)), names, fontsize=8)
    panel.tick_params(axis="x", length=0)
    panel.spines[:].set_visible(False)
    return figure


def _polylines(keys: Sequence[_Key], done: np.ndarray, height: np.ndarray) -> np.ndarray:
    """The points of each finished trial's line, float64 [finished, keys + 1, 2].

    Trials with the same value are spread a little by their objective, so that their lines do not cover each other.
    done: indices of the finished trials. height: their objectives as shares of the range.
    """
    spread = [(height - 0.5) * min(0.06, 0.5 * key.min_gap) for key in keys]
    heights = [key.shares(key.places[done]) + offset for key, offset in zip(keys, spread, strict=True)]
    return np.stack(np.broadcast_arrays(np.arange(len(keys) + 1.0), np.column_stack([*heights, height])), axis=2)


def _draw_trials(panel: Axes, points: np.ndarray, height: np.ndarray, less: bool) -> None:
    """One line per trial, coloured by its objective, the best drawn last. less: whether lower is better."""
    from matplotlib.collections import LineCollection

    order = np.argsort(-height if less else height, kind="stable")
    alpha = float(np.clip(60 / len(points), 0.2, 0.8))
    lines = LineCollection(points[order].tolist(), cmap=COLOURS[less], alpha=alpha, linewidths=1.0)
    lines.set_array(height[order])
    lines.set_clim(0, 1)
    panel.add_collection(lines)


def _scale(panel: Axes, x: int, key: _Key, right: bool) -> None:
    """One axis of the parallel coordinates with labels: all values if they fit, else some texts or round numbers.

    right: whether the labels are on its right side.
    """
    from matplotlib.ticker import LogLocator, MaxNLocator

    panel.axvline(x, color="#444444", lw=0.9, zorder=3)
    ticks, labels = key.levels, key.tick_labels
    crowded = key.min_gap < 0.06
    if crowded and key.labels:
        step = math.ceil(len(ticks) / 16)
        ticks, labels = ticks[::step], labels[::step]
    elif crowded or right:
        locator = LogLocator() if key.log else MaxNLocator(6)
        low, high = ticks[0], ticks[-1]
        ticks = np.array([tick for tick in locator.tick_values(low, high) if low <= tick <= high] or [low, high])
        labels = [f"{tick:.6g}" for tick in ticks]
    for height, label in zip(key.shares(ticks), labels, strict=True):
        panel.annotate(
            shortened(label, 14), (x, height), (14 if right else -6, 0),
            textcoords="offset points", ha="left" if right else "right", va="center", fontsize=7, zorder=5,
            bbox={"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.75},
        )  # fmt: skip


def _key(name: str, given: Sequence[str | float | None]) -> _Key:
    if all(isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) for value in given):
        places = np.array(given, np.float64)
        return _Key(name, places, [], _logarithmic(np.unique(places)))
    numbers = sorted({value for value in given if isinstance(value, int | float)}) if None in given else []
    texts = [ABSENT if value is None else f"{value:.6g}" if numbers else str(value) for value in given]
    known = list(dict.fromkeys([f"{number:.6g}" for number in numbers] or texts)) + [ABSENT] * bool(numbers)
    labels = [drawable(text) for text in known]
    if len({shortened(label, 14) for label in labels}) < len(labels):
        labels = [f"{label} #{n}" for n, label in enumerate(labels, start=1)]
    return _Key(name, np.array([known.index(text) for text in texts], np.float64), labels, False)


def _logarithmic(levels: np.ndarray) -> bool:
    """Whether positive numbers over two decades or more have a smaller largest gap on a logarithmic scale."""
    if len(levels) < 3 or levels[0] <= 0 or levels[-1] < 100 * levels[0]:
        return False
    gaps = [np.diff(scaled).max() / np.ptp(scaled) for scaled in (levels, np.log(levels))]
    return bool(gaps[1] < gaps[0])


def _strongest(keys: list[_Key], values: np.ndarray) -> list[_Key]:
    """At most 12 keys, in their order: those whose values (or groups of values) have the most different means."""
    done = np.isfinite(values)

    def effect(key: _Key) -> float:
        places = key.places[done]
        if not len(places):
            return 0.0
        if len(np.unique(places)) > MOST_BINS:
            places = np.searchsorted(np.quantile(places, np.arange(1, MOST_BINS) / MOST_BINS), places)
        means = [values[done][places == level].mean() for level in np.unique(places)]
        return float(np.ptp(means))

    strongest = sorted(range(len(keys)), key=lambda n: -effect(keys[n]))[:MOST_KEYS]
    return [keys[n] for n in sorted(strongest)]


def _less_is_better(values: np.ndarray, best: int | None) -> bool:
    return best is not None and bool(np.nanmin(values) == values[best] < np.nanmax(values))


def _wrapped(name: str, most: int) -> str:
    """A dotted name in lines of up to `most` letters, broken before dots."""
    lines = [""]
    for n, part in enumerate(drawable(name).split(".")):
        piece = f".{part}" if n else part
        if lines[-1] and len(lines[-1] + piece) > most:
            lines.append("")
        lines[-1] += piece
    return "\n".join(shortened(line, most) for line in lines)


def _name_ticks(axis: Any, labels: Sequence[str], room: float, most: int) -> None:
    """Label the integers from 0 with up to `most` letters each. Over `room` letters in all: rotated, or not all."""
    short = [shortened(label, most) for label in labels]
    wide = axis.axis_name == "x" and sum(len(label) + 2 for label in short) > room
    step = math.ceil(len(labels) / (room if wide else 40))
    places = range(0, len(labels), step)
    axis.set_ticks(places, [short[n] for n in places], fontsize=8)
    if wide:
        for label in axis.get_ticklabels():
            label.set(rotation=35, ha="right", rotation_mode="anchor")


def _title(objective: str, values: np.ndarray, best: int | None) -> str:
    count = counted(len(values), "trial")
    top = "" if best is None else f": best {objective} {values[best]:.4f}"
    return count + top + _failures(values)


def _failures(values: np.ndarray) -> str:
    failed = int((~np.isfinite(values)).sum())
    return f" ({failed:,} failed)" if failed else ""
