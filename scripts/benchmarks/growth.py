"""How memory, disk and time grow with the number of documents: the sizing table of docs/scaling.md."""

from __future__ import annotations

import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from generated_corpus import blocks, corpus, doc_id
from measuring import Peak, Table, anonymous, apart, best_of, seconds

from harness.data.shards import ShardWriter, fingerprint_row, open_shard
from retrievers.base import Document, Query, Ranking
from retrievers.lexical.bm25 import BM25
from retrievers.lexical.tokenize import Whitespace
from retrievers.sharding import merge_rankings

SHARD, QUERIES, DEPTH, WORDS = 50_000, 200, 100, 60
VECTORS, WIDTHS, ENCODERS = ("flat", "hnsw", "ivf_pq"), (384, 1024), ("use_multilingual", "all_minilm_l6_v2")
SLOW = {"hnsw": 100_000, "ivf_pq": 300_000}  # to build: no larger sizes are tried
FAST = (10_000, 30_000, 100_000, 300_000, 1_000_000)
OTHERS = {  # sizes of steps that are not measured at those
    "bm25_shards": (50_000, 100_000, 200_000, 500_000, 1_000_000),
    "use_multilingual": (100, 200, 400, 800),
    "all_minilm_l6_v2": (50, 100, 200, 400),
}
QUICK = 200_000  # the most documents
SHOWN = (100_000, 1_000_000, 5_000_000, 20_000_000, 100_000_000)  # documents in the table
WORKERS, MANY = (2, 4, 8), 10_000  # machines; queries
LEAST, NEAR = 3, 0.2  # points of a law; residual of a line that is good enough: no power law is tried


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


# The steps: each prepares its input and returns the work, which returns the seconds of a search


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
            tool.survey(open_shard(source), survey)
        tool.summarise(surveys, summary)
        for source, survey, index in zip(sources, surveys, indexes, strict=True):
            tool.index_shard(open_shard(source), survey, summary, index)

        def of_shard(index: Path) -> Ranking:
            tool.load_shard(index, summary)
            return tool.search(_queries(), DEPTH)

        return best_of(2, lambda: merge_rankings((of_shard(index) for index in indexes), DEPTH))[0]

    return work


