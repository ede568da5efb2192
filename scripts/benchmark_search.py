"""Exact vector search against bare faiss, and its memory use, on generated embeddings.

    python scripts/benchmark_search.py search                    # 5,000 and 50,000 documents of 384 and 1024
    python scripts/benchmark_search.py search 500000 --widths 384
    python scripts/benchmark_search.py memory                    # 500,000 documents of 384; writes 0.8 GB

Embeddings have unit length and lie around 1000 centres; 1,024 queries are drawn the same way. The best 100 documents
are retrieved on all cores.

- search: queries/s of Flat, exact in float64 and in a fixed order, relative to `faiss.IndexFlatIP.search`; both run in
  one process in alternating passes, so that changes in the machine's speed affect both. Quote the ratio of the medians.
- memory: peak growth of anonymous memory (without the pages of mapped files) while Dense loads its index and searches,
  as a multiple of the embeddings' size; in its own process, sampled every 5 ms
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from benchmark import Peak, parser, seconds

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from retrievers.base import DocIds, Document, Progress, Query
from retrievers.dense.dense import Dense
from retrievers.dense.vectors import Flat

# faiss 1.15 is ten times slower with 256 queries of width 384 than with 1,024: use the batch size that suits it.
QUERIES, DEPTH, CENTRES, SPREAD, PAIRS = 1024, 100, 1000, 0.5, 7
WARM_UP = 200  # documents of a first index, so that the baseline of `memory` includes imports and compiled code


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
    """An encoder with precomputed vectors: those of documents in the folder, those of queries in memory."""

    version, packages, learns = 1, (), False

    def __init__(self, queries: np.ndarray) -> None:
        self.queries = queries

    def encode_documents(self, texts: Sequence[str], folder: Path, progress: Progress | None = None) -> None: ...

    def encode_queries(self, texts: Sequence[str], folder: Path, progress: Progress | None = None) -> np.ndarray:
        return self.queries


def drawn_queries(width: int) -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        return np.array(embeddings(QUERIES, width, 2, Path(folder)))


def search(size: int, width: int) -> None:
    """Print a table row of ours against faiss."""
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
    """Bytes of memory of this process that are not backed by a file."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Anonymous:"))


def lay_out(size: int, width: int, folder: Path) -> None:
    """Write the folder that Dense.index would write."""
    (folder / "encoded").mkdir()
    (folder / "index").mkdir()
    DocIds.save(folder, [Document(f"{i:09d}", "") for i in range(size)])
    Flat().build(embeddings(size, width, 1, folder / "encoded"), folder / "index")


def grown(folder: Path, width: int) -> float:
    """Peak growth of anonymous memory while `folder` is loaded and searched, as a multiple of the embeddings' size."""
    dense, queries = Dense(Given(drawn_queries(width)), Flat()), [Query.of(str(i), "") for i in range(QUERIES)]
    with tempfile.TemporaryDirectory() as small:
        lay_out(WARM_UP, width, Path(small))
        dense.load(Path(small))
        dense.search(queries, DEPTH)
    before = anonymous()
    with Peak(anonymous) as peak:
        dense.load(folder)
        dense.search(queries, DEPTH)
    return (peak.bytes - before) / (folder / "encoded" / "embeddings.npy").stat().st_size


def memory(size: int, width: int) -> None:
    """Print a table row; the search runs in a process that has not generated the embeddings."""
    with tempfile.TemporaryDirectory() as name:
        lay_out(size, width, Path(name))
        command = [sys.executable, __file__, "grown", "--folder", name, "--widths", str(width)]
        ratio = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(f"| {size:,} | {width} | {size * width * 4 / 1e6:,.0f} | {ratio:.3f} |", flush=True)


HEADS = {
    "search": "| documents | width | ours, queries/s | faiss, queries/s | ratio | min - median - max |",
    "memory": "| documents | width | embeddings MB | peak growth, times the embeddings |",
}


def main(arguments: list[str]) -> None:
    options = parser(__doc__)
    options.add_argument("what", choices=[*HEADS, "grown"], metavar="search|memory")
    options.add_argument("sizes", nargs="*", type=int, help="numbers of documents")
    options.add_argument("--widths", nargs="+", type=int, help="dimensions")
    options.add_argument("--folder", type=Path, help=argparse.SUPPRESS)  # of `grown`: memory, in this process, as JSON
    given = options.parse_args(arguments)
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
