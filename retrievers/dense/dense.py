"""Dense retrieval: an encoder turns texts into vectors, and their inner products rank documents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from retrievers.base import BadInput, DocIds, Document, Progress, Query, Ranking
from retrievers.dense.embeddings import BadVector
from retrievers.dense.encoders import Encoder
from retrievers.dense.vectors import VectorIndex


class Dense:
    """Ranks by the inner product of the query's vector and the document's.

    If the encoder normalises, that is the cosine, and scores are comparable across queries. A query with a vector of
    zeros finds nothing.

    encoder: turns documents and queries into vectors.
    index: searches the documents' vectors.
    """

    recorded_as = "retriever/dense"
    version = 1
    packages: tuple[str, ...] = ()
    resumes = True  # the encoder resumes; everything else is fast and repeated

    def __init__(self, encoder: Encoder, index: VectorIndex) -> None:
        self.progress: Progress | None = None  # called while texts are encoded
        self.timed = False
        self._encoder = encoder
        self._index = index
        self._doc_ids: DocIds | None = None

    def index(self, documents: Sequence[Document], folder: Path) -> None:
        """Encode and index `documents` (ascending doc_id, else ValueError) in `folder`; `search` can then be called."""
        DocIds.save(folder, documents)
        encoded, built = folder / "encoded", folder / "index"
        encoded.mkdir(exist_ok=True)
        built.mkdir(exist_ok=True)
        try:
            self._encoder.encode_documents([document.indexed_text for document in documents], encoded, self.progress)
        except BadVector as error:
            raise _bad_vector("document", documents[error.row].doc_id, error) from error
        self._index.build(_embeddings(encoded, len(documents)), built)
        self.load(folder)

    def load(self, folder: Path) -> None:
        """Memory-map the index in `folder`; ValueError where the vectors do not match its documents."""
        self._encoded = folder / "encoded"
        doc_ids = DocIds(folder)
        self._vectors = _embeddings(self._encoded, len(doc_ids))
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
        hits = self._index.search(vectors, self._vectors, k, measure=not self.timed)
        return self._doc_ids.ranking(queries, hits.docs, hits.scores, **hits.measured)


def _embeddings(folder: Path, count: int) -> np.ndarray:
    """The vectors of `count` documents, float32 [count, D], memory-mapped."""
    vectors = np.load(folder / "embeddings.npy", mmap_mode="r", allow_pickle=False)
    if vectors.dtype != np.float32 or vectors.ndim != 2 or len(vectors) != count or not vectors.flags.c_contiguous:
        raise ValueError(
            f"{folder / 'embeddings.npy'} is {vectors.dtype} {list(vectors.shape)}, but must be C-contiguous "
            f"float32 [{count}, D], one row for each of the {count} documents"
        )
    return vectors


def _bad_vector(kind: str, name: str, error: BadVector) -> BadInput:
    return BadInput(f"the vector of {kind} {name!r} {error.reason}: check its text, or use another encoder.")
