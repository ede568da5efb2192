"""Real transformer models of a hundred kilobytes with random weights, made by the tests without a download.

Their embeddings have no meaning, but equal texts get equal ones and different texts clearly different ones.
"""

import json
import shutil
import tempfile
from collections.abc import Callable
from functools import wraps
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LENGTH = 512  # tokens that a tiny model takes

SENTENCES = [
    "The moon orbits the earth once a month and the tides follow it.",
    "Water boils at one hundred degrees at the level of the sea.",
    "Plants make sugar from light, water and the air around them.",
    "What is the boiling point of water? Why does the moon change its shape?",
    "달은 한 달에 한 번 지구 둘레를 돈다. 바닷물은 달을 따라 움직인다.",
    "물은 백 도에서 끓는다. 높은 산에서는 더 낮은 온도에서 끓는다.",
    "식물은 빛을 받아 양분을 만든다. 뿌리는 물을 빨아들인다.",
    "달의 모양은 왜 변하나요? 물은 몇 도에서 끓나요?",
]
HIDDEN = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
HIDDEN |= {"initializer_range": 0.5, "max_position_embeddings": LENGTH + 2, "type_vocab_size": 1}


def _built_once(build: Callable[..., Path]) -> Callable[..., Path]:
    """Build a model once in this process, and copy it whenever it is wanted again."""
    built: dict[str, Path] = {}

    @wraps(build)
    def copied(folder: Path, *arguments: object, **named: object) -> Path:
        key = repr((arguments, named, LENGTH, HIDDEN))
        if key not in built:
            built[key] = build(Path(tempfile.mkdtemp(dir=_folders.name), "model"), *arguments, **named)
        return shutil.copytree(built[key], folder)

    return copied


_folders = tempfile.TemporaryDirectory()


@_built_once
def tiny_bge_m3(folder: Path, seed: int = 0) -> Path:
    """A model in the layout of BAAI/bge-m3: CLS pooling, unit length, sparse and ColBERT heads."""
    import torch

    tiny_sentence_model(folder, "cls", seed)
    generator = torch.Generator().manual_seed(seed)
    size = HIDDEN["hidden_size"]
    # The bias makes most of the sparse head's weights positive, as they are in a trained model.
    for name, rows, bias in (("sparse_linear.pt", 1, 2.0), ("colbert_linear.pt", size, 0.0)):
        state = {"weight": torch.randn(rows, size, generator=generator) / size**0.5, "bias": torch.full((rows,), bias)}
        torch.save(state, folder / name)
    return folder


@_built_once
def tiny_sentence_model(folder: Path, pooling: str = "mean", seed: int = 0) -> Path:
    """Transformer, pooling (`mean` or `cls`) and normalisation, in the layout of sentence-transformers."""
    import torch
    from transformers import XLMRobertaConfig, XLMRobertaModel

    folder.mkdir(parents=True)
    tokenizer = _save_tokenizer(folder)
    torch.manual_seed(seed)
    config = XLMRobertaConfig(vocab_size=len(tokenizer), **HIDDEN)
    XLMRobertaModel(config).eval().save_pretrained(folder)
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(kinds)
    ]
    _write(folder / "modules.json", modules)
    _write(folder / "sentence_bert_config.json", {"max_seq_length": LENGTH, "do_lower_case": False})
    _write(folder / "config_sentence_transformers.json", {"prompts": {}, "default_prompt_name": None})
    modes = {f"pooling_mode_{mode}": False for mode in ("max_tokens", "mean_sqrt_len_tokens")}
    modes |= {"pooling_mode_cls_token": pooling == "cls", "pooling_mode_mean_tokens": pooling == "mean"}
    _write(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": HIDDEN["hidden_size"], **modes})
    return folder


@_built_once
def tiny_cross_encoder(folder: Path, seed: int = 0, labels: int = 1) -> Path:
    """A sequence classifier in the layout of BAAI/bge-reranker-v2-m3."""
    import torch
    from transformers import XLMRobertaConfig, XLMRobertaForSequenceClassification

    folder.mkdir(parents=True)
    tokenizer = _save_tokenizer(folder)
    torch.manual_seed(seed)
    config = XLMRobertaConfig(vocab_size=len(tokenizer), num_labels=labels, **HIDDEN)
    XLMRobertaForSequenceClassification(config).eval().save_pretrained(folder)
    return folder


def hub_cache(root: Path, name: str, model_folder: Path, commit: str = COMMIT) -> Path:
    """Copy a model into a hub cache as revision `main`; return the snapshot's folder. See `use_hub_cache`."""
    repository = root / f"models--{name.replace('/', '--')}"
    snapshot = repository / "snapshots" / commit
    shutil.copytree(model_folder, snapshot)
    (repository / "refs").mkdir(exist_ok=True)
    (repository / "refs" / "main").write_text(commit)
    return snapshot


def use_hub_cache(monkeypatch, root: Path, offline: bool = True) -> None:
    """Make `root` the hub cache of this process (which read its settings at import) and of child processes."""
    monkeypatch.setenv("HF_HUB_CACHE", str(root))
    monkeypatch.setenv("HF_HUB_OFFLINE", str(int(offline)))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(root))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", offline)


def _save_tokenizer(folder: Path):
    """A unigram tokenizer (Kudo 2018) of a few hundred pieces, with XLM-RoBERTa's special tokens and their ids."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    pieces = [(token, 0.0) for token in (*special.values(), "<mask>")]
    pieces += [(piece, -8 - i / 1000) for i, piece in enumerate(_pieces())]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=3))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        cls_token="<s>",
        sep_token="</s>",
        mask_token="<mask>",
        model_max_length=LENGTH,
        model_input_names=["input_ids", "attention_mask"],
        **special,
    )
    wrapped.save_pretrained(folder)
    return wrapped


def _pieces() -> list[str]:
    """Substrings of up to three characters of the words in SENTENCES, each word prefixed with the space sign."""
    words = [f"▁{word}" for sentence in SENTENCES for word in sentence.split()]
    return sorted({word[i : i + n] for word in words for n in (1, 2, 3) for i in range(len(word) - n + 1)})


def _write(path: Path, value) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value, indent=2), "utf-8")
