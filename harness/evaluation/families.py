"""Families of measures, and the table of all measures by name."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeVar

import numpy as np

from harness.evaluation.judged import Judged


class MeasureFamily(Enum):
    """Which queries a measure is computed over, and the signature of its function."""

    STANDARD = "queries that need retrieval"  # (judged, k) -> float64 [Q]; NaN if none is needed
    SHOWN = "queries that need retrieval and are shown documents"  # (judged, k) -> float64 [Q]; NaN for all others
    MODIFIED = "all labelled queries"  # (judged, k) -> float64 [Q]; a correct abstention scores 1
    ABSTENTION = "queries in the ratio's denominator"  # (judged) -> float64 [Q]; NaN outside of it
    POOLED = "all labelled queries at once"  # (judged) -> (value, number of queries that enter it)

    @property
    def of_rankings(self) -> bool:
        """Whether its measures are about rankings, which may be read below what is shown."""
        return self in (MeasureFamily.STANDARD, MeasureFamily.SHOWN)


_Function = TypeVar("_Function", bound=Callable)
MEASURES: dict[str, tuple[MeasureFamily, Callable]] = {}
GROWS: dict[str, tuple[str, ...]] = {}  # measure -> the config keys with which it grows by construction


def measure(family: MeasureFamily, grows_with: tuple[str, ...] = ()) -> Callable[[_Function], _Function]:
    """Register a function under its name (without the trailing underscore of `map_`).

    grows_with: keys whose greater values can only raise the measure, so that its best value says nothing of them.

    Its signature is that of the family. Its docstring gives the formula, the range, the empty case, the source
    and an example.
    """

    def register(function: _Function) -> _Function:
        MEASURES[function.__name__.rstrip("_")] = (family, function)
        GROWS[function.__name__.rstrip("_")] = grows_with
        return function

    return register


def standard(judged: Judged, values: np.ndarray) -> np.ndarray:
    """The values, NaN for queries that need no retrieval."""
    return np.where(judged.needs, values, np.nan)


def ratio(above: np.ndarray, below: np.ndarray | int) -> np.ndarray:
    """above / below; 0 if below is 0."""
    return np.divide(above, below, out=np.zeros(len(above)), where=np.broadcast_to(below, above.shape) > 0)


def unknown(judged: Judged) -> np.ndarray:
    """NaN for every query, of a measure for which the labels do not suffice."""
    return np.full(len(judged.needs), np.nan)
