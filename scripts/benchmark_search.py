"""Exact vector search against bare faiss, and the memory that it takes, on generated embeddings.

    python scripts/benchmark_search.py search                    # 5,000 and 50,000 documents of 384 and 1024
    python scripts/benchmark_search.py search 500000 --widths 384
    python scripts/benchmark_search.py memory                    # 500,000 documents of 384; writes 0.8 GB

Embeddings are of length 1 around 1000 centres, 1,024 queries drawn the same way, 100 documents are asked for, and all
cores are used.

- search: queries/s of Flat, exact in float64 and in a fixed order, over those of `faiss.IndexFlatIP.search`; both in
  one process, pass by pass in turn, so that this machine's drift is in both: the ratio of the medians is the one to
  quote
- memory: how far anonymous memory (not the pages of mapped files) grows from before Dense loads its index to the
  highest while it searches, as a multiple of the embeddings' size, in a process of its own, looked at every 5 ms
"""

from __future__ import annotations

import argparse
import json
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

from retrievers.base import DocIds, Document, Progress, Query
from retrievers.dense.dense import Dense
from retrievers.dense.vectors import Flat

# faiss 1.15 answers 256 queries of 384 ten times slower than 1,024 at once: give it the batch that it is good at.
QUERIES, DEPTH, CENTRES, SPREAD, PAIRS = 1024, 100, 1000, 0.5, 7
WARM_UP = 200  # documents of a first index, so that imports and compiled code are in the baseline of `memory`


def embeddings(rows: int, width: int, seed: int, folder: Path) -> np.ndarray:
    """float32 [rows, width] in folder/embeddings.npy, as a memory map."""
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


class Given:
    """An encoder whose vectors lie ready: `documents` in the folder, those of the queries in memory."""

    version, packages, learns = 1, (), False

    def __init__(self, queries: np.ndarray) -> None:
        self.queries = queries

    def encode_documents(self, texts: Sequence[str], folder: Path, progress: Progress | None = None) -> None: ...

    def encode_queries(self, texts: Sequence[str], folder: Path, progress: Progress | None = None) -> np.ndarray:
        return self.queries


def drawn_queries(width: int) -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        return np.array(embeddings(QUERIES, width, 2, Path(folder)))


def seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def search(size: int, width: int) -> None:
    """Print a row of ours against faiss."""
    import faiss

    with tempfile.TemporaryDirectory() as name:
        vectors, queries, flat = embeddings(size, width, 1, Path(name)), drawn_queries(width), Flat()
        flat.build(vectors, Path(name))
        bare = faiss.IndexFlatIP(width)
        bare.add(vectors)
        engines = [lambda: flat.search(queries, vectors, DEPTH), lambda: bare.search(queries, DEPTH)]
        for engine in engines:
            engine()  # compiles or loads
        rates = np.array([[QUERIES / seconds(engine) for engine in engines] for _ in range(PAIRS)])
    ratios = np.sort(rates[:, 0] / rates[:, 1])
    ours, theirs = np.median(rates, axis=0)
    print(
        f"| {size:,} | {width} | {ours:,.0f} | {theirs:,.0f} | {ours / theirs:.2f} | "
        f"{ratios[0]:.2f} - {np.median(ratios):.2f} - {ratios[-1]:.2f} |",
        flush=True,
    )


def anonymous() -> int:
    """Bytes of memory of this process that no file backs."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Anonymous:"))


class Peak:
    """The most anonymous memory while open, looked at every 5 ms."""

    def __enter__(self) -> Peak:
        self.bytes, self._stop = anonymous(), threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(0.005):
            self.bytes = max(self.bytes, anonymous())

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.bytes = max(self.bytes, anonymous())


def lay_out(size: int, width: int, folder: Path) -> None:
    """The folder that Dense.index leaves."""
    (folder / "encoded").mkdir()
    (folder / "index").mkdir()
    DocIds.save(folder, [Document(f"{i:09d}", "") for i in range(size)])
    Flat().build(embeddings(size, width, 1, folder / "encoded"), folder / "index")


def grown(folder: Path, width: int) -> float:
    """How far loading `folder` and searching it lets anonymous memory grow, as a multiple of the embeddings' size."""
    dense, asked = Dense(Given(drawn_queries(width)), Flat()), [Query.of(str(i), "") for i in range(QUERIES)]
    with tempfile.TemporaryDirectory() as small:
        lay_out(WARM_UP, width, Path(small))
        dense.load(Path(small))
        dense.search(asked, DEPTH)
    before = anonymous()
    with Peak() as peak:
        dense.load(folder)
        dense.search(asked, DEPTH)
    return (peak.bytes - before) / (folder / "encoded" / "embeddings.npy").stat().st_size


def memory(size: int, width: int) -> None:
    """Print a row; the search has a process of its own, that made no embeddings."""
    with tempfile.TemporaryDirectory() as name:
        lay_out(size, width, Path(name))
        command = [sys.executable, __file__, "grown", "--folder", name, "--widths", str(width)]
        ratio = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(f"| {size:,} | {width} | {size * width * 4 / 1e6:,.0f} | {ratio:.3f} |", flush=True)


HEADS = {
    "search": "| documents | width | ours, queries/s | faiss, queries/s | ratio | least - median - greatest |",
    "memory": "| documents | width | embeddings MB | peak growth, times the embeddings |",
}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=[*HEADS, "grown"], metavar="search|memory")
    parser.add_argument("sizes", nargs="*", type=int, help="numbers of documents")
    parser.add_argument("--widths", nargs="+", type=int, help="dimensions")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)  # of `grown`: memory, in this process, as JSON
    given = parser.parse_args(arguments)
    if given.what == "grown":
        print(json.dumps(grown(given.folder, given.widths[0])))
        return
    print(HEADS[given.what])
    print("|" + "---|" * (HEADS[given.what].count("|") - 1))
    sizes, widths = ([5000, 50000], [384, 1024]) if given.what == "search" else ([500_000], [384])
    for size in given.sizes or sizes:
        for width in given.widths or widths:
            (search if given.what == "search" else memory)(size, width)


if __name__ == "__main__":
    main(sys.argv[1:])
