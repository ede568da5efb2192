"""Measure how long fitting a gate's threshold takes, beside a loop over thresholds as people write it.

    python scripts/benchmark_gate.py [QUERIES ...]     # default 220 1000 10000

The exact curve of the objective over every threshold, and 2,000 bootstrap replicates in each of which the threshold is
fitted anew. The loop makes the curve alone, one mean for each threshold; both curves must be equal.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.gates.calibration import RESAMPLES, bootstrap, curve


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    found = call()
    return time.perf_counter() - began, found


def main() -> None:
    print(f"| queries | curve, s | {RESAMPLES:,} replicates, s | loop over thresholds, s |")
    print("|---:|---:|---:|---:|")
    for queries in map(int, sys.argv[1:] or ("220", "1000", "10000")):
        generator = np.random.default_rng(0)
        needs = generator.random(queries) > 0.1
        signal = np.round(generator.normal(np.where(needs, 8, 4), 2), 1)  # with ties
        shown = np.where(needs, generator.choice([0, 1 / 3, 0.5, 1], queries), 0.0)
        earned = np.stack([shown, np.where(needs, 0.0, 1.0)], axis=1)

        def loop(signal: np.ndarray = signal, earned: np.ndarray = earned) -> list[float]:
            thresholds = [np.inf, *sorted(set(signal.tolist()), reverse=True)]
            return [np.where(signal >= t, earned[:, 0], earned[:, 1]).mean() for t in thresholds]

        exact, found = timed(lambda signal=signal, earned=earned: curve(signal, earned))
        replicates, _ = timed(lambda signal=signal, earned=earned: bootstrap(signal, earned, 0))
        looped, expected = timed(loop)
        np.testing.assert_allclose(found.values, expected, atol=1e-12)
        print(f"| {queries:,} | {exact:.4f} | {replicates:.2f} | {looped:.4f} |")


if __name__ == "__main__":
    main()
