"""The types that flow through the harness and the protocols of the things that rank.

Imports numpy and the standard library only; everything else may import this module.
"""

from __future__ import annotations

import difflib
import functools
import operator
import os
import re
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

import numpy as np

# Called as progress(done, total, unit); `None` means that nobody watches.
Progress = Callable[[int, int, str], None]


class BadInput(ValueError):
    """Something that a person gave (file, config key, argument) is wrong; ends with exit code 2.

    The message says what is wrong, where (file:line or config key) and what to do.
    """


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`" Did you mean 'x'?"` for a near miss, else the empty string."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" Did you mean '{close[0]}'?" if close else ""


_Result = TypeVar("_Result")
_REMEMBERED = 16  # results of a function that are held at once, at most


def remembered(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """Make `function` remember its last results, each for as long as the objects it was made of live.

    Positional arguments (which allow weak references) are told apart by identity and must never be changed;
    keyword arguments (hashable) by value. The result must not refer to the positional arguments.
    """
    known: dict[Any, tuple[_Result, list[weakref.ref[Any]]]] = {}

    @functools.wraps(function)
    def recall(*objects: Any, **values: Any) -> _Result:
        key = (*map(id, objects), *sorted(values.items()))
        found = known.get(key)
        if found is None:
            while len(known) >= _REMEMBERED:
                known.pop(next(iter(tuple(known)), None), None)  # a copy: other threads may add to it
            # An id names another object once its own is gone: the entry goes first.
            alive = [weakref.ref(one, lambda _: known.pop(key, None)) for one in objects]
            found = known[key] = function(*objects, **values), alive
        return found[0]

    return recall


@dataclass(frozen=True, slots=True)
class Document:
    doc_id: str
    text: str
    title: str = ""
    source: str = ""
    native_id: int | None = None  # the id as the file had it, where that was a number

    @property
    def indexed_text(self) -> str:
        """Title, a space and the text where there is a title, else the text alone."""
        return f"{self.title} {self.text}" if self.title else self.text


@dataclass(frozen=True, slots=True)
class Turn:
    role: str  # "user", "assistant" or "system"
    content: str


@dataclass(frozen=True, slots=True)
class Query:
    """A query is a conversation of one or more turns; a plain question is one user turn."""

    query_id: str
    turns: tuple[Turn, ...]
    native_id: int | None = None  # as in Document

    @classmethod
    def of(cls, query_id: str, text: str) -> Query:
        return cls(query_id, (Turn("user", text),))

    @property
    def user_turns(self) -> list[str]:
        return [turn.content for turn in self.turns if turn.role == "user"]

    @property
    def text(self) -> str:
        """All user turns joined by a space: what retrievers search for."""
        return " ".join(self.user_turns)


@dataclass(frozen=True)
class Qrels:
    """Relevance labels: query_id -> {doc_id: grade}, every grade finite and > 0.

    A query that is not a key is unlabelled. A query with an empty dict *needs no retrieval* where
    `abstention` is true (the contest's labels); in TREC and BEIR labels (`abstention` false) it is
    judged and has no relevant document.
    """

    grades: Mapping[str, Mapping[str, float]]
    abstention: bool = True


@dataclass(frozen=True, eq=False)
class Predictions:
    """Lists read from a file and kept as they stand: the order and the duplicates are the file's.

    query_ids: Q unique ids. doc_ids: table of unique ids, in any order. docs: int32 [Q, K], indices
    into `doc_ids`; -1 pads the end of a row.
    """

    query_ids: tuple[str, ...]
    doc_ids: tuple[str, ...]
    docs: np.ndarray


@dataclass(frozen=True, eq=False)
class Ranking:
    """Ranked documents for a list of queries; checks its order once, here, and nobody sorts again.

    query_ids: Q unique ids, in the order of the data set.
    doc_ids:   table of D unique ids in ascending code-point order, so that comparing two indices
               compares their ids.
    docs:      int32 [Q, K], indices into `doc_ids`, best first; -1 pads at the end of a row.
    scores:    float64 [Q, K], finite, descending; a pad scores 0. Equal scores stand by ascending
               doc_id. A row may be empty.
    measured:  what the retriever found out about itself while it searched, such as the recall of an approximate
               index; logged with the run.
    """

    query_ids: tuple[str, ...]
    doc_ids: tuple[str, ...]
    docs: np.ndarray
    scores: np.ndarray
    measured: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        docs, scores = self.docs, self.scores
        if docs.dtype != np.int32 or scores.dtype != np.float64:
            raise ValueError(f"a ranking holds int32 docs and float64 scores, not {docs.dtype}, {scores.dtype}")
        if docs.ndim != 2 or docs.shape != scores.shape or len(docs) != len(self.query_ids):
            raise ValueError(f"{len(self.query_ids)} queries, docs {docs.shape} and scores {scores.shape} do not match")
        if len(set(self.query_ids)) != len(self.query_ids):
            raise ValueError("a ranking holds each query once")
        if not all(map(operator.lt, self.doc_ids, self.doc_ids[1:])):
            raise ValueError("a ranking's table of doc_ids is unique and ascending")
        if docs.size and (docs.min() < -1 or docs.max() >= len(self.doc_ids)):
            raise ValueError("a ranking's docs are indices into its doc_ids, or -1")
        present = docs >= 0
        if not np.isfinite(scores).all() or scores[~present].any():
            raise ValueError("a ranking's scores are finite, and 0 where a row is padded")
        if docs.shape[1] > 1:
            both = present[:, 1:]
            falls = scores[:, :-1] > scores[:, 1:]
            tied = (scores[:, :-1] == scores[:, 1:]) & (docs[:, :-1] < docs[:, 1:])
            if (both & ~present[:, :-1]).any():
                raise ValueError("a ranking pads only the end of a row")
            if (both & ~(falls | tied)).any():
                raise ValueError("a ranking is ordered by score descending, then doc_id ascending")
            ordered = np.sort(docs, axis=1)
            if ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any():
                raise ValueError("a ranking holds each document once per query")

    @classmethod
    def from_scores(cls, scores: Mapping[str, Mapping[str, float]], k: int | None = None) -> Ranking:
        """Build from {query_id: {doc_id: score}}, sorted by (score descending, doc_id ascending)."""
        doc_ids = tuple(sorted({doc for row in scores.values() for doc in row}))
        place = {doc: i for i, doc in enumerate(doc_ids)}
        longest = max((len(row) for row in scores.values()), default=0)
        width = longest if k is None else min(k, longest)
        docs = np.full((len(scores), width), -1, np.int32)
        values = np.zeros((len(scores), width))
        for i, row in enumerate(scores.values()):
            best = sorted(row.items(), key=lambda item: (-item[1], item[0]))[:width]
            docs[i, : len(best)] = [place[doc] for doc, _ in best]
            values[i, : len(best)] = [score for _, score in best]
        return cls(tuple(scores), doc_ids, docs, values)

    @property
    def lengths(self) -> np.ndarray:
        """int64 [Q]: how many documents each row holds."""
        return (self.docs >= 0).sum(axis=1)

    def top(self, k: int) -> Ranking:
        """The first k of every row."""
        return self if k >= self.docs.shape[1] else self._of_same(self.docs[:, :k], self.scores[:, :k])

    def cut(self, lengths: np.ndarray) -> Ranking:
        """The first `lengths[q]` of row q (int [Q], at least 0)."""
        kept = self.top(int(lengths.max(initial=0)))
        past = np.arange(kept.docs.shape[1]) >= lengths[:, None]
        return self._of_same(np.where(past, np.int32(-1), kept.docs), np.where(past, 0.0, kept.scores))

    def where(self, keep: np.ndarray) -> Ranking:
        """Empty the rows whose `keep` (bool [Q]) is false."""
        docs, scores = np.array(self.docs), np.array(self.scores)
        docs[~keep], scores[~keep] = -1, 0.0
        return self._of_same(docs, scores)

    def rescored(self, scores: np.ndarray) -> Ranking:
        """Give the first columns new scores (float64 [Q, n <= K], 0 at pads) and order them by these.

        The documents behind them keep their order and stand below: the first of them scores 1 less than the least
        new score of the row, each further one 1 less again.
        """
        width = scores.shape[1]
        head, tail = self.docs[:, :width], self.docs[:, width:]
        keys = np.where(head >= 0, -scores, np.inf)
        ranked = np.lexsort((head, keys), axis=1)
        least = np.min(np.where(head >= 0, scores, np.inf), axis=1, initial=np.inf, keepdims=True)
        below = np.where(tail >= 0, least - np.arange(1, tail.shape[1] + 1), 0.0)
        docs = np.hstack([np.take_along_axis(head, ranked, axis=1), tail])
        values = np.hstack([np.take_along_axis(np.where(head >= 0, scores, 0.0), ranked, axis=1), below])
        return Ranking(self.query_ids, self.doc_ids, docs, values, self.measured)

    def _of_same(self, docs: np.ndarray, scores: np.ndarray) -> Ranking:
        """Other rows over the same queries and documents, right by construction: nothing is checked again."""
        made = object.__new__(Ranking)
        vars(made).update(vars(self), docs=docs, scores=scores)
        return made

    def row(self, i: int) -> list[tuple[str, float]]:
        """(doc_id, score) of row i, best first."""
        n = int((self.docs[i] >= 0).sum())
        return [(self.doc_ids[d], float(s)) for d, s in zip(self.docs[i, :n], self.scores[i, :n], strict=True)]

    def to_dict(self) -> dict[str, dict[str, float]]:
        return {query_id: dict(self.row(i)) for i, query_id in enumerate(self.query_ids)}

    def to_trec(self, tag: str) -> Iterable[str]:
        """Lines `query_id Q0 doc_id rank score tag`; white space within an id is written as %20 and the like."""
        for i, query_id in enumerate(self.query_ids):
            for rank, (doc_id, score) in enumerate(self.row(i), start=1):
                yield f"{_one_word(query_id)} Q0 {_one_word(doc_id)} {rank} {score!r} {tag}"


def _one_word(text: str) -> str:
    return re.sub(r"\s", lambda space: quote(space.group()), text)


class DocIds:
    """The doc_ids of an index: one text and where each ends in it, a fifth of the memory of a list, and as fast."""

    def __init__(self, folder: Path) -> None:
        self._text = (folder / "doc_ids.txt").read_bytes().decode("utf-8", "surrogatepass")
        self._ends = np.load(folder / "doc_id_ends.npy", mmap_mode="r", allow_pickle=False)

    @staticmethod
    def save(folder: Path, documents: Sequence[Document]) -> None:
        """Keep the ids of `documents` in `folder`; ValueError unless they are unique and ascend."""
        if any(a.doc_id >= b.doc_id for a, b in pairwise(documents)):
            raise ValueError("documents are indexed in ascending order of their unique doc_id")
        ids = [document.doc_id for document in documents]
        (folder / "doc_ids.txt").write_bytes("".join(ids).encode("utf-8", "surrogatepass"))
        np.save(folder / "doc_id_ends.npy", np.cumsum([0, *map(len, ids)], dtype=np.int64))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, indices: np.ndarray) -> tuple[str, ...]:
        spans = zip(self._ends[indices].tolist(), self._ends[indices + 1].tolist(), strict=True)
        return tuple(self._text[start:end] for start, end in spans)

    def ranking(self, queries: Sequence[Query], docs: np.ndarray, scores: np.ndarray, **measured: float) -> Ranking:
        """The ranking of rows that name documents by their place in the index; its table holds those that occur."""
        found = np.zeros(len(self) + 1, bool)  # the last place is for -1, which pads
        found[docs] = True
        found[-1] = False
        places = np.cumsum(found, dtype=np.int32) - 1
        places[-1] = -1
        table = self[np.flatnonzero(found)]
        return Ranking(tuple(query.query_id for query in queries), table, places[docs], scores, measured)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Retriever(Protocol):
    """Two methods deep. A subclass of nothing; the contract suite in tests/contract.py says the rest.

    Class attributes (all optional): `version`, raised when the same parameters give other scores; `packages`,
    distributions whose installed version is part of the identity of the results; `resumes`, whether `index` goes on
    from what an interrupted call left in the folder.
    Class method (optional): `identify(**arguments) -> dict`, what stands for the constructor's arguments in the
    identity of the results, where that is not the arguments without `runtime:`.
    Attribute (optional): `progress`, set before the work begins.
    """

    def index(self, documents: Sequence[Document], folder: Path) -> None:
        """Build the index of `documents` (ascending doc_id) and keep it in `folder` (exists; empty, or resumed)."""
        ...

    def search(self, queries: Sequence[Query], k: int) -> Ranking:
        """At most k documents a query; a smaller k gives the head of a larger one. Needs `index` or `load` first."""
        ...

    def load(self, folder: Path) -> None:
        """Take up the index that another instance left in `folder`."""
        ...


class Fusion(Protocol):
    """One ranking from several; a pure function that never searches.

    `check(names)` raises BadInput where the arguments name a ranking that is not among `names`.
    """

    def check(self, names: Collection[str]) -> None: ...

    def fuse(self, rankings: Mapping[str, Ranking], k: int) -> Ranking:
        """At most k documents a query from rankings (one or more) of the same queries in the same order."""
        ...


class Reranker(Protocol):
    """Scores (query text, document text) pairs. `version`, `packages`, `identify` as in Retriever.

    depth: how many documents of a ranking it is given for each query, at least 1.
    """

    depth: int

    def score(
        self, pairs: Sequence[tuple[str, str]], progress: Progress | None = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (places in `pairs` int64 [n], scores float64 [n]) in any order, as they are computed."""
        ...
