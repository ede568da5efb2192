"""Documents, queries and rankings, and the protocols of retrievers, fusions and rerankers."""

from __future__ import annotations

import functools
import json
import math
import operator
import os
import re
import threading
import weakref
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import chain, compress, pairwise
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar
from urllib.parse import quote

import numpy as np

from harness.errors import BadInput, did_you_mean

# Called as progress(done, total, unit), such as progress(3, 10, "texts"). None: nothing is reported.
Progress = Callable[[int, int, str], None]
MOST_CORES = 4_096  # the largest valid HARNESS_CORES; no machine has more cores
CELLS, LISTED = 1 << 20, 1 << 16  # cells of an array that are checked, or made objects, at a time, to limit memory
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class AtMost:
    """The largest absolute value that a config argument may have, and why: `Annotated[int, AtMost(100, "...")]`."""

    most: float
    why: str


Threads = Annotated[int, AtMost(256, "more threads than cores only wait for each other")]
Seed = Annotated[int, AtMost(2**32 - 1, "random generators take 32 bits")]


def check_whole(name: str, value: object, give: str, least: float, most: float = math.inf) -> None:
    """Raise BadInput unless `value` is an int (not a bool) from `least` to `most`. give: the valid values, in words."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise BadInput(f"{name} is {value!r}: give {give}.")


def check_choice(name: str, value: object, known: Collection[str]) -> None:
    if value not in known:
        raise BadInput(f"{name} is {value!r}: choose one of {', '.join(known)}.{did_you_mean(str(value), known)}")


_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_REMEMBERED = 16  # maximum number of cached results per function


def remembered(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """Cache the last 16 results of `function`, each until a positional argument of its call is garbage-collected.

    Positional arguments are compared by identity. They must support weak references, and must never change. Keyword
    arguments are compared by value. The result must not refer to the positional arguments.
    """
    cached: dict[Any, tuple[_Result, list[weakref.ref[Any]]]] = {}

    @functools.wraps(function)
    def recall(*objects: Any, **values: Any) -> _Result:
        key = (*map(id, objects), *sorted(values.items()))
        entry = cached.get(key)
        if entry is None:
            while len(cached) >= _REMEMBERED:
                cached.pop(next(iter(tuple(cached)), None), None)  # from a copy, as other threads may add entries
            # Python can reuse the `id` of a dead object, so the entry is removed together with the object.
            alive = [weakref.ref(one, lambda _: cached.pop(key, None)) for one in objects]
            entry = cached[key] = function(*objects, **values), alive
        return entry[0]

    return recall


@dataclass(frozen=True, slots=True)
class Document:
    """native_id: the id as a number if the dataset's file has numbers as ids, else None."""

    doc_id: str
    text: str
    title: str = ""
    source: str = ""
    native_id: int | None = None

    @property
    def indexed_text(self) -> str:
        return f"{self.title} {self.text}" if self.title else self.text


