"""Which key of a set of trials matters: its share of the variance of their scores, with an interval over queries.

The queries are a sample, the trials are given. The mean of Q queries has noise, which adds to every variance: a key
without an effect would seem to matter, and a bootstrap would add the noise once more. So a variance is estimated from
pairs of different queries alone, which is unbiased: the mean of x_i' A x_j over i != j, where x_i are the scores of
query i and A is the part's quadratic form (a U-statistic; Hoeffding 1948).

The interval of a share holds each value that the queries do not speak against. A part has the share s if its variance
less s times that of all is 0. This difference is estimated without bias, too, and s is in the interval if the estimate
is no more than t standard errors from 0, where the standard error is that of trials in which the share is s (as in
Fieller 1954). So the interval of a key without an effect begins at 0. `scripts/simulate.py importance` counts how often
intervals hold the truth.

Shapes: Q queries; a kernel is float64 [Q, Q], x_i' A x_j for every two queries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from harness.evaluation.factorial import Effects

MOST = 500  # queries in a kernel; more are averaged in blocks, so that time and memory do not grow with their square
STEPS = 2001  # shares that are tested, from 0 to 1
PAIRS = 5  # of keys that get an interval, those with the greatest shares


@dataclass(frozen=True)
class Share:
    """Of the variance over all trials, 0 to 1, with its 95 % interval; NaN where the scores do not vary."""

    value: float
    low: float
    high: float

    def to_json(self) -> dict[str, float] | None:
        named = {"value": self.value, "low": self.low, "high": self.high}
        return None if math.isnan(self.value) else {name: round(one, 4) for name, one in named.items()}


@dataclass(frozen=True, eq=False)
class Importance:
    """alone: the share of each key's main effect. total: with all pairs that it is in; the same where none is known.

    pairs: (first, second) -> what the two do together beyond what each does alone; the greatest of them.
    rest: what neither keys nor pairs explain.
    spread: the standard deviation of the mean score over the space, in units of the measure, without the noise.
    beyond_chance: whether a test at .05 tells the trials apart at all; if not, shares mean little.
    """

    alone: Mapping[int, Share]
    total: Mapping[int, Share]
    pairs: Mapping[tuple[int, int], Share]
    rest: Share
    spread: float
    beyond_chance: bool


def importance(found: Effects) -> Importance:
    """The shares of the variance that are due to each key, each pair of keys and the rest; Q must be 3 or more."""
    blocks = _Blocks(found.rest.shape[1])
    rest = blocks.kernel(found.rest)
    kernels = {
        keys: blocks.kernel(part / math.sqrt(len(part))) - found.share_of_rest[keys] * rest
        for keys, part in found.parts.items()
    }
    own = {keys[0]: kernel for keys, kernel in kernels.items() if len(keys) == 1}
    together = {keys: kernel for keys, kernel in kernels.items() if len(keys) == 2}
    whole = sum([*own.values(), *together.values()], start=rest)
    alone = {key: share(kernel, whole) for key, kernel in own.items()}
    total = {
        key: _at_least(
            alone[key], share(sum((one for keys, one in together.items() if key in keys), start=kernel), whole)
        )
        for key, kernel in own.items()
    }
    order = sorted(together, key=lambda keys: -_variance(together[keys]))
    variance = _variance(whole)
    return Importance(
        alone=alone,
        total=total,
        pairs={(keys[0], keys[1]): share(together[keys], whole) for keys in order[:PAIRS]},
        rest=share(rest, whole),
        spread=math.sqrt(max(variance, 0.0)),
        beyond_chance=variance > _t(len(whole)) * math.sqrt(2 * _noise(_centred(whole), _centred(whole))),
    )


def _at_least(part: Share, more: Share) -> Share:
    """The share of what contains a part is no less, though the estimate of the other part may be below 0."""
    return Share(max(part.value, more.value), more.low, max(part.value, more.high))


def share(part: np.ndarray, whole: np.ndarray) -> Share:
    """The share of a part in the variance of the whole, with its 95 % interval. part, whole: kernels."""
    if not np.abs(whole).max() > 0:
        return Share(math.nan, math.nan, math.nan)
    others = whole - part
    own, other = _variance(part), _variance(others)
    tested = np.linspace(0, 1, STEPS)
    away = own - tested * (own + other)
    held = away**2 <= _t(len(whole)) ** 2 * _squared_errors(part, others, tested)
    value = min(max(own / (own + other), 0.0), 1.0) if own + other > 0 else 0.0
    if not held.any():  # the part varies less than noise alone would, or more than all
        return Share(value, value, value)
    low, high = float(tested[held][0]), float(tested[held][-1])
    return Share(value, min(low, value), max(high, value))


def _squared_errors(part: np.ndarray, others: np.ndarray, tested: np.ndarray) -> np.ndarray:
    """The variance of the estimate of V(part) - s V(whole) if the share is s, for each s tested, float64 [STEPS].

    Of a quadratic form in a mean of normal values: 2 tr((A C)^2) + 4 m' A C A m, where C is the covariance of the mean
    and m the true mean. m is taken in the direction of the observed one, and of a length at which the share is s.
    """
    count = len(part)
    centred, centred_others = _centred(part), _centred(others)
    both = [(centred, centred), (centred, centred_others), (centred_others, centred_others)]
    first, mixed, last = (_noise(one, other) for one, other in both)
    degenerate = (1 - tested) ** 2 * first - 2 * tested * (1 - tested) * mixed + tested**2 * last
    lengths = [math.sqrt(max(_variance(one), 0.0)) for one in (part, others)]
    length = lengths[0] * np.sqrt(tested) + lengths[1] * np.sqrt(1 - tested)
    along = [(1 - tested) * length * np.sqrt(tested), -tested * length * np.sqrt(1 - tested)]
    slopes = np.array([_slopes(part), _slopes(others)])
    covariance = slopes @ slopes.T / (count - 1) / count
    linear = sum(along[i] * along[j] * covariance[i, j] for i in (0, 1) for j in (0, 1))
    return 2 * degenerate + 4 * linear


def _slopes(kernel: np.ndarray) -> np.ndarray:
    """How far each query lies from the mean in the direction of the part's mean, float64 [Q]."""
    rows = kernel.mean(axis=1)
    square = rows.mean()
    return (rows - square) / math.sqrt(square) if square > 0 else np.zeros(len(rows))


