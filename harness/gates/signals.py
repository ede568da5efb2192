"""Signals for no-retrieval gates: one number per query, higher if the query more likely needs retrieval.

Each signal is a published predictor of query performance, or close to one. If the corpus has nothing about a query,
the scores of its documents are low and flat, and different retrievers find different documents. A rank beyond the end
of a list counts as a document with score 0.

To add a signal, write a function with the decorator `@signal` in this module. The signal gets the function's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from harness.config.canonical import digest, digest_texts
from harness.errors import BadInput, did_you_mean
from harness.llm.chat import Chat, ChatModel
from retrievers.base import Query, Ranking, remembered

_VERSION = 1  # increase it when the values of a cached signal change
_FLAT = 1e-12  # a spread below this share of the scores is a rounding error


class GateInputs(Protocol):
    """The data that a gate may read. Rankings and signals have one row per query (Q).

    Implementations compute slow values only when a method is called. Slow signals are kept as long as their
    `GateInputs` exist. All other signals are kept as long as their ranking exists.
    """

    @property
    def queries(self) -> tuple[Query, ...]:
        """The queries as the retrievers get them, each with one turn."""

    @property
    def conversations(self) -> tuple[Query, ...]:
        """The same queries with all their turns."""

    @property
    def rankings(self) -> Mapping[str, Ranking]:
        """name -> component ranking."""

    def tokens(self, texts: Sequence[str]) -> Sequence[Sequence[str]]:
        """Return the terms of each text, by the config's tokenizer."""

    def texts(self, doc_ids: Sequence[str]) -> Sequence[str]:
        """Return the indexed text of each document."""

    def background(self, source: str) -> tuple[Sequence[Query], Ranking]:
        """Return random queries, and their ranking by the retriever `source`."""

    def remember(self, decides: Mapping[str, Any], compute: Callable[[], np.ndarray]) -> np.ndarray:
        """Return the result of `compute`, float64 [Q], possibly from a cache.

        decides: everything that determines the result, as plain JSON, with digests instead of texts and scores. The
            implementation adds the identities of the tokenizer, the retriever and the documents.
        """

    def chat(self, model: ChatModel) -> Chat:
        """Return a chat with a language model, whose replies may be cached. Raise BadInput if the model is unusable."""

    def embeddings(self) -> np.ndarray:
        """Return the queries' embeddings by the config's encoder, float64 [Q, D]."""


Reads = Literal["ranking", "rankings", "query"]
Compute = Callable[..., np.ndarray]


@dataclass(frozen=True)
class SignalSpec:
    """A registered signal.

    reads: "ranking": the component ranking `source`; "rankings": all component rankings; "query": the query alone.
    places: whether the signal depends on k, the number of top ranks to read.
    slow: whether the signal needs tokens, texts or a search, and so is cached on disk.
    compute: (inputs, source=, k=) -> float64 [Q].
    """

    reads: Reads
    places: bool
    slow: bool
    compute: Compute


SIGNALS: dict[str, SignalSpec] = {}


def signal(reads: Reads, *, places: bool = False, slow: bool = False) -> Callable[[Compute], Compute]:
    """Return a decorator that registers a function as the signal of the same name. For the arguments, see `SignalSpec`.

    The function takes (inputs: GateInputs, *, source, k) and returns float64 [Q], finite for every ranking. A slow
    function passes its computation to `inputs.remember`, which caches the result. The docstring of every function must
    give the formula, degenerate cases and the source.
    """

    def register(compute: Compute) -> Compute:
        SIGNALS[compute.__name__] = SignalSpec(reads, places, slow, remembered(compute) if slow else compute)
        return compute

    return register


def signal_spec(name: str) -> SignalSpec:
    if name not in SIGNALS:
        raise BadInput(
            f"{name!r:.60} is not a gate signal. Choose one of {', '.join(SIGNALS)}.{did_you_mean(name, SIGNALS)}"
        )
    return SIGNALS[name]


def signal_of(inputs: GateInputs, name: str, source: str | None, k: int) -> np.ndarray:
    """Return the finite, read-only values of a signal, float64 [Q]. Raise BadInput for an unknown or unusable signal.

    source: a component ranking, ignored if the signal reads only the query. k: number of top ranks to read, at least 1.
    """
    return signal_spec(name).compute(inputs, source=source, k=k)


def signal_choices(names: Iterable[str], sources: Iterable[str]) -> list[tuple[str | None, str]]:
    """Return all pairs (source, signal) to try. The source is None if the signal reads only the query."""
    all_sources = list[str | None](sources)
    compared = {1: 0, 2: 1}.get(len(all_sources), len(all_sources))  # two sources have the same agreement: try only one
    tried: dict[Reads, list[str | None]] = {"query": [None], "ranking": all_sources, "rankings": all_sources[:compared]}
    return [(source, name) for name in names for source in tried[signal_spec(name).reads]]


