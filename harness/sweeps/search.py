"""The ways to choose the trials of a sweep: a whole grid, the batches of an Optuna sampler, or `sweep=auto`.

A study saves every proposed point and its values in an SQLite file. Each point is drawn by a new sampler, from the
earlier points and a seed made of the search's seed and the point's number. So a restart proposes the same points.
"""

from __future__ import annotations

import importlib.util
import logging
import math
import random
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_args

import numpy as np

from harness.analysis.proposals.command_lines import override_key
from harness.config.commands import SweepConfig
from harness.config.text import counted
from harness.errors import BadInput, did_you_mean
from harness.gates.payoff import fixed_mean
from harness.sweeps import plan
from harness.sweeps.auto import loop
from harness.sweeps.auto.budget import seconds_of
from harness.sweeps.auto.out_of_fold import Automatic
from harness.sweeps.axes import Axis
from harness.sweeps.definition import Sweep, Way
from harness.sweeps.execution import Execution, Forecast, tell
from harness.sweeps.plan import Planner, SweepObjective, Trial
from harness.sweeps.summary import objective_values
from harness.sweeps.trials import TrialResult
from retrievers.base import AtMost, Seed

if TYPE_CHECKING:
    import optuna

log = logging.getLogger(__name__)

Sampler = Literal["random", "tpe", "cmaes", "gp"]

Trials = Annotated[int, AtMost(100_000, "every proposal reads all earlier trials")]
STARTUP = 10  # points that tpe and gp draw at random before they fit a model
PATIENCE = 20  # if a sampler proposes known points this many times in a row, the next point is drawn at random
STUDY = "study.db"  # a file in the folder of a sweep
_BATCH_END = "batch_end"  # attribute of a stored point: how many points the study will have when the batch is complete


class Grid(Way):
    """Every combination of the listed values."""

    recorded_as = "search/grid"

    def __init__(self) -> None: ...

    def points(self, planner: Planner, axes: Mapping[str, Axis]) -> list[Trial]:
        listed = {key: axis.overrides(key) for key, axis in axes.items()}
        words = dict.fromkeys(planner.words(one)[1] for one in plan.combinations(listed))
        return [planner.trial(n, overrides) for n, overrides in enumerate(words)]

    def planned(self, sweep: Sweep, finished: Mapping[str, TrialResult]) -> tuple[dict[str, Any], Iterable[str]]:
        counts = Forecast(sweep, finished)(sweep.points)
        return counts, plan.plan_lines(counts)

    def runner(self, sweep: Sweep) -> Callable[[Execution], None]:
        def run(execution: Execution) -> None:
            tell(plan.plan_lines(execution.forecast(sweep.points)))
            execution.batch(sweep.points)

        return run


class Auto(Way):
    """Tries the catalogue's proposals that can run here, within a time budget such as 90s or 2h; None means 10m."""

    recorded_as = "search/auto"
    name = "auto"

    def __init__(self, budget: str | None = None) -> None:
        self.seconds = seconds_of("10m" if budget is None else budget)

    def check(self, config: SweepConfig, swept: Iterable[str], fixed: Iterable[str]) -> None:
        if keys := list(swept):
            raise BadInput(
                f"sweep=auto chooses the values of keys itself: leave out the list of {keys[0]}. A single value, as in "
                f"{keys[0]}=NAME, is kept in all trials."
            )
        if recipe := next((word for word in fixed if override_key(word) == "experiment"), None):
            raise BadInput(f"{recipe} sets what sweep=auto chooses: use only one of the two.")
        if "retriever" not in config.document:
            raise BadInput("sweep=auto tries retrievers, and a text task has none.")
        if config.objectives and len(config.objectives) > 1:
            raise BadInput("sweep=auto takes one objective: leave out objectives=, or give one.")
        try:
            fixed_mean(config.objective)
        except BadInput:
            raise BadInput(
                f"objective={config.objective} is not a mean over a fixed set of queries. sweep=auto needs one to "
                "score its choice on queries that it has not seen. Choose another, such as objective=mrr@10."
            ) from None

    def planned(self, sweep: Sweep, finished: Mapping[str, TrialResult]) -> tuple[dict[str, Any], Iterable[str]]:
        return loop.planned(sweep, self.seconds)

    def runner(self, sweep: Sweep) -> Callable[[Execution], Automatic]:
        return loop.AutoLoop(sweep, self.seconds)


