"""Parts of a retriever that keep what they made in the store; the real part is made only on a miss."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.config.canonical import digest_texts
from harness.config.components import Wrap, identity, target_class
from harness.pipeline.cache import Cache

if TYPE_CHECKING:
    from retrievers.base import Progress
    from retrievers.dense.encoders import Encoder
    from retrievers.lexical.tokenize import Tokenizer, Tokens


def caching(cache: Cache, corpus: str, progress: Progress) -> Wrap:
    """For `config.build`: tokenizers and encoders that keep their results.

    corpus: fingerprint of the documents, part of the identity of what an encoder learns from them.
    """

    def wrap(key: str, part: Mapping[str, Any], make: Callable[[], Any]) -> Any:
        if key == "tokenizer":
            return CachedTokenizer(cache, part, make, progress)
        return CachedEncoder(cache, part, make, corpus) if key == "encoder" else make()

    return wrap


class CachedTokenizer:
    """A tokenizer whose tokens are kept by tokenizer and texts."""

    def __init__(
        self, cache: Cache, part: Mapping[str, Any], make: Callable[[], Tokenizer], progress: Progress
    ) -> None:
        self._cache, self._part, self._make, self._progress = cache, part, make, progress

    def __call__(self, texts: Sequence[str], progress: Progress | None = None) -> Tokens:
        from retrievers.lexical.tokenize import Tokens

        def tokenize(folder: Path) -> None:
            self._make()(texts, progress or self._progress).save(folder)

        asked = {"tokenizer": identity(self._part), "texts": digest_texts(texts)}
        return Tokens.load(self._cache.folder("tokens", asked, tokenize))


class CachedEncoder:
    """An encoder whose embeddings are kept by encoder and texts; the model is loaded once, if at all."""

    def __init__(self, cache: Cache, part: Mapping[str, Any], make: Callable[[], Encoder], corpus: str) -> None:
        self._cache, self._part, self._make, self._corpus = cache, part, make, corpus
        self._made: Encoder | None = None

    def encode_documents(self, texts: Sequence[str], folder: Path, progress: Progress | None = None) -> None:
        """Fill `folder` with links to the kept embeddings, so that an index and they share one copy on the disk."""
        for file in sorted(self.documents(texts, progress).iterdir()):
            if file.name != "manifest.json":
                link(file, folder / file.name)

    def documents(self, texts: Sequence[str], progress: Progress | None = None) -> Path:
        """The folder of the kept embeddings, and of what the encoder learnt from these texts."""

        def encode(into: Path) -> None:
            self._encoder().encode_documents(texts, into, progress)

        asked = {"encoder": identity(self._part), "texts": digest_texts(texts)}
        return self._cache.folder("embeddings", asked, encode, resume=True)

    def encode_queries(self, texts: Sequence[str], folder: Path, progress: Progress | None = None) -> np.ndarray:
        def encode(into: Path) -> None:
            found = self._encoder().encode_queries(texts, folder, progress)
            np.save(into / "embeddings.npy", found, allow_pickle=False)

        asked = {"encoder": identity(self._part), "queries": digest_texts(texts)}
        if getattr(target_class(self._part, "encoder"), "learns", False):
            asked["corpus"] = self._corpus
        kept = self._cache.folder("query_embeddings", asked, encode)
        return np.load(kept / "embeddings.npy", mmap_mode="r", allow_pickle=False)

    def _encoder(self) -> Encoder:
        if self._made is None:
            self._made = self._make()
        return self._made


def link(source: Path, target: Path) -> None:
    """A hard link, or a copy where the file system has none."""
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
