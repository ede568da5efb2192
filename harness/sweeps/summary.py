"""A sweep in numbers: the best trials, the Pareto front, counts, and the parent run's metrics and tags.

Trials compare if the same queries and labels score them by the same rules: what `harness compare` asks of runs. A sweep
over data sets, or over schemes of a task, therefore has several groups of trials, each with a best one of its own. So
has one over ways to cut texts into documents, unless its objectives count characters of evidence.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, get_args

import numpy as np

from harness.analysis.board.expected import Expected
from harness.config.components import asks_model
from harness.config.text import counted, short_id
from harness.experiment.timing import MS
from harness.gates.calibration import CLOSE
from harness.measures.measures import SPAN_MEASURES
from harness.measures.objective import Objective
from harness.measures.scores import plain
from harness.reports import markup
from harness.sweeps.auto.procedure import Automatic
from harness.sweeps.plan import Trial, cut_in_different_ways, keys_that_change, swept_values
from harness.sweeps.recommendation import Edge, Points, Recommendation, recommend
from harness.sweeps.search import SweepObjective
from harness.sweeps.trials import Status, TrialResult
from harness.tracking.tracker import LESS_IS_BETTER, NOTE, as_note, measured

SHOWN = 10  # best trials that are listed


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


def _systems(parts: Sequence[SweepSummary]) -> list[System]:
    """Return what groups were tried with: by their means where there are means, else in the order of the trials."""
    found: dict[tuple[str, ...], list[int | None]] = {}
    for place, part in enumerate(parts):
        for number, trial in part.trials.items():
            own = tuple(word for word in trial.overrides if word.partition("=")[0] not in part.apart)
            row = found.setdefault(own, [None] * len(parts))
            row[place] = number if row[place] is None else row[place]
    alike = len({trial.rules for part in parts for trial in part.trials.values()}) == 1
    rows = []
    for own, numbers in found.items():
        values = [math.nan if n is None else part.values(n)[0] for n, part in zip(numbers, parts, strict=True)]
        rows.append(System(own, tuple(numbers), tuple(values), sum(values) / len(values) if alike else math.nan))
    return sorted(rows, key=lambda one: math.inf if math.isnan(one.mean) else -one.mean)


@dataclass(frozen=True, eq=False)
class SweepSummary:
    """The trials of a sweep and their results, by number.

    run_id: of the parent run. skipped: keys of the trials that finished before.
    apart: swept key -> its values that set these trials apart from those that they do not compare with.
    groups: a summary of each group of trials that compare; () if all do. Then nothing is the best of the whole.
    edges: the numeric keys whose best value is at the edge of what was tried.
    systems: what the groups were tried with, where there are groups.
    objectives: the first one ranks the trials, by the objective of their runs: out of fold if something was learnt,
        over the public part with select_on=public.
    expected: what to expect on new queries, of the best run of the experiment that compares with the best trial.
    automatic: of an automatic sweep that is over: how its procedure does on queries that it has not seen.
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

    def grouped(self) -> SweepSummary:
        """Return it with a summary of each group of trials that compare, and the systems, unless all trials compare.

        A trial that cannot run is in no group.
        """
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
            texts = [swept_values(trial) for trial in trials.values()]
            values = {key: ",".join(dict.fromkeys(text[key] for text in texts if key in text)) for key in keys}
            apart = {key: value for key, value in values.items() if value}
            parts.append(replace(self, trials=trials, results=results, apart=apart))
        return replace(self, groups=parts, systems=_systems(parts))

    @property
    def best_system(self) -> System | None:
        """The system with the greatest mean, the first of equals; None if no system has a mean."""
        known = [one for one in self.systems if not math.isnan(one.mean)]
        return next((one for one in known if one.mean > known[0].mean - CLOSE), None)

    @property
    def parts(self) -> Sequence[SweepSummary]:
        """The groups; itself where all trials compare."""
        return self.groups or [self]

    @property
    def finished(self) -> list[int]:
        """Numbers of the finished trials, best first; [] if they do not all compare."""
        value, best = self._finished, self.best
        return [] if self.groups else sorted(value, key=lambda n: (n != best, -value[n], n))

    @cached_property
    def _finished(self) -> dict[int, float]:
        """The finished trials and what ranks them."""
        values = {n: self.values(n)[0] for n, result in self.results.items() if result.status == "FINISHED"}
        return {n: value for n, value in values.items() if value == value}

    @cached_property
    def points(self) -> Points:
        """The finished trials; one of those that are the same."""
        different = {self.results[n].key: n for n in sorted(self._finished, reverse=True)}
        value = {n: self._finished[n] for n in sorted(different.values())}
        axes = self.axes()
        numeric = [key for key, values in axes.items() if all(isinstance(one, float | None) for one in values)]
        texts = {n: {key: text for key, text in swept_values(self.trials[n]).items() if key in axes} for n in value}
        ms = {n: self.results[n].metrics.get(MS, np.nan) for n in value}
        return Points(value, texts, numeric, ms, [n for n in value if asks_model(self.trials[n].config)])

    @cached_property
    def recommended(self) -> Recommendation | None:
        """The best finished trial, of equals the one to take; None if no trial finished, or if they do not compare."""
        return None if self.groups else recommend(self.points)

    @property
    def best(self) -> int | None:
        """The number of the recommended trial."""
        return self.recommended.trial if self.recommended else None

    @property
    def notes(self) -> list[str]:
        """What to know of the best trial: why this one of equals, and where it may pay to try more.

        Of a whole with groups: what does not compare, and which system is the best on average.
        """
        if self.groups:
            return self._notes_on_groups()
        tie = [self.recommended.reason] if self.recommended and self.recommended.reason else []
        return [*tie, *(edge.note for edge in self.edges), *self._notes_on_cuts(), *self._notes_on_labels()]

    @property
    def expectation(self) -> list[str]:
        """What to expect on new queries, in sentences; of another run where that is the best of the experiment."""
        one = self.expected
        if one is None:
            return []
        own = {result.run_id for result in self.results.values()}
        before = f"The best run of the experiment is another one, {short_id(one.run_id or '')}: {one.best:.4f}."
        return [*([] if one.run_id in own else [before]), one.sentence]

    def _notes_on_labels(self) -> list[str]:
        """What the best trial's value is worth where labels come partly from a model."""
        objective = self.results[self.best].objective if self.best is not None else None
        if objective is None or objective.estimate is None:
            return []
        found = objective.estimate
        return [
            f"Values are raw, {markup.raw_share(found)}, and so have no interval. Of the best trial: "
            f"{markup.estimated(found, objective.title)}."
        ]

    def _notes_on_cuts(self) -> list[str]:
        """What to mind where documents of different lengths are ranked by how much evidence the first k show."""
        names = [objective.name for objective in self.objectives]
        if not cut_in_different_ways(self.trials.values()) or any(not name.startswith("span_recall") for name in names):
            return []
        precision = names[0].replace("recall", "precision")
        return [
            f"The first documents show more if they are longer, so that {names[0]} rises with their length. "
            f"'objectives=[{names[0]},{precision}]' says what that costs."
        ]

    def _notes_on_groups(self) -> list[str]:
        keys, count = " or ".join(dict.fromkeys(key for one in self.groups for key in one.apart)), len(self.groups)
        found = [f"Trials that differ in {keys} do not compare: {count} groups, each with a best trial of its own."]
        if system := self.best_system:
            mean = f"{system.mean:.4f}{f' with {system.name}' if system.name else ''}"
            found.append(f"The best mean {self.objectives[0].name} over the {count} groups is {mean}.")
        if cut_in_different_ways(self.trials.values()):
            found.append(
                "They have the same evidence, and documents that were cut from the same texts in different ways: "
                f"objective={SPAN_MEASURES[0]} counts characters of evidence, and ranks all of them."
            )
        return found

    @property
    def label(self) -> str:
        """What sets the trials apart, as key=value."""
        return " ".join(f"{key}={value}" for key, value in self.apart.items())

    @property
    def front(self) -> list[int]:
        """Numbers of the trials that no other trial matches in every objective and beats in one, best first."""
        whole = [number for number in self.finished if np.isfinite(self.values(number)).all()]
        points = np.array([self.values(number) for number in whole]).reshape(-1, len(self.objectives))
        points *= [1 if direction == "maximize" else -1 for _, direction in self.objectives]
        beaten = [bool(((points >= p).all(axis=1) & (points > p).any(axis=1)).any()) for p in points]
        return [number for number, worse in zip(whole, beaten, strict=True) if not worse]

    def values(self, number: int) -> list[float]:
        """The objectives of a trial; NaN for those that it lacks."""
        if number not in self.results:
            return [np.nan] * len(self.objectives)
        return objective_values(self.results[number], self.objectives, self.select_on)

    @property
    def ranked_by(self) -> Objective | None:
        """The objective of the best trial; None if no trial finished."""
        return None if self.best is None else self.results[self.best].objective

    def kind(self, number: int) -> str:
        """What a trial's value rests on, such as `out of fold`; "" if it has none."""
        result = self.results.get(number)
        return result.objective.kind if result and result.objective else ""

    @property
    def kinds(self) -> list[str]:
        """The different kinds of the trials that are listed."""
        return list(dict.fromkeys(self.kind(number) for number in self.finished[:SHOWN]))

    def interval(self, number: int) -> tuple[float, float]:
        """(low, high) of the first objective; NaN if it has no interval."""
        objective = self.results[number].objective if number in self.results else None
        return (objective.low, objective.high) if objective else (np.nan, np.nan)

    def counts(self) -> dict[str, int]:
        """Numbers of trials by status.

        asked: all. skipped: those of the finished ones that finished before. reused: those of them that another sweep
        or a single run made. same: those with the key of another.
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
        """How many runs show new private scores: those of this start, or only the best with select_on=public."""
        if self.groups:
            return sum(group.private_views for group in self.groups)
        if self.select_on == "public":
            return int(self.best is not None)
        return sum(self.results[number].key not in self.skipped for number in self.finished)

    def axes(self) -> dict[str, list[float | str | None]]:
        """Swept key, of those that do not set the trials apart -> its value in each trial, as numbers if all are.

        None for a trial whose choices do not have the key.
        """
        rows = [swept_values(trial) for trial in self.trials.values()]
        keys = dict.fromkeys(key for row in sorted(rows, key=len, reverse=True) for key in row)
        return {key: _numbers([row.get(key) for row in rows]) for key in keys if key not in self.apart}

    def table(self) -> dict[str, list[Any]]:
        """Column -> values, one row per trial."""
        numbers = list(self.trials)
        results = [self.results.get(number) for number in numbers]
        low, high = zip(*(self.interval(number) for number in numbers), strict=True) if numbers else ((), ())
        values = {
            name: plain([self.values(number)[i] for number in numbers]) for i, (name, _) in enumerate(self.objectives)
        }
        return {
            "trial": numbers,
            "status": [result.status if result else "" for result in results],
            **values,
            "low": plain(low),
            "high": plain(high),
            "kind": [self.kind(number) for number in numbers],
            **self.axes(),
            "seconds": [round(result.seconds, 3) if result else None for result in results],
            "reused": [result.reused if result else False for result in results],
            "run_id": [result.run_id if result else None for result in results],
            "error": [result.error if result else "" for result in results],
        }

    def parent_metrics(self) -> dict[str, float]:
        """The metrics of the parent run: those of the best trial, what to expect, and the counts."""
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
        """The tags of the parent run, its description among them.

        pages: label of a group -> the page that lists its trials; "" stands for the whole.
        """
        if all(part.best is None for part in self.parts):
            return {}
        tags = {NOTE: as_note(self._note(pages))} | ({"sweep.page": page} if (page := pages.get("")) else {})
        if self.best is not None:
            tags |= {"best.trial": str(self.best), "best.overrides": " ".join(self.trials[self.best].overrides)}
            run_id = self.results[self.best].run_id
            tags |= {"best.run_id": run_id} if run_id else {}
        return tags

    def _note(self, pages: Mapping[str, str]) -> str:
        """The description of the parent run, in Markdown."""
        notes = [part.best_note(pages.get(part.label, "")) for part in self.parts if part.best is not None]
        if self.groups:
            notes.insert(0, " ".join(self.notes))
        reused = self.counts()["reused"]
        again = f" {reused} of them reused runs that were there before; these are marked, and not nested below."
        return "\n\n".join([*notes, f"All trials: trials.json, trials.csv.{again if reused else ''}"])

    def best_note(self, page: str) -> str:
        """The best trial in a paragraph of Markdown. page: that lists the trials; "" for none."""
        best = self.best or 0
        low, high = self.interval(best)
        interval = "" if np.isnan(low) else f" ({low:.3f} to {high:.3f})"
        where = f" with {self.label}" if self.apart else ""
        note = (
            f"Best of {counted(len(self.trials), 'trial')}{where}: {self.objectives[0].name}, {self.kind(best)}, "
            f"**{self.values(best)[0]:.4f}**{interval} with `{' '.join(self.trials[best].overrides)}`, "
            f"run {short_id(self.results[best].run_id or '')}."
        )
        listed = f"[The runs, best first]({page})." if page else ""
        of_procedure = self.automatic.procedure.sentence if self.automatic else ""
        return " ".join(filter(None, [note, listed, *self.expectation, *self.notes, of_procedure]))

    def to_json(self) -> dict[str, Any]:
        failed = [number for number, result in self.results.items() if result.status == "FAILED"]
        return {
            "run_id": self.run_id,
            "experiment": self.experiment,
            "sweep_id": self.sweep_id,
            "objective": self.objectives[0].name,
            "trials": self.counts(),
            **self._ranked(),
            **(self.automatic.to_json() if self.automatic else {}),
            "groups": [{"apart": dict(one.apart), "trials": len(one.trials), **one._ranked()} for one in self.groups],
            "systems": [plain(asdict(system)) for system in self.systems],
            "failed": [
                {"trial": n, "overrides": list(self.trials[n].overrides), "error": self.results[n].error}
                for n in failed
            ],
        }

    def _ranked(self) -> dict[str, Any]:
        """The best trials and what is said of them, in the JSON document."""
        return {
            "best": None if self.best is None else self._trial(self.best),
            "top": [self._trial(number) for number in self.finished[:SHOWN]],
            "tied": list(self.recommended.tied) if self.recommended else [],
            "notes": self.notes,
            "expected": self.expected.to_json() if self.expected else None,
            "front": [self._trial(number) for number in self.front] if len(self.objectives) > 1 else None,
        }

    def _trial(self, number: int) -> dict[str, Any]:
        """A finished trial in the JSON document."""
        low, high = self.interval(number)
        values = dict(zip((name for name, _ in self.objectives), map(plain, self.values(number)), strict=True))
        return {
            "trial": number,
            "run_id": self.results[number].run_id,
            "reused": self.results[number].reused,
            "overrides": list(self.trials[number].overrides),
            "value": values[self.objectives[0].name],
            "interval": [plain(low), plain(high)],
            "kind": self.kind(number),
            "objectives": values,
        }


def objective_values(result: TrialResult, objectives: Sequence[SweepObjective], select_on: str) -> list[float]:
    """The objectives of a trial, each of the kind by which runs are ranked; NaN for those that it lacks.

    objectives: the first one is the objective of the runs.
    """
    parts = ["all" if name.startswith(LESS_IS_BETTER) else select_on for name, _ in objectives[1:]]
    others = (measured(result.metrics, name, part) for (name, _), part in zip(objectives[1:], parts, strict=True))
    return [one.value if one else np.nan for one in (result.objective, *others)]


def _numbers(values: list[str | None]) -> list[float | str | None]:
    try:
        return [None if value is None else float(value) for value in values]
    except ValueError:
        return list(values)
