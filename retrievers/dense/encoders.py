"""Text to vectors: the protocol of encoders, and sentence-transformers models."""

from __future__ import annotations

import itertools
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np

from retrievers.base import BadInput, Progress
from retrievers.dense import models
from retrievers.dense.embeddings import Vectors, collect_embeddings, write_embeddings

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers import PreTrainedModel


CHUNK = 1 << 20  # characters tokenised at a time
EACH = 100  # characters that a text counts beside its own, so that a chunk of short ones is bounded too
SHARES = 4  # chunks that each of several processes is given at a time
BATCH_TOKENS = {"cpu": 2048}  # a larger batch falls out of the processor's cache
MANY_TOKENS = 32768  # elsewhere: keeps a large GPU busy, and takes little memory beside a large model

_SURROGATE = re.compile("[\ud800-\udfff]")
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Encoder(Protocol):
    """Texts to vectors whose inner product says how alike the texts are.

    version: raised when the same arguments give other vectors. packages: distributions whose installed version is part
    of the identity of the vectors. learns: trained on the corpus that it encodes, so that the vector of a query
    depends on the corpus. `identify`, where there is one, as in Retriever.
    """

    version: int
    packages: tuple[str, ...]
    learns: bool

    def encode_documents(self, texts: Sequence[str], folder: Path, progress: Progress | None = None) -> None:
        """Write folder/embeddings.npy, float32 [N, D], and what encode_queries needs.

        Goes on from what an interrupted call with the same texts left in `folder`. Equal texts get equal vectors.
        BadVector where one is not finite.
        """
        ...

    def encode_queries(self, texts: Sequence[str], folder: Path, progress: Progress | None = None) -> np.ndarray:
        """float32 [Q, D]; `folder` is one that encode_documents filled."""
        ...


