"""An engine proposes, we score: the best documents of candidates that an engine finds with rounded numbers.

For each query the engine is asked for a few documents more than wanted. They are scored in float64. Where the last one
that is wanted scores more than any document that the engine left out can, the result is certified: no other document
belongs in it. Else the engine is asked for twice as many, up to `LIMIT`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from retrievers.base import BadInput

LIMIT = 16_384  # documents that Milvus returns for a query at most
SPARE = 20  # candidates beyond those wanted, at first
ASKED = 1 << 19  # candidates that one request asks for at most, over all its queries
TOGETHER = 1024  # queries of one request at most
FIRST = 16  # queries of the first request
FAST, SLOW = 2.0, 20.0  # seconds: a request that took less is followed by a larger one, after more by a smaller one


class Proposer(Protocol):
    """What is known of Q queries and of the documents that an engine has."""

    def propose(self, queries: np.ndarray, width: int) -> Sequence[np.ndarray]:
        """At most `width` documents for each query (int64 [n], its number), those with the greatest scores of the
        engine. Fewer: no others can be found.
        """
        ...

    def score(self, query: int, docs: np.ndarray) -> np.ndarray:
        """The scores of documents (int32 [n]), float64 [n]; -inf for one that the query does not find at all."""
        ...

    def ceiling(self, query: int, worst: float) -> float:
        """The greatest score that a document which was not proposed can have. worst: the least score of the others."""
        ...


class Found(NamedTuple):
    """The documents of Q queries, as in Certified. measured: what the search measured about itself."""

    docs: np.ndarray
    scores: np.ndarray
    measured: dict[str, float]


class Certified(NamedTuple):
    """The best documents of Q queries.

    docs: int32 [Q, k], by descending score, then ascending document; -1 pads. scores: float64 [Q, k]; a pad scores 0.
    certified: bool [Q], whether no document can be missing.
    """

    docs: np.ndarray
    scores: np.ndarray
    certified: np.ndarray

    def measured(self, queries: np.ndarray) -> dict[str, float]:
        """`certified`, the share of these queries (their numbers) whose documents are certified; {} without queries."""
        return {"certified": float(self.certified[queries].mean())} if len(queries) else {}


def best(proposer: Proposer, queries: np.ndarray, count: int, k: int) -> Certified:
    """The k best documents of those queries (int64 [n], ascending) out of `count`; the others find nothing."""
    check_depth(k)
    found = Certified(np.full((count, k), -1, np.int32), np.zeros((count, k)), np.ones(count, bool))
    width, left = min(k + SPARE, LIMIT), queries
    while len(left) and k:
        for some in _requests(left, width):
            for query, docs in zip(some.tolist(), proposer.propose(some, width), strict=True):
                found.certified[query] = _rank(proposer, query, docs, width, found)
        left = left[~found.certified[left]] if width < LIMIT else left[:0]
        width = min(2 * width, LIMIT)
    return found


def check_depth(k: int) -> None:
    """BadInput where k is more than an engine returns."""
    if k > LIMIT:
        raise BadInput(f"depth is {k}: Milvus returns at most {LIMIT:,} documents of a query. Lower depth.")


def _requests(queries: np.ndarray, width: int) -> Iterator[np.ndarray]:
    """The queries in parts that are asked together, the larger the faster the engine is.

    An engine answers no request in less than a fixed time, and none about a large collection may take too long.
    """
    size, start = FIRST, 0
    while start < len(queries):
        size = max(1, min(size, TOGETHER, ASKED // width))
        began = time.monotonic()
        yield queries[start : start + size]
        took = time.monotonic() - began
        start += size
        size = 2 * size if took < FAST else size // 2 if took > SLOW else size


def _rank(proposer: Proposer, query: int, docs: np.ndarray, width: int, found: Certified) -> bool:
    """Fill a query's row with the best of the documents proposed; whether it is certified."""
    k = found.docs.shape[1]
    docs = np.sort(docs).astype(np.int32)
    scores = proposer.score(query, docs)
    order = np.argsort(-scores, kind="stable")[:k]  # stable: ties stay by ascending document
    order = order[scores[order] > -np.inf]
    found.docs[query, : len(order)], found.scores[query, : len(order)] = docs[order], scores[order]
    worst = float(scores.min(initial=np.inf))
    if len(docs) < width or worst == -np.inf:
        return True
    return len(order) == k and float(scores[order[-1]]) > proposer.ceiling(query, worst)
