"""The axes of a sweep: the values that each swept key can take, as lists or as intervals of numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.config.text import short_number, shortest
from harness.errors import BadInput

if TYPE_CHECKING:
    import optuna
    from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep


@dataclass(frozen=True)
class Values:
    """An axis with listed values, in the syntax of overrides. ordered: True for numbers that rise or fall."""

    texts: tuple[str, ...]
    ordered: bool

    def __str__(self) -> str:
        return ",".join(self.texts)

    @property
    def size(self) -> int | None:
        return len(self.texts)

    @property
    def extremes(self) -> tuple[str, ...]:
        """The values to check before a search: the first and the last value of an ordered axis, else all values."""
        return (self.texts[0], self.texts[-1]) if self.ordered else self.texts

    def overrides(self, key: str) -> list[str]:
        return [f"{key}={text}" for text in self.texts]

    def distribution(self) -> optuna.distributions.BaseDistribution:
        from optuna.distributions import CategoricalDistribution, IntDistribution

        return IntDistribution(0, len(self.texts) - 1) if self.ordered else CategoricalDistribution(self.texts)

    def text(self, parameter: Any) -> str:
        """Return the value that an Optuna parameter stands for, in the syntax of overrides."""
        return self.texts[parameter] if self.ordered else parameter

    def position(self, text: str) -> int:
        return self.texts.index(text)

    def parameter(self, position: int) -> int | str:
        """Return the Optuna parameter that stands for the value at a position."""
        return position if self.ordered else self.texts[position]


@dataclass(frozen=True)
class Interval:
    """An axis of numbers from low to high: integers if both ends are int, else numbers with 6 significant digits."""

    low: float
    high: float
    log: bool
    ordered = True

    def __str__(self) -> str:
        text = f"interval({self.low},{self.high})"
        text = f"int({text})" if self.size else text
        return f"tag(log,{text})" if self.log else text

    @property
    def size(self) -> int | None:
        return self.high - self.low + 1 if isinstance(self.low, int) and isinstance(self.high, int) else None

    @property
    def extremes(self) -> tuple[str, ...]:
        return self.text(self.low), self.text(self.high)

    def overrides(self, key: str) -> list[str]:
        raise BadInput(
            f"{key}={self} is an interval, and a grid needs a list of values: {key}=range(0,10,0.5). Or let a sampler "
            "choose: search=tpe search.trials=50."
        )

    def distribution(self) -> optuna.distributions.BaseDistribution:
        from optuna.distributions import FloatDistribution, IntDistribution

        kind: Any = IntDistribution if self.size else FloatDistribution
        return kind(self.low, self.high, log=self.log)

    def text(self, parameter: Any) -> str:
        if self.size:
            return str(parameter)
        narrow = max(abs(self.low), abs(self.high)) / (self.high - self.low)
        digits = 6 + max(0, int(math.log10(narrow)))  # a narrow interval, such as (100, 100.1), needs over 6 digits
        return str(shortest(min(max(float(f"{parameter:.{digits}g}"), self.low), self.high)))

    def position(self, text: str) -> int:
        return int(text) - int(self.low)

    def parameter(self, position: int) -> int:
        return int(self.low) + position


Axis = Values | Interval
MOST = 100_000  # the maximum number of values in an axis, or of trials in a grid; checking so many takes minutes


def axis_of(override: Override) -> Axis:
    """Return the axis of a swept override, such as `top_k=1,3` or `gate.threshold=interval(0,9)`.

    Raise BadInput for an axis with no values or more than MOST values, for an interval that is empty or infinite, and
    for a logarithmic interval that does not begin above 0.
    """
    from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, RangeSweep, Transformer

    key, sweep = override.get_key_element(), override.value()
    interval = isinstance(sweep, IntervalSweep)
    tags: set[str] = getattr(sweep, "tags", set()) - ({"log"} if interval else set())
    if tags:
        raise BadInput(
            f"{key} has the tag {', '.join(sorted(tags))}: the only tag is log, as in tag(log, interval(1,9))."
        )
    if isinstance(sweep, IntervalSweep):
        return _interval(key, sweep)
    if isinstance(sweep, RangeSweep):
        _check_range(key, sweep)
        values = [*sweep.range()]
    else:  # a list, since the iterator of shuffle() would give another order at every start
        values = sweep.list if isinstance(sweep, ChoiceSweep) else [*override.sweep_iterator()]
    if not values:
        raise BadInput(f"{key}={override.get_value_string()} has no values: give at least one.")
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    ordered = numbers and values in (sorted(values), sorted(values, reverse=True))
    return Values(tuple(dict.fromkeys(short_number(Transformer.str(value)) for value in values)), ordered)


def _check_range(key: str, sweep: RangeSweep) -> None:
    text = f"{key}=range({sweep.start},{sweep.stop},{sweep.step})"
    try:
        start, stop, step = float(sweep.start or 0), float(sweep.stop or 0), float(sweep.step)
    except OverflowError:  # a whole number with hundreds of digits
        start = stop = step = math.inf
    if not all(map(math.isfinite, (start, stop, step))):
        raise BadInput(f"{text:.200} is not finite: give three finite numbers, as in range(0,10,0.5).")
    if step == 0:
        raise BadInput(f"{key} is a range with step 0: give another step, as in range(0,10,0.5).")
    if (stop - start) / step > MOST:
        raise BadInput(
            f"{text} has more than {MOST:,} values, the maximum of a sweep. Give a larger step, or let a sampler "
            f"choose from an interval: search=tpe search.trials=50 {key}=interval({sweep.start},{sweep.stop})."
        )


def _interval(key: str, sweep: IntervalSweep) -> Interval:
    axis = Interval(sweep.start, sweep.end, "log" in sweep.tags)  # type: ignore[arg-type]
    if not (math.isfinite(axis.high - axis.low) and axis.low < axis.high):
        raise BadInput(f"{key}={axis} is not an interval: give two finite numbers, the lower one first.")
    if axis.log and axis.low <= 0:
        raise BadInput(f"{key}={axis} begins at {axis.low}: a logarithmic scale needs a lower end above 0.")
    return axis
