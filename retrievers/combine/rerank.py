"""Rerankers: models that read a query and a document together (Nogueira & Cho 2019, arXiv:1901.04085), or none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np

from retrievers.base import BadInput, Progress
from retrievers.dense import models
from retrievers.dense.encoders import encodable

CHUNK = 4096  # pairs tokenised and sorted by length at a time


class NoRerank:
    """Nothing is reranked: depth 0 says so."""

    recorded_as = "rerank/none"
    depth = 0


class CrossEncoder:
    """Scores a pair by a classifier with one label over both texts, as sentence-transformers' CrossEncoder does.

    The score goes through the activation that the model names, by default the sigmoid: then it lies between 0 and 1,
    and scores compare across queries.

    model, revision: a name on the hub and its branch, tag or commit; path: a folder in place of both.
    depth: documents of a query that are scored, at least 1. max_length: tokens of both texts together, from 3 to what
    the model takes; the longer text is cut first. None for what the model takes. dtype: `auto` as models.dtype_for
    says. device: None for the best there is. batch_tokens: tokens computed at a time, padding included; None as
    models.batch_limit says.
    """

    recorded_as = "rerank/cross_encoder"
    version = 1
    packages = ("sentence-transformers", "transformers")

    def __init__(
        self,
        model: str | None,
        revision: str | None = None,
        path: str | None = None,
        depth: int = 20,
        max_length: int | None = 1024,
        dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto",
        device: str | None = None,
        batch_tokens: int | None = None,
    ) -> None:
        models.check_arguments(model, revision, path, max_length, dtype, device, batch_tokens)
        models.check_depth(depth)
        self.depth = depth
        self._source = (model, revision, path)
        self._max_length, self._dtype, self._device, self._batch_tokens = max_length, dtype, device, batch_tokens

    @classmethod
    def identify(cls, **arguments: Any) -> dict[str, Any]:
        """What decides a pair's score: the model's files, the number format and max_length, but not depth."""
        return models.identify(**arguments)

    def score(
        self, pairs: Sequence[tuple[str, str]], progress: Progress | None = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (places in `pairs` int64 [n], scores float64 [n]), batch by batch, the longest pairs first.

        BadInput where the model gives a score that is not finite.
        """
        done, limit = 0, models.batch_limit(self._batch_tokens, self._device)
        given = [(encodable(query), encodable(document)) for query, document in pairs]
        order = np.argsort([-len(query) - len(document) for query, document in given], kind="stable")
        for start in range(0, len(order), CHUNK):
            chunk = order[start : start + CHUNK]
            for batch in models.token_batches(self._lengths([given[place] for place in chunk.tolist()]), limit):
                places = chunk[batch]
                yield places, self._predict([given[place] for place in places.tolist()])
                done += len(places)
                if progress:
                    progress(done, len(pairs), "pairs")

    @cached_property
    def _model(self) -> Any:
        folder = models.locate(*self._source)
        with models.loading(folder, "sentence_transformers"):
            import sentence_transformers
            import torch

            dtype = getattr(torch, models.dtype_for(self._dtype, self._device))
            model = sentence_transformers.CrossEncoder(
                str(folder),
                device=models.device_for(self._device),
                max_length=self._max_length,
                local_files_only=True,
                model_kwargs={"dtype": dtype},
            )
        if model.num_labels != 1:
            raise BadInput(
                f"the model in {folder} gives {model.num_labels} numbers for a pair: a reranker gives one. Choose a "
                "model with one label, such as BAAI/bge-reranker-v2-m3."
            )
        models.check_length(self._max_length, model.config, model.tokenizer)
        return model

    def _lengths(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        texts = zip(*pairs, strict=True)
        ids = self._model.tokenizer(*map(list, texts), truncation=True, max_length=self._max_length)["input_ids"]
        return np.array([len(one) for one in ids])

    def _predict(self, pairs: list[tuple[str, str]]) -> np.ndarray:
        with models.computing():
            scores = self._model.predict(pairs, batch_size=len(pairs), show_progress_bar=False).astype(np.float64)
        bad = np.flatnonzero(~np.isfinite(scores))
        if len(bad):
            raise models.not_finite(models.pair(*pairs[bad[0]]))
        return scores
