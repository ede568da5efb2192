"""Dense vectors in Milvus: the engine proposes documents, and they are scored here.

Milvus finds candidates by inner products in float32, as `Flat` does; their scores are computed in float64 from the
vectors in the cache, so that documents, order and scores are those of `Flat` wherever the result is certified.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from retrievers.base import Failed, Progress
from retrievers.dense.inner_product import greatest_length, inner_products, rounding
from retrievers.dense.vectors import Hits, check_queries
from retrievers.engines.collection import Contents, ensure, found_ids
from retrievers.engines.milvus import MESSAGE, Milvus, connect
from retrievers.engines.proposing import best, check_depth

INDEX = "FLAT"  # exact: only so can a result be certified
HASHED = 1 << 16  # rows hashed at a time


@dataclass(frozen=True)
class _Stored:
    """What the cache keeps of an index: neither an address nor a token. longest: the greatest length of a vector."""

    collection: str
    rows: int
    longest: float

    @classmethod
    def read(cls, folder: Path) -> _Stored:
        return cls(**json.loads((folder / "engine.json").read_text(encoding="ascii")))

    def write(self, folder: Path) -> None:
        (folder / "engine.json").write_text(json.dumps(asdict(self)), encoding="ascii")


class MilvusIndex:
    """Exact: candidates of a Milvus server or of milvus-lite, scored as `Flat` scores them.

    The address is in HARNESS_MILVUS_URI, a token in HARNESS_MILVUS_TOKEN. For each query k + 20 documents are asked
    for, then twice as many as long as another document could belong among the k best, up to 16,384: `certified` is the
    share of queries of which none can be missing. The collection is derived from the vectors in the cache: where it is
    missing or holds others, it is filled again.
    """

    recorded_as = "index/milvus"
    version = 1
    packages: tuple[str, ...] = ()  # what is certified does not depend on the engine

    def __init__(self) -> None:
        self.progress: Progress | None = None  # called while documents are sent

    def check_size(self, count: int, k: int) -> None:
        """BadInput where k is more than the engine returns, or the engine cannot be used; Failed where none answers."""
        check_depth(min(k, count))
        connect()

    def build(self, vectors: np.ndarray, folder: Path) -> None:
        """As in VectorIndex; the vectors go into a collection that is named after them, unless it is there."""
        _Stored(_name(vectors), len(vectors), greatest_length(vectors)).write(folder)
        self.load(folder)
        if len(vectors):
            ensure(connect(), _contents(self._stored.collection, vectors), self.progress)
            self._checked = True

    def load(self, folder: Path) -> None:
        """As in VectorIndex; the collection is checked by the first search."""
        self._stored = _Stored.read(folder)
        self._checked = False

    def search(self, queries: np.ndarray, vectors: np.ndarray, k: int, measure: bool = True) -> Hits:
        """As in VectorIndex; measures `certified`, the share of queries whose documents are certain to be the best.

        Queries of zeros are left out of the share. BadInput where k is more than 16,384.
        """
        check_queries(queries, vectors)
        width, nonzero = min(k, len(vectors)), np.flatnonzero(queries.any(axis=1))
        check_depth(width)
        if width == 0 or not len(nonzero):
            return Hits(np.full((len(queries), width), -1, np.int32), np.zeros((len(queries), width)), {})
        engine = self._opened(vectors)
        slack = rounding(queries, self._stored.longest)
        proposer = _Proposer(engine, self._stored.collection, queries, vectors, slack)
        found = best(proposer, nonzero, len(queries), width)
        return Hits(found.docs, found.scores, found.measured(nonzero) if measure else {})

    def _opened(self, vectors: np.ndarray) -> Milvus:
        """The engine, in which the collection is known to be right."""
        engine = connect()
        if not self._checked:
            ensure(engine, _contents(self._stored.collection, vectors), self.progress, expected=True)
            self._checked = True
        return engine


@dataclass(frozen=True, eq=False)
class _Proposer:
    """A Proposer of documents by float32 [N, D] vectors. slack: float64 [Q], bound of the error of a float32 score."""

    engine: Milvus
    collection: str
    queries: np.ndarray
    vectors: np.ndarray
    slack: np.ndarray

    def propose(self, queries: np.ndarray, width: int) -> Sequence[np.ndarray]:
        wanted = min(width, len(self.vectors))
        together = max(1, MESSAGE // self.queries[0].nbytes)
        parts = [queries[first : first + together] for first in range(0, len(queries), together)]
        asked = [list(self.queries[part]) for part in parts]
        found = [ids for some in asked for ids in found_ids(self.engine, self.collection, some, wanted)]
        for ids in found:
            known = (ids >= 0) & (ids < len(self.vectors))
            if len(np.unique(ids[known])) != wanted:
                raise Failed(
                    f"Milvus at {self.engine.address.place} returned {len(ids):,} documents, not {wanted:,} different "
                    f"ones of the collection {self.collection}. Run the same command again: the collection is checked, "
                    "and filled again if it is wrong."
                )
        return found

    def score(self, query: int, docs: np.ndarray) -> np.ndarray:
        return inner_products(self.queries[query], self.vectors, docs)

    def ceiling(self, query: int, worst: float) -> float:
        """As in Proposer. The engine's score of a document is within the slack of ours. A document that was left out
        has no greater one than the worst proposed document: it may score twice the slack more than that does."""
        return worst + 2.0 * float(self.slack[query])


def _name(vectors: np.ndarray) -> str:
    """The name of the collection of these vectors: equal vectors share one, whoever sends them."""
    digest = hashlib.sha256(f"{INDEX} IP {MilvusIndex.version} {vectors.shape}".encode())
    for first in range(0, len(vectors), HASHED):
        digest.update(np.ascontiguousarray(vectors[first : first + HASHED]).data)
    return f"rh_{digest.hexdigest()[:40]}"


def _contents(name: str, vectors: np.ndarray) -> Contents:
    def equal(vector: Any, row: int) -> bool:
        return np.array(vector, np.float32).tobytes() == vectors[row].tobytes()

    return Contents(
        name=name,
        rows=len(vectors),
        field="FLOAT_VECTOR",
        dimensions=vectors.shape[1],
        index=INDEX,
        size=vectors.itemsize * vectors.shape[1] + 16,
        vectors=lambda first, last: list(vectors[first:last]),
        equal=equal,
    )
