"""Sparse vectors in an engine: term weights of ours, rounded to float32, by which the engine proposes documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from retrievers.engines.forward import Forward, SparseQueries

ROUNDING = 2.0**-24  # of float32
LEAST = 2.0**-125  # what is lost where a product of float32 underflows, at most
GREATEST = 2.0**126  # scores above it may overflow in float32


@dataclass(frozen=True)
class SparseProposer:
    """A Proposer of documents by sparse vectors whose weights are all above 0.

    forward: the documents. queries: what they are searched for. floors: float64 [Q], at least 0, what every document of
    a query scores besides. search: from (queries int64 [n], width) to the documents that the engine finds.
    """

    forward: Forward
    queries: SparseQueries
    floors: np.ndarray
    search: Callable[[np.ndarray, int], Sequence[np.ndarray]]

    def propose(self, queries: np.ndarray, width: int) -> Sequence[np.ndarray]:
        return self.search(queries, width)

    def score(self, query: int, docs: np.ndarray) -> np.ndarray:
        """As in Proposer; a document that shares no term with the query is not found."""
        sums = self.forward.scores(*self.queries.row(query), docs)
        return np.where(sums > 0, sums + self.floors[query], -np.inf)

    def ceiling(self, query: int, worst: float) -> float:
        """As in Proposer: the engine's score of a document is within a bound of ours.

        n distinct terms are rounded twice and multiplied, and n products above 0 added, in any order: the sum is off by
        at most gamma = (n + 2) u / (1 - (n + 2) u) of itself (Higham 2002, Accuracy and Stability of Numerical
        Algorithms, 3.1), with u = 2 ** -24. So a document that the engine ranks below the worst proposed one scores at
        most (1 + gamma) / (1 - gamma) of what that does. The thousandth is for rounding in float64.
        """
        if worst >= GREATEST:
            return np.inf
        rounded = (len(self.queries.row(query)[0]) + 2) * ROUNDING
        gamma = 1.001 * rounded / (1 - rounded)
        return worst * (1 + gamma) / (1 - gamma) + len(self.queries.row(query)[0]) * LEAST
