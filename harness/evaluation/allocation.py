"""How many to draw from each stratum."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

_PRIOR = 2.0  # how many observations of the overall spread each stratum's own counts for


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


def spreads(strata: Sequence[Sequence[float]]) -> list[float]:
    """The standard deviation of each stratum, from few values: sqrt((SS + 2 V) / (n - 1 + 2)).

    SS: the sum of squares around the mean of the stratum's n values. V: the variance of all values, which stands in
    where a stratum has fewer than two. So no stratum has a spread of 0 because its few values happen to agree. Without
    two values in all, or if all agree, every spread is 1.
    """
    values = np.array([value for stratum in strata for value in stratum], np.float64)
    overall = float(values.var(ddof=1)) if len(values) > 1 else 0.0
    if overall == 0:
        return [1.0] * len(strata)
    found = []
    for stratum in strata:
        own = np.asarray(stratum, np.float64)
        squares = float(((own - own.mean()) ** 2).sum()) if len(own) else 0.0
        found.append(float(np.sqrt((squares + _PRIOR * overall) / (max(len(own) - 1, 0) + _PRIOR))))
    return found
