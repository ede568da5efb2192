"""Exact search for the greatest inner products: found in float32, scored and ordered in float64.

A matrix product gives each document's score up to a bounded rounding error. All documents that may be among the k best
within this bound are scored again in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from retrievers.base import cores, read_only

DOCUMENTS, QUERIES = 2048, 1024  # scored at a time by one matrix product
ROOM = 1 << 23  # candidates in memory at a time, over all queries


class Candidates(NamedTuple):
    """Documents that may be among a query's best: query i has `docs[offsets[i]:offsets[i + 1]]`.

    docs: int32 [C], ascending within a query.
    offsets: int64 [n + 1].
    """

    docs: np.ndarray
    offsets: np.ndarray


Propose = Callable[[np.ndarray], Candidates]  # from queries, float32 [n, D]


def exact(queries: np.ndarray, vectors: np.ndarray, longest: float, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the k <= N best of all documents: (docs int32, scores float64), as in `rank_candidates`.

    queries: float32 [Q, D]. vectors: float32 [N, D]. longest: the greatest length of a vector.
    """
    from threadpoolctl import threadpool_limits

    vectors, batch = read_only(vectors), max(1, min(QUERIES, ROOM // _room(k)))
    with threadpool_limits(1, "blas"):  # our own threads: those of the matrix library would wait after every block
        return rank_candidates(queries, vectors, k, batch, lambda some: _scan(some, vectors, longest, k))


def _scan(queries: np.ndarray, vectors: np.ndarray, longest: float, k: int) -> Candidates:
    """Return the documents that, within the rounding error of float32, may be among the k best."""
    from retrievers.dense import _vector_kernels

    n, slack = len(queries), rounding(queries, longest)
    # A product that may overflow is useless: 0 replaces it, and an infinite slack makes every document a candidate.
    finite = np.where(np.isfinite(slack)[:, None], queries, np.float32(0))
    docs, scores = np.empty((n, _room(k)), np.int32), np.empty((n, _room(k)))
    sizes, thresholds = np.zeros(n, np.int64), np.full(n, -np.inf, np.float32)

    def scan(first: int, last: int) -> None:
        mine, count = slice(first, last), last - first
        products = np.empty(count * DOCUMENTS, np.float32)
        for base in range(0, len(vectors), DOCUMENTS):
            some = vectors[base : base + DOCUMENTS]
            block = products[: count * len(some)].reshape(count, len(some))
            np.matmul(finite[mine], some.T, out=block)
            _vector_kernels.collect(
                block, base, queries[mine], vectors, slack[mine], k, docs[mine], scores[mine], sizes[mine],
                thresholds[mine], 0, count,
            )  # fmt: skip
        _vector_kernels.finish(slack[mine], k, docs[mine], scores[mine], sizes[mine], 0, count)

    with ThreadPoolExecutor(cores()) as pool:
        _in_parts(pool, n, scan)
    return Candidates(docs[np.arange(docs.shape[1]) < sizes[:, None]], np.concatenate([[0], np.cumsum(sizes)]))


def rank_candidates(
    queries: np.ndarray, vectors: np.ndarray, k: int, batch: int, propose: Propose
) -> tuple[np.ndarray, np.ndarray]:
    """Return the k best of each query's candidates: (docs int32 [Q, k], scores float64 [Q, k]).

    A row is ordered by descending score, then ascending document, and padded with document -1 and score 0. A query of
    zeros finds nothing. Raise ValueError unless queries are float32 [Q, D] and finite.

    vectors: float32 [N, D]. batch: number of queries per call of `propose`.
    """
    if queries.dtype != np.float32 or queries.ndim != 2 or queries.shape[1] != vectors.shape[1]:
        raise ValueError(f"queries must be float32 [Q, {vectors.shape[1]}], not {queries.dtype} {list(queries.shape)}")
    if not np.isfinite(queries).all():
        raise ValueError("queries must be finite, but one has NaN or infinity")
    docs, scores = np.full((len(queries), k), -1, np.int32), np.zeros((len(queries), k))
    nonzero = np.flatnonzero(queries.any(axis=1))
    if k == 0 or not len(nonzero):
        return docs, scores
    vectors = read_only(vectors)
    with ThreadPoolExecutor(cores()) as pool:
        for start in range(0, len(nonzero), batch):
            rows = nonzero[start : start + batch]
            some = read_only(queries[rows])
            docs[rows], scores[rows] = _best(pool, some, vectors, propose(some), k)
    scores[docs < 0] = 0.0
    return docs, scores


def _best(
    pool: ThreadPoolExecutor, queries: np.ndarray, vectors: np.ndarray, candidates: Candidates, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """As `rank_candidates`, for queries whose candidates are known; pads score -inf."""
    from retrievers.dense import _vector_kernels

    docs, scores = np.full((len(queries), k), -1, np.int32), np.zeros((len(queries), k))

    def rank(first: int, last: int) -> None:
        _vector_kernels.rank_rows(queries, vectors, candidates.docs, candidates.offsets, docs, scores, first, last)
        # Rows come sorted by document: a stable sort leaves ties in that order.
        order = np.argsort(-scores[first:last], axis=1, kind="stable")
        docs[first:last] = np.take_along_axis(docs[first:last], order, axis=1)
        scores[first:last] = np.take_along_axis(scores[first:last], order, axis=1)

    _in_parts(pool, len(queries), rank)
    return docs, scores


def _in_parts(pool: ThreadPoolExecutor, n: int, work: Callable[[int, int], None]) -> None:
    borders = np.linspace(0, n, 1 + min(cores(), n)).astype(int).tolist()
    list(pool.map(work, borders[:-1], borders[1:]))


def _room(k: int) -> int:
    """Return the number of candidates kept per query: several times k, so that the kernel rarely drops worse ones."""
    return 4 * max(k, 64)


def rounding(queries: np.ndarray, longest: float) -> np.ndarray:
    """Return the error bound of an inner product in float32, float64 [Q]; infinity if it may overflow.

    For any order of summation it is gamma * |q| * |d|, with gamma = D u / (1 - D u) and u = 2 ** -24. A thousandth is
    added for float64's rounding; the last term is for underflow.
    """
    width = queries.shape[1]
    reach = np.linalg.norm(queries.astype(np.float64), axis=1) * longest
    gamma = width * 2.0**-24 / (1 - width * 2.0**-24)
    return np.where(reach < 2.0**126, 1.001 * gamma * reach + width * 2.0**-125, np.inf)


def greatest_length(vectors: np.ndarray) -> float:
    """Return the greatest length of a vector, 0 if there are none; raise ValueError if a vector is not finite."""
    blocks = (vectors[base : base + DOCUMENTS].astype(np.float64) for base in range(0, len(vectors), DOCUMENTS))
    lengths = [float(np.linalg.norm(block, axis=1).max()) for block in blocks]
    if not np.isfinite(lengths).all():
        raise ValueError("vectors must be finite, but one has NaN or infinity")
    return max(lengths, default=0.0)
