"""BM25 (Robertson & Zaragoza 2009, The Probabilistic Relevance Framework) over a precomputed sparse matrix.

The score of every posting depends on the corpus alone, so the index stores it (Lù 2024, BM25S, arXiv:2407.03618). A
search only sums, for each document, the scores of the query's terms.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
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
    did_you_mean,
)
from retrievers.engines.proposing import Found
from retrievers.lexical import bm25_shards
from retrievers.lexical.bm25_formula import VARIANTS, Parameters, idf_of
from retrievers.lexical.bm25_postings import LocalPostings, Postings, ProposedPostings, Terms, load, read_only
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
    engine: `sparse`; `milvus`: Milvus proposes documents by the same weights in float32, for all variants except
        `okapi`, whose weights may be negative; or `rank_bm25`: the library itself as a slow reference, for all variants
        except `lucene`. With `milvus`, scores are computed as by `sparse`, and `search` measures `certified`, the share
        of queries whose documents are certainly those of `sparse`.
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
        if self.engine == "milvus" and variant.negative:
            raise BadInput(
                f"engine=milvus takes no variant={self.variant}, whose weights may be negative: use lucene, l or plus, "
                "or set engine=sparse."
            )
        if self.engine == "rank_bm25" and self.k1 == 0:
            raise BadInput("engine=rank_bm25 divides 0 by 0 at k1=0: use engine=sparse, or k1 above 0.")
        if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
            raise BadInput(f"threads is {threads!r}: give a number of threads, at least 1, or null for all cores.")

    def index(self, documents: Sequence[Document], folder: Path) -> None:
        """Index `documents` (ascending doc_id, else ValueError) in `folder`; `search` can then be called."""
        DocIds.save(folder, documents)
        self._engine.build(self._tokens(documents), folder, self.progress)
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
        tokens = self.tokenizer([query.text for query in queries], self.progress)
        docs, scores, measured = self._engine.search(tokens, width, self.progress)
        return self._doc_ids.ranking(queries, docs, scores, **measured)

    def check_size(self, count: int, k: int) -> None:
        """BadInput or Failed where the engine cannot be used, or returns fewer than k of `count` documents."""
        self._engine.check(min(k, count))

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
        self._shards.build_shard(self._tokens(documents), (survey, summary), folder, self.progress)
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

    def check(self, width: int) -> None:
        """BadInput or Failed where it cannot be used to find `width` documents, before any work is done."""
        ...

    def build(self, tokens: Tokens, folder: Path, progress: Progress | None) -> None: ...

    def load(self, folder: Path) -> None: ...

    def search(self, queries: Tokens, width: int, progress: Progress | None) -> Found:
        """The `width` best documents of each query; documents are numbers in the corpus."""
        ...


class _Sparse:
    """A precomputed score for each posting.

    The postings are written as `Postings` has them. An index of the whole corpus has its vocabulary.json and
    floors.npy, too; one of a shard has terms.npy, the numbers of its terms in the corpus.
    """

    def __init__(self, parameters: Parameters, postings: Postings) -> None:
        self._parameters = parameters
        self._postings = postings
        self._columns: Callable[[tuple[str, ...]], tuple[Columns, np.ndarray]]

    def check(self, width: int) -> None:
        self._postings.check(width)

    def build(self, tokens: Tokens, folder: Path, progress: Progress | None) -> None:
        starts = _counted(tokens.ids, tokens.offsets, len(tokens.vocabulary))
        idf = idf_of(np.diff(starts), len(tokens), self._parameters)
        (folder / "vocabulary.json").write_text(json.dumps(tokens.vocabulary), encoding="ascii")
        np.save(folder / "floors.npy", idf * self._floor)
        docs, scores = self._weighed(tokens, starts, idf, mean_length(len(tokens.ids), len(tokens)))
        self._postings.build(starts, docs, scores, len(tokens), folder, progress)

    def survey(self, tokens: Tokens, folder: Path) -> None:
        """Write what is to be summed over all shards."""
        bm25_shards.survey(tokens, np.diff(_counted(tokens.ids, tokens.offsets, len(tokens.vocabulary))), folder)

    def build_shard(
        self, tokens: Tokens, statistics: tuple[Path, Path], folder: Path, progress: Progress | None
    ) -> None:
        """The index of a shard, weighed by the statistics of the corpus. statistics: its survey, and the summary."""
        survey, summary = statistics
        corpus = bm25_shards.opened(summary)
        ids, numbers = bm25_shards.by_number(tokens, corpus.numbers_of(survey))
        starts = _counted(ids, tokens.offsets, len(numbers))
        idf = _corpus_idf(corpus, self._parameters)[numbers]
        np.save(folder / "terms.npy", numbers)
        mine = Tokens(tokens.vocabulary, ids, tokens.offsets)
        docs, scores = self._weighed(mine, starts, idf, corpus.mean_length)
        self._postings.build(starts, docs, scores, len(tokens), folder, progress)

    def _weighed(
        self, tokens: Tokens, starts: np.ndarray, idf: np.ndarray, mean: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """The postings of documents: (docs int32, scores float64). idf: float64 [V]. mean: length of a document."""
        from retrievers.lexical._bm25_kernels import fill_postings

        docs, scores = fill_postings(read_only(tokens.ids), read_only(tokens.offsets), starts)
        if len(docs):
            self._weigh(starts, docs, scores, idf, np.diff(tokens.offsets) / mean)
        return docs, scores

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
        starts = self._postings.load(folder, len(vocabulary))
        columns = Columns(starts[:-1], starts[1:], load(folder, "floors"))
        self._columns = lambda terms: (columns, np.array([numbers.get(term, -1) for term in terms], np.int64))

    def load_shard(self, folder: Path, summary: Path) -> None:
        """Open what `build_shard` wrote."""
        corpus, numbers = bm25_shards.opened(summary), load(folder, "terms")
        idf = _corpus_idf(corpus, self._parameters) if self._floor else np.zeros(0)
        starts = self._postings.load(folder, len(numbers))
        self._columns = ShardTerms(numbers, starts, corpus, idf, self._floor).columns

    def search(self, queries: Tokens, width: int, progress: Progress | None) -> Found:
        """As in _Engine."""
        terms = self._known(queries)
        if width == 0 or not len(terms.places):
            return Found(np.full((len(queries), width), -1, np.int32), np.zeros((len(queries), width)), {})
        return self._postings.search(terms, width, progress)

    def _known(self, queries: Tokens) -> Terms:
        """The queries' terms, without unknown ones."""
        columns, places = self._columns(queries.vocabulary)
        terms = places[queries.ids]
        offsets = np.concatenate([[0], np.cumsum(terms >= 0)])[queries.offsets]
        return Terms(columns, terms[terms >= 0], offsets)


