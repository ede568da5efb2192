"""Time the fitting of a gate's threshold against a plain loop over thresholds.

    python scripts/benchmark_gate.py [QUERIES ...]     # default 220 1000 10000

Ours: the exact curve of the objective over every threshold, and 2,000 bootstrap replicates with a new fit in each. The
loop computes only the curve, one mean per threshold; both curves must be equal.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from benchmark import timed

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.gates.calibration import RESAMPLES, bootstrap, curve


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

        exact, fitted = timed(lambda signal=signal, earned=earned: curve(signal, earned))
        replicates, _ = timed(lambda signal=signal, earned=earned: bootstrap(signal, earned, 0))
        looped, expected = timed(loop)
        np.testing.assert_allclose(fitted.values, expected, atol=1e-12)
        print(f"| {queries:,} | {exact:.4f} | {replicates:.2f} | {looped:.4f} |")


if __name__ == "__main__":
    main()
