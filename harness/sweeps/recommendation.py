"""Which of a sweep's best trials to take, and where to try more values.

If trials with equal scores differ in non-numeric keys, prefer a trial that asks no language model, then the
quickest one. The remaining trials form a plateau. Take its middle: on other queries, scores drop first at its edges.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from harness.analysis.board.matters import LEAST, shape_along
from harness.config.text import counted
from harness.gates.calibration import CLOSE
from harness.sweeps.axes import Axis, Interval

_Others = tuple[tuple[str, str], ...]  # (key, value) pairs of a trial, for some of its swept keys

# n trial numbers -> the objective of each of these trials for each query, float64 [n, Q]
ByQuery = Callable[[Sequence[int]], np.ndarray]
NEAR = 0.05  # a value within this share of the interval's length from an end counts as the end


@dataclass(frozen=True)
class Points:
    """Finished trials. The keys of `values`, `texts` and `ms` are the trials' numbers.

    values: the objective; greater is better. texts: swept key -> value as text.
    numeric: the swept keys with numbers as values. ms: milliseconds per query, without the time of language models.
    asking: the trials that ask a language model about each query.
    """

    values: Mapping[int, float]
    texts: Mapping[int, Mapping[str, str]]
    numeric: Collection[str]
    ms: Mapping[int, float]
    asking: Collection[int] = ()

    def number(self, trial: int, key: str) -> float:
        return float(self.texts[trial][key])

    def differ(self, trials: Sequence[int], key: str) -> bool:
        return len({self.texts[trial].get(key) for trial in trials}) > 1

    def keys(self, trials: Sequence[int]) -> list[str]:
        return list(dict.fromkeys(key for trial in trials for key in self.texts[trial]))

    def line(self, trial: int, key: str) -> list[int]:
        """Return this trial and all trials that differ from it only in the numeric `key`, sorted by this key."""
        return self._lines[key][self._others(trial, key)]

    @cached_property
    def _lines(self) -> dict[str, dict[_Others, list[int]]]:
        found: dict[str, dict[_Others, list[int]]] = {}
        for key in self.numeric:
            lines = found.setdefault(key, {})
            having = [trial for trial in self.texts if key in self.texts[trial]]
            for trial in sorted(having, key=lambda trial: self.number(trial, key)):
                lines.setdefault(self._others(trial, key), []).append(trial)
        return found

    def _others(self, trial: int, key: str) -> _Others:
        return tuple(item for item in self.texts[trial].items() if item[0] != key)


@dataclass(frozen=True)
class Recommendation:
    """The trial to take. tied: this trial and all with the same score. reason: why this one; "" if no other is tied."""

    trial: int
    tied: tuple[int, ...]
    reason: str = ""


def recommend(points: Points) -> Recommendation | None:
    """Choose among the trials whose value is the greatest, up to rounding. Return None if there are no trials."""
    if not points.values:
        return None
    most = max(points.values.values())
    tied = [trial for trial in sorted(points.values) if points.values[trial] > most - CLOSE]
    if len(tied) == 1:
        return Recommendation(tied[0], tuple(tied))
    quickest, choices = _quickest(points, tied)
    chosen, middles = _middle(points, quickest)
    spans = [_span(points, tied, key) for key in points.keys(tied) if points.differ(tied, key)]
    why = ", and ".join([*choices, *middles])
    reason = f"{counted(len(tied), 'trial')} tie at {most:.4f}: {'; '.join(spans)}. Recommended: {why}."
    return Recommendation(chosen, tuple(tied), reason)


def _quickest(points: Points, tied: Sequence[int]) -> tuple[list[int], list[str]]:
    keys = [key for key in points.keys(tied) if key not in points.numeric and points.differ(tied, key)]
    if not keys:
        return list(tied), []
    alike: dict[_Others, list[int]] = {}
    for trial in tied:
        own = points.texts[trial]
        alike.setdefault(tuple((key, own[key]) for key in keys if key in own), []).append(trial)
    silent = {values: trials for values, trials in alike.items() if not {*trials} & {*points.asking}}
    if len(silent) == 1 < len(alike):
        [(values, trials)] = silent.items()
        return trials, [f"{_named(values)}, which asks no language model"]
    alike = silent or alike
    times = [min(points.ms.get(trial, np.nan) for trial in trials) for trials in alike.values()]
    timed = bool(np.isfinite(times).all()) and min(times) < max(times)
    values, trials = list(alike.items())[int(np.argmin(times)) if timed else 0]
    return trials, [f"{_named(values)}, {'which takes the least time per query' if timed else 'the first of them'}"]


def _named(values: _Others) -> str:
    return " ".join(f"{key}={value}" for key, value in values)


def _middle(points: Points, tied: Sequence[int]) -> tuple[int, list[str]]:
    """Return the tied trial that is farthest (in steps) from worse trials and axes' ends, and the reason in words."""
    keys = [key for key in points.numeric if points.differ(tied, key) and all(key in points.texts[n] for n in tied)]
    if not keys:
        return tied[0], []
    places = np.array([[points.number(trial, key) for key in keys] for trial in tied])
    low, high = places.min(axis=0), places.max(axis=0)
    off = np.abs((places - low) / (high - low) - 0.5).sum(axis=1).round(9)
    depth = [min(_depth(points, trial, key) for key in keys) for trial in tied]
    chosen = min(range(len(tied)), key=lambda row: (-depth[row], off[row], tied[row]))
    named = " ".join(f"{key}={points.texts[tied[chosen]][key]}" for key in keys)
    return tied[chosen], [f"{named}, {'in the middle' if len(tied) > 2 else 'the first of them'}"]


