"""Which trials of a sweep compare, and systems × data sets where not all of them do.

Trials compare if the same queries and labels score them by the same rules: what `harness compare` asks of runs. A sweep
over data sets, or over schemes of a task, therefore has several groups of trials, each with a best one of its own. So
has one over ways to cut texts into documents, unless its objectives count characters of evidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.gates.calibration import CLOSE
from harness.sweeps.plan import Trial, keys_that_change, swept_values


@dataclass(frozen=True)
class TrialGroup:
    """Trials that compare. numbers: theirs. apart: swept key -> its values that set them apart from other groups."""

    numbers: Sequence[int]
    apart: Mapping[str, str]


@dataclass(frozen=True)
class System:
    """Values of the swept keys that do not set groups apart, and its trials.

    overrides: these values, as key=value. trials: its trial in each group; None if there is none.
    values: its objective in each group; NaN if it has none.
    mean: over the groups; NaN if a value is missing, or if the groups are scored by different rules.
    """

    overrides: tuple[str, ...]
    trials: tuple[int | None, ...]
    values: tuple[float, ...]
    mean: float

    @property
    def name(self) -> str:
        return " ".join(self.overrides)

    def to_json(self) -> dict[str, Any]:
        numbers = [None if math.isnan(value) else value for value in (*self.values, self.mean)]
        return {
            "overrides": list(self.overrides),
            "trials": list(self.trials),
            "values": numbers[:-1],
            "mean": numbers[-1],
        }


def trial_groups(trials: Mapping[int, Trial]) -> list[TrialGroup]:
    """The groups of trials that compare; [] if all do. A trial that cannot run is in none."""
    members: dict[tuple[str, str], list[int]] = {}
    for number, trial in trials.items():
        if not trial.error:
            members.setdefault((trial.data, trial.rules), []).append(number)
    if len(members) < 2:
        return []
    keys = keys_apart(trials)
    groups = []
    for numbers in members.values():
        texts = [swept_values(trials[number]) for number in numbers]
        apart = {key: ",".join(dict.fromkeys(text[key] for text in texts if key in text)) for key in keys}
        groups.append(TrialGroup(numbers, {key: values for key, values in apart.items() if values}))
    return groups


def keys_apart(trials: Mapping[int, Trial]) -> list[str]:
    """The swept keys that decide with which others a trial compares."""
    return keys_that_change(trials.values(), lambda trial: (trial.data, trial.rules))


def cut_in_different_ways(trials: Iterable[Trial]) -> bool:
    """Whether the trials have the same evidence and rules, and documents cut from the same texts in different ways."""
    given = [{**trial.fingerprints, "rules": trial.rules} for trial in trials if not trial.error]
    same = {(one.get("queries"), one.get("evidence"), one["rules"]) for one in given}
    several = len({one.get("documents") for one in given}) > 1
    return several and len(same) == 1 and all("evidence" in one for one in given)


def systems(trials: Mapping[int, Trial], groups: Sequence[TrialGroup], value: Callable[[int], float]) -> list[System]:
    """The systems: by their means where there are means, else in the order of the trials. value: of a trial."""
    found: dict[tuple[str, ...], list[int | None]] = {}
    for place, group in enumerate(groups):
        for number in group.numbers:
            words = trials[number].overrides
            own = tuple(word for word in words if word.partition("=")[0] not in group.apart)
            row = found.setdefault(own, [None] * len(groups))
            row[place] = number if row[place] is None else row[place]
    alike = len({trials[group.numbers[0]].rules for group in groups}) == 1
    rows = []
    for own, numbers in found.items():
        values = tuple(math.nan if number is None else value(number) for number in numbers)
        rows.append(System(own, tuple(numbers), values, sum(values) / len(values) if alike else math.nan))
    return sorted(rows, key=lambda one: math.inf if math.isnan(one.mean) else -one.mean)


def best_by_mean(rows: Sequence[System]) -> System | None:
    """The system with the greatest mean, the first of equals; None if no system has a mean."""
    known = [one for one in rows if not math.isnan(one.mean)]
    return next((one for one in known if one.mean > known[0].mean - CLOSE), None)
