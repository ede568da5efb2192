"""Inputs of neural models in batches of similar length, each input tokenized once; batches computed on all cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from retrievers.base import ahead, cores
from retrievers.dense import models

if TYPE_CHECKING:
    import torch

CHARACTERS = 64  # number of characters tokenized at a time, for each token of a batch
WINDOW = 8  # number of chunks whose inputs are sorted by length together; so the rate of the work stays about the same
EACH = 100  # number of characters added to each text's length, to limit the number of short texts in a chunk
LEAST = 32  # number of tokens below which a batch is not split among cores

# The computation of a batch: the model's inputs -> its outputs, [n, ...].
Compute = Callable[[Mapping[str, Any]], "torch.Tensor"]


class _Tokens(NamedTuple):
    """Tokenized inputs, longest first. rows, lengths: int64 [n]. features: the model's inputs, [n, longest]."""

    rows: np.ndarray
    lengths: np.ndarray
    features: Mapping[str, Any]

    def cut(self, places: np.ndarray, left: bool) -> dict[str, Any]:
        """Return the features of consecutive places without superfluous padding. left: padding precedes the tokens."""
        import torch

        width, rows = int(self.lengths[places[0]]), slice(int(places[0]), int(places[-1]) + 1)
        columns = slice(-width, None) if left else slice(width)
        features = self.features.items()
        return {name: value[rows, columns] if torch.is_tensor(value) else value for name, value in features}


class _Batch(NamedTuple):
    """Some places, int64 [n], of tokenized inputs. limit: the number of tokens that the batch was made for."""

    tokens: _Tokens
    places: np.ndarray
    limit: int


@dataclass(eq=False)
class Batches:
    """Computes the outputs of a sentence-transformers model. `limit` is halved when the device runs out of memory.

    On a processor, each core computes a batch of its own with one thread: cores never wait for each other within a
    batch, as they do when they share the layers of one batch. A single input is computed by all cores together, and so
    is each batch of a model that changes itself while it computes.

    model: a sentence-transformers model. limit: maximum number of tokens in a batch, padding included.
    """

    model: Any
    limit: int

    def run(
        self, inputs: Callable[[np.ndarray], list[Any]], sizes: np.ndarray, left: np.ndarray, prompt: str | None,
        compute: Compute,
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:  # fmt: skip
        """Yield (rows int64 [n], outputs float32 [n, ...]) of each batch that has one of the inputs left.

        Batches do not depend on `left`, so an interrupted computation resumes with the same batches.

        inputs: rows of N inputs, int64 [n] -> the inputs. sizes: number of characters of each input, int64 [N].
        left: bool [N].
        """
        on_cpu = self.model.device.type == "cpu"
        workers = max(1, min(cores(), len(sizes))) if on_cpu and not _adapts(self.model) else 1
        parts = [rows for rows in chunks(sizes, CHARACTERS * self.limit) if left[rows].any()]

        def tokenize(rows: np.ndarray) -> _Tokens:
            return self._tokenized(rows, inputs(rows), prompt)

        def batches() -> Iterator[_Batch]:
            for tokens in ahead(tokenize, parts) if len(parts) > 1 else map(tokenize, parts):
                # The parts of a small chunk keep all cores busy.
                limit = min(self.limit, max(LEAST, int(tokens.lengths.sum()) // workers))
                for places in models.token_batches(tokens.lengths, limit):
                    if left[tokens.rows[places]].any():
                        yield _Batch(tokens, places, limit)

        with _threads(max(1, cores() // workers) if on_cpu else None):
            # A GPU computes the newest batch while the outputs of the previous batch are fetched and written.
            alone = on_cpu and workers == 1
            outputs_of = partial(self._computed, compute=compute)
            for computed in map(outputs_of, batches()) if alone else ahead(outputs_of, batches(), workers):
                for rows, outputs in computed:
                    yield rows, outputs.float().cpu().numpy()

    def _tokenized(self, rows: np.ndarray, inputs: list[Any], prompt: str | None) -> _Tokens:
        import torch

        features = self.model.preprocess(inputs, prompt=prompt)
        lengths = features["attention_mask"].sum(dim=1)
        order = torch.argsort(lengths, descending=True, stable=True)
        ordered = {
            name: value[order].to(self.model.device) if torch.is_tensor(value) else value
            for name, value in features.items()
        }
        return _Tokens(rows[order.numpy()], np.maximum(lengths[order].numpy(), 1), ordered)

    def _computed(self, batch: _Batch, compute: Compute) -> list[tuple[np.ndarray, torch.Tensor]]:
        """Return the rows and outputs of a batch, in parts if it does not fit. A GPU may still compute the outputs."""
        import torch

        tokens, places = batch.tokens, batch.places
        try:
            with torch.inference_mode():
                return [(tokens.rows[places], compute(tokens.cut(places, self.model.tokenizer.padding_side == "left")))]
        except torch.OutOfMemoryError:
            if len(places) == 1:
                raise models.out_of_memory() from None
        # The exception holds the batch's memory until its block ends, so only now is there room.
        torch.cuda.empty_cache()
        self.limit = min(self.limit, batch.limit // 2)
        parts = models.token_batches(tokens.lengths[places], self.limit)
        return [one for part in parts for one in self._computed(_Batch(tokens, places[part], self.limit), compute)]


def chunks(sizes: np.ndarray, most: int) -> list[np.ndarray]:
    """Split N inputs, whose numbers of characters are `sizes`, int64 [N], into chunks of about `most` characters.

    Inputs are sorted by length, longest first, within windows of WINDOW chunks. A chunk's longest input has less than
    twice the characters of its shortest (both plus EACH), so a padded chunk takes little memory. No input is cut.
    """
    padded = sizes.astype(np.int64) + EACH
    window = np.cumsum(padded) // (WINDOW * most)
    order = np.lexsort((-padded, window))
    number, octave = np.cumsum(padded[order]) // most, np.log2(padded[order]).astype(np.int64)
    ends = np.diff(window[order]) + np.abs(np.diff(number)) + np.abs(np.diff(octave))
    return [part for part in np.split(order, np.flatnonzero(ends) + 1) if len(part)]


def characters(texts: Sequence[str], rows: np.ndarray) -> np.ndarray:
    return np.fromiter((len(texts[row]) for row in rows.tolist()), np.int64, len(rows))


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """Let the `with` block, and threads that begin in it, use `count` threads for each of torch's operations."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _adapts(model: Any) -> bool:
    """Return whether the length of a batch sets a model's rotary frequencies, or its kind of attention (BigBird)."""
    modules = list(model.modules())
    kinds = {str(getattr(module, "rope_type", "")) for module in modules}
    return any("dynamic" in kind or "longrope" in kind for kind in kinds) or any(
        hasattr(module, "set_attention_type") for module in modules
    )
