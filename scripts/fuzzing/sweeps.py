"""The format in the folder of an automatic sweep: the steps that were completed."""

from __future__ import annotations

from pathlib import Path

from fuzzing.formats import Format, Wrong, lines, reads
from harness.commands.sweep.auto.budget import StepLog

SWEEPS: dict[str, Format] = {}
STEPS = [
    {"step": "system retriever=bm25", "seconds": 2.5, "estimate": 2.0},
    {"step": "replay 0", "seconds": 9.0, "estimate": 0},
]


@reads("steps", {"steps.jsonl": b"\n" + lines(STEPS[0]) + b"\n" + lines(STEPS[1])}, SWEEPS)
def _steps(folder: Path) -> None:
    log = StepLog(folder / "steps.jsonl")
    if not (log.pace > 0 and log.spent >= 0 and log.seconds("system") >= 0):
        raise Wrong("a time is no number", repr((log.pace, log.spent)))
