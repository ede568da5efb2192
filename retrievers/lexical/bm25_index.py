"""What BM25 keeps of a corpus and searches: the formulas, the precomputed scores, and the library rank_bm25.

The score of every posting depends on the corpus alone, so the index stores it (Lù 2024, BM25S, arXiv:2407.03618). A
search only sums, for each document, the scores of the query's terms.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from retrievers.base import cores
from retrievers.lexical import bm25_shards
from retrievers.lexical.bm25_shards import Columns, CorpusStatistics, ShardTerms, mean_length
from retrievers.lexical.tokenize import Tokens

CHUNK = 1 << 16  # postings scored at a time, so that no temporary array is as long as the index


class Parameters(NamedTuple):
    """The arguments of the formula; `delta` is 0 where the variant has none."""

    variant: str
    k1: float
    b: float
    delta: float
    epsilon: float


def _okapi_idf(n: np.ndarray, total: int, epsilon: float) -> np.ndarray:
    idf = np.log(total - n + 0.5) - np.log(n + 0.5)
    return np.where(idf < 0, epsilon * idf.mean(), idf)


def _l_weight(tf: np.ndarray, norm: np.ndarray, p: Parameters) -> np.ndarray:
    boosted = tf / norm + p.delta
    return tf * (p.k1 + 1) * boosted / (p.k1 + boosted)


@dataclass(frozen=True)
class Variant:
    """A posting scores idf(n, N, epsilon) * weight(tf, norm, parameters).

    n: number of documents with the term (at least 1), of N documents.
    tf: number of times the term occurs in this document (at least 1).
    norm: 1 - b + b * length / mean length.
    """

    idf: Callable[[np.ndarray, int, float], np.ndarray]
    weight: Callable[[np.ndarray, np.ndarray, Parameters], np.ndarray]
    delta: float | None = None  # default value; None: the formula has no delta
    everywhere: bool = False  # whether idf * delta is added to every document, also where the term is absent
    library: str | None = None  # class of rank_bm25 that computes the same scores


VARIANTS = {
    "lucene": Variant(
        idf=lambda n, total, _: np.log1p((total - n + 0.5) / (n + 0.5)),
        weight=lambda tf, norm, p: tf / (tf + p.k1 * norm),
    ),
    "okapi": Variant(
        idf=_okapi_idf,
        weight=lambda tf, norm, p: tf * (p.k1 + 1) / (tf + p.k1 * norm),
        library="BM25Okapi",
    ),
    "l": Variant(
        idf=lambda n, total, _: math.log(total + 1) - np.log(n + 0.5),
        weight=_l_weight,
        delta=0.5,
        library="BM25L",
    ),
    "plus": Variant(
        idf=lambda n, total, _: np.log((total + 1) / n),
        weight=lambda tf, norm, p: tf * (p.k1 + 1) / (tf + p.k1 * norm),
        delta=1.0,
        everywhere=True,
        library="BM25Plus",
    ),
}


def idf_of(counts: np.ndarray, n_docs: int, parameters: Parameters) -> np.ndarray:
    """Return the idf of each term, float64 [V]; 0 for a term that occurs in no document. counts: documents per term."""
    found = np.zeros(len(counts))
    used = counts > 0
    if used.any():
        found[used] = VARIANTS[parameters.variant].idf(counts[used], n_docs, parameters.epsilon)
    return found


class SparseEngine:
    """A precomputed score for each posting, in memory maps that compiled kernels sum.

    The postings are written in the layout that _bm25_kernels describes. An index of the whole corpus has its
    vocabulary.json and floors.npy, too; one of a shard has terms.npy, the numbers of its terms in the corpus.
    """

    def __init__(self, parameters: Parameters, threads: int | None) -> None:
        self._parameters = parameters
        self._threads = threads or cores()
        self._columns: Callable[[tuple[str, ...]], tuple[Columns, np.ndarray]]

    def build(self, tokens: Tokens, folder: Path) -> None:
        starts = _counted(tokens.ids, tokens.offsets, len(tokens.vocabulary))
        idf = idf_of(np.diff(starts), len(tokens), self._parameters)
        (folder / "vocabulary.json").write_text(json.dumps(tokens.vocabulary), encoding="ascii")
        np.save(folder / "floors.npy", idf * self._floor)
        self._save(tokens, starts, idf, mean_length(len(tokens.ids), len(tokens)), folder)

    def survey(self, tokens: Tokens, folder: Path) -> None:
        """Write what is to be summed over all shards."""
        bm25_shards.write_survey(tokens, np.diff(_counted(tokens.ids, tokens.offsets, len(tokens.vocabulary))), folder)

    def build_shard(self, tokens: Tokens, survey: Path, summary: Path, folder: Path) -> None:
        """Write the index of a shard, weighed by the statistics of the corpus."""
        corpus = bm25_shards.corpus_statistics(summary)
        ids, numbers = bm25_shards.by_number(tokens, corpus.numbers_of(survey))
        starts = _counted(ids, tokens.offsets, len(numbers))
        idf = _corpus_idf(corpus, self._parameters)[numbers]
        np.save(folder / "terms.npy", numbers)
        mine = Tokens(tokens.vocabulary, ids, tokens.offsets)
        self._save(mine, starts, idf, corpus.mean_length, folder)

    def _save(self, tokens: Tokens, starts: np.ndarray, idf: np.ndarray, mean: float, folder: Path) -> None:
        """Write the postings of documents. idf: float64 [V]. mean: length of a document."""
        from retrievers.lexical._bm25_kernels import fill_postings

        docs, scores = fill_postings(_read_only(tokens.ids), _read_only(tokens.offsets), starts)
        if len(docs):
            self._weigh(starts, docs, scores, idf, np.diff(tokens.offsets) / mean)
        for name, values in (("starts", starts), ("docs", docs), ("scores", scores)):
            np.save(folder / f"{name}.npy", values)

    def _weigh(
        self, starts: np.ndarray, docs: np.ndarray, scores: np.ndarray, idf: np.ndarray, lengths: np.ndarray
    ) -> None:
        """Turn term frequencies into scores, in place.

        starts, docs: the postings.
        scores: float64 [P], the term frequency of each posting; receives its score.
        idf: float64 [V].
        lengths: float64 [N], terms per document over their mean.
        """
        p, weigh = self._parameters, VARIANTS[self._parameters.variant].weight
        norms = 1 - p.b + p.b * lengths
        borders = np.unique(np.searchsorted(starts, np.arange(0, len(docs), CHUNK)))
        for first, last in pairwise([*borders.tolist(), len(idf)]):
            chunk = slice(starts[first], starts[last])
            weights = weigh(scores[chunk], norms[docs[chunk]], p)
            # Adding 0.0 turns -0.0 into 0.0: the search uses -0.0 for documents that no term touched.
            scores[chunk] = np.repeat(idf[first:last], np.diff(starts[first : last + 1])) * weights + 0.0

    @property
    def _floor(self) -> float:
        """What a term adds to every document, over its idf."""
        return self._parameters.delta if VARIANTS[self._parameters.variant].everywhere else 0.0

    def load(self, folder: Path) -> None:
        vocabulary = json.loads((folder / "vocabulary.json").read_text(encoding="ascii"))
        numbers = {term: i for i, term in enumerate(vocabulary)}
        starts = self._opened(folder)
        columns = Columns(starts[:-1], starts[1:], _load(folder, "floors"))
        self._columns = lambda terms: (columns, np.array([numbers.get(term, -1) for term in terms], np.int64))

    def load_shard(self, folder: Path, summary: Path) -> None:
        """Open what `build_shard` wrote."""
        corpus, numbers = bm25_shards.corpus_statistics(summary), _load(folder, "terms")
        idf = _corpus_idf(corpus, self._parameters) if self._floor else np.zeros(0)
        self._columns = ShardTerms(numbers, self._opened(folder), corpus, idf, self._floor).columns

    def _opened(self, folder: Path) -> np.ndarray:
        """Open the postings; return where those of each term start, int64 [V + 1]."""
        self._docs, self._scores = _load(folder, "docs"), _load(folder, "scores")
        return _load(folder, "starts")

    def search(self, queries: Tokens, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the `width` best documents of each query: (numbers in the corpus int32 [Q, width], -1 pads; scores
        float64 [Q, width], 0 at pads)."""
        from retrievers.lexical import _bm25_kernels

        docs, scores = np.full((len(queries), width), -1, np.int32), np.zeros((len(queries), width))
        columns, places, offsets = self._known(queries)
        if width == 0 or not len(places):
            return docs, scores
        columns = Columns(*map(_read_only, columns))

        def run(first: int, last: int) -> None:
            _bm25_kernels.search_postings(
                *columns, self._docs, self._scores, places, offsets, first, last, docs, scores
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

    def _known(self, queries: Tokens) -> tuple[Columns, np.ndarray, np.ndarray]:
        """Return the columns, and the terms of each query among them without unknown ones: places and offsets."""
        columns, places = self._columns(queries.vocabulary)
        terms = places[queries.ids]
        offsets = np.concatenate([[0], np.cumsum(terms >= 0)])[queries.offsets]
        return columns, terms[terms >= 0], offsets


class LibraryEngine:
    """The library rank_bm25 with the same candidates and the same order of ties: a slow reference."""

    def __init__(self, parameters: Parameters, threads: int | None) -> None:
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
        """As in SparseEngine."""
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


ENGINES: dict[str, type[SparseEngine] | type[LibraryEngine]] = {"sparse": SparseEngine, "rank_bm25": LibraryEngine}


@functools.lru_cache(maxsize=2)  # the shards that a process works on share it
def _corpus_idf(summary: CorpusStatistics, parameters: Parameters) -> np.ndarray:
    """Return the idf of each term of a corpus, float64 [V], computed of all at once: each is as in one index."""
    return idf_of(summary.counts, summary.documents, parameters)


def _counted(ids: np.ndarray, offsets: np.ndarray, n_terms: int) -> np.ndarray:
    """Return where each term's postings start, int64 [n_terms + 1]; read-only."""
    from retrievers.lexical._bm25_kernels import count_postings

    return _read_only(count_postings(_read_only(ids), _read_only(offsets), n_terms))


def _load(folder: Path, name: str) -> np.ndarray:
    return np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)


def _read_only(values: np.ndarray) -> np.ndarray:
    view = values.view()
    view.flags.writeable = False
    return view