class IndexedTexts(Sequence[str]):
    """The indexed texts of documents. They are made on demand, since the documents may be on disk."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self._documents = documents

    def __len__(self) -> int:
        return len(self._documents)

    def __getitem__(self, place: Any) -> Any:
        found = self._documents[place]
        return tuple(one.indexed_text for one in found) if isinstance(place, slice) else found.indexed_text

    def __iter__(self) -> Iterator[str]:
        return (document.indexed_text for document in self._documents)


@dataclass(frozen=True, slots=True)
class Turn:
    role: str  # "user", "assistant" or "system"
    content: str


@dataclass(frozen=True, slots=True)
class Query:
    """A conversation. A plain question is a single user turn. native_id: as in Document.

    attributes: name -> value of what the data say about the query. They change no retrieval: fingerprints and trial
        keys leave them out, and the queries that a retriever gets have none.
    """

    query_id: str
    turns: tuple[Turn, ...]
    native_id: int | None = None
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)

    @classmethod
    def of(
        cls, query_id: str, text: str, native_id: int | None = None, attributes: Mapping[str, str] | None = None
    ) -> Query:
        return cls(query_id, (Turn("user", text),), native_id, attributes or {})

    @property
    def user_turns(self) -> list[str]:
        return [turn.content for turn in self.turns if turn.role == "user"]

    @property
    def text(self) -> str:
        """The text to search for: the user turns, joined by spaces."""
        return " ".join(self.user_turns)


@dataclass(frozen=True, eq=False)
class Ranking:
    """Ranked documents for Q queries. The constructor checks the rules below.

    query_ids: Q unique ids, in the order of the dataset.
    doc_ids: D unique ids in ascending code-point order, so the order of indices is the order of ids.
    docs: int32 [Q, K], indices into `doc_ids`, best first; -1 pads the end of a row. A row may be empty.
    scores: float64 [Q, K], finite, descending; ties are in ascending order of doc_id. Pads have the score 0.
    measured: values that the retriever measured during the search, such as an index's recall. They are logged.
    """

    query_ids: tuple[str, ...]
    doc_ids: tuple[str, ...]
    docs: np.ndarray
    scores: np.ndarray
    measured: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        docs, scores = self.docs, self.scores
        if docs.dtype != np.int32 or scores.dtype != np.float64:
            raise ValueError(f"a ranking needs int32 docs and float64 scores, not {docs.dtype} and {scores.dtype}")
        if docs.ndim != 2 or docs.shape != scores.shape or len(docs) != len(self.query_ids):
            raise ValueError(f"{len(self.query_ids)} queries, docs {docs.shape} and scores {scores.shape} do not match")
        if len(set(self.query_ids)) != len(self.query_ids):
            raise ValueError("a ranking must contain each query once")
        if not all(map(operator.lt, self.doc_ids, self.doc_ids[1:])):
            raise ValueError("a ranking's doc_ids must be unique and ascending")
        if docs.size and (docs.min() < -1 or docs.max() >= len(self.doc_ids)):
            raise ValueError("a ranking's docs must be indices into its doc_ids, or -1")
        for part in row_blocks(docs.shape):
            _check_rows(docs[part], scores[part])

    @classmethod
    def from_scores(cls, scores: Mapping[str, Mapping[str, float]], k: int | None = None) -> Ranking:
        """Rank {query_id: {doc_id: score}}, ties by doc_id. k: maximum number of documents per query; None for all."""
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
        """The number of documents in each row, int64 [Q]."""
        return (self.docs >= 0).sum(axis=1)

    def top(self, k: int) -> Ranking:
        return self if k >= self.docs.shape[1] else self._of_same(self.docs[:, :k], self.scores[:, :k])

    def take(self, rows: np.ndarray) -> Ranking:
        """Return the ranking of some queries. rows: bool [Q], or unique row numbers."""
        kept = np.arange(len(self.query_ids))[rows].tolist()
        query_ids = tuple(self.query_ids[row] for row in kept)
        return self._of_same(self.docs[rows], self.scores[rows], query_ids=query_ids)

    def cut(self, lengths: np.ndarray) -> Ranking:
        """Return a copy that keeps only the first lengths[q] documents of row q. lengths: int [Q], at least 0."""
        top = self.top(int(lengths.max(initial=0)))
        past = np.arange(top.docs.shape[1]) >= lengths[:, None]
        return self._of_same(np.where(past, np.int32(-1), top.docs), np.where(past, 0.0, top.scores))

    def where(self, keep: np.ndarray) -> Ranking:
        """Return a ranking whose rows are empty where `keep`, bool [Q], is false."""
        if keep.all():
            return self
        docs, scores = np.array(self.docs), np.array(self.scores)
        docs[~keep], scores[~keep] = -1, 0.0
        return self._of_same(docs, scores)

    def with_measured(self, measured: Mapping[str, float]) -> Ranking:
        return self._of_same(self.docs, self.scores, measured=measured)

    def rescored(self, scores: np.ndarray) -> Ranking:
        """Reorder the first n documents of each row by new scores.

        The others follow in their old order. Their scores are s - 1, s - 2, ..., where s is the row's lowest new score.

        scores: float64 [Q, n] with n <= K, 0 at pads.
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

    def _of_same(self, docs: np.ndarray, scores: np.ndarray, **others: Any) -> Ranking:
        made = object.__new__(Ranking)
        vars(made).update(vars(self) | others, docs=docs, scores=scores)
        return made

    def row(self, i: int) -> list[tuple[str, float]]:
        """Return the (doc_id, score) pairs of row i, best first."""
        n = int((self.docs[i] >= 0).sum())
        return [(self.doc_ids[d], float(s)) for d, s in zip(self.docs[i, :n], self.scores[i, :n], strict=True)]

    def to_dict(self) -> dict[str, dict[str, float]]:
        return {query_id: dict(self.row(i)) for i, query_id in enumerate(self.query_ids)}

    def to_trec(self, tag: str) -> Iterable[str]:
        """Yield the lines `query_id Q0 doc_id rank score tag` of each query, in one text; "" for an empty row.

        White space in ids is percent-encoded.
        """
        words, rows = tuple(map(one_word, self.doc_ids)), (in_rows(self.docs), in_rows(self.scores))
        for query_id, docs, scores in zip(map(one_word, self.query_ids), *rows, strict=True):
            ranked = enumerate(zip(docs, scores, strict=True), start=1)
            lines = [
                f"{query_id} Q0 {words[doc]} {rank} {score!r} {tag}\n" for rank, (doc, score) in ranked if doc >= 0
            ]
            yield "".join(lines)


