"""Find which settings matter: split the scores of trials into effects of keys, and compare their shares of variance.

A trial's score on a query is the mean over the space of tried values, plus an effect of each key's value, plus a
joint effect of each pair of values if there are enough trials, plus the rest. A *part* is one of these effects.
Each effect sums to 0 over the values of each of its keys. All values of a key have the same weight, however many trials
have them. This is functional ANOVA over the uniform space (Hoeffding 1948; Hutter, Hoos and Leyton-Brown 2014).

Queries are a sample; trials are fixed. The mean of Q queries has noise, and noise adds to every variance, so a key
without an effect would seem to matter. Variances are therefore estimated without bias, from pairs of different queries
alone: as the mean of x_i' A x_j over i != j, where x_i are the scores of query i and A is the part's quadratic form (a
U-statistic).

With V for variance, the interval of a part's share contains each value s for which the estimate of V(part) - s V(all)
is at most t standard errors from 0, where the standard error is computed as if the true share were s (Fieller 1954).
The interval of a key without an effect begins at 0. `scripts/benchmark.py importance` counts how often the intervals
contain the truth.

Shapes: R trials, K keys, L values of a key, Q queries. A kernel is float64 [Q, Q], x_i' A x_j for all queries i and j.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

COLUMNS = 400  # maximum number of columns of a model with pairs of keys
RANK = 1e-9  # an eigenvalue below this share of the greatest eigenvalue counts as 0

Keys = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Effects:
    """The scores of R trials on each query, split into parts that are linear in the scores.

    mean: float64 [Q], the mean score over the space of tried values.
    parts: (key,) -> float64 [L, Q], or (first, second) -> float64 [L1 * L2, Q]; only parts that these trials can
        tell from all other parts.
    rest: float64 [rows, Q]. The squares of the row means add up to the variance that no part explains.
    whole: whether every combination of tried values was tried. If not, the rest adds noise to each part's variance.
    share_of_rest: the share of the rest's variance that each part's variance includes by chance.
    """

    mean: np.ndarray
    parts: Mapping[Keys, np.ndarray]
    rest: np.ndarray
    whole: bool
    share_of_rest: Mapping[Keys, float]


def effects(levels: np.ndarray, values: np.ndarray) -> Effects | None:
    """Split scores by keys. Return None if combinations are missing and trials do not outnumber effects of single keys.

    levels: int [R, K], the index (0 to L - 1) of each trial's value of each key. L > 1, and each index occurs.
    values: float64 [R, Q], finite. If all combinations ran, trials with equal levels are replaced by their mean.
    """
    sizes = levels.max(axis=0) + 1
    cells, place, counts = np.unique(levels, axis=0, return_inverse=True, return_counts=True)
    whole = len(cells) == math.prod(int(size) for size in sizes)
    within = []
    if whole:
        place = place.reshape(-1)
        order = np.argsort(place, kind="stable")
        rows = np.add.reduceat(values[order], np.cumsum(counts) - counts) / counts[:, None]
        if len(cells) < len(values):
            within = [(values - rows[place]) / np.sqrt(len(cells) * counts[place])[:, None]]
    else:
        cells, rows = levels, values
    model = _model(cells, sizes, whole)
    left = len(cells) if whole else len(cells) - model.rank
    if left < 1:
        return None
    coefficients = model.inverse @ (model.design.T @ rows)
    residual = (rows - model.design @ coefficients) / math.sqrt(left)
    mixed = [model.mixture(coefficients)] if model.mixed else []
    parts = {keys: model.contrasts(keys) @ coefficients[model.columns[keys]] for keys in model.told}
    chance = {keys: 0.0 if whole else model.leverage(keys) for keys in parts}
    return Effects(coefficients[0], parts, np.vstack([residual, *mixed, *within]), whole, chance)


@dataclass(frozen=True, eq=False)
class _Model:
    """A linear model of scores. design: float64 [rows, p], sum-coded, intercept first. columns: part -> its columns."""

    sizes: np.ndarray
    design: np.ndarray
    columns: Mapping[Keys, slice]

    @cached_property
    def gram(self) -> np.ndarray:
        return self.design.T @ self.design

    @cached_property
    def inverse(self) -> np.ndarray:
        """The pseudo-inverse of `gram`."""
        sizes, directions = np.linalg.eigh(self.gram)
        kept = sizes > RANK * sizes[-1]
        return (directions[:, kept] / sizes[kept]) @ directions[:, kept].T

    @cached_property
    def rank(self) -> int:
        return _rank(self.gram)

    @cached_property
    def told(self) -> list[Keys]:
        """The parts that these trials can tell from all other parts."""
        return [keys for keys, own in self.columns.items() if self.rank == len(self.gram) or self._told(own)]

    @property
    def mixed(self) -> list[Keys]:
        return [keys for keys in self.columns if keys not in self.told]

    def _told(self, own: slice) -> bool:
        others = np.delete(np.arange(len(self.gram)), own)
        return self.rank - _rank(self.gram[np.ix_(others, others)]) == own.stop - own.start

    def mixture(self, coefficients: np.ndarray) -> np.ndarray:
        """Return the sum of the `mixed` parts, which cannot be told apart: float64 [rows, Q], divided by √rows."""
        fitted = sum(self.design[:, self.columns[keys]] @ coefficients[self.columns[keys]] for keys in self.mixed)
        return (fitted - np.mean(fitted, axis=0)) / math.sqrt(len(self.design))

    def contrasts(self, keys: Keys) -> np.ndarray:
        """Return the sum coding of the part's values (or pairs of values): float64 [values, columns of the part]."""
        contrasts = np.ones((1, 1))
        for key in keys:
            contrasts = np.kron(contrasts, np.vstack([np.eye(self.sizes[key] - 1), -np.ones(self.sizes[key] - 1)]))
        return contrasts

    def leverage(self, keys: Keys) -> float:
        """Return the variance of the effect of `keys` if the scores are noise of variance 1."""
        contrasts, own = self.contrasts(keys), self.columns[keys]
        return float(np.sum((contrasts @ self.inverse[own, own]) * contrasts) / len(contrasts))


