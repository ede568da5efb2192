"""Which queries people check, so that what they find holds for all: drawn at random from strata.

audit.json: {seed, strata: {query: stratum}, drawn: [query, ...], twice: [query, ...]}. Strata are fixed by the first
draw. Later draws only add queries, so that a larger audit contains the smaller one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

AUDIT = "audit.json"


@dataclass(frozen=True)
class AuditSample:
    """The queries of an audit.

    strata: query_id -> stratum (its kind and how hard it is), of every query that could be drawn.
    drawn: the drawn queries in the order of the draw. twice: those of them that are judged a second time.
    """

    strata: Mapping[str, str]
    drawn: tuple[str, ...]
    twice: frozenset[str]
    seed: int = 0

    def pi(self, query_id: str) -> float:
        """The probability with which a query of its stratum was drawn."""
        stratum = self.strata[query_id]
        drawn = sum(self.strata[one] == stratum for one in self.drawn)
        return drawn / sum(other == stratum for other in self.strata.values())
