"""BM25 (Robertson & Zaragoza 2009, The Probabilistic Relevance Framework) over a precomputed sparse matrix.

Every posting's score is known once the corpus is: the index holds them (Lù 2024, BM25S, arXiv:2407.03618), and a
search only adds up, for each document, the scores of the query's terms.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from retrievers.base import BadInput, DocIds, Document, Progress, Query, Ranking, cores, did_you_mean
from retrievers.lexical.tokenize import Tokenizer, Tokens

LARGEST = 1e6  # of k1, delta, epsilon: far above any sense, far below overflow
CHUNK = 1 << 16  # postings weighed at a time, so that no temporary array is as long as the index


class _Parameters(NamedTuple):
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

    n: in how many of the N documents the term stands (at least 1); tf: how often it stands in this one (at least 1);
    norm: 1 - b + b * length / mean length.
    """

    idf: Callable[[np.ndarray, int, float], np.ndarray]
    weight: Callable[[np.ndarray, np.ndarray, _Parameters], np.ndarray]
    delta: float | None = None  # its default; None where the formula has no delta
    everywhere: bool = False  # idf * delta counts in every document, also where the term is absent
    library: str | None = None  # the class of rank_bm25 that computes the same


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


class BM25:
    """Ranks by the sum, over the query's terms, of a score for each document that holds the term.

    A term that stands twice in the query counts twice. A document that shares no term with the query is never
    returned; one that does always may be, be its score 0 or negative (`okapi` has such). Scores compare roughly
    across queries: longer queries reach higher ones.

    With N documents, n of them holding the term, tf its count in the document and norm = 1 - b + b * length / mean:

    - `lucene`: ln(1 + (N - n + .5) / (n + .5)) * tf / (tf + k1 * norm), always > 0. Without the constant factor
      (k1 + 1), which Lucene dropped in version 8: the order is the same, the scores are 2.5 times smaller at k1 = 1.5.
    - `okapi`: ln((N - n + .5) / (n + .5)) * tf * (k1 + 1) / (tf + k1 * norm); a negative idf, of a term in more than
      half of the documents, becomes `epsilon` times the mean idf of all terms (itself negative in tiny corpora).
    - `l`: ln((N + 1) / (n + .5)) * tf * (k1 + 1) * c / (k1 + c) with c = tf / norm + delta.
    - `plus`: ln((N + 1) / n) * (delta + tf * (k1 + 1) / (tf + k1 * norm)); a term of the query that the document
      lacks, but another holds, adds its idf * delta too.

    The last three are the scores of the library rank_bm25. It departs from Lv & Zhai (2011) where `l` multiplies by
    tf once more and where `plus` counts absent terms.

    k1: >= 0, how slowly repeats stop counting. b: 0 to 1, how much long documents are penalised.
    delta: >= 0, for `l` (None: 0.5) and `plus` (None: 1). epsilon: >= 0, for `okapi`.
    engine: `sparse`, or `rank_bm25`: the library itself as a slow reference (all variants but `lucene`).
    threads: None for one a core; changes the time, not the scores.
    """

    recorded_as = "retriever/bm25"
    version = 1
    packages = ("rank_bm25",)

    def __init__(
        self,
        tokenizer: Tokenizer,
        variant: str = "lucene",
        k1: float = 1.5,
        b: float = 0.75,
        delta: float | None = None,
        epsilon: float = 0.25,
        engine: str = "sparse",
        threads: int | None = None,
    ) -> None:
        _check_choice("variant", variant, VARIANTS)
        _check_choice("engine", engine, ENGINES)
        _check_number("k1", k1, LARGEST)
        _check_number("b", b, 1)
        _check_number("epsilon", epsilon, LARGEST)
        default = VARIANTS[variant].delta
        if delta is not None:
            _check_number("delta", delta, LARGEST)
            if default is None:
                raise BadInput(f"delta has no place in variant={variant}: leave it out, or use variant=l or plus.")
        if engine == "rank_bm25" and VARIANTS[variant].library is None:
            raise BadInput(f"engine=rank_bm25 has no variant={variant}: use okapi, l or plus, or engine=sparse.")
        if engine == "rank_bm25" and k1 == 0:
            raise BadInput("engine=rank_bm25 divides 0 by 0 at k1=0: use engine=sparse, or k1 above 0.")
        if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
            raise BadInput(f"threads is {threads!r}: give a number of threads, at least 1, or null for all cores.")
        self.tokenizer = tokenizer
        self.progress: Progress | None = None  # told how tokenising goes
        self._parameters = _Parameters(variant, k1, b, (default or 0.0) if delta is None else delta, epsilon)
        self._identity = {"version": self.version, "engine": engine, **self._parameters._asdict()}
        self._engine: _Engine = ENGINES[engine](self._parameters, threads)
        self._doc_ids: DocIds | None = None

    def index(self, documents: Sequence[Document], folder: Path) -> None:
        """Index `documents` (ascending doc_id, else ValueError) in `folder`, and be ready to search."""
        DocIds.save(folder, documents)
        self._engine.build(self.tokenizer([document.indexed_text for document in documents], self.progress), folder)
        (folder / "bm25.json").write_text(json.dumps(self._identity), encoding="ascii")
        self.load(folder)

    def load(self, folder: Path) -> None:
        """Memory-map what `index` left in `folder`; ValueError if that was by other parameters."""
        found = json.loads((folder / "bm25.json").read_text(encoding="ascii"))
        if found != self._identity:
            raise ValueError(f"the index in {folder} was made with {found}, not with {self._identity}")
        self._engine.load(folder)
        self._doc_ids = DocIds(folder)

    def search(self, queries: Sequence[Query], k: int) -> Ranking:
        """At most k >= 0 documents for each query, all queries in one go."""
        if self._doc_ids is None:
            raise RuntimeError("BM25.search needs index or load first")
        if k < 0:
            raise BadInput(f"k is {k}: give the number of documents to return, at least 0.")
        width = min(k, len(self._doc_ids))
        docs, scores = self._engine.search(self.tokenizer([query.text for query in queries], self.progress), width)
        return self._doc_ids.ranking(queries, docs, scores)


