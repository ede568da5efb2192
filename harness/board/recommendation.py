"""Which run of a leaderboard to take, and why, in one sentence.

The rule: the highest score. Of runs whose scores are equal up to rounding, those that ask no language model, then the
quickest, then the one with the smallest index, then the first. That others are not told apart from it is no reason to
take another: which of them is better is not known, and the highest score is the best guess. But where one of them
takes at most a tenth of the time, or spares a language model, it is named beside the pick.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.config.text import counted
from harness.gates.calibration import CLOSE

MUCH = 10  # times as quick, from which on a run is named beside the pick


@dataclass(frozen=True)
class Candidate:
    """A run on a leaderboard, whose order is the leaderboard's. tied: not told apart from the first, or the first.

    ms, index_mb: None if unknown.
    """

    name: str
    value: float
    tied: bool
    ms: float | None
    index_mb: float | None
    asks_model: bool


@dataclass(frozen=True)
class Pick:
    """run: the place of the run to take. reason: in one sentence. instead: the place of a much cheaper run that is
    not told apart from it; None if there is none."""

    run: int
    reason: str
    instead: int | None = None


def pick(candidates: Sequence[Candidate], metric: str, queries: int, estimated: bool = False) -> Pick:
    """candidates: the best first. queries: how many the scores are about. estimated: whether nothing was tested."""
    equal = [place for place, one in enumerate(candidates) if one.value > candidates[0].value - CLOSE]
    place = min(equal, key=lambda place: (candidates[place].asks_model, *_cost(candidates[place]), place))
    best = candidates[place]
    said = f"{best.name} has the highest {metric}, {best.value:.4f}, of {counted(len(candidates), 'run')}"
    if len(equal) > 1:
        others = "another run" if len(equal) == 2 else f"{len(equal) - 1} others"
        said = f"{said}; {others} score the same, and it {_why(candidates, equal, place)}"
    tied = [one for one, candidate in enumerate(candidates) if candidate.tied and one not in equal]
    if estimated:
        return Pick(place, f"{said}.")
    if not tied:
        return Pick(place, f"{said}, and the {counted(queries, 'query')} tell it apart from all others.")
    said += f"; {counted(len(tied), 'other')} cannot be told apart from it by {counted(queries, 'query')}"
    instead = _cheaper(candidates, place, tied)
    if instead is None:
        return Pick(place, f"{said}, and none of these is much cheaper.")
    other = candidates[instead]
    return Pick(place, f"{said}, of which {other.name} ({other.value:.4f}) {_spares(best, other)}.", instead)


def _cheaper(candidates: Sequence[Candidate], place: int, tied: Sequence[int]) -> int | None:
    """The best of those not told apart that spares a language model or takes at most 1 / MUCH of the time."""
    best = candidates[place]
    for one in tied:
        other = candidates[one]
        if best.asks_model and not other.asks_model:
            return one
        if best.asks_model == other.asks_model and best.ms and other.ms is not None and other.ms * MUCH <= best.ms:
            return one
    return None


def _spares(best: Candidate, other: Candidate) -> str:
    if best.asks_model and not other.asks_model:
        return "asks no language model"
    return f"takes {_time(other.ms)} per query instead of {_time(best.ms)}"


def _why(candidates: Sequence[Candidate], equal: Sequence[int], place: int) -> str:
    one, others = candidates[place], [candidates[other] for other in equal if other != place]
    if not one.asks_model and all(other.asks_model for other in others):
        return "asks no language model"
    costs = [_cost(other) for other in others]
    if _cost(one)[0] < min(cost[0] for cost in costs):
        return "takes the least time"
    return "has the smallest index" if _cost(one) < min(costs) else "is the first of them"


def _cost(one: Candidate) -> tuple[float, float]:
    return (math.inf if one.ms is None else one.ms, math.inf if one.index_mb is None else one.index_mb)


def _time(ms: float | None) -> str:
    return "?" if ms is None else f"{ms:.3g} ms"
