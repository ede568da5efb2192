"""Benchmarks against the libraries in common use, as ratios within one run; and what the benchmarks share.

    python scripts/benchmark.py bm25            # 5,000 and 50,000 generated documents
    python scripts/benchmark.py bm25 500000
    python scripts/benchmark.py metrics         # 10,000 queries x 100 documents
    python scripts/benchmark.py dense           # encoding with MiniLM, exact search, memory use of the search
    python scripts/benchmark.py gpu             # encoding with a model of the size of bge-m3
    python scripts/benchmark.py gate            # fitting a threshold: the curve and 2,000 bootstrap replicates
    python scripts/benchmark.py sweep           # 1,000 trials, memory, launchers; 200 trials against a plain script
    python scripts/benchmark.py tracking        # logging a run against bare MLflow calls, in SQLite and over HTTP
    python scripts/benchmark.py traces          # traces of queries against MLflow's own tracing
    python scripts/benchmark.py serving         # the exported model: latency, start-up, size
    python scripts/benchmark.py corrections     # 100,000 sentences against difflib

Each benchmark is a separate script, described in its docstring.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

BENCHMARKS = {
    "bm25": [["benchmark_bm25.py"]],
    "metrics": [["benchmark_metrics.py"]],
    "dense": [
        ["benchmark_encode.py"],
        ["benchmark_encode.py", "--light"],
        ["benchmark_search.py", "search"],
        ["benchmark_search.py", "memory"],
    ],
    "gpu": [["benchmark_gpu.py"]],
    "gate": [["benchmark_gate.py"]],
    "tracking": [["benchmark_tracking.py"]],
    "traces": [["benchmark_traces.py"]],
    "serving": [["benchmark_serving.py"]],
    "corrections": [["benchmark_corrections.py"]],
    "sweep": [["benchmark_sweep.py", what] for what in ("grid", "baseline", "memory", "launchers")],
}


def seconds(call: Callable[[], Any]) -> float:
    """Wall-clock seconds of a call."""
    return timed(call)[0]


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Wall-clock seconds of a call, and its result."""
    began = time.perf_counter()
    result = call()
    return time.perf_counter() - began, result


def best_of(times: int, call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of the fastest of several calls, and the last result."""
    calls = [timed(call) for _ in range(times)]
    return min(spent for spent, _ in calls), calls[-1][1]


def relative(rows: list[tuple[str, float]], reference: str, digits: int = 3) -> None:
    """Print a Markdown table of (what, seconds), with each time as a multiple of the first row's.

    reference: name of the first row, for the header.
    digits: decimals of the seconds.
    """
    print(f"| what | seconds | times {reference} |\n|---|---:|---:|")
    for what, spent in rows:
        print(f"| {what} | {spent:.{digits}f} | {spent / rows[0][1]:.2f} |")


def ratio_cells(rates: np.ndarray) -> str:
    """`ours | theirs | median ratio | min - max`, cells of a Markdown row.

    rates: float64 [passes, 2], ours and theirs in alternating passes.
    """
    ratios = np.sort(rates[:, 0] / rates[:, 1])
    ours, theirs = (f"{rate:,.1f}" if rate < 1000 else f"{rate:,.0f}" for rate in np.median(rates, axis=0))
    return f"{ours} | {theirs} | {np.median(ratios):.2f} | {ratios[0]:.2f} - {ratios[-1]:.2f}"


def parser(description: str | None) -> argparse.ArgumentParser:
    """A command line whose help is the docstring of a script."""
    return argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)


class Peak:
    """The highest memory use while open, sampled every 5 ms.

    size: returns the bytes in use now.
    """

    def __init__(self, size: Callable[[], int]) -> None:
        self._size = size

    def __enter__(self) -> Peak:
        self.bytes, self._stop = self._size(), threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(0.005):
            self.bytes = max(self.bytes, self._size())

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.bytes = max(self.bytes, self._size())


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in BENCHMARKS:
        sys.exit(__doc__)
    for script, *words in BENCHMARKS[sys.argv[1]]:
        path = str(Path(__file__).with_name(script))
        subprocess.run([sys.executable, path, *words, *sys.argv[2:]], check=True)
