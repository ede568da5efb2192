"""Formats in the folder of an automatic sweep: the steps that were completed, and a replay of its procedure."""

from __future__ import annotations

import tempfile
from pathlib import Path

from fuzzing.formats import Format, Wrong, lines, logged, reads, same
from harness.commands.sweep.auto.budget import Step, StepLog
from harness.commands.sweep.auto.procedure import Replay

SWEEPS: dict[str, Format] = {}
STEPS = [Step("system retriever=bm25", 2.5, 2.0), Step("replay 0", 9.0)]
REPLAY = {"of": "ab" * 32, "values": [0.5, 1.0], "chosen": [["retriever=bm25", "gate=none"], ["retriever=dense"]]}


@reads("steps", logged("steps.jsonl", lambda folder: StepLog(folder / "steps.jsonl")._log, *STEPS), SWEEPS)
def _steps(folder: Path) -> None:
    log = StepLog(folder / "steps.jsonl")
    if not (log.pace > 0 and log.spent >= 0 and log.seconds("system") >= 0):
        raise Wrong("a time is no number", repr((log.pace, log.spent)))


@reads("replay", {"replay-0.json": lines(REPLAY)}, SWEEPS)
def _replay(folder: Path) -> None:
    found = Replay.read(folder / "replay-0.json", str(REPLAY["of"]))
    if found:
        with tempfile.TemporaryDirectory() as name:
            found.write(Path(name) / "again.json", "x")
            same(Replay.read(Path(name) / "again.json", "x"), found, "the replay")
