"""Keys of the same runs: the share of each in the variance of the scores, and the effect of each of its values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.board.plateau import Plateau, plateau
from harness.board.varied import VariedKey
from harness.evaluation.bootstrap import bootstrap_means
from harness.evaluation.factorial import Effects, effects
from harness.evaluation.importance import Importance, Share, importance
from harness.evaluation.measures import grows_with
from harness.reports.markup import finite

LEAST_QUERIES = 10  # for shares
WORTH_SAYING = 0.01  # share of a pair
SEED, RESAMPLES = 0, 2000


@dataclass(frozen=True, eq=False)
class Level:
    """One value of a key.

    runs: how many have it. best: the greatest mean of any of them.
    mean: over the other keys, each value of which weighs the same; over the runs where keys cannot be told apart.
    low, high: the 95 % interval of its distance from the mean of all values of the key, added to that mean: by how much
        values differ is known better than where they all lie.
    """

    value: str
    runs: int
    best: float
    mean: float
    low: float
    high: float

    def to_json(self) -> dict[str, Any]:
        numbers = {name: finite(getattr(self, name)) for name in ("best", "mean", "low", "high")}
        return {"value": self.value, "runs": self.runs, **numbers}


@dataclass(frozen=True, eq=False)
class KeyMatters:
    """What a key does to the score.

    alone: its share of the variance by itself; total: with all pairs that it is in. Both are None, with a reason, where
    these runs do not show them: "only" where no other key varies, or one of `matters.REASONS`.
    """

    key: VariedKey
    alone: Share | None
    total: Share | None
    reason: str
    levels: tuple[Level, ...]
    plateau: Plateau | None

    @property
    def tells(self) -> bool:
        """Whether the key surely moves the score: by its share; if it alone varies, by the intervals of its values."""
        if self.total is not None:
            return self.total.low > 0
        worst = min(self.levels, key=lambda level: level.mean)
        return self.reason == "only" and self.best.low > worst.high

    @property
    def best(self) -> Level:
        return max(self.levels, key=lambda level: level.mean)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.key.name,
            "also": self.key.also,
            "numeric": self.key.numbers is not None,
            "alone": self.alone and self.alone.to_json(),
            "total": self.total and self.total.to_json(),
            "reason": self.reason,
            "levels": [one.to_json() for one in self.levels],
            "plateau": self.plateau and self.plateau.to_json(),
        }


@dataclass(frozen=True, eq=False)
class KeyPair:
    """What two keys do together beyond what each does alone."""

    first: str
    second: str
    share: Share

    def to_json(self) -> dict[str, Any]:
        return {"first": self.first, "second": self.second, "share": self.share.to_json()}


@dataclass(frozen=True, eq=False)
class KeyGroup:
    """Keys that are compared among the same runs, the one that matters most first.

    paired: whether effects of pairs are known; pairs: the greatest of them.
    rest: the share that neither keys nor pairs explain; None, as `spread`, where no share is known.
    spread: the standard deviation of scores over the space of tried values, in units of the measure.
    whole: whether every combination of tried values ran.
    beyond_chance: whether a test at .05 tells the runs apart at all.
    """

    runs: int
    keys: tuple[KeyMatters, ...]
    paired: bool = False
    pairs: tuple[KeyPair, ...] = ()
    rest: Share | None = None
    spread: float | None = None
    whole: bool = True
    beyond_chance: bool = True

    @property
    def strong(self) -> list[KeyPair]:
        """The pairs that surely matter, and enough to be spoken of."""
        return [pair for pair in self.pairs if pair.share.low > 0 and pair.share.value >= WORTH_SAYING]

    def to_json(self) -> dict[str, Any]:
        return {
            "runs": self.runs,
            "keys": [one.to_json() for one in self.keys],
            "paired": self.paired,
            "pairs": [one.to_json() for one in self.strong],
            "rest": self.rest and self.rest.to_json(),
            "spread": self.spread and round(self.spread, 5),
            "whole": self.whole,
            "beyond_chance": self.beyond_chance,
        }


def compare(
    metric: str, having: np.ndarray, keys: Sequence[VariedKey], axes: Sequence[VariedKey], values: np.ndarray
) -> KeyGroup:
    """having: bool [R], the runs that have just these keys. keys: as they are compared. axes: all, as they are.

    values: float64 [R, Q] of the metric, the best run first, all finite.
    """
    own = values[having]
    found = effects(np.stack([key.places[having] for key in keys], axis=1), own)
    shares = importance(found) if found and len(keys) > 1 and own.shape[1] >= LEAST_QUERIES else None
    near = [axis.among(having) for axis in axes]
    described = [_described(place, key, near, own, found, shares, metric) for place, key in enumerate(keys)]
    ordered = tuple(sorted(described, key=lambda one: -one.alone.value if one.alone else math.inf))
    if shares is None or found is None:
        return KeyGroup(int(having.sum()), ordered)
    return KeyGroup(
        runs=int(having.sum()),
        keys=ordered,
        paired=any(len(part) == 2 for part in found.parts),
        pairs=tuple(KeyPair(keys[first].name, keys[second].name, one) for (first, second), one in shares.pairs.items()),
        rest=shares.rest,
        spread=shares.spread,
        whole=found.whole,
        beyond_chance=shares.beyond_chance,
    )


def _described(
    place: int,
    key: VariedKey,
    axes: Sequence[VariedKey],
    values: np.ndarray,
    found: Effects | None,
    shares: Importance | None,
    metric: str,
) -> KeyMatters:
    """One key, whose number in `found` and `shares` is `place`. axes, values: of the runs that have it."""
    alone = shares.alone.get(place) if shares else None
    known = shares is not None and alone is not None and not math.isnan(alone.value)
    averages = found.mean + found.parts[place,] if found and (place,) in found.parts else None
    own = key.among(key.having)
    return KeyMatters(
        key=key,
        alone=alone if known else None,
        total=shares.total[place] if known and shares else None,
        reason="" if known else _reason(place, values.shape[1], found, shares),
        levels=_levels(own, values, averages),
        plateau=plateau(own, axes, values, averages, grows_with(metric, key.name)),
    )


def _reason(place: int, queries: int, found: Effects | None, shares: Importance | None) -> str:
    """Why a key has no share, as in `KeyMatters`."""
    if queries < LEAST_QUERIES:
        return "queries"
    if found is None:
        return "runs"
    if shares is None:
        return "only"
    return "same" if place in shares.alone else "mixed"


def _levels(key: VariedKey, values: np.ndarray, averages: np.ndarray | None) -> tuple[Level, ...]:
    """averages: float64 [L, Q]; None: the plain means of the runs with each value."""
    having = [values[key.places == number] for number in range(len(key.values))]
    rows = np.stack([some.mean(axis=0) for some in having]) if averages is None else averages
    centre = rows.mean()
    low, high, _ = bootstrap_means(rows - rows.mean(axis=0), SEED, resamples=RESAMPLES)
    return tuple(
        Level(
            value=value,
            runs=len(some),
            best=float(some.mean(axis=1).max()),
            mean=float(row.mean()),
            low=float(centre + low[number]),
            high=float(centre + high[number]),
        )
        for number, (value, some, row) in enumerate(zip(key.values, having, rows, strict=True))
    )
