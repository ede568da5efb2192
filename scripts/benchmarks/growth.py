"""How memory, disk and time grow with the number of documents: the sizing table of docs/scaling.md."""

from __future__ import annotations

import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from generated_corpus import blocks, corpus, doc_id
from measuring import Peak, Table, anonymous, apart, best_of

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
SHOWN = (100_000, 1_000_000, 5_000_000, 20_000_000, 100_000_000)  # documents in the table
LEAST = 3  # points of a law


@dataclass(frozen=True)
class Measured:
    """What one step took.

    seconds: to build, read or encode. query_ms: of a search, in a batch of 200 queries. memory_mb: the peak growth of
    memory that is not a map of a file. disk_mb: the files that a search maps, or that are read.
    """

    documents: int
    width: int
    seconds: float
    query_ms: float
    memory_mb: float
    disk_mb: float


# Steps: each prepares its input and returns the work, which returns the seconds of a search


def _documents(size: int, at_once: int | None = None) -> Iterator[list[Document]]:
    """Yield the generated corpus in parts of `at_once` documents, or in one; each by ascending id."""
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
    [documents] = _documents(size)

    def work() -> float:
        BM25(Whitespace()).index(documents, folder)
        fresh = BM25(Whitespace())
        fresh.load(folder)
        return best_of(2, lambda: fresh.search(_queries(), DEPTH))[0]

    return work


def _bm25_shards(size: int, _: int, folder: Path) -> Callable[[], float]:
    """BM25 over shards of 50,000 documents on disk, one after the other in one process."""
    sources = []
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
            return tool.search(_queries(), DEPTH)

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
    """Run a step once, after a small one that imports and compiles."""
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


# Laws


@dataclass(frozen=True)
class Law:
    """a + b n. residual: the largest relative distance of a point."""

    a: float
    b: float
    residual: float

    def __call__(self, n: float) -> float:
        return self.a + self.b * n

    def said(self, unit: str) -> str:
        return f"{self.a:.3g} + {self.b:.3g} · n {unit} (± {100 * self.residual:.0f} %)" if self.b else ""


def fitted(sizes: Sequence[float], values: Sequence[float]) -> Law:
    """Return the law with the least relative errors."""
    from scipy.optimize import nnls

    n, y = np.array(sizes, float), np.maximum(np.array(values, float), 1e-9)
    (a, b), _ = nnls(np.stack([1 / y, n / y], axis=1), np.ones(len(n)))
    return Law(float(a), float(b), float(np.max(np.abs((a + b * n) / y - 1))))


@dataclass
class Step:
    """One step with a width, such as `flat-384`. points: what was measured, the smallest first."""

    name: str
    width: int = 0
    points: list[Measured] = field(default_factory=list)

    @property
    def label(self) -> str:
        return f"{self.name}-{self.width}" if self.width else self.name

    def law(self, quantity: str) -> Law | None:
        """Return the law of a quantity of `Measured`; None with too few points."""
        if len(self.points) < LEAST:
            return None
        values = [getattr(one, quantity) for one in self.points]
        return fitted([one.documents for one in self.points], values) if max(values) > 0 else Law(0, 0, 0)

    def value(self, quantity: str, documents: float) -> float:
        """Return what was measured at this size, else what the law says."""
        known = [float(getattr(one, quantity)) for one in self.points if one.documents == documents]
        law = self.law(quantity)
        return known[0] if known else law(documents) if law else math.nan

    def measure(self, sizes: Sequence[int], limit: float, memory: float) -> None:
        """Measure at growing sizes while twice the last point's share fits. limit: in seconds. memory: in MB."""
        for size in sizes:
            if self.points:
                last, times = self.points[-1], size / self.points[-1].documents
                needed = 1.5 * last.memory_mb * times + 4 * size * self.width / 1e6
                if 2 * last.seconds * times >= limit or needed >= memory:
                    return
            self.points.append(one := apart(measured, self.name, size, self.width))
            print(f"{self.label} {size:,}: {one.seconds:.1f} s, {one.memory_mb:,.0f} MB", file=sys.stderr)


def growth(*, quick: bool = False) -> None:
    """Measure how memory, disk and time grow with the number of documents: the sizing table of docs/scaling.md.

    Each step runs in a process of its own at growing sizes, until the next one would take longer than 240 seconds or
    more than half of the memory. A law `a + b n` goes through the points; its residual is the largest relative distance
    of a point. Italics are what the laws say beyond what was measured. Times are those of this machine under its other
    load; memory and disk depend on the data alone.

    --quick: at most 200,000 documents and 30 s a measurement; under 15 minutes.
    """
    memory, cores = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, len(os.sched_getaffinity(0))
    steps = [Step(name, width) for name in STEPS for width in (WIDTHS if name == FLAT else (0,))]
    for step in steps:
        sizes = [n for n in OTHERS.get(step.name, FAST) if n <= (QUICK if quick else n)]
        step.measure(sizes, 30.0 if quick else 240.0, 500 * memory)
    print(f"### Measured ({cores} cores, {memory:.0f} GB)\n")
    table = Table("step", "documents", "seconds", "ms a query", "memory MB", "disk MB")
    for step in steps:
        for one in step.points:
            table.row(step.label, one.documents, one.seconds, one.query_ms or "", one.memory_mb, one.disk_mb)
    print("\n### Laws, n documents\n")
    units = {"seconds": "s", "query_ms": "ms", "memory_mb": "MB", "disk_mb": "MB"}
    table = Table("step", "seconds", "ms a query", "memory", "disk")
    for step in steps:
        laws = [(step.law(quantity), unit) for quantity, unit in units.items()]
        table.row(step.label, *(law.said(unit) if law else "" for law, unit in laws))
    print("\n### Sizes (in italics: by the laws, not measured)\n")
    _sizes(steps, memory)


def _sizes(steps: list[Step], memory_gb: float) -> None:
    """Print what each way needs for documents × dimensions. Files that a search maps count as disk, not as memory."""
    columns = ("dimensions", "way", "memory GB", "disk GB", "to build", "ms a query", f"{memory_gb:.0f} GB")
    table = Table("documents", *columns)
    for documents in SHOWN:
        whole = steps[0].value("memory_mb", documents) / 1e3  # of reading
        for step in sorted(steps, key=lambda one: one.width):
            if step.name in ("read", ENCODER):
                continue
            memory = step.value("memory_mb", documents) / 1e3 + (0.0 if step.name == "bm25_shards" else whole)
            disk = step.value("disk_mb", documents) / 1e3
            if math.isnan(memory):
                continue
            took = _duration(step.value("seconds", documents))
            cells = [_short(memory), _short(disk), took, _short(step.value("query_ms", documents))]
            shown = cells if documents <= step.points[-1].documents else [f"*{cell}*" for cell in cells]
            fits = "fits" if memory + disk <= memory_gb / 2 else "fits, reads from disk"
            verdict = fits if memory <= memory_gb / 2 else "does not fit"
            table.row(documents, step.width or "", step.label, *shown, verdict)


def _short(value: float) -> str:
    """Return two digits: the laws are no better."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _duration(spent: float) -> str:
    unit, size = next(((unit, size) for unit, size in (("h", 3600), ("min", 60)) if spent >= size), ("s", 1))
    return f"{_short(spent / size)} {unit}"
