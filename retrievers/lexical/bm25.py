"""BM25 (Robertson & Zaragoza 2009, The Probabilistic Relevance Framework) over a precomputed sparse matrix.

The score of every posting depends on the corpus alone, so the index stores it (Lù 2024, BM25S, arXiv:2407.03618). A
search only sums, for each document, the scores of the query's terms.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol

import numpy as np

from retrievers.base import (
    AtMost,
    BadInput,
    DocIds,
    Document,
    Progress,
    Query,
    Ranking,
    Threads,
    cores,
    did_you_mean,
)
from retrievers.lexical.tokenize import Tokenizer, Tokens

LARGEST = 1e6  # limit of k1, delta and epsilon: far above useful values, far below overflow
Parameter = Annotated[float, AtMost(LARGEST, "beyond it, scores no longer change")]
CHUNK = 1 << 16  # postings scored at a time, so that no temporary array is as long as the index


class _Parameters(NamedTuple):
    """The arguments of the formula; `delta` is 0 where the variant has none."""

    variant: str
    k1: float
    b: float
    delta: float
    epsilon: float


def _okapi_idf(n: np.ndarray, total: int, epsilon: float) -> np.ndarray:
    idf = np.log(total - n + 0.5) - np.log(n + 0.5)
    return np.where(idf < 0, epsilon * idf.mean(), idf)


def _l_weight(tf: np.ndarray, norm: np.ndarray, p: _Parameters) -> np.ndarray:
    boosted = tf / norm + p.delta
    return tf * (p.k1 + 1) * boosted / (p.k1 + boosted)


@dataclass(frozen=True)
class _Variant:
    """A posting scores idf(n, N, epsilon) * weight(tf, norm, parameters).

    n: number of documents with the term (at least 1), of N documents.
    tf: number of times the term occurs in this document (at least 1).
    norm: 1 - b + b * length / mean length.
    """

    idf: Callable[[np.ndarray, int, float], np.ndarray]
    weight: Callable[[np.ndarray, np.ndarray, _Parameters], np.ndarray]
    delta: float | None = None  # default value; None: the formula has no delta
    everywhere: bool = False  # whether idf * delta is added to every document, also where the term is absent
    library: str | None = None  # class of rank_bm25 that computes the same scores


VARIANTS = {
    "lucene": _Variant(
        idf=lambda n, total, _: np.log1p((total - n + 0.5) / (n + 0.5)),
        weight=lambda tf, norm, p: tf / (tf + p.k1 * norm),
    ),
    "okapi": _Variant(
        idf=_okapi_idf,
        weight=lambda tf, norm, p: tf * (p.k1 + 1) / (tf + p.k1 * norm),
        library="BM25Okapi",
    ),
    "l": _Variant(
        idf=lambda n, total, _: math.log(total + 1) - np.log(n + 0.5),
        weight=_l_weight,
        delta=0.5,
        library="BM25L",
    ),
    "plus": _Variant(
        idf=lambda n, total, _: np.log((total + 1) / n),
        weight=lambda tf, norm, p: tf * (p.k1 + 1) / (tf + p.k1 * norm),
        delta=1.0,
        everywhere=True,
        library="BM25Plus",
    ),
}


@dataclass(eq=False)
class BM25:
    """Ranks by the sum, over the query's terms, of a score for each document that has the term.

    A term that occurs twice in the query counts twice. A document that shares no term with the query is never
    returned; a document that shares one is a candidate even if its score is 0 or negative (which `okapi` can give).
    Scores are only roughly comparable across queries: longer queries reach higher ones.

    With N documents, of which n have the term, tf its count in the document and norm = 1 - b + b * length / mean:

    - `lucene`: ln(1 + (N - n + .5) / (n + .5)) * tf / (tf + k1 * norm), always > 0. Without the constant factor
      (k1 + 1), which Lucene dropped in version 8: the order is the same, the scores are 2.5 times smaller at k1 = 1.5.
    - `okapi`: ln((N - n + .5) / (n + .5)) * tf * (k1 + 1) / (tf + k1 * norm). A negative idf, of a term in more than
      half of the documents, becomes `epsilon` times the mean idf of all terms (itself negative in tiny corpora).
    - `l`: ln((N + 1) / (n + .5)) * tf * (k1 + 1) * c / (k1 + c) with c = tf / norm + delta.
    - `plus`: ln((N + 1) / n) * (delta + tf * (k1 + 1) / (tf + k1 * norm)). A query term that occurs in the corpus but
      not in the document adds its idf * delta too.

    The last three are the scores of the library rank_bm25. It departs from Lv & Zhai (2011) in two places: `l`
    multiplies by tf once more, and `plus` counts absent terms.

    tokenizer: turns documents and queries into terms.
    variant: lucene, okapi, l or plus.
    k1: how slowly repeated terms saturate, at least 0.
    b: how much long documents are penalised, 0 to 1.
    delta: for `l` (None: 0.5) and `plus` (None: 1), at least 0.
    epsilon: for `okapi`, at least 0.
    engine: `sparse`, or `rank_bm25`: the library itself as a slow reference, for all variants except `lucene`.
    threads: number of search threads, at least 1; None: one per core. Changes the running time, not the scores.
    """

    tokenizer: Tokenizer
    variant: str = "lucene"
    k1: Parameter = 1.5
    b: Annotated[float, AtMost(1, "it is a share")] = 0.75
    delta: Parameter | None = None
    epsilon: Parameter = 0.25
    engine: str = "sparse"
    threads: Threads | None = None
    progress: Progress | None = field(default=None, init=False, repr=False)  # called while texts are tokenized

    recorded_as = "retriever/bm25"
    version = 1
    packages = ("rank_bm25",)

    def __post_init__(self) -> None:
        self._check()
        delta = VARIANTS[self.variant].delta if self.delta is None else self.delta
        self._parameters = _Parameters(self.variant, self.k1, self.b, 0.0 if delta is None else delta, self.epsilon)
        self._identity = {"version": self.version, "engine": self.engine, **self._parameters._asdict()}
        self._engine: _Engine = ENGINES[self.engine](self._parameters, self.threads)
        self._doc_ids: DocIds | None = None

    def _check(self) -> None:
        _check_choice("variant", self.variant, VARIANTS)
        _check_choice("engine", self.engine, ENGINES)
        _check_number("k1", self.k1, LARGEST)
        _check_number("b", self.b, 1)
        _check_number("epsilon", self.epsilon, LARGEST)
        variant, threads = VARIANTS[self.variant], self.threads
        if self.delta is not None:
            _check_number("delta", self.delta, LARGEST)
            if variant.delta is None:
                raise BadInput(f"variant={self.variant} has no delta: remove delta, or use variant=l or variant=plus.")
        if self.engine == "rank_bm25" and variant.library is None:
            raise BadInput(
                f"engine=rank_bm25 has no variant={self.variant}: use okapi, l or plus, or set engine=sparse."
            )
        if self.engine == "rank_bm25" and self.k1 == 0:
            raise BadInput("engine=rank_bm25 divides 0 by 0 at k1=0: use engine=sparse, or k1 above 0.")
        if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
            raise BadInput(f"threads is {threads!r}: give a number of threads, at least 1, or null for all cores.")

    def index(self, documents: Sequence[Document], folder: Path) -> None:
        """Index `documents` (ascending doc_id, else ValueError) in `folder`; `search` can then be called."""
        DocIds.save(folder, documents)
        self._engine.build(self.tokenizer([document.indexed_text for document in documents], self.progress), folder)
        (folder / "bm25.json").write_text(json.dumps(self._identity), encoding="ascii")
        self.load(folder)

    def load(self, folder: Path) -> None:
        """Memory-map the index in `folder`; ValueError if it was made with other parameters."""
        identity = json.loads((folder / "bm25.json").read_text(encoding="ascii"))
        if identity != self._identity:
            raise ValueError(f"the index in {folder} was made with {identity}, not with {self._identity}")
        self._engine.load(folder)
        self._doc_ids = DocIds(folder)

    def search(self, queries: Sequence[Query], k: int) -> Ranking:
        """At most k >= 0 documents per query."""
        if self._doc_ids is None:
            raise RuntimeError("BM25.search needs index or load first")
        if k < 0:
            raise BadInput(f"k is {k}: give the number of documents to return, at least 0.")
        width = min(k, len(self._doc_ids))
        docs, scores = self._engine.search(self.tokenizer([query.text for query in queries], self.progress), width)
        return self._doc_ids.ranking(queries, docs, scores)


class _Engine(Protocol):
    """Builds an index of token ids in a folder and searches it."""

    def __init__(self, parameters: _Parameters, threads: int | None) -> None: ...

    def build(self, tokens: Tokens, folder: Path) -> None: ...

    def load(self, folder: Path) -> None: ...

    def search(self, queries: Tokens, width: int) -> tuple[np.ndarray, np.ndarray]:
        """(docs int32, scores float64), both [Q, width], as in Ranking; docs are indices into the corpus."""
        ...


class _Postings(NamedTuple):
    """The index, in the layout that _bm25_kernels describes."""

    starts: np.ndarray
    docs: np.ndarray
    scores: np.ndarray
    floors: np.ndarray


class _Sparse:
    """Precomputed scores per posting in memory maps, summed by compiled kernels on all cores."""

    def __init__(self, parameters: _Parameters, threads: int | None) -> None:
        self._parameters = parameters
        self._threads = threads or cores()
        self._terms: dict[str, int] = {}

    def build(self, tokens: Tokens, folder: Path) -> None:
        from retrievers.lexical._bm25_kernels import count_postings, fill_postings

        ids, offsets = _read_only(tokens.ids), _read_only(tokens.offsets)
        starts = _read_only(count_postings(ids, offsets, len(tokens.vocabulary)))
        docs, scores = fill_postings(ids, offsets, starts)
        idf = self._idf(np.diff(starts), len(tokens))
        self._weigh(starts, docs, scores, idf, np.diff(offsets))
        floors = idf * (self._parameters.delta if VARIANTS[self._parameters.variant].everywhere else 0.0)
        (folder / "vocabulary.json").write_text(json.dumps(tokens.vocabulary), encoding="ascii")
        for name, values in _Postings(starts, docs, scores, floors)._asdict().items():
            np.save(folder / f"{name}.npy", values)

    def _idf(self, counts: np.ndarray, n_docs: int) -> np.ndarray:
        """The idf of each term, float64 [V]; 0 for a term that occurs in no document. counts: documents per term."""
        idf = np.zeros(len(counts))
        used = counts > 0
        if used.any():
            idf[used] = VARIANTS[self._parameters.variant].idf(counts[used], n_docs, self._parameters.epsilon)
        return idf

    def _weigh(
        self, starts: np.ndarray, docs: np.ndarray, scores: np.ndarray, idf: np.ndarray, lengths: np.ndarray
    ) -> None:
        """Turn term frequencies into scores, in place.

        starts, docs: the postings, as in _Postings.
        scores: float64 [P], the term frequency of each posting; receives its score.
        idf: float64 [V].
        lengths: int [N], terms per document.
        """
        if not len(docs):
            return
        p, weigh = self._parameters, VARIANTS[self._parameters.variant].weight
        norms = 1 - p.b + p.b * (lengths / lengths.mean())
        borders = np.unique(np.searchsorted(starts, np.arange(0, len(docs), CHUNK)))
        for first, last in pairwise([*borders.tolist(), len(idf)]):
            chunk = slice(starts[first], starts[last])
            weights = weigh(scores[chunk], norms[docs[chunk]], p)
            # Adding 0.0 turns -0.0 into 0.0: the search uses -0.0 for documents that no term touched.
            scores[chunk] = np.repeat(idf[first:last], np.diff(starts[first : last + 1])) * weights + 0.0

    def load(self, folder: Path) -> None:
        vocabulary = json.loads((folder / "vocabulary.json").read_text(encoding="ascii"))
        self._terms = {term: i for i, term in enumerate(vocabulary)}
        self._postings = _Postings(*(_load(folder, name) for name in _Postings._fields))

    def search(self, queries: Tokens, width: int) -> tuple[np.ndarray, np.ndarray]:
        docs, scores = np.full((len(queries), width), -1, np.int32), np.zeros((len(queries), width))
        terms, offsets = self._known(queries)
        if width == 0 or not len(terms):
            return docs, scores
        from retrievers.lexical import _bm25_kernels

        index = self._postings

        def run(first: int, last: int) -> None:
            _bm25_kernels.search(
                index.starts, index.docs, index.scores, index.floors, terms, offsets, first, last, docs, scores
            )
            # Rows come sorted by document: a stable sort leaves ties in that order.
            order = np.argsort(-scores[first:last], axis=1, kind="stable")
            docs[first:last] = np.take_along_axis(docs[first:last], order, axis=1)
            scores[first:last] = np.take_along_axis(scores[first:last], order, axis=1)

        # Several parts per thread, since queries differ in cost.
        borders = np.linspace(0, len(queries), 1 + min(8 * self._threads, len(queries))).astype(int).tolist()
        with ThreadPoolExecutor(self._threads) as pool:
            list(pool.map(run, borders[:-1], borders[1:]))
        scores[docs < 0] = 0.0
        return docs, scores

    def _known(self, queries: Tokens) -> tuple[np.ndarray, np.ndarray]:
        """The queries' terms as numbers of the index, without unknown terms: (terms, offsets), as in Tokens."""
        numbers = np.array([self._terms.get(term, -1) for term in queries.vocabulary], np.int64)
        terms = numbers[queries.ids]
        offsets = np.concatenate([[0], np.cumsum(terms >= 0)])[queries.offsets]
        return terms[terms >= 0], offsets