def _check_rows(docs: np.ndarray, scores: np.ndarray) -> None:
    present = docs >= 0
    if not np.isfinite(scores).all() or scores[~present].any():
        raise ValueError("a ranking's scores must be finite, and 0 where a row is padded")
    if docs.shape[1] < 2:
        return
    both = present[:, 1:]
    falls = scores[:, :-1] > scores[:, 1:]
    tied = (scores[:, :-1] == scores[:, 1:]) & (docs[:, :-1] < docs[:, 1:])
    if (both & ~present[:, :-1]).any():
        raise ValueError("a ranking pads only the end of a row, but a document follows a pad")
    if (both & ~(falls | tied)).any():
        raise ValueError("a ranking must be ordered by score descending, then doc_id ascending")
    ordered = np.sort(docs, axis=1)
    if ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any():
        raise ValueError("a ranking must contain each document once per query")


def row_blocks(shape: tuple[int, ...], cells: int = CELLS) -> Iterator[slice]:
    """Yield slices that cover the rows of an array, each with at most `cells` cells, or with one row."""
    step = max(1, cells // max(1, math.prod(shape[1:])))
    yield from (slice(start, start + step) for start in range(0, shape[0], step))


def in_rows(values: np.ndarray) -> Iterator[Any]:
    """Yield the rows of an array like `values.tolist()`, with a part of them in memory at a time."""
    for part in row_blocks(values.shape, LISTED):
        yield from values[part].tolist()


def one_table(tables: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], list[np.ndarray]]:
    """Return the distinct ids of several lists, ascending, and each list as int32 indices into these ids."""
    ids = list(chain.from_iterable(tables))
    order = sorted(range(len(ids)), key=ids.__getitem__)  # faster than hashing: the sort merges ascending lists
    ascending = [ids[i] for i in order]
    new = np.fromiter(map(operator.ne, ascending, [None, *ascending[:-1]]), bool, len(ids))
    places = np.empty(len(ids), np.int32)
    places[order] = np.cumsum(new) - 1
    ends = np.cumsum([len(table) for table in tables])[:-1]
    return tuple(compress(ascending, new.tolist())), np.split(places, ends)


