"""The models behind BERTScore and BLEURT: loaded from a folder, whole or not at all, they score pairs of texts."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from retrievers.base import BadInput
from retrievers.dense import models

MAX_TOKENS = 512  # of BLEURT's input; and of a text for BERTScore where the tokenizer names no number
UNBOUNDED = 10**6  # a tokenizer that names more tokens than this means that it knows no bound

Pair = tuple[str, str]  # prediction, reference


class PairModel(Protocol):
    """A model that is ready to score, in float32."""

    def lengths(self, pairs: Sequence[Pair]) -> np.ndarray:
        """int64 [n]: tokens of the longest input that a pair makes."""
        ...

    def score(self, pairs: Sequence[Pair]) -> np.ndarray:
        """float64 [n], in one batch; not finite where the model's weights are damaged."""
        ...


class Encoder:
    """An encoder cut off after `layer`, as bert-score's own functions take it."""

    def __init__(self, folder: Path, layer: int, device: str) -> None:
        with _opening(folder):
            import torch
            from transformers import AutoConfig, AutoModel, AutoTokenizer

            config = AutoConfig.from_pretrained(folder, local_files_only=True)
            layers = getattr(config, "num_hidden_layers", 0)
            if config.is_encoder_decoder or not layers:
                raise BadInput(f"bertscore: {folder} holds no encoder of BERT's kind. Choose another model.")
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
        model, about = loaded
        missing = [name for name in about["missing_keys"] if not name.startswith("pooler.")]  # nothing reads the pooler
        _check_landed(folder, missing, (), about["mismatched_keys"])  # what is left over: higher layers, and heads
        if self._tokenizer.pad_token_id is None or len(self._tokenizer) <= len(self._tokenizer.all_special_ids):
            raise BadInput(f"bertscore: {folder} holds no tokenizer of BERT's kind, such as vocab.txt, tokenizer.json.")
        self._tokenizer.model_max_length = _longest(self._tokenizer.model_max_length, config)
        self._model = model.to(device).eval()

    def lengths(self, pairs: Sequence[Pair]) -> np.ndarray:
        most = self._tokenizer.model_max_length
        found = [self._tokenizer(list(texts), truncation=True, max_length=most) for texts in zip(*pairs, strict=True)]
        return np.array([[len(ids) for ids in one["input_ids"]] for one in found]).max(axis=0)

    def score(self, pairs: Sequence[Pair]) -> np.ndarray:
        from bert_score.utils import bert_cos_score_idf

        scores = np.zeros(len(pairs))
        full = [place for place, texts in enumerate(pairs) if all(text.strip() for text in texts)]
        if not full:
            return scores
        weights: defaultdict[int, float] = defaultdict(lambda: 1.0)
        weights[self._tokenizer.cls_token_id] = weights[self._tokenizer.sep_token_id] = 0.0
        predictions, references = ([pairs[place][side] for place in full] for side in (0, 1))
        found = bert_cos_score_idf(
            self._model,
            references,
            predictions,
            self._tokenizer,
            weights,
            batch_size=len(full),
            device=str(self._model.device),
        ).double()
        # bert-score turns an F1 of NaN to 0: precision and recall tell damaged weights
        scores[full] = np.where(np.isfinite(found.numpy()).all(axis=1), found[:, 2].numpy(), np.nan)
        return scores


