"""How a sweep chooses its points: all of a grid, or one batch after another proposed by a sampler of Optuna.

A study keeps every proposed point and what it gave in an SQLite file. Nothing else decides what comes next: each
point is drawn by a new sampler, seeded by the search's seed and the point's number, from the points before it, so
that a search that was killed and started again proposes what it would have proposed.
"""

from __future__ import annotations

import importlib.util
import logging
import math
import random
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from retrievers.base import BadInput, did_you_mean

if TYPE_CHECKING:
    import optuna
    from hydra.core.override_parser.types import IntervalSweep, Override


log = logging.getLogger(__name__)

Sampler = Literal["random", "tpe", "cmaes", "gp"]
Direction = Literal["maximize", "minimize"]

STARTUP = 10  # points drawn at random before tpe and gp make a model of them
PATIENCE = 20  # proposals in a row that were tried before, until a point is drawn at random
_ASKED, _BATCH_END = "asked", "batch_end"  # attributes of the study and of its points


class Grid:
    """Every combination of the listed values."""

    recorded_as = "search/grid"

    def __init__(self) -> None: ...


@dataclass(frozen=True)
class Values:
    """An axis of listed values. words: the values as Hydra takes them. ordered: a step to the next one is small."""

    words: tuple[str, ...]
    ordered: bool

    def __str__(self) -> str:
        return ",".join(self.words)

    @property
    def size(self) -> int | None:
        return len(self.words)

    def distribution(self) -> optuna.distributions.BaseDistribution:
        from optuna.distributions import CategoricalDistribution, IntDistribution

        return IntDistribution(0, len(self.words) - 1) if self.ordered else CategoricalDistribution(self.words)

    def word(self, parameter: Any) -> str:
        return self.words[parameter] if self.ordered else parameter

    def place(self, word: str) -> int:
        return self.words.index(word)

    def at(self, place: int) -> int | str:
        return place if self.ordered else self.words[place]


@dataclass(frozen=True)
class Interval:
    """An axis of numbers, both ends included: whole ones where the ends are int, else of 6 significant digits."""

    low: float
    high: float
    log: bool

    def __str__(self) -> str:
        text = f"interval({self.low},{self.high})"
        text = f"int({text})" if self.size else text
        return f"tag(log,{text})" if self.log else text

    @property
    def size(self) -> int | None:
        """How many points it has; None for real numbers."""
        return self.high - self.low + 1 if isinstance(self.low, int) and isinstance(self.high, int) else None

    def distribution(self) -> optuna.distributions.BaseDistribution:
        from optuna.distributions import FloatDistribution, IntDistribution

        kind: Any = IntDistribution if self.size else FloatDistribution
        return kind(self.low, self.high, log=self.log)

    def word(self, parameter: Any) -> str:
        if self.size:
            return str(parameter)
        narrow = max(abs(self.low), abs(self.high)) / (self.high - self.low)
        digits = 6 + max(0, int(math.log10(narrow)))  # interval(100,100.1) needs more than 6 to tell its points apart
        return str(min(max(float(f"{parameter:.{digits}g}"), self.low), self.high))

    def place(self, word: str) -> int:
        return int(word) - int(self.low)

    def at(self, place: int) -> int:
        return int(self.low) + place


Axis = Values | Interval


def axis_of(override: Override) -> Axis:
    """What a sweep on the command line lets its key be.

    Numbers that rise or fall, and those of range(), are ordered; other choices are not. BadInput where no value is
    left, or where the interval is empty, not finite, or of a logarithmic scale that reaches 0.
    """
    from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, RangeSweep, Transformer

    key, sweep = override.get_key_element(), override.value()
    tags: set[str] = getattr(sweep, "tags", set())
    if isinstance(sweep, IntervalSweep):
        tags = tags - {"log"}
    if tags:
        raise BadInput(f"{key} has the tag {', '.join(sorted(tags))}: the only one is tag(log, interval(...)).")
    if isinstance(sweep, IntervalSweep):
        return _interval(key, sweep)
    if isinstance(sweep, RangeSweep) and sweep.step == 0:
        raise BadInput(f"{key} is a range of step 0: give a step such as range(0,10,0.5).")
    # Read from the sweep itself, since shuffle() would give another order at every start.
    values: list[Any]
    if isinstance(sweep, RangeSweep):
        values = list(sweep.range())
    else:
        values = sweep.list if isinstance(sweep, ChoiceSweep) else list(override.sweep_iterator())
    if not values:
        raise BadInput(f"{key}={override.get_value_string()} holds no value.")
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    ordered = numbers and values in (sorted(values), sorted(values, reverse=True))
    return Values(tuple(dict.fromkeys(Transformer.str(value) for value in values)), ordered)


def _interval(key: str, sweep: IntervalSweep) -> Interval:
    axis = Interval(sweep.start, sweep.end, "log" in sweep.tags)  # type: ignore[arg-type]
    if not (math.isfinite(axis.high - axis.low) and axis.low < axis.high):
        raise BadInput(f"{key}={axis} is no interval: give two finite numbers, the lower one first.")
    if axis.log and axis.low <= 0:
        raise BadInput(f"{key}={axis} reaches {axis.low}: a logarithmic scale needs a lower end above 0.")
    return axis


