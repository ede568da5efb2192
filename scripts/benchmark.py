"""Measure against the libraries that people use today, as ratios within one run.

python scripts/benchmark.py bm25                   # 5,000 and 50,000 generated documents
python scripts/benchmark.py bm25 --sizes 500000
python scripts/benchmark.py metrics                # 10,000 queries x 100 documents
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

BENCHMARKS = {"bm25": "benchmark_bm25", "metrics": "benchmark_metrics"}

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in BENCHMARKS:
        sys.exit(__doc__)
    sys.path.insert(0, str(Path(__file__).parent))
    name = sys.argv.pop(1)
    importlib.import_module(BENCHMARKS[name]).main()
