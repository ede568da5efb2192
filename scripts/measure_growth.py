"""How memory, disk and time grow with the number of documents: the sizing table of docs/scaling.md, on this machine.

    python scripts/measure_growth.py --quick             # at most 200,000 documents; under 15 minutes
    python scripts/measure_growth.py                     # at most 1,000,000; an hour
    python scripts/measure_growth.py --only bm25 flat-384 --sizes 10000 30000 100000
    python scripts/measure_growth.py --quick --memory-gb 64 --out table.md    # set-ups for machines of 64 GB
    python scripts/measure_growth.py --points points.jsonl    # go on with what has been measured before

Each step runs in a process of its own (growth.py) at growing sizes, until the next one would take longer than --seconds
or more than half of the memory. Through the measured points goes a law, `a + b n`, or `a n^b` where that is much
nearer; its residual is the largest relative distance of a point. The table after it sets what was measured apart from
what the laws say beyond. Times are of this machine, with what else it does; memory and disk are of the data.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from benchmark import parser
from growth import DEPTH, QUERIES, SHARD, STEPS, VECTORS, Measured
from scipy.optimize import nnls

WIDTHS = (384, 1024)
ENCODERS = ("use_multilingual", "all_minilm_l6_v2")
SLOW = {"hnsw": 100_000, "ivf_pq": 300_000}  # to build: no larger sizes are tried
FAST = (10_000, 30_000, 100_000, 300_000, 1_000_000)
OTHERS = {  # sizes of steps that are not measured at those
    "bm25_shards": (50_000, 100_000, 200_000, 500_000, 1_000_000),
    "use_multilingual": (100, 200, 400, 800),
    "all_minilm_l6_v2": (50, 100, 200, 400),
}
QUICK = 200_000  # the most documents
SHOWN = (100_000, 1_000_000, 5_000_000, 20_000_000, 100_000_000)  # documents in the table
WORKERS = (2, 4, 8)
LEAST = 3  # points of a law
NEAR = 0.2  # residual of a straight line that is good enough: no power law is tried
MANY = 10_000  # queries


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
    """The law through the points; relative errors are what is minimised. A line is preferred: a power law of small
    sizes leads far astray."""
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

    @property
    def measured(self) -> int:
        """The largest size."""
        return self.points[-1].documents if self.points else 0

    def law(self, quantity: str) -> Law | None:
        """The law of `seconds`, `query_ms`, `memory_mb` or `disk_mb`; None with too few points."""
        if len(self.points) < LEAST:
            return None
        values = [getattr(one, quantity) for one in self.points]
        return fitted([one.documents for one in self.points], values) if max(values) > 0 else Law(0, 0, False, 0)

    def value(self, quantity: str, documents: float) -> float:
        """What was measured at this size, else what the law says."""
        known = [float(getattr(one, quantity)) for one in self.points if one.documents == documents]
        if known:
            return known[0]
        law = self.law(quantity)
        return law(documents) if law else math.nan

    def fits(self, size: int, seconds: float, memory_mb: float) -> bool:
        """Whether a size is worth trying, by the points so far: twice the last one's share is what may come."""
        if not self.points:
            return True
        last = self.points[-1]
        times = size / last.documents
        dense = 4 * size * self.width / 1e6
        return 2 * last.seconds * times < seconds and 1.5 * last.memory_mb * times + dense < memory_mb


def steps_of(only: Sequence[str]) -> list[Step]:
    found = [Step(name, width) for name in STEPS for width in (WIDTHS if name in VECTORS else (0,))]
    labels = [one.label for one in found]
    if unknown := set(only) - set(labels):
        sys.exit(f"--only: {', '.join(sorted(unknown))} is no step. There are {', '.join(labels)}.")
    return [one for one in found if not only or one.label in only]


def measured(step: Step, sizes: Sequence[int], seconds: float, memory_mb: float) -> Iterator[Measured]:
    """Measure a step at growing sizes."""
    known = {one.documents for one in step.points}
    for size in sizes:
        if size in known:
            continue
        if size > SLOW.get(step.name, size) or not step.fits(size, seconds, memory_mb):
            return
        with tempfile.TemporaryDirectory(prefix="growth-") as folder:
            words = [step.name, str(size), str(step.width), folder]
            script = str(Path(__file__).with_name("growth.py"))
            done = subprocess.run([sys.executable, script, *words], capture_output=True, text=True)
        if done.returncode:
            print(f"{step.label} at {size:,}: {done.stderr.strip()[-300:]}", file=sys.stderr)
            return
        step.points.append(Measured(**json.loads(done.stdout.splitlines()[-1])))
        yield step.points[-1]


def rows_of_points(steps: Sequence[Step]) -> Iterator[str]:
    yield "| step | documents | seconds | ms a query | memory MB | disk MB |\n|---|---:|---:|---:|---:|---:|"
    for step in steps:
        for one in step.points:
            searched = f"{one.query_ms:.2f}" if one.query_ms else ""
            yield (
                f"| {step.label} | {one.documents:,} | {one.seconds:.1f} | {searched} | {one.memory_mb:,.0f} | "
                f"{one.disk_mb:,.0f} |"
            )


