"""Documents a second that a GPU encodes with a model of bge-m3's size, and what share of the card's speed that is.

    python scripts/benchmark_gpu.py                            # bfloat16, documents of 128 and of 512 tokens
    python scripts/benchmark_gpu.py --tokens 8192 --count 64
    python scripts/benchmark_gpu.py --device cpu --tiny        # does it run? its numbers mean nothing

The model is XLM-RoBERTa large (24 layers, 1,024 wide, 8,192 positions, CLS pooling) with random weights, made on the
spot: speed does not depend on what weights say, and nothing is downloaded. Its tokenizer takes words as they stand, so
that a document has exactly the tokens asked for. The columns:

- ours: SentenceEncoder.encode_documents as a run calls it, embeddings written to the disk; theirs:
  SentenceTransformer.encode by itself; the same weights and texts, in turn, as in benchmark_encode.py
- TFLOP/s: of ours; a token costs 2 operations a weight outside the embeddings, and the attention of a document of T
  tokens 4 T^2 width operations a layer
- share: of the rate at which the device multiplies two large square matrices of the same format, measured here
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from benchmark_encode import compare, report

from retrievers.dense.encoders import SentenceEncoder

LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
TINY = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
WORDS, VOCABULARY, POSITIONS = 5000, 250_002, 8192
MULTIPLIED, PRODUCTS = {"cuda": 16384, "cpu": 1024}, 10  # rows of the square matrices, and how often


def build(folder: Path, shape: dict[str, int], dtype: str) -> Any:
    """Write the model and its tokenizer as sentence-transformers lays them out; the transformer's config."""
    import torch
    from sentence_transformers.models import Normalize, Pooling
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast, XLMRobertaConfig, XLMRobertaModel

    names = {name: i for i, name in enumerate((*SPECIAL, *(f"w{i}" for i in range(WORDS))))}
    tokenizer = Tokenizer(models.WordLevel(names, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    named = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token", "mask_token"), SPECIAL, strict=True))
    inputs = ["input_ids", "attention_mask"]
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=POSITIONS, model_input_names=inputs, **named
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = XLMRobertaConfig(
        vocab_size=VOCABULARY if shape is LARGE else len(names),
        max_position_embeddings=POSITIONS + 2,
        type_vocab_size=1,
        **shape,
    )
    XLMRobertaModel(config).to(getattr(torch, dtype)).save_pretrained(folder)
    pooling = Pooling(shape["hidden_size"], pooling_mode="cls")
    for module, place in ((pooling, "1_Pooling"), (Normalize(), "2_Normalize")):
        (folder / place).mkdir()
        module.save(str(folder / place))
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    return config


def documents(count: int, tokens: int) -> list[str]:
    """Different texts of exactly `tokens` tokens, the two special ones included."""
    drawn = np.random.default_rng(tokens).integers(0, WORDS, (count, tokens - 2))
    return [" ".join([f"w{i}" for i in row.tolist()]) for row in drawn]


def operations(config: Any, tokens: int) -> float:
    """Floating-point operations for a document."""
    width, layers = config.hidden_size, config.num_hidden_layers
    weights = layers * (4 * width**2 + 2 * width * config.intermediate_size)
    return 2 * weights * tokens + 4 * layers * width * tokens**2


def matrix_rate(device: str, dtype: str) -> float:
    """Floating-point operations a second of a product of large matrices, the fastest of some."""
    import torch

    kind = torch.device(device).type
    size = MULTIPLIED[kind]
    a, b = (torch.randn(size, size, device=device, dtype=getattr(torch, dtype)) for _ in range(2))
    rates = []
    for _ in range(PRODUCTS):
        _wait(kind)
        start = time.perf_counter()
        a @ b
        _wait(kind)
        rates.append(2 * size**3 / (time.perf_counter() - start))
    return max(rates)


def _wait(kind: str) -> None:
    import torch

    if kind == "cuda":
        torch.cuda.synchronize()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[128, 512], help="of a document")
    parser.add_argument("--count", type=int, help="documents of a pass; default: as many as make 2^21 tokens")
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    parser.add_argument("--batch-size", type=int, default=32, help="of theirs, in texts")
    parser.add_argument("--batch-tokens", type=int, help="of ours; default: the encoder's")
    parser.add_argument("--tiny", action="store_true", help="a tiny model in float32 and few documents, as a trial")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), chosen)


def measure(folder: Path, chosen: argparse.Namespace) -> None:
    """Build the model in `folder` and print a Markdown table, row by row as the results come."""
    import torch
    from sentence_transformers import SentenceTransformer

    shape, dtype = (TINY, "float32") if chosen.tiny else (LARGE, chosen.dtype)
    config = build(folder, shape, dtype)
    encoder = SentenceEncoder(path=str(folder), dtype=dtype, device=chosen.device, batch_tokens=chosen.batch_tokens)
    options = {"dtype": getattr(torch, dtype)}
    bare = SentenceTransformer(str(folder), device=chosen.device, model_kwargs=options, local_files_only=True)
    best = matrix_rate(chosen.device, dtype)
    card = torch.cuda.get_device_name(chosen.device) if chosen.device.startswith("cuda") else chosen.device
    print(f"{card}, {dtype}: {best / 1e12:,.2f} TFLOP/s by matrix products; theirs in batches of {chosen.batch_size}\n")
    print("| tokens | documents | ours, documents/s | theirs | median ratio | least - greatest | TFLOP/s | share |")
    print("|---|---|---|---|---|---|---|---|")
    for tokens in chosen.tokens:
        texts = documents(chosen.count or (64 if chosen.tiny else 2**21 // tokens), tokens)
        rates = compare(encoder, bare, texts, chosen.passes, chosen.batch_size)
        rate = float(np.median(rates[:, 0])) * operations(config, tokens)
        cells = f"{report(rates)} | {rate / 1e12:,.2f} | {rate / best:.0%}"
        print(f"| {tokens:,} | {len(texts):,} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
