"""Generated documents with queries and labels: a corpus of any size to measure with.

Words are named by frequency, w0 being the most common, and drawn from a Zipf-Mandelbrot distribution over 100,000 words
(exponent 1, shift 2.7). Ids are in no order. A query has five words of one document and three drawn like a document's;
only this document is labelled relevant. The same arguments give the same files; more documents leave the first ones
unchanged.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

WORDS, BLOCK = 100_000, 10_000  # different words; documents made at a time
OF_DOCUMENT, OTHERS = 5, 3  # words of a query
NAMES = np.array([f"w{number}" for number in range(WORDS)], dtype=object)


def zipf(draws: np.ndarray) -> np.ndarray:
    """Return the number of a word for each draw from [0, 1)."""
    weights = 1 / (np.arange(WORDS) + 2.7)
    return np.minimum(np.searchsorted(np.cumsum(weights / weights.sum()), draws), WORDS - 1)


def texts(count: int, length: int, seed: int) -> list[str]:
    return [" ".join(row) for row in NAMES[zipf(np.random.default_rng(seed).random((count, length)))].tolist()]


def doc_id(number: int) -> str:
    """Return a document's id: different for each number below 2 ** 32, in no order."""
    return f"d{number * 2_654_435_761 % 2**32:08x}"


def blocks(documents: int, words: int, seed: int = 0) -> Iterator[tuple[int, list[list[str]], np.random.Generator]]:
    """Yield (number of the first document, words of each and OTHERS more, generator), block by block."""
    for first in range(0, documents, BLOCK):
        generator = np.random.default_rng([seed, first])
        drawn = zipf(generator.random((BLOCK, words + OTHERS)))
        yield first, NAMES[drawn[: documents - first]].tolist(), generator


def corpus(output: Path, *, documents: int = 1_000_000, words: int = 60, queries: int = 200, seed: int = 0) -> None:
    """Write generated documents with queries and labels, in BEIR's format.

    python scripts/benchmark.py corpus /tmp/g1M --documents 1000000
    harness run dataset=beir dataset.path=/tmp/g1M retriever=bm25 tokenizer=whitespace
    """
    if not 1 <= queries <= documents < 2**32 or words < 1 or seed < 0:
        sys.exit("Give at least one word and one query, no more queries than documents, and a seed of at least 0.")
    if output.exists():
        sys.exit(f"{output} exists. Name a new folder.")
    unfinished = output.with_name(f"{output.name}.unfinished")
    (unfinished / "qrels").mkdir(parents=True)
    asked = {number * documents // queries: f"q{number}" for number in range(queries)}
    with (
        (unfinished / "corpus.jsonl").open("w") as corpus_file,
        (unfinished / "queries.jsonl").open("w") as query_file,
        (unfinished / "qrels" / "test.tsv").open("w") as label_file,
    ):
        label_file.write("query-id\tcorpus-id\tscore\n")
        for first, rows, generator in blocks(documents, words, seed):
            for number, row in enumerate(rows, start=first):
                corpus_file.write(json.dumps({"_id": doc_id(number), "text": " ".join(row[:words])}) + "\n")
                if query_id := asked.get(number):
                    picked = generator.choice(words, min(OF_DOCUMENT, words), replace=False)
                    text = " ".join([*(row[place] for place in picked), *row[words:]])
                    query_file.write(json.dumps({"_id": query_id, "text": text}) + "\n")
                    label_file.write(f"{query_id}\t{doc_id(number)}\t1\n")
    unfinished.rename(output)
