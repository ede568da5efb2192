"""Dense retrieval: texts as vectors of an encoder, ranked by their inner product."""

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

    That is the cosine where the encoder normalises, and then compares across queries. A query whose vector is zero
    finds nothing; any other finds every document, up to k, that the index proposes.
    """

    recorded_as = "retriever/dense"
    version = 1
    packages: tuple[str, ...] = ()
    resumes = True  # the encoder goes on from the vectors that it finds; the rest is quick, and made anew

    def __init__(self, encoder: Encoder, index: VectorIndex) -> None:
        self.progress: Progress | None = None  # told how encoding goes
        self._encoder = encoder
        self._index = index
        self._doc_ids: DocIds | None = None

    def index(self, documents: Sequence[Document], folder: Path) -> None:
        """Encode and index `documents` (ascending doc_id, else ValueError) in `folder`, and be ready to search."""
        DocIds.save(folder, documents)
        encoded, built = folder / "encoded", folder / "index"
        encoded.mkdir(exist_ok=True)
        built.mkdir(exist_ok=True)
        try:
            self._encoder.encode_documents([document.indexed_text for document in documents], encoded, self.progress)
        except BadVector as error:
            raise _refused("document", documents[error.row].doc_id, error) from error
        self._index.build(_embeddings(encoded, len(documents)), built)
        self.load(folder)

    def load(self, folder: Path) -> None:
        """Memory-map what `index` left in `folder`; ValueError where the vectors are not those of its documents."""
        self._encoded = folder / "encoded"
        doc_ids = DocIds(folder)
        self._vectors = _embeddings(self._encoded, len(doc_ids))
        self._index.load(folder / "index")
        self._doc_ids = doc_ids

    def search(self, queries: Sequence[Query], k: int) -> Ranking:
        """At most k >= 0 documents for each query, all queries in one go."""
        if self._doc_ids is None:
            raise RuntimeError("Dense.search needs index or load first")
        if k < 0:
            raise BadInput(f"k is {k}: give the number of documents to return, at least 0.")
        try:
            asked = self._encoder.encode_queries([query.text for query in queries], self._encoded, self.progress)
        except BadVector as error:
            raise _refused("query", queries[error.row].query_id, error) from error
        docs, scores, measured = self._index.search(asked, self._vectors, k)
        return self._doc_ids.ranking(queries, docs, scores, **measured)


def _embeddings(folder: Path, count: int) -> np.ndarray:
    """The vectors of `count` documents, float32 [count, D], in a memory map."""
    vectors = np.load(folder / "embeddings.npy", mmap_mode="r", allow_pickle=False)
    if vectors.dtype != np.float32 or vectors.ndim != 2 or len(vectors) != count or not vectors.flags.c_contiguous:
        raise ValueError(
            f"{folder / 'embeddings.npy'} holds {vectors.dtype} {list(vectors.shape)}, not rows of float32 for each "
            f"of the {count} documents"
        )
    return vectors


def _refused(kind: str, name: str, error: BadVector) -> BadInput:
    return BadInput(f"the vector of {kind} {name!r} {error.said}: check its text, or use another encoder.")