class _Library:
    """The library rank_bm25 with the same candidates and the same order of ties: a slow reference."""

    def __init__(self, parameters: _Parameters, threads: int | None) -> None:
        self._parameters = parameters
        self._scorer: Any = None

    def build(self, tokens: Tokens, folder: Path) -> None:
        tokens.save(folder)

    def load(self, folder: Path) -> None:
        import rank_bm25

        p = self._parameters
        tokens = Tokens.load(folder)
        if not len(tokens.ids):  # the library would divide by zero; without terms nothing is ever found
            self._scorer = None
            return
        extra = {"epsilon": p.epsilon} if p.variant == "okapi" else {"delta": p.delta}
        make = getattr(rank_bm25, str(VARIANTS[p.variant].library))
        self._scorer = make(tokens.lists(), k1=p.k1, b=p.b, **extra)

    def search(self, queries: Tokens, width: int) -> tuple[np.ndarray, np.ndarray]:
        docs, scores = np.full((len(queries), width), -1, np.int32), np.zeros((len(queries), width))
        if self._scorer is None:
            return docs, scores
        for row, terms in enumerate(queries.lists()):
            unique = set(terms)
            shares = np.array([not unique.isdisjoint(doc) for doc in self._scorer.doc_freqs])
            candidates = np.flatnonzero(shares)
            # At b = 1 the library divides 0 by 0 for empty documents, which are no candidates.
            with np.errstate(invalid="ignore"):
                values = self._scorer.get_scores(terms)[candidates]
            best = np.argsort(-values, kind="stable")[:width]  # stable: ties stay in ascending order of doc_id
            docs[row, : len(best)] = candidates[best]
            scores[row, : len(best)] = values[best]
        return docs, scores


ENGINES: dict[str, type[_Engine]] = {"sparse": _Sparse, "rank_bm25": _Library}


def _check_choice(name: str, value: object, known: dict[str, Any]) -> None:
    if value not in known:
        raise BadInput(f"{name} is {value!r}: choose one of {', '.join(known)}.{did_you_mean(str(value), known)}")


def _check_number(name: str, value: object, largest: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= largest:
        raise BadInput(f"{name} is {value!r}: give a number from 0 to {largest:,.0f}.")


def _load(folder: Path, name: str) -> np.ndarray:
    return np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)


def _read_only(values: np.ndarray) -> np.ndarray:
    view = values.view()
    view.flags.writeable = False
    return view
