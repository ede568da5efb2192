"""Check by simulation that intervals, tests and importances keep their promises; generate a corpus of any size.

python scripts/simulate.py intervals 1000       # NAME and its arguments
python scripts/simulate.py corpus /tmp/g1M --documents 1000000
"""

from __future__ import annotations

import sys

from measuring import run_case

CASES = {
    "intervals": "simulations.intervals:intervals",
    "checked_labels": "simulations.checked_labels:checked_labels",
    "importance": "simulations.importance:importances",
    "power": "simulations.power:power",
    "corpus": "generated_corpus:corpus",
}

if __name__ == "__main__":
    sys.exit(run_case(CASES, sys.argv[1:], __doc__))
