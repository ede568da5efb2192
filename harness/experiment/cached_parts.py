"""Tokenizers and encoders that cache their results. The component itself is built only on a cache miss."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.config.canonical import digest_texts
from harness.config.components import component_identity, recorded_name, target_class
from harness.config.schema import Node
from harness.experiment import timing
from harness.progress import stage
from harness.storage.cache import Cache
from retrievers.base import load_array

if TYPE_CHECKING:
    from retrievers.base import Progress
    from retrievers.dense.encoders import Encoder
    from retrievers.lexical.tokenize import Tokenizer, Tokens


class Caching:
    """Caches the results of tokenizers and encoders. Pass it to `build` as `wrap`.

    corpus: fingerprint of the texts that an encoder learns from.
    resume: whether to continue an interrupted encoding. Continuing may change the last digits of its vectors.
    """

    def __init__(self, cache: Cache, corpus: str, progress: Progress, resume: bool = True) -> None:
        self._cache, self._corpus, self._progress, self._resume = cache, corpus, progress, resume
        self._parts: list[CachedTokenizer | CachedEncoder] = []

    def __call__(self, key: str, node: Node, make: Callable[[], Any]) -> Any:
        if key == "tokenizer":
            self._parts.append(CachedTokenizer(self._cache, node, make, self._progress))
        elif key == "encoder":
            self._parts.append(CachedEncoder(self._cache, node, make, self._corpus, self._resume))
        else:
            return make()
        return self._parts[-1]

    @property
    def loaded(self) -> bool:
        """Whether no tokenizer or encoder has yet to load a model."""
        return all(part.loaded for part in self._parts)

    @contextmanager
    def bypassed(self) -> Iterator[None]:
        """In the `with` block, process queries without the cache."""
        for part in self._parts:
            part.bypassed = True
        try:
            yield
        finally:
            for part in self._parts:
                part.bypassed = False


class CachedTokenizer:
    """A tokenizer that caches tokens by its config and the texts.

    progress: used by calls without their own `progress`.
    """

    def __init__(self, cache: Cache, node: Node, make: Callable[[], Tokenizer], progress: Progress) -> None:
        self._cache, self._node, self._make, self._progress = cache, node, make, progress
        self.loaded = not getattr(target_class(node, "tokenizer"), "loads_model", False)
        self.bypassed = False

    def __call__(self, texts: Sequence[str], progress: Progress | None = None) -> Tokens:
        from retrievers.lexical.tokenize import Tokens

        if self.bypassed:
            return self._make()(texts)

        def tokenize(folder: Path) -> None:
            self.loaded = True
            what = f"{recorded_name(target_class(self._node, 'tokenizer'))}: tokenizing {len(texts):,} texts"
            with stage(what), timing.reads(self._cache, self._node, letters):
                self._make()(texts, progress or self._progress).save(folder)

        sha256, letters = _digest(texts)
        tokens_identity = {"tokenizer": component_identity(self._node), "texts": sha256}
        return Tokens.load(self._cache.folder("tokens", tokens_identity, tokenize))


class CachedEncoder:
    """An encoder that loads its model at most once, and caches embeddings by its config and the texts."""

    def __init__(self, cache: Cache, node: Node, make: Callable[[], Encoder], corpus: str, resume: bool = True) -> None:
        self._cache, self._node, self._make, self._corpus, self._resume = cache, node, make, corpus, resume
        self._made: Encoder | None = None
        self.bypassed = False

    @property
    def loaded(self) -> bool:
        return self._made is not None

    @property
    def learns(self) -> bool:
        """Whether vectors of queries depend on the documents."""
        return bool(getattr(target_class(self._node, "encoder"), "learns", False))

    def encode_documents(self, texts: Sequence[str], folder: Path, progress: Progress | None = None) -> None:
        """Fill `folder` with hard links to the cached embeddings."""
        for file in sorted(self.documents(texts, progress).iterdir()):
            if file.name != "manifest.json":
                link(file, folder / file.name)

    def documents(self, texts: Sequence[str], progress: Progress | None = None) -> Path:
        """Return the cache folder with the embeddings of these texts and whatever the encoder learnt from the texts."""

        def encode(into: Path) -> None:
            unit = getattr(texts, "unit", "documents")
            what = f"{recorded_name(target_class(self._node, 'encoder'))}: encoding {len(texts):,} {unit}"
            with stage(what), timing.reads(self._cache, self._node, letters):
                self._encoder().encode_documents(texts, into, progress)

        sha256, letters = _digest(texts)
        embeddings_identity = {"encoder": component_identity(self._node), "texts": sha256}
        return self._cache.folder("embeddings", embeddings_identity, encode, self._resume)

    def encode_queries(self, texts: Sequence[str], folder: Path, progress: Progress | None = None) -> np.ndarray:
        """Return embeddings of queries, [n, D]. folder: contains whatever the encoder learnt from the documents."""
        if self.bypassed:
            return self._encoder().encode_queries(texts, folder)

        def encode(into: Path) -> None:
            embeddings = self._encoder().encode_queries(texts, folder, progress)
            np.save(into / "embeddings.npy", embeddings, allow_pickle=False)

        embeddings_identity = {"encoder": component_identity(self._node), "queries": digest_texts(texts)}
        if self.learns:
            embeddings_identity["corpus"] = self._corpus
        cached = self._cache.folder("query_embeddings", embeddings_identity, encode)
        return load_array(cached, "embeddings")

    def _encoder(self) -> Encoder:
        if self._made is None:
            self._made = self._make()
        return self._made


def _digest(texts: Iterable[str]) -> tuple[str, int]:
    """Return (the digest of texts, the number of their letters). The texts may be on disk, so they are read once."""
    letters = 0

    def counted() -> Iterator[str]:
        nonlocal letters
        for text in texts:
            letters += len(text)
            yield text

    return digest_texts(counted()), letters


def link(source: Path, target: Path) -> None:
    """Replace `target` by a hard link to `source`, or by a copy where hard links do not work."""
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
