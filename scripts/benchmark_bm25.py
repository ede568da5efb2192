"""BM25 against rank_bm25 and bm25s on generated corpora: speed, index size, memory.

    python scripts/benchmark_bm25.py                     # 5,000 and 50,000 documents
    python scripts/benchmark_bm25.py 5000 50000 500000   # the largest takes some minutes
    python scripts/benchmark_bm25.py 500000 --engines retrieval-harness bm25s-numba

A document is 60 words drawn from a Zipf-Mandelbrot distribution over 100,000 words (exponent 1, shift 2.7), a query 8
words drawn in the same way; the best 100 documents are retrieved, on all cores where the engine can use them. Each
engine runs in its own process on the same texts, with its libraries imported before timing starts. The columns:

- warm-up: seconds of the same work on 200 documents, done first to load or compile code
- tokenise, index: seconds from texts to tokens, and from tokens to a searchable index
- queries/s: the fastest of five passes, from tokens; ours includes checking the ranking
- index MB: size on disk of the arrays that a search reads (rank_bm25 has none)
- resident, peak MB: growth of resident memory since the warm-up, file maps included: after tokens are dropped and
  queries answered; at its highest

A second table compares ours with bm25s-numba, the fastest of the others, in one process and in alternating passes, so
that changes in the machine's speed affect both. Quote this ratio.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmark import Peak, parser, ratio_cells, seconds

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from retrievers.base import Document, Query
from retrievers.lexical.bm25 import BM25
from retrievers.lexical.tokenize import Whitespace

WORDS, DOCUMENT_LENGTH, QUERY_LENGTH, DEPTH, PASSES, PAIRS = 100_000, 60, 8, 100, 5, 11
QUERIES, SLOW_QUERIES, WARM_UP = 1000, 20, 200  # slow: rank_bm25


def texts(count: int, length: int, seed: int) -> list[str]:
    """`count` texts of `length` words, which are numbered from the most common one, w0."""
    weights = 1 / (np.arange(WORDS) + 2.7)
    cumulative = np.cumsum(weights / weights.sum())
    drawn = np.searchsorted(cumulative, np.random.default_rng(seed).random((count, length)))
    names = [f"w{i}" for i in range(WORDS)]
    return [" ".join([names[i] for i in row.tolist()]) for row in np.minimum(drawn, WORDS - 1)]


class Ours:
    def __init__(self, folder: Path) -> None:
        import retrievers.lexical._bm25_kernels  # noqa: F401  (imports numba before timing starts)

        self.folder = folder
        # Tokens are made and timed separately from the index and the search.
        self.bm25 = BM25(lambda texts, progress=None: self.tokens, variant="okapi")

    def tokenise(self, documents: list[str]) -> None:
        self.documents = [Document(f"{i:09d}", text) for i, text in enumerate(documents)]
        self.tokens = Whitespace()(documents)

    def index(self) -> None:
        self.bm25.index(self.documents, self.folder)
        del self.tokens, self.documents

    def queries(self, queries: list[str]) -> Sequence[Any]:
        self.tokens = Whitespace()(queries)
        return [Query.of(str(i), text) for i, text in enumerate(queries)]

    def search(self, queries: Sequence[Any]) -> None:
        self.bm25.search(queries, DEPTH)


class RankBM25:
    def __init__(self, folder: Path) -> None:
        import rank_bm25

        self.make = rank_bm25.BM25Okapi

    def tokenise(self, documents: list[str]) -> None:
        self.tokens = [text.split() for text in documents]

    def index(self) -> None:
        self.bm25 = self.make(self.tokens)
        del self.tokens

    def queries(self, queries: list[str]) -> Sequence[Any]:
        return [text.split() for text in queries[:SLOW_QUERIES]]

    def search(self, queries: Sequence[Any]) -> None:
        for query in queries:
            scores = self.bm25.get_scores(query)
            best = np.argpartition(-scores, DEPTH)[:DEPTH]
            best[np.argsort(-scores[best])]


class BM25S:
    def __init__(self, folder: Path, backend: str) -> None:
        import bm25s

        self.library, self.folder = bm25s, folder
        self.bm25 = bm25s.BM25(method="lucene", backend=backend)
        self.threads = os.cpu_count() if backend == "numba" else 0

    def split(self, texts: list[str]) -> Any:
        return self.library.tokenize(texts, lower=False, token_pattern=r"\S+", stopwords=[], show_progress=False)

    def tokenise(self, documents: list[str]) -> None:
        self.tokens = self.split(documents)

    def index(self) -> None:
        self.bm25.index(self.tokens, show_progress=False)
        del self.tokens
        self.bm25.save(str(self.folder))

    def queries(self, queries: list[str]) -> Any:
        return self.split(queries)

    def search(self, queries: Any) -> None:
        self.bm25.retrieve(queries, k=DEPTH, n_threads=self.threads, show_progress=False)


ENGINES: dict[str, Callable[[Path], Any]] = {
    "retrieval-harness": Ours,
    "rank_bm25": RankBM25,
    "bm25s-numpy": lambda folder: BM25S(folder, "numpy"),
    "bm25s-numba": lambda folder: BM25S(folder, "numba"),
}


def resident() -> int:
    """Bytes of resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure(name: str, size: int) -> dict[str, float]:
    """One engine on one corpus, in this process."""
    documents, queries = texts(size, DOCUMENT_LENGTH, seed=1), texts(QUERIES, QUERY_LENGTH, seed=2)
    with tempfile.TemporaryDirectory() as small, tempfile.TemporaryDirectory() as folder:
        warm_up = seconds(lambda: work(ENGINES[name](Path(small)), documents[:WARM_UP], queries[:WARM_UP]))
        engine = ENGINES[name](Path(folder))
        gc.collect()
        before = resident()
        with Peak(resident) as peak:
            result = work(engine, documents, queries)
        gc.collect()
        files = [file.stat().st_size for file in Path(folder).rglob("*.npy") if not file.name.startswith("doc_id")]
        return {
            "warm-up s": warm_up,
            **result,
            "index MB": sum(files) / 1e6,
            "resident MB": (resident() - before) / 1e6,
            "peak MB": (peak.bytes - before) / 1e6,
        }


