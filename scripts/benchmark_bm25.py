"""BM25 against rank_bm25 and bm25s on generated corpora: speed, index size, memory.

    python scripts/benchmark_bm25.py                     # 5,000 and 50,000 documents
    python scripts/benchmark_bm25.py 5000 50000 500000   # the large one takes some minutes
    python scripts/benchmark_bm25.py 500000 --engines retrieval-harness bm25s-numba

A document is 60 words drawn from a Zipf-Mandelbrot distribution over 100,000 words (exponent 1, shift 2.7), a query 8
drawn the same way, 100 documents are asked for, and all cores are used where the engine can. Each engine runs in a
process of its own, from the same texts, its libraries imported before the clock starts. The columns:

- warm-up: seconds of the same work on 200 documents, done first: loading compiled code, or compiling it
- tokenise, index: seconds from texts to tokens and from tokens to an index that can search
- queries/s: the fastest of five passes, from tokens; ours includes checking the ranking
- index MB: size of the arrays that a search reads, on disk (rank_bm25 has none)
- held, peak MB: growth of resident memory, file maps included, over what the process held after the warm-up: once
  tokens are dropped and queries were answered; at its highest

A second table compares ours with bm25s-numba, the fastest of the others, in one process, pass by pass in turn: this
machine's drift is in both, so its ratio is the one to quote.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from retrievers.base import Document, Query
from retrievers.lexical.bm25 import BM25
from retrievers.lexical.tokenize import Whitespace

WORDS, DOCUMENT_LENGTH, QUERY_LENGTH, DEPTH, PASSES, PAIRS = 100_000, 60, 8, 100, 5, 11
QUERIES, SLOW_QUERIES, WARM_UP = 1000, 20, 200  # slow: rank_bm25


def texts(count: int, length: int, seed: int) -> list[str]:
    """`count` texts of `length` words; words are numbered, the commonest is w0."""
    weights = 1 / (np.arange(WORDS) + 2.7)
    cumulative = np.cumsum(weights / weights.sum())
    drawn = np.searchsorted(cumulative, np.random.default_rng(seed).random((count, length)))
    names = [f"w{i}" for i in range(WORDS)]
    return [" ".join([names[i] for i in row.tolist()]) for row in np.minimum(drawn, WORDS - 1)]


class Ours:
    def __init__(self, folder: Path) -> None:
        import retrievers.lexical._bm25_kernels  # noqa: F401  (numba, imported before the clock starts, as for the others)

        self.folder = folder
        # Tokens are made, and timed, apart from the index and from the search.
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
    """Bytes of memory that the process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Peak:
    """The highest resident memory while open, looked at every 5 ms."""

    def __enter__(self) -> Peak:
        self.bytes, self._stop = resident(), threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(0.005):
            self.bytes = max(self.bytes, resident())

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure(name: str, size: int) -> dict[str, float]:
    """One engine on one corpus, in this process."""
    documents, asked = texts(size, DOCUMENT_LENGTH, seed=1), texts(QUERIES, QUERY_LENGTH, seed=2)
    with tempfile.TemporaryDirectory() as small, tempfile.TemporaryDirectory() as folder:
        warm_up = seconds(lambda: work(ENGINES[name](Path(small)), documents[:WARM_UP], asked[:WARM_UP]))
        engine = ENGINES[name](Path(folder))
        gc.collect()
        before = resident()
        with Peak() as peak:
            result = work(engine, documents, asked)
        gc.collect()
        files = [file.stat().st_size for file in Path(folder).rglob("*.npy") if not file.name.startswith("doc_id")]
        return {
            "warm-up s": warm_up,
            **result,
            "index MB": sum(files) / 1e6,
            "held MB": (resident() - before) / 1e6,
            "peak MB": (peak.bytes - before) / 1e6,
        }


def work(engine: Any, documents: list[str], asked: list[str]) -> dict[str, float]:
    """Tokenise, index and search; the engine keeps its index."""
    result = {"tokenise s": seconds(lambda: engine.tokenise(documents)), "index s": seconds(engine.index)}
    queries = engine.queries(asked)
    answered = SLOW_QUERIES if isinstance(engine, RankBM25) else len(asked)
    return result | {"queries/s": answered / min(seconds(lambda: engine.search(queries)) for _ in range(PASSES))}


def report(sizes: list[int], engines: list[str]) -> None:
    """Print a Markdown table, row by row as the results come."""
    print("| documents | engine | warm-up s | tokenise s | index s | queries/s | index MB | held MB | peak MB |")
    print("|---|---|---|---|---|---|---|---|---|")
    for size in sizes:
        for name in engines:
            command = [sys.executable, __file__, str(size), "--measure", name]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            cells = [f"{value:,.2f}" if key.endswith(" s") else f"{value:,.0f}" for key, value in found.items()]
            print(f"| {size:,} | {name} | {' | '.join(cells)} |", flush=True)


def compare(size: int) -> None:
    """Print ours against bm25s-numba as a ratio: both in this process, pass by pass in turn."""
    documents, asked = texts(size, DOCUMENT_LENGTH, seed=1), texts(QUERIES, QUERY_LENGTH, seed=2)
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        engines = [ENGINES["retrieval-harness"](Path(one)), ENGINES["bm25s-numba"](Path(other))]
        for engine in engines:
            engine.tokenise(documents)
            engine.index()
        asking = [engine.queries(asked) for engine in engines]
        for engine, queries in zip(engines, asking, strict=True):
            engine.search(queries)  # compiles or loads
        rates = np.array(
            [
                [
                    len(asked) / seconds(lambda e=engine, q=queries: e.search(q))
                    for engine, queries in zip(engines, asking, strict=True)
                ]
                for _ in range(PAIRS)
            ]
        )
    ratios = np.sort(rates[:, 0] / rates[:, 1])
    ours, theirs = np.median(rates, axis=0)
    print(
        f"| {size:,} | {ours:,.0f} | {theirs:,.0f} | {np.median(ratios):.2f} | {ratios[0]:.2f} - {ratios[-1]:.2f} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", type=int, default=[5000, 50000], help="numbers of documents")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--measure", choices=ENGINES, help=argparse.SUPPRESS)  # one engine, in this process, as JSON
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure, arguments.sizes[0])))
    else:
        report(arguments.sizes, arguments.engines)
        print("\n| documents | ours, queries/s | bm25s-numba, queries/s | median ratio | least - greatest |")
        print("|---|---|---|---|---|")
        for size in arguments.sizes:
            compare(size)


if __name__ == "__main__":
    main()
