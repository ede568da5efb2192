"""The procedure: which configurations are tried next, given the values of those that were tried.

It is a generator, so that the same rules serve twice: with the values that the trials of the sweep have, and with
those that they have without the labels of some queries, which then score what the procedure chooses without them.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, replace

from harness.gates.calibration import CLOSE

Words = tuple[str, ...]  # the overrides of a trial, as key=value
Ascent = Generator[list[Words], Mapping[Words, float], Words]

LEADERS = 3  # systems that are tried with other fusions and with gates
ROUNDS = 2  # of steps in the weights
FACTORS = (0.5, 2.0)  # by which a step changes a weight


@dataclass(frozen=True)
class System:
    """What makes the candidates: a retriever, its tokenizer, the text of the queries, perhaps a reranker.

    words: the overrides that choose it. components: names of its rankings.
    fusible: whether other fusions are tried: with several rankings and no reranker, which would have other pairs to
    score for each of them.
    """

    words: Words
    components: tuple[str, ...]
    fusible: bool


@dataclass(frozen=True)
class Menu:
    """All that the procedure may choose from; nothing in it depends on labels.

    systems: the first one is the baseline. gates: the overrides of each; the first one is that of the baseline.
    fusions: the overrides of each choice, the first one what a system has by itself. weigh: whether weights are tried.
    """

    systems: tuple[System, ...]
    gates: tuple[Words, ...]
    fusions: tuple[Words, ...]
    weigh: bool

    @property
    def baseline(self) -> Words:
        return Choice(self.systems[0], self.fusions[0], self.gates[0]).words


@dataclass(frozen=True)
class Choice:
    """A configuration. weights: of the components, () for those that the system has by itself."""

    system: System
    fusion: Words
    gate: Words
    weights: tuple[float, ...] = ()

    @property
    def words(self) -> Words:
        weights = zip(self.system.components, self.weights, strict=True) if self.weights else ()
        return (
            *self.system.words,
            *self.fusion,
            *(f"fusion.weights.{name}={weight:g}" for name, weight in weights),
            *self.gate,
        )


def ascend(menu: Menu) -> Ascent:
    """Yields the configurations to try next, is sent their values, and returns the best of all that were tried.

    All systems are tried first, as they are and without a gate. The best few get each fusion; the weights of the best
    of all then move step by step for as long as that helps; at last the best configuration of each of the best few
    systems gets each gate. A configuration that failed has the value NaN. Of equal values, the first one counts.
    """
    tried = _Tried()
    yield from tried.add(Choice(system, menu.fusions[0], menu.gates[0]) for system in menu.systems)
    fusible = [one for one in tried.leaders() if one.system.fusible]
    yield from tried.add(Choice(one.system, fusion, one.gate) for one in fusible for fusion in menu.fusions)
    for _ in range(ROUNDS if menu.weigh else 0):
        before = tried.best
        if not before.system.fusible:
            break
        yield from tried.add(_steps(before))
        if tried.best == before:
            break
    yield from tried.add(replace(one, gate=gate) for one in tried.leaders() for gate in menu.gates)
    return tried.best.words


class _Tried:
    """The configurations that were tried, in their order, with their values."""

    def __init__(self) -> None:
        self._values: dict[Choice, float] = {}

    def add(self, choices: Iterable[Choice]) -> Generator[list[Words], Mapping[Words, float], None]:
        """Try those that are new."""
        new = {one.words: one for one in choices if one not in self._values}
        if new:
            values = yield list(new)
            self._values.update({one: _ranked(values[words]) for words, one in new.items()})

    @property
    def best(self) -> Choice:
        """The first of those with the greatest value up to rounding errors."""
        most = max(self._values.values())
        return next(one for one, value in self._values.items() if value >= most - CLOSE)

    def leaders(self) -> list[Choice]:
        """The best configuration of each of the best systems; systems that failed are none of them."""
        best: dict[System, Choice] = {}
        for one in sorted(self._values, key=lambda one: -self._values[one]):
            if self._values[one] > -math.inf:
                best.setdefault(one.system, one)
        return list(best.values())[:LEADERS]


def _ranked(value: float) -> float:
    return -math.inf if math.isnan(value) else value


def _steps(choice: Choice) -> list[Choice]:
    """The configurations that differ from one in one step of one weight."""
    weights = choice.weights or (1.0,) * len(choice.system.components)
    found = []
    for place, weight in enumerate(weights):
        for factor in FACTORS:
            moved = (*weights[:place], weight * factor, *weights[place + 1 :])
            found.append(Choice(choice.system, choice.fusion, choice.gate, moved))
    return found
