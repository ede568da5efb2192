"""Measure the harness, as ratios within one run: speed against common libraries, memory, and growth.

python scripts/benchmark.py bm25 5000 50000     # NAME and its options
python scripts/benchmark.py bm25 --help
"""

from __future__ import annotations

import sys

from measuring import run_case

CASES = {
    "bm25": "benchmarks.lexical:bm25",
    "encode": "benchmarks.dense:encode",
    "search": "benchmarks.dense:search",
    "metrics": "benchmarks.scoring:metrics",
    "sweep": "benchmarks.tracking:sweep",
    "growth": "benchmarks.growth:growth",
}
if __name__ == "__main__":
    sys.exit(run_case(CASES, sys.argv[1:], __doc__))
