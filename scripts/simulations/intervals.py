"""Simulate how often intervals cover the true mean, and tests give false positives.

Experiments like the contest's are drawn from distributions of query values with a known mean. Coverage: how often the
95 % interval of `bootstrap_means` contains it. False positives: how often p is at most 0.05 for two equal runs.
"""

from __future__ import annotations

import numpy as np
from measuring import Table

from harness.statistics.bootstrap import bootstrap_means
from harness.statistics.significance import sign_flip_test

# value of modified_map@3 -> share of the queries, typical of runs on the contest.
VALUES = {
    "easy": {1.0: 0.60, 0.0: 0.25, 5 / 6: 0.04, 0.5: 0.07, 1 / 3: 0.04},
    "hard": {1.0: 0.20, 0.0: 0.70, 5 / 6: 0.02, 0.5: 0.05, 1 / 3: 0.03},
    "skewed": {1.0: 0.93, 0.0: 0.04, 5 / 6: 0.01, 0.5: 0.01, 1 / 3: 0.01},
}
# |difference| -> share; both signs are equally likely: neither run is better.
DIFFERENCES = {
    "few ties": {0.0: 0.30, 1.0: 0.25, 0.5: 0.25, 2 / 3: 0.10, 1 / 6: 0.10},
    "many ties": {0.0: 0.70, 1.0: 0.12, 0.5: 0.12, 2 / 3: 0.04, 1 / 6: 0.02},
    "nearly all tied": {0.0: 0.92, 1.0: 0.04, 0.5: 0.03, 1 / 6: 0.01},
}


def coverage(shares: dict[float, float], queries: int, experiments: int) -> float:
    drawn = np.random.default_rng(0).choice(list(shares), (experiments, queries), p=list(shares.values()))
    truth = sum(value * share for value, share in shares.items())
    low, high, _ = bootstrap_means(drawn, 0, resamples=2000)
    return float(((low <= truth) & (truth <= high)).mean())


def false_positives(shares: dict[float, float], queries: int, experiments: int, resamples: int = 10_000) -> float:
    generator = np.random.default_rng(0)
    sizes = generator.choice(list(shares), (experiments, queries), p=list(shares.values()))
    rows = sizes * generator.choice([-1.0, 1.0], sizes.shape)
    # Each experiment draws its own signs; with shared signs the experiments would not be independent.
    p = [sign_flip_test(row[None], number, resamples)[0][0] for number, row in enumerate(rows)]
    return float((np.array(p) <= 0.05).mean())


def intervals(experiments: int = 1000) -> None:
    """Count how often intervals cover the true mean and tests find a difference that is not there; three minutes."""
    differences = {
        name: {sign * size: share / (2 if size else 1) for size, share in shares.items() for sign in (1, -1)}
        for name, shares in DIFFERENCES.items()
    }
    print(f"Shares of {experiments} experiments.")
    for title, rows, share in (
        ("95 % interval of a mean covers the truth", VALUES, coverage),
        ("95 % interval of a difference covers 0", differences, coverage),
        ("p <= .05 without a difference", DIFFERENCES, false_positives),
    ):
        print()
        table = Table(title, "60 queries", "110", "220")
        for name, shares in rows.items():
            table.row(name, *(f"{share(shares, queries, experiments):.3f}" for queries in (60, 110, 220)))
