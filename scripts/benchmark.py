"""Measure the harness against common libraries, as ratios within one run; simulate what its statistics promise.

python scripts/benchmark.py bm25 5000 50000     # NAME and its options
python scripts/benchmark.py intervals --help
"""

from __future__ import annotations

import sys

from measuring import run_case

CASES = {
    "bm25": "benchmarks.lexical:bm25",
    "words": "benchmarks.lexical:words",
    "encode": "benchmarks.dense:encode",
    "search": "benchmarks.dense:search",
    "metrics": "benchmarks.scoring:metrics",
    "sweep": "benchmarks.tracking:sweep",
    "first": "benchmarks.first:first",
    "growth": "benchmarks.growth:growth",
    "endtoend": "benchmarks.growth:endtoend",
    "intervals": "simulations.intervals:intervals",
    "checked_labels": "simulations.checked_labels:checked_labels",
    "importance": "simulations.importance:importances",
    "power": "simulations.power:power",
    "corpus": "generated_corpus:corpus",
}
if __name__ == "__main__":
    sys.exit(run_case(CASES, sys.argv[1:], __doc__))
