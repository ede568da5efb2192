"""Vector search by inner product: exact, or approximate with faiss (Douze et al. 2024, arXiv:2401.08281).

Every index finds candidates in float32, and then scores and orders the candidates in float64. So scores are comparable
across indexes, equal vectors tie, and a query's result does not depend on other queries.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol

import numpy as np

from harness.errors import BadInput
from retrievers.base import AtMost, Progress, check_whole, cores, in_parts, load_array, read_only

Count = Annotated[int, AtMost(1 << 20, "faiss needs memory in proportion to this value")]
Links = Annotated[int, AtMost(512, "the index stores m links per document")]
Bits = Annotated[int, AtMost(12, "faiss supports no more")]
SEED = 1234  # seed of k-means
BATCH = 64  # number of queries that an approximate index searches at a time
TRAINING = 39  # minimum number of vectors per list of an inverted file; with fewer, faiss warns of poor training
DOCUMENTS, QUERIES = 2048, 1024  # number of documents and of queries in one matrix product of scores
ROOM = 1 << 23  # maximum number of candidates in memory, over all queries


class Candidates(NamedTuple):
    """Documents that may be a query's best. Those of query i: `docs[offsets[i]:offsets[i + 1]]`, int32, ascending."""

    docs: np.ndarray
    offsets: np.ndarray


Propose = Callable[[np.ndarray], Candidates]  # called with queries, float32 [n, D]
Rows = tuple[np.ndarray, np.ndarray]  # documents, int32 [Q, k], and their scores, float64 [Q, k]


class VectorHits(NamedTuple):
    """docs: int32 [Q, min(k, N)], by descending score, then ascending document number; padded with -1.
    scores: float64 [Q, min(k, N)]; padded with 0.
    measured: the index's measurements, such as `index_recall`.
    """

    docs: np.ndarray
    scores: np.ndarray
    measured: dict[str, float]


class VectorIndex(Protocol):
    """Ranks the rows of `vectors`: float32 [N, D], C-contiguous, finite, in a memory map that is never copied whole.

    Constructor arguments are plain JSON values and part of the ranking's identity. version, packages: as in Retriever.

    Optional method: `check_size(count, k)` is called before a run begins, and raises BadInput if the arguments do not
    allow `count` vectors or k results.
    """

    version: int
    packages: tuple[str, ...]
    progress: Progress | None  # set before the work begins

    def build(self, vectors: np.ndarray, folder: Path) -> None:
        """Write the files that a search needs, apart from the vectors, to `folder`. `search` can then be called."""

    def load(self, folder: Path) -> None:
        """Open the files that `build` wrote to `folder`."""

    def search(self, queries: np.ndarray, vectors: np.ndarray, k: int, measure: bool = True) -> VectorHits:
        """Return the k best documents per query; a query of zeros gets none.

        A smaller k gives the first documents of the same list.

        queries: float32 [Q, D]. Raise ValueError unless they are finite.
        measure: whether to measure the index's quality as well, which takes time.
        """


class Flat:
    """Finds the exact k best documents by the inner product, summed in float64. Needs no faiss.

    A float32 matrix multiplication gives approximate products. A bound on their rounding errors (Higham 2002, Accuracy
    and Stability of Numerical Algorithms, 3.1) shows which documents may be among the k best. These are scored again.
    """

    recorded_as = "index/flat"
    version = 1
    packages: tuple[str, ...] = ()
    progress: Progress | None = None

    def build(self, vectors: np.ndarray, folder: Path) -> None:
        (folder / "flat.json").write_text(json.dumps({"longest": greatest_length(vectors)}), encoding="ascii")
        self.load(folder)

    def load(self, folder: Path) -> None:
        self._longest: float = json.loads((folder / "flat.json").read_text(encoding="ascii"))["longest"]

    def search(self, queries: np.ndarray, vectors: np.ndarray, k: int, measure: bool = True) -> VectorHits:
        docs, scores = exact(queries, vectors, self._longest, min(k, len(vectors)))
        return VectorHits(docs, scores, {})


