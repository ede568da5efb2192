"""Text measures by models, BERTScore and BLEURT: a cached score for each pair of prediction and reference.

Both compute in float32, on a GPU if there is one, and compare texts after Unicode NFC. If a model is not available, its
measure is absent, with the reason; no value is guessed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, TypeVar
from unicodedata import normalize

import numpy as np

from harness.errors import BadInput
from harness.progress import watch
from harness.storage.cache import Cache
from harness.tasks.pair_models import Pair, PairModel, Regression, TruncatedEncoder
from retrievers.base import AtMost, Progress
from retrievers.dense import models
from retrievers.dense.encoders import encodable

_Result = TypeVar("_Result")


class ModelAbsent(Exception):
    """A model or a package is not available; the message gives the reason and the remedy."""


class _PairMeasure:
    """What BertScore and Bleurt share: the model's arguments, the identity of scores, batches, and the cache.

    model:        a name on the hub.
    revision:     its branch, tag or commit; None: main.
    path:         a folder instead of model and revision.
    device:       such as cpu or cuda:1; None: the best available. It changes only time and rounding.
    batch_tokens: tokens computed at a time, padding included; None: chosen by `models.Compute`. It changes only
                  time and rounding.
    """

    version = 1
    _name: str
    _packages: tuple[str, ...]  # that run the model

    def __init__(
        self, model: str | None, revision: str | None, path: str | None, device: str | None, batch_tokens: int | None
    ) -> None:
        self._source = models.ModelSource(model, revision, path)
        self._compute = models.Compute("float32", device, batch_tokens)

    @classmethod
    def identify(cls, **arguments: Any) -> dict[str, Any]:
        """The model's files, the packages that run it, and what else decides a score."""
        measure = cls(**arguments)
        try:
            return measure._identity()
        except ModelAbsent:
            return {"model": arguments["model"], "revision": arguments["revision"], "absent": True}

    def score(self, predictions: Sequence[str], references: Sequence[str], cache: Cache) -> np.ndarray:
        """float64 [N]. Each pair is computed once for all runs; the model is loaded only for pairs that are not cached.

        ModelAbsent if the model or a package is not available; BadInput if the model cannot be used.
        """
        texts = zip(predictions, references, strict=True)
        pairs = [(_plain(prediction), _plain(reference)) for prediction, reference in texts]
        keys = [hashlib.sha256(_digest(prediction) + _digest(reference)).digest() for prediction, reference in pairs]

        def compute(places: Sequence[int]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
            with watch(self._name) as progress:
                yield from self._computed([pairs[place] for place in places], progress)

        identity = {"measure": self._name, "version": self.version, **self._identity()}
        return cache.pairs(identity, keys, compute)

    def _identity(self) -> dict[str, Any]:
        for package in self._packages:
            self._need(package)
        versions = {package: metadata.version(package) for package in self._packages}
        return {**self._found(models.fingerprint), "packages": versions}

    def _computed(self, pairs: Sequence[Pair], progress: Progress) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (places in `pairs` int64 [n], scores float64 [n]), batch by batch, the longest pairs first."""
        loaded, done = self._loaded, 0
        batches = models.batches_by_length(
            [len(prediction) + len(reference) for prediction, reference in pairs],
            lambda places: loaded.lengths([pairs[place] for place in places]),
            self._compute.batch_limit(),
        )
        for places in batches:
            texts = [pairs[place] for place in places]
            with models.computing():
                scores = loaded.score(texts)
            if len(bad := np.flatnonzero(~np.isfinite(scores))):
                prediction, reference = texts[bad[0]]
                raise BadInput(
                    f"{self._name}: the model's output for the prediction {prediction[:60]!r} with the reference "
                    f"{reference[:60]!r} is not a finite number: its weights are damaged. Download the model again."
                )
            yield places, scores
            done += len(places)
            progress(done, len(pairs), "pairs")

    @cached_property
    def _loaded(self) -> PairModel:
        return self._load(self._found(models.locate_model), self._compute.device_name())

    def _load(self, folder: Path, device: str) -> PairModel:
        raise NotImplementedError

    def _need(self, package: str) -> None:
        if find_spec(package.replace("-", "_")) is None:
            raise ModelAbsent(f"{self._name} needs the package {package}: pip install 'retrieval-harness[text]'.")

    def _found(self, look: Callable[[models.ModelSource], _Result]) -> _Result:
        """The result of `look`, models.locate or models.fingerprint, for the model.

        ModelAbsent if a model of the hub is not available; BadInput if a folder contains no model.
        """
        model, revision = self._source.model, self._source.revision
        try:
            return look(self._source)
        except BadInput as error:
            if self._source.path is not None:
                raise
            reason = str(error).partition(" Ways out:")[0].rstrip(".")  # the remedies after it are those for encoders
            option = f" --revision {revision}" if revision else ""
            raise ModelAbsent(
                f"{reason}. Ways out: fill the hub's cache on a machine that reaches the hub, `hf download {model}"
                f"{option}`, and copy it here (HF_HOME names its folder); or copy the model to a folder and give that "
                f"as task.{self._name}.path=FOLDER."
            ) from None


class BertScore(_PairMeasure):
    """BERTScore's F1 (Zhang et al. 2020, arXiv:1904.09675), by the package bert-score: no idf weights, no rescaling.

    A token's vector is that of layer `layer` of the model. P: the mean, over the prediction's tokens, of the greatest
    cosine with a token of the reference; R: the same with the two exchanged; the score is 2PR / (P + R). The special
    tokens at both ends may be matched but count in neither mean. Range: -1 to 1; with trained models mostly above one
    half. A text that is empty or white space: 0. Equal texts: 1.
    Example: a prediction of one token, whose cosines with the reference's two are 1 and 0.5: P = 1,
    R = (1 + 0.5) / 2 = 0.75, F1 = 1.5 / 1.75 = 0.8571.

    layer: from 1 to the model's number of layers; None: bert-score's choice for a model that it knows by name, such as
    9 for bert-base-multilingual-cased. It knows no folder, so that `path` needs a layer. Texts are cut after as many
    tokens as the model accepts.
    """

    recorded_as = "measure/bertscore"
    _name = "bertscore"
    _packages = ("bert-score", "torch", "transformers")

    def __init__(
        self,
        model: str | None = "bert-base-multilingual-cased",
        revision: str | None = None,
        path: str | None = None,
        layer: Annotated[int, AtMost(10_000, "no model has so many layers")] | None = None,
        device: str | None = None,
        batch_tokens: models.BatchTokens | None = None,
    ) -> None:
        super().__init__(model, revision, path, device, batch_tokens)
        if layer is not None and (isinstance(layer, bool) or not isinstance(layer, int) or layer < 1):
            raise BadInput(f"layer is {layer!r}: give a number from 1 to the model's number of layers, or null.")
        if layer is None and path is not None:
            raise BadInput(
                f"layer is null, but path is {path}: bert-score knows the layer only of models on the hub. Give "
                "layer=N; for a copy of bert-base-multilingual-cased it is layer=9."
            )
        self._layer = layer

    def _identity(self) -> dict[str, Any]:
        return {**super()._identity(), "layer": self._layer}

    def _load(self, folder: Path, device: str) -> PairModel:
        return TruncatedEncoder(folder, self._layer or self._usual_layer(), device)

    def _usual_layer(self) -> int:
        from bert_score.utils import model2layers

        model = self._source.model
        if model not in model2layers:
            raise BadInput(f"bertscore: bert-score names no layer for the model {model}: give task.bertscore.layer=N.")
        return int(model2layers[model])


class Bleurt(_PairMeasure):
    """BLEURT (Sellam et al. 2020, arXiv:2004.04696), a trained regression from a pair of texts to a number.

    A RemBERT encoder reads [CLS] reference [SEP] prediction [SEP]; its pooled first output goes through one linear
    layer to a number. Not bounded: BLEURT-20 was trained so that most values lie between 0 (unrelated) and 1 (the same
    meaning). Empty texts are scored like any other. More than 512 tokens: the longer text is cut first, as in the
    original. Example: BLEURT-20 gives about 0.999 for a sentence and itself.

    The folder has the layout of lucadiliello/BLEURT-20 (and -D12, -D6, -D3): config.json with embedding_size, one
    SentencePiece model (or a tokenizer.json) that knows [CLS] and [SEP], and weights named bleurt.* and classifier.*.
    The weights in the files and those of the model must be the same ones: else BadInput.
    """

    recorded_as = "measure/bleurt"
    _name = "bleurt"
    _packages = ("torch", "transformers")

    def __init__(
        self,
        model: str | None = "lucadiliello/BLEURT-20",
        revision: str | None = None,
        path: str | None = None,
        device: str | None = None,
        batch_tokens: models.BatchTokens | None = None,
    ) -> None:
        super().__init__(model, revision, path, device, batch_tokens)

    def _load(self, folder: Path, device: str) -> PairModel:
        if any(folder.glob("*.model")):
            self._need("sentencepiece")
        return Regression(folder, device)


def _plain(text: str) -> str:
    return encodable(normalize("NFC", text))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