@dataclass(frozen=True)
class Proposal:
    """number: counts the study's points from 0. words: overrides key=value in the order of the space."""

    number: int
    words: tuple[str, ...]


class Search:
    """Points proposed by one of Optuna's samplers, from what earlier points gave.

    sampler: random; tpe (tree-structured Parzen estimator), for any space; cmaes (covariance matrix adaptation),
    for numbers; gp (a Gaussian process), for few and dear trials. trials: points in all. batch: points asked at a
    time. BadInput where an argument is out of its range.
    """

    recorded_as = "search/sampler"

    def __init__(self, sampler: Sampler, trials: int = 50, batch: int = 10, seed: int = 0) -> None:
        known = get_args(Sampler)
        if sampler not in known:
            hint = did_you_mean(str(sampler), known)
            raise BadInput(f"sampler is {sampler!r}: choose one of {', '.join(known)}.{hint}")
        for name, value, least in (("trials", trials, 1), ("batch", batch, 1), ("seed", seed, 0)):
            if value < least:
                raise BadInput(f"{name}={value} is too small: the least is {least}.")
        self.sampler, self.trials, self.batch, self.seed = sampler, trials, batch, seed
        self.patience = 2 if sampler == "gp" else PATIENCE  # a proposal of gp takes about a second

    def open(
        self, file: Path, space: Mapping[str, Axis], objectives: Sequence[tuple[str, Direction]], name: str
    ) -> Study:
        """The study `name` in the SQLite file, made where it is not there.

        BadInput where the sampler cannot serve this space or these objectives, or lacks a package; where the study
        was made for others; where the file is no study.
        """
        self._check(space, objectives)
        import optuna
        from sqlalchemy import URL
        from sqlalchemy.exc import DatabaseError

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        url = URL.create("sqlite", database=str(file)).render_as_string()
        try:
            if not file.exists():
                _make(file)
            stored = optuna.create_study(
                storage=url,
                study_name=name,
                sampler=optuna.samplers.RandomSampler(),  # never used here: points are drawn in memory
                directions=[direction for _, direction in objectives],
                load_if_exists=True,
            )
        except (DatabaseError, RuntimeError) as error:  # the latter where another Optuna made the file
            reason = str(error).partition("\n")[0]
            raise BadInput(f"{file} cannot be opened as a study: {reason}. Move it away, or choose another.") from None
        asked = {key: str(axis) for key, axis in space.items()}
        asked["objective"] = ", ".join(f"{direction} {measure}" for measure, direction in objectives)
        _check_same(asked, stored, file)
        return Study(self, stored, space)

    def _check(self, space: Mapping[str, Axis], objectives: Sequence[tuple[str, Direction]]) -> None:
        if not space:
            raise BadInput("There is nothing to search: give a key several values, such as gate.threshold=range(0,10).")
        package, command = {
            "gp": ("torch", "pip install 'retrieval-harness[dense]'"),
            "cmaes": ("cmaes", "pip install cmaes"),
        }.get(self.sampler, ("optuna", "pip install optuna"))
        if importlib.util.find_spec(package) is None:
            raise BadInput(f"search={self.sampler} needs the package {package}: {command}. Without it: search=random.")
        if self.sampler != "cmaes":
            return
        if len(objectives) > 1:
            raise BadInput("search=cmaes takes one objective: choose search=tpe, gp or random for several.")
        unordered = [key for key, axis in space.items() if isinstance(axis, Values) and not axis.ordered]
        if len(unordered) == len(space):
            raise BadInput("search=cmaes searches numbers, and there are none: choose search=tpe or random.")
        if unordered:
            log.warning("search=cmaes draws %s at random: it models numbers only.", ", ".join(unordered))

    def new_sampler(self, seed: int, dimensions: int, objectives: int) -> optuna.samplers.BaseSampler:
        """A new sampler of Optuna. dimensions: how many axes are numbers."""
        from optuna import samplers
        from optuna.exceptions import ExperimentalWarning

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            if self.sampler == "tpe":
                # Several objectives are modelled axis by axis, which is Optuna's own choice.
                return samplers.TPESampler(
                    n_startup_trials=STARTUP, multivariate=objectives == 1, constant_liar=True, seed=seed
                )
            if self.sampler == "gp":
                return samplers.GPSampler(n_startup_trials=STARTUP, seed=seed)
            if self.sampler == "cmaes":
                # A generation as large as a batch wastes none of its points. The margin keeps whole numbers moving.
                size = max(self.batch, 4 + int(3 * math.log(max(dimensions, 1))))
                return samplers.CmaEsSampler(popsize=size, with_margin=True, warn_independent_sampling=False, seed=seed)
            return samplers.RandomSampler(seed=seed)


def _make(file: Path) -> None:
    """Make a study's file, under another name first: one whose tables are half made cannot be opened."""
    import optuna
    from sqlalchemy import URL

    unfinished = file.with_name(f"{file.name}.unfinished")
    for left in file.parent.glob(f"{unfinished.name}*"):  # by a killed process, its journal included
        left.unlink()
    storage = optuna.storages.RDBStorage(URL.create("sqlite", database=str(unfinished)).render_as_string())
    storage.engine.dispose()
    unfinished.rename(file)


