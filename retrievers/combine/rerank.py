"""Rerankers: models that read a query and a document together (Nogueira & Cho 2019, arXiv:1901.04085), or none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from harness.errors import BadInput
from retrievers.base import Progress
from retrievers.dense import models
from retrievers.dense.encoders import encodable


class NoRerank:
    """No reranking, which depth 0 stands for."""

    recorded_as = "rerank/none"
    depth = 0


@dataclass(eq=False)
class CrossEncoder:
    """Scores a pair by a classifier with one label over both texts, as sentence-transformers' CrossEncoder does.

    The score passes through the activation that the model names, by default the sigmoid. It then lies between 0 and 1,
    and scores are comparable across queries.

    model: name on the Hugging Face hub.
    revision: branch, tag or commit on the hub; None: main.
    path: folder that holds the model; replaces `model` and `revision`.
    depth: documents scored per query, at least 1.
    max_length: tokens of both texts together, from 3 to the model's limit; the longer text is truncated first. None:
        the model's limit.
    dtype: number format the model computes in; `auto` as `models.dtype_for` chooses.
    device: cpu, cuda, cuda:1, mps, ...; None: the best available.
    batch_tokens: tokens per batch, padding included; None: 2,048 on cpu, 32,768 elsewhere.
    """

    model: str | None
    revision: str | None = None
    path: str | None = None
    depth: models.RerankDepth = 20
    max_length: models.MaxLength | None = 1024
    dtype: models.Dtype = "auto"
    device: str | None = None
    batch_tokens: models.BatchTokens | None = None

    recorded_as = "rerank/cross_encoder"
    version = 1
    packages = ("sentence-transformers", "transformers")

    def __post_init__(self) -> None:
        self._source = models.ModelSource(self.model, self.revision, self.path)
        self._compute = models.Compute(self.dtype, self.device, self.batch_tokens)
        models.check_max_length(self.max_length)
        models.check_depth(self.depth)

    @classmethod
    def identify(cls, **arguments: Any) -> dict[str, Any]:
        """Return what decides a pair's score: the model's files, the number format and max_length, but not depth."""
        reranker = cls(**arguments)
        return models.identify(reranker._source, reranker._compute, reranker.max_length)

    def require_model(self) -> None:
        """Raise BadInput if there is no such model; nothing is downloaded."""
        models.require(self._source)

    def score(
        self, pairs: Sequence[tuple[str, str]], progress: Progress | None = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (places in `pairs` int64 [n], scores float64 [n]), batch by batch, the longest pairs first.

        Raise BadInput if the model returns a score that is not finite.
        """
        texts = [(encodable(query), encodable(document)) for query, document in pairs]
        batches = models.batches_by_length(
            [len(query) + len(document) for query, document in texts],
            lambda places: self._lengths([texts[place] for place in places.tolist()]),
            self._compute.batch_limit(),
        )
        done = 0
        for places in batches:
            yield places, self._predict([texts[place] for place in places.tolist()])
            done += len(places)
            if progress:
                progress(done, len(pairs), "pairs")

    @cached_property
    def _model(self) -> Any:
        folder = models.locate_model(self._source)
        with models.loading(folder, "sentence_transformers"):
            import sentence_transformers
            import torch

            dtype = getattr(torch, self._compute.dtype_name())
            model = sentence_transformers.CrossEncoder(
                str(folder),
                device=self._compute.device_name(),
                max_length=self.max_length,
                local_files_only=True,
                model_kwargs={"dtype": dtype},
            )
        if model.num_labels != 1:
            raise BadInput(
                f"the model in {folder} gives {model.num_labels} numbers for a pair, but a reranker must give one. "
                "Choose a model with one label, such as BAAI/bge-reranker-v2-m3."
            )
        models.check_length(self.max_length, model.config, model.tokenizer)
        return model

    def _lengths(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        texts = zip(*pairs, strict=True)
        ids = self._model.tokenizer(*map(list, texts), truncation=True, max_length=self.max_length)["input_ids"]
        return np.array([len(one) for one in ids])

    def _predict(self, pairs: list[tuple[str, str]]) -> np.ndarray:
        with models.computing():
            scores = self._model.predict(pairs, batch_size=len(pairs), show_progress_bar=False).astype(np.float64)
        bad = np.flatnonzero(~np.isfinite(scores))
        if len(bad):
            raise models.not_finite(models.pair(*pairs[bad[0]]))
        return scores
