"""Dense retrieval ranks documents, or their passages, by inner products of vectors from an encoder."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np

from harness.errors import BadInput
from retrievers.base import (
    AtMost,
    DocIds,
    Document,
    Progress,
    Query,
    Ranking,
    check_choice,
    check_whole,
    load_array,
    opened,
)
from retrievers.dense.embeddings import BadVector
from retrievers.dense.encoders import Encoder
from retrievers.dense.vectors import Flat, VectorIndex

Kind = Literal["none", "sentences", "window"]
Sentences = Annotated[int, AtMost(1000, "a longer window would hold a whole document")]
SHORTEST, LONGEST = 50, 1000  # number of characters of a sentence: shorter ones join the next, longer ones are cut
VERSION = 1  # part of the passages' identity; increase it when a change of the code gives other passages
FIRST = 4  # number of passages per requested document in the first search
ROOM = 1 << 22  # maximum number of passages found by one search, over all its queries

# A sentence ends with one or more marks such as ".", any closing quotes and brackets, and then white space. Chinese and
# Japanese marks need no white space. A line break ends a sentence; a period after a single Latin letter ("J. Smith",
# "e.g. this") does not. Marks in a row are matched only from the first, so the time is not quadratic in their number.
_END = re.compile(r"(?:(?<!\b[A-Za-z])(?<![.!?…])[.!?…]++[\"'”’)\]》」』]*+(?=\s)|[。！？]++[”’」』）]*+|\n)\s*+")

Search = Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]]


class Dense:
    """Ranks documents by the inner product of the query's and the document's vector.

    If the encoder normalises, scores are cosines and comparable across queries. A query whose vector is all zeros finds
    no document. A document cut into passages has the score of the best. Each passage starts with the document's title.

    passages: `none` to encode whole documents, `sentences` to encode each sentence, `window` to encode several
        consecutive sentences together. `sentences` and `window` need index=flat.
    window: number of sentences in a passage, at least 1.
    overlap: number of sentences that a passage shares with the next passage, less than `window`.
    """

    recorded_as = "retriever/dense"
    version = 1
    packages: tuple[str, ...] = ()
    resumes = True  # the encoder resumes; all other work is repeated, since it is fast
    sharding = "independent"

    def __init__(
        self,
        encoder: Encoder,
        index: VectorIndex,
        passages: Kind = "none",
        window: Sentences = 3,
        overlap: Sentences = 1,
    ) -> None:
        self.progress: Progress | None = None  # called while texts are encoded
        self.timed = False
        self._encoder, self._index = encoder, index
        self._passages = Passages(passages, window, overlap)
        if passages != "none" and not isinstance(index, Flat):
            raise BadInput(
                f"passages={passages} needs index=flat: an approximate index would miss documents whose best passage "
                "it does not propose. Use index=flat, or passages=none."
            )
        self._doc_ids: DocIds | None = None

    @classmethod
    def identify(
        cls, encoder: Any, index: Any, passages: Kind = "none", window: Sentences = 3, overlap: Sentences = 1
    ) -> dict[str, Any]:
        how = Passages(passages, window, overlap).identity()
        return {"encoder": encoder, "index": index} | ({"passages": how} if how else {})

    def check_sharding(self) -> None:
        """Raise BadInput for an encoder that learns from the documents, because shards would train different models."""
        if getattr(self._encoder, "learns", False):
            raise BadInput(
                f"{type(self._encoder).__name__} learns from all documents, so they cannot be encoded shard by shard: "
                "use cluster.shard=null, or another encoder, such as encoder=use_multilingual."
            )

    def index(self, documents: Sequence[Document], folder: Path) -> None:
        DocIds.save(folder, documents)
        encoded, built = folder / "encoded", folder / "index"
        encoded.mkdir(exist_ok=True)
        built.mkdir(exist_ok=True)
        texts, starts = self._passages.of(documents)
        if self._passages.kind != "none":
            np.save(folder / "passage_starts.npy", starts, allow_pickle=False)
        try:
            self._encoder.encode_documents(texts, encoded, self._reporting())
        except BadVector as error:
            row = int(np.searchsorted(starts, error.row, side="right")) - 1
            raise _bad_vector("document", documents[row].doc_id, error) from error
        self._index.progress = self.progress
        self._index.build(_embeddings(encoded, len(texts)), built)
        self.load(folder)

    def load(self, folder: Path) -> None:
        doc_ids = DocIds(folder)
        cut = self._passages.kind != "none"
        self._starts = load_array(folder, "passage_starts") if cut else np.arange(len(doc_ids) + 1)
        self._encoded = folder / "encoded"
        self._vectors = _embeddings(self._encoded, int(self._starts[-1]))
        self._index.load(folder / "index")
        self._doc_ids = doc_ids

    def search(self, queries: Sequence[Query], k: int) -> Ranking:
        doc_ids = opened(self._doc_ids, k)
        try:
            vectors = self._encoder.encode_queries([query.text for query in queries], self._encoded, self.progress)
        except BadVector as error:
            raise _bad_vector("query", queries[error.row].query_id, error) from error
        self._index.progress = self.progress
        if self._passages.kind == "none":
            hits = self._index.search(vectors, self._vectors, k, measure=not self.timed)
            return doc_ids.ranking(queries, hits.docs, hits.scores, **hits.measured)

        def search(some: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
            hits = self._index.search(some, self._vectors, count, measure=False)
            return hits.docs, hits.scores

        return doc_ids.ranking(queries, *best_documents(search, vectors, self._starts, k))

    def _reporting(self) -> Progress | None:
        report = self.progress
        if report is None or self._passages.kind == "none":
            return report
        return lambda done, total, unit: report(done, total, PassageTexts.unit)


def _embeddings(folder: Path, count: int) -> np.ndarray:
    vectors = load_array(folder, "embeddings")
    if vectors.dtype != np.float32 or vectors.ndim != 2 or len(vectors) != count or not vectors.flags.c_contiguous:
        raise ValueError(
            f"{folder / 'embeddings.npy'} is {vectors.dtype} {list(vectors.shape)}, but must be C-contiguous "
            f"float32 [{count}, D], one row for each of the {count} documents"
        )
    return vectors


def _bad_vector(kind: str, name: str, error: BadVector) -> BadInput:
    return BadInput(f"the vector of {kind} {name!r} {error.reason}: check its text, or use another encoder.")


class PassageTexts(list[str]):
    """The texts of passages. unit: what to call them in progress."""

    unit = "passages"


@dataclass(frozen=True)
class Passages:
    """Cuts documents into passages. The fields are the arguments `passages`, `window` and `overlap` of Dense."""

    kind: Kind = "none"
    window: Sentences = 3
    overlap: Sentences = 1

    def __post_init__(self) -> None:
        check_choice("passages", self.kind, get_args(Kind))
        check_whole("window", self.window, "a number of sentences, at least 1", 1)
        check_whole("overlap", self.overlap, "a number of sentences, at least 0", 0)
        if self.overlap >= self.window:
            raise BadInput(f"overlap ({self.overlap}) must be less than window ({self.window}): lower it.")

    def identity(self) -> dict[str, Any]:
        sizes = {"window": self.window, "overlap": self.overlap} if self.kind == "window" else {}
        return {} if self.kind == "none" else {"kind": self.kind, "version": VERSION, **sizes}

    def of(self, documents: Sequence[Document]) -> tuple[list[str], np.ndarray]:
        """Return passages (with titles) and `starts`: document n has the passages starts[n] to starts[n + 1] - 1."""
        texts, ends = list[str]() if self.kind == "none" else PassageTexts(), [0]
        for document in documents:
            title = f"{document.title} " if document.title else ""
            texts += [title + passage for passage in self.cut(document.text)]
            ends.append(len(texts))
        return texts, np.array(ends, np.int64)

    def cut(self, text: str) -> list[str]:
        """Return the passages of a text, at least one. Only white space between passages is lost."""
        if self.kind == "none":
            return [text]
        spans = sentences(text)
        size, step = (1, 1) if self.kind == "sentences" else (self.window, self.window - self.overlap)
        firsts = range(0, max(1, len(spans) - size + step), step)
        return [text[spans[i][0] : spans[min(i + size, len(spans)) - 1][1]] for i in firsts]


def sentences(text: str) -> list[tuple[int, int]]:
    """Return (start, end) of each sentence without the white space around it; [(0, 0)] if there is no sentence.

    A sentence with fewer than 50 characters, such as a number before a heading, joins the next one. If none follows, it
    joins the previous one. A sentence with more than 1,000 characters is cut, if possible at white space.
    """
    found = list[tuple[int, int]]()
    start = 0
    for end in [*(match.end() for match in _END.finditer(text)), len(text)]:
        if end - start >= SHORTEST:
            found += _cut(text, start, end)
            start = end
    if text[start:].strip():
        found[-1:] = [(found[-1][0], len(text))] if found else _cut(text, start, len(text))
    spans = [_trimmed(text, *span) for span in found]
    return [span for span in spans if span[0] < span[1]] or [(0, 0)]


def _cut(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    while end - start > LONGEST:
        space = max(text.rfind(mark, start + LONGEST // 2, start + LONGEST) for mark in " \t\u3000")
        middle = space + 1 if space >= 0 else start + LONGEST
        yield start, middle
        start = middle
    yield start, end


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    inner = text[start:end]
    return start + len(inner) - len(inner.lstrip()), end - len(inner) + len(inner.rstrip())


def best_documents(search: Search, queries: np.ndarray, starts: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each query, the k documents with the best passages: (docs, scores) as in VectorHits.

    Passages are ordered by score, then by number. The first k different documents in this order are the best. If the
    passages found for a query belong to fewer than k documents, the search is repeated for more passages.

    search: an exact search, (queries float32 [n, D], number of passages) -> (passages, scores) as in VectorHits.
    starts: int64 [N + 1], as in `Passages.of`.
    """
    passages, width = int(starts[-1]), min(k, len(starts) - 1)
    docs, scores = np.full((len(queries), width), -1, np.int32), np.zeros((len(queries), width))
    open_rows, fetched = np.arange(len(queries) if width else 0), min(passages, FIRST * k)
    while len(open_rows):
        left = []
        for rows in np.array_split(open_rows, 1 + len(open_rows) * fetched // ROOM):
            found, values = search(queries[rows], fetched)
            documents = np.searchsorted(starts, found, side="right").astype(np.int32) - 1
            docs[rows], scores[rows] = _first(documents, values, width)
            done = (docs[rows, -1] >= 0) | (found[:, -1] < 0) | (fetched == passages)
            left.append(rows[~done])
        open_rows, fetched = np.concatenate(left), min(passages, FIRST * fetched)
    return docs, scores


def _first(documents: np.ndarray, scores: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(documents, axis=1, kind="stable")
    ordered = np.take_along_axis(documents, order, axis=1)
    new = np.ones(documents.shape, bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first = np.zeros(documents.shape, bool)
    np.put_along_axis(first, order, new & (ordered >= 0), axis=1)
    place = np.cumsum(first, axis=1) - 1
    rows, columns = np.nonzero(first & (place < width))
    docs, values = np.full((len(documents), width), -1, np.int32), np.zeros((len(documents), width))
    docs[rows, place[rows, columns]] = documents[rows, columns]
    values[rows, place[rows, columns]] = scores[rows, columns]
    return docs, values