def occurring(docs: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct numbers in `docs` (0 to count - 1), ascending, and `docs` as indices into them; -1 stays."""
    if docs.size < count // 16:  # a sort is faster than a look at all numbers
        used, inverse = np.unique(docs, return_inverse=True)
        pads = used.searchsorted(0)
        return used[pads:], (inverse.reshape(docs.shape) - pads).astype(np.int32)
    occurs = np.zeros(count + 1, bool)  # the last element is for -1, the pad
    occurs[docs] = True
    occurs[-1] = False
    places = np.cumsum(occurs, dtype=np.int32) - 1
    places[-1] = -1
    return np.flatnonzero(occurs), places.take(docs)


def encodable(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, with U+FFFD."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def one_word(text: str) -> str:
    """Percent-encode white space, for formats whose fields are separated by spaces."""
    return re.sub(r"\s", lambda space: quote(space.group()), text)


class DocIds:
    """An index's doc_ids, in the order of document numbers.

    The ids of more than LISTED documents are only kept as one joined text, which takes a fifth of a list's memory.
    """

    def __init__(self, folder: Path) -> None:
        self._text = (folder / "doc_ids.txt").read_bytes().decode("utf-8", "surrogatepass")
        self._ends = np.asarray(load_array(folder, "doc_id_ends"))

    @staticmethod
    def save(folder: Path, documents: Sequence[Document]) -> None:
        """Write the ids of `documents` to `folder`. Raise ValueError unless the ids are unique and ascending."""
        ends, before = array("q", [0]), None
        with (folder / "doc_ids.txt").open("wb") as file:
            for document in documents:  # they may be on disk, so they are read once
                one = document.doc_id
                if before is not None and before >= one:
                    raise ValueError("documents must be indexed in ascending order of doc_id, each doc_id once")
                file.write(one.encode("utf-8", "surrogatepass"))
                ends.append(ends[-1] + len(one))
                before = one
        np.save(folder / "doc_id_ends.npy", np.frombuffer(ends, np.int64))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, indices: np.ndarray) -> tuple[str, ...]:
        return tuple(self._listed[indices].tolist() if len(self) <= LISTED else self._cut(indices))

    @functools.cached_property
    def _listed(self) -> np.ndarray:
        return np.array(self._cut(np.arange(len(self))), object)

    def _cut(self, indices: np.ndarray) -> list[str]:
        text, ends = self._text, self._ends
        spans = zip(ends[indices].tolist(), ends[indices + 1].tolist(), strict=True)
        return [text[start:end] for start, end in spans]  # faster than a generator

    def ranking(self, queries: Sequence[Query], docs: np.ndarray, scores: np.ndarray, **measured: float) -> Ranking:
        """Return a Ranking. docs, scores: as in Ranking, but `docs` holds document numbers of this index."""
        used, places = occurring(docs, len(self))
        return Ranking(tuple(query.query_id for query in queries), self[used], places, scores, measured)


def opened(doc_ids: DocIds | None, k: int) -> DocIds:
    """Return `doc_ids`. Raise RuntimeError if no index is open (None), and BadInput if k < 0."""
    if k < 0:
        raise BadInput(f"k is {k}: give the number of documents to return, at least 0.")
    if doc_ids is None:
        raise RuntimeError("call `index` or `load` before `search`")
    return doc_ids


_parsing = threading.Lock()  # NumPy parses a file's header as Python code, which CPython 3.11 cannot do in two threads


def load_array(folder: Path, name: str) -> np.ndarray:
    with _parsing:
        return np.lib.format.open_memmap(folder / f"{name}.npy", mode="r")


def new_array(file: Path, kind: type[np.generic], *shape: int) -> np.ndarray:
    """Create a file in NumPy's format, and return its memory map. Raise OSError if the disk lacks room."""
    values = np.asarray(np.lib.format.open_memmap(file, "w+", kind, shape))
    if hasattr(os, "posix_fallocate"):  # without reserved room, a full disk would kill the process
        with file.open("r+b") as opened:
            os.posix_fallocate(opened.fileno(), 0, os.fstat(opened.fileno()).st_size)
    return values


def require_identity(file: Path, identity: Mapping[str, Any]) -> None:
    """Raise ValueError unless the JSON in an index's `file` equals `identity`."""
    found = json.loads(file.read_text(encoding="ascii"))
    if found != identity:
        raise ValueError(f"the index in {file.parent} was made with {found}, not with {identity}")


def read_only(values: np.ndarray) -> np.ndarray:
    """Return a read-only view, for kernels that are compiled for read-only arrays."""
    view = np.asarray(values).view()
    view.flags.writeable = False
    return view


def cores() -> int:
    if share := os.environ.get("HARNESS_CORES"):
        if not share.isascii() or not share.isdigit() or not 0 < int(share) <= MOST_CORES:
            raise BadInput(f"HARNESS_CORES={share!r:.60}: give a number of cores, 1 to {MOST_CORES:,}, or unset it.")
        return int(share)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def _helpers(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count)  # kept, since on busy cores it can take milliseconds until a new thread runs


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helpers.cache_clear)  # a fork has none of the threads


