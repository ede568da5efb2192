"""A sweep: its swept keys, its trials, its objectives, and the part of Hydra that launches its jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from harness.config.canonical import digest
from harness.config.commands import SweepConfig
from harness.config.components import build
from harness.config.composing import Composer
from harness.errors import BadInput, Failed
from harness.experiment.timing import MS
from harness.measures.measures import SPAN_MEASURES
from harness.recording import provenance
from harness.recording.run_kind import RunKind
from harness.sweeps import plan
from harness.sweeps.auto.out_of_fold import Automatic
from harness.sweeps.axes import Axis, axis_of
from harness.sweeps.jobs import Jobs
from harness.sweeps.plan import Planner, SweepObjective, Trial
from harness.sweeps.trials import TrialResult
from harness.tracking.tracker import LESS_IS_BETTER, Tracker

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override
    from hydra.core.utils import JobReturn


class JobsLost(Failed):
    """Raised if jobs end without a result. of: job number -> one line that says how the job ended."""

    def __init__(self, message: str, of: Mapping[int, str]) -> None:
        super().__init__(message)
        self.of = of


@dataclass(frozen=True)
class HydraLauncher:
    """The part of Hydra that a sweep uses.

    overrides: the overrides of a named sweep and of the command line.
    check: raises BadInput or Failed if the jobs cannot start.
    launch: (overrides of each job, number of the first job) -> the results of the jobs. Every job calls `jobs`.
    """

    overrides: Sequence[str]
    composer: Composer
    parse: Callable[[list[str]], list[Override]]
    check: Callable[[], None]
    launch: Callable[[list[list[str]], int], Sequence[JobReturn]]
    jobs: Jobs
    config_dir: str | None = None


class Way(Protocol):
    """A way to choose the trials of a sweep."""

    name: str = ""  # the name of the parent run; "" names it after the swept keys
    per_job: int = 25  # the maximum number of trials in a job if jobs run in parallel

    def check(self, config: SweepConfig, swept: Iterable[str], fixed: Iterable[str]) -> None:
        """Raise BadInput if this way cannot use the swept keys or the fixed overrides."""
        if config.budget is not None:
            raise BadInput(f"budget={config.budget} has an effect only with sweep=auto: leave it out.")

    def points(self, planner: Planner, axes: Mapping[str, Axis]) -> list[Trial]:
        """Return all trials if they are known before the first trial runs, else []."""
        return []

    def planned(self, sweep: Sweep, finished: Mapping[str, TrialResult]) -> tuple[dict[str, Any], Iterable[str]]:
        """Return the plan as JSON values and as lines of text. finished: trial key -> result of an earlier start."""

    def runner(self, sweep: Sweep) -> Callable[[Any], Automatic | None]:
        """Return the function that runs the trials of an `Execution`. Raise BadInput if they cannot run."""


@dataclass(frozen=True, eq=False)
class Sweep:
    """A sweep that can run.

    fixed: the overrides that all trials share. points: the trials of a grid; [] for a search.
    anchor: the key of a trial that can run. Together with the axes, it identifies a search.
    partial: key that only some trials have -> the choices that have the key, as group=choice.
    config: the config of the first trial whose config can be read.
    """

    launcher: HydraLauncher
    fixed: list[str]
    swept: dict[str, Override]
    axes: dict[str, Axis]
    planner: Planner
    points: list[Trial]
    anchor: str
    partial: Mapping[str, Sequence[str]]
    config: SweepConfig
    way: Way

    @cached_property
    def kind(self) -> RunKind:
        return RunKind(self.config.document.get("task"))

    @property
    def trials_per_job(self) -> int | None:
        """The maximum number of trials in a job; None: no limit."""
        return self.config.trials_per_job or (None if self.launcher.jobs.serial else self.way.per_job)

    @cached_property
    def objectives(self) -> list[SweepObjective]:
        names = self.config.objectives or [self.config.objective]
        if names[0] != self.config.objective:
            raise BadInput(
                f"objectives=[{','.join(names)}] must begin with the objective that ranks the trials: put "
                f"{self.config.objective} first, or set objective={names[0]}."
            )
        for name in names:
            self.kind.check_objective(self.config.metrics, name)
        return [SweepObjective(name, "minimize" if name.startswith(LESS_IS_BETTER) else "maximize") for name in names]

    @property
    def times(self) -> set[str]:
        return {objective.name for objective in self.objectives if objective.name.startswith(MS)}

    @cached_property
    def sweep_id(self) -> str:
        """The id by which a restarted sweep finds its parent run and its folder."""
        if self.points:
            identity: list[Any] = sorted(trial.key or " ".join(trial.overrides) for trial in self.points)
        else:
            search = {k: v for k, v in self.config.search.items() if k not in ("trials", "batch", "budget")}
            identity = [search, [override.input_line for override in self.swept.values()], self.anchor]
        return digest([identity, self.objectives])[:12]

    @property
    def folder(self) -> Path:
        return self.config.outputs.absolute() / "sweeps" / self.sweep_id

    @property
    def tags(self) -> dict[str, str]:
        return provenance.provenance({}) | {"harness.verb": "sweep", "sweep.id": self.sweep_id}

    def tracker(self) -> Tracker:
        tracker: Tracker = build(self.config.tracking, where="tracking")
        return tracker


def define(launcher: HydraLauncher) -> Sweep:
    """Define a sweep. Check all trials of a grid, two corners of a search space, or the config given to sweep=auto."""
    fixed, swept = plan.split_overrides(_with_objective(launcher.parse(list(launcher.overrides)), launcher.parse))
    composer = launcher.composer
    planner = Planner(composer, fixed)
    axes = {key: axis_of(override) for key, override in swept.items()}
    some = {key: [f"{key}={text}" for text in axis.extremes] for key, axis in axes.items()}
    partial = composer.partial(fixed, some)
    tried = [planner.trial(0, [one[end] for one in some.values()]) for end in (0, -1)]
    way: Way = build(planner.search, where="search")
    if planner.config:
        way.check(planner.config, swept, fixed)
    points = way.points(planner, axes)
    tried = points or tried
    if (anchor := next((trial.key for trial in tried if not trial.error), None)) is None or planner.config is None:
        raise next(trial.error for trial in tried if trial.error)
    if not points:
        _refuse_groups(planner, some)
    if len(names := {trial.plan.objective for trial in tried if trial.plan and not trial.error}) > 1:
        raise BadInput(f"Trials have different objectives ({', '.join(sorted(names))}): sweep one task at a time.")
    return Sweep(launcher, fixed, swept, axes, planner, points, anchor, partial, planner.config, way)


def _with_objective(overrides: list[Override], parse: Callable[[list[str]], list[Override]]) -> list[Override]:
    given = {one.key_or_group: one for one in overrides}
    names = given["objectives"].value() if "objectives" in given and "objective" not in given else None
    if isinstance(names, list) and names and not str(names[0]).startswith(LESS_IS_BETTER):
        return [*overrides, *parse([f"objective={names[0]}"])]
    return overrides


def _refuse_groups(planner: Planner, some: Mapping[str, Sequence[str]]) -> None:
    first = {key: overrides[0] for key, overrides in some.items()}
    for key in some:
        trials = [planner.trial(0, tuple((first | {key: one}).values())) for one in some[key]]
        if len({(trial.data, trial.rules) for trial in trials if not trial.error}) > 1:
            way = f" Or search with objective={SPAN_MEASURES[0]}." if plan.cut_in_different_ways(trials) else ""
            raise BadInput(
                f"{key} decides which data or which rules score a trial: trials with different values are not "
                f"comparable, and a search would prefer the easier value. Search once for each value, such as "
                f"{first[key]}, or leave out search=: a grid finds the best trial for each value.{way}"
            )
