"""Small substitutes shared by several tests."""

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from harness.gates.signals import GateInputs
from retrievers.base import Predictions, Query, Ranking


def predictions(lists: Mapping[str, list[str]]) -> Predictions:
    doc_ids = tuple({doc: None for row in lists.values() for doc in row})
    docs = np.full((len(lists), max(map(len, lists.values()), default=0)), -1, np.int32)
    for row, returned in enumerate(lists.values()):
        docs[row, : len(returned)] = [doc_ids.index(doc) for doc in returned]
    return Predictions(tuple(lists), doc_ids, docs)


def evidence(
    rankings: dict[str, Ranking],
    queries: Sequence[str] | None = None,
    texts: dict[str, str] | None = None,
    noise: tuple[list[Query], Ranking] | None = None,
) -> GateInputs:
    """Gate inputs that tokenize at white space, without a cache.

    queries: their texts; "two words" each by default.
    """
    ids = next(iter(rankings.values())).query_ids
    asked = ["two words"] * len(ids) if queries is None else queries
    return GateInputs(
        queries=tuple(map(Query.of, ids, asked)),
        conversations=tuple(map(Query.of, ids, asked)),
        rankings=rankings,
        tokens=lambda many: [text.split() for text in many],
        texts=lambda doc_ids: [(texts or {})[doc_id] for doc_id in doc_ids],
        background=lambda source: noise,
        keep=lambda decides, compute: compute(),
        answers=lambda *_: pytest.fail("no signal asks a language model"),
        embeddings=lambda: pytest.fail("no signal reads embeddings"),
    )


class TrigramEncoder:
    """Counts of character trigrams, hashed to 64 dimensions, with unit length; all 0 for a text without letters."""

    version = 1
    packages: tuple[str, ...] = ()
    learns = False

    def encode_documents(self, texts: Sequence[str], folder: Path, progress=None) -> None:
        np.save(folder / "embeddings.npy", self.encode_queries(texts, folder, progress))

    def encode_queries(self, texts: Sequence[str], folder: Path, progress=None) -> np.ndarray:
        vectors = np.zeros((len(texts), 64), np.float32)
        for row, text in enumerate(texts):
            words = f" {' '.join(text.split())} " if any(map(str.isalnum, text)) else ""
            for start in range(len(words) - 2):
                vectors[row, zlib.crc32(words[start : start + 3].encode()) % 64] += 1
            if progress:
                progress(row + 1, len(texts), "texts")
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors / np.where(lengths > 0, lengths, 1)
