"""Small substitutes shared by several tests."""

import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.data.predictions import Predictions
from harness.tracking.tracker import NoFile
from retrievers.base import Query, Ranking


def predictions(lists: Mapping[str, list[str]]) -> Predictions:
    doc_ids = tuple({doc: None for row in lists.values() for doc in row})
    docs = np.full((len(lists), max(map(len, lists.values()), default=0)), -1, np.int32)
    for row, returned in enumerate(lists.values()):
        docs[row, : len(returned)] = [doc_ids.index(doc) for doc in returned]
    return Predictions(tuple(lists), doc_ids, docs)


class FakeTracker:
    """A tracker with these runs, the earliest first, and their files in FOLDER/RUN_ID."""

    uri = "sqlite:///x"

    def __init__(self, *runs, folder="no folder"):
        self._runs, self.folder = runs, Path(folder)

    def runs(self, experiment, tags, status=None):
        return [one for one in reversed(self._runs) if one.experiment == experiment and status in (None, one.status)]

    def run(self, run_id):
        return next(one for one in self._runs if one.run_id == run_id)

    def experiments(self):
        return ["e"]

    def place(self, run_id):
        return None

    def write(self, run_id, name, text):
        (self.folder / run_id).mkdir(exist_ok=True)
        (self.folder / run_id / name).write_text(text, "utf-8")

    def download(self, run, name, folder):
        if not (file := self.folder / run.run_id / name).exists():
            raise NoFile("no such file")
        return file


class FakeInputs:
    """`GateInputs` that tokenize at white space, cache nothing and note in `remembered` what decides a slow signal.

    queries: texts, "two words" each by default. texts: doc_id -> text. noise: the random queries and their ranking.
    """

    def __init__(
        self,
        rankings: Mapping[str, Ranking],
        queries: Sequence[str] | None = None,
        texts: Mapping[str, str] | None = None,
        noise: tuple[list[Query], Ranking] | None = None,
    ) -> None:
        ids = next(iter(rankings.values())).query_ids
        texts_of_queries = ["two words"] * len(ids) if queries is None else queries
        self.queries = self.conversations = tuple(map(Query.of, ids, texts_of_queries))
        self.rankings = rankings
        self.remembered: list[Mapping[str, Any]] = []
        self._texts, self._noise = texts or {}, noise

    def tokens(self, texts: Sequence[str]) -> Sequence[Sequence[str]]:
        return [text.split() for text in texts]

    def texts(self, doc_ids: Sequence[str]) -> Sequence[str]:
        return [self._texts[doc_id] for doc_id in doc_ids]

    def background(self, source: str) -> tuple[Sequence[Query], Ranking]:
        assert self._noise is not None
        return self._noise

    def remember(self, decides: Mapping[str, Any], compute: Callable[[], np.ndarray]) -> np.ndarray:
        self.remembered.append(decides)
        return compute()

    def chat(self, *_: object) -> None:
        pytest.fail("no signal asks a language model")

    def embeddings(self) -> np.ndarray:
        pytest.fail("no signal reads embeddings")


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
