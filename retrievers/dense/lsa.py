"""Latent semantic analysis: vectors without a neural model, learned from the corpus that is searched."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from retrievers.base import BadInput, Progress

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix
    from sklearn.feature_extraction.text import TfidfVectorizer


FEATURES = 100_000  # n-grams kept, the most frequent: bounds the size of the components on the disk
LEARNED = 8192  # documents that the components are learned from: bounds the time, which grows with their cube
FOLDED = 2048  # documents turned into vectors at a time
NEGLIGIBLE = 1e-5  # share of the greatest variance; below it lies what single precision made of nothing


class LSA:
    """Latent semantic analysis (Deerwester et al. 1990, Indexing by Latent Semantic Analysis) of character n-grams.

    A text counts the runs of `low` to `high` characters of each of its words, a space put around the word; lower-cased
    and in Unicode's composed form. A count tf weighs (1 + ln tf) * (1 + ln((1 + N) / (1 + n))), where n of the N
    documents hold the n-gram, and a text's weights are brought to length 1. Its vector is their projection on the
    `dimensions` directions in which the documents vary most (the truncated singular value decomposition, without
    centring), again brought to length 1.

    There are fewer dimensions where the corpus has no more directions. A text without a known n-gram, such as an
    empty one, is a vector of zeros; where all documents are, there is one dimension. Corpora of more than 8,192
    documents are learned from a sample of so many, drawn by `seed`; the others are folded in, as queries are.
    """

    recorded_as = "encoder/lsa"
    version = 1
    packages = ("scikit-learn", "scipy")
    learns = True

    def __init__(self, low: int = 2, high: int = 4, dimensions: int = 512, seed: int = 0) -> None:
        for name, value in (("low", low), ("high", high), ("dimensions", dimensions), ("seed", seed)):
            least = 0 if name == "seed" else 1
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise BadInput(f"{name} is {value!r}: give a whole number, at least {least}.")
        if high < low:
            raise BadInput(f"high ({high}) is below low ({low}): swap them.")
        self._low, self._high, self._dimensions, self._seed = low, high, dimensions, seed

    def encode_documents(self, texts: Sequence[str], folder: Path, progress: Progress | None = None) -> None:
        """Learn from `texts`, and keep what was learned and float32 [N, D] vectors; trained anew after a stop."""
        prepared = [_prepared(text) for text in texts]
        if any(prepared):
            vectorizer = self._vectorizer(max_features=FEATURES)
            weights = vectorizer.fit_transform(prepared)
            components = self._components(weights)
            vocabulary, idf = vectorizer.get_feature_names_out().tolist(), vectorizer.idf_
        else:
            vocabulary, idf, components = [], np.zeros(0), np.zeros((0, 1), np.float32)
        (folder / "vocabulary.json").write_text(json.dumps(vocabulary), encoding="ascii")
        np.save(folder / "idf.npy", idf.astype(np.float32), allow_pickle=False)
        np.save(folder / "components.npy", components, allow_pickle=False)
        embeddings = np.zeros((len(texts), components.shape[1]), np.float32)
        for start in range(0, len(texts) if vocabulary else 0, FOLDED):
            some = slice(start, start + FOLDED)
            embeddings[some] = _folded(weights[some], components)
            if progress:
                progress(min(some.stop, len(texts)), len(texts), "documents")
        np.save(folder / "embeddings.npy", embeddings, allow_pickle=False)

    def encode_queries(self, texts: Sequence[str], folder: Path, progress: Progress | None = None) -> np.ndarray:
        """float32 [Q, D], by what was learned from the documents of `folder`."""
        vocabulary = json.loads((folder / "vocabulary.json").read_text(encoding="ascii"))
        components = np.load(folder / "components.npy", mmap_mode="r", allow_pickle=False)
        if not vocabulary or not texts:
            return np.zeros((len(texts), components.shape[1]), np.float32)
        vectorizer = self._vectorizer(vocabulary=vocabulary)
        vectorizer.idf_ = np.load(folder / "idf.npy", allow_pickle=False)
        return _folded(vectorizer.transform([_prepared(text) for text in texts]), components)

    def _vectorizer(self, max_features: int | None = None, vocabulary: list[str] | None = None) -> TfidfVectorizer:
        from sklearn.feature_extraction.text import TfidfVectorizer

        return TfidfVectorizer(
            analyzer="char_wb",
            ngram_range=(self._low, self._high),
            lowercase=False,
            max_features=max_features,
            vocabulary=vocabulary,
            dtype=np.float32,
            sublinear_tf=True,
        )

    def _components(self, weights: csr_matrix) -> np.ndarray:
        """float32 [V, D]: the directions, orthonormal, that of the least variance first.

        From the documents' inner products, exact and far quicker than a randomised decomposition of the long rows.
        """
        from scipy.linalg import eigh

        if weights.shape[0] > LEARNED:
            sample = np.random.default_rng(self._seed).choice(weights.shape[0], LEARNED, replace=False)
            weights = weights[np.sort(sample)]
        size = weights.shape[0]
        least = max(0, size - self._dimensions)
        products = (weights @ weights.T).toarray()
        variances, vectors = eigh(products, subset_by_index=[least, size - 1], overwrite_a=True)
        kept = variances > NEGLIGIBLE * variances[-1]
        return np.asarray(weights.T @ (vectors[:, kept] / np.sqrt(variances[kept])), np.float32)


def _prepared(text: str) -> str:
    # Lower-casing can decompose (İ becomes i and a dot): normalised again, so that equal words have one spelling.
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).lower()).strip()


def _folded(weights: csr_matrix, components: np.ndarray) -> np.ndarray:
    """float32 [n, D]: rows of unit length, or of zeros."""
    vectors = np.asarray(weights @ components, np.float32)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
