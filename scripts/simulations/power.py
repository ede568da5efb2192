"""Simulate how often the test finds the differences of known populations, to check `harness power`.

needed: queries for a power of 80 %. found: how often the test of `harness compare` then finds the difference.
Student's: the queries needed by the formula for normal differences, and how often the test finds the difference.
smallest: the difference that QUERIES queries find in 80 %, and how often they do if the population is tilted to it.
coverage: how often, in EXPERIMENTS / 4 sets of QUERIES queries, the 95 % interval of the queries needed holds `needed`.
"""

from __future__ import annotations

import numpy as np
from measuring import Table
from scipy.special import ndtri

from harness.statistics.power import FlipTest, Population, needed_between
from harness.statistics.significance import sign_flip_test

QUERIES, POWER, ALPHA = 110, 0.8, 0.05
TEST = FlipTest(ALPHA)

# difference -> share of the queries. The first three are like pairs of runs on the contest.
SHARES = {
    "few differ": {1.0: 0.07, 0.5: 0.03, -0.5: 0.01, -1.0: 0.01, 0.0: 0.88},
    "some differ": {1.0: 0.08, 0.5: 0.06, 1 / 3: 0.04, -1 / 3: 0.03, -0.5: 0.03, 0.0: 0.76},
    "both ways": {1.0: 0.12, 0.5: 0.08, 1 / 3: 0.05, -1 / 3: 0.04, -0.5: 0.05, -1.0: 0.06, 0.0: 0.60},
    "one in fifty": {1.0: 0.02, -1.0: 0.002, 0.0: 0.978},
    "only better": {1.0: 0.06, 0.5: 0.06, 0.0: 0.88},
    "most differ": {1.0: 0.2, 0.5: 0.3, 0.0: 0.3, -0.5: 0.2},
}
GRID = (np.arange(400) + 0.5) / 400


def populations() -> dict[str, Population]:
    """Return name -> population; the last three have no ties."""
    found = {}
    for name, shares in SHARES.items():
        values = np.array(sorted(value for value in shares if value))
        found[name] = Population(values, np.array([shares[value] for value in values]))
    steep = -np.log1p(-GRID)  # exponential, with mean 1
    smooth = {"normal": ndtri(GRID) + 0.5, "long tail up": steep - 0.6, "long tail down": 1.4 - steep}
    return found | {name: Population.of(values) for name, values in smooth.items()}


def drawn(population: Population, queries: int, samples: int, seed: int = 0) -> np.ndarray:
    shares = np.append(population.shares, max(1 - population.differ, 0.0))
    values = np.append(population.values, 0.0)
    return np.random.default_rng(seed).choice(values, (samples, queries), p=shares / shares.sum())


def found(population: Population, queries: int, samples: int, resamples: int = 10_000) -> float:
    """Return the share of samples with a difference that the test finds. Every 20 samples draw new signs."""
    rows = drawn(population, queries, samples)
    p = [sign_flip_test(rows[start : start + 20], start, resamples)[0] for start in range(0, samples, 20)]
    return float((np.concatenate(p) <= ALPHA).mean())


def coverage(population: Population, needed: int, experiments: int) -> float:
    """Return how often the interval of the queries needed holds the population's number."""
    inside = 0
    for row in drawn(population, QUERIES, experiments, seed=1):
        if not row.any():
            continue  # nothing can be said: counts as a miss
        low, high = needed_between(TEST, row, TEST.queries_needed(Population.of(row), POWER), POWER)
        inside += (low is not None and low <= needed) and (high is None or needed <= high)
    return inside / experiments


def power(experiments: int = 2000) -> None:
    """Count how often the test finds what `harness power` says it should find; about half an hour."""
    table = Table("population", "needed", "found", "Student's", "found", "smallest", "found", "coverage")
    for name, population in populations().items():
        needed = TEST.queries_needed(population, POWER)
        formula = round(TEST.students_needed(population.mean / population.sd, POWER))
        smallest = TEST.smallest_difference(population, QUERIES, POWER)
        if needed is None or smallest is None:
            raise AssertionError(f"{name}: no answer")
        rates = [
            found(population, needed, experiments),
            found(population, formula, experiments),
            found(population.with_mean(smallest), QUERIES, experiments),
            coverage(population, needed, experiments // 4),
        ]
        shown = [f"{rate:.3f}" for rate in rates]
        table.row(name, needed, shown[0], formula, shown[1], f"{smallest:.4f}", *shown[2:])
