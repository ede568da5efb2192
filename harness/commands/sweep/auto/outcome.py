"""What an automatic sweep says beside its trials: the procedure's score, what was not tried and why, and the time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.commands.sweep.auto.budget import seconds_text
from harness.commands.sweep.auto.procedure import Procedure
from harness.config.text import counted

SHOWN = 12  # lines of what was not tried


@dataclass(frozen=True)
class Automatic:
    """systems: how many were tried. untried: (overrides, why), of what was not tried.

    budget: seconds that were allowed. seconds: part of the work -> seconds that it took, in all starts of the sweep.
    """

    procedure: Procedure
    systems: int
    budget: float
    untried: tuple[tuple[str, str], ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)

    def lines(self) -> list[str]:
        """For people."""
        parts = ", ".join(f"{part} {seconds_text(seconds)}" for part, seconds in self.seconds.items())
        spent = f"{counted(self.systems, 'system')} tried in {seconds_text(sum(self.seconds.values()))} of "
        found = [self.procedure.sentence(), *self.procedure.notes, f"{spent}{seconds_text(self.budget)} ({parts})."]
        return found + untried_lines(self.untried)

    def note(self) -> str:
        """For the description of the parent run."""
        return " ".join([self.procedure.sentence(), *self.procedure.notes])

    def metrics(self) -> dict[str, float]:
        """For the parent run."""
        return self.procedure.metrics()

    def to_json(self) -> dict[str, Any]:
        return {
            "procedure": self.procedure.to_json(),
            "untried": [{"overrides": words, "reason": why} for words, why in self.untried],
            "budget": {
                "seconds": self.budget,
                "spent": {part: round(seconds, 3) for part, seconds in self.seconds.items()},
            },
        }


def untried_lines(untried: Iterable[tuple[str, str]]) -> list[str]:
    """What is not tried, for people: a line for each reason. untried: (overrides, why)."""
    reasons: dict[str, list[str]] = {}
    for words, why in untried:
        reasons.setdefault(why, []).append(words)
    return [f"not tried: {'; '.join(words)}: {why}" for why, words in reasons.items()][:SHOWN]
