"""The time that an automatic sweep may take, and what it has spent, across restarts."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from retrievers.base import BadInput

UNITS = {"s": 1, "m": 60, "h": 3600}
LEAST, MOST = 1, 168 * 3600  # seconds: a week
TELLING = 1.0  # seconds: shorter estimates say nothing about a machine
SWING = 5.0  # at most so many times slower or quicker than estimated
_TEXT = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smh])")


def seconds_of(budget: object) -> float:
    """Seconds of a text such as 90s, 10m or 2h. BadInput for anything else, and beyond a second to a week."""
    found = _TEXT.fullmatch(budget) if isinstance(budget, str) else None
    if found is None:
        raise BadInput(f"budget={budget!s:.40} is no time: give a number and its unit, such as 90s, 10m or 2h.")
    seconds = float(found[1]) * UNITS[found[2]]
    if not LEAST <= seconds <= MOST:
        raise BadInput(f"budget={budget} is out of range: give 1s to 168h, which is a week.")
    return seconds


def seconds_text(seconds: float) -> str:
    """Seconds for people: 42 s, 3.5 min, 2.0 h."""
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


@dataclass
class StepLog:
    """The steps that were completed, with the seconds that each took when it was done for the first time.

    A step that is in the log is never refused again, so that a sweep that was killed and repeated takes the same
    steps. file: JSON lines; a line that a killed process has cut off is left out.
    """

    file: Path
    _steps: dict[str, float] = field(default_factory=dict)
    _estimates: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lines = self.file.read_bytes().split(b"\n") if self.file.is_file() else []
        for line in lines:
            if read := _step(line):
                name, seconds, estimate = read
                self._steps.setdefault(name, seconds)
                self._estimates.setdefault(name, estimate)

    def __contains__(self, step: object) -> bool:
        return step in self._steps

    @property
    def spent(self) -> float:
        """Seconds of all completed steps."""
        return sum(self._steps.values())

    def seconds(self, kind: str) -> float:
        """Seconds of the completed steps of a kind, which is the first word of a step's name."""
        return sum(seconds for step, seconds in self._steps.items() if step.partition(" ")[0] == kind)

    @property
    def pace(self) -> float:
        """By how much this machine is slower than the estimates said, 1 before there is anything to go by."""
        told = {step: estimate for step, estimate in self._estimates.items() if estimate >= TELLING}
        took = sum(self._steps[step] for step in told)
        return min(max(took / sum(told.values()), 1 / SWING), SWING) if told else 1.0

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure a step and write it down once it is complete, unless it was before."""
        began = time.perf_counter()
        yield
        self.note(name, time.perf_counter() - began)

    def note(self, name: str, seconds: float, estimate: float = 0.0) -> None:
        """Write a completed step down, unless it is known. The line begins by ending one that was cut off.

        estimate: the seconds that were expected; 0 if nothing was.
        """
        if name in self._steps:
            return
        self._steps[name], self._estimates[name] = seconds, estimate
        line = "\n" + json.dumps({"step": name, "seconds": seconds, "estimate": estimate}) + "\n"
        with self.file.open("ab", buffering=0) as file:
            file.write(line.encode("utf-8"))


def _step(line: bytes) -> tuple[str, float, float] | None:
    """(name, seconds, estimate) of a line; None for one that is blank, cut off or damaged."""
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    match row:
        case {"step": str() as name, "seconds": float() | int() as seconds, "estimate": float() | int() as estimate}:
            known = all(0 <= number < math.inf for number in (seconds, estimate))
            return (name, float(seconds), float(estimate)) if known else None
    return None
