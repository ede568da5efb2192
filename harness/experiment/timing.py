"""Measure how long work takes, in passes over a sample of queries after a warm-up. Cache times per machine."""

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
LATENCY = "latency_p50_ms"  # median time of a search, from a retriever that times itself
KIND = "timings"  # kind of cache entries
MACHINE = "machine"  # tag of a run: the machine that measured its times
SECONDS = 0.6  # total seconds of all timed passes, unless `LEAST` passes over one query take longer
LEAST, MOST = 3, 9  # minimum and maximum number of passes
ENOUGH = 5_000  # minimum number of letters to read for a meaningful rate
GROWTH = 4  # the sample grows by this factor until a pass takes SECONDS / LEAST


@dataclass(frozen=True)
class Timing:
    """Milliseconds for one unit of work: the median, minimum and maximum over all passes."""

    median: float
    low: float
    high: float

    def times(self, factor: float) -> Timing:
        return Timing(self.median * factor, self.low * factor, self.high * factor)

    def measured(self) -> dict[str, float]:
        return {MS: self.median, LOW: self.low, HIGH: self.high}


def main_timings(measured: Mapping[str, float]) -> dict[str, float]:
    """Return the total times, or the times of components where there is no total. Leave out the minima and maxima."""
    kinds = {name: name.partition("/")[0] for name in measured}
    return {
        name: measured[name]
        for name, kind in kinds.items()
        if kind not in (LOW, HIGH) and (name == kind or kind not in measured)
    }


def timed_part(work: Callable[[Sequence[int]], int], n: int) -> Timing:
    """Return the milliseconds for one unit of work.

    `work` processes the queries at given positions among n >= 1 queries, and returns how many units it did. The first
    call is not timed, since it may load models or compile code. Then an evenly spread sample of the queries grows until
    a pass takes long enough or covers all queries. This pass is the first that counts.
    """
    size = 1
    work([0])
    while (first := _seconds(work, sample := _spread(size, n)))[0] < SECONDS / LEAST and size < n:
        size = min(n, GROWTH * size)
    passes = [first]
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
    """Return the time that this machine has measured; None if it has measured none. about: the result of `subject`."""
    folder = cache.found(KIND, about)
    return Timing(**json.loads((folder / "timing.json").read_text("utf-8"))) if folder else None


def remember(cache: Cache, about: Mapping[str, Any], timing: Timing) -> None:

    def write(folder: Path) -> None:
        (folder / "timing.json").write_text(json.dumps(asdict(timing)), "utf-8")

    cache.folder(KIND, about, write)


def subject(decides: Mapping[str, Any], node: Node) -> dict[str, Any]:
    """Return everything that a time depends on: the result's identity, this machine, and the node's `runtime:`."""
    runtime = {key: value for key, value in flatten(node).items() if "runtime" in key.split(".")}
    return {**decides, "runtime": runtime, "machine": machine()}


def reading(node: Node) -> dict[str, Any]:
    """Return the identity under which the cache keeps a tokenizer's or encoder's time for 1,000 letters."""
    return subject({"reads": component_identity(node)}, node)


def seconds_to_read(cache: Cache, node: Node, letters: int) -> float | None:
    """Return the seconds that a tokenizer or encoder needs for this many letters; None if unknown on this machine."""
    found = known(cache, reading(node))
    return found.median * letters / 1e6 if found else None


@contextmanager
def reads(cache: Cache, node: Node, letters: int) -> Iterator[None]:
    """Time the block that reads so many letters with a tokenizer or encoder, for estimates of costs.

    Fewer than `ENOUGH` letters are not timed, since loading the model would take most of the time.
    """
    began = time.perf_counter()
    yield
    if letters >= ENOUGH:
        rate = 1e6 * (time.perf_counter() - began) / letters
        remember(cache, reading(node), Timing(rate, rate, rate))


@functools.cache
def machine() -> str:
    """Return a description of this machine: its processor, and the cores and GPUs that this process may use."""
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
    """Return the names of the NVIDIA GPUs without importing torch, which would be slow."""
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