class DrawnPoint(NamedTuple):
    """A point of a study. number: counted from 0. overrides: key=value, in the order of the axes."""

    number: int
    overrides: tuple[str, ...]


class Search(Way):
    """Points that one of Optuna's samplers proposes, given the values of earlier points.

    sampler: random | tpe (tree-structured Parzen estimator), for any axes | cmaes (covariance matrix adaptation), for
        numbers | gp (Gaussian process), for few and expensive trials.
    trials: the number of points. batch: the number of points proposed together.
    """

    recorded_as = "search/sampler"
    per_job = 1

    def __init__(self, sampler: Sampler, trials: Trials = 50, batch: Trials = 10, seed: Seed = 0) -> None:
        known = get_args(Sampler)
        if sampler not in known:
            hint = did_you_mean(str(sampler), known)
            raise BadInput(f"search.sampler={sampler!r} is unknown: choose one of {', '.join(known)}.{hint}")
        for name, value, least in (("trials", trials, 1), ("batch", batch, 1), ("seed", seed, 0)):
            if value < least:
                raise BadInput(f"search.{name}={value} is too small: give {least} or more.")
        self.sampler, self.trials, self.batch, self.seed = sampler, trials, batch, seed
        self.patience = 2 if sampler == "gp" else PATIENCE  # gp takes about a second for each proposal

    def planned(self, sweep: Sweep, finished: Mapping[str, TrialResult]) -> tuple[dict[str, Any], Iterable[str]]:
        started = (sweep.folder / STUDY).is_file()  # opening a study would create the file
        counts = self._counts(sweep, finished, self._study(sweep) if started else None)
        return counts, plan.plan_lines(counts, sweep.swept)

    def runner(self, sweep: Sweep) -> Callable[[Execution], None]:
        return partial(self._run, study=self._study(sweep))

    def _study(self, sweep: Sweep) -> Study:
        return self.open(sweep.folder / STUDY, sweep.axes, sweep.objectives, sweep.sweep_id)

    def _counts(self, sweep: Sweep, finished: Mapping[str, TrialResult], study: Study | None) -> dict[str, Any]:
        known = sum(sweep.planner.trial(*point).key in finished for point in study.finished) if study else 0
        return {"trials": self.trials, "finished_before": known, "only_with": sweep.partial}

    def _run(self, execution: Execution, study: Study) -> None:
        sweep, trial = execution.sweep, execution.sweep.planner.trial

        def so_far() -> None:
            values = [one.objective.value for one in execution.results.values() if one.objective]
            best = f"best so far {max(values):.4f}" if values else "none has a score yet"
            tell([f"{len(execution.results)}/{self.trials}, {best}"])

        tell(plan.plan_lines(self._counts(sweep, execution.finished, study), sweep.swept))
        if earlier := study.finished:  # only failed points run again; the results of the others are known
            execution.batch([trial(*point) for point in earlier], self.trials)
            so_far()
        while (count := len(study.finished)) < self.trials:
            proposals = study.ask(min(self.batch, self.trials - count))
            if not proposals:
                tell([f"The search space is exhausted after {counted(count, 'trial')}."])
                break
            planned = [trial(*point) for point in proposals]
            if compute := execution.forecast.more_retrievals(planned):
                tell([f"{counted(compute, 'retrieval')} to compute"])
            execution.batch(planned, self.trials)
            for number, _ in proposals:
                study.tell(number, _objectives(sweep, execution.results[number]))
            so_far()

    def open(self, file: Path, space: Mapping[str, Axis], objectives: Sequence[SweepObjective], name: str) -> Study:
        """Open or create a study. Raise BadInput if the sampler cannot use these axes or the file is not a study."""
        self._check(space, objectives)
        import optuna
        from optuna.exceptions import OptunaError
        from sqlalchemy import URL
        from sqlalchemy.exc import SQLAlchemyError

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        url = URL.create("sqlite", database=str(file)).render_as_string()
        try:
            if not file.exists():
                _create(file)
            stored = optuna.create_study(
                storage=url,
                study_name=name,
                sampler=optuna.samplers.RandomSampler(),  # unused: points are drawn in memory
                directions=[direction for _, direction in objectives],
                load_if_exists=True,
            )
        except (SQLAlchemyError, OptunaError, RuntimeError, ValueError, LookupError) as error:
            # RuntimeError: another version of Optuna made the file. ValueError, LookupError: the file is damaged.
            reason = str(error).partition("\n")[0]
            raise BadInput(f"{file} cannot be opened as a study: {reason}. Move the file away.") from None
        return Study(self, stored, space)

    def _check(self, space: Mapping[str, Axis], objectives: Sequence[SweepObjective]) -> None:
        if not space:
            raise BadInput("There is nothing to search: give a key several values, as in gate.threshold=range(0,10).")
        package, command = {
            "gp": ("torch", "pip install 'retrieval-harness[dense]'"),
            "cmaes": ("cmaes", "pip install cmaes"),
        }.get(self.sampler, ("optuna", "pip install optuna"))
        if importlib.util.find_spec(package) is None:
            raise BadInput(
                f"search={self.sampler} needs the package {package}: {command}. search=random works without it."
            )
        if self.sampler != "cmaes":
            return
        if len(objectives) > 1:
            raise BadInput("search=cmaes takes one objective. For several, choose search=tpe, gp or random.")
        unordered = [key for key, axis in space.items() if not axis.ordered]
        if len(unordered) == len(space):
            raise BadInput("search=cmaes needs a key with numbers, and none is swept: choose search=tpe or random.")
        if unordered:
            log.warning("search=cmaes models only numbers: it draws %s at random.", ", ".join(unordered))

    def new_sampler(self, seed: int, dimensions: int, objectives: int) -> optuna.samplers.BaseSampler:
        from optuna import samplers
        from optuna.exceptions import ExperimentalWarning

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            if self.sampler == "tpe":
                # For several objectives, Optuna models each axis separately.
                return samplers.TPESampler(
                    n_startup_trials=STARTUP, multivariate=objectives == 1, constant_liar=True, seed=seed
                )
            if self.sampler == "gp":
                return samplers.GPSampler(n_startup_trials=STARTUP, seed=seed)
            if self.sampler == "cmaes":
                # CMA-ES ignores points of a batch beyond `popsize`. Without the margin, integers would get stuck.
                size = max(self.batch, 4 + int(3 * math.log(max(dimensions, 1))))
                return samplers.CmaEsSampler(popsize=size, with_margin=True, warn_independent_sampling=False, seed=seed)
            return samplers.RandomSampler(seed=seed)


