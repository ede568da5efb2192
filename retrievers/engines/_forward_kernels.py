"""Compiled inner loop of `forward`; imported only where it runs, since numba takes a while to import."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def add_up(starts, terms, weights, asked, factors, docs, scores):
    """Fill `scores` [n] with the sum of weight * factor over the terms that a query and each of `docs` share.

    Products are added in the order of the query's terms `asked`, in float64, as the local indexes add them.
    """
    for i in range(len(docs)):
        first, last = starts[docs[i]], starts[docs[i] + 1]
        mine = terms[first:last]
        total = 0.0
        for t in range(len(asked)):
            at = np.searchsorted(mine, asked[t])
            if at < len(mine) and mine[at] == asked[t]:
                total += np.float64(weights[first + at]) * factors[t]
        scores[i] = total
