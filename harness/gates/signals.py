"""The signals that a no-retrieval gate decides by: one number per query, higher where retrieval is likelier needed.

Each is a predictor of query performance in the direction of its source: a query about nothing in the corpus finds
documents of low, flat scores that other retrievers do not find. A place past the end of a row counts as a document of
score 0, one that shares nothing with the query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, NamedTuple

import numpy as np

from harness.config.canonical import digest, digest_texts
from retrievers.base import BadInput, Query, Ranking, did_you_mean, remembered

_VERSION = 1  # raised when a signal that is kept on disk gives other values
_FLAT = 1e-12  # a spread below this share of its scores is rounding


Answer = Callable[[Sequence[int]], Iterator[tuple[np.ndarray, np.ndarray]]]  # places -> (some of them, their numbers)


@dataclass(frozen=True, eq=False)
class GateInputs:
    """What a gate may look at. All rankings and signals have the rows of `queries` (Q).

    queries:    as they are searched for. conversations: the same with all their turns.
    rankings:   name -> raw ranking.
    tokens:     texts -> the terms of each, by the gate's tokenizer (slow at first).
    texts:      doc_ids -> indexed texts.
    background: source -> random queries and the ranking that this retriever gives them (slow: a search).
    keep:       (what decides a slow signal, how to compute it) -> float64 [Q], kept on disk. What decides it is plain
                JSON: `signal`, `version`, `source` and digests of the texts and scores that enter. It cannot tell
                which tokenizer and which retriever stand behind the callables; `keep` adds their identity.
    answers:    as `Store.pairs`: a number for each key, kept as it comes (slow: a language model).
    embeddings: float64 [Q, D], of the queries by the run's encoder (slow at first).

    Slow signals are remembered for as long as their evidence lives, the others with their rankings.
    """

    queries: tuple[Query, ...]
    conversations: tuple[Query, ...]
    rankings: Mapping[str, Ranking]
    tokens: Callable[[Sequence[str]], Sequence[Sequence[str]]]
    texts: Callable[[Sequence[str]], Sequence[str]]
    background: Callable[[str], tuple[Sequence[Query], Ranking]]
    keep: Callable[[Mapping[str, Any], Callable[[], np.ndarray]], np.ndarray]
    answers: Callable[[Mapping[str, Any], Sequence[bytes], Answer], np.ndarray]
    embeddings: Callable[[], np.ndarray]


Reads = Literal["ranking", "rankings", "query"]
Compute = Callable[..., np.ndarray]


@dataclass(frozen=True)
class Kind:
    """What a signal reads.

    reads:   "ranking": the raw ranking `source`; "rankings": that and all others; "query": the query alone.
    places:  whether it depends on k, the number of first places that are looked at.
    slow:    whether it needs tokens, texts or a search; it is then kept on disk.
    compute: (evidence, source=, k=) -> float64 [Q].
    """

    reads: Reads
    places: bool
    slow: bool
    compute: Compute


SIGNALS: dict[str, Kind] = {}


def _signal(reads: Reads, *, places: bool = False, slow: bool = False) -> Callable[[Compute], Compute]:
    """Enter a function in `SIGNALS` under its own name."""

    def enter(compute: Compute) -> Compute:
        SIGNALS[compute.__name__] = Kind(reads, places, slow, remembered(compute) if slow else compute)
        return compute

    return enter


def kind_of(name: str) -> Kind:
    """What the signal `name` reads; BadInput if there is none of that name."""
    if name not in SIGNALS:
        raise BadInput(
            f"{name!r} is no signal of a gate: choose from {', '.join(SIGNALS)}.{did_you_mean(name, SIGNALS)}"
        )
    return SIGNALS[name]


def signal_of(inputs: GateInputs, name: str, source: str | None, k: int) -> np.ndarray:
    """float64 [Q], finite; never to be changed in place.

    source: name of a raw ranking; a signal of the query alone does not look at it.
    k:      places that are looked at, at least 1; see `Kind.places`.

    Raises BadInput for an unknown name and for `agreement` where there is only one ranking.
    """
    return kind_of(name).compute(inputs, source=source, k=k)


def choices(names: Iterable[str], sources: Iterable[str]) -> list[tuple[str | None, str]]:
    """All (source, signal) worth trying, in the order of `names`, then of `sources`.

    A signal of the query alone has the source None. `agreement` needs two rankings and is symmetric: with exactly two
    it is tried for the first alone.
    """
    each = list[str | None](sources)
    compared = {1: 0, 2: 1}.get(len(each), len(each))
    tried: dict[Reads, list[str | None]] = {"query": [None], "ranking": each, "rankings": each[:compared]}
    return [(source, name) for name in names for source in tried[kind_of(name).reads]]


# One ranking


class _Head(NamedTuple):
    """float64 [Q] each: first and second score, mean and standard deviation (population) of the first k scores."""

    top: np.ndarray
    second: np.ndarray
    mean: np.ndarray
    std: np.ndarray


@remembered
def _head(ranking: Ranking, *, k: int) -> _Head:
    places = np.zeros((len(ranking.query_ids), max(k, 2)))
    seen = ranking.scores[:, : places.shape[1]]
    places[:, : seen.shape[1]] = seen
    first = places[:, :k]
    found = _Head(places[:, 0].copy(), places[:, 1].copy(), first.mean(axis=1), first.std(axis=1))
    for values in found:
        values.setflags(write=False)  # shared by all that ask for it
    return found


@remembered
def _corpus(ranking: Ranking) -> tuple[np.ndarray, np.ndarray]:
    """The score of the corpus, and which of these are 0 but for rounding; float64 [Q] and bool [Q].

    It is estimated by the mean over all K columns of the ranking, so that it depends on the depth that was retrieved.
    """
    columns = max(ranking.scores.shape[1], 1)
    mean = ranking.scores.sum(axis=1) / columns
    return mean, np.abs(mean) <= _FLAT * np.abs(ranking.scores).sum(axis=1) / columns


@_signal("ranking")
def top_score(inputs: GateInputs, *, source: str, k: int) -> np.ndarray:
    """Score of the first document."""
    return _head(inputs.rankings[source], k=1).top


@_signal("ranking")
def margin(inputs: GateInputs, *, source: str, k: int) -> np.ndarray:
    """Score of the first document minus that of the second."""
    head = _head(inputs.rankings[source], k=1)
    return head.top - head.second


@_signal("ranking", places=True)
def mean_top_k(inputs: GateInputs, *, source: str, k: int) -> np.ndarray:
    """Mean score of the first k places."""
    return _head(inputs.rankings[source], k=k).mean


@_signal("ranking", places=True)
def std_top_k(inputs: GateInputs, *, source: str, k: int) -> np.ndarray:
    """Standard deviation (population) of the first k scores (Pérez-Iglesias and Araujo 2010)."""
    return _head(inputs.rankings[source], k=k).std


@_signal("ranking", places=True)
def zscore(inputs: GateInputs, *, source: str, k: int) -> np.ndarray:
    """(First score - mean of the first k) / their standard deviation; 0 where they are all equal."""
    head = _head(inputs.rankings[source], k=k)
    flat = head.std <= _FLAT * np.abs(head.top)
    return np.where(flat, 0.0, (head.top - head.mean) / np.where(flat, 1.0, head.std))


@_signal("ranking", places=True)
def nqc(inputs: GateInputs, *, source: str, k: int) -> np.ndarray:
    """Normalised query commitment (Shtok, Kurland, Carmel, Raiber and Markovits 2012).

    Standard deviation (population) of the first k scores / |score of the corpus|; 0 where that is 0. The score of the
    corpus is estimated by the mean of the whole retrieved row, all K columns.
    """
    ranking = inputs.rankings[source]
    corpus, zero = _corpus(ranking)
    return np.where(zero, 0.0, _head(ranking, k=k).std / np.where(zero, 1.0, np.abs(corpus)))


@_signal("ranking", places=True)
def wig(inputs: GateInputs, *, source: str, k: int) -> np.ndarray:
    """Weighted information gain (Zhou and Croft 2007).

    (Mean of the first k scores - score of the corpus) / sqrt(words of the query, at least 1). The score of the corpus
    is estimated by the mean of the whole retrieved row, all K columns.
    """
    ranking = inputs.rankings[source]
    return (_head(ranking, k=k).mean - _corpus(ranking)[0]) / np.sqrt(_lengths(inputs.queries))


# Several rankings


@_signal("rankings", places=True)
def agreement(inputs: GateInputs, *, source: str, k: int) -> np.ndarray:
    """Mean share, over the other raw rankings, of the first k documents that both have; in [0, 1].

    The share is |both| / the longer of the two lists of at most k; 0 if both are empty. Rankings that disagree are a
    sign of a query that is hard for this corpus (Aslam and Pavlu 2007, there by the divergence of scores).
    """
    others = [ranking for name, ranking in inputs.rankings.items() if name != source]
    if not others:
        raise BadInput(
            "The gate's signal agreement compares raw rankings, and this retriever has only one. "
            "Choose another signal, or a retriever with several rankings, such as retriever=hybrid_lexical."
        )
    ranking = inputs.rankings[source]
    return np.mean([_overlap(ranking, other, k=k) for other in others], axis=0)


@remembered
def _overlap(one: Ranking, other: Ranking, *, k: int) -> np.ndarray:
    """float64 [Q] in [0, 1]: overlap of the first k documents of two rankings, matched by doc_id."""
    one, other = one.top(k), other.top(k)
    place = {doc_id: i for i, doc_id in enumerate(one.doc_ids)}
    # The last entry stands for -1, which pads.
    places = np.array([*(place.get(doc_id, -1) for doc_id in other.doc_ids), -1], np.int32)
    joined = np.sort(np.hstack([one.docs, places[other.docs]]), axis=1)
    both = ((joined[:, 1:] == joined[:, :-1]) & (joined[:, 1:] >= 0)).sum(axis=1)
    return both / np.maximum(np.maximum(one.lengths, other.lengths), 1)


# The query alone


@_signal("query")
def query_words(inputs: GateInputs, *, source: str | None, k: int) -> np.ndarray:
    """White-space words of the query."""
    return _words(inputs.queries).astype(np.float64)


@_signal("query")
def query_characters(inputs: GateInputs, *, source: str | None, k: int) -> np.ndarray:
    """Characters (code points) of the query, white space included."""
    return np.array([len(query.text) for query in inputs.queries], np.float64)


def _words(queries: Sequence[Query]) -> np.ndarray:
    return np.array([len(query.text.split()) for query in queries], np.int64)


def _lengths(queries: Sequence[Query]) -> np.ndarray:
    """int64 [Q]: white-space words, at least 1."""
    return np.maximum(_words(queries), 1)


# Slow signals


@_signal("ranking", slow=True)
def coverage(inputs: GateInputs, *, source: str, k: int) -> np.ndarray:
    """Share of the query's distinct terms that occur in its first document, in [0, 1].

    0 without a document or without terms.
    """
    head = inputs.rankings[source].top(1)
    found = iter(inputs.texts([head.doc_ids[doc] for doc in head.docs[head.docs >= 0].tolist()]))
    tops = [next(found) if length else "" for length in head.lengths.tolist()]  # no document has no terms
    asked = [query.text for query in inputs.queries]

    def compute() -> np.ndarray:
        pairs = zip(map(set, inputs.tokens(asked)), inputs.tokens(tops), strict=True)
        return np.array([len(terms.intersection(told)) / max(len(terms), 1) for terms, told in pairs], np.float64)

    decides = {"queries": digest_texts(asked), "documents": digest_texts(tops)}
    return inputs.keep({"signal": "coverage", "version": _VERSION, "source": source, **decides}, compute)


@_signal("ranking", slow=True)
def background(inputs: GateInputs, *, source: str, k: int) -> np.ndarray:
    """How far the top score lies above what random queries of its length get from the same retriever.

    (top - a - b sqrt(words)) / s: a and b are the least squares of the random queries' top scores on the square root
    of their words (at least 1), s is the standard deviation of the residuals. b = 0 where all random queries are
    equally long. s = 0 gives 0.
    """
    top, words = _head(inputs.rankings[source], k=1).top, _lengths(inputs.queries)

    def compute() -> np.ndarray:
        queries, ranking = inputs.background(source)
        seen, lengths = _head(ranking, k=1).top, _lengths(queries)
        x, mean = np.sqrt(lengths), seen.mean()
        off = x - x.mean()
        slope = off @ (seen - mean) / (off @ off) if np.ptp(lengths) else 0.0
        spread = (seen - mean - slope * off).std()
        if spread <= _FLAT * np.abs(seen).max():
            return np.zeros(len(top))
        return (top - mean - slope * (np.sqrt(words) - x.mean())) / spread

    decides = {"queries": digest(words.tolist()), "scores": digest(top.tolist())}
    return inputs.keep({"signal": "background", "version": _VERSION, "source": source, **decides}, compute)


def random_queries(texts: Sequence[str], queries: Sequence[Query], count: int = 200) -> list[Query]:
    """Queries of the corpus' words without a meaning: "random-0", "random-1" ..., the same for the same arguments.

    Each has as many white-space words as a real query drawn at random (at least 1). Each of its words is drawn from
    a document drawn at random among those that have words; BadInput if none has.
    """
    worded = [i for i, text in enumerate(texts) if text and not text.isspace()]
    if not worded:
        raise BadInput("The gate's signal background draws words from the documents, and all of them are blank.")
    generator = np.random.default_rng(0)
    lengths = generator.choice(_lengths(queries), count)
    documents = generator.integers(len(worded), size=lengths.sum()).tolist()
    shares = generator.random(lengths.sum()).tolist()

    def draw(document: int, share: float) -> str:
        words = texts[worded[document]].split()
        return words[int(share * len(words))]

    words = iter(map(draw, documents, shares))
    drawn = [" ".join(islice(words, length)) for length in lengths.tolist()]
    return [Query.of(f"random-{i}", text) for i, text in enumerate(drawn)]