def rows_of_laws(steps: Sequence[Step]) -> Iterator[str]:
    yield "| step | seconds | ms a query | memory | disk |\n|---|---|---|---|---|"
    units = {"seconds": "s", "query_ms": "ms", "memory_mb": "MB", "disk_mb": "MB"}
    for step in steps:
        laws = [step.law(quantity) for quantity in units]
        said = [law.said(unit) if law and law.b else "" for law, unit in zip(laws, units.values(), strict=True)]
        yield f"| {step.label} | {' | '.join(said)} |"


@dataclass(frozen=True)
class SetUp:
    """A way to search so many documents, and what it needs: GB of one machine, GB of disk, hours, ms a query."""

    name: str
    memory: float
    disk: float
    hours: float
    query_ms: float
    measured: bool


def set_ups(steps: dict[str, Step], documents: int, width: int) -> Iterator[SetUp]:
    """By the laws. width: 0 for BM25, else of the vectors. Files that a search maps count as disk, not as memory."""
    read = steps.get("read")
    corpus = read.value("memory_mb", documents) / 1e3 if read else 0.0
    names = [f"{kind}-{width}" for kind in VECTORS] if width else ["bm25", "bm25_shards"]
    for step in (steps[name] for name in names if name in steps):
        whole = 0.0 if step.name == "bm25_shards" else corpus
        yield SetUp(
            step.label,
            step.value("memory_mb", documents) / 1e3 + whole,
            step.value("disk_mb", documents) / 1e3,
            step.value("seconds", documents) / 3600,
            step.value("query_ms", documents),
            documents <= step.measured,
        )


def rows_of_sizes(steps: dict[str, Step], memory_gb: float) -> Iterator[str]:
    """Documents × dimensions -> what each way needs; in italics what was not measured."""
    yield f"| documents | dimensions | way | memory GB | disk GB | to build | ms a query | {memory_gb:.0f} GB |"
    yield "|---:|---:|---|---:|---:|---:|---:|---|"
    for documents in SHOWN:
        for width in (0, *WIDTHS):
            for one in set_ups(steps, documents, width):
                if math.isnan(one.memory):
                    continue
                cells = [short(one.memory), short(one.disk), duration(3600 * one.hours), short(one.query_ms)]
                shown = cells if one.measured else [f"*{cell}*" for cell in cells]
                wide = f"{width:,}" if width else ""
                yield f"| {documents:,} | {wide} | {one.name} | {' | '.join(shown)} | {_verdict(one, memory_gb)} |"


def short(value: float) -> str:
    """Two digits: the laws are no better."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def duration(seconds: float) -> str:
    unit, size = next(((unit, size) for unit, size in (("h", 3600), ("min", 60)) if seconds >= size), ("s", 1))
    return f"{short(seconds / size)} {unit}"


def _verdict(one: SetUp, memory_gb: float) -> str:
    """Whether half of a machine's memory is enough; mapped files are read from disk where they do not fit as well."""
    if one.memory > memory_gb / 2:
        return "does not fit"
    return "fits" if one.memory + one.disk <= memory_gb / 2 else "fits, reads from disk"


def rows_of_encoding(steps: dict[str, Step], cores: int) -> Iterator[str]:
    yield f"| encoder | texts/s on {cores} cores | a core | a million | 20 million |\n|---|---:|---:|---:|---:|"
    for name in ENCODERS:
        law = steps[name].law("seconds") if name in steps else None
        if law:
            rate = 1 / (law(2000) - law(1000)) * 1000
            yield f"| {name} | {rate:.1f} | {rate / cores:.1f} | {duration(1e6 / rate)} | {duration(20e6 / rate)} |"


def pays_from(seconds: Callable[[float], float], workers: int, fixed: float, per_document: float = 0.0) -> float:
    """The number of documents from which `workers` machines are faster than one; infinite if they never are.

    T(1) = t(n);  T(W) = fixed + t(n) / W + per_document · n, and n* solves T(1) = T(W).
    """

    def gain(n: float) -> float:
        return seconds(n) * (1 - 1 / workers) - fixed - per_document * n

    grid = np.geomspace(1, 1e10, 2001)
    gains = np.array([gain(float(n)) for n in grid]) > 0
    return float(grid[int(np.argmax(gains))]) if gains.any() else math.inf