def _objectives(sweep: Sweep, result: TrialResult) -> list[float]:
    values = objective_values(result, sweep.objectives, sweep.config.select_on)
    if result.status == "FINISHED" and not all(map(math.isfinite, values)):
        raise BadInput(f"objectives={[one.name for one in sweep.objectives]}: a trial finished without one of them.")
    return values


def _create(file: Path) -> None:
    """Create a study's file. It gets its final name once all tables exist: without tables, it cannot be opened."""
    import optuna
    from sqlalchemy import URL

    unfinished = file.with_name(f"{file.name}.unfinished")
    for left in file.parent.glob(f"{unfinished.name}*"):  # files of a killed process: the study and SQLite's journal
        left.unlink()
    storage = optuna.storages.RDBStorage(URL.create("sqlite", database=str(unfinished)).render_as_string())
    storage.engine.dispose()
    unfinished.rename(file)


class Study:
    """A search in progress: its points and their values. Only one process at a time may open it."""

    def __init__(self, search: Search, stored: optuna.Study, space: Mapping[str, Axis]) -> None:
        self._search, self._stored, self._space = search, stored, space
        # Sorted: the order of the keys on the command line must not change the points.
        self._distributions = {key: space[key].distribution() for key in sorted(space)}
        sizes = [axis.size for axis in space.values()]
        self._size = math.prod(size for size in sizes if size) if all(sizes) else math.inf

    @property
    def finished(self) -> list[DrawnPoint]:
        trials = self._stored.get_trials(deepcopy=False)
        return [DrawnPoint(one.number, self._overrides(one.params)) for one in trials if one.state.is_finished()]

    def ask(self, n: int) -> list[DrawnPoint]:
        """Return at most n points without values; [] if no point is left. Finish an interrupted batch first."""
        trials = self._stored.get_trials(deepcopy=False)
        waiting = [trial for trial in trials if not trial.state.is_finished()]
        # A process that was killed during a proposal may have saved only the first points of its batch.
        end = waiting[-1].user_attrs[_BATCH_END] if waiting else len(trials) + n
        while len(trials) < end and (new := self._new(trials)):
            new.user_attrs[_BATCH_END] = end
            self._stored.add_trial(new)
            trials.append(new)
            waiting.append(new)
        return [DrawnPoint(trial.number, self._overrides(trial.params)) for trial in waiting[:n]]

    def tell(self, number: int, values: Sequence[float] | None) -> None:
        """Save the values of a point, one for each objective. Without finite values, save that the point failed."""
        from optuna.trial import TrialState

        if values is None or not all(map(math.isfinite, values)):
            self._stored.tell(number, state=TrialState.FAIL)
        else:
            self._stored.tell(number, list(values), state=TrialState.COMPLETE)

    def _overrides(self, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(f"{key}={axis.text(parameters[key])}" for key, axis in self._space.items())

    def _new(self, trials: Sequence[optuna.trial.FrozenTrial]) -> optuna.trial.FrozenTrial | None:
        tried = {self._overrides(trial.params) for trial in trials}
        if len(tried) >= self._size:
            return None
        import optuna

        # A repeated proposal stays in `memory` as a running trial: samplers avoid its point. Only a new point is saved.
        memory = optuna.create_study(directions=self._stored.directions)
        memory.add_trials(trials)
        numbers = sum(axis.ordered for axis in self._space.values())
        patience = self._search.patience
        for attempt in range(patience + 1):
            seed = int(np.random.SeedSequence([self._search.seed, len(trials), attempt]).generate_state(1)[0])
            if attempt < patience:
                memory.sampler = self._search.new_sampler(seed, numbers, len(memory.directions))
            else:
                memory.sampler = optuna.samplers.RandomSampler(seed=seed)
                if self._size < 2**31:  # in a larger space, a random point is almost surely new
                    memory.enqueue_trial(self._untried(tried, seed))
            proposed = memory.ask(self._distributions)
            if self._overrides(proposed.params) not in tried:
                new = memory.get_trials(deepcopy=False)[proposed.number]
                new.number = len(trials)
                return new
        return None

    def _untried(self, tried: set[tuple[str, ...]], seed: int) -> dict[str, int | str]:
        axes, sizes = list(self._space.items()), [axis.size or 1 for axis in self._space.values()]
        places = [
            [axis.position(word.partition("=")[2]) for word, (_, axis) in zip(one, axes, strict=True)] for one in tried
        ]
        taken = np.sort(np.ravel_multi_index(np.array(places, int).reshape(-1, len(axes)).T, sizes))
        drawn = random.Random(seed).randrange(math.prod(sizes) - len(taken))  # noqa: S311 - no secret
        for number in taken.tolist():
            drawn += number <= drawn
        return {
            key: axis.parameter(int(at)) for (key, axis), at in zip(axes, np.unravel_index(drawn, sizes), strict=True)
        }