def _depth(points: Points, trial: int, key: str) -> int:
    line = points.line(trial, key)
    place = line.index(trial)
    most = points.values[trial] - CLOSE
    worse = [at for at, other in enumerate(line) if points.values[other] < most]
    return min([place + 1, len(line) - place, *(abs(place - at) for at in worse)])


def _span(points: Points, tied: Sequence[int], key: str) -> str:
    texts = list(dict.fromkeys(points.texts[trial][key] for trial in tied if key in points.texts[trial]))
    if key not in points.numeric:
        return f"{key} {', '.join(texts)}"
    texts.sort(key=float)
    tried = {float(own[key]) for own in points.texts.values() if key in own}
    between = [one for one in tried if float(texts[0]) <= one <= float(texts[-1])]
    if len(texts) == 2 or len(between) > len({float(text) for text in texts}):
        return f"{key} {', '.join(texts)}"
    return f"{key} {texts[0]} to {texts[-1]}"


@dataclass(frozen=True)
class Edge:
    """A numeric key whose best value lies at an end of the values tried. beyond: a value just beyond that end."""

    key: str
    beyond: str
    note: str


def edges(
    points: Points, best: int, axes: Mapping[str, Axis], by_query: ByQuery, grows: Callable[[str], bool]
) -> list[Edge]:
    """Return the numeric keys whose best value lies at an end of the values tried.

    Leave out a key if no tried value is significantly worse than the best one (`Plateau.clear`).
    grows: key -> whether greater values can only raise the objective. If so, a best value at the upper end is left out.
    """
    found = []
    for key in (one for one in points.numeric if one in points.texts[best]):
        line = [trial for trial in points.line(best, key) if not np.isnan(points.values[trial])]
        if isinstance(axis := axes.get(key), Interval):
            found += _end(points, key, best, axis, by_query, grows(key))
        elif len(line) >= LEAST and best in (line[0], line[-1]):
            shape = shape_along("run", [points.texts[trial][key] for trial in line], by_query(line), grows(key))
            if shape.at_end and line[shape.best] == best:
                found.append(_edge(points, key, best, line[1] if best == line[0] else line[-2], best == line[-1]))
    return found


def _edge(points: Points, key: str, best: int, beside: int, top: bool) -> Edge:
    value, whole = points.number(best, key), all(_is_whole(own[key]) for own in points.texts.values() if key in own)
    step = 1 if whole else 0.01 * abs(value - points.number(beside, key))
    beyond = value + step if top else value - step
    scores = f"{points.values[best]:.4f} against {points.values[beside]:.4f} at {points.texts[beside][key]}"
    name = f"{key}={points.texts[best][key]} is the {'greatest' if top else 'least'} value tried"
    return Edge(key, str(int(beyond)) if whole else repr(beyond), f"{name}, and scores best ({scores}): go beyond it.")


def _end(points: Points, key: str, best: int, interval: Interval, by_query: ByQuery, grows: bool) -> list[Edge]:
    scale = np.log if interval.log else float
    low, high = scale(interval.low), scale(interval.high)

    def share(trial: int) -> float:
        return float((scale(points.number(trial, key)) - low) / (high - low))

    top = share(best) > 0.5
    inside = [trial for trial in points.values if key in points.texts[trial] and NEAR <= share(trial) <= 1 - NEAR]
    if NEAR <= share(best) <= 1 - NEAR or not inside or (top and grows):
        return []
    other = max(inside, key=lambda trial: points.values[trial])
    if not shape_along("run", ["inside", "end"], by_query([other, best]), grows=False).clear:
        return []
    end, sign = (interval.high, 1) if top else (interval.low, -1)
    beyond = str(end + sign) if interval.size else repr(end + sign * 0.01 * (interval.high - interval.low))
    name = f"{key}={points.texts[best][key]} lies at the {'upper' if top else 'lower'} end of what was searched"
    return [Edge(key, beyond, f"{name}, {interval}: go beyond it.")]


def _is_whole(text: str) -> bool:
    return float(text).is_integer() and "." not in text and "e" not in text.lower()