class _Library:
    """The library rank_bm25 with the same candidates and the same order of ties: a slow reference."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._scorer: Any = None

    def check(self, width: int) -> None:
        """Nothing is needed."""

    def build(self, tokens: Tokens, folder: Path, progress: Progress | None) -> None:
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

    def search(self, queries: Tokens, width: int, progress: Progress | None) -> Found:
        docs, scores = np.full((len(queries), width), -1, np.int32), np.zeros((len(queries), width))
        if self._scorer is None:
            return Found(docs, scores, {})
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
        return Found(docs, scores, {})


# The value of `engine` -> what makes the engine of parameters and a number of threads.
ENGINES: dict[str, Callable[[Parameters, int | None], _Engine]] = {
    "sparse": lambda parameters, threads: _Sparse(parameters, LocalPostings(threads)),
    "milvus": lambda parameters, threads: _Sparse(parameters, ProposedPostings()),
    "rank_bm25": lambda parameters, threads: _Library(parameters),
}


@functools.lru_cache(maxsize=2)  # the shards that a process works on share it
def _corpus_idf(summary: Summary, parameters: Parameters) -> np.ndarray:
    """The idf of each term of a corpus, float64 [V]: computed of all at once, so that each is as in one index."""
    return idf_of(summary.counts, summary.documents, parameters)


def _counted(ids: np.ndarray, offsets: np.ndarray, n_terms: int) -> np.ndarray:
    """Where each term's postings start, int64 [n_terms + 1]; read-only."""
    from retrievers.lexical._bm25_kernels import count_postings

    return read_only(count_postings(read_only(ids), read_only(offsets), n_terms))


def _check_choice(name: str, value: object, known: dict[str, Any]) -> None:
    if value not in known:
        raise BadInput(f"{name} is {value!r}: choose one of {', '.join(known)}.{did_you_mean(str(value), known)}")


def _check_number(name: str, value: object, largest: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= largest:
        raise BadInput(f"{name} is {value!r}: give a number from 0 to {largest:,.0f}.")
