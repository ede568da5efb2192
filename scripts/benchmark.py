"""Measure against the libraries that people use today, as ratios within one run.

    python scripts/benchmark.py bm25            # 5,000 and 50,000 generated documents
    python scripts/benchmark.py bm25 500000
    python scripts/benchmark.py metrics         # 10,000 queries x 100 documents
    python scripts/benchmark.py dense           # encoding by MiniLM, exact search, the memory that search takes
    python scripts/benchmark.py gpu             # encoding by a model of bge-m3's size
    python scripts/benchmark.py gate            # fitting a threshold: the curve and 2,000 bootstrap replicates
    python scripts/benchmark.py sweep           # 1,000 trials, memory, launchers; and 200 beside a plain script
    python scripts/benchmark.py tracking        # logging a run beside bare MLflow calls, on SQLite and over http
    python scripts/benchmark.py traces          # traces of queries beside MLflow's own ways
    python scripts/benchmark.py serving         # the exported model: latency, start-up, size
    python scripts/benchmark.py corrections     # 100,000 sentences beside difflib

Each is a script of its own, which --help describes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCHMARKS = {
    "bm25": [["benchmark_bm25.py"]],
    "metrics": [["benchmark_metrics.py"]],
    "dense": [["benchmark_encode.py"], ["benchmark_search.py", "search"], ["benchmark_search.py", "memory"]],
    "gpu": [["benchmark_gpu.py"]],
    "gate": [["benchmark_gate.py"]],
    "tracking": [["benchmark_tracking.py"]],
    "traces": [["benchmark_traces.py"]],
    "serving": [["benchmark_serving.py"]],
    "corrections": [["benchmark_corrections.py"]],
    "sweep": [["benchmark_sweep.py", what] for what in ("grid", "baseline", "memory", "launchers")],
}

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in BENCHMARKS:
        sys.exit(__doc__)
    for script, *words in BENCHMARKS[sys.argv[1]]:
        path = str(Path(__file__).with_name(script))
        subprocess.run([sys.executable, path, *words, *sys.argv[2:]], check=True)