class Approximate(ABC):
    """Scores an index's candidates as `Flat` does, and measures the index's recall against `Flat`."""

    version = 1
    packages: tuple[str, ...] = ()
    progress: Progress | None = None
    _limit: tuple[str, int] | None = None  # name and value of the argument that limits a query's candidates
    _most_measured: int | None = None  # maximum number of queries whose recall is measured; None: all

    def __init__(self) -> None:
        if self.packages and find_spec("faiss") is None:
            raise BadInput("this index needs faiss: pip install 'retrieval-harness[dense]', or use index=flat.")
        self._flat = Flat()

    def build(self, vectors: np.ndarray, folder: Path) -> None:
        self.check_size(len(vectors), 0)
        self._flat.build(vectors, folder)
        self._train(vectors, folder)
        self.load(folder)

    def load(self, folder: Path) -> None:
        self._flat.load(folder)
        self._folder = folder
        self._propose: Propose | None = None  # set by the first search

    def check_size(self, count: int, k: int) -> None:
        width = min(k, count)
        if self._limit and width > self._limit[1]:
            name, value = self._limit
            raise BadInput(f"index.{name} is {value}: raise it to at least {width}, or lower depth.")

    def search(self, queries: np.ndarray, vectors: np.ndarray, k: int, measure: bool = True) -> VectorHits:
        """Search as VectorIndex says. Measure `index_recall`, the mean share of Flat's results that this index finds.

        Queries of zeros are left out of the mean. Raise BadInput if k exceeds the number of candidates.
        """
        self.check_size(len(vectors), k)
        width = min(k, len(vectors))
        if self._propose is None:
            self._propose = self._open(self._folder, vectors)
        propose, vectors = self._propose, read_only(vectors)
        docs, scores = _in_batches(
            queries, vectors, width, BATCH, lambda some: _best(some, vectors, propose(some), width)
        )
        if not measure:
            return VectorHits(docs, scores, {})
        count = min(len(queries), self._most_measured or len(queries))
        sample = np.linspace(0, len(queries) - 1, count).astype(np.int64)
        best = self._flat.search(queries[sample], vectors, k).docs
        return VectorHits(docs, scores, _recall(docs[sample], best))

    @abstractmethod
    def _train(self, vectors: np.ndarray, folder: Path) -> None:
        """Write the files that `_open` reads. `vectors` may be empty."""

    @abstractmethod
    def _open(self, folder: Path, vectors: np.ndarray) -> Propose:
        """Return the function that finds the queries' candidates."""


