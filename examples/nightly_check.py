"""Fail if tonight's retrieval is worse than the last accepted run.

    python nightly_check.py                               # the first time: accept this run
    python nightly_check.py retriever=hybrid_lexical      # later: exit code 1 if the run is significantly worse

The id of the accepted run is in accepted.txt. To accept another run, write its id into this file. The check never does
so itself: if each run were compared with the run of the night before, small losses would add up unnoticed. The
documents may change from night to night. After a change of the queries or labels, delete accepted.txt.
"""

import sys
from pathlib import Path

import harness

ACCEPTED = Path("accepted.txt")

# For your own files, write "dataset=contest", "dataset.path=data". The arguments are more overrides for this run.
tonight = harness.run("dataset=sample", "experiment_name=nightly", *sys.argv[1:])
print(tonight)

if not ACCEPTED.exists():
    ACCEPTED.write_text(tonight.run_id)
    sys.exit()

compared = harness.compare(f"runs=[{ACCEPTED.read_text().strip()},{tonight.run_id}]", "fail_if=worse")
print(compared)
sys.exit(compared.failure)  # None: exit code 0. A text is printed as an error, with exit code 1.
