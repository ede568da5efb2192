"""The documents of the greatest inner products: found in float32, scored and ordered in float64.

A matrix product gives each document's score up to a rounding error that is bounded; what the bound leaves among the k
best is scored again. So equal vectors tie, and a row does not depend on which other queries are asked with it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from retrievers.base import cores

DOCUMENTS, QUERIES = 2048, 1024  # scored at a time by one matrix product
ROOM = 1 << 23  # candidates kept at a time, over all queries

# Float32 [n, D] queries to each one's candidates: query i has `docs[offsets[i]:offsets[i + 1]]`, int32, ascending.
Propose = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def exact(queries: np.ndarray, vectors: np.ndarray, longest: float, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k <= N best of all documents, as VectorIndex.search; longest: of the vectors' lengths."""
    from threadpoolctl import threadpool_limits

    vectors, at_once = _read_only(vectors), max(1, min(QUERIES, ROOM // _room(k)))
    with threadpool_limits(1, "blas"):  # the threads are ours: the matrix library's own would wait after every block
        return ranked(queries, vectors, k, at_once, lambda some: _scan(some, vectors, longest, k))


def _scan(queries: np.ndarray, vectors: np.ndarray, longest: float, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Candidates, as Propose gives them: those that, within the rounding error of float32, may be the k best."""
    from retrievers.dense import _vector_kernels

    n, slack = len(queries), _rounding(queries, longest)
    # A product that may overflow tells nothing: 0 takes its place, and a slack of infinity makes all candidates.
    plain = np.where(np.isfinite(slack)[:, None], queries, np.float32(0))
    docs, scores = np.empty((n, _room(k)), np.int32), np.empty((n, _room(k)))
    sizes, thresholds = np.zeros(n, np.int64), np.full(n, -np.inf, np.float32)

    def scan(first: int, last: int) -> None:
        mine = slice(first, last)
        products = np.empty((last - first) * DOCUMENTS, np.float32)
        state = (queries[mine], vectors, slack[mine], k, docs[mine], scores[mine], sizes[mine], thresholds[mine])
        for base in range(0, len(vectors), DOCUMENTS):
            some = vectors[base : base + DOCUMENTS]
            block = products[: (last - first) * len(some)].reshape(last - first, len(some))
            np.matmul(plain[mine], some.T, out=block)
            _vector_kernels.collect(block, base, *state, 0, last - first)
        _vector_kernels.finish(slack[mine], k, docs[mine], scores[mine], sizes[mine], 0, last - first)

    with ThreadPoolExecutor(cores()) as pool:
        _in_parts(pool, n, scan)
    return docs[np.arange(docs.shape[1]) < sizes[:, None]], np.concatenate([[0], np.cumsum(sizes)])


def ranked(
    queries: np.ndarray, vectors: np.ndarray, k: int, at_once: int, propose: Propose
) -> tuple[np.ndarray, np.ndarray]:
    """The k best candidates, as VectorIndex.search; `at_once` queries go to `propose` together."""
    docs, scores = np.full((len(queries), k), -1, np.int32), np.zeros((len(queries), k))
    asked = np.flatnonzero(queries.any(axis=1))
    if k == 0 or not len(asked):
        return docs, scores
    from retrievers.dense import _vector_kernels

    vectors = _read_only(vectors)

    def run(task: tuple[Any, ...], best: np.ndarray, values: np.ndarray, first: int, last: int) -> None:
        _vector_kernels.rank(*task, best, values, first, last)  # type: ignore[call-arg]
        # Rows come by ascending document: a stable sort leaves ties that way.
        order = np.argsort(-values[first:last], axis=1, kind="stable")
        best[first:last] = np.take_along_axis(best[first:last], order, axis=1)
        values[first:last] = np.take_along_axis(values[first:last], order, axis=1)

    with ThreadPoolExecutor(cores()) as pool:
        for start in range(0, len(asked), at_once):
            rows = asked[start : start + at_once]
            some, best, values = _read_only(queries[rows]), docs[rows], scores[rows]
            _in_parts(pool, len(rows), partial(run, (some, vectors, *propose(some)), best, values))
            docs[rows], scores[rows] = best, values
    scores[docs < 0] = 0.0
    return docs, scores


def _in_parts(pool: ThreadPoolExecutor, n: int, work: Callable[[int, int], None]) -> None:
    """work(first, last) for parts of range(n), all cores at once."""
    borders = np.linspace(0, n, 1 + min(cores(), n)).astype(int).tolist()
    list(pool.map(work, borders[:-1], borders[1:]))


def _room(k: int) -> int:
    """Candidates kept for a query: several times k, so that the worse ones are seldom dropped."""
    return 4 * max(k, 64)


def _rounding(queries: np.ndarray, longest: float) -> np.ndarray:
    """float64 [Q]: how far an inner product in float32 may be from the one in float64; infinity where it may overflow.

    At most gamma * |q| * |d| whatever the order of summation, with gamma = D u / (1 - D u) and u = 2 ** -24. A
    thousandth more is for float64's own rounding, the last term for underflow.
    """
    width = queries.shape[1]
    reach = np.linalg.norm(queries.astype(np.float64), axis=1) * longest
    gamma = width * 2.0**-24 / (1 - width * 2.0**-24)
    return np.where(reach < 2.0**126, 1.001 * gamma * reach + width * 2.0**-125, np.inf)


def greatest_length(vectors: np.ndarray) -> float:
    """The greatest length of a vector, 0 without any; ValueError if a vector is not finite."""
    blocks = (vectors[base : base + DOCUMENTS].astype(np.float64) for base in range(0, len(vectors), DOCUMENTS))
    lengths = [float(np.linalg.norm(block, axis=1).max()) for block in blocks]
    if not np.isfinite(lengths).all():
        raise ValueError("vectors are finite")
    return max(lengths, default=0.0)


def _read_only(values: np.ndarray) -> np.ndarray:
    view = np.asarray(values).view()
    view.flags.writeable = False
    return view
