"""A sweep in numbers: the best trials, the Pareto front, counts, and the parent run's metrics and tags."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.commands.sweep.optimism import Optimism
from harness.commands.sweep.plan import Trial
from harness.commands.sweep.search import Objective
from harness.commands.sweep.trials import Result
from harness.tracking.tracker import LESS_IS_BETTER, mlflow_name, ranked_by

SHOWN = 10  # best trials that are listed


@dataclass(frozen=True, eq=False)
class Summary:
    """The trials of a sweep and their results, by number.

    run_id: of the parent run. skipped: keys of the trials that finished before.
    objectives: the first one ranks the trials, by the number that `tracker.ranked_by` names: out-of-fold if a gate
        was fitted, on the public part with select_on=public.
    optimism: how much of the best score is luck, if that is known.
    """

    sweep_id: str
    run_id: str | None
    experiment: str
    trials: Mapping[int, Trial]
    results: Mapping[int, Result]
    skipped: Collection[str]
    objectives: Sequence[Objective]
    select_on: str = "all"
    optimism: Optimism | None = None

    @property
    def finished(self) -> list[int]:
        """Numbers of the finished trials, best first."""
        value = {n: self.values(n)[0] for n, result in self.results.items() if result.status == "FINISHED"}
        return sorted((n for n in value if value[n] == value[n]), key=lambda n: (-value[n], n))

    @property
    def best(self) -> int | None:
        """Number of the best finished trial, the first of equals; None if no trial finished."""
        return next(iter(self.finished), None)

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
        metrics = self.results[number].metrics if number in self.results else {}
        return objective_values(metrics, self.objectives, self.select_on)

    def interval(self, number: int) -> tuple[float, float]:
        """(low, high) of the first objective; NaN if it has no interval, as on the public part."""
        metrics, name = self.results[number].metrics, self.objectives[0].name
        ranked = ranked_by(metrics, name, self.select_on) or ""
        prefix = ranked.removesuffix(mlflow_name(name))
        low, high = (metrics.get(mlflow_name(f"{prefix}interval_{end}/{name}"), np.nan) for end in ("low", "high"))
        return low, high

    def counts(self) -> dict[str, int]:
        """Numbers of trials by status.

        asked: all. skipped: those of the finished ones that finished before. reused: those of them that another sweep
        or a single run made. same: those with the key of another.
        """
        keys = [result.key for result in self.results.values() if result.key]
        by_status = dict.fromkeys(("finished", "failed", "killed"), 0)
        for result in self.results.values():
            by_status[result.status.lower()] += 1
        skipped = sum(result.key in self.skipped for result in self.results.values())
        reused = sum(result.reused for result in self.results.values())
        same = len(keys) - len(set(keys))
        return {"asked": len(self.trials), **by_status, "skipped": skipped, "reused": reused, "same": same}

    @property
    def private_views(self) -> int:
        """How many runs show new private scores: those of this start, or only the best with select_on=public."""
        if self.select_on == "public":
            return int(self.best is not None)
        return sum(self.results[number].key not in self.skipped for number in self.finished)

    def axes(self) -> dict[str, list[float | str]]:
        """Swept key -> its value in each trial, as numbers if all of them are."""
        rows = [swept_values(trial) for trial in self.trials.values()]
        return {key: _numbers([row.get(key, "") for row in rows]) for key in (rows[0] if rows else {})}

    def table(self) -> dict[str, list[Any]]:
        """Column -> values, one row per trial."""
        numbers = list(self.trials)
        results = [self.results.get(number) for number in numbers]
        values = [self.values(number) for number in numbers]
        ends = [self.interval(number) if number in self.results else (np.nan, np.nan) for number in numbers]
        columns: dict[str, list[Any]] = {"trial": numbers}
        columns |= {"status": [result.status if result else "" for result in results]}
        for i, (name, _) in enumerate(self.objectives):
            columns[name] = [_plain(value[i]) for value in values]
        columns |= {"low": [_plain(low) for low, _ in ends], "high": [_plain(high) for _, high in ends]}
        columns |= {key: list(values) for key, values in self.axes().items()}
        columns["seconds"] = [round(result.seconds, 3) if result else None for result in results]
        columns["reused"] = [result.reused if result else False for result in results]
        columns["run_id"] = [result.run_id if result else None for result in results]
        columns["error"] = [result.error if result else "" for result in results]
        return columns

    def parent_metrics(self) -> dict[str, float]:
        """The metrics of the parent run: those of the best trial, its optimism, and the counts."""
        metrics = dict(self.results[self.best].metrics) if self.best is not None else {}
        if self.optimism:
            metrics |= {f"optimism/{name}": getattr(self.optimism, name) for name in ("luck", "unseen")}
        return metrics | {f"trials/{name}": float(count) for name, count in self.counts().items()}

    def parent_tags(self, page: str) -> dict[str, str]:
        """The tags of the parent run, its description among them. page: where its trials are listed."""
        if self.best is None:
            return {}
        run_id, overrides = self.results[self.best].run_id, " ".join(self.trials[self.best].overrides)
        tags = {"best.trial": str(self.best), "best.overrides": overrides, "mlflow.note.content": self._note(page)}
        return tags | ({"best.run_id": run_id} if run_id else {}) | ({"sweep.page": page} if page else {})

    def _note(self, page: str) -> str:
        """The description of the parent run, in Markdown."""
        best = self.best or 0
        low, high = self.interval(best)
        interval = "" if np.isnan(low) else f" ({low:.3f} to {high:.3f})"
        note = (
            f"Best of {len(self.trials)} trials: {self.objectives[0].name} **{self.values(best)[0]:.4f}**{interval} "
            f"with `{' '.join(self.trials[best].overrides)}`, run {self.results[best].run_id}. "
            "All trials: trials.json, trials.csv"
        )
        note += f", and [their runs, best first]({page})." if page else "."
        if reused := self.counts()["reused"]:
            note += f" {reused} of them reused runs that were there before; these are marked, and not nested below."
        return note + (f"\n\n{self.optimism.sentence()}" if self.optimism else "")

    def to_json(self) -> dict[str, Any]:
        failed = [number for number, result in self.results.items() if result.status == "FAILED"]
        return {
            "run_id": self.run_id,
            "experiment": self.experiment,
            "sweep_id": self.sweep_id,
            "objective": self.objectives[0].name,
            "trials": self.counts(),
            "best": None if self.best is None else self._trial(self.best),
            "top": [self._trial(number) for number in self.finished[:SHOWN]],
            "optimism": self.optimism.to_json() if self.optimism else None,
            "front": [self._trial(number) for number in self.front] if len(self.objectives) > 1 else None,
            "failed": [
                {"trial": n, "overrides": list(self.trials[n].overrides), "error": self.results[n].error}
                for n in failed
            ],
        }

    def _trial(self, number: int) -> dict[str, Any]:
        """A finished trial in the JSON document."""
        low, high = self.interval(number)
        values = dict(zip((name for name, _ in self.objectives), map(_plain, self.values(number)), strict=True))
        return {
            "trial": number,
            "run_id": self.results[number].run_id,
            "reused": self.results[number].reused,
            "overrides": list(self.trials[number].overrides),
            "value": values[self.objectives[0].name],
            "interval": [_plain(low), _plain(high)],
            "objectives": values,
        }


def objective_values(metrics: Mapping[str, float], objectives: Sequence[Objective], select_on: str) -> list[float]:
    """The objectives of a run, each the number by which runs are ranked; NaN for those that it lacks.

    metrics: by MLflow's names.
    """
    keys = [ranked_by(metrics, name, "all" if name.startswith(LESS_IS_BETTER) else select_on) for name, _ in objectives]
    return [metrics[key] if key else np.nan for key in keys]


def swept_values(trial: Trial) -> dict[str, str]:
    """Swept key -> the trial's value, without quotes."""
    parts = (override.partition("=") for override in trial.overrides)
    return {key: value.strip("'\"") for key, _, value in parts}


def _numbers(values: list[str]) -> list[float | str]:
    try:
        return [float(value) for value in values]
    except ValueError:
        return list(values)


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
