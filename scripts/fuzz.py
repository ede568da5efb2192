"""Fuzz everything that the harness reads: each input is refused with a message that names the file, or read.

    python scripts/fuzz.py --minutes 60                 # all formats; ends with a table, exit code 1 after a finding
    python scripts/fuzz.py --minutes 5 --only contest --only "trec run" --seed 7
    python scripts/fuzz.py --list

An error of any other kind, a hang, more memory than a few gigabytes, a temporary file left behind, or something else
read back than was written is a finding. Findings are made as small as possible and added to
tests/whole/fuzz_cases.jsonl, where each is a failing test until it is mended; `says` of a case is then what its refusal
says, or "read". The same seed gives the same inputs.
"""

import argparse
import base64
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measuring import ROOT, Table  # isort: skip  (finds tests/support)
from fuzzing import kept  # noqa: F401  (kept and brought register their formats)
from fuzzing.mutations import Content, Odd
from fuzzing.trial import FORMATS, Finding, Trial, minimised, start

CASES = ROOT / "tests" / "whole" / "fuzz_cases.jsonl"
OUTCOMES = ("refused", "read", "findings")
TURN = 3.0  # seconds that a format has before it is another's turn


@dataclass
class Turn:
    """What a worker has done: inputs `first` to `last` of a format, and their outcomes."""

    name: str
    last: int
    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)


def turn(name: str, seed: str, first: int, seconds: float, known: frozenset[str], limit: int | None = None) -> Turn:
    """Try inputs of a format from number `first` on, until the time is over or `limit` inputs are tried."""
    done, folder = Turn(name, first), Path(tempfile.mkdtemp(prefix="fuzz-"))
    try:
        trial = Trial(FORMATS[name], folder / "input")
        began = time.monotonic()
        while (limit is None and time.monotonic() - began < seconds) or (limit and done.last - first < limit):
            file, content = trial.draw(f"{seed}/{done.last}")
            done.last += 1
            outcome = trial.run(file, content)
            if isinstance(outcome, Finding):
                done.outcomes["findings"] += 1
                if outcome.what not in known:
                    known |= {outcome.what}
                    done.findings.append(_smaller(trial, outcome))
            else:
                done.outcomes["read" if outcome == "read" else "refused"] += 1
        done.seconds = time.monotonic() - began
    finally:
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)
    return done


def _smaller(trial: Trial, finding: Finding) -> Finding:
    def again(content: bytes) -> bool:
        outcome = trial.run(finding.file, content)
        return isinstance(outcome, Finding) and outcome.what == finding.what

    return minimised(finding, again, budget=6 if finding.what.startswith("Hang") else 400)


def fuzz(names: list[str], seed: str, minutes: float, jobs: int) -> list[Finding]:
    """Give each format its turn, again and again, until the time is over; print a table, and return the findings."""
    sums = {name: Turn(name, 0) for name in names}
    known: dict[str, frozenset[str]] = dict.fromkeys(names, frozenset())
    findings: list[Finding] = []
    end, waiting = time.monotonic() + 60 * minutes, list(names)
    pool, running = _pool(jobs), dict[Future[Turn], str]()
    while running or (waiting and time.monotonic() < end):
        while waiting and len(running) < jobs and time.monotonic() < end:
            name = waiting.pop(0)
            left = min(TURN, max(end - time.monotonic(), 0.1))
            running[pool.submit(turn, name, seed, sums[name].last, left, known[name])] = name
        future = next(iter(running))
        name = running.pop(future)
        try:
            done = future.result()
        except BrokenProcessPool:
            died = Finding(name, "the worker died", f"in the turn from input {sums[name].last} on", "", b"")
            done = Turn(name, sums[name].last + 1, outcomes=Counter(findings=1), findings=[died])
            pool = _pool(jobs)
        one = sums[name]
        one.last, one.seconds, one.outcomes = done.last, one.seconds + done.seconds, one.outcomes + done.outcomes
        for finding in done.findings:
            known[name] |= {finding.what}
            findings.append(finding)
            where = f"{finding.file}: {finding.content!r:.300}"
            print(f"\nFOUND {name}: {finding.what}\n{finding.detail}\n{where}\n", flush=True)
            save(finding)
        waiting.append(name)
    pool.shutdown()
    table = Table("format", *OUTCOMES, "inputs", "per second")
    for one in sums.values():
        count = one.outcomes.total()
        table.row(one.name, *(one.outcomes[name] for name in OUTCOMES), count, float(count / max(one.seconds, 1e-9)))
    whole = sum((one.outcomes for one in sums.values()), Counter[str]())
    table.row("all", *(whole[name] for name in OUTCOMES), whole.total(), "")
    return findings


def _pool(jobs: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=start)


def save(finding: Finding) -> None:
    """Add a finding to the cases of the test."""
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
    """The content of a case, as `encoded` wrote it."""
    if "odd" in case:
        return Odd[case["odd"]]
    return case["text"].encode() if "text" in case else base64.b64decode(case["base64"])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--minutes", type=float, default=1.0)
    options.add_argument("--seed", default="0")
    options.add_argument("--only", action="append", choices=list(FORMATS), metavar="FORMAT", help="may be repeated")
    options.add_argument("--jobs", type=int, default=1, help="processes")
    options.add_argument("--list", action="store_true", help="show the formats")
    given = options.parse_args()
    if given.list:
        print("\n".join(FORMATS))
        return
    findings = fuzz(given.only or list(FORMATS), given.seed, given.minutes, given.jobs)
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
