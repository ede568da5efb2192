"""Show by simulation why no retriever may choose the queries of a test set.

Two retrievers rank the relevant document of each query equally well: their ranks are drawn, independently, from the
same distribution. On all queries, both have the same MRR@10. Then only those queries are kept whose document A ranks
among its first five, as a filter does that drops what "cannot be found".
"""

from __future__ import annotations

import numpy as np

DEPTH, KEPT = 10, 5
# Share of the queries at each rank from 1 to 10; the rest is not found. Typical of a good retriever.
SHARES = (0.24, 0.10, 0.07, 0.06, 0.06, 0.04, 0.04, 0.04, 0.03, 0.02)


def reciprocal_ranks(queries: int, generator: np.random.Generator) -> np.ndarray:
    """1 / rank of the relevant document of each query, float64 [queries]; 0 beyond `DEPTH`."""
    values = [*(1 / rank for rank in range(1, DEPTH + 1)), 0.0]
    return generator.choice(values, queries, p=[*SHARES, 1 - sum(SHARES)])


def simulate(queries: int, seed: int = 0) -> dict[str, tuple[float, float]]:
    """MRR@10 of A and of B: on all queries, and on those that A answers."""
    generator = np.random.default_rng(seed)
    a, b = reciprocal_ranks(queries, generator), reciprocal_ranks(queries, generator)
    kept = a >= 1 / KEPT
    return {
        "all queries": (float(a.mean()), float(b.mean())),
        f"those that A ranks in its first {KEPT}": (float(a[kept].mean()), float(b[kept].mean())),
    }


def filters(queries: int = 200_000) -> None:
    """Show why no retriever may choose the queries of a test set: the MRR of two equally good ones; a few seconds."""
    for name, (a, b) in simulate(queries).items():
        print(f"{name:40} MRR@{DEPTH} of A {a:.2f}, of B {b:.2f}")
