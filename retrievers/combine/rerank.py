"""Rerankers read a query and a document together (Nogueira & Cho 2019, arXiv:1901.04085)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from harness.errors import BadInput
from retrievers.base import encodable
from retrievers.dense import models
from retrievers.dense.batches import Batches


class NoRerank:
    recorded_as = "rerank/none"
    depth = 0


@dataclass(eq=False)
class CrossEncoder(models.NeuralModel):
    """Scores (query, document) pairs by sentence-transformers' CrossEncoder, a classifier with one label.

    The model's activation, by default the sigmoid, makes scores comparable across queries.

    max_length: maximum number of tokens of both texts together; the longer text is cut first.
    depth: number of documents to score per query, at least 1. `models.NeuralModel` explains the other arguments.
    """

    max_length: models.MaxLength | None = 1024
    depth: models.RerankDepth = 20

    recorded_as = "rerank/cross_encoder"

    def __post_init__(self) -> None:
        super().__post_init__()
        models.check_depth(self.depth)

    def score(self, pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        if not pairs:
            return
        texts = [(encodable(query), encodable(document)) for query, document in pairs]
        model = self._model
        outputs = self._batches.run(
            lambda places: [texts[place] for place in places.tolist()],
            np.array([len(query) + len(document) for query, document in texts]),
            np.ones(len(texts), bool),
            model.prompts.get(model.default_prompt_name),
            lambda features: model.activation_fn(model(features)["scores"].float()),
        )
        for places, scores in outputs:
            models.check_scores([texts[place] for place in places.tolist()], scores)
            yield places, scores.reshape(len(places)).astype(np.float64)

    @cached_property
    def _batches(self) -> Batches:
        return Batches(self._model, self.batch_limit())

    @cached_property
    def _model(self) -> Any:
        folder, device = models.locate_model(self), models.device_for(self.device)
        with models.loading(folder, "sentence_transformers"):
            import sentence_transformers
            import torch

            from retrievers.dense.quick_linear import quicken

            dtype = getattr(torch, models.dtype_for(self.dtype, self.device))
            model = sentence_transformers.CrossEncoder(
                str(folder),
                device=device,
                max_length=self.max_length,
                local_files_only=True,
                model_kwargs={"dtype": dtype},
            )
        if model.num_labels != 1:
            raise BadInput(
                f"the model in {folder} gives {model.num_labels} numbers for a pair, but a reranker must give one. "
                "Choose a model with one label, such as BAAI/bge-reranker-v2-m3."
            )
        models.check_length(self.max_length, min(models.positions(model.model), model.tokenizer.model_max_length))
        model.to(device)
        quicken(model)
        return model.eval()