class _Engine(Protocol):
    def __init__(self, parameters: _Parameters, threads: int | None) -> None: ...

    def build(self, tokens: Tokens, folder: Path) -> None: ...

    def load(self, folder: Path) -> None: ...

    def search(self, queries: Tokens, width: int) -> tuple[np.ndarray, np.ndarray]:
        """(docs int32, scores float64), both [Q, width], as in Ranking, with documents by their place in the corpus."""
        ...


class _Postings(NamedTuple):
    """The index as _bm25_kernels describes it."""

    starts: np.ndarray
    docs: np.ndarray
    scores: np.ndarray
    floors: np.ndarray


class _Sparse:
    """Postings by term, each with its score, in memory maps; added up by compiled kernels on all cores."""

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
        """float64 [V] from the terms' document counts; 0 for a term of the vocabulary that no document holds."""
        idf = np.zeros(len(counts))
        used = counts > 0
        if used.any():
            idf[used] = VARIANTS[self._parameters.variant].idf(counts[used], n_docs, self._parameters.epsilon)
        return idf

    def _weigh(
        self, starts: np.ndarray, docs: np.ndarray, scores: np.ndarray, idf: np.ndarray, lengths: np.ndarray
    ) -> None:
        """Turn term frequencies into scores, in place."""
        if not len(docs):
            return
        p, weigh = self._parameters, VARIANTS[self._parameters.variant].weight
        norms = 1 - p.b + p.b * (lengths / lengths.mean())
        borders = np.unique(np.searchsorted(starts, np.arange(0, len(docs), CHUNK)))
        for first, last in pairwise([*borders.tolist(), len(idf)]):
            some = slice(starts[first], starts[last])
            weights = weigh(scores[some], norms[docs[some]], p)
            # Adding 0.0 makes 0.0 of -0.0, which the search keeps for documents that no term touched.
            scores[some] = np.repeat(idf[first:last], np.diff(starts[first : last + 1])) * weights + 0.0

    def load(self, folder: Path) -> None:
        vocabulary = json.loads((folder / "vocabulary.json").read_text(encoding="ascii"))
        self._terms = {term: i for i, term in enumerate(vocabulary)}
        self._postings = _Postings(*(_load(folder, name) for name in _Postings._fields))

    def search(self, queries: Tokens, width: int) -> tuple[np.ndarray, np.ndarray]:
        docs, scores = np.full((len(queries), width), -1, np.int32), np.zeros((len(queries), width))
        terms, offsets = self._known(queries)
        if width == 0 or not len(terms):
            return docs, scores
        from retrievers.lexical import _bm25_kernels as lexical__bm25_kernels

        index = self._postings

        def run(first: int, last: int) -> None:
            lexical__bm25_kernels.search(
                index.starts, index.docs, index.scores, index.floors, terms, offsets, first, last, docs, scores
            )
            # Rows come by ascending document: a stable sort leaves ties that way.
            order = np.argsort(-scores[first:last], axis=1, kind="stable")
            docs[first:last] = np.take_along_axis(docs[first:last], order, axis=1)
            scores[first:last] = np.take_along_axis(scores[first:last], order, axis=1)

        # Several parts a thread, since queries differ in cost.
        borders = np.linspace(0, len(queries), 1 + min(8 * self._threads, len(queries))).astype(int).tolist()
        with ThreadPoolExecutor(self._threads) as pool:
            list(pool.map(run, borders[:-1], borders[1:]))
        scores[docs < 0] = 0.0
        return docs, scores

    def _known(self, queries: Tokens) -> tuple[np.ndarray, np.ndarray]:
        """The queries' terms as the index numbers them, without those that it does not hold: (terms, offsets)."""
        numbers = np.array([self._terms.get(term, -1) for term in queries.vocabulary], np.int64)
        terms = numbers[queries.ids]
        offsets = np.concatenate([[0], np.cumsum(terms >= 0)])[queries.offsets]
        return terms[terms >= 0], offsets


class _Library:
    """The library rank_bm25 with the same candidates and the same order: a reference, slow by design."""

    def __init__(self, parameters: _Parameters, threads: int | None) -> None:
        self._parameters = parameters
        self._scorer: Any = None

    def build(self, tokens: Tokens, folder: Path) -> None:
        tokens.save(folder)

    def load(self, folder: Path) -> None:
        import rank_bm25

        p = self._parameters
        tokens = Tokens.load(folder)
        if not len(tokens.ids):  # the library divides by the number of terms; without any, nothing is ever found
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
            with np.errstate(invalid="ignore"):  # at b = 1 it divides 0 by 0 for empty documents, no candidates
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
