"""Vector search by inner product: exact, or approximate by faiss (Douze et al. 2024, The Faiss library, 2401.08281).

Every index works in two steps: it finds candidates in float32, and it scores these in float64. So scores compare
across indices, equal vectors tie, and a row does not depend on which other queries are asked with it.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from retrievers.base import BadInput
from retrievers.dense.inner_product import Propose, exact, greatest_length, ranked

SEED = 1234  # of the clustering
PROPOSED = 64  # queries that an approximate index answers at a time
TRAINING = 39  # vectors for each list of an inverted file, below which faiss calls the training poor

Answer = tuple[np.ndarray, np.ndarray, dict[str, float]]  # documents, their scores, what was measured


class VectorIndex(Protocol):
    """Ranks the rows of `vectors` (float32 [N, D], C-contiguous, finite; a memory map that is never copied whole).

    Constructor arguments are plain JSON values and belong to the identity of the ranking. Class attributes: `version`,
    raised when the same arguments rank otherwise; `packages`, distributions whose installed version does.
    """

    version: int
    packages: tuple[str, ...]

    def build(self, vectors: np.ndarray, folder: Path) -> None:
        """Keep in `folder` (exists) what a search needs beside the vectors, and be ready to search."""
        ...

    def load(self, folder: Path) -> None:
        """Take up what `build` left in `folder`."""
        ...

    def search(self, queries: np.ndarray, vectors: np.ndarray, k: int) -> Answer:
        """(docs int32, scores float64, what was measured); the arrays are [Q, min(k, N)].

        queries: float32 [Q, D], finite, else ValueError. vectors: those that the index was built from. A document is
        its row in `vectors`; a row of the answer stands by score descending, then document ascending, and is padded by
        -1 with score 0. A query of zeros finds nothing. A smaller k gives the head of a larger one.
        """
        ...


class Flat:
    """Exact: the k best of all documents, where a score is the inner product summed in float64.

    The products in float32 come from a matrix multiplication; whatever a rounding error bound (Higham 2002, Accuracy
    and Stability of Numerical Algorithms, 3.1) leaves among the k best is scored again. Needs no faiss.
    """

    recorded_as = "index/flat"
    version = 1
    packages: tuple[str, ...] = ()

    def build(self, vectors: np.ndarray, folder: Path) -> None:
        (folder / "flat.json").write_text(json.dumps({"longest": greatest_length(vectors)}), encoding="ascii")
        self.load(folder)

    def load(self, folder: Path) -> None:
        self._longest: float = json.loads((folder / "flat.json").read_text(encoding="ascii"))["longest"]

    def search(self, queries: np.ndarray, vectors: np.ndarray, k: int) -> Answer:
        _check_queries(queries, vectors)
        return *exact(queries, vectors, self._longest, min(k, len(vectors))), {}


class _Approximate(ABC):
    """An index that proposes candidates, and measures its recall by asking Flat the same."""

    version = 1
    packages: tuple[str, ...] = ("faiss-cpu",)
    _limit: tuple[str, int] | None = None  # the argument that fixes how many candidates a query has, and its value

    def __init__(self) -> None:
        if find_spec("faiss") is None:
            raise BadInput("this index needs faiss: pip install 'retrieval-harness[dense]', or use index=flat.")
        self._flat = Flat()

    def build(self, vectors: np.ndarray, folder: Path) -> None:
        self._flat.build(vectors, folder)
        self._train(vectors, folder)
        self.load(folder)

    def load(self, folder: Path) -> None:
        self._flat.load(folder)
        self._folder = folder
        self._propose: Propose | None = None  # opened by the first search

    def search(self, queries: np.ndarray, vectors: np.ndarray, k: int) -> Answer:
        """As in VectorIndex; measures `index_recall`, the mean share of Flat's documents that were found.

        BadInput where k is more than the candidates. A query of zeros has no part in the mean; without any other,
        nothing is measured.
        """
        _check_queries(queries, vectors)
        width = min(k, len(vectors))
        if self._limit and width > self._limit[1]:
            name, value = self._limit
            raise BadInput(f"index.{name} is {value}: raise it to at least depth={width}, or lower depth.")
        if self._propose is None:
            self._propose = self._open(self._folder)
        docs, scores = ranked(queries, vectors, width, PROPOSED, self._propose)
        best, _, _ = self._flat.search(queries, vectors, k)
        return docs, scores, _recall(docs, best)

    @abstractmethod
    def _train(self, vectors: np.ndarray, folder: Path) -> None:
        """Write what `_open` reads; there may be no vectors at all."""

    @abstractmethod
    def _open(self, folder: Path) -> Propose: ...


class HNSW(_Approximate):
    """Hierarchical navigable small world graph (Malkov & Yashunin 2018, 1603.09320).

    m: 2 to 512, links of a document (twice as many on the lowest layer). ef_construction: candidates when a document
    is linked. ef_search: candidates of a query, at least k; more find more.
    Built by one thread, since with several the graph depends on their timing.
    """

    recorded_as = "index/hnsw"

    def __init__(self, m: int = 32, ef_construction: int = 200, ef_search: int = 256) -> None:
        super().__init__()
        self._m = _count("m", m, 2, 512)
        self._ef_construction = _count("ef_construction", ef_construction)
        self._ef_search = _count("ef_search", ef_search)
        self._limit = "ef_search", self._ef_search

    def _train(self, vectors: np.ndarray, folder: Path) -> None:
        import faiss

        index = faiss.IndexHNSWFlat(vectors.shape[1], self._m, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = self._ef_construction
        threads = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(1)
        try:
            index.add(vectors)
        finally:
            faiss.omp_set_num_threads(threads)
        faiss.write_index(index, str(folder / "hnsw.faiss"))

    def _open(self, folder: Path) -> Propose:
        import faiss

        index: Any = faiss.read_index(str(folder / "hnsw.faiss"), faiss.IO_FLAG_MMAP_IFC)
        index.hnsw.efSearch = self._ef_search
        return lambda queries: _listed(index.search(queries, self._ef_search)[1])


class _Inverted(_Approximate):
    """Vectors in lists around the centroids of spherical k-means; a query looks into those that it is nearest to.

    nlist: number of lists, at most N; None for 4 * sqrt(N), or fewer so that a list has 39 vectors on average to be
    learnt from. nprobe: lists that a query looks into, at most nlist (where that is None: all, if there are fewer).
    """

    def __init__(self, nlist: int | None = None, nprobe: int = 16) -> None:
        super().__init__()
        self._nlist = None if nlist is None else _count("nlist", nlist)
        self._nprobe = _count("nprobe", nprobe)
        if nlist is not None and nprobe > nlist:
            raise BadInput(f"index.nprobe is {nprobe}, more than nlist ({nlist}): lower it.")

    def _cluster(self, vectors: np.ndarray, folder: Path) -> np.ndarray:
        """Write and return the centroids, float32 [L, D]."""
        import faiss

        size = len(vectors)
        nlist = self._nlist or max(1, min(int(4 * math.sqrt(size)), size // TRAINING))
        if nlist > max(1, size):
            raise BadInput(f"index.nlist is {nlist}, more than the {size} documents: lower it, or leave it null.")
        centroids = np.zeros((nlist, vectors.shape[1]), np.float32)
        if size:
            width = vectors.shape[1]  # faiss need not warn that a list has few vectors: that was asked for
            means: Any = faiss.Kmeans(width, nlist, niter=10, seed=SEED, spherical=True, min_points_per_centroid=1)
            means.train(vectors)
            centroids = means.centroids
        np.save(folder / "centroids.npy", centroids)
        return centroids

    def _prober(self, folder: Path) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
        """Queries to (their lists int32 [n, nprobe], the centroids' scores): exact, so alike whoever asks with them."""
        centroids = _load(folder, "centroids")
        nprobe, longest = min(self._nprobe, len(centroids)), greatest_length(centroids)
        return lambda queries: exact(queries, centroids, longest, nprobe)


class IVFFlat(_Inverted):
    """Inverted file (Sivic & Zisserman 2003): every document in the lists that a query looks into is a candidate."""

    recorded_as = "index/ivf_flat"

    def _train(self, vectors: np.ndarray, folder: Path) -> None:
        centroids = self._cluster(vectors, folder)
        lists, _ = exact(vectors, centroids, greatest_length(centroids), 1)
        lists = np.maximum(lists[:, 0], 0)  # vectors of zeros, which are nearest to none, stand in the first
        np.save(folder / "docs.npy", np.argsort(lists, kind="stable").astype(np.int32))
        np.save(folder / "starts.npy", np.searchsorted(np.sort(lists), np.arange(len(centroids) + 1)))

    def _open(self, folder: Path) -> Propose:
        probe, docs, starts = self._prober(folder), _load(folder, "docs"), _load(folder, "starts")

        def propose(queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            probed = probe(queries)[0].tolist()
            found = [np.concatenate([docs[starts[i] : starts[i + 1]] for i in row]) for row in probed]
            return np.concatenate([np.sort(some) for some in found]), np.cumsum([0, *map(len, found)])

        return propose


class IVFPQ(_Inverted):
    """Inverted file of product codes (Jégou, Douze & Schmid 2011, Product Quantization for Nearest Neighbor Search).

    nlist, nprobe: as in `_Inverted`. m: parts of a vector, a divisor of D. bits: 4 to 12, of each part's code, so that
    a document takes m * bits / 8 bytes. candidates: best by code, of each query; at least k.
    BadInput where there are fewer than 2 ** bits documents, from which no code can be learnt.
    """

    recorded_as = "index/ivf_pq"

    def __init__(
        self, nlist: int | None = None, nprobe: int = 16, m: int = 32, bits: int = 8, candidates: int = 400
    ) -> None:
        super().__init__(nlist, nprobe)
        self._m, self._bits = _count("m", m), _count("bits", bits, 4, 12)
        self._candidates = _count("candidates", candidates)
        self._limit = "candidates", self._candidates

    def _train(self, vectors: np.ndarray, folder: Path) -> None:
        import faiss

        size, width = vectors.shape
        if size < 2**self._bits:
            raise BadInput(
                f"index.bits={self._bits} needs {2**self._bits} documents or more, not {size}: use index=flat."
            )
        if width % self._m:
            fit = [m for m in range(1, width + 1) if width % m == 0]
            raise BadInput(f"index.m is {self._m}, no divisor of {width} dimensions: use one of {fit}.")
        centroids = self._cluster(vectors, folder)
        quantizer = faiss.IndexFlatIP(width)
        quantizer.add(centroids)
        index = faiss.IndexIVFPQ(quantizer, width, len(centroids), self._m, self._bits, faiss.METRIC_INNER_PRODUCT)
        index.pq.cp.min_points_per_centroid = 1  # as in _cluster
        index.train(vectors)
        index.add(vectors)
        faiss.write_index(index, str(folder / "ivf_pq.faiss"))

    def _open(self, folder: Path) -> Propose:
        import faiss

        probe = self._prober(folder)
        index: Any = faiss.read_index(str(folder / "ivf_pq.faiss"), faiss.IO_FLAG_MMAP)
        index.nprobe = min(self._nprobe, index.nlist)

        def propose(queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            lists, scores = probe(queries)
            near = lists.astype(np.int64), scores.astype(np.float32)
            return _listed(index.search_preassigned(queries, self._candidates, *near)[1])

        return propose


def _check_queries(queries: np.ndarray, vectors: np.ndarray) -> None:
    if queries.dtype != np.float32 or queries.ndim != 2 or queries.shape[1] != vectors.shape[1]:
        raise ValueError(f"queries are float32 [Q, {vectors.shape[1]}], not {queries.dtype} {list(queries.shape)}")
    if not np.isfinite(queries).all():
        raise ValueError("queries are finite")


def _listed(found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Documents in any order, [n, w], padded by -1, as Propose gives them."""
    ascending = np.sort(found, axis=1).astype(np.int32)
    there = ascending >= 0
    return ascending[there], np.concatenate([[0], np.cumsum(there.sum(axis=1))])


def _recall(docs: np.ndarray, best: np.ndarray) -> dict[str, float]:
    rows = [(set(a.tolist()), set(b.tolist()) - {-1}) for a, b in zip(docs, best, strict=True)]
    shares = [len(found & wanted) / len(wanted) for found, wanted in rows if wanted]
    return {"index_recall": float(np.mean(shares))} if shares else {}


def _count(name: str, value: object, least: int = 1, most: int = 1 << 20) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadInput(f"index.{name} is {value!r}: give a whole number from {least} to {most:,}.")
    return value


def _load(folder: Path, name: str) -> np.ndarray:
    return np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
