"""Simulate whether importances are in the right order, and how often their intervals hold the truth.

Sweeps are drawn like real ones: values of modified_map@3 are multiples of 1/6; some queries are easy in all trials; a
value of a key helps some queries and harms others, in all trials that have it; the rest is noise. The truth comes from
20,000 queries, and each sample draws some of these. A key with effect 0 is moved to have exactly none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from measuring import Table

from harness.statistics.factors import effects, importance

POPULATION = 20_000
SIZES = (50, 110, 300)


@dataclass(frozen=True)
class Sweep:
    """sizes: number of values of each key. tried: share of the grid that runs, drawn at random.

    strengths, together: standard deviations of each key's effect, and of the joint effect of the first two.
    """

    name: str
    sizes: tuple[int, ...]
    strengths: tuple[float, ...]
    together: float = 0.0
    tried: float = 1.0


SWEEPS = (
    Sweep("strong, weaker, weak", (4, 2, 3), (0.10, 0.04, 0.015)),
    Sweep("three alike", (4, 2, 3), (0.05, 0.05, 0.05)),
    Sweep("two alike, weak", (3, 3), (0.03, 0.03)),
    Sweep("one, and two without effect", (5, 4, 3), (0.08, 0.0, 0.0)),
    Sweep("one weak, and one without effect", (3, 3), (0.03, 0.0)),
    Sweep("hardly any effect", (4, 2, 3), (0.01, 0.005, 0.0)),
    Sweep("two that interact", (4, 3), (0.05, 0.02), together=0.04),
    Sweep("half of a grid", (4, 3, 2, 3), (0.08, 0.04, 0.02, 0.0), tried=0.5),
)


@dataclass(frozen=True, eq=False)
class Population:
    """levels: int [R, K]. values: float64 [R, POPULATION]. truth: the share of each key, float64 [K]."""

    levels: np.ndarray
    values: np.ndarray
    truth: np.ndarray


def population(sweep: Sweep, seed: int = 0, queries: int = POPULATION) -> Population:
    rng = np.random.default_rng(seed)
    levels = np.array(list(np.ndindex(*sweep.sizes)))
    latent = np.tile(rng.beta(1.2, 0.7, queries), (len(levels), 1))
    for key, (size, strength) in enumerate(zip(sweep.sizes, sweep.strengths, strict=True)):
        own = rng.normal(0, 0.15, (size, queries)) * (rng.random(queries) < 0.3)
        latent += (own + strength * _spread(size)[:, None])[levels[:, key]]
    latent += sweep.together * (_spread(sweep.sizes[0])[levels[:, 0]] * _spread(sweep.sizes[1])[levels[:, 1]])[:, None]
    values = np.clip(np.round(6 * (latent + rng.normal(0, 0.1, latent.shape))) / 6, 0, 1)
    for key in [key for key, strength in enumerate(sweep.strengths) if not strength]:
        for level in range(sweep.sizes[key]):
            values[levels[:, key] == level] -= values[levels[:, key] == level].mean() - values.mean()
    tried = rng.permutation(len(levels))[: math.ceil(sweep.tried * len(levels))]
    means = values.mean(axis=1)
    by_key = [[means[column == level].mean() for level in range(column.max() + 1)] for column in levels.T]
    truth = np.array([np.var(found) for found in by_key]) / means.var()
    return Population(levels[tried], values[tried], truth)


def _spread(size: int) -> np.ndarray:
    places = np.arange(size) - (size - 1) / 2
    return places / places.std()


def simulate(drawn: Population, queries: int, samples: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Return, over many samples, for each key: the mean value, the mean width of the interval, and the share of
    intervals that hold the truth, float64 [K] each; and how often the key with the greatest share is found first.
    """
    rng, found = np.random.default_rng(1), []
    for _ in range(samples):
        known = effects(drawn.levels, drawn.values[:, rng.integers(0, drawn.values.shape[1], queries)])
        assert known is not None
        found.append([(one.value, one.low, one.high) for one in importance(known).alone.values()])
    value, low, high = np.moveaxis(np.array(found), 2, 0)
    step = 0.5 / 2000  # shares are tested in steps
    covered = (low - step <= drawn.truth) & (drawn.truth <= high + step)
    first = value.argmax(axis=1) == drawn.truth.argmax()
    return value.mean(axis=0), (high - low).mean(axis=0), covered.mean(axis=0), float(first.mean())


def importances(samples: int = 1000) -> None:
    """Count how often intervals of importances hold the truth, and the first key is found first; five minutes."""
    print(f"{samples} samples each\n")
    held = "interval holds the truth"
    table = Table("sweep", "queries", "truth", "mean estimate", "mean width", held, "first is first")
    for sweep in SWEEPS:
        drawn = population(sweep)
        for queries in SIZES:
            *rows, first = simulate(drawn, queries, samples)
            cells = [" ".join(f"{number:.3f}" for number in row) for row in (drawn.truth, *rows)]
            table.row(sweep.name, queries, *cells, f"{first:.3f}")
