"""Fail if tonight's retrieval is worse than the last accepted run.

    python nightly_check.py                               # the first time: accept this run
    python nightly_check.py retriever=hybrid_lexical      # later: exit code 1 if the run is significantly worse

The results of the accepted run are in accepted.json. To accept another run, delete this file. The check never replaces
it: if each run were compared with the run of the night before, small losses would add up unnoticed. Documents, queries
and labels may change from night to night. Only queries that did not change are compared.
"""

import sys
from pathlib import Path

import harness

ACCEPTED = Path("accepted.json")

# For your own files, write "dataset=contest", "dataset.path=data". The arguments are more overrides for this run.
tonight = ["dataset=sample", "experiment_name=nightly", *sys.argv[1:]]

if not ACCEPTED.exists():
    print(harness.check(*tonight, f"save={ACCEPTED}"))
    sys.exit()

checked = harness.check(*tonight, f"baseline={ACCEPTED}")
print(checked)
sys.exit(checked.outcome == "regressed")  # if the queries cannot tell, the night passes
