"""How many to draw from each stratum."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

import numpy as np

_PRIOR = 2.0  # degrees of freedom that the spread of the larger whole counts for


def apportion(weights: Sequence[float], least: Sequence[int], most: Sequence[int], total: int) -> list[int]:
    """Whole numbers in proportion to weights (Webster's method: one after the other, to the largest w / (n + 1/2)).

    least, most: bounds of each number; they go before proportion and total. Equal quotients: the first comes first.
    Where all weights that are left are 0, the rest is not given. A larger total gives no smaller number.
    """
    counts = [min(low, high) for low, high in zip(least, most, strict=True)]
    queue = [
        (-weight / (count + 0.5), place)
        for place, (weight, count) in enumerate(zip(weights, counts, strict=True))
        if weight > 0 and count < most[place]
    ]
    heapq.heapify(queue)
    for _ in range(total - sum(counts)):
        if not queue:
            break
        _, place = heapq.heappop(queue)
        counts[place] += 1
        if counts[place] < most[place]:
            heapq.heappush(queue, (-weights[place] / (counts[place] + 0.5), place))
    return counts


def spreads(strata: Sequence[Sequence[float]], groups: Sequence[str]) -> list[float]:
    """The standard deviation of each stratum, from few values: sqrt((SS + 2 V) / (n - 1 + 2)).

    SS: the sum of squares around the mean of the stratum's n values. V: the variance of its group, estimated in the
    same way from the group's values and the variance of all. So a stratum with a single value has the spread of its
    group, and none has 0 because its few values happen to agree. Without two values in all, or if all agree, every
    spread is 1.

    groups: of each stratum.
    """
    everything = [value for stratum in strata for value in stratum]
    overall = float(np.var(everything, ddof=1)) if len(everything) > 1 else 0.0
    if overall == 0:
        return [1.0] * len(strata)
    members: dict[str, list[float]] = {}
    for stratum, group in zip(strata, groups, strict=True):
        members.setdefault(group, []).extend(stratum)
    prior = {group: _variance(values, overall) for group, values in members.items()}
    return [math.sqrt(_variance(stratum, prior[group])) for stratum, group in zip(strata, groups, strict=True)]


def _variance(values: Sequence[float], prior: float) -> float:
    """The variance of few values, drawn towards `prior`."""
    squares = len(values) * float(np.var(values)) if len(values) else 0.0
    return (squares + _PRIOR * prior) / (max(len(values) - 1, 0) + _PRIOR)
