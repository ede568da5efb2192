"""How memory, disk and time grow with the number of documents."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from generated_corpus import blocks, corpus, doc_id
from measuring import HARNESS, Peak, Table, anonymous, anonymous_of, apart, best_of, timed

from harness.data.shards import OpenShard, ShardWriter, fingerprint_row
from retrievers.base import Document, Query, Ranking
from retrievers.lexical.bm25 import BM25
from retrievers.lexical.tokenize import Whitespace
from retrievers.sharding import merge_rankings

SHARD, QUERIES, DEPTH, WORDS = 50_000, 200, 100, 60
FLAT, ENCODER = "flat", "use_multilingual"
WIDTHS = (384, 1024)
FAST = (10_000, 30_000, 100_000, 300_000, 1_000_000)
OTHERS = {"bm25_shards": (50_000, 100_000, 200_000, 500_000, 1_000_000), ENCODER: (100, 200, 400, 800)}
QUICK = 200_000  # the most documents
LEAST = 3  # points of a law
SIZES = (100_000, 1_000_000, 5_000_000)
STAGES = ("read", "index", "search", "score")  # of a run; the rest of its time is for checks, timing, files and figures


@dataclass(frozen=True)
class Measured:
    """The costs of one step.

    seconds: to build, read or encode. query_ms: of a search, in a batch of 200 queries.
    memory_mb: peak growth of memory without maps of files. disk_mb: files that a search maps, or that are read.
    """

    documents: int
    width: int
    seconds: float
    query_ms: float
    memory_mb: float
    disk_mb: float


# Steps: each prepares its input and returns the work; the work returns the seconds of a search


def _documents(size: int, at_once: int | None = None) -> Iterator[list[Document]]:
    part: list[Document] = []
    for first, rows, _ in blocks(size, WORDS):
        part += [Document(doc_id(first + n), " ".join(row[:WORDS])) for n, row in enumerate(rows)]
        if first + len(rows) == size or len(part) == at_once:
            yield sorted(part, key=lambda one: one.doc_id)
            part = []


def _queries() -> list[Query]:
    _, rows, _ = next(iter(blocks(QUERIES, 8, 1)))
    return [Query.of(f"q{n}", " ".join(row[:8])) for n, row in enumerate(rows)]


def _read(size: int, _: int, folder: Path) -> Callable[[], float]:
    from harness.config.components import build
    from harness.data.dataset import checked_dataset

    corpus(folder / "corpus", documents=size, queries=min(size, QUERIES))
    reader = build({"_target_": "harness.data.trec.Beir", "path": str(folder / "corpus")}, where="dataset")

    def work() -> float:
        assert len(checked_dataset(reader, "generated").documents) == size
        return 0.0

    return work


def _bm25(size: int, _: int, folder: Path) -> Callable[[], float]:
    [documents], queries = _documents(size), _queries()

    def work() -> float:
        BM25(Whitespace()).index(documents, folder)
        fresh = BM25(Whitespace())
        fresh.load(folder)
        return best_of(2, lambda: fresh.search(queries, DEPTH))[0]

    return work


def _bm25_shards(size: int, _: int, folder: Path) -> Callable[[], float]:
    sources, queries = [], _queries()
    for part in _documents(size, SHARD):
        sources.append(folder / f"documents-{len(sources)}")
        sources[-1].mkdir()
        writer = ShardWriter(sources[-1])
        for one in part:
            writer.add(one, fingerprint_row(one))
        writer.close()

    def work() -> float:
        tool, summary = BM25(Whitespace()), folder / "summary"
        surveys, indexes = ([folder / f"{kind}-{n}" for n in range(len(sources))] for kind in ("survey", "index"))
        for place in (summary, *surveys, *indexes):
            place.mkdir()
        for source, survey in zip(sources, surveys, strict=True):
            tool.survey(OpenShard(source), survey)
        tool.summarise(surveys, summary)
        for source, survey, index in zip(sources, surveys, indexes, strict=True):
            tool.index_shard(OpenShard(source), survey, summary, index)

        def of_shard(index: Path) -> Ranking:
            tool.load_shard(index, summary)
            return tool.search(queries, DEPTH)

        return best_of(2, lambda: merge_rankings((of_shard(index) for index in indexes), DEPTH))[0]

    return work


def _flat(size: int, width: int, folder: Path) -> Callable[[], float]:
    from benchmarks.dense import embeddings
    from retrievers.dense.vectors import Flat

    given, index = embeddings(size, width, 1, folder), Flat()
    asked = np.array(given[:: max(1, size // QUERIES)][:QUERIES])

    def work() -> float:
        index.build(given, folder)
        return best_of(2, lambda: index.search(asked, given, DEPTH, measure=False))[0]

    return work


def _encoding(size: int, _: int, folder: Path) -> Callable[[], float]:
    from retrievers.dense.encoders import UseMultilingual

    encoder, texts = UseMultilingual(), [one.text for part in _documents(size) for one in part]
    encoder.encode_documents(texts[:8], folder)
    (folder / "embeddings.npy").unlink()

    def work() -> float:
        encoder.encode_documents(texts, folder)
        return 0.0

    return work


STEPS = {"read": _read, "bm25": _bm25, "bm25_shards": _bm25_shards, FLAT: _flat, ENCODER: _encoding}


def measured(name: str, size: int, width: int) -> Measured:
    with tempfile.TemporaryDirectory(prefix="growth-") as scratch:
        folder, own = Path(scratch), Path(scratch) / "own"
        (folder / "small").mkdir()
        own.mkdir()
        if name not in (ENCODER, "read"):
            STEPS[name](500, width, folder / "small")()
        work = STEPS[name](size, width, own)
        with Peak(anonymous) as peak:
            began = time.perf_counter()
            searched = work()
            spent = time.perf_counter() - began - 2 * searched
        disk = sum(path.stat().st_size for path in own.rglob("*") if path.is_file())
        return Measured(size, width, spent, 1000 * searched / QUERIES, peak.grown_mb, disk / 1e6)


def points_of(name: str, width: int, sizes: Sequence[int], limit: float, memory: float) -> Iterator[Measured]:
    """Measure a step at growing sizes, as long as a projection from the last fits. limit: seconds. memory: MB."""
    last = None
    for size in sizes:
        if last:
            times = size / last.documents
            needed = 1.5 * last.memory_mb * times + 4 * size * width / 1e6
            if 2 * last.seconds * times >= limit or needed >= memory:
                return
        yield (last := apart(measured, name, size, width))


def law(points: Sequence[Measured], quantity: str) -> str:
    """Return `a + b · n` with the least relative errors, and the largest error; "" for too few points."""
    from scipy.optimize import nnls

    n, y = (np.array([getattr(one, of) for one in points], float) for of in ("documents", quantity))
    if len(points) < LEAST or y.max() <= 0:
        return ""
    y = np.maximum(y, 1e-9)
    (a, b), _ = nnls(np.stack([1 / y, n / y], axis=1), np.ones(len(n)))
    return f"{a:.3g} + {b:.3g} · n (± {100 * np.max(np.abs((a + b * n) / y - 1)):.0f} %)"


def growth(*, quick: bool = False) -> None:
    """Measure how memory, disk and time grow with the number of documents, as in docs/scaling.md.

    Each step runs in a new process at growing sizes, until the next would take longer than 240 seconds or more than
    half of the memory. A law `a + b · n` goes through the points; the largest relative distance of a point is in
    parentheses. Times are of this machine under its other load; memory and disk depend on the data alone. Files that a
    search maps count as disk, not as memory.

    --quick: at most 200,000 documents and 30 s a measurement; under 15 minutes.
    """
    memory, cores = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, len(os.sched_getaffinity(0))
    print(f"{cores} cores, {memory:.0f} GB\n")
    table, found = Table("step", "documents", "seconds", "ms a query", "memory MB", "disk MB"), {}
    for name, width in [(step, width) for step in STEPS for width in (WIDTHS if step == FLAT else (0,))]:
        sizes = [n for n in OTHERS.get(name, FAST) if n <= (QUICK if quick else n)]
        label = f"{name}-{width}" if width else name
        found[label] = []
        for one in points_of(name, width, sizes, 30.0 if quick else 240.0, 500 * memory):
            found[label].append(one)
            table.row(label, one.documents, one.seconds, one.query_ms or "", one.memory_mb, one.disk_mb)
    print("\nLaws, n documents\n")
    table = Table("step", "seconds", "ms a query", "memory MB", "disk MB")
    for label, points in found.items():
        table.row(label, *(law(points, quantity) for quantity in ("seconds", "query_ms", "memory_mb", "disk_mb")))


def endtoend(*sizes: int, queries: int = 1_000, folder: Path | None = None) -> None:
    """Run BM25 with `harness run` over generated documents: reading, words, index, search, scores, files.

    For each of SIZES (default: 100,000, 1,000,000 and 5,000,000 documents), two runs, each in a new process: one with
    an empty cache, and one with another k1, which finds documents and words in the cache. Memory is the peak of what
    the run's processes allocate together; files that they map count as disk.

    --folder: where to write up to 2.6 kB per document, and later 6 kB per query; default: the folder for temporary
    files.
    """
    table = Table(
        "documents", "queries", "k1", *(f"{stage} s" for stage in STAGES), "rest s", "whole s", "memory MB", "disk MB"
    )
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
    for size in sizes or SIZES:
        with tempfile.TemporaryDirectory(prefix="endtoend-", dir=folder) as scratch:
            corpus(Path(scratch) / "corpus", documents=size, queries=queries)
            for k1 in (1.5, 1.2):
                stages, whole, memory = _whole_run(Path(scratch), k1)
                cache = Path(scratch) / "cache"
                disk = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
                rest = whole - sum(stages)
                table.row(size, queries, k1, *stages, rest, whole, memory / 1e6, disk / 1e6)


def _whole_run(scratch: Path, k1: float) -> tuple[list[float], float, int]:
    """Return the seconds of each of STAGES, the seconds of the command, and its peak memory in bytes."""
    words = ["dataset=beir", f"dataset.path={scratch / 'corpus'}", "retriever=bm25", "tokenizer=whitespace"]
    words += [f"retriever.bm25.k1={k1}", "tracking=none", f"store.path={scratch / 'cache'}", "format=json"]
    command = [*HARNESS, "run", *words, f"outputs={scratch / 'outputs'}"]
    with (scratch / "errors").open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        with Peak(lambda: anonymous_of(process.pid), pause=0.05) as peak:
            whole, (said, _) = timed(process.communicate)
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{(scratch / 'errors').read_text()[-3000:]}")
    folder = Path(json.loads(said)["files"]["folder"])
    found = json.loads((folder / "metrics.json").read_text("utf-8"))["metrics"]
    shutil.rmtree(folder)
    return [found[f"seconds/{stage}"] for stage in STAGES], whole, peak.bytes
