"""How long work takes once everything is loaded: warm passes over a sample of queries, with their spread.

A time is a fact about a machine, a ranking is not. So times are cached on their own, under the machine's name.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.config.canonical import flatten
from harness.config.components import component_identity
from harness.config.schema import Node
from harness.storage.cache import Cache

MS, LOW, HIGH = "ms_per_query", "ms_per_query_low", "ms_per_query_high"
LATENCY = "latency_p50_ms"  # the median of a search, of a retriever that times itself
KIND = "timings"  # in the cache
MACHINE = "machine"  # the tag of a run that names where its times were measured
SECONDS = 0.6  # that the timed passes take in all, unless `LEAST` passes of one query take longer
LEAST, MOST = 3, 9  # passes
ENOUGH = 5_000  # letters that are read, for a rate that means something
GROWTH = 4  # of the sample, until a pass takes SECONDS / LEAST


@dataclass(frozen=True)
class Timing:
    """Milliseconds for one unit of work: the median of the passes, the quickest and the slowest."""

    median: float
    low: float
    high: float

    def times(self, factor: float) -> Timing:
        return Timing(self.median * factor, self.low * factor, self.high * factor)

    def measured(self) -> dict[str, float]:
        """By the names under which a run logs it."""
        return {MS: self.median, LOW: self.low, HIGH: self.high}


def main_timings(measured: Mapping[str, float]) -> dict[str, float]:
    """Of what a run measured, the sums, and the parts of what has none, without the ends of ranges."""
    kinds = {name: name.partition("/")[0] for name in measured}
    return {
        name: measured[name]
        for name, kind in kinds.items()
        if kind not in (LOW, HIGH) and (name == kind or kind not in measured)
    }


def timed_part(work: Callable[[Sequence[int]], int], n: int) -> Timing:
    """Time `work`, which does its work for some of n >= 1 queries and returns how many units that was.

    The first call is not timed: it loads and compiles what nothing has needed before. Then the sample, evenly spread
    over the queries, grows until it has all of them or takes long enough; slow work is timed on a few queries.
    """
    size = 1
    work([0])
    while _seconds(work, _spread(size, n))[0] < SECONDS / LEAST and size < n:
        size = min(n, GROWTH * size)
    sample, passes = _spread(size, n), list[tuple[float, int]]()
    while len(passes) < LEAST or (len(passes) < MOST and sum(took for took, _ in passes) < SECONDS):
        passes.append(_seconds(work, sample))
    each = [1000 * took / max(units, 1) for took, units in passes]
    return Timing(statistics.median(each), min(each), max(each))


def _spread(size: int, n: int) -> list[int]:
    return [place * n // size for place in range(size)]


def _seconds(work: Callable[[Sequence[int]], int], sample: Sequence[int]) -> tuple[float, int]:
    began = time.perf_counter()
    units = work(sample)
    return time.perf_counter() - began, units


def known(cache: Cache, about: Mapping[str, Any]) -> Timing | None:
    """The time that this machine has measured before; None if there is none. about: what was timed, by `subject`."""
    folder = cache.found(KIND, about)
    return Timing(**json.loads((folder / "timing.json").read_text("utf-8"))) if folder else None


def remember(cache: Cache, about: Mapping[str, Any], timing: Timing) -> None:
    """Cache a time under what `subject` returned."""
    cache.folder(KIND, about, lambda folder: _write(folder / "timing.json", timing))


def _write(file: Path, timing: Timing) -> None:
    file.write_text(json.dumps(asdict(timing)), "utf-8")


def subject(decides: Mapping[str, Any], node: Node) -> dict[str, Any]:
    """What a time depends on: what decides the result, this machine, and the component's arguments under `runtime:`."""
    runtime = {key: value for key, value in flatten(node).items() if "runtime" in key.split(".")}
    return {**decides, "runtime": runtime, "machine": machine()}


def reading(node: Node) -> dict[str, Any]:
    """What the time of a tokenizer or an encoder is cached under, in milliseconds per 1,000 letters of documents.

    node: its config.
    """
    return subject({"reads": component_identity(node)}, node)


def seconds_to_read(cache: Cache, node: Node, letters: int) -> float | None:
    """Seconds that a tokenizer or an encoder takes for texts, by what this machine has measured; None: nothing yet."""
    found = known(cache, reading(node))
    return found.median * letters / 1e6 if found else None


@contextmanager
def reads(cache: Cache, node: Node, texts: Sequence[str]) -> Iterator[None]:
    """Keep how long a tokenizer or an encoder takes for texts, unless that is known; from it, costs are estimated.

    Few texts say nothing: most of their time is that of loading.
    """
    began = time.perf_counter()
    yield
    if (letters := sum(map(len, texts))) >= ENOUGH:
        rate = 1e6 * (time.perf_counter() - began) / letters
        remember(cache, reading(node), Timing(rate, rate, rate))


@functools.cache
def machine() -> str:
    """What times depend on, in words: processor, cores that this process may use, GPUs that it may see."""
    from retrievers.base import cores

    gpus = _gpus()
    named = [f"{count} × {name}" if (count := gpus.count(name)) > 1 else name for name in dict.fromkeys(gpus)]
    count = cores()
    return ", ".join([_processor(), f"{count} core{'s' if count > 1 else ''}", *named])


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:  # not Linux
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine() or "unknown processor"


def _gpus() -> list[str]:
    """Names of NVIDIA's GPUs, without loading torch: a run whose results are all cached does not wait for it."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return []
    if files := sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        lines = [line for file in files for line in file.read_text("utf-8", "replace").splitlines()]
        return [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]
    if not (program := shutil.which("nvidia-smi")):
        return []
    words = [program, "--query-gpu=name", "--format=csv,noheader"]
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=10, check=True).stdout.split("\n")[:-1]  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return []