def rows_of_payoff(steps: dict[str, Step], start: float, bandwidth: float) -> Iterator[str]:
    """From how many documents W machines pay: start of the workers, merge and transfer against the time saved."""
    merge = merge_seconds()
    transfer = QUERIES * DEPTH * 24 / (bandwidth * 1e6)  # ids and scores of one shard's lists
    yield (
        f"T(1) = t(n), T(W) = S + t(n) / W + n / {SHARD:,} · (m + x) + n · c: the workers start in S = {start:.0f} s; "
        f"the lists of a shard ({QUERIES} queries, {DEPTH} documents each) are merged in m = {1000 * merge:.1f} ms and "
        f"sent in x = {1000 * transfer:.1f} ms; c is what a document costs to send at {bandwidth:.0f} MB/s. In the "
        f"last rows everything is there already, and {MANY:,} queries are searched.\n"
    )
    yield "| what | " + " | ".join(f"{w} machines" for w in WORKERS) + " |\n|---|" + "---:|" * len(WORKERS)
    text = 350 / (bandwidth * 1e6)
    first = {"bm25_shards": text, **dict.fromkeys(ENCODERS, text)}
    for name, sent in first.items():
        if name in steps and (build := steps[name].law("seconds")):
            yield _payoff(name, build, start, sent + (merge + transfer) / SHARD)
    for name in ("bm25_shards", *(f"flat-{width}" for width in WIDTHS)):
        if name in steps and (search := steps[name].law("query_ms")):
            many = MANY / QUERIES * (merge + transfer) / SHARD
            yield _payoff(f"{name}, {MANY:,} queries", lambda n, law=search: MANY * law(n) / 1000, start, many)  # type: ignore[misc]


def _payoff(label: str, seconds: Callable[[float], float], start: float, per_document: float) -> str:
    cells = [pays_from(seconds, workers, start, per_document) for workers in WORKERS]
    return f"| {label} | {' | '.join('never' if math.isinf(n) else f'{_rounded(n):,}' for n in cells)} |"


def _rounded(n: float) -> int:
    """Two digits: the laws are no better."""
    digits = max(0, len(str(int(n))) - 2)
    return int(round(n, -digits))


def merge_seconds() -> float:
    """Seconds to merge the lists of one more shard."""
    import time

    from retrievers.base import Ranking
    from retrievers.sharding import merge_rankings

    random = np.random.default_rng(0)

    def lists(shard: int) -> Ranking:
        scores = random.random((QUERIES, DEPTH))
        return Ranking.from_scores(
            {f"q{q}": {f"s{shard}d{d}": float(x) for d, x in enumerate(row)} for q, row in enumerate(scores)}
        )

    shards = [lists(shard) for shard in range(8)]
    merge_rankings(shards, DEPTH)
    began = time.perf_counter()
    merge_rankings(shards, DEPTH)
    return (time.perf_counter() - began) / len(shards)


def recall(steps: Sequence[Step], points: Path | None) -> None:
    """Give the steps what a file of points has of them."""
    lines = points.read_text().splitlines() if points and points.exists() else []
    for step in steps:
        found = [Measured(**one) for label, one in map(json.loads, lines) if label == step.label]
        step.points = sorted(found, key=lambda one: one.documents)


def memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--quick", action="store_true", help="at most 200,000 documents, and 30 s a measurement")
    options.add_argument("--sizes", nargs="+", type=int, help="numbers of documents (default: 10,000 to 1,000,000)")
    options.add_argument("--only", nargs="+", default=[], help="steps, such as bm25 flat-384")
    options.add_argument("--seconds", type=float, default=240.0, help="no measurement that would take longer")
    options.add_argument("--memory-gb", type=float, default=memory_gb(), help="of the machines in the table")
    options.add_argument("--start-seconds", type=float, default=20.0, help="that workers take to start (Ray: 20)")
    options.add_argument("--bandwidth-mb", type=float, default=100.0, help="MB/s between machines")
    options.add_argument("--out", type=Path, help="also write the tables to this file")
    options.add_argument("--points", type=Path, help="what has been measured is kept in this file, and not repeated")
    chosen = options.parse_args()
    limit = 30.0 if chosen.quick else chosen.seconds
    steps = steps_of(chosen.only)
    recall(steps, chosen.points)
    for step in steps:
        sizes = OTHERS.get(step.name) or chosen.sizes or FAST
        for one in measured(step, [n for n in sizes if n <= QUICK or not chosen.quick], limit, 500 * memory_gb()):
            print(f"{step.label} {one.documents:,}: {one.seconds:.1f} s, {one.memory_mb:,.0f} MB", file=sys.stderr)
            if chosen.points:
                with chosen.points.open("a") as file:
                    file.write(json.dumps([step.label, asdict(one)]) + "\n")
    by_label, cores = {step.label: step for step in steps}, len(os.sched_getaffinity(0))
    parts = {
        f"Measured ({cores} cores, {memory_gb():.0f} GB)": rows_of_points(steps),
        "Laws, n documents": rows_of_laws(steps),
        "Sizes (in italics: by the laws, not measured)": rows_of_sizes(by_label, chosen.memory_gb),
        "Encoding": rows_of_encoding(by_label, cores),
        "From how many documents machines pay": rows_of_payoff(by_label, chosen.start_seconds, chosen.bandwidth_mb),
    }
    text = "\n\n".join(f"### {title}\n\n" + "\n".join(rows) for title, rows in parts.items()) + "\n"
    print(text)
    if chosen.out:
        chosen.out.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
