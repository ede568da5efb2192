"""The time budget of an automatic sweep, and the time that the sweep has spent across restarts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from harness.errors import BadInput
from harness.storage.append_log import AppendLog

UNITS = {"s": 1, "m": 60, "h": 3600}
LEAST, MOST = 1, 168 * 3600  # seconds; MOST is a week
TELLING = 1.0  # seconds; `pace` leaves out steps estimated to take less, since they say little about the machine
SWING = 5.0  # the maximum `pace` of a `StepLog`; the minimum is 1 / SWING
_TEXT = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smh])")


def seconds_of(budget: object) -> float:
    """Convert a text such as 90s, 10m or 2h to seconds. Raise BadInput below 1 second and above 1 week."""
    found = _TEXT.fullmatch(budget) if isinstance(budget, str) else None
    if found is None:
        raise BadInput(f"budget={budget!s:.40} is not a time: give a number and its unit, such as 90s, 10m or 2h.")
    seconds = float(found[1]) * UNITS[found[2]]
    if not LEAST <= seconds <= MOST:
        raise BadInput(f"budget={budget} is out of range: give 1s to 168h, which is a week.")
    return seconds


def seconds_text(seconds: float) -> str:
    """Format seconds for people: 42 s, 3.5 min, 2.0 h."""
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


@dataclass(frozen=True)
class Step:
    """A completed step. name: begins with the kind of step. estimate: the expected seconds; 0: no estimate."""

    name: str
    seconds: float
    estimate: float = 0.0


class StepLog:
    """The log of completed steps, with the seconds that each step took the first time.

    A restarted sweep repeats these steps even if nothing is left of its budget.
    """

    def __init__(self, file: Path) -> None:
        self._log = AppendLog(file, Step, lenient=True)
        self._steps: dict[str, Step] = {}
        for step in self._log.read():
            self._steps.setdefault(step.name, step)

    def __contains__(self, step: object) -> bool:
        return step in self._steps

    @property
    def spent(self) -> float:
        return sum(step.seconds for step in self._steps.values())

    def seconds(self, kind: str) -> float:
        return sum(step.seconds for name, step in self._steps.items() if name.partition(" ")[0] == kind)

    @property
    def pace(self) -> float:
        """Seconds taken / seconds estimated, cut to [1/SWING, SWING]; 1 if all estimates are below TELLING."""
        told = [step for step in self._steps.values() if step.estimate >= TELLING]
        took, expected = sum(step.seconds for step in told), sum(step.estimate for step in told)
        return min(max(took / expected, 1 / SWING), SWING) if told else 1.0

    def note(self, name: str, seconds: float, estimate: float = 0.0) -> None:
        """Log a completed step, unless it is already in the log."""
        if name not in self._steps:
            self._steps[name] = Step(name, seconds, estimate)
            self._log.append([self._steps[name]])
