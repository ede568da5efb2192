"""Plateau or spike: how far a number can move from its best value before the scores fall.

A value is on the plateau if it and all values between it and the best value score within one standard error of the
best. The standard error is that of the differences by query, as in `gates.calibration.plateau`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from harness.analysis.board.settings import VariedKey
from harness.gates.calibration import CLOSE

LEAST = 3  # fewer values have no shape
BEYOND = 1.96  # a value so many standard errors below the best is worse beyond chance


@dataclass(frozen=True)
class Plateau:
    """The shape of the scores around the best value of a key.

    along: "run" for runs that differ from the best run in this key alone; "average" for means over all other keys.
    values: in ascending order. best, low, high: the places of the best value and of the ends of the plateau.
    below: how far each value scores below the best. error: the standard error of `below`; 0 for the best value.
    grows: whether the measure grows with the key by construction.
    """

    along: Literal["run", "average"]
    values: tuple[str, ...]
    means: tuple[float, ...]
    best: int
    low: int
    high: int
    below: tuple[float, ...]
    error: tuple[float, ...]
    grows: bool = False
    json_too = ("shape", "at_end", "clear", "beside")

    @property
    def clear(self) -> bool:
        """Whether some value lies below the best one beyond chance."""
        return any(below > BEYOND * error + CLOSE for below, error in zip(self.below, self.error, strict=True))

    @property
    def shape(self) -> Literal["flat", "spike", "plateau"]:
        if self.low == 0 and self.high == len(self.values) - 1:
            return "flat"
        return "spike" if self.low == self.high else "plateau"

    @property
    def at_end(self) -> Literal["", "least", "greatest"]:
        """The end of the tried values where the best value lies.

        "" if it lies at neither end, or at an end by chance or by construction.
        """
        if not self.clear or 0 < self.best < len(self.values) - 1:
            return ""
        return "least" if self.best == 0 else "" if self.grows else "greatest"

    @property
    def beside(self) -> int:
        """The place of the value next to the plateau, on the side with the higher score; of the best value if flat."""
        outside = [place for place in (self.low - 1, self.high + 1) if 0 <= place < len(self.values)]
        return min(outside, key=lambda place: self.below[place], default=self.best)

    def sentence(self, name: str) -> str:
        over = "" if self.along == "run" else ", on average over the other keys"
        first, last, best = self.values[self.low], self.values[self.high], self.values[self.best]
        if not self.clear:
            where = over or ", all else as in the best run"
            return f"{name}: {self.values[0]} to {self.values[-1]} differ no more than by chance{where}."
        gap = f"{self.values[self.beside]} is {self.below[self.beside]:.4f} below"
        reach = f"plateau from {first} to {last}, best at {best}"
        if self.shape == "spike":
            reach = f"spike, only {best} reaches it"
        beyond = f" {best} is the {self.at_end} value tried: go beyond it." if self.at_end else ""
        if self.grows and self.best == len(self.values) - 1:
            beyond = " The measure grows with the key by construction, so larger values need no trial."
        return f"{name}: {reach}; {gap}{over}.{beyond}"


def plateau_of(
    key: VariedKey, keys: Sequence[VariedKey], values: np.ndarray, averages: np.ndarray | None, grows: bool = False
) -> Plateau | None:
    """Return the shape around the best value of a key; None unless the key is a number with LEAST values to compare.

    key: see `comparable`. keys: all keys, see `varied`. values: float64 [R, Q], finite, best run first.
    averages: float64 [L, Q], the mean of each value of the key over the other keys; None if unknown.
    """
    if key.numbers is None or len(key.values) < LEAST or values.shape[1] < 2:
        return None
    [raw] = [one for one in keys if one.name == key.name]
    line = _line(raw, [one for one in keys if one.name not in (key.name, *key.also)])
    if len(line) >= LEAST:
        return shape_along("run", [raw.values[raw.places[run]] for run in line], values[line], grows)
    return None if averages is None else shape_along("average", key.values, averages, grows)


def _line(key: VariedKey, others: Sequence[VariedKey]) -> list[int]:
    """Return the best run with the key and the runs that differ from it in this key alone, one for each value."""
    best = int(np.argmax(key.having))
    places = np.array([one.places for one in others]).reshape(-1, len(key.places))
    alike = np.flatnonzero((places == places[:, [best]]).all(axis=0) & key.having)
    return [int(run) for run in alike[np.unique(key.places[alike], return_index=True)[1]]]


def shape_along(along: Literal["run", "average"], texts: Sequence[str], rows: np.ndarray, grows: bool) -> Plateau:
    """Return the shape of a key's values. texts: the values, ascending. rows: float64 [len(texts), Q], finite."""
    means = rows.mean(axis=1)
    best = int(np.argmax(means))
    less = rows[best] - rows
    below, error = less.mean(axis=1), less.std(axis=1, ddof=1) / np.sqrt(rows.shape[1])
    reached = below <= error + CLOSE
    low = best - int(np.argmin([*reached[best::-1], False])) + 1
    high = best + int(np.argmin([*reached[best:], False])) - 1
    floats = [tuple(float(one) for one in row) for row in (means, below, error)]
    return Plateau(along, tuple(texts), floats[0], best, low, high, floats[1], floats[2], grows)
