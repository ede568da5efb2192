"""Sparse vectors in an engine: term weights of ours, rounded to float32, by which the engine proposes documents."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from retrievers.base import Failed, Progress
from retrievers.engines import proposing
from retrievers.engines.collection import Contents, ensure, found_ids
from retrievers.engines.forward import Forward, SparseQueries
from retrievers.engines.milvus import MESSAGE, Milvus, connect

RECORD = "engine.json"  # which collection an index uses, and its rows
ROUNDING = 2.0**-24  # of float32
LEAST = 2.0**-125  # what is lost where a product of float32 underflows, at most
GREATEST = 2.0**126  # scores above it may overflow in float32
NEEDED = (2, 4)  # version of the server: the first with sparse vectors
VERSION = 1  # of what a collection holds; raise it when the same index is sent in another way
PAIR = 8  # bytes of a term and its weight in a message
ROWS = 2048  # sent together at most: each is an object of Python until then


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


class SparseCollection:
    """The documents of a forward index, whose weights are all above 0, in Milvus. The index itself is in the cache."""

    def __init__(self) -> None:
        self._forward: Forward | None = None

    def check(self, width: int) -> None:
        """BadInput or Failed where there is no Milvus that takes sparse vectors, or none returns `width` documents."""
        proposing.check_depth(width)
        _connected()

    def build(self, forward: Forward, folder: Path, progress: Progress | None = None) -> None:
        """Write the forward index to `folder`, and send it to Milvus. progress: as in `ensure`."""
        forward.save(folder)
        sent = forward.sent
        record = {"collection": _name(forward), "rows": len(sent)}
        (folder / RECORD).write_text(json.dumps(record), encoding="ascii")
        self.load(folder)
        if len(sent):
            ensure(_connected(), self._contents(), progress)
            self._checked = True

    def load(self, folder: Path) -> None:
        """Open what `build` wrote; the collection is checked by the first search."""
        self._forward = Forward.load(folder)
        self._sent = self._forward.sent
        self._name = str(json.loads((folder / RECORD).read_text(encoding="ascii"))["collection"])
        self._checked = False

    def search(
        self, queries: SparseQueries, floors: np.ndarray, k: int, progress: Progress | None = None
    ) -> proposing.Found:
        """The k best documents that share a term with a query; measures `certified`.

        floors: float64 [Q], at least 0, what every document of a query scores besides. progress: as in `ensure`, where
        the collection is filled again. BadInput where k is more than Milvus returns.
        """
        assert self._forward is not None
        proposing.check_depth(k)
        asked = np.flatnonzero(np.diff(queries.offsets))
        if not len(asked) or not len(self._sent) or not k:
            return proposing.Found(np.full((len(queries), k), -1, np.int32), np.zeros((len(queries), k)), {})
        milvus = _connected()
        if not self._checked:
            ensure(milvus, self._contents(), progress, expected=True)
            self._checked = True
        proposer = SparseProposer(self._forward, queries, floors, _Search(milvus, self._name, queries, self._sent))
        found = proposing.best(proposer, asked, len(queries), k)
        return proposing.Found(found.docs, found.scores, found.measured(asked))

    def _contents(self) -> Contents:
        """What the collection is to hold: a row for each document that is sent."""
        forward, sent = self._forward, self._sent
        assert forward is not None

        def vector(row: int) -> dict[int, float]:
            terms, weights = forward.row(int(sent[row]))
            return dict(zip(terms.tolist(), weights.astype(np.float32).tolist(), strict=True))

        longest = int(np.diff(forward.starts).max())
        return Contents(
            name=self._name,
            rows=len(sent),
            field="SPARSE_FLOAT_VECTOR",
            dimensions=None,
            index="SPARSE_INVERTED_INDEX",
            size=max(PAIR * (longest + 2), MESSAGE // ROWS),
            vectors=lambda first, last: [vector(row) for row in range(first, last)],
            equal=lambda returned, row: dict(returned) == vector(row),
        )


@dataclass(frozen=True)
class _Search:
    """Asks a collection for the documents of some of the queries. sent: int64 [n], the documents of its rows."""

    milvus: Milvus
    name: str
    queries: SparseQueries
    sent: np.ndarray

    def __call__(self, queries: np.ndarray, width: int) -> list[np.ndarray]:
        asked = [self.queries.merged(query) for query in queries.tolist()]
        vectors = [dict(zip(terms.tolist(), weights.tolist(), strict=True)) for terms, weights in asked]
        return [self._documents(rows) for rows in found_ids(self.milvus, self.name, vectors, width)]

    def _documents(self, rows: np.ndarray) -> np.ndarray:
        if len(np.unique(rows)) != len(rows) or (len(rows) and not 0 <= rows.min() <= rows.max() < len(self.sent)):
            raise Failed(
                f"Milvus at {self.milvus.address.place} returned documents that the collection {self.name} does not "
                "have, or one of them twice. Run the same command again: the collection is checked, and filled again "
                "if it is wrong."
            )
        return self.sent[rows]


def _connected() -> Milvus:
    milvus = connect()
    milvus.require(NEEDED, "sparse vectors")
    return milvus


def _name(forward: Forward) -> str:
    """The name of the collection of these documents: equal ones share it, whoever sends them."""
    return f"rh_{hashlib.sha256(f'sparse {VERSION} {forward.digest()}'.encode()).hexdigest()[:40]}"
