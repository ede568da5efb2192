"""Documents per second that a GPU encodes with a model of the size of bge-m3, and the share of its peak speed.

    python scripts/benchmark_gpu.py                            # bfloat16, documents of 128 and of 512 tokens
    python scripts/benchmark_gpu.py --tokens 8192 --count 64
    python scripts/benchmark_gpu.py --device cpu --tiny        # a trial run; its numbers mean nothing

The model is XLM-RoBERTa large (24 layers, 1,024 wide, 8,192 positions, CLS pooling) with random weights,
since speed does not depend on them, and nothing is downloaded. Its tokenizer maps each word to one token, so that a
document has exactly the requested number of tokens. The columns:

- ours: SentenceEncoder.encode_documents as a run calls it, with embeddings written to disk; theirs:
  SentenceTransformer.encode alone; the same weights and texts in alternating passes, as in benchmark_encode.py
- TFLOP/s: of ours, counting 2 operations per token and weight outside the embeddings, and for the attention of a
  document of T tokens 4 * T^2 * width operations per layer
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

from benchmark import parser, ratio_cells
from benchmark_encode import compare

from retrievers.dense.encoders import SentenceEncoder

LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
TINY = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
WORDS, VOCABULARY, POSITIONS = 5000, 250_002, 8192
MULTIPLIED, PRODUCTS = {"cuda": 16384, "cpu": 1024}, 10  # rows of the square matrices, and number of products


def build(folder: Path, shape: dict[str, int], dtype: str) -> Any:
    """Write model and tokenizer in the layout of sentence-transformers; return the transformer's config."""
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
    """Different texts of exactly `tokens` tokens, including the two special ones."""
    drawn = np.random.default_rng(tokens).integers(0, WORDS, (count, tokens - 2))
    return [" ".join([f"w{i}" for i in row.tolist()]) for row in drawn]


def operations(config: Any, tokens: int) -> float:
    """Floating-point operations per document."""
    width, layers = config.hidden_size, config.num_hidden_layers
    weights = layers * (4 * width**2 + 2 * width * config.intermediate_size)
    return 2 * weights * tokens + 4 * layers * width * tokens**2


def matrix_rate(device: str, dtype: str) -> float:
    """Floating-point operations per second in the fastest of several products of large matrices."""
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
    options = parser(__doc__)
    options.add_argument("--tokens", type=int, nargs="+", default=[128, 512], help="tokens per document")
    options.add_argument("--count", type=int, help="documents per pass; default: enough for 2^21 tokens")
    options.add_argument("--passes", type=int, default=5)
    options.add_argument("--device", default="cuda")
    options.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    options.add_argument("--batch-size", type=int, default=32, help="batch size of theirs, in texts")
    options.add_argument("--batch-tokens", type=int, help="batch size of ours, in tokens; default: the encoder's")
    options.add_argument("--tiny", action="store_true", help="trial run: a tiny model in float32 and few documents")
    chosen = options.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), chosen)


def measure(folder: Path, chosen: argparse.Namespace) -> None:
    """Build the model in `folder` and print a Markdown table, each row as soon as it is known."""
    import torch
    from sentence_transformers import SentenceTransformer

    shape, dtype = (TINY, "float32") if chosen.tiny else (LARGE, chosen.dtype)
    config = build(folder, shape, dtype)
    encoder = SentenceEncoder(path=str(folder), dtype=dtype, device=chosen.device, batch_tokens=chosen.batch_tokens)
    options = {"dtype": getattr(torch, dtype)}
    bare = SentenceTransformer(str(folder), device=chosen.device, model_kwargs=options, local_files_only=True)
    best = matrix_rate(chosen.device, dtype)
    card = torch.cuda.get_device_name(chosen.device) if chosen.device.startswith("cuda") else chosen.device
    print(f"{card}, {dtype}: {best / 1e12:,.2f} TFLOP/s in matrix products; theirs in batches of {chosen.batch_size}\n")
    print("| tokens | documents | ours, documents/s | theirs | median ratio | min - max | TFLOP/s | share |")
    print("|---|---|---|---|---|---|---|---|")
    for tokens in chosen.tokens:
        texts = documents(chosen.count or (64 if chosen.tiny else 2**21 // tokens), tokens)
        rates = compare(encoder, bare, texts, chosen.passes, chosen.batch_size)
        rate = float(np.median(rates[:, 0])) * operations(config, tokens)
        cells = f"{ratio_cells(rates)} | {rate / 1e12:,.2f} | {rate / best:.0%}"
        print(f"| {tokens:,} | {len(texts):,} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