def _model(cells: np.ndarray, sizes: np.ndarray, whole: bool) -> _Model:
    keys = range(len(sizes))
    coded = [np.vstack([np.eye(size - 1), -np.ones(size - 1)])[cells[:, key]] for key, size in enumerate(sizes)]
    alone = [((key,), coded[key]) for key in keys]
    pairs = list(itertools.combinations(keys, 2))
    width = 1 + sum((size - 1) for size in sizes) + sum((sizes[a] - 1) * (sizes[b] - 1) for a, b in pairs)
    if width <= COLUMNS and (whole or 2 * width <= len(cells)):
        both = [((a, b), (coded[a][:, :, None] * coded[b][:, None, :]).reshape(len(cells), -1)) for a, b in pairs]
        model = _joined(sizes, [*alone, *both])
        if model.rank == len(model.gram):
            return model
    return _joined(sizes, alone)


def _joined(sizes: np.ndarray, parts: Sequence[tuple[Keys, np.ndarray]]) -> _Model:
    ends = np.cumsum([1, *(block.shape[1] for _, block in parts)])
    columns = {
        keys: slice(int(end - block.shape[1]), int(end)) for (keys, block), end in zip(parts, ends[1:], strict=True)
    }
    return _Model(sizes, np.hstack([np.ones((len(parts[0][1]), 1)), *(block for _, block in parts)]), columns)


def _rank(gram: np.ndarray) -> int:
    values = np.linalg.eigvalsh(gram)
    return int((values > RANK * values[-1]).sum())


MOST = 500  # maximum number of queries in a kernel [Q, Q]; if there are more, they are averaged in blocks
STEPS = 2001  # number of shares to test, evenly spaced from 0 to 1
PAIRS = 5  # maximum number of pairs of keys with an interval: those with the greatest shares of the variance


