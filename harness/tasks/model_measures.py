"""Text measures computed by models (BERTScore and BLEURT). The score of each (prediction, reference) is cached.

Both measures compute in float32, on a GPU if possible, and compare texts in Unicode's composed form. If a model is not
available, its measure is absent and the reason is given.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np

from harness.errors import BadInput
from harness.progress import watch
from harness.storage.cache import Cache
from harness.tasks.task import nfc
from retrievers.base import AtMost, Progress, encodable
from retrievers.dense import models
from retrievers.dense.quick_linear import quicken

MAX_TOKENS = 512  # limit of BLEURT's input, and of BERTScore's texts if the tokenizer has no limit
UNBOUNDED = 10**6  # Tokenizers with this limit or a larger one are taken to have no limit.

Pair = tuple[str, str]  # prediction, reference


class TruncatedEncoder:
    def __init__(self, folder: Path, layer: int, device: str) -> None:
        with _opening(folder):
            import torch
            from transformers import AutoConfig, AutoModel, AutoTokenizer

            config = AutoConfig.from_pretrained(folder, local_files_only=True)
            layers = getattr(config, "num_hidden_layers", 0)
            if config.is_encoder_decoder or not layers:
                raise BadInput(f"bertscore: {folder} contains no encoder like BERT. Choose another model.")
            if layer > layers:
                raise BadInput(f"bertscore: layer is {layer}, but the model in {folder} has {layers} layers.")
            self._tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            loaded: Any = AutoModel.from_pretrained(
                folder,
                num_hidden_layers=layer,
                dtype=torch.float32,
                local_files_only=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
            )
        model, info = loaded
        missing = [name for name in info["missing_keys"] if not name.startswith("pooler.")]  # The pooler is not used.
        # Unexpected weights belong to higher layers and heads, which are not used.
        _check_weights(folder, {**info, "missing_keys": missing, "unexpected_keys": ()})
        if self._tokenizer.pad_token_id is None or len(self._tokenizer) <= len(self._tokenizer.all_special_ids):
            raise BadInput(f"bertscore: {folder} contains no tokenizer like BERT's (vocab.txt or tokenizer.json).")
        self._tokenizer.model_max_length = _longest(self._tokenizer.model_max_length, config)
        self._model = model.to(device).eval()
        quicken(self._model)

    def lengths(self, pairs: Sequence[Pair]) -> np.ndarray:
        limit = self._tokenizer.model_max_length
        sides = [self._tokenizer(list(texts), truncation=True, max_length=limit) for texts in zip(*pairs, strict=True)]
        return np.array([[len(ids) for ids in side["input_ids"]] for side in sides]).max(axis=0)

    def score(self, pairs: Sequence[Pair]) -> np.ndarray:
        from bert_score.utils import bert_cos_score_idf

        scores = np.zeros(len(pairs))
        full = [place for place, texts in enumerate(pairs) if all(text.strip() for text in texts)]
        if not full:
            return scores
        weights: defaultdict[int, float] = defaultdict(lambda: 1.0)
        weights[self._tokenizer.cls_token_id] = weights[self._tokenizer.sep_token_id] = 0.0
        predictions, references = ([pairs[place][side] for place in full] for side in (0, 1))
        measured = bert_cos_score_idf(
            self._model,
            references,
            predictions,
            self._tokenizer,
            weights,
            batch_size=len(full),
            device=str(self._model.device),
        ).double()
        # bert-score turns an F1 of NaN into 0, so only precision and recall reveal damaged weights.
        precision_recall_f1 = measured.numpy()
        scores[full] = np.where(np.isfinite(precision_recall_f1).all(axis=1), precision_recall_f1[:, 2], np.nan)
        return scores


class Regression:
    def __init__(self, folder: Path, device: str) -> None:
        with _opening(folder):
            import torch
            from transformers import RemBertForSequenceClassification

            config = _rembert_config(folder)
            self._encode, self._cls, self._sep, pieces = _tokenizer(folder)
            loaded: Any = RemBertForSequenceClassification.from_pretrained(
                None,
                config=config,
                state_dict=_weights(folder),
                dtype=torch.float32,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
            )
        model, info = loaded
        _check_weights(folder, info)
        if pieces > config.vocab_size:
            raise BadInput(f"{folder}: the tokenizer has {pieces:,} pieces, but the model knows {config.vocab_size:,}.")
        self._most = min(MAX_TOKENS, config.max_position_embeddings)
        self._model = model.to(device).eval()
        quicken(self._model)

    def lengths(self, pairs: Sequence[Pair]) -> np.ndarray:
        return np.array([len(ids) for ids, _ in map(self._joined, pairs)])

    def score(self, pairs: Sequence[Pair]) -> np.ndarray:
        import torch

        joined = [self._joined(pair) for pair in pairs]
        shape = len(joined), max(len(ids) for ids, _ in joined)
        inputs = {name: torch.zeros(shape, dtype=torch.long) for name in ("input_ids", "attention_mask")}
        inputs["token_type_ids"] = torch.zeros(shape, dtype=torch.long)
        for row, (ids, first) in enumerate(joined):
            inputs["input_ids"][row, : len(ids)] = torch.tensor(ids)
            inputs["attention_mask"][row, : len(ids)] = 1
            inputs["token_type_ids"][row, first : len(ids)] = 1
        logits = self._model(**{name: value.to(self._model.device) for name, value in inputs.items()}).logits
        scores: np.ndarray = logits[:, 0].cpu().double().numpy()
        return scores

    def _joined(self, pair: Pair) -> tuple[list[int], int]:
        prediction, reference = (self._encode(text) for text in pair)
        room = self._most - 3
        # The reference comes first. Until both fit, the longer text (at a tie, the prediction) loses its last token.
        first = min(len(reference), max((room + 1) // 2, room - len(prediction)))
        ids = [self._cls, *reference[:first], self._sep, *prediction[: room - first], self._sep]
        return ids, first + 2


def _longest(limit: int, config: Any) -> int:
    most = limit if limit < UNBOUNDED else MAX_TOKENS
    places = getattr(config, "max_position_embeddings", 0)  # 0 or -1 if the model has no table of positions
    # RoBERTa's positions begin after the padding token's id.
    places -= config.pad_token_id + 1 if "roberta" in config.model_type else 0
    return min(most, places) if places > 0 else most


def _rembert_config(folder: Path) -> Any:
    from transformers import RemBertConfig

    given = dict(json.loads((folder / "config.json").read_text("utf-8")))
    given["input_embedding_size"] = given.pop("embedding_size", None) or given.get("input_embedding_size")
    needed = ["vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
              "input_embedding_size", "max_position_embeddings", "type_vocab_size"]  # fmt: skip
    if lacking := [name.removeprefix("input_") for name in needed if not isinstance(given.get(name), int)]:
        raise BadInput(
            f"{folder / 'config.json'} lacks {', '.join(lacking)}: the model does not have the layout of "
            "lucadiliello/BLEURT-20. Older BLEURT checkpoints (bleurt-base-128 and the like) are not supported."
        )
    values: dict[str, Any] = {name: given[name] for name in (*needed, "hidden_act", "layer_norm_eps") if name in given}
    values |= {"num_labels": 1, "bos_token_id": None, "eos_token_id": None}  # [CLS] and [SEP]: see `_tokenizer`
    return RemBertConfig(**values)


def _tokenizer(folder: Path) -> tuple[Callable[[str], list[int]], int, int, int]:
    """Return (text -> token ids without special tokens, the ids of [CLS] and [SEP], the vocabulary size)."""
    encode: Callable[[str], list[int]]
    if files := sorted(folder.glob("*.model")):
        from sentencepiece import SentencePieceProcessor

        pieces = SentencePieceProcessor(model_file=str(files[0]))
        encode, size = pieces.encode, len(pieces)
        special = [pieces.piece_to_id(name) for name in ("[CLS]", "[SEP]")]
        known = pieces.unk_id() not in special
    elif (folder / "tokenizer.json").is_file():
        from tokenizers import Tokenizer

        whole = Tokenizer.from_file(str(folder / "tokenizer.json"))
        whole.no_truncation()
        whole.no_padding()
        encode, size = lambda text: whole.encode(text, add_special_tokens=False).ids, whole.get_vocab_size()
        found = [whole.token_to_id(name) for name in ("[CLS]", "[SEP]")]
        special = [one for one in found if one is not None]
        known = len(special) == len(found)
    else:
        raise BadInput(f"{folder} contains no tokenizer: BLEURT needs its SentencePiece model (spm.model).")
    if not known:
        raise BadInput(f"{folder}: the tokenizer lacks [CLS] or [SEP], which BLEURT-20's tokenizer has.")
    return encode, special[0], special[1], size


def _weights(folder: Path) -> dict[str, Any]:
    import torch
    from safetensors.torch import load_file

    state: dict[str, Any] = {}
    if files := sorted(folder.glob("*.safetensors")):
        for file in files:
            state |= load_file(file)
    else:
        for file in sorted(folder.glob("pytorch_model*.bin")):
            state |= torch.load(file, map_location="cpu", weights_only=True)
    renamed = {}
    for name, value in state.items():
        if not name.endswith(".position_ids"):  # Older versions of transformers saved the numbers 0, 1, 2, ... there.
            name = name.replace("bleurt.", "rembert.", 1) if name.startswith("bleurt.") else name
            renamed[name.replace(".embedding_projection.", ".embedding_hidden_mapping_in.")] = value
    return renamed


def _check_weights(folder: Path, info: Mapping[str, Iterable[Any]]) -> None:
    """Raise BadInput unless the files have exactly the model's weights: missing weights would be random."""
    kinds = {
        "lack": info["missing_keys"],
        "contain unknown": info["unexpected_keys"],
        "have another shape for": (str(one[0]) for one in info["mismatched_keys"]),
    }
    problems = []
    for verb, weights in kinds.items():
        if names := sorted(weights):
            more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
            problems.append(f"{verb} {', '.join(names[:3])}{more}")
    if problems:
        raise BadInput(f"{folder}: the weights do not fit config.json. They {'; '.join(problems)}.")


