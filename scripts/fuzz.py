"""Fuzz everything that the harness reads: each input must be read, or refused with a message that names the file.

    python scripts/fuzz.py --minutes 60                 # all formats; ends with a table, exit code 1 after a finding
    python scripts/fuzz.py --minutes 5 --only contest "test set" --seed 7

A finding is any other error, a hang, more memory than a few gigabytes, a temporary file left behind, or content read
back differently than written. Findings are made as small as possible and added to tests/whole/fuzz_cases.jsonl. Each is
a failing test until it is mended; its `says` is then the text of the refusal, or "read". The same seed gives the same
inputs.
"""

import base64
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measuring import ROOT, Table, called  # isort: skip  (finds tests/support)
from fuzzing import kept  # noqa: F401  (kept and brought register their formats)
from fuzzing.mutations import Content, Odd
from fuzzing.trial import FORMATS, Finding, Trial, minimised, start

CASES = ROOT / "tests" / "whole" / "fuzz_cases.jsonl"
OUTCOMES = ("refused", "read", "findings")
TURN = 3.0  # seconds of a format's turn


@dataclass
class Progress:
    """How far a format is. inputs: number tried, in so many seconds. findings: different ones."""

    name: str
    inputs: int = 0
    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)


def turn(one: Progress, seed: str, end: float, limit: int | None = None) -> Progress:
    """Try inputs until the turn or the time is over, or `limit` are tried. end: by time.monotonic()."""
    folder, began, first = Path(tempfile.mkdtemp(prefix="fuzz-")), time.monotonic(), one.inputs
    try:
        trial = Trial(FORMATS[one.name], folder / "input")
        while time.monotonic() < min(began + TURN, end) and (limit is None or one.inputs - first < limit):
            file, content = trial.draw(f"{seed}/{one.inputs}")
            one.inputs += 1
            outcome = trial.run(file, content)
            if isinstance(outcome, Finding):
                one.outcomes["findings"] += 1
                if outcome.what not in {known.what for known in one.findings}:
                    one.findings.append(_smaller(trial, outcome))
            else:
                one.outcomes["read" if outcome == "read" else "refused"] += 1
        one.seconds += time.monotonic() - began
    finally:
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)
    return one


def _smaller(trial: Trial, finding: Finding) -> Finding:
    def again(content: bytes) -> bool:
        outcome = trial.run(finding.file, content)
        return isinstance(outcome, Finding) and outcome.what == finding.what

    return minimised(finding, again, budget=6 if finding.what.startswith("Hang") else 400)


def fuzz(*, minutes: float = 1.0, seed: str = "0", only: tuple[str, ...] = (), jobs: int = 1) -> int:
    """Give the formats turns until the time is over; print a table; return 1 if something was found.

    --only: names of formats. --jobs: processes.
    """
    if unknown := [name for name in only if name not in FORMATS]:
        sys.exit(f"--only: no format {unknown[0]!r}. Formats: {', '.join(FORMATS)}.")
    formats = {name: Progress(name) for name in only or FORMATS}
    end, pool = time.monotonic() + 60 * minutes, _pool(jobs)
    while time.monotonic() < end:
        turns = {name: pool.submit(turn, one, seed, end) for name, one in formats.items()}
        for name, future in turns.items():
            one, known = formats[name], len(formats[name].findings)
            try:
                formats[name] = one = future.result()
            except BrokenProcessPool:  # of this or of a simultaneous turn; the others are tried again
                one.findings.append(Finding(name, "the worker died", f"after input {one.inputs}", "", b""))
                one.inputs, one.outcomes, pool = one.inputs + 1, one.outcomes + Counter(findings=1), _pool(jobs)
            for finding in one.findings[known:]:
                where = f"{finding.file}: {finding.content!r:.300}"
                print(f"\nFOUND {name}: {finding.what}\n{finding.detail}\n{where}\n", flush=True)
                save(finding)
            if future.exception():
                break
    pool.shutdown()
    table = Table("format", *OUTCOMES, "inputs", "per second")
    for one in formats.values():
        table.row(one.name, *(one.outcomes[name] for name in OUTCOMES), one.inputs, one.inputs / max(one.seconds, 1e-9))
    whole = sum((one.outcomes for one in formats.values()), Counter[str]())
    table.row("all", *(whole[name] for name in OUTCOMES), whole.total(), "")
    return int(any(one.findings for one in formats.values()))


def _pool(jobs: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=start)


def save(finding: Finding) -> None:
    with CASES.open("a", encoding="utf-8") as file:
        case = {"format": finding.format, "file": finding.file, **encoded(finding.content), "says": finding.what}
        file.write(json.dumps(case, ensure_ascii=False) + "\n")


def encoded(content: Content) -> dict[str, str]:
    if isinstance(content, Odd):
        return {"odd": content.name}
    try:
        return {"text": content.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def decoded(case: dict[str, Any]) -> Content:
    if "odd" in case:
        return Odd[case["odd"]]
    return case["text"].encode() if "text" in case else base64.b64decode(case["base64"])


if __name__ == "__main__":
    sys.exit(called(fuzz, sys.argv[1:], "fuzz.py"))
