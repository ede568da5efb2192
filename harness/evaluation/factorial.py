"""How the scores of trials split into effects of their keys: an analysis of variance by least squares.

A trial's score on a query is the mean over the space of tried values, plus an effect of each key's value, plus, where
the trials suffice for it, an effect of each two values together; what is left is the rest. Each effect sums to 0 over
the values of each of its keys, and all values of a key weigh the same, however many trials have them: functional ANOVA
(Hoeffding 1948; Hutter, Hoos and Leyton-Brown 2014, who read it off a random forest) over the uniform space.

Shapes: R trials, K keys, L values of a key, Q queries.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

COLUMNS = 400  # at most, of a model with pairs of keys
RANK = 1e-9  # eigenvalues below this share of the greatest are 0

Keys = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Effects:
    """What each query's scores of R trials are made of. All are linear in the scores.

    mean: float64 [Q], over the space.
    parts: the effect of one key, (key,) -> float64 [L, Q], or of two together, (first, second) -> float64 [L1 * L2, Q].
        Keys that these trials cannot tell from others have none, and no pairs.
    rest: float64 [rows, Q]; the sum of the squares of its column means is the variance of what no part explains.
    whole: whether every combination of tried values was tried. Then the parts and the rest are exact. Otherwise the
        rest is spread over the trials like noise, and adds to the variance of each part.
    share_of_rest: what part of the variance of the rest the variance of each part has in it by chance.
    """

    mean: np.ndarray
    parts: Mapping[Keys, np.ndarray]
    rest: np.ndarray
    whole: bool
    share_of_rest: Mapping[Keys, float]


def effects(levels: np.ndarray, values: np.ndarray) -> Effects | None:
    """Split scores by keys; None if there are no more trials than effects of single keys, unless all combinations ran.

    levels: int [R, K], the place of each trial's value among those of the key, 0 to L - 1, each of which occurs and
        L > 1. values: float64 [R, Q], all finite. Trials with equal levels count as one, their mean, if `whole`.
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
    """design: float64 [rows, p], sum-coded, the intercept first. columns: of each part."""

    sizes: np.ndarray
    design: np.ndarray
    columns: Mapping[Keys, slice]

    @cached_property
    def gram(self) -> np.ndarray:
        return self.design.T @ self.design

    @cached_property
    def solved(self) -> tuple[np.ndarray, int]:
        """(the pseudo-inverse of `gram`, its rank)."""
        sizes, directions = np.linalg.eigh(self.gram)
        kept = sizes > RANK * sizes[-1]
        return (directions[:, kept] / sizes[kept]) @ directions[:, kept].T, int(kept.sum())

    @property
    def inverse(self) -> np.ndarray:
        return self.solved[0]

    @property
    def rank(self) -> int:
        return self.solved[1]

    @cached_property
    def told(self) -> list[Keys]:
        """The parts that the trials tell from all others."""
        if self.rank == len(self.gram):
            return list(self.columns)
        return [keys for keys, own in self.columns.items() if self._told(own)]

    @property
    def mixed(self) -> list[Keys]:
        return [keys for keys in self.columns if keys not in self.told]

    def _told(self, own: slice) -> bool:
        others = np.delete(np.arange(len(self.gram)), own)
        return self.rank - _rank(self.gram[np.ix_(others, others)]) == own.stop - own.start

    def mixture(self, coefficients: np.ndarray) -> np.ndarray:
        """What the parts that cannot be told apart explain together, float64 [rows, Q], scaled as the rest is."""
        fitted = sum(self.design[:, self.columns[keys]] @ coefficients[self.columns[keys]] for keys in self.mixed)
        return (fitted - np.mean(fitted, axis=0)) / math.sqrt(len(self.design))

    def contrasts(self, keys: Keys) -> np.ndarray:
        """float64 [values or pairs of values, columns of the part]."""
        contrasts = np.ones((1, 1))
        for key in keys:
            contrasts = np.kron(contrasts, np.vstack([np.eye(self.sizes[key] - 1), -np.ones(self.sizes[key] - 1)]))
        return contrasts

    def leverage(self, keys: Keys) -> float:
        """The variance of a part's values for scores that are noise of variance 1."""
        contrasts, own = self.contrasts(keys), self.columns[keys]
        return float(np.sum((contrasts @ self.inverse[own, own]) * contrasts) / len(contrasts))


def _model(cells: np.ndarray, sizes: np.ndarray, whole: bool) -> _Model:
    """With all pairs of keys if there are enough trials to tell them apart, else with single keys alone."""
    keys = range(len(sizes))
    coded = [_coded(cells[:, key], int(sizes[key])) for key in keys]
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


def _coded(level: np.ndarray, size: int) -> np.ndarray:
    """One column for each value but the last, which has -1 in all."""
    return np.vstack([np.eye(size - 1), -np.ones(size - 1)])[level]


def _rank(gram: np.ndarray) -> int:
    values = np.linalg.eigvalsh(gram)
    return int((values > RANK * values[-1]).sum())