@contextmanager
def _opening(folder: Path) -> Iterator[None]:
    """Do as `models.loading` does, and hide transformers' reports on weights. Raise BadInput for damaged files."""
    with models.loading(folder, "transformers"):
        from transformers.utils import logging

        level = logging.get_verbosity()
        logging.set_verbosity_error()
        try:
            yield
        except BadInput:
            raise
        except Exception as error:  # Tokenizers and safetensors raise nothing more specific.
            raise ValueError(f"{type(error).__name__}: {error}") from error
        finally:
            logging.set_verbosity(level)


_Result = TypeVar("_Result")


class ModelAbsent(Exception):
    """A model or a package is not available. The message gives the reason and the remedy."""


class PairMeasure:
    """The base class of BERTScore and BLEURT. It handles the model's arguments, its identity, batches, and the cache.

    revision: the model's revision on the hub; None means main.
    path: the model's folder, given instead of model and revision.
    device: where to compute; None means the best available device.
    batch_tokens: the maximum number of tokens per batch, with padding; None: see `models.NeuralModel`. Device and
        batches change only time and rounding.
    """

    version = 1
    _name: str
    _packages: tuple[str, ...]  # the packages that run the model

    def __init__(
        self, model: str | None, revision: str | None, path: str | None, device: str | None, batch_tokens: int | None
    ) -> None:
        self._model = models.NeuralModel(model, revision, path, None, "float32", device, batch_tokens)

    @classmethod
    def identify(cls, **arguments: Any) -> dict[str, Any]:
        """Return what decides a score: the model's files, the packages that run the model, and the arguments."""
        measure = cls(**arguments)
        try:
            return measure._identity()
        except ModelAbsent:
            return {"model": arguments["model"], "revision": arguments["revision"], "absent": True}

    def score(self, predictions: Sequence[str], references: Sequence[str], cache: Cache) -> np.ndarray:
        """Return the score of each pair, float64 [N]. The model is loaded only for pairs that are not cached.

        Raise ModelAbsent if the model or a package is not available, and BadInput if the model cannot be used.
        """
        sides = ([encodable(nfc(text)) for text in side] for side in (predictions, references))
        pairs = list(zip(*sides, strict=True))
        digests = ([hashlib.sha256(text.encode()).digest() for text in pair] for pair in pairs)
        keys = [hashlib.sha256(b"".join(both)).digest() for both in digests]

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
        loaded, done = self._loaded, 0
        batches = models.batches_by_length(
            [len(prediction) + len(reference) for prediction, reference in pairs],
            lambda places: loaded.lengths([pairs[place] for place in places]),
            self._model.batch_limit(),
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
    def _loaded(self) -> TruncatedEncoder | Regression:
        return self._load(self._found(models.locate_model), models.device_for(self._model.device))

    def _load(self, folder: Path, device: str) -> TruncatedEncoder | Regression:
        raise NotImplementedError

    def _need(self, package: str) -> None:
        if find_spec(package.replace("-", "_")) is None:
            raise ModelAbsent(f"{self._name} needs the package {package}: pip install 'retrieval-harness[text]'.")

    def _found(self, look: Callable[[models.ModelSource], _Result]) -> _Result:
        model, revision = self._model.model, self._model.revision
        try:
            return look(self._model)
        except BadInput as error:
            if self._model.path is not None:
                raise
            reason = str(error).partition(" Ways out:")[0].rstrip(".")  # The rest is advice about encoders.
            option = f" --revision {revision}" if revision else ""
            raise ModelAbsent(
                f"{reason}. Ways out: run `hf download {model}{option}` where the hub is reachable, and copy the cache "
                f"here (HF_HOME names the folder); or copy the model to a folder: task.{self._name}.path=FOLDER."
            ) from None


class BertScore(PairMeasure):
    """BERTScore's F1 (Zhang et al. 2020, arXiv:1904.09675), by the package bert-score, without idf and rescaling.

    A token's vector comes from layer `layer` of the model. P is the mean, over the prediction's tokens, of the greatest
    cosine with a token of the reference. R is the same with prediction and reference exchanged. The score is 2PR / (P +
    R), in [-1, 1]. The special tokens at both ends may be matched but count in neither mean. The score is 0 if a text
    is empty or white space, and 1 for equal texts. Texts are cut to as many tokens as the model accepts.
    Example: the cosines of the prediction's only token with the reference's two tokens are 1 and 0.5 -> P = 1, R = (1 +
    0.5) / 2 = 0.75, F1 = 0.8571.

    layer: from 1 to the model's number of layers; None: bert-score's choice for a model that it knows by name. Required
        with `path`.
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
        if layer is not None and layer < 1:
            raise BadInput(f"layer is {layer!r}: give a number from 1 to the model's number of layers, or null.")
        if layer is None and path is not None:
            raise BadInput(
                f"layer is null, but path is {path}: bert-score knows the right layer only for models on the hub. Give "
                "layer=N; for a copy of bert-base-multilingual-cased it is layer=9."
            )
        self._layer = layer

    def _identity(self) -> dict[str, Any]:
        return {**super()._identity(), "layer": self._layer}

    def _load(self, folder: Path, device: str) -> TruncatedEncoder | Regression:
        return TruncatedEncoder(folder, self._layer or self._usual_layer(), device)

    def _usual_layer(self) -> int:
        from bert_score.utils import model2layers

        model = self._model.model
        if model not in model2layers:
            raise BadInput(f"bertscore: bert-score names no layer for the model {model}: give task.bertscore.layer=N.")
        return int(model2layers[model])


class Bleurt(PairMeasure):
    """BLEURT (Sellam et al. 2020, arXiv:2004.04696), a trained regression from a pair of texts to a number.

    A RemBERT encoder reads [CLS] reference [SEP] prediction [SEP]; a linear layer turns the pooled output for [CLS]
    into a number. This is not bounded, but most values of BLEURT-20 lie between 0 (unrelated) and 1 (the same meaning).
    Empty texts are scored like other texts. If a pair has more than 512 tokens, the longer text is cut first. Example:
    about 0.999 for a sentence and itself.

    The folder has the layout of lucadiliello/BLEURT-20 (and -D12, -D6, -D3): config.json with embedding_size, one
    SentencePiece model (or a tokenizer.json) that knows [CLS] and [SEP], and weights named bleurt.* and classifier.*.
    Raise BadInput if weights are missing or unknown.
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

    def _load(self, folder: Path, device: str) -> TruncatedEncoder | Regression:
        if any(folder.glob("*.model")):
            self._need("sentencepiece")
        return Regression(folder, device)
