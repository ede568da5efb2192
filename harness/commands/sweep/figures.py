"""Figures of a sweep. The board of its trials draws what needs their values by query.

axes: swept key -> its value in each of T trials, all numbers or all texts, None where a trial does not have the key; at
least one key.
values: the objective, float64 [T], NaN where a trial failed.
best: index of the best trial; None if all failed. If it has the minimum of `values`, lower is better.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from harness.config.text import counted
from harness.reports.figure import drawable, new_figure, shortened, with_fonts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Swept = Mapping[str, Sequence[str | float | None]]

ABSENT = "–"  # the value of a key that a trial does not have
MOST_KEYS = 12  # in one figure
MOST_BINS = 8  # into which the values of a key are grouped to estimate its effect
TRIAL, GOOD, BEST = "#8fa8c8", "#2e5eaa", "#d1495b"


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
        scaled = np.log(self.levels) if self.log else self.levels
        return float(np.diff(scaled).min() / np.ptp(scaled)) if len(scaled) > 1 else 1.0


def draw_by_key(axes: Swept, objective: str, values: np.ndarray, best: int | None) -> Figure:
    """Return one panel per swept key (the 12 with the largest effect): all trials, best and median at each value."""
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


def draw_pareto(values: np.ndarray, names: tuple[str, str], front: np.ndarray) -> Figure:
    """Return the trials by two objectives. values: float64 [T, 2], NaN: failed. front: bool [T], the Pareto front."""
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
