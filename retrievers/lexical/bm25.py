"""BM25 (Robertson & Zaragoza 2009, The Probabilistic Relevance Framework) over a precomputed sparse matrix.

The score of every posting depends on the corpus alone, so the index stores it (Lù 2024, BM25S, arXiv:2407.03618). A
search only sums, for each document, the scores of the query's terms.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Protocol

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
from retrievers.lexical import bm25_shards
from retrievers.lexical.bm25_formula import VARIANTS, Parameters, idf_of
from retrievers.lexical.bm25_shards import Columns, ShardTerms, Summary, mean_length
from retrievers.lexical.tokenize import Tokenizer, Tokens

LARGEST = 1e6  # limit of k1, delta and epsilon: far above useful values, far below overflow
Parameter = Annotated[float, AtMost(LARGEST, "beyond it, scores no longer change")]
CHUNK = 1 << 16  # postings scored at a time, so that no temporary array is as long as the index


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
    sharding = "summed"
    surveyed_by = ("tokenizer",)

    def __post_init__(self) -> None:
        self._check()
        delta = VARIANTS[self.variant].delta if self.delta is None else self.delta
        self._parameters = Parameters(self.variant, self.k1, self.b, 0.0 if delta is None else delta, self.epsilon)
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
        self._engine.build(self._tokens(documents), folder)
        (folder / "bm25.json").write_text(json.dumps(self._identity), encoding="ascii")
        self.load(folder)

    def load(self, folder: Path) -> None:
        """Memory-map the index in `folder`; ValueError if it was made with other parameters."""
        self._require(folder, self._identity)
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

    def check_sharding(self) -> None:
        """BadInput for engine=rank_bm25, whose index cannot be cut."""
        if not isinstance(self._engine, _Sparse):
            raise BadInput(
                f"engine={self.engine} keeps one index of the whole corpus: use cluster.shard=null, or engine=sparse."
            )

    def survey(self, documents: Sequence[Document], folder: Path) -> None:
        """As in Summed."""
        self._shards.survey(self._tokens(documents), folder)

    def summarise(self, surveys: Sequence[Path], folder: Path) -> None:
        """As in Summed. Memory holds the vocabulary of the corpus and one survey."""
        bm25_shards.summarise(surveys, folder)

    def index_shard(self, documents: Sequence[Document], survey: Path, summary: Path, folder: Path) -> None:
        """As in Summed."""
        DocIds.save(folder, documents)
        self._shards.build_shard(self._tokens(documents), survey, summary, folder)
        (folder / "bm25.json").write_text(json.dumps(self._shard_identity), encoding="ascii")

    def load_shard(self, folder: Path, summary: Path) -> None:
        """As in Summed; ValueError if the index was made with other parameters."""
        self._require(folder, self._shard_identity)
        self._shards.load_shard(folder, summary)
        self._doc_ids = DocIds(folder)

    @property
    def _shards(self) -> _Sparse:
        self.check_sharding()
        assert isinstance(self._engine, _Sparse)
        return self._engine

    @property
    def _shard_identity(self) -> dict[str, Any]:
        return {**self._identity, "shard": True}

    def _tokens(self, documents: Sequence[Document]) -> Tokens:
        return self.tokenizer([document.indexed_text for document in documents], self.progress)

    def _require(self, folder: Path, identity: dict[str, Any]) -> None:
        """ValueError unless the index in a folder was made with these parameters."""
        found = json.loads((folder / "bm25.json").read_text(encoding="ascii"))
        if found != identity:
            raise ValueError(f"the index in {folder} was made with {found}, not with {identity}")


class _Engine(Protocol):
    """Builds an index of token ids in a folder and searches it."""

    def __init__(self, parameters: Parameters, threads: int | None) -> None: ...

    def build(self, tokens: Tokens, folder: Path) -> None: ...

    def load(self, folder: Path) -> None: ...

    def search(self, queries: Tokens, width: int) -> tuple[np.ndarray, np.ndarray]:
        """(docs int32, scores float64), both [Q, width], as in Ranking; docs are indices into the corpus."""
        ...


class _Sparse:
    """Precomputed scores per posting in memory maps, summed by compiled kernels on all cores.

    starts.npy, docs.npy and scores.npy are laid out as _bm25_kernels describes. An index of the whole corpus has its
    vocabulary.json and floors.npy, too; one of a shard has terms.npy, the numbers of its terms in the corpus.
    """

    def __init__(self, parameters: Parameters, threads: int | None) -> None:
        self._parameters = parameters
        self._threads = threads or cores()
        self._columns: Callable[[tuple[str, ...]], tuple[Columns, np.ndarray]]

    def build(self, tokens: Tokens, folder: Path) -> None:
        starts = _counted(tokens.ids, tokens.offsets, len(tokens.vocabulary))
        idf = idf_of(np.diff(starts), len(tokens), self._parameters)
        self._fill(tokens.ids, tokens.offsets, starts, idf, mean_length(len(tokens.ids), len(tokens)), folder)
        (folder / "vocabulary.json").write_text(json.dumps(tokens.vocabulary), encoding="ascii")
        np.save(folder / "floors.npy", idf * self._floor)

    def survey(self, tokens: Tokens, folder: Path) -> None:
        """Write what is to be summed over all shards."""
        bm25_shards.survey(tokens, np.diff(_counted(tokens.ids, tokens.offsets, len(tokens.vocabulary))), folder)

    def build_shard(self, tokens: Tokens, survey: Path, summary: Path, folder: Path) -> None:
        """The index of a shard, weighed by the statistics of the corpus."""
        corpus = bm25_shards.opened(summary)
        ids, numbers = bm25_shards.by_number(tokens, corpus.numbers_of(survey))
        starts = _counted(ids, tokens.offsets, len(numbers))
        idf = _corpus_idf(corpus, self._parameters)[numbers]
        self._fill(ids, tokens.offsets, starts, idf, corpus.mean_length, folder)
        np.save(folder / "terms.npy", numbers)

    def _fill(
        self, ids: np.ndarray, offsets: np.ndarray, starts: np.ndarray, idf: np.ndarray, mean: float, folder: Path
    ) -> None:
        """Write the postings of documents. ids, offsets: as in Tokens. idf: float64 [V]. mean: length of a document."""
        from retrievers.lexical._bm25_kernels import fill_postings

        docs, scores = fill_postings(_read_only(ids), _read_only(offsets), starts)
        if len(docs):
            self._weigh(starts, docs, scores, idf, np.diff(offsets) / mean)
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
        starts = self._open(folder)
        columns = Columns(starts[:-1], starts[1:], _load(folder, "floors"))
        self._columns = lambda terms: (columns, np.array([numbers.get(term, -1) for term in terms], np.int64))

    def load_shard(self, folder: Path, summary: Path) -> None:
        """Open what `build_shard` wrote."""
        corpus = bm25_shards.opened(summary)
        idf = _corpus_idf(corpus, self._parameters) if self._floor else np.zeros(0)
        self._columns = ShardTerms(_load(folder, "terms"), self._open(folder), corpus, idf, self._floor).columns

    def _open(self, folder: Path) -> np.ndarray:
        """Memory-map the postings; where those of each term start."""
        self._docs, self._scores = _load(folder, "docs"), _load(folder, "scores")
        return _load(folder, "starts")

    def search(self, queries: Tokens, width: int) -> tuple[np.ndarray, np.ndarray]:
        docs, scores = np.full((len(queries), width), -1, np.int32), np.zeros((len(queries), width))
        columns, terms, offsets = self._known(queries)
        if width == 0 or not len(terms):
            return docs, scores
        from retrievers.lexical import _bm25_kernels

        def run(first: int, last: int) -> None:
            _bm25_kernels.search(*columns, self._docs, self._scores, terms, offsets, first, last, docs, scores)
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
        """(columns, terms, offsets): the queries' terms as columns, without unknown terms; offsets as in Tokens."""
        columns, places = self._columns(queries.vocabulary)
        terms = places[queries.ids]
        offsets = np.concatenate([[0], np.cumsum(terms >= 0)])[queries.offsets]
        return Columns(*map(_read_only, columns)), terms[terms >= 0], offsets


class _Library:
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


@functools.lru_cache(maxsize=2)  # the shards that a process works on share it
def _corpus_idf(summary: Summary, parameters: Parameters) -> np.ndarray:
    """The idf of each term of a corpus, float64 [V]: computed of all at once, so that each is as in one index."""
    return idf_of(summary.counts, summary.documents, parameters)


def _counted(ids: np.ndarray, offsets: np.ndarray, n_terms: int) -> np.ndarray:
    """Where each term's postings start, int64 [n_terms + 1]; read-only."""
    from retrievers.lexical._bm25_kernels import count_postings

    return _read_only(count_postings(_read_only(ids), _read_only(offsets), n_terms))


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
