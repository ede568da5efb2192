"""Vectors made of a hash of the text: they mean nothing, and cost little more than writing them."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np

from retrievers.base import AtMost, Progress

ROWS, CHUNK = 1 << 16, 10_000  # rows of the table that vectors are sums of; texts at a time

Dimensions = Annotated[int, AtMost(4_096, "no encoder gives more")]


class HashVectors:
    """The vector of a text is the sum, scaled to length 1, of four rows of a fixed table that its hash names."""

    recorded_as = "encoder/hash_vectors"
    version, packages, learns = 1, (), False

    def __init__(self, dimensions: Dimensions = 384) -> None:
        self._dimensions = dimensions

    def encode_documents(self, texts: Sequence[str], folder: Path, progress: Progress | None = None) -> None:
        """As in Encoder."""
        shape = (len(texts), self._dimensions)
        vectors = np.lib.format.open_memmap(folder / "embeddings.npy", "w+", np.float32, shape)
        for start in range(0, len(texts), CHUNK):
            some = texts[start : start + CHUNK]
            vectors[start : start + len(some)] = self._vectors(some)
            if progress:
                progress(start + len(some), len(texts), "texts")
        vectors.flush()

    def encode_queries(self, texts: Sequence[str], folder: Path, progress: Progress | None = None) -> np.ndarray:
        """As in Encoder."""
        return self._vectors(texts)

    def _vectors(self, texts: Sequence[str]) -> np.ndarray:
        table = _table(self._dimensions)
        hashes = b"".join(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest() for text in texts)
        rows = np.frombuffer(hashes, np.uint16).reshape(len(texts), 4)
        vectors = table[rows[:, 0]]
        for column in (1, 2, 3):
            vectors += table[rows[:, column]]
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@functools.cache
def _table(dimensions: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((ROWS, dimensions), np.float32)