def work(engine: Any, texts: list[str], query_texts: list[str]) -> dict[str, float]:
    """Tokenise, index and search."""
    result = {"tokenise s": seconds(lambda: engine.tokenise(texts)), "index s": seconds(engine.index)}
    queries = engine.queries(query_texts)
    answered = SLOW_QUERIES if isinstance(engine, RankBM25) else len(query_texts)
    return result | {"queries/s": answered / min(seconds(lambda: engine.search(queries)) for _ in range(PASSES))}


def report(sizes: list[int], engines: list[str]) -> None:
    """Print a Markdown table, each row as soon as it is known."""
    print("| documents | engine | warm-up s | tokenise s | index s | queries/s | index MB | resident MB | peak MB |")
    print("|---|---|---|---|---|---|---|---|---|")
    for size in sizes:
        for name in engines:
            command = [sys.executable, __file__, str(size), "--measure", name]
            result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            cells = [f"{value:,.2f}" if key.endswith(" s") else f"{value:,.0f}" for key, value in result.items()]
            print(f"| {size:,} | {name} | {' | '.join(cells)} |", flush=True)


def compare(size: int) -> None:
    """Print the ratio of ours to bm25s-numba, in alternating passes in this process."""
    documents, queries = texts(size, DOCUMENT_LENGTH, seed=1), texts(QUERIES, QUERY_LENGTH, seed=2)
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        engines = [ENGINES["retrieval-harness"](Path(one)), ENGINES["bm25s-numba"](Path(other))]
        for engine in engines:
            engine.tokenise(documents)
            engine.index()
        prepared = [(engine, engine.queries(queries)) for engine in engines]
        for engine, tokens in prepared:
            engine.search(tokens)  # compiles or loads
        passes = [
            [seconds(lambda e=engine, t=tokens: e.search(t)) for engine, tokens in prepared] for _ in range(PAIRS)
        ]
    print(f"| {size:,} | {ratio_cells(len(queries) / np.array(passes))} |", flush=True)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("sizes", nargs="*", type=int, default=[5000, 50000], help="numbers of documents")
    options.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    options.add_argument("--measure", choices=ENGINES, help=argparse.SUPPRESS)  # one engine, in this process, as JSON
    arguments = options.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure, arguments.sizes[0])))
    else:
        report(arguments.sizes, arguments.engines)
        print("\n| documents | ours, queries/s | bm25s-numba, queries/s | median ratio | min - max |")
        print("|---|---|---|---|---|")
        for size in arguments.sizes:
            compare(size)


if __name__ == "__main__":
    main()