def _vectors(kind: str, size: int, width: int, folder: Path) -> Callable[[], float]:
    from benchmarks.dense import embeddings
    from retrievers.dense.vectors import HNSW, IVFPQ, Flat

    given = embeddings(size, width, 1, folder)
    asked = np.array(given[:: max(1, size // QUERIES)][:QUERIES])
    index = {"flat": Flat, "hnsw": HNSW, "ivf_pq": IVFPQ}[kind]()

    def work() -> float:
        index.build(given, folder)
        return best_of(2, lambda: index.search(asked, given, DEPTH, measure=False))[0]

    return work


def _encoding(name: str, size: int, _: int, folder: Path) -> Callable[[], float]:
    from benchmarks.dense import minilm
    from retrievers.dense.encoders import SentenceEncoder, UseMultilingual

    light = name == "use_multilingual"
    made: Any = UseMultilingual() if light else SentenceEncoder(path=str(minilm()), max_length=256)
    texts = [one.text for part in _documents(size) for one in part]
    made.encode_documents(texts[:8], folder)
    (folder / "embeddings.npy").unlink()

    def work() -> float:
        made.encode_documents(texts, folder)
        return 0.0

    return work


STEPS = {"read": _read, "bm25": _bm25, "bm25_shards": _bm25_shards}
STEPS |= {name: partial(_vectors, name) for name in VECTORS} | {name: partial(_encoding, name) for name in ENCODERS}


def measured(name: str, size: int, width: int) -> Measured:
    """Run a step once, after a small one that imports and compiles."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    with tempfile.TemporaryDirectory(prefix="growth-") as scratch:
        folder, own = Path(scratch), Path(scratch) / "own"
        (folder / "small").mkdir()
        own.mkdir()
        if name not in ENCODERS and name != "read":
            STEPS[name](10_000 if name == "ivf_pq" else 500, width, folder / "small")()
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
    """y = a + b n, or a n^b with `power`. residual: the largest relative distance of a point."""

    a: float
    b: float
    power: bool
    residual: float

    def __call__(self, n: float) -> float:
        return self.a * n**self.b if self.power else self.a + self.b * n

    def said(self, unit: str) -> str:
        formula = f"{self.a:.3g} · n^{self.b:.2f}" if self.power else f"{self.a:.3g} + {self.b:.3g} · n"
        return f"{formula} {unit} (± {100 * self.residual:.0f} %)"


def fitted(sizes: Sequence[float], values: Sequence[float]) -> Law:
    """Return the law with the least relative errors. A line is preferred: a power law of small sizes leads astray."""
    from scipy.optimize import nnls

    n, y = np.array(sizes, float), np.maximum(np.array(values, float), 1e-9)
    (a, b), _ = nnls(np.stack([1 / y, n / y], axis=1), np.ones(len(n)))
    line = Law(float(a), float(b), False, float(np.max(np.abs((a + b * n) / y - 1))))
    slope, start = np.polyfit(np.log(n), np.log(y), 1)
    bent = Law(float(np.exp(start)), float(slope), True, float(np.max(np.abs(np.exp(start) * n**slope / y - 1))))
    return bent if line.residual > NEAR and slope > 0 and bent.residual < line.residual / 2 else line


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
        return fitted([one.documents for one in self.points], values) if max(values) > 0 else Law(0, 0, False, 0)

    def value(self, quantity: str, documents: float) -> float:
        """Return what was measured at this size, else what the law says."""
        known = [float(getattr(one, quantity)) for one in self.points if one.documents == documents]
        law = self.law(quantity)
        return known[0] if known else law(documents) if law else math.nan

    def fits(self, size: int, limit: float, memory: float) -> bool:
        """Whether a size is worth trying, by the last point: twice its share is what may come. memory: in MB."""
        if not self.points:
            return True
        last = self.points[-1]
        times = size / last.documents
        dense = 4 * size * self.width / 1e6
        return 2 * last.seconds * times < limit and 1.5 * last.memory_mb * times + dense < memory

    def measure(self, sizes: Sequence[int], limit: float, memory: float) -> None:
        """Measure at growing sizes."""
        for size in sizes:
            if size > SLOW.get(self.name, size) or not self.fits(size, limit, memory):
                return
            self.points.append(one := apart(measured, self.name, size, self.width))
            print(f"{self.label} {size:,}: {one.seconds:.1f} s, {one.memory_mb:,.0f} MB", file=sys.stderr)


def growth(
    *,
    quick: bool = False,
    sizes: tuple[int, ...] = FAST,
    only: tuple[str, ...] = (),
    limit: float = 240.0,
    memory_gb: float | None = None,
    start_seconds: float = 20.0,
    bandwidth_mb: float = 100.0,
) -> None:
    """Measure how memory, disk and time grow with the number of documents: the sizing table of docs/scaling.md.

    Each step runs in a process of its own at growing --sizes, until the next one would take longer than --limit seconds
    or more than half of the memory. Through the points goes a law, `a + b n`, or `a n^b` where that is much nearer; its
    residual is the largest relative distance of a point. Italics are what the laws say beyond what was measured. Times
    are of this machine, with what else it does; memory and disk are of the data.

    --quick: at most 200,000 documents and 30 s a measurement; under 15 minutes. --only: steps such as bm25 flat-384.
    --memory-gb: of the machines in the table. --start-seconds: that workers take to start (Ray: 20). --bandwidth-mb:
    MB/s between machines.
    """
    here, cores = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, len(os.sched_getaffinity(0))
    found = [Step(name, width) for name in STEPS for width in (WIDTHS if name in VECTORS else (0,))]
    steps = {one.label: one for one in found if not only or one.label in only}
    if unknown := set(only) - set(steps):
        sys.exit(f"--only: unknown steps {', '.join(sorted(unknown))}. There are {', '.join(s.label for s in found)}.")
    for step in steps.values():
        wanted = [n for n in OTHERS.get(step.name, sizes) if n <= (QUICK if quick else n)]
        step.measure(wanted if sizes == FAST else sizes, min(limit, 30.0) if quick else limit, 500 * here)
    print(f"### Measured ({cores} cores, {here:.0f} GB)\n")
    table = Table("step", "documents", "seconds", "ms a query", "memory MB", "disk MB")
    for step in steps.values():
        for one in step.points:
            table.row(step.label, one.documents, one.seconds, one.query_ms or "", one.memory_mb, one.disk_mb)
    print("\n### Laws, n documents\n")
    units = {"seconds": "s", "query_ms": "ms", "memory_mb": "MB", "disk_mb": "MB"}
    table = Table("step", "seconds", "ms a query", "memory", "disk")
    for step in steps.values():
        laws = [(step.law(quantity), unit) for quantity, unit in units.items()]
        table.row(step.label, *(law.said(unit) if law and law.b else "" for law, unit in laws))
    print("\n### Sizes (in italics: by the laws, not measured)\n")
    _sizes(steps, memory_gb or here)
    print("\n### Encoding\n")
    table = Table("encoder", f"texts/s on {cores} cores", "a core", "a million", "20 million")
    for name in ENCODERS:
        if name in steps and (law := steps[name].law("seconds")):
            rate = 1000 / (law(2000) - law(1000))
            table.row(name, f"{rate:.1f}", f"{rate / cores:.1f}", _duration(1e6 / rate), _duration(20e6 / rate))
    print("\n### From how many documents machines pay\n")
    _payoffs(steps, start_seconds, bandwidth_mb)


def _sizes(steps: dict[str, Step], memory_gb: float) -> None:
    """Print what each way needs for documents × dimensions. Files that a search maps count as disk, not as memory."""
    columns = ("dimensions", "way", "memory GB", "disk GB", "to build", "ms a query", f"{memory_gb:.0f} GB")
    table = Table("documents", *columns)
    for documents in SHOWN:
        whole = steps["read"].value("memory_mb", documents) / 1e3 if "read" in steps else 0.0
        for step in sorted(steps.values(), key=lambda one: one.width):
            if step.name == "read" or step.name in ENCODERS:
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


def pays_from(spent: Callable[[float], float], workers: int, fixed: float, per_document: float = 0.0) -> float:
    """Return the number of documents from which `workers` machines are faster than one; infinite if they never are.

    T(1) = t(n);  T(W) = fixed + t(n) / W + per_document · n, and n* solves T(1) = T(W).
    """
    grid = np.geomspace(1, 1e10, 2001)
    gains = np.array([spent(n) * (1 - 1 / workers) - fixed - per_document * n for n in grid.tolist()]) > 0
    return float(grid[int(np.argmax(gains))]) if gains.any() else math.inf


def _payoffs(steps: dict[str, Step], start: float, bandwidth: float) -> None:
    """Print from how many documents W machines pay: the workers' start, merge and transfer against the time saved."""
    merge, transfer = _merge_seconds(), QUERIES * DEPTH * 24 / (bandwidth * 1e6)  # of one shard's lists
    print(
        f"T(1) = t(n), T(W) = S + t(n) / W + n / {SHARD:,} · (m + x) + n · c: the workers start in S = {start:.0f} s; "
        f"the lists of a shard ({QUERIES} queries, {DEPTH} documents each) are merged in m = {1000 * merge:.1f} ms and "
        f"sent in x = {1000 * transfer:.1f} ms; c is what a document costs to send at {bandwidth:.0f} MB/s. In the "
        f"last rows everything is there already, and {MANY:,} queries are searched.\n"
    )
    table, lists = Table("what", *(f"{w} machines" for w in WORKERS)), (merge + transfer) / SHARD

    def row(label: str, spent: Callable[[float], float], per_document: float) -> None:
        numbers = [pays_from(spent, workers, start, per_document) for workers in WORKERS]
        table.row(label, *("never" if math.isinf(n) else f"{float(f'{n:.2g}'):,.0f}" for n in numbers))

    for name, step in steps.items():
        if step.name in ("bm25_shards", *ENCODERS) and (build := step.law("seconds")):
            row(name, build, 350 / (bandwidth * 1e6) + lists)
    for name, step in steps.items():
        if step.name in ("bm25_shards", "flat") and (law := step.law("query_ms")):
            row(f"{name}, {MANY:,} queries", lambda n, law=law: MANY * law(n) / 1000, MANY / QUERIES * lists)


def _merge_seconds() -> float:
    """Return the seconds to merge the lists of one more shard."""
    random = np.random.default_rng(0)

    def lists(shard: int) -> Ranking:
        rows = enumerate(random.random((QUERIES, DEPTH)).tolist())
        return Ranking.from_scores({f"q{q}": {f"s{shard}d{d}": x for d, x in enumerate(row)} for q, row in rows})

    shards = [lists(shard) for shard in range(8)]
    merge_rankings(shards, DEPTH)
    return seconds(lambda: merge_rankings(shards, DEPTH)) / len(shards)