def encodable(text: str) -> str:
    """U+FFFD for lone surrogates, which no tool downstream can encode."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


class SentenceEncoder:
    """A sentence-transformers model (Reimers & Gurevych 2019, Sentence-BERT, arXiv:1908.10084).

    model: name on the Hugging Face hub, at `revision` (branch, tag or commit; None: main). path: a folder in place of
    both.
    max_length: tokens after which a text is cut, special ones included; None: the model's own.
    query_prefix, document_prefix: put before each text, such as "query: ". Prompts that the model's files name are
    not used.
    normalise: bring vectors to length 1, so that inner products are cosines.
    dtype: what the model computes in; `auto` as models.dtype_for says. The vectors are float32.

    These change the time, and nothing else but rounding. device: None: the best there is. batch_tokens: tokens
    computed at a time, padding included; None: what suits the device; halved where the device runs out of memory.
    devices: several, such as [cuda:0, cuda:1], each with a process of its own, for documents.
    """

    recorded_as = "encoder/sentence_transformers"
    version = 1
    packages = ("sentence-transformers", "transformers")
    learns = False

    def __init__(
        self,
        model: str | None = None,
        path: str | None = None,
        revision: str | None = None,
        max_length: int | None = None,
        query_prefix: str = "",
        document_prefix: str = "",
        normalise: bool = True,
        dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto",
        device: str | None = None,
        batch_tokens: int | None = None,
        devices: list[str] | None = None,
    ) -> None:
        if devices is not None and (device is not None or not devices or len({_kind(one) for one in devices}) > 1):
            raise BadInput(f"devices is {devices!r}: name one kind, such as [cuda:0, cuda:1], and leave device null.")
        self._device, self._devices = devices[0] if devices else device, devices
        for one in devices or (device,):
            models.check_arguments(model, revision, path, max_length, dtype, one, batch_tokens)
        self._source = (model, revision, path)
        self._max_length, self._normalise, self._dtype = max_length, normalise, dtype
        self._query_prefix, self._document_prefix = query_prefix, document_prefix
        self._batch_tokens = batch_tokens

    @classmethod
    def identify(cls, **arguments: Any) -> dict[str, Any]:
        """The model's files rather than its name, the dtype as it is on the device, and what else decides vectors."""
        device = (arguments["devices"] or [arguments["device"]])[0]
        told = {name: arguments[name] for name in ("query_prefix", "document_prefix", "normalise")}
        return models.identify(**{**arguments, "device": device}) | told

    def encode_documents(self, texts: Sequence[str], folder: Path, progress: Progress | None = None) -> None:
        encode = self._by_processes if self._devices else self._by_batches
        write_embeddings(texts, folder, lambda rows: encode(texts, rows, self._document_prefix), progress)

    def encode_queries(self, texts: Sequence[str], folder: Path, progress: Progress | None = None) -> np.ndarray:
        """float32 [Q, D], computed on one device; `folder` is not read."""
        return collect_embeddings(texts, lambda rows: self._by_batches(texts, rows, self._query_prefix), progress)

    @cached_property
    def _model(self) -> SentenceTransformer:
        folder, device = models.locate(*self._source), models.device_for(self._device)
        with models.loading(folder, "sentence_transformers"):
            import torch
            from sentence_transformers import SentenceTransformer

            dtype = getattr(torch, models.dtype_for(self._dtype, self._device))
            options: dict[str, Any] = {"local_files_only": True, "model_kwargs": {"dtype": dtype}}
            model = SentenceTransformer(str(folder), device=device, **options)
        for module in list(model)[1:]:  # the argument above is for the first, the transformer, alone
            module.to(dtype)
        model.max_seq_length = _length(model, self._max_length)
        return model.eval()

    @cached_property
    def _tokens(self) -> int:
        """How many tokens a batch holds at most; falls where the device runs out of memory."""
        return self._batch_tokens or BATCH_TOKENS.get(_kind(models.device_for(self._device)), MANY_TOKENS)

    def _by_batches(self, texts: Sequence[str], rows: np.ndarray, prefix: str) -> Vectors:
        """In this process: chunks are tokenised in the background, batches hold texts of about one length."""
        model = self._model.to(models.device_for(self._device))

        def tokenise(chunk: np.ndarray) -> _Chunk:
            return _Chunk.of(model, chunk, [encodable(texts[row]) for row in chunk], prefix)

        for chunk in _ahead(tokenise, _chunks(texts, rows, CHUNK)):
            waiting: deque[tuple[np.ndarray, torch.Tensor]] = deque()
            for some, vectors in self._batches(model, chunk):
                waiting.append((some, vectors))
                if len(waiting) > 1:  # a GPU computes the last batch while the one before is fetched and written
                    yield _fetched(*waiting.popleft())
            yield from itertools.starmap(_fetched, waiting)

    def _batches(self, model: SentenceTransformer, chunk: _Chunk) -> Iterator[tuple[np.ndarray, torch.Tensor]]:
        """Rows of the chunk and their vectors on the device, where they may still be under way."""
        import torch

        features = {name: _to(value, model.device) for name, value in chunk.features.items()}
        batches = deque(models.token_batches(chunk.lengths, self._tokens))
        while batches:
            places = batches.popleft()
            try:
                found = self._forward(model, chunk, features, places)
            except torch.OutOfMemoryError:
                if len(places) == 1:
                    raise
                found = None  # gone on with below, since the error holds the batch's memory until it is dealt with
            if found is not None:
                yield chunk.rows[places], found
                continue
            torch.cuda.empty_cache()
            self._tokens //= 2
            rest = np.concatenate([places, *batches])
            batches = deque(rest[some] for some in models.token_batches(chunk.lengths[rest], self._tokens))

    def _forward(
        self, model: SentenceTransformer, chunk: _Chunk, features: Mapping[str, Any], places: np.ndarray
    ) -> torch.Tensor:
        """float32 [n, D] on the device."""
        import torch

        width = int(chunk.lengths[places[0]])
        rows = slice(int(places[0]), int(places[-1]) + 1)
        columns = slice(-width, None) if model.tokenizer.padding_side == "left" else slice(width)
        batch = {name: value[rows, columns] if torch.is_tensor(value) else value for name, value in features.items()}
        with torch.inference_mode():
            return self._finished(model(batch)["sentence_embedding"].float())

    def _finished(self, vectors: torch.Tensor) -> torch.Tensor:
        import torch

        return torch.nn.functional.normalize(vectors, dim=1) if self._normalise else vectors

    def _by_processes(self, texts: Sequence[str], rows: np.ndarray, prefix: str) -> Vectors:
        """In processes of sentence-transformers' own, one a device, which share out the chunks."""
        import torch

        model, devices = self._model, self._devices or []
        most = model.max_seq_length or MANY_TOKENS
        pool = model.start_multi_process_pool(devices)
        try:
            for chunk in _chunks(texts, rows, CHUNK * SHARES * len(devices)):
                given = [encodable(texts[row]) for row in chunk]
                longest = max(1, min(most, len(given[0])))  # a text has about as many tokens as characters, or fewer
                found = model.encode(
                    given,
                    prompt=prefix,
                    batch_size=max(1, self._tokens // longest),
                    pool=pool,
                )
                yield chunk, self._finished(torch.from_numpy(np.asarray(found, np.float32))).numpy()
        finally:
            model.stop_multi_process_pool(pool)


class _Chunk(NamedTuple):
    """Tokenised texts, the longest first.

    rows: int64 [n]. lengths: int64 [n], their tokens, at least 1. features: what the model takes, tensors [n, longest].
    """

    rows: np.ndarray
    lengths: np.ndarray
    features: Mapping[str, Any]

    @classmethod
    def of(cls, model: SentenceTransformer, rows: np.ndarray, texts: list[str], prefix: str) -> _Chunk:
        import torch

        features = model.preprocess(texts, prompt=prefix or None)
        lengths = features["attention_mask"].sum(dim=1)
        order = torch.argsort(lengths, descending=True, stable=True)
        ordered = {name: value[order] if torch.is_tensor(value) else value for name, value in features.items()}
        return cls(rows[order.numpy()], np.maximum(lengths[order].numpy(), 1), ordered)


def _chunks(texts: Sequence[str], rows: np.ndarray, size: int) -> list[np.ndarray]:
    """`rows` by falling length of their texts, in chunks of about `size` characters, or of one text."""
    lengths = np.array([len(texts[row]) + EACH for row in rows])
    order = np.argsort(-lengths, kind="stable")
    numbers = np.cumsum(lengths[order]) // size
    return np.split(rows[order], np.flatnonzero(np.diff(numbers)) + 1)


def _ahead(call: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """The results of `call`, each computed in the background while the one before is used."""
    with ThreadPoolExecutor(1) as pool:
        waiting: deque[Future[_Result]] = deque()
        for item in items:
            waiting.append(pool.submit(call, item))
            if len(waiting) > 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _length(model: SentenceTransformer, length: int | None) -> int:
    """Tokens after which texts are cut: `length`, or the model's own; BadInput where the model cannot take that."""
    transformer = model.transformers_model
    if transformer is None:
        raise BadInput(f"the model reads text by {type(model[0]).__name__}: choose one that holds a transformer.")
    positions = _positions(transformer)
    if length is None:
        return min(model.max_seq_length or positions, positions)
    if length > positions:
        raise BadInput(f"max_length is {length}: the model has {positions} positions. Give at most that, or null.")
    return length


def _positions(transformer: PreTrainedModel) -> int:
    """How many tokens the transformer tells apart by place; sys.maxsize where it knows no bound."""
    from torch.nn import Embedding

    for module in transformer.modules():
        table = getattr(module, "position_embeddings", None)
        if isinstance(table, Embedding):  # RoBERTa's kin count from behind the place that stands for padding
            return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)
    return int(getattr(transformer.config.get_text_config(), "max_position_embeddings", sys.maxsize))


def _kind(device: str) -> str:
    return device.partition(":")[0]


def _to(value: Any, device: torch.device) -> Any:
    return value.to(device) if hasattr(value, "to") else value


def _fetched(rows: np.ndarray, vectors: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    return rows, vectors.cpu().numpy()
