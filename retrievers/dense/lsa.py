"""Latent semantic analysis: vectors learned from the searched documents, without a neural model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np

from harness.errors import BadInput
from retrievers.base import AtMost, Progress, Seed, check_whole, load_array
from retrievers.lexical.tokenize import Characters, lower_cased

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix
    from sklearn.feature_extraction.text import TfidfVectorizer


Dimensions = Annotated[int, AtMost(8192, "the components are learned from 8,192 documents")]
FEATURES = 100_000  # maximum number of n-grams, to limit the size on disk; the most frequent n-grams are kept
LEARNED = 8192  # maximum number of documents to learn from; the time grows with the cube of this number
FOLDED = 2048  # number of documents turned into vectors at a time
NEGLIGIBLE = 1e-5  # a variance below this share of the greatest variance is rounding error of float32


class LSA:
    """Latent semantic analysis (Deerwester et al. 1990, Indexing by Latent Semantic Analysis) of character n-grams.

    The n-grams of a text's words are counted; words are lower-cased, in Unicode's composed form, and padded with a
    space on both sides. A count tf weighs (1 + ln tf) * (1 + ln((1 + N) / (1 + n))), where n of the N documents contain
    the n-gram. The text's weights are scaled to length 1, projected on the `dimensions` directions in which documents
    vary most (the truncated singular value decomposition, without centring), and scaled to length 1 again.

    Vectors have fewer dimensions if the documents span fewer directions. A text without a known n-gram becomes a vector
    of zeros. If no document has an n-gram, vectors have one dimension. The directions are learned from a random sample
    of at most 8,192 documents.

    low, high: the lengths of the shortest and the longest n-gram, at least 1.
    dimensions: maximum number of dimensions, at least 1.
    seed: seed of the sample, at least 0.
    """

    recorded_as = "encoder/lsa"
    version = 1
    packages = ("scikit-learn", "scipy")
    learns = True

    def __init__(self, low: Characters = 2, high: Characters = 4, dimensions: Dimensions = 512, seed: Seed = 0) -> None:
        for name, value in (("low", low), ("high", high), ("dimensions", dimensions), ("seed", seed)):
            least = 0 if name == "seed" else 1
            check_whole(name, value, f"a whole number, at least {least}", least)
        if high < low:
            raise BadInput(f"high ({high}) is below low ({low}): swap them.")
        self._low, self._high, self._dimensions, self._seed = low, high, dimensions, seed

    def encode_documents(self, texts: Sequence[str], folder: Path, progress: Progress | None = None) -> None:
        if progress:
            progress(0, len(texts), "documents")  # shown while the encoder learns, which takes most of the time
        prepared = [lower_cased(text).strip() for text in texts]
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
            chunk = slice(start, start + FOLDED)
            embeddings[chunk] = _project(weights[chunk], components)
            if progress:
                progress(min(chunk.stop, len(texts)), len(texts), "documents")
        np.save(folder / "embeddings.npy", embeddings, allow_pickle=False)

    def encode_queries(self, texts: Sequence[str], folder: Path, progress: Progress | None = None) -> np.ndarray:
        vocabulary = json.loads((folder / "vocabulary.json").read_text(encoding="ascii"))
        components = load_array(folder, "components")
        if not vocabulary or not texts:
            return np.zeros((len(texts), components.shape[1]), np.float32)
        vectorizer = self._vectorizer(vocabulary=vocabulary)
        vectorizer.idf_ = load_array(folder, "idf")
        return _project(vectorizer.transform([lower_cased(text).strip() for text in texts]), components)

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
        """Return orthonormal directions, ordered by ascending variance, float32 [V, D]. weights: float32 [N, V]."""
        from scipy.linalg import eigh

        # The directions follow from the eigenvectors of `products`. This is exact, and faster than a random method.
        if weights.shape[0] > LEARNED:
            sample = np.random.default_rng(self._seed).choice(weights.shape[0], LEARNED, replace=False)
            weights = weights[np.sort(sample)]
        size = weights.shape[0]
        least = max(0, size - self._dimensions)
        products = (weights @ weights.T).toarray()
        variances, vectors = eigh(products, subset_by_index=[least, size - 1], overwrite_a=True)
        used = variances > NEGLIGIBLE * variances[-1]
        return np.asarray(weights.T @ (vectors[:, used] / np.sqrt(variances[used])), np.float32)


def _project(weights: csr_matrix, components: np.ndarray) -> np.ndarray:
    """Project weights [n, V] on components [V, D]. Return float32 [n, D], with rows of length 1 or of zeros."""
    vectors = np.asarray(weights @ components, np.float32)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