# One ranking


class _Head(NamedTuple):
    """The first two scores, and the mean and population standard deviation of the first k; float64 [Q] each."""

    top: np.ndarray
    second: np.ndarray
    mean: np.ndarray
    std: np.ndarray


@remembered
def _head(ranking: Ranking, *, k: int) -> _Head:
    scores = np.zeros((len(ranking.query_ids), max(k, 2)))
    ranked = ranking.scores[:, : scores.shape[1]]
    scores[:, : ranked.shape[1]] = ranked
    first = scores[:, :k]
    head = _Head(scores[:, 0].copy(), scores[:, 1].copy(), first.mean(axis=1), first.std(axis=1))
    for values in head:
        values.setflags(write=False)  # all callers share these arrays
    return head


@remembered
def _corpus(ranking: Ranking) -> tuple[np.ndarray, np.ndarray]:
    """Return the score of the corpus (the mean score over all ranks) and whether it is about 0, [Q] each."""
    columns = max(ranking.scores.shape[1], 1)
    mean = ranking.scores.sum(axis=1) / columns
    return mean, np.abs(mean) <= _FLAT * np.abs(ranking.scores).sum(axis=1) / columns


@signal("ranking")
def top_score(inputs: GateInputs, *, source: str, k: int) -> np.ndarray:
    """Score of the first document."""
    return _head(inputs.rankings[source], k=1).top


@signal("ranking")
def margin(inputs: GateInputs, *, source: str, k: int) -> np.ndarray:
    """Score of the first document minus the score of the second."""
    head = _head(inputs.rankings[source], k=1)
    return head.top - head.second


@signal("ranking", places=True)
def mean_top_k(inputs: GateInputs, *, source: str, k: int) -> np.ndarray:
    """Mean score of the first k ranks."""
    return _head(inputs.rankings[source], k=k).mean


@signal("ranking", places=True)
def std_top_k(inputs: GateInputs, *, source: str, k: int) -> np.ndarray:
    """Standard deviation (population) of the first k scores (Pérez-Iglesias and Araujo 2010)."""
    return _head(inputs.rankings[source], k=k).std


@signal("ranking", places=True)
def zscore(inputs: GateInputs, *, source: str, k: int) -> np.ndarray:
    """(First score - mean of the first k scores) / their standard deviation; 0 if these k scores are all equal."""
    head = _head(inputs.rankings[source], k=k)
    flat = head.std <= _FLAT * np.abs(head.top)
    return np.where(flat, 0.0, (head.top - head.mean) / np.where(flat, 1.0, head.std))


@signal("ranking", places=True)
def nqc(inputs: GateInputs, *, source: str, k: int) -> np.ndarray:
    """Normalised query commitment (Shtok, Kurland, Carmel, Raiber and Markovits 2012).

    Standard deviation (population) of the first k scores / |score of the corpus|; 0 if the score of the corpus is 0.
    The score of the corpus is estimated by the mean score over all ranks; a rank without a document counts as 0.
    """
    ranking = inputs.rankings[source]
    corpus, zero = _corpus(ranking)
    return np.where(zero, 0.0, _head(ranking, k=k).std / np.where(zero, 1.0, np.abs(corpus)))


@signal("ranking", places=True)
def wig(inputs: GateInputs, *, source: str, k: int) -> np.ndarray:
    """Weighted information gain (Zhou and Croft 2007).

    (Mean of the first k scores - score of the corpus) / sqrt(words of the query, at least 1). The score of the corpus
    is that of `nqc`.
    """
    ranking = inputs.rankings[source]
    return (_head(ranking, k=k).mean - _corpus(ranking)[0]) / np.sqrt(_lengths(inputs.queries))


# Several rankings


@signal("rankings", places=True)
def agreement(inputs: GateInputs, *, source: str, k: int) -> np.ndarray:
    """Mean overlap of the first k documents with the first k of each other component ranking, in [0, 1].

    The overlap of two lists is the number of common documents / length of the longer list; 0 if both lists are empty.
    Little overlap indicates a query that is hard for this corpus. Aslam and Pavlu (2007) compare scores instead.
    """
    others = [ranking for name, ranking in inputs.rankings.items() if name != source]
    if not others:
        raise BadInput(
            "gate.signal=agreement compares component rankings, but this retriever has only one. "
            "Choose another signal, or a retriever with several rankings, such as retriever=hybrid_lexical."
        )
    ranking = inputs.rankings[source]
    return np.mean([_overlap(ranking, other, k=k) for other in others], axis=0)