class HNSW(Approximate):
    """A hierarchical navigable small world graph (Malkov & Yashunin 2018, arXiv:1603.09320), built by one thread.

    m: number of links per document, 2 to 512; twice this number on the lowest layer.
    ef_construction: number of candidates for the links of a new document.
    ef_search: number of candidates per query, at least k; more candidates give a higher recall.
    """

    recorded_as = "index/hnsw"
    packages = ("faiss-cpu",)

    def __init__(self, m: Links = 32, ef_construction: Count = 200, ef_search: Count = 256) -> None:
        super().__init__()
        self._m = checked_count("m", m, 2, 512)
        self._ef_construction = checked_count("ef_construction", ef_construction)
        self._ef_search = checked_count("ef_search", ef_search)
        self._limit = "ef_search", self._ef_search

    def _train(self, vectors: np.ndarray, folder: Path) -> None:
        import faiss

        index = faiss.IndexHNSWFlat(vectors.shape[1], self._m, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = self._ef_construction
        threads = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(1)  # with several threads, the graph would depend on their timing
        try:
            index.add(vectors)
        finally:
            faiss.omp_set_num_threads(threads)
        faiss.write_index(index, str(folder / "hnsw.faiss"))

    def _open(self, folder: Path, vectors: np.ndarray) -> Propose:
        import faiss

        index: Any = faiss.read_index(str(folder / "hnsw.faiss"), faiss.IO_FLAG_MMAP_IFC)
        index.hnsw.efSearch = self._ef_search
        return lambda queries: _candidates(index.search(queries, self._ef_search)[1])


class _Inverted(Approximate):
    """Keeps vectors in lists around the centroids of spherical k-means. A query searches the nearest lists."""

    packages = ("faiss-cpu",)

    def __init__(self, nlist: Count | None = None, nprobe: Count = 16) -> None:
        super().__init__()
        self._nlist = None if nlist is None else checked_count("nlist", nlist)
        self._nprobe = checked_count("nprobe", nprobe)
        if nlist is not None and nprobe > nlist:
            raise BadInput(f"index.nprobe is {nprobe}, more than nlist ({nlist}): lower it.")

    def check_size(self, count: int, k: int) -> None:
        super().check_size(count, k)
        if self._nlist and self._nlist > max(1, count):
            raise BadInput(f"index.nlist is {self._nlist}, more than the {count} documents: lower it, or set null.")

    def _cluster(self, vectors: np.ndarray, folder: Path) -> np.ndarray:
        import faiss

        size, width = vectors.shape
        nlist = self._nlist or max(1, min(int(4 * math.sqrt(size)), size // TRAINING))
        centroids = np.zeros((nlist, width), np.float32)
        if size:
            # A user may choose few vectors per list, so min_points_per_centroid=1 switches faiss's warning off.
            means: Any = faiss.Kmeans(width, nlist, niter=10, seed=SEED, spherical=True, min_points_per_centroid=1)
            means.train(vectors)
            centroids = means.centroids
        np.save(folder / "centroids.npy", centroids)
        return centroids

    def _prober(self, folder: Path) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
        centroids = load_array(folder, "centroids")
        nprobe, longest = min(self._nprobe, len(centroids)), greatest_length(centroids)
        return lambda queries: exact(queries, centroids, longest, nprobe)  # other queries do not change a query's lists


class IVFFlat(_Inverted):
    """An inverted file (Sivic & Zisserman 2003). Every document in the searched lists is a candidate.

    nlist: number of lists, at most N; None: 4 * sqrt(N), but at most N / 39, as training needs 39 vectors per list.
    nprobe: number of lists to search per query, at most nlist. If nlist is None, any larger number means all lists.
    """

    recorded_as = "index/ivf_flat"

    def _train(self, vectors: np.ndarray, folder: Path) -> None:
        centroids = self._cluster(vectors, folder)
        lists, _ = exact(vectors, centroids, greatest_length(centroids), 1)
        lists = np.maximum(lists[:, 0], 0)  # a vector of zeros has no nearest centroid; the first list takes it
        np.save(folder / "docs.npy", np.argsort(lists, kind="stable").astype(np.int32))
        np.save(folder / "starts.npy", np.searchsorted(np.sort(lists), np.arange(len(centroids) + 1)))

    def _open(self, folder: Path, vectors: np.ndarray) -> Propose:
        probe, docs, starts = self._prober(folder), load_array(folder, "docs"), load_array(folder, "starts")

        def propose(queries: np.ndarray) -> Candidates:
            lists = probe(queries)[0].tolist()
            found = [np.concatenate([docs[starts[i] : starts[i + 1]] for i in row]) for row in lists]
            return Candidates(np.concatenate([np.sort(some) for some in found]), np.cumsum([0, *map(len, found)]))

        return propose


class IVFPQ(_Inverted):
    """An inverted file of product codes (Jégou, Douze & Schmid 2011, Product Quantization for Nearest Neighbor Search).

    nlist, nprobe: as in IVFFlat.
    m: number of parts into which a vector is cut, a divisor of D.
    bits: number of bits per part, 4 to 12; needs 2 ** bits documents or more. A document takes m * bits / 8 bytes.
    candidates: number of documents per query to score exactly, at least k: the best by their codes.
    """

    recorded_as = "index/ivf_pq"

    def __init__(
        self, nlist: Count | None = None, nprobe: Count = 16, m: Count = 32, bits: Bits = 8, candidates: Count = 400
    ) -> None:
        super().__init__(nlist, nprobe)
        self._m, self._bits = checked_count("m", m), checked_count("bits", bits, 4, 12)
        self._candidates = checked_count("candidates", candidates)
        self._limit = "candidates", self._candidates

    def check_size(self, count: int, k: int) -> None:
        super().check_size(count, k)
        if count < 2**self._bits:
            raise BadInput(
                f"index.bits={self._bits} needs {2**self._bits} documents or more, not {count}: use index=flat."
            )

    def _train(self, vectors: np.ndarray, folder: Path) -> None:
        import faiss

        width = vectors.shape[1]
        if width % self._m:
            fit = [m for m in range(1, width + 1) if width % m == 0]
            raise BadInput(f"index.m is {self._m}, which does not divide {width} dimensions: use one of {fit}.")
        centroids = self._cluster(vectors, folder)
        quantizer = faiss.IndexFlatIP(width)
        quantizer.add(centroids)
        index = faiss.IndexIVFPQ(quantizer, width, len(centroids), self._m, self._bits, faiss.METRIC_INNER_PRODUCT)
        index.pq.cp.min_points_per_centroid = 1  # as in _cluster
        index.train(vectors)
        index.add(vectors)
        faiss.write_index(index, str(folder / "ivf_pq.faiss"))

    def _open(self, folder: Path, vectors: np.ndarray) -> Propose:
        import faiss

        probe = self._prober(folder)
        index: Any = faiss.read_index(str(folder / "ivf_pq.faiss"), faiss.IO_FLAG_MMAP)
        index.nprobe = min(self._nprobe, index.nlist)

        def propose(queries: np.ndarray) -> Candidates:
            lists, scores = probe(queries)
            lists, scores = lists.astype(np.int64), scores.astype(np.float32)
            return _candidates(index.search_preassigned(queries, self._candidates, lists, scores)[1])

        return propose


def _candidates(docs: np.ndarray) -> Candidates:
    ascending = np.sort(docs, axis=1).astype(np.int32)
    present = ascending >= 0
    return Candidates(ascending[present], np.concatenate([[0], np.cumsum(present.sum(axis=1))]))


def _recall(docs: np.ndarray, best: np.ndarray) -> dict[str, float]:
    rows = [(set(row.tolist()), set(exact_row.tolist()) - {-1}) for row, exact_row in zip(docs, best, strict=True)]
    shares = [len(found & wanted) / len(wanted) for found, wanted in rows if wanted]
    return {"index_recall": float(np.mean(shares))} if shares else {}


def checked_count(name: str, value: int, least: int = 1, most: int = 1 << 20) -> int:
    check_whole(f"index.{name}", value, f"a whole number from {least} to {most:,}", least, most)
    return value


def exact(queries: np.ndarray, vectors: np.ndarray, longest: float, k: int) -> Rows:
    """Return the k best of all N >= k documents, like `_in_batches`. longest: the greatest length of a vector."""
    from threadpoolctl import threadpool_limits

    vectors, batch = read_only(vectors), max(1, min(QUERIES, ROOM // _room(k)))
    with threadpool_limits(1, "blas"):  # more threads of BLAS would wait for each other after every block
        return _in_batches(queries, vectors, k, batch, lambda some: _scan(some, vectors, longest, k))


def _in_batches(
    queries: np.ndarray, vectors: np.ndarray, k: int, batch: int, search: Callable[[np.ndarray], Rows]
) -> Rows:
    """Return the k best documents of each query. `search` is called for at most `batch` queries at a time.

    Rows are ordered by descending score, then ascending document number, and padded with document -1 and score 0. A
    query of zeros finds no document. Raise ValueError unless queries are float32 [Q, D] and finite.
    """
    if queries.dtype != np.float32 or queries.ndim != 2 or queries.shape[1] != vectors.shape[1]:
        raise ValueError(f"queries must be float32 [Q, {vectors.shape[1]}], not {queries.dtype} {list(queries.shape)}")
    if not np.isfinite(queries).all():
        raise ValueError("queries must be finite, but one has NaN or infinity")
    docs, scores = np.full((len(queries), k), -1, np.int32), np.zeros((len(queries), k))
    nonzero = np.flatnonzero(queries.any(axis=1))
    for start in range(0, len(nonzero) if k else 0, batch):
        rows = nonzero[start : start + batch]
        docs[rows], scores[rows] = search(read_only(queries[rows]))
    scores[docs < 0] = 0.0
    return docs, scores


def _scan(queries: np.ndarray, vectors: np.ndarray, longest: float, k: int) -> Rows:
    slack, offsets = rounding(queries, longest), np.arange(len(queries) + 1) * _room(k)
    # A query whose products may overflow becomes 0 here; its infinite slack makes every document a candidate.
    finite = np.where(np.isfinite(slack)[:, None], queries, np.float32(0))

    def blocks(first: int, last: int) -> Iterator[tuple[int, np.ndarray]]:
        products = np.empty((last - first) * DOCUMENTS, np.float32)
        for base in range(0, len(vectors), DOCUMENTS):
            some = vectors[base : base + DOCUMENTS]
            block = products[: (last - first) * len(some)].reshape(last - first, len(some))
            yield base, np.matmul(finite[first:last], some.T, out=block)

    none = Candidates(np.empty(offsets[-1], np.int32), offsets)
    return _search(queries, vectors, slack, none, np.zeros(len(queries), np.int64), k, blocks)


def _best(queries: np.ndarray, vectors: np.ndarray, candidates: Candidates, k: int) -> Rows:
    count, none = len(queries), np.empty((len(queries), 0), np.float32)
    sizes, last_block = np.diff(candidates.offsets), lambda first, last: [(len(vectors), none[first:last])]
    return _search(queries, vectors, np.full(count, np.inf), candidates, sizes, k, last_block)


def _search(
    queries: np.ndarray, vectors: np.ndarray, slack: np.ndarray, candidates: Candidates, sizes: np.ndarray, k: int,
    blocks: Callable[[int, int], Iterable[tuple[int, np.ndarray]]],
) -> Rows:  # fmt: skip
    """Return the k best of the candidates and of the documents of blocks, ordered, and padded with the score -inf.

    candidates: room for those of each query; overwritten. sizes: int64 [Q], their number so far.
    blocks: yields (first document, block) for the queries first..last-1, up to the last document.
    """
    from retrievers.dense._vector_kernels import LANES, CandidateRows, ScoringRoom, search_block
    from retrievers.lexical._bm25_kernels import order_rows

    docs, scores = np.empty((len(queries), k), np.int32), np.empty((len(queries), k))
    found, thresholds = np.zeros(len(candidates.docs)), np.full(len(queries), -np.inf, np.float32)
    most = int(np.diff(candidates.offsets).max(initial=0))

    def search(first: int, last: int) -> None:
        mine, offsets = slice(first, last), candidates.offsets[first : last + 1]
        state = CandidateRows(candidates.docs, found, offsets, sizes[mine], thresholds[mine])
        room = ScoringRoom(np.empty(most), np.empty(vectors.shape[1]), np.empty(LANES))
        for base, block in blocks(first, last):
            search_block(block, base, queries[mine], vectors, slack[mine], state, docs[mine], scores[mine], room)
        order_rows(docs, scores, first, last)

    in_parts(len(queries), cores(), cores(), search)
    return docs, scores


def _room(k: int) -> int:
    return 4 * max(k, 64)  # with room for several times k candidates, the kernel seldom has to drop any


def rounding(queries: np.ndarray, longest: float) -> np.ndarray:
    """Return, as float64 [Q], the error bound of inner products computed in float32; infinity if they may overflow.

    For D dimensions and any order of summation, the bound is gamma * |query| * longest, with gamma = D u / (1 - D u)
    and u = 2 ** -24. Another 0.1 % covers float64's rounding; an added D * 2 ** -125 covers underflow.
    """
    width = queries.shape[1]
    reach = np.linalg.norm(queries.astype(np.float64), axis=1) * longest
    gamma = width * 2.0**-24 / (1 - width * 2.0**-24)
    return np.where(reach < 2.0**126, 1.001 * gamma * reach + width * 2.0**-125, np.inf)


def greatest_length(vectors: np.ndarray) -> float:
    """Return the length of the longest vector, 0 without vectors. Raise ValueError unless all vectors are finite."""
    blocks = (vectors[base : base + DOCUMENTS].astype(np.float64) for base in range(0, len(vectors), DOCUMENTS))
    lengths = [float(np.linalg.norm(block, axis=1).max()) for block in blocks]
    if not np.isfinite(lengths).all():
        raise ValueError("vectors must be finite, but one has NaN or infinity")
    return max(lengths, default=0.0)