def _variance(kernel: np.ndarray) -> float:
    """The mean over pairs of different queries: the part's variance, without bias; below 0 by chance if it has none."""
    count = len(kernel)
    return float((kernel.sum() - np.trace(kernel)) / (count * (count - 1)))


def _noise(one: np.ndarray, other: np.ndarray) -> float:
    """tr(A C B C) for the covariance C of the mean, from two centred kernels, by pairs of different queries."""
    count = len(one)
    pairs = np.vdot(one, other) - np.vdot(one.diagonal(), other.diagonal())
    return float(pairs) / (count * (count - 1)) ** 2


def _centred(kernel: np.ndarray) -> np.ndarray:
    rows = kernel.mean(axis=1)
    return kernel - rows - rows[:, None] + rows.mean()


def _t(count: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(count - 1, 0.975))


class _Blocks:
    """Sums columns of queries, if there are many, in blocks drawn once: their scaled sums stand for queries."""

    def __init__(self, queries: int):
        self.queries = queries
        self.order = np.random.default_rng(0).permutation(queries)
        self.starts = np.linspace(0, queries, MOST, endpoint=False).astype(int)

    def kernel(self, rows: np.ndarray) -> np.ndarray:
        """rows: float64 [n, Q], whose sum of squares is the part's variance."""
        if self.queries > MOST:
            rows = np.add.reduceat(rows[:, self.order], self.starts, axis=1) * (MOST / self.queries)
        return rows.T @ rows