@remembered
def _overlap(one: Ranking, other: Ranking, *, k: int) -> np.ndarray:
    one, other = one.top(k), other.top(k)
    index_of = {doc_id: i for i, doc_id in enumerate(one.doc_ids)}
    # The last entry maps the padding -1 to itself.
    indices = np.array([*(index_of.get(doc_id, -1) for doc_id in other.doc_ids), -1], np.int32)
    joined = np.sort(np.hstack([one.docs, indices[other.docs]]), axis=1)
    both = ((joined[:, 1:] == joined[:, :-1]) & (joined[:, 1:] >= 0)).sum(axis=1)
    return both / np.maximum(np.maximum(one.lengths, other.lengths), 1)


# The query only


@signal("query")
def query_words(inputs: GateInputs, *, source: str | None, k: int) -> np.ndarray:
    """Number of words of the query, separated by white space."""
    return np.array([len(query.text.split()) for query in inputs.queries], np.float64)


@signal("query")
def query_characters(inputs: GateInputs, *, source: str | None, k: int) -> np.ndarray:
    """Number of characters (code points) of the query, white space included."""
    return np.array([len(query.text) for query in inputs.queries], np.float64)


def _lengths(queries: Sequence[Query]) -> np.ndarray:
    return np.array([max(len(query.text.split()), 1) for query in queries], np.int64)


# Slow signals


@signal("ranking", slow=True)
def coverage(inputs: GateInputs, *, source: str, k: int) -> np.ndarray:
    """Share of the query's distinct terms that occur in its first document, in [0, 1]; 0 without documents or terms."""
    head = inputs.rankings[source].top(1)
    first_texts = iter(inputs.texts([head.doc_ids[doc] for doc in head.docs[head.docs >= 0].tolist()]))
    documents = [next(first_texts) if length else "" for length in head.lengths.tolist()]
    queries = [query.text for query in inputs.queries]

    def compute() -> np.ndarray:
        pairs = zip(map(set, inputs.tokens(queries)), inputs.tokens(documents), strict=True)
        return np.array([len(terms.intersection(words)) / max(len(terms), 1) for terms, words in pairs], np.float64)

    digests = {"queries": digest_texts(queries), "documents": digest_texts(documents)}
    return inputs.remember({"signal": "coverage", "version": _VERSION, "source": source, **digests}, compute)


@signal("ranking", slow=True)
def background(inputs: GateInputs, *, source: str, k: int) -> np.ndarray:
    """How far the top score lies above the top scores of random queries of the same length, by the same retriever.

    (top - a - b sqrt(words)) / s. a and b are the least-squares fit of the random queries' top scores to the square
    root of their number of words (at least 1); s is the standard deviation of the residuals. If all random queries are
    equally long, b = 0. If s = 0, the signal is 0.
    """
    top, words = _head(inputs.rankings[source], k=1).top, _lengths(inputs.queries)

    def compute() -> np.ndarray:
        queries, ranking = inputs.background(source)
        scores, lengths = _head(ranking, k=1).top, _lengths(queries)
        x, mean = np.sqrt(lengths), scores.mean()
        deviation = x - x.mean()
        slope = deviation @ (scores - mean) / (deviation @ deviation) if np.ptp(lengths) else 0.0
        spread = (scores - mean - slope * deviation).std()
        if spread <= _FLAT * np.abs(scores).max():
            return np.zeros(len(top))
        return (top - mean - slope * (np.sqrt(words) - x.mean())) / spread

    digests = {"queries": digest(words.tolist()), "scores": digest(top.tolist())}
    return inputs.remember({"signal": "background", "version": _VERSION, "source": source, **digests}, compute)


def random_queries(texts: Sequence[str], queries: Sequence[Query], count: int = 200) -> list[Query]:
    """Return meaningless queries with ids "random-0", "random-1", ..., always the same for a corpus and its queries.

    Each random query has as many words as a randomly drawn real query, but at least one. Each word comes from a
    random document. Raise BadInput if no document has words.
    """
    worded = np.flatnonzero(np.fromiter((bool(text) and not text.isspace() for text in texts), bool, len(texts)))
    if not len(worded):
        raise BadInput(
            "gate.signal=background draws words from the documents, but all documents are blank. "
            "Choose another signal, or check the documents."
        )
    generator = np.random.default_rng(0)
    lengths = generator.choice(_lengths(queries), count)
    documents = generator.integers(len(worded), size=lengths.sum()).tolist()
    shares = generator.random(lengths.sum()).tolist()

    def draw(document: int, share: float) -> str:
        words = texts[int(worded[document])].split()
        return words[int(share * len(words))]

    words = iter(map(draw, documents, shares))
    drawn = [" ".join(islice(words, length)) for length in lengths.tolist()]
    return [Query.of(f"random-{i}", text) for i, text in enumerate(drawn)]
