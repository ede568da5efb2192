"""Measure the harness, as ratios within one run: speed against common libraries, memory, and growth.

python scripts/benchmark.py bm25 5000 50000     # NAME and its options
python scripts/benchmark.py dense               # a group: its cases one after the other
python scripts/benchmark.py bm25 --help
"""

from __future__ import annotations

import subprocess
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
GROUPS = {"dense": (["encode"], ["encode", "--light"], ["search"])}


def main(words: list[str]) -> int:
    for case in GROUPS.get(words[0], ()) if words else ():
        subprocess.run([sys.executable, __file__, *case, *words[1:]], check=True)
    return 0 if words and words[0] in GROUPS else run_case(CASES, words, __doc__)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
