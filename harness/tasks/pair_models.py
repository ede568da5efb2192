"""The models behind BERTScore and BLEURT: loaded from a folder, with all their weights, they score pairs of texts."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from harness.errors import BadInput
from retrievers.dense import models

MAX_TOKENS = 512  # of BLEURT's input, and of a text for BERTScore if the tokenizer has no limit
UNBOUNDED = 10**6  # a tokenizer whose limit is greater than this has none

Pair = tuple[str, str]  # prediction, reference


class PairModel(Protocol):
    """A loaded model, in float32."""

    def lengths(self, pairs: Sequence[Pair]) -> np.ndarray:
        """int64 [n]: tokens of the longest model input of each pair."""
        ...

    def score(self, pairs: Sequence[Pair]) -> np.ndarray:
        """float64 [n], in one batch; not finite if the model's weights are damaged."""
        ...


class TruncatedEncoder:
    """An encoder cut off after `layer`, in the form that bert-score's own functions accept."""

    def __init__(self, folder: Path, layer: int, device: str) -> None:
        with _opening(folder):
            import torch
            from transformers import AutoConfig, AutoModel, AutoTokenizer

            config = AutoConfig.from_pretrained(folder, local_files_only=True)
            layers = getattr(config, "num_hidden_layers", 0)
            if config.is_encoder_decoder or not layers:
                raise BadInput(f"bertscore: {folder} contains no encoder like BERT. Choose another model.")
            if layer > layers:
                raise BadInput(f"bertscore: layer is {layer}, but the model in {folder} has {layers}.")
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
        missing = [name for name in info["missing_keys"] if not name.startswith("pooler.")]  # the pooler is not used
        # Unexpected weights are those of higher layers and of heads.
        _check_weights(folder, missing=missing, unexpected=(), mismatched=info["mismatched_keys"])
        if self._tokenizer.pad_token_id is None or len(self._tokenizer) <= len(self._tokenizer.all_special_ids):
            raise BadInput(f"bertscore: {folder} contains no tokenizer like BERT's, such as vocab.txt, tokenizer.json.")
        self._tokenizer.model_max_length = _longest(self._tokenizer.model_max_length, config)
        self._model = model.to(device).eval()

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
        # bert-score turns an F1 of NaN into 0: precision and recall reveal damaged weights
        precision_recall_f1 = measured.numpy()
        scores[full] = np.where(np.isfinite(precision_recall_f1).all(axis=1), precision_recall_f1[:, 2], np.nan)
        return scores


class Regression:
    """RemBERT with one output number per pair, and the tokenizer in the same folder."""

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
        _check_weights(
            folder,
            missing=info["missing_keys"],
            unexpected=info["unexpected_keys"],
            mismatched=info["mismatched_keys"],
        )
        if pieces > config.vocab_size:
            raise BadInput(f"{folder}: the tokenizer has {pieces:,} pieces, the model {config.vocab_size:,}.")
        self._most = min(MAX_TOKENS, config.max_position_embeddings)
        self._model = model.to(device).eval()

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
        """The tokens of both texts, the reference first, and how many of them precede the prediction."""
        prediction, reference = (self._encode(text) for text in pair)
        room = self._most - 3
        # The longer list loses its last token, the prediction's if both are equal, until they fit.
        first = min(len(reference), max((room + 1) // 2, room - len(prediction)))
        ids = [self._cls, *reference[:first], self._sep, *prediction[: room - first], self._sep]
        return ids, first + 2


def _longest(limit: int, config: Any) -> int:
    """How many tokens a text is cut to: what the tokenizer allows and the model has positions for.

    limit: of the tokenizer.
    """
    most = limit if limit < UNBOUNDED else MAX_TOKENS
    places = getattr(config, "max_position_embeddings", 0)  # 0 or -1 if there is no table of positions
    # RoBERTa's positions begin after the padding token's number.
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
    values |= {"num_labels": 1, "bos_token_id": None, "eos_token_id": None}  # the tokenizer knows these two
    return RemBertConfig(**values)


def _tokenizer(folder: Path) -> tuple[Callable[[str], list[int]], int, int, int]:
    """(text -> tokens without special ones, the number of [CLS], the number of [SEP], the number of pieces)."""
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
        raise BadInput(f"{folder}: the tokenizer knows no [CLS] and [SEP], which BLEURT-20's tokenizer has.")
    return encode, special[0], special[1], size


def _weights(folder: Path) -> dict[str, Any]:
    """The tensors by their names in RemBERT."""
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
        if not name.endswith(".position_ids"):  # 0, 1, 2 ...: older versions of transformers saved them
            name = name.replace("bleurt.", "rembert.", 1) if name.startswith("bleurt.") else name
            renamed[name.replace(".embedding_projection.", ".embedding_hidden_mapping_in.")] = value
    return renamed


def _check_weights(
    folder: Path, *, missing: Iterable[str], unexpected: Iterable[str], mismatched: Iterable[Sequence[Any]]
) -> None:
    """BadInput unless all of the model's weights came from the files: the others would be random numbers.

    mismatched: weights whose shapes differ, each [name, ...].
    """
    kinds = {
        "lack": missing,
        "contain unknown": unexpected,
        "have another shape for": (str(one[0]) for one in mismatched),
    }
    problems = []
    for verb, weights in kinds.items():
        if names := sorted(weights):
            more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
            problems.append(f"{verb} {', '.join(names[:3])}{more}")
    if problems:
        raise BadInput(f"{folder}: the weights do not fit the model of its config.json. They {'; '.join(problems)}.")


@contextmanager
def _opening(folder: Path) -> Iterator[None]:
    """Like `models.loading`, without transformers' own reports of weights; BadInput for damaged files."""
    with models.loading(folder, "transformers"):
        from transformers.utils import logging

        level = logging.get_verbosity()
        logging.set_verbosity_error()
        try:
            yield
        except BadInput:
            raise
        except Exception as error:  # tokenizers and safetensors raise nothing more specific
            raise ValueError(f"{type(error).__name__}: {error}") from error
        finally:
            logging.set_verbosity(level)