class Regression:
    """RemBERT with one number for a pair, and the tokenizer that lies beside its weights."""

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
        model, about = loaded
        _check_landed(folder, *(about[f"{kind}_keys"] for kind in ("missing", "unexpected", "mismatched")))
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
        found: np.ndarray = logits[:, 0].cpu().double().numpy()
        return found

    def _joined(self, pair: Pair) -> tuple[list[int], int]:
        """The tokens of both texts, the reference first, and how many of them are before the prediction."""
        prediction, reference = (self._encode(text) for text in pair)
        room = self._most - 3
        # As when the longer list loses its last token, the prediction where both are equal, until they fit.
        first = min(len(reference), max((room + 1) // 2, room - len(prediction)))
        ids = [self._cls, *reference[:first], self._sep, *prediction[: room - first], self._sep]
        return ids, first + 2


def _longest(named: int, config: Any) -> int:
    """How many tokens a text is cut to: as many as the tokenizer names and the model has places for."""
    most = named if named < UNBOUNDED else MAX_TOKENS
    places = getattr(config, "max_position_embeddings", 0)  # 0 or -1 where there is no table of places
    # RoBERTa's positions begin behind the padding token's number.
    places -= config.pad_token_id + 1 if "roberta" in config.model_type else 0
    return min(most, places) if places > 0 else most


def _rembert_config(folder: Path) -> Any:
    from transformers import RemBertConfig

    told = dict(json.loads((folder / "config.json").read_text("utf-8")))
    told["input_embedding_size"] = told.pop("embedding_size", None) or told.get("input_embedding_size")
    needed = ["vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
              "input_embedding_size", "max_position_embeddings", "type_vocab_size"]  # fmt: skip
    if lacking := [name.removeprefix("input_") for name in needed if not isinstance(told.get(name), int)]:
        raise BadInput(
            f"{folder / 'config.json'} lacks {', '.join(lacking)}: the model is not laid out as lucadiliello/BLEURT-20 "
            "is. Older BLEURT checkpoints (bleurt-base-128 and the like) are not supported."
        )
    decides: dict[str, Any] = {name: told[name] for name in (*needed, "hidden_act", "layer_norm_eps") if name in told}
    decides |= {"num_labels": 1, "bos_token_id": None, "eos_token_id": None}  # the tokenizer knows these two
    return RemBertConfig(**decides)


def _tokenizer(folder: Path) -> tuple[Callable[[str], list[int]], int, int, int]:
    """(text to tokens without special ones, the number of [CLS], that of [SEP], how many pieces there are)."""
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
        raise BadInput(f"{folder} holds no tokenizer: BLEURT needs its SentencePiece model (spm.model).")
    if not known:
        raise BadInput(f"{folder}: the tokenizer knows no [CLS] and [SEP], as that of BLEURT-20 does.")
    return encode, special[0], special[1], size


def _weights(folder: Path) -> dict[str, Any]:
    """The tensors by the names that RemBERT has for them."""
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
        if not name.endswith(".position_ids"):  # 0, 1, 2 ..., which older versions of transformers saved
            name = name.replace("bleurt.", "rembert.", 1) if name.startswith("bleurt.") else name
            renamed[name.replace(".embedding_projection.", ".embedding_hidden_mapping_in.")] = value
    return renamed


def _check_landed(
    folder: Path, missing: Iterable[str], unexpected: Iterable[str], mismatched: Iterable[Sequence[Any]]
) -> None:
    """BadInput unless all of the model's weights came from the files: the others would be random numbers."""
    told = {"lack": missing, "hold unknown": unexpected, "hold in another shape": (str(one[0]) for one in mismatched)}
    said = []
    for words, found in told.items():
        if names := sorted(found):
            more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
            said.append(f"{words} {', '.join(names[:3])}{more}")
    if said:
        raise BadInput(f"{folder}: the weights do not fit the model of its config.json. They {'; '.join(said)}.")


@contextmanager
def _opening(folder: Path) -> Iterator[None]:
    """As models.loading, without transformers' reports of weights, which are read here; BadInput for damaged files."""
    with models.loading(folder, "transformers"):
        from transformers.utils import logging

        level = logging.get_verbosity()
        logging.set_verbosity_error()
        try:
            yield
        except BadInput:
            raise
        except Exception as error:  # tokenizers and safetensors raise nothing more exact
            raise ValueError(f"{type(error).__name__}: {error}") from error
        finally:
            logging.set_verbosity(level)
