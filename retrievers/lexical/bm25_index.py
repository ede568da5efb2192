"""The index of BM25: formulas, precomputed scores, and the library rank_bm25.

A posting's score depends only on the corpus, so the index stores it (Lù 2024, BM25S, arXiv:2407.03618). A search adds
up, for each document, the scores of the query's terms.

The survey of a shard is a folder with these files:

vocabulary.json: the terms of the shard, in the order of first use.
counts.npy:      int64 [V], the number of the shard's documents with each term.
survey.json:     {documents, terms}: the number of documents, and the sum of their lengths.

The id of a term is its place in the order of first use. The summary of the corpus is a folder with these files:

summary.json:    {documents, terms}, as above.
counts.npy:      int64 [V], the number of documents with each term.
terms.txt:       the terms in ascending order, joined without separators, in UTF-8.
term_ends.npy:   int64 [V + 1]: 0, then the byte offset in terms.txt where each term ends.
numbers.npy:     int32 [V], the id of each term, in the order of terms.txt.
KEY.npy:         int32, the id of each term of one survey; KEY is the sha256 of the survey's vocabulary.json.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import math
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from retrievers.base import cores, in_parts, load_array, read_only
from retrievers.lexical._bm25_frequent import Columns, FrequentTerms, bounds_pay
from retrievers.lexical._bm25_numpy import search_small, sorted_postings
from retrievers.lexical.bm25_postings import PostingsSort, ScoredPostingsFiles, TermPostings, peaks_of
from retrievers.lexical.tokenize import Tokens

SMALL = 10_000_000  # NumPy sorts so many terms, or adds so many postings, before the compiled kernels would be loaded
PART = 1 << 15  # number of postings that take longer to add up than another thread takes to begin
KNOWN = 8  # number of query vocabularies whose term ids are cached; every shard that the process searches uses the ids


class Parameters(NamedTuple):
    """The arguments of the formula. `delta` is 0 for variants without delta."""

    variant: str
    k1: float
    b: float
    delta: float
    epsilon: float


def _okapi_idf(n: np.ndarray, total: int, epsilon: float) -> np.ndarray:
    idf = np.log(total - n + 0.5) - np.log(n + 0.5)
    return np.where(idf < 0, epsilon * idf.mean(), idf)


def _weight(tf: np.ndarray, norm: np.ndarray, p: Parameters) -> np.ndarray:
    return tf * (p.k1 + 1) / (tf + p.k1 * norm)


def _l_weight(tf: np.ndarray, norm: np.ndarray, p: Parameters) -> np.ndarray:
    boosted = tf / norm + p.delta
    return tf * (p.k1 + 1) * boosted / (p.k1 + boosted)


@dataclass(frozen=True)
class Variant:
    """The formula of a posting's score: idf(n, N, epsilon) * weight(tf, norm, parameters).

    N: number of documents. n: number of documents with the term, at least 1. tf: count of the term in the document, at
    least 1. norm: 1 - b + b * length / mean length.
    """

    idf: Callable[[np.ndarray, int, float], np.ndarray]
    weight: Callable[[np.ndarray, np.ndarray, Parameters], np.ndarray]
    delta: float | None = None  # default value; None: the formula has no delta
    everywhere: bool = False  # whether a term also adds idf * delta to documents without the term
    library: str | None = None  # the class of rank_bm25 with the same scores; None: rank_bm25 has none


VARIANTS = {
    "lucene": Variant(
        lambda n, total, _: np.log1p((total - n + 0.5) / (n + 0.5)), lambda tf, norm, p: tf / (tf + p.k1 * norm)
    ),
    "okapi": Variant(_okapi_idf, _weight, library="BM25Okapi"),
    "l": Variant(lambda n, total, _: math.log(total + 1) - np.log(n + 0.5), _l_weight, delta=0.5, library="BM25L"),
    "plus": Variant(lambda n, total, _: np.log((total + 1) / n), _weight, 1.0, everywhere=True, library="BM25Plus"),
}


def idf_of(counts: np.ndarray, n_docs: int, parameters: Parameters) -> np.ndarray:
    """Return the idf of each term, float64 [V]: 0 if no document has it. counts: number of documents with each term."""
    found, used = np.zeros(len(counts)), counts > 0
    if used.any():
        found[used] = VARIANTS[parameters.variant].idf(counts[used], n_docs, parameters.epsilon)
    return found


def write_summary(surveys: Sequence[Path], folder: Path) -> None:
    """Write the summary of a corpus. surveys: the surveys of all shards, in order; read one at a time."""
    numbers: dict[str, int] = {}
    counts = np.zeros(0, np.int64)
    sizes = {"documents": 0, "terms": 0}
    for one in surveys:
        text = (one / "vocabulary.json").read_bytes()
        terms = json.loads(text)
        mine = np.fromiter((numbers.setdefault(term, len(numbers)) for term in terms), np.int32, len(terms))
        np.save(folder / f"{hashlib.sha256(text).hexdigest()}.npy", mine, allow_pickle=False)
        counts = np.concatenate([counts, np.zeros(len(numbers) - len(counts), np.int64)])
        counts[mine] += load_array(one, "counts")
        for name, size in json.loads((one / "survey.json").read_text(encoding="ascii")).items():
            sizes[name] += size
    np.save(folder / "counts.npy", counts, allow_pickle=False)
    (folder / "summary.json").write_text(json.dumps(sizes), encoding="ascii")
    ascending = sorted(numbers)  # the order by code point equals the order by UTF-8 bytes
    with (folder / "terms.txt").open("wb") as file:
        lengths = [file.write(term.encode("utf-8", "surrogatepass")) for term in ascending]
    np.save(folder / "term_ends.npy", np.cumsum([0, *lengths], dtype=np.int64), allow_pickle=False)
    found = np.fromiter((numbers[term] for term in ascending), np.int32, len(ascending))
    np.save(folder / "numbers.npy", found, allow_pickle=False)


class CorpusStatistics:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        sizes = json.loads((folder / "summary.json").read_text(encoding="ascii"))
        self.documents = int(sizes["documents"])
        self.mean_length = mean_length(sizes["terms"], self.documents)
        self.counts = load_array(folder, "counts")
        self._ends, self._numbers = load_array(folder, "term_ends"), load_array(folder, "numbers")
        self._texts = np.memmap(folder / "terms.txt", np.uint8, "r") if self._ends[-1] else np.zeros(0, np.uint8)
        self.numbers = functools.lru_cache(KNOWN)(self._look_up)

    def numbers_of(self, survey: Path) -> np.ndarray:
        return load_array(self._folder, hashlib.sha256((survey / "vocabulary.json").read_bytes()).hexdigest())

    def _look_up(self, terms: tuple[str, ...]) -> np.ndarray:
        return np.fromiter(map(self._number, terms), np.int64, len(terms))

    def _number(self, text: str) -> int:
        term = text.encode("utf-8", "surrogatepass")
        place = bisect_left(range(len(self._numbers)), term, key=self._term)
        return int(self._numbers[place]) if place < len(self._numbers) and self._term(place) == term else -1

    def _term(self, place: int) -> bytes:
        return self._texts[self._ends[place] : self._ends[place + 1]].tobytes()


corpus_statistics = functools.lru_cache(maxsize=2)(CorpusStatistics)  # shared by all shards that the process opens


def mean_length(terms: int, documents: int) -> float:
    return terms / documents if documents else 0.0


class SparseEngine:
    """Searches an index of precomputed scores, which are memory-mapped.

    NumPy builds and searches small indexes, and compiled kernels the others, with the same result. The first search of
    a loaded index decides, so later searches take comparable times.

    _bm25_kernels describes the postings. An index of the whole corpus also has vocabulary.json and, for the variant
    `plus`, floors.npy. An index of a shard has terms.npy instead: the ids of its terms among all terms of the corpus.
    """

    def __init__(self, parameters: Parameters, threads: int | None) -> None:
        self._parameters = parameters
        self._threads = threads
        self._small: bool | None = None
        self._columns: Callable[[tuple[str, ...]], Columns]

    def build(self, tokens: Tokens, folder: Path) -> None:
        starts, blocks = self._postings(tokens.ids, tokens.offsets, len(tokens.vocabulary))
        idf = idf_of(np.diff(starts), len(tokens), self._parameters)
        tokens.save_vocabulary(folder)
        if self._floor:
            np.save(folder / "floors.npy", idf * self._floor)
        lengths = np.diff(tokens.offsets) / (mean_length(len(tokens.ids), len(tokens)) or 1.0)
        self._save(blocks, starts, idf, lengths, folder)

    def survey(self, tokens: Tokens, folder: Path) -> None:
        counts = np.diff(self._postings(tokens.ids, tokens.offsets, len(tokens.vocabulary))[0])
        tokens.save_vocabulary(folder)
        np.save(folder / "counts.npy", counts, allow_pickle=False)
        sizes = {"documents": len(tokens), "terms": len(tokens.ids)}
        (folder / "survey.json").write_text(json.dumps(sizes), encoding="ascii")

    def build_shard(self, tokens: Tokens, survey: Path, summary: Path, folder: Path) -> None:
        corpus = corpus_statistics(summary)
        numbers = corpus.numbers_of(survey)
        order = np.argsort(numbers)
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        ids, numbers = place[tokens.ids] if len(order) else np.empty(0, np.int32), numbers[order]
        idf = _corpus_idf(corpus, self._parameters)[numbers]
        np.save(folder / "terms.npy", numbers)
        starts, blocks = self._postings(ids, tokens.offsets, len(numbers))
        self._save(blocks, starts, idf, np.diff(tokens.offsets) / (corpus.mean_length or 1.0), folder)

    def _postings(
        self, ids: np.ndarray, offsets: np.ndarray, n_terms: int
    ) -> tuple[np.ndarray, Iterable[TermPostings]]:
        """Return `starts`, and the postings of all terms in blocks, which are sorted when they are asked for."""
        if not is_small(len(ids)):
            sort = PostingsSort(ids, offsets, n_terms, self._threads or cores())
            return sort.starts, sort.blocks()
        starts, postings = sorted_postings(ids, offsets, n_terms)
        return starts, [postings]

    def _save(
        self, blocks: Iterable[TermPostings], starts: np.ndarray, idf: np.ndarray, lengths: np.ndarray, folder: Path
    ) -> None:
        """Write all postings and their scores. lengths: each document's length / mean length."""
        p = self._parameters
        weight = VARIANTS[p.variant].weight
        files = ScoredPostingsFiles(folder, starts, idf, 1 - p.b + p.b * lengths, lambda tf, norm: weight(tf, norm, p))
        threads = self._threads or cores()
        for block in blocks:
            in_parts(len(block.docs), 8 * threads, threads, functools.partial(files.write, block))
        np.save(folder / "starts.npy", starts)
        np.save(folder / "peaks.npy", files.peaks)

    @property
    def _floor(self) -> float:
        return self._parameters.delta if VARIANTS[self._parameters.variant].everywhere else 0.0

    def load(self, folder: Path) -> None:
        vocabulary = json.loads((folder / "vocabulary.json").read_text(encoding="ascii"))
        numbers = {term: i for i, term in enumerate(vocabulary)}
        self._open(folder)
        floors = load_array(folder, "floors") if self._floor else np.zeros(0)

        def columns(terms: tuple[str, ...]) -> Columns:
            places = np.fromiter(map(numbers.get, terms, itertools.repeat(-1)), np.int64, len(terms))
            known = places >= 0
            found = np.where(known, floors[places], 0.0) if len(floors) else np.zeros(len(places))
            return self._columns_at(np.where(known, places, 0), known, found)

        self._columns = columns

    def load_shard(self, folder: Path, summary: Path) -> None:
        corpus, mine = corpus_statistics(summary), load_array(folder, "terms")
        self._open(folder)
        idf = _corpus_idf(corpus, self._parameters) if self._floor else np.zeros(0)

        def columns(terms: tuple[str, ...]) -> Columns:
            numbers = corpus.numbers(terms)
            places = np.minimum(np.searchsorted(mine, numbers), max(len(mine) - 1, 0))
            here = (numbers >= 0) & (mine[places] == numbers if len(mine) else False)
            floors = np.zeros(len(numbers))
            if self._floor:
                floors[numbers >= 0] = idf[numbers[numbers >= 0]] * self._floor
            return self._columns_at(places, here, floors)

        self._columns = columns

    def _open(self, folder: Path) -> None:
        self._docs, self._scores = read_only(load_array(folder, "docs")), read_only(load_array(folder, "scores"))
        self._starts, self._small = read_only(load_array(folder, "starts")), None
        older = not (folder / "peaks.npy").exists()  # an index from before version 0.10
        self._peaks = peaks_of(self._starts, self._scores) if older else read_only(load_array(folder, "peaks"))
        n_docs = len(load_array(folder, "doc_id_ends")) - 1
        self._frequent = FrequentTerms(self._starts, self._peaks, self._docs, self._scores, n_docs)
        self._n_docs = n_docs

    def _columns_at(self, places: np.ndarray, here: np.ndarray, floors: np.ndarray) -> Columns:
        """Return the columns at `places`. here: bool, False for terms that have no postings."""
        if not len(self._peaks):
            none = np.zeros(len(places), np.int64)
            return Columns(none, none, floors, np.zeros(len(places)))
        starts, ends = np.where(here, self._starts[places], 0), np.where(here, self._starts[places + 1], 0)
        return Columns(starts, ends, floors, np.where(here, self._peaks[places], 0).astype(np.float64))

    def search(self, queries: Tokens, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Return (documents int32, scores float64) of each query's best documents, [Q, width], padded with -1 and 0."""
        docs, scores = np.full((len(queries), width), -1, np.int32), np.zeros((len(queries), width))
        if width == 0 or not len(queries.ids):
            return docs, scores
        columns = Columns(*map(read_only, self._columns(queries.vocabulary)))
        added = int((columns.ends - columns.starts)[queries.ids].sum())
        if self._small is None:
            self._small = is_small(max(len(self._docs), added))
        if self._small:
            search_small(columns, self._docs, self._scores, queries.ids, queries.offsets, docs, scores)
            return docs, scores
        from retrievers.lexical._bm25_kernels import order_rows
        from retrievers.lexical._bm25_search import query_terms, room_to_search, search_postings

        threads, frequent, n_docs = self._threads or cores(), self._frequent.table, self._n_docs
        rows = self._frequent.rows(columns, queries.ids, added, threads)
        if rows is None:
            rows, bounded = np.full(len(columns.starts), -1), np.zeros(len(queries), bool)
        else:
            bounded = bounds_pay(columns, rows, queries, width, n_docs, frequent.scale)
        queried = query_terms(columns, rows, queries, bounded)

        def run(first: int, last: int) -> None:
            room = room_to_search(queried, width, n_docs)
            search_postings(n_docs, self._docs, self._scores, frequent, queried, room, first, last, docs, scores)
            order_rows(docs, scores, first, last)

        # Several parts per thread balance the load, since queries differ in cost.
        in_parts(len(queries), min(8 * threads, 1 + added // PART), threads, run)
        return docs, scores


class LibraryEngine:
    """Scores with rank_bm25, a slow reference. As in SparseEngine, only documents with a query term are found."""

    def __init__(self, parameters: Parameters, threads: int | None) -> None:
        self._parameters = parameters
        self._scorer: Any = None

    def build(self, tokens: Tokens, folder: Path) -> None:
        tokens.save(folder)

    def load(self, folder: Path) -> None:
        import rank_bm25

        p, tokens = self._parameters, Tokens.load(folder)
        extra = {"epsilon": p.epsilon} if p.variant == "okapi" else {"delta": p.delta}
        make = getattr(rank_bm25, str(VARIANTS[p.variant].library))
        # Without terms, the library would divide by zero.
        self._scorer = make(tokens.lists(), k1=p.k1, b=p.b, **extra) if len(tokens.ids) else None

    def search(self, queries: Tokens, width: int) -> tuple[np.ndarray, np.ndarray]:
        docs, scores = np.full((len(queries), width), -1, np.int32), np.zeros((len(queries), width))
        for row, terms in enumerate(queries.lists() if self._scorer else ()):
            unique = set(terms)
            candidates = np.flatnonzero([not unique.isdisjoint(doc) for doc in self._scorer.doc_freqs])
            # At b = 1, the library divides 0 by 0 for empty documents. These are not candidates.
            with np.errstate(invalid="ignore"):
                values = self._scorer.get_scores(terms)[candidates]
            best = np.argsort(-values, kind="stable")[:width]  # a stable sort keeps ties in ascending order of doc_id
            docs[row, : len(best)] = candidates[best]
            scores[row, : len(best)] = values[best]
        return docs, scores


ENGINES: dict[str, type[SparseEngine] | type[LibraryEngine]] = {"sparse": SparseEngine, "rank_bm25": LibraryEngine}


@functools.lru_cache(maxsize=2)  # the result is shared by all shards that the process opens
def _corpus_idf(summary: CorpusStatistics, parameters: Parameters) -> np.ndarray:
    return idf_of(summary.counts, summary.documents, parameters)


def is_small(count: int) -> bool:
    """Return whether NumPy takes less time for this many terms or postings than the kernels with their loading."""
    return count <= SMALL and "retrievers.lexical._bm25_kernels" not in sys.modules
