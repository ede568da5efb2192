"""A sweep in numbers: the best trials, the Pareto front, counts, and the parent run's metrics and tags.

Trials are comparable if the same queries and labels score them by the same rules. If some trials are not comparable,
the summary has a group for each set of comparable trials, and each group has a best trial.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, get_args

import numpy as np

from harness.analysis.board.expected import Expected
from harness.config.text import counted, short_id
from harness.experiment.timing import MS
from harness.gates.calibration import CLOSE
from harness.measures.measures import SPAN_MEASURES
from harness.measures.objective import Objective
from harness.reports import markup
from harness.storage.typed import HIDDEN, encoded
from harness.sweeps.auto.out_of_fold import Automatic
from harness.sweeps.plan import SweepObjective, Trial, cut_in_different_ways, keys_that_change, swept_values
from harness.sweeps.recommendation import Edge, Points, Recommendation, recommend
from harness.sweeps.trials import TrialResult
from harness.tracking.tracker import LESS_IS_BETTER, NOTE, ONLY_BEST, Status, as_note, measured

SHOWN = 10  # how many of the best trials are listed


@dataclass(frozen=True)
class System:
    """A value for each swept key, except the keys that separate the groups of comparable trials.

    values: the score of each group's trial with these `overrides`; NaN if a group has none.
    mean: the mean score over the groups; NaN if a score is missing or the groups have different rules.
    """

    overrides: tuple[str, ...]
    trials: tuple[int | None, ...]
    values: tuple[float, ...]
    mean: float

    @property
    def name(self) -> str:
        return " ".join(self.overrides)


@dataclass(frozen=True)
class TrialRow:
    """A trial in the JSON document, the table of all trials and the report.

    objectives: name -> value, NaN if absent. The first objective ranks the trials.
    interval, kind: the interval of the first objective, and how its value was obtained, for example `out of fold`.
    """

    trial: int
    overrides: tuple[str, ...]
    objectives: Mapping[str, float]
    interval: tuple[float, float] = (math.nan, math.nan)
    kind: str = ""
    run_id: str | None = None
    reused: bool = False
    status: str = field(default="", metadata=HIDDEN)
    seconds: float = field(default=math.nan, metadata=HIDDEN)
    error: str = field(default="", metadata=HIDDEN)
    json_too = ("value",)

    @property
    def values(self) -> list[float]:
        return list(self.objectives.values())

    @property
    def value(self) -> float:
        return self.values[0]


def _systems(parts: Sequence[SweepSummary]) -> list[System]:
    found: dict[tuple[str, ...], list[int | None]] = {}
    for place, part in enumerate(parts):
        for number, trial in part.trials.items():
            own = tuple(word for word in trial.overrides if word.partition("=")[0] not in part.apart)
            row = found.setdefault(own, [None] * len(parts))
            row[place] = number if row[place] is None else row[place]
    alike = len({trial.rules for part in parts for trial in part.trials.values()}) == 1
    rows = []
    for own, numbers in found.items():
        values = [math.nan if n is None else part.rows[n].value for n, part in zip(numbers, parts, strict=True)]
        rows.append(System(own, tuple(numbers), tuple(values), sum(values) / len(values) if alike else math.nan))
    return sorted(rows, key=lambda one: math.inf if math.isnan(one.mean) else -one.mean)


@dataclass(frozen=True, eq=False)
class SweepSummary:
    """The trials of a sweep and their results, keyed by number.

    run_id: the id of the parent run. skipped: the keys of trials that had finished when this start began.
    expected: of the experiment's runs comparable with these trials, the best one's expected score on new queries.
    only_best: how many of the best trials (of each group) are runs; None: all trials are.
    apart: swept key -> the values that separate these trials from the other groups.
    groups: a summary for each group of comparable trials; () if all are comparable. With groups, `best` is None.
    """

    sweep_id: str
    run_id: str | None
    experiment: str
    trials: Mapping[int, Trial]
    results: Mapping[int, TrialResult]
    skipped: Collection[str]
    objectives: Sequence[SweepObjective]
    select_on: str = "all"
    expected: Expected | None = None
    automatic: Automatic | None = None
    apart: Mapping[str, str] = field(default_factory=dict)
    groups: Sequence[SweepSummary] = ()
    edges: Sequence[Edge] = ()
    systems: Sequence[System] = ()
    only_best: int | None = None

    def grouped(self) -> SweepSummary:
        """Group comparable trials, unless all trials are comparable. The groups omit trials that cannot run."""
        members: dict[tuple[str, str], list[int]] = {}
        for number, trial in self.trials.items():
            if not trial.error:
                members.setdefault((trial.data, trial.rules), []).append(number)
        if len(members) < 2:
            return self
        keys = keys_that_change(self.trials.values(), lambda trial: (trial.data, trial.rules))
        parts = []
        for numbers in members.values():
            trials = {number: self.trials[number] for number in numbers}
            results = {number: self.results[number] for number in numbers if number in self.results}
            texts = [swept_values(trial.overrides) for trial in trials.values()]
            values = {key: ",".join(dict.fromkeys(text[key] for text in texts if key in text)) for key in keys}
            apart = {key: value for key, value in values.items() if value}
            parts.append(replace(self, trials=trials, results=results, apart=apart))
        return replace(self, groups=parts, systems=_systems(parts))

    @property
    def best_system(self) -> System | None:
        known = [one for one in self.systems if not math.isnan(one.mean)]
        return next((one for one in known if one.mean > known[0].mean - CLOSE), None)

    @property
    def parts(self) -> Sequence[SweepSummary]:
        return self.groups or [self]

    @property
    def finished(self) -> list[int]:
        """The finished trials, the best first; [] if some trials are not comparable."""
        value, best = self._finished, self.best
        return [] if self.groups else sorted(value, key=lambda n: (n != best, -value[n], n))

    @cached_property
    def _finished(self) -> dict[int, float]:
        values = {n: self.rows[n].value for n, result in self.results.items() if result.status == "FINISHED"}
        return {n: value for n, value in values.items() if value == value}

    @cached_property
    def points(self) -> Points:
        """The finished trials, one for each trial key."""
        different = {self.results[n].key: n for n in sorted(self._finished, reverse=True)}
        value = {n: self._finished[n] for n in sorted(different.values())}
        axes = self.axes()
        numeric = [key for key, values in axes.items() if all(isinstance(one, float | None) for one in values)]
        own = {n: swept_values(self.trials[n].overrides) for n in value}
        texts = {n: {key: text for key, text in own[n].items() if key in axes} for n in value}
        ms = {n: self.results[n].metrics.get(MS, np.nan) for n in value}
        return Points(value, texts, numeric, ms, [n for n in value if self.trials[n].asks_model])

    @cached_property
    def recommended(self) -> Recommendation | None:
        """The finished trial to choose; None if no trial has finished or if some trials are not comparable."""
        return None if self.groups else recommend(self.points)

    @property
    def best(self) -> int | None:
        return self.recommended.trial if self.recommended else None

    @property
    def notes(self) -> list[str]:
        if self.groups:
            return self._notes_on_groups()
        tie = [self.recommended.reason] if self.recommended and self.recommended.reason else []
        return [*tie, *(edge.note for edge in self.edges), *self._notes_on_cuts(), *self._notes_on_labels()]

    @property
    def expectation(self) -> list[str]:
        one = self.expected
        if one is None:
            return []
        own = {result.run_id for result in self.results.values()}
        before = f"The experiment's best run, {short_id(one.run_id or '')} (at {one.best:.4f}), is not in this sweep."
        return [*([] if one.run_id in own else [before]), one.sentence]

    def _notes_on_labels(self) -> list[str]:
        objective = self.results[self.best].objective if self.best is not None else None
        if objective is None or objective.estimate is None:
            return []
        found = objective.estimate
        return [
            f"Values are raw ({markup.raw_share(found)}) and have no interval. The best trial has "
            f"{markup.estimated(found, objective.title)}."
        ]

    def _notes_on_cuts(self) -> list[str]:
        names = [objective.name for objective in self.objectives]
        if not cut_in_different_ways(self.trials.values()) or any(not name.startswith("span_recall") for name in names):
            return []
        precision = names[0].replace("recall", "precision")
        return [
            f"Longer documents show more evidence, so {names[0]} rises with their length. To see the cost, add "
            f"'objectives=[{names[0]},{precision}]'."
        ]

    def _notes_on_groups(self) -> list[str]:
        keys, count = " or ".join(dict.fromkeys(key for one in self.groups for key in one.apart)), len(self.groups)
        found = [f"Trials that differ in {keys} are not comparable: they form {count} groups, each with a best trial."]
        if system := self.best_system:
            mean = f"{system.mean:.4f}{f' with {system.name}' if system.name else ''}"
            found.append(f"The best mean {self.objectives[0].name} over the {count} groups is {mean}.")
        if cut_in_different_ways(self.trials.values()):
            found.append(
                "The groups have the same evidence, and their documents are cut from the same texts in different ways: "
                f"objective={SPAN_MEASURES[0]} counts characters of evidence, and can rank all trials together."
            )
        return found

    @property
    def label(self) -> str:
        return " ".join(f"{key}={value}" for key, value in self.apart.items())

    @property
    def front(self) -> list[int]:
        """The Pareto front, best first: a trial is on it if no other is better in one objective and worse in none."""
        whole = [number for number in self.finished if np.isfinite(self.rows[number].values).all()]
        points = np.array([self.rows[number].values for number in whole]).reshape(-1, len(self.objectives))
        points *= [1 if direction == "maximize" else -1 for _, direction in self.objectives]
        beaten = [bool(((points >= p).all(axis=1) & (points > p).any(axis=1)).any()) for p in points]
        return [number for number, worse in zip(whole, beaten, strict=True) if not worse]

    @cached_property
    def rows(self) -> dict[int, TrialRow]:
        return {number: self._row(trial, self.results.get(number)) for number, trial in self.trials.items()}

    def _row(self, trial: Trial, result: TrialResult | None) -> TrialRow:
        names = [name for name, _ in self.objectives]
        if result is None:
            return TrialRow(trial.number, trial.overrides, dict.fromkeys(names, math.nan))
        values = objective_values(result, self.objectives, self.select_on)
        found = result.objective
        return TrialRow(
            trial.number,
            trial.overrides,
            dict(zip(names, values, strict=True)),
            interval=(found.low, found.high) if found else (math.nan, math.nan),
            kind=found.kind if found else "",
            run_id=result.run_id,
            reused=result.reused,
            status=result.status,
            seconds=result.seconds,
            error=result.error,
        )

    @property
    def ranked_by(self) -> Objective | None:
        return None if self.best is None else self.results[self.best].objective

    @property
    def top(self) -> list[TrialRow]:
        return [self.rows[number] for number in self.finished[:SHOWN]]

    @property
    def kinds(self) -> list[str]:
        return list(dict.fromkeys(row.kind for row in self.top))

    def counts(self) -> dict[str, int]:
        """Count the trials.

        skipped: finished before this start. reused: taken from another sweep or run. same: repeat another trial's key.
        """
        results = self.results.values()
        keys = [result.key for result in results if result.key]
        return {
            "asked": len(self.trials),
            **{status.lower(): sum(one.status == status for one in results) for status in get_args(Status)},
            "skipped": sum(result.key in self.skipped for result in results),
            "reused": sum(result.reused for result in results),
            "same": len(keys) - len(set(keys)),
        }

    @property
    def private_views(self) -> int:
        """The number of runs whose private scores this start of the sweep shows when it ends."""
        if self.groups:
            return sum(group.private_views for group in self.groups)
        if self.select_on == "public":
            return int(self.best is not None)
        return sum(self.results[number].key not in self.skipped for number in self.finished)

    def axes(self) -> dict[str, list[float | str | None]]:
        """Return swept key -> its value in each trial, None if absent; floats if all values of the key are numbers."""
        rows = [swept_values(trial.overrides) for trial in self.trials.values()]
        keys = dict.fromkeys(key for row in sorted(rows, key=len, reverse=True) for key in row)
        return {key: _numbers([row.get(key) for row in rows]) for key in keys if key not in self.apart}

    def table(self) -> dict[str, list[Any]]:
        rows = list(self.rows.values())
        columns: dict[str, list[Any]] = {
            "trial": [row.trial for row in rows],
            "status": [row.status for row in rows],
            **{name: [row.objectives[name] for row in rows] for name, _ in self.objectives},
            "low": [row.interval[0] for row in rows],
            "high": [row.interval[1] for row in rows],
            "kind": [row.kind for row in rows],
            **self.axes(),
            "seconds": [round(row.seconds, 3) for row in rows],
            "reused": [row.reused for row in rows],
            "run_id": [row.run_id for row in rows],
            "error": [row.error for row in rows],
        }
        return {name: encoded(values) for name, values in columns.items()}

    def parent_metrics(self) -> dict[str, float]:
        metrics = dict(self.results[self.best].metrics) if self.best is not None else {}
        if one := self.expected:
            ends = {name: getattr(one, name) for name in ("value", "low", "high")}
            metrics |= {f"expected/{name}": value for name, value in ends.items() if not np.isnan(value)}
        if self.automatic:
            metrics |= self.automatic.metrics()
        if system := self.best_system:
            metrics[f"mean/{self.objectives[0].name}"] = system.mean
        return metrics | {f"trials/{name}": float(count) for name, count in self.counts().items()}

    def parent_tags(self, pages: Mapping[str, str]) -> dict[str, str]:
        """Return the tags of the parent run. pages: a group's label ("" without groups) -> link to the trials."""
        if all(part.best is None for part in self.parts):
            return {}
        tags = {ONLY_BEST: str(self.only_best)} if self.only_best else {}
        tags |= {NOTE: as_note(self._note(pages))} | ({"sweep.page": page} if (page := pages.get("")) else {})
        if self.best is not None:
            tags |= {"best.trial": str(self.best), "best.overrides": " ".join(self.trials[self.best].overrides)}
            run_id = self.results[self.best].run_id
            tags |= {"best.run_id": run_id} if run_id else {}
        return tags

    @property
    def without_run(self) -> str:
        """Say which trials are no runs of the tracking store; "" if all are."""
        count = sum(result.status != "KILLED" and not result.run_id for result in self.results.values())
        if self.only_best is None or not count:
            return ""
        return (
            f"{counted(count, 'trial')} {'is' if count == 1 else 'are'} in trials.csv alone (tracking.trials=best:"
            f"{self.only_best}). To make a run of one, pass its values to `harness run`."
        )

    def _note(self, pages: Mapping[str, str]) -> str:
        notes = [part.best_note(pages.get(part.label, "")) for part in self.parts if part.best is not None]
        if self.groups:
            notes.insert(0, " ".join(self.notes))
        reused = self.counts()["reused"]
        again = f" {reused} of the trials reused earlier runs. Those have this sweep's tag, but are not nested below."
        all_trials = f"All trials: trials.json, trials.csv.{again if reused else ''}"
        return "\n\n".join([*notes, " ".join(filter(None, (all_trials, self.without_run)))])

    def best_note(self, page: str) -> str:
        """Describe the best trial in Markdown. page: the link to the list of trials, or ""."""
        best = self.rows[self.best or 0]
        low, high = best.interval
        interval = "" if np.isnan(low) else f" ({low:.3f} to {high:.3f})"
        where = f" with {self.label}" if self.apart else ""
        note = (
            f"Best of {counted(len(self.trials), 'trial')}{where}: {self.objectives[0].name}, {best.kind}, "
            f"**{best.value:.4f}**{interval} with `{' '.join(best.overrides)}`, run {short_id(best.run_id or '')}."
        )
        listed = f"[The runs, best first]({page})." if page else ""
        of_procedure = self.automatic.procedure.sentence if self.automatic else ""
        return " ".join(filter(None, [note, listed, *self.expectation, *self.notes, of_procedure]))

    def document(self) -> dict[str, Any]:
        failed = [row for row in self.rows.values() if row.status == "FAILED"]
        return {
            "run_id": self.run_id,
            "experiment": self.experiment,
            "sweep_id": self.sweep_id,
            "objective": self.objectives[0].name,
            "trials": self.counts(),
            **self._ranked(),
            **(encoded(self.automatic) if self.automatic else {}),
            "groups": [{"apart": one.apart, "trials": len(one.trials), **one._ranked()} for one in self.groups],
            "systems": self.systems,
            "failed": [{"trial": row.trial, "overrides": row.overrides, "error": row.error} for row in failed],
        }

    def _ranked(self) -> dict[str, Any]:
        return {
            "best": None if self.best is None else self.rows[self.best],
            "top": self.top,
            "tied": self.recommended.tied if self.recommended else [],
            "notes": self.notes,
            "expected": self.expected,
            "front": [self.rows[number] for number in self.front] if len(self.objectives) > 1 else None,
        }


def objective_values(result: TrialResult, objectives: Sequence[SweepObjective], select_on: str) -> list[float]:
    """Return the values of a trial's objectives; NaN if absent. Scores are computed on the queries that rank
    the runs (`select_on`), other values, such as times, on all queries."""
    parts = ["all" if name.startswith(LESS_IS_BETTER) else select_on for name, _ in objectives[1:]]
    others = (measured(result.metrics, name, part) for (name, _), part in zip(objectives[1:], parts, strict=True))
    return [one.value if one else np.nan for one in (result.objective, *others)]


def _numbers(values: list[str | None]) -> list[float | str | None]:
    try:
        return [None if value is None else float(value) for value in values]
    except ValueError:
        return list(values)