def in_parts(count: int, parts: int, threads: int, work: Callable[[int, int], None]) -> None:
    """Cut range(count) into at most `parts` ranges, and call work(first, last) for each of them on several threads.

    This thread takes ranges, too. It does not wait for helpers that have not begun when all ranges are taken.
    """
    borders = np.linspace(0, count, 1 + min(parts, count)).astype(int).tolist()
    ranges = iter(list(pairwise(borders)))  # threads can share the iterator of a list

    def take() -> None:
        try:
            for first, last in ranges:
                work(first, last)
        finally:
            deque(ranges, 0)  # after an error, no thread begins another range

    helpers = [_helpers(threads - 1).submit(take) for _ in range(min(threads, len(borders) - 1) - 1)]
    try:
        take()
    finally:
        begun = [helper for helper in helpers if not helper.cancel()]
        wait(begun)
    for helper in begun:
        helper.result()


def ahead(call: Callable[[_Item], _Result], items: Iterable[_Item], threads: int = 1) -> Iterator[_Result]:
    """Yield the result of `call` for each item, in order, while threads compute the next results. threads: may be 0."""
    if not threads:
        yield from map(call, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[_Result]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(call, item))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for left in waiting:  # after an interruption, only calls that have begun are waited for
                left.cancel()


class Retriever(Protocol):
    """Ranks documents for queries. Any class with these methods is a retriever; there is no base class.

    `retrievers.testing.check_retriever` tests the contract. Constructor arguments are config keys.

    Class attributes, all optional:
        recorded_as: the class's name in identities and logs, such as retriever/bm25; default: its import path.
        version: increase it when the same arguments give different scores.
        packages: distributions whose installed versions are part of the results' identity.
        resumes: whether `index` continues from files that an interrupted call left in the folder.
        source: the argument that names an external file or module; `identify` returns its checksum as `sha256`.
        precomputed: whether the rankings were made elsewhere, for the dataset's queries only. No search is then timed.
        times_itself: whether `search` measures `latency_p50_ms`. If so, the harness makes no extra search for timing.

    Class method, optional:
        identify(**arguments) -> dict: return the identity, for example with a checksum in place of a path. Default: all
            arguments except those under `runtime:`.

    Methods, optional, called before a run begins:
        check_data(doc_ids, queries): raise BadInput if a run on these documents and queries cannot work.
        check_size(count, k): raise BadInput or Failed if a search cannot find k of `count` documents.

    Attributes, optional:
        progress: a Progress or None, set before the work begins.
        timed: set to True before searches are timed; `search` may then skip other measurements.
    """

    def index(self, documents: Sequence[Document], folder: Path) -> None:
        """Write the index of `documents` to `folder`. `search` can then be called.

        documents: in ascending order of doc_id.
        folder: an existing folder. It is empty unless `resumes` is true and an interrupted call left files.
        """

    def search(self, queries: Sequence[Query], k: int) -> Ranking:
        """Return at most k documents per query. With a smaller k, return the first k of the same documents."""

    def load(self, folder: Path) -> None:
        """Open the index that another instance wrote to `folder`. `search` can then be called."""


class Fusion(Protocol):
    """Combines rankings into one, as a pure function. It has the class attributes of Retriever."""

    def check(self, names: Collection[str]) -> None:
        """Raise BadInput if an argument refers to a ranking that is not among `names`."""

    def fuse(self, rankings: Mapping[str, Ranking], k: int) -> Ranking:
        """Return at most k documents per query. rankings: one or more, by name, with equal `query_ids`."""


class Reranker(Protocol):
    """Scores (query text, document text) pairs. It has the class attributes and `identify` of Retriever.

    depth: the number of documents to score per query; 0: no document is reranked.
    """

    depth: int

    def score(self, pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (indices into `pairs`, int64 [n]; their scores, float64 [n]) in batches, each pair once."""
