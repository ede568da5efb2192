"""Dense retrieval: an encoder turns texts, or passages of them, into vectors, and inner products rank documents."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

import numpy as np

from harness.errors import BadInput, did_you_mean
from retrievers.base import AtMost, DocIds, Document, Progress, Query, Ranking, is_whole
from retrievers.dense.embeddings import BadVector
from retrievers.dense.encoders import Encoder
from retrievers.dense.vectors import Flat, VectorIndex

Kind = Literal["none", "sentences", "window"]
Sentences = Annotated[int, AtMost(1000, "a window of more sentences is the document")]
KINDS = get_args(Kind)
SHORTEST, LONGEST = 50, 1000  # characters of a sentence: shorter ones join the next, longer ones are cut
VERSION = 1  # raise it when the same settings cut otherwise
FIRST = 4  # passages per wanted document that are searched for at first
ROOM = 1 << 22  # passages found for all queries that are searched at a time

# The end of a sentence: marks, closing quotes and brackets, then white space. Marks of Chinese and Japanese need no
# white space; a period after a single Latin letter ends no sentence ("J. Smith", "e.g. this"); a line break ends one.
# Each run of marks is tried from its beginning alone, or a long one would take the square of its length.
_END = re.compile(r"(?:(?<!\b[A-Za-z])(?<![.!?…])[.!?…]++[\"'”’)\]》」』]*+(?=\s)|[。！？]++[”’」』）]*+|\n)\s*+")

Search = Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]]

STARTS = "passage_starts.npy"


class Dense:
    """Ranks by the inner product of the query's vector and the document's.

    If the encoder normalises, that is the cosine, and scores are comparable across queries. A query with a vector of
    zeros finds nothing. With passages, a document scores what its best passage does: a long document is found by the
    sentence that answers, which the vector of the whole text may not show. Each passage follows the document's title.

    encoder: turns documents and queries into vectors.
    index: searches the documents' vectors.
    passages: none: a document is encoded as a whole; sentences: by sentences; window: by runs of sentences. Passages
        need index=flat.
    window: sentences of a run, at least 1.
    overlap: sentences that a run shares with the next one, less than `window`.
    """

    recorded_as = "retriever/dense"
    version = 1
    packages: tuple[str, ...] = ()
    resumes = True  # the encoder resumes; everything else is fast and repeated
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
        self._encoder = encoder
        self._index = index
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
        """Encoder and index; and how documents are cut, if they are: what cuts none is recorded as it always was."""
        how = Passages(passages, window, overlap).identity()
        return {"encoder": encoder, "index": index} | ({"passages": how} if how else {})

    def check_sharding(self) -> None:
        """Raise BadInput for an encoder that learns from the documents: from those of each shard, it would learn
        another."""
        if getattr(self._encoder, "learns", False):
            raise BadInput(
                f"{type(self._encoder).__name__} learns from all documents, so they cannot be encoded shard by shard: "
                "use cluster.shard=null, or another encoder, such as encoder=use_multilingual."
            )

    def index(self, documents: Sequence[Document], folder: Path) -> None:
        """Encode and index `documents` (ascending doc_id, else ValueError) in `folder`; `search` can then be called."""
        DocIds.save(folder, documents)
        encoded, built = folder / "encoded", folder / "index"
        encoded.mkdir(exist_ok=True)
        built.mkdir(exist_ok=True)
        texts, starts = self._passages.of(documents)
        if self._passages.kind != "none":
            np.save(folder / STARTS, starts, allow_pickle=False)
        try:
            self._encoder.encode_documents(texts, encoded, self._reporting())
        except BadVector as error:
            row = int(np.searchsorted(starts, error.row, side="right")) - 1
            raise _bad_vector("document", documents[row].doc_id, error) from error
        self._report_index()
        self._index.build(_embeddings(encoded, len(texts)), built)
        self.load(folder)

    def load(self, folder: Path) -> None:
        """Memory-map the index in `folder`; raise ValueError if the vectors do not match its documents."""
        self._encoded = folder / "encoded"
        doc_ids = DocIds(folder)
        self._starts = np.arange(len(doc_ids) + 1)
        if self._passages.kind != "none":
            self._starts = np.load(folder / STARTS, allow_pickle=False)
        self._vectors = _embeddings(self._encoded, int(self._starts[-1]))
        self._index.load(folder / "index")
        self._doc_ids = doc_ids

    def search(self, queries: Sequence[Query], k: int) -> Ranking:
        """Return at most k >= 0 documents per query."""
        if self._doc_ids is None:
            raise RuntimeError("Dense.search needs index or load first")
        if k < 0:
            raise BadInput(f"k is {k}: give the number of documents to return, at least 0.")
        try:
            vectors = self._encoder.encode_queries([query.text for query in queries], self._encoded, self.progress)
        except BadVector as error:
            raise _bad_vector("query", queries[error.row].query_id, error) from error
        self._report_index()
        if self._passages.kind == "none":
            hits = self._index.search(vectors, self._vectors, k, measure=not self.timed)
            return self._doc_ids.ranking(queries, hits.docs, hits.scores, **hits.measured)
        docs, scores = best_documents(self._best_passages, vectors, self._starts, k)
        return self._doc_ids.ranking(queries, docs, scores)

    def _best_passages(self, vectors: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        hits = self._index.search(vectors, self._vectors, count, measure=False)
        return hits.docs, hits.scores

    def _report_index(self) -> None:
        """Let an index that takes long report its progress."""
        if hasattr(self._index, "progress"):
            self._index.progress = self.progress

    def _reporting(self) -> Progress | None:
        """`progress`, which is told that passages are encoded, not documents."""
        report = self.progress
        if report is None or self._passages.kind == "none":
            return report
        return lambda done, total, unit: report(done, total, "passages")


def _embeddings(folder: Path, count: int) -> np.ndarray:
    """Return the vectors of `count` documents or passages, float32 [count, D], memory-mapped."""
    vectors = np.load(folder / "embeddings.npy", mmap_mode="r", allow_pickle=False)
    if vectors.dtype != np.float32 or vectors.ndim != 2 or len(vectors) != count or not vectors.flags.c_contiguous:
        raise ValueError(
            f"{folder / 'embeddings.npy'} is {vectors.dtype} {list(vectors.shape)}, but must be C-contiguous "
            f"float32 [{count}, D], one row for each of the {count} documents"
        )
    return vectors


def _bad_vector(kind: str, name: str, error: BadVector) -> BadInput:
    return BadInput(f"the vector of {kind} {name!r} {error.reason}: check its text, or use another encoder.")


class PassageTexts(NamedTuple):
    """The passages of N documents, P in all.

    texts: P texts, document by document.
    starts: int64 [N + 1]; document n has the passages starts[n] to starts[n + 1] - 1, at least one.
    """

    texts: list[str]
    starts: np.ndarray


@dataclass(frozen=True)
class Passages:
    """How documents are cut into passages.

    kind: `none`: a document is one passage. `sentences`: each sentence is one. `window`: runs of sentences.
    window: sentences of a run, at least 1.
    overlap: sentences that a run shares with the next one, less than `window`.
    """

    kind: Kind = "none"
    window: Sentences = 3
    overlap: Sentences = 1

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadInput(
                f"passages is {self.kind!r}: choose one of {', '.join(KINDS)}.{did_you_mean(str(self.kind), KINDS)}"
            )
        for name, value, least in (("window", self.window, 1), ("overlap", self.overlap, 0)):
            if not is_whole(value, least):
                raise BadInput(f"{name} is {value!r}: give a number of sentences, at least {least}.")
        if self.overlap >= self.window:
            raise BadInput(f"overlap ({self.overlap}) must be less than window ({self.window}): lower it.")

    def identity(self) -> dict[str, Any]:
        """Return what decides the passages; {} where documents are not cut."""
        sizes = {"window": self.window, "overlap": self.overlap} if self.kind == "window" else {}
        return {} if self.kind == "none" else {"kind": self.kind, "version": VERSION, **sizes}

    def of(self, documents: Sequence[Document]) -> PassageTexts:
        """Return the passages of documents, each with the document's title before it."""
        texts, counts = list[str](), list[int]()
        for document in documents:
            cut = self.cut(document.text)
            title = f"{document.title} " if document.title else ""
            texts += [title + passage for passage in cut]
            counts.append(len(cut))
        return PassageTexts(texts, np.cumsum([0, *counts], dtype=np.int64))

    def cut(self, text: str) -> list[str]:
        """Return the passages of a text, at least one; together they have all of it but white space at their ends."""
        if self.kind == "none":
            return [text]
        spans = sentences(text)
        size, step = (1, 1) if self.kind == "sentences" else (self.window, self.window - self.overlap)
        firsts = range(0, max(1, len(spans) - size + step), step)
        return [text[spans[i][0] : spans[min(i + size, len(spans)) - 1][1]] for i in firsts]


def sentences(text: str) -> list[tuple[int, int]]:
    """Return (start, end) of the sentences of a text, in order, without white space around them; at least one.

    A sentence of less than 50 characters belongs to the next one (the last to the one before), such as a number before
    a heading; one of more than 1,000 is cut at white space, or within a word where there is none.
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
    """Pieces of at most LONGEST characters."""
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
    """Return the k documents with the best passages: (docs int32 [Q, min(k, N)], scores float64), as VectorHits has
    them.

    A document scores what its best passage does. Passages come ordered by descending score, then ascending number, so
    the first k different documents among them are the k best, in order. Queries whose first passages belong to fewer
    documents search for more, up to all.

    search: exact; (queries float32 [n, D], number of passages) -> their best passages, as in `VectorHits`.
    starts: int64 [N + 1], as in PassageTexts.
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
    """Return the first `width` different documents of each row with their scores; rows are padded with -1 and 0.

    documents: int32 [n, F]; -1 pads. scores: float64 [n, F].
    """
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