def _check_same(asked: dict[str, str], stored: optuna.Study, file: Path) -> None:
    known = stored.user_attrs.get(_ASKED)
    if known is None:
        stored.set_user_attr(_ASKED, asked)
    elif known != asked:
        keys = [key for key in {**known, **asked} if known.get(key) != asked.get(key)]
        said = "; ".join(f"{key}: {known.get(key, 'none')}, now {asked.get(key, 'none')}" for key in keys)
        raise BadInput(
            f"{file} holds a search for something else ({said}). Ask for what it had, or start another sweep."
        )


class Study:
    """A search under way: what was proposed, and what it gave. Opened by Search.open; for one process at a time."""

    def __init__(self, search: Search, stored: optuna.Study, space: Mapping[str, Axis]) -> None:
        self._search, self._stored, self._space = search, stored, space
        # Sorted: neither the order on the command line nor that of an earlier start decides what is drawn.
        self._distributions = {key: space[key].distribution() for key in sorted(space)}
        sizes = [axis.size for axis in space.values()]
        self._size = math.prod(size for size in sizes if size) if all(sizes) else math.inf

    @property
    def points(self) -> list[Proposal]:
        """The points that were told, with values or as failed."""
        trials = self._stored.get_trials(deepcopy=False)
        return [Proposal(one.number, self._words(one.params)) for one in trials if one.state.is_finished()]

    @property
    def told(self) -> int:
        """How many points were told."""
        return len(self.points)

    def ask(self, n: int) -> list[Proposal]:
        """At most n points that were not told yet, none of them twice; [] where nothing new is found.

        Points that were asked for before and never told come first and alone, so that a batch that was cut short is
        finished before the next one learns from it.
        """
        trials = self._stored.get_trials(deepcopy=False)
        waiting = [trial for trial in trials if not trial.state.is_finished()]
        # A process that was killed while it asked may have left the first points of its batch.
        end = waiting[-1].user_attrs[_BATCH_END] if waiting else len(trials) + n
        while len(trials) < end and (new := self._new(trials)):
            new.user_attrs[_BATCH_END] = end
            self._stored.add_trial(new)
            trials.append(new)
            waiting.append(new)
        return [Proposal(trial.number, self._words(trial.params)) for trial in waiting[:n]]

    def tell(self, number: int, values: Sequence[float] | None) -> None:
        """What a proposed point gave, a value for each objective; None, or one that is not finite: it failed."""
        from optuna.trial import TrialState

        if values is None or not all(map(math.isfinite, values)):
            self._stored.tell(number, state=TrialState.FAIL)
        else:
            self._stored.tell(number, list(values), state=TrialState.COMPLETE)

    def _words(self, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(f"{key}={axis.word(parameters[key])}" for key, axis in self._space.items())

    def _new(self, trials: Sequence[optuna.trial.FrozenTrial]) -> optuna.trial.FrozenTrial | None:
        """The point after `trials`, which is none of them, as a running trial; None where there is none.

        It is drawn in memory, where a repeated proposal stays running while the point is sought (the samplers keep
        away from what runs), and kept in one piece, so that a killed process leaves no half of a point.
        """
        tried = {self._words(trial.params) for trial in trials}
        if len(tried) >= self._size:
            return None
        import optuna

        memory = optuna.create_study(directions=self._stored.directions)
        memory.add_trials(trials)
        numbers = sum(not isinstance(axis, Values) or axis.ordered for axis in self._space.values())
        patience = self._search.patience
        for attempt in range(patience + 1):
            seed = int(np.random.SeedSequence([self._search.seed, len(trials), attempt]).generate_state(1)[0])
            if attempt < patience:
                memory.sampler = self._search.new_sampler(seed, numbers, len(memory.directions))
            else:
                memory.sampler = optuna.samplers.RandomSampler(seed=seed)
                if self._size < math.inf:
                    memory.enqueue_trial(self._untried(tried, seed))
            asked = memory.ask(self._distributions)
            if self._words(asked.params) not in tried:
                new = memory.get_trials(deepcopy=False)[asked.number]
                new.number = len(trials)
                return new
        return None

    def _untried(self, tried: set[tuple[str, ...]], seed: int) -> dict[str, int | str]:
        """A point of a finite space that is not among `tried`, each equally likely."""
        axes = [(key, axis, axis.size or 1) for key, axis in self._space.items()]
        taken = []
        for words in tried:
            place = 0
            for word, (key, axis, size) in zip(words, axes, strict=True):
                place = place * size + axis.place(word.removeprefix(f"{key}="))
            taken.append(place)
        left = random.Random(seed).randrange(int(self._size) - len(taken))  # noqa: S311 - no secret
        for place in sorted(taken):
            left += place <= left
        parameters = {}
        for key, axis, size in reversed(axes):
            left, place = divmod(left, size)
            parameters[key] = axis.at(place)
        return parameters