@dataclass(frozen=True)
class Share:
    """A share of the variance over all trials, 0 to 1, with its 95 % interval; NaN if the scores do not vary."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Importance:
    """Shares of the variance of the trials' scores.

    alone: the share of each key's main effect.
    total: the share of a key's main effect and joint effects together; equal to `alone` if no joint effect is known.
    pairs: the greatest shares of joint effects of two keys, beyond the main effect of each key.
    rest: the share that keys and pairs do not explain.
    spread: how far mean scores vary over the space: their standard deviation without noise, in units of the measure.
    beyond_chance: whether a test at the level .05 finds that mean scores vary at all; if not, shares mean little.
    """

    alone: Mapping[int, Share]
    total: Mapping[int, Share]
    pairs: Mapping[tuple[int, int], Share]
    rest: Share
    spread: float
    beyond_chance: bool


def importance(found: Effects) -> Importance:
    """Return the share of the variance that each key, each pair and the rest explain. It needs 3 or more queries."""
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
    total = {}
    for key, kernel in own.items():
        more = share(sum((one for keys, one in together.items() if key in keys), start=kernel), whole)
        # The total is at least the key's own share, even if the estimate for the pairs is below 0.
        total[key] = Share(max(alone[key].value, more.value), more.low, max(alone[key].value, more.high))
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


def share(part: np.ndarray, whole: np.ndarray) -> Share:
    """Return a part's share of the variance of the whole, with its 95 % interval. part, whole: kernels."""
    if not np.abs(whole).max() > 0:
        return Share(math.nan, math.nan, math.nan)
    others = whole - part
    own, other = _variance(part), _variance(others)
    tested = np.linspace(0, 1, STEPS)
    away = own - tested * (own + other)
    held = away**2 <= _t(len(whole)) ** 2 * _squared_errors(part, others, tested)
    value = min(max(own / (own + other), 0.0), 1.0) if own + other > 0 else 0.0
    if not held.any():  # The part varies less than noise alone would, or more than the whole.
        return Share(value, value, value)
    low, high = float(tested[held][0]), float(tested[held][-1])
    return Share(value, min(low, value), max(high, value))


def _squared_errors(part: np.ndarray, others: np.ndarray, tested: np.ndarray) -> np.ndarray:
    """Return the variance of the estimate of V(part) - s V(whole) for each tested share s, [STEPS]. V: `_variance`.

    The variance of a quadratic form A in a mean of normal values is 2 tr((A C)^2) + 4 m' A C A m, with the covariance C
    and the true mean m. m has the direction of the observed mean, and the length that gives the share s.
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
    """Return how far each query lies from the part's mean over queries, in the direction of this mean, float64 [Q]."""
    rows = kernel.mean(axis=1)
    square = rows.mean()
    return (rows - square) / math.sqrt(square) if square > 0 else np.zeros(len(rows))


def _variance(kernel: np.ndarray) -> float:
    """Return a part's variance without bias: the mean of its kernel over pairs of different queries; may be below 0."""
    count = len(kernel)
    return float((kernel.sum() - np.trace(kernel)) / (count * (count - 1)))


def _noise(one: np.ndarray, other: np.ndarray) -> float:
    """Return tr(A C B C), with the covariance C of the mean over queries. one, other: centred kernels of A and B."""
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
    """Groups more than MOST queries at random into MOST blocks. The effects in a block are summed and scaled."""

    def __init__(self, queries: int):
        self.queries = queries
        self.order = np.random.default_rng(0).permutation(queries)
        self.starts = np.linspace(0, queries, MOST, endpoint=False).astype(int)

    def kernel(self, rows: np.ndarray) -> np.ndarray:
        """Return a part's kernel. rows: float64 [n, Q], its effects; each query's squares add up to its variance."""
        if self.queries > MOST:
            rows = np.add.reduceat(rows[:, self.order], self.starts, axis=1) * (MOST / self.queries)
        return rows.T @ rows
