"""Dense retrieval: an encoder turns texts into vectors, and their inner products rank documents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from retrievers.base import BadInput, DocIds, Document, Progress, Query, Ranking
from retrievers.dense.embeddings import BadVector
from retrievers.dense.encoders import Encoder
from retrievers.dense.passages import Kind, Passages, Sentences, best_documents
from retrievers.dense.vectors import Flat, VectorIndex

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
        """BadInput for an encoder that learns from the documents: from those of each shard, it would learn another."""
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
        """Memory-map the index in `folder`; ValueError where the vectors do not match its documents."""
        self._encoded = folder / "encoded"
        doc_ids = DocIds(folder)
        self._starts = np.arange(len(doc_ids) + 1)
        if self._passages.kind != "none":
            self._starts = np.load(folder / STARTS, allow_pickle=False)
        self._vectors = _embeddings(self._encoded, int(self._starts[-1]))
        self._index.load(folder / "index")
        self._doc_ids = doc_ids

    def search(self, queries: Sequence[Query], k: int) -> Ranking:
        """At most k >= 0 documents per query."""
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
    """The vectors of `count` documents or passages, float32 [count, D], memory-mapped."""
    vectors = np.load(folder / "embeddings.npy", mmap_mode="r", allow_pickle=False)
    if vectors.dtype != np.float32 or vectors.ndim != 2 or len(vectors) != count or not vectors.flags.c_contiguous:
        raise ValueError(
            f"{folder / 'embeddings.npy'} is {vectors.dtype} {list(vectors.shape)}, but must be C-contiguous "
            f"float32 [{count}, D], one row for each of the {count} documents"
        )
    return vectors


def _bad_vector(kind: str, name: str, error: BadVector) -> BadInput:
    return BadInput(f"the vector of {kind} {name!r} {error.reason}: check its text, or use another encoder.")
