"""The keys that matter: their shares in the variance of the runs' scores, and the effect of each value.

For a numeric key, the analysis also says whether the best value lies on a plateau. It extends from the best value
to both sides for as long as the values score within one standard error of the best. The standard error is computed from
the differences by query, as in `gates.calibration.plateau`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from harness.analysis.board.runs import BoardRuns
from harness.analysis.board.settings import VariedKey, comparable, runs_by_keys, varied
from harness.config.text import counted
from harness.data.files import some
from harness.gates.calibration import CLOSE
from harness.measures.measures import grows_with
from harness.reports.tables import Cell, Column, Number, Table
from harness.statistics.bootstrap import bootstrap_means, one_thread
from harness.statistics.factors import Effects, Importance, Share, effects, importance
from harness.storage.typed import INLINE
from harness.tracking.tracker import LoggedRun

LEAST_QUERIES = 10  # with fewer queries, no shares are computed
WORTH_SAYING = 0.01  # a pair of keys with a smaller share is not shown
SEED, RESAMPLES = 0, 2000
MOST_MAPPED = 10  # at most this many keys have heat maps: the keys that matter most
MOST_CELLS = 1000  # heat maps with more cells are left out
SHOWN = 5  # a terminal shows at most this many keys
COLUMNS = (
    Column("key"),
    Column("values", "count"),
    Column("share", "percent", 1),
    Column("with pairs", "percent", 1),
    Column("best value"),
    Column("adjusted mean", "value"),
)
# Reasons why the share of a key is unknown: the name that the page uses -> the words
REASONS = {
    "runs": "there are too few runs for so many keys",
    "queries": "too few queries have a value in every run",
    "mixed": "these runs cannot tell the effects of such keys from the effects of other keys",
    "same": "all scores are the same",
}


@dataclass(frozen=True, eq=False)
class Level:
    """One value of a key.

    runs: the number of runs with this value. best: the highest mean of these runs.
    mean: the mean score with this value, over all values of the other keys with equal weights; if the effects of keys
        cannot be told apart, the mean over the runs with this value.
    low, high: the 95 % interval of this value's difference from the mean over all values of the key, plus that mean.
    """

    value: str
    runs: int
    best: float
    mean: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class KeyMatters:
    """The effect of a key on the score.

    alone: the key's own share of the variance. total: this share plus the shares of all pairs that include the key.
    reason: "" if the shares are known; otherwise a name in REASONS, or "only" if no other key varies.
    """

    key: VariedKey = field(metadata=INLINE)
    alone: Share | None
    total: Share | None
    reason: str
    levels: tuple[Level, ...]
    plateau: Plateau | None

    @property
    def tells(self) -> bool:
        """Whether the key has a clear effect, by its share or, if no other key varies, by its values' intervals."""
        if self.total is not None:
            return self.total.low > 0
        worst = min(self.levels, key=lambda level: level.mean)
        return self.reason == "only" and self.best.low > worst.high

    @property
    def best(self) -> Level:
        return max(self.levels, key=lambda level: level.mean)


@dataclass(frozen=True, eq=False)
class KeyPair:
    first: str
    second: str
    share: Share


@dataclass(frozen=True, eq=False)
class KeyGroup:
    """Keys that are compared among the same runs. The key that matters most comes first.

    paired: whether the effects of pairs of keys are known.
    pairs: the pairs of keys with a clear effect and a share of at least WORTH_SAYING.
    rest: the share of the variance that neither keys nor pairs explain; None if no share is known.
    spread: the standard deviation of the scores over all combinations of tried values; None if no share is known.
    whole: whether every combination of tried values ran.
    beyond_chance: whether a test at the level .05 finds that mean scores vary at all.
    """

    runs: int
    keys: tuple[KeyMatters, ...]
    paired: bool = False
    pairs: tuple[KeyPair, ...] = ()
    rest: Share | None = None
    spread: float | None = None
    whole: bool = True
    beyond_chance: bool = True


def _group(
    metric: str, having: np.ndarray, keys: Sequence[VariedKey], axes: Sequence[VariedKey], values: np.ndarray
) -> KeyGroup:
    """Compare keys among the runs that have them. All keys must occur in the same runs.

    having: bool [R], the runs with the keys. keys: as `comparable` returns them.
    axes: all varied keys, as `varied` returns them. values: float64 [R, Q], finite, best run first.
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
        pairs=tuple(
            KeyPair(keys[first].name, keys[second].name, one)
            for (first, second), one in shares.pairs.items()
            if one.low > 0 and one.value >= WORTH_SAYING
        ),
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
    alone = shares.alone.get(place) if shares else None
    known = alone is not None and not math.isnan(alone.value)
    averages = found.mean + found.parts[place,] if found and (place,) in found.parts else None
    own = key.among(key.having)
    return KeyMatters(
        key=key,
        alone=alone if known else None,
        total=shares.total[place] if known and shares else None,
        reason="" if known else _reason(place, values.shape[1], found, shares),
        levels=_levels(own, values, averages),
        plateau=plateau_of(own, axes, values, averages, grows_with(metric, key.name)),
    )


def _reason(place: int, queries: int, found: Effects | None, shares: Importance | None) -> str:
    if queries < LEAST_QUERIES:
        return "queries"
    if found is None:
        return "runs"
    if shares is None:
        return "only"
    return "same" if place in shares.alone else "mixed"


def _levels(key: VariedKey, values: np.ndarray, averages: np.ndarray | None) -> tuple[Level, ...]:
    """Return a `Level` for each value. averages: see `plateau_of`; if None, means over the runs are used."""
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


@dataclass(frozen=True, eq=False)
class Map:
    """The heat map of two keys. means: float64 [L1, L2], mean scores of the runs with both values; NaN without runs."""

    first: str
    second: str
    means: np.ndarray


@dataclass(frozen=True, eq=False)
class Matters:
    """The keys whose values differ between the runs, and how much they matter.

    left_out: the number of queries without a value in some run.
    groups: one for each set of keys that occur in the same runs; the group with the most runs comes first.
    axes: every key that varies, with its original values. In `groups`, numbers may be binned.
    """

    metric: str
    runs: int
    queries: int
    left_out: int
    groups: tuple[KeyGroup, ...]
    axes: tuple[VariedKey, ...] = field(repr=False)
    maps: tuple[Map, ...] = field(repr=False)

    @property
    def table(self) -> Table:
        keys = [one for group in self.groups for one in group.keys if one.tells]
        keys.sort(key=lambda one: -(one.alone.value if one.alone else 1.0))
        return Table("What matters", COLUMNS, [_row(one) for one in keys[:SHOWN]], self._lines(keys[:SHOWN]), "matters")

    def _lines(self, shown: Sequence[KeyMatters]) -> list[str]:
        lines = [line for group in self.groups for line in _group_lines(group, self.runs, shown)]
        if shown:
            about = (
                f"A key's share says how much it explains of the variance of {self.metric} over the tried values. "
                "Intervals treat the queries as a random sample. Means are adjusted for the other keys."
            )
            lines = [about, *lines]
        others = [one for group in self.groups for one in group.keys if one not in shown]
        lines += [" ".join(_others(others))] if others else []
        if self.left_out:
            lines.append(f"Left out: {counted(self.left_out, 'query')} without a value in some run.")
        return lines


def matters(runs: BoardRuns) -> Matters | None:
    """Return the keys that matter, judged by the queries on which runs are ranked.

    Return None if no key varies, if no query has a value in every run, and for text tasks, whose measures are not means
    over items. Scored files are left out, since they have no settings. Runs with equal results are all included.
    """
    found: dict[str, tuple[int, LoggedRun]] = {}  # trial key -> (row, run), the best first
    for row, one in enumerate(runs.runs):
        for run in (one.run, *one.also):
            if run.has_settings:
                found.setdefault(run.tags.get("trial_key", run.run_id), (row, run))
    rows, made = [row for row, _ in found.values()], [run for _, run in found.values()]
    axes = varied([one.params for one in made])
    chosen = runs.choosing
    known = chosen & ~np.isnan(runs.values[rows]).any(axis=0)
    if not axes or not known.any() or runs.submissions:
        return None
    values = runs.values[rows][:, known]
    with one_thread():  # with several threads, many small products mostly wait for each other
        groups = [_group(runs.metric, having, keys, axes, values) for having, keys in runs_by_keys(comparable(axes))]
    return Matters(
        metric=runs.metric,
        runs=len(made),
        queries=int(known.sum()),
        left_out=int((chosen & ~known).sum()),
        groups=tuple(groups),
        axes=tuple(axes),
        maps=tuple(_maps([one.key for group in groups for one in group.keys][:MOST_MAPPED], values)),
    )


def _maps(keys: Sequence[VariedKey], values: np.ndarray) -> list[Map]:
    scores, found = values.mean(axis=1), []
    for first, second in itertools.combinations(keys, 2):
        both = first.having & second.having
        shape = len(first.values), len(second.values)
        if both.any() and shape[0] * shape[1] <= MOST_CELLS:
            sums, counts = np.zeros(shape), np.zeros(shape)
            where = first.places[both], second.places[both]
            np.add.at(sums, where, scores[both])
            np.add.at(counts, where, 1)
            means = np.divide(sums, counts, out=np.full(shape, np.nan), where=counts > 0)
            found.append(Map(first.name, second.name, np.round(means, 8)))
    return found


def _row(one: KeyMatters) -> list[Cell]:
    shares: list[Cell] = [None, None]
    if one.alone and one.total:
        shares = [Number(one.alone.value, one.alone.low, one.alone.high), one.total.value]
    return [one.key.name, len(one.levels), *shares, one.best.value, one.best.mean]


def _others(keys: Sequence[KeyMatters]) -> list[str]:
    kinds: dict[str, list[str]] = {}
    for one in keys:
        why = f"Unknown, since {REASONS[one.reason]}" if one.reason in REASONS else "No clear effect"
        kinds.setdefault("Smaller shares" if one.tells else why, []).append(one.key.name)
    return [f"{said}: {some(names, SHOWN)}." for said, names in kinds.items()]


def _group_lines(group: KeyGroup, runs: int, shown: Sequence[KeyMatters]) -> list[str]:
    own = [one for one in group.keys if one in shown]
    lines = []
    if group.rest and not group.beyond_chance:
        names = some([one.key.name for one in group.keys], SHOWN)
        lines.append(f"The scores of these runs differ no more than by chance: it is unknown which of {names} matters.")
    if own and group.runs < runs:
        names = ", ".join(one.key.name for one in own)
        lines.append(f"These keys are compared only among the {counted(group.runs, 'run')} that have them: {names}.")
    if own and group.rest and not group.whole:
        model = "keys and pairs of keys" if group.paired else "single keys"
        lines.append(f"Some combinations of values were not tried. A model of {model} fills in their scores.")
    for one in own:
        if one.key.also:
            together = f"{', '.join([one.key.name, *one.key.also[:-1]])} and {one.key.also[-1]}"
            lines.append(f"{together} were always changed together: their effects cannot be separated.")
    names_shown = {one.key.name for one in own}
    for pair in group.pairs:
        if {pair.first, pair.second} <= names_shown:
            lines.append(f"{pair.first} and {pair.second} together explain another {pair.share.value:.1%}.")
    return lines + [one.plateau.sentence(one.key.name) for one in own if one.plateau]


# ---- Plateau or spike: how far a numeric key can move from its best value before scores fall

LEAST = 3  # a key with fewer values has no `Plateau`
BEYOND = 1.96  # a value this many standard errors below the best is significantly worse


@dataclass(frozen=True)
class Plateau:
    """How scores change around the best value of a numeric key: a plateau, a spike, or no clear change.

    along: "run" for scores of runs that differ from the best run in this key alone; "average" for scores averaged
        over the values of all other keys.
    values: in ascending order. best, low, high: the indices of the best value and of the ends of the plateau.
    below: how far each value scores below the best. error: the standard error of `below`; 0 for the best value.
    grows: whether greater values of the key can only raise the measure, as `top_k` raises `recall`.
    """

    along: Literal["run", "average"]
    values: tuple[str, ...]
    means: tuple[float, ...]
    best: int
    low: int
    high: int
    below: tuple[float, ...]
    error: tuple[float, ...]
    grows: bool = False
    json_too = ("shape", "at_end", "clear", "beside")

    @property
    def clear(self) -> bool:
        """Whether some value is significantly worse than the best value."""
        return any(below > BEYOND * error + CLOSE for below, error in zip(self.below, self.error, strict=True))

    @property
    def shape(self) -> Literal["flat", "spike", "plateau"]:
        if self.low == 0 and self.high == len(self.values) - 1:
            return "flat"
        return "spike" if self.low == self.high else "plateau"

    @property
    def at_end(self) -> Literal["", "least", "greatest"]:
        """Which end of the tried values is clearly best, or "". If `grows`, it is never "greatest"."""
        if not self.clear or 0 < self.best < len(self.values) - 1:
            return ""
        return "least" if self.best == 0 else "" if self.grows else "greatest"

    @property
    def beside(self) -> int:
        """The index of the better of the two values next to the plateau; `best` if all values are on the plateau."""
        outside = [place for place in (self.low - 1, self.high + 1) if 0 <= place < len(self.values)]
        return min(outside, key=lambda place: self.below[place], default=self.best)

    def sentence(self, name: str) -> str:
        over = "" if self.along == "run" else ", on average over the other keys"
        first, last, best = self.values[self.low], self.values[self.high], self.values[self.best]
        if not self.clear:
            where = over or ", with all else as in the best run"
            return f"{name}: from {self.values[0]} to {self.values[-1]}, scores differ no more than by chance{where}."
        gap = f"{self.values[self.beside]} is {self.below[self.beside]:.4f} below"
        reach = f"plateau from {first} to {last}, best at {best}"
        if self.shape == "spike":
            reach = f"spike at {best} alone"
        beyond = f" {best} is the {self.at_end} value tried: go beyond it." if self.at_end else ""
        if self.grows and self.best == len(self.values) - 1:
            beyond = " By construction, the measure rises with the key: larger values would show nothing."
        return f"{name}: {reach}; {gap}{over}.{beyond}"


def plateau_of(
    key: VariedKey, keys: Sequence[VariedKey], values: np.ndarray, averages: np.ndarray | None, grows: bool = False
) -> Plateau | None:
    """Return the plateau or spike at the best value of a key; None for fewer than LEAST values and for non-numbers.

    key: from `comparable`. keys: all keys, from `varied`. values: scores by query, float64 [R, Q], finite, best first.
    averages: float64 [L, Q], the mean score of each of the key's L values over the other keys; None if unknown.
    """
    if key.numbers is None or len(key.values) < LEAST or values.shape[1] < 2:
        return None
    [raw] = [one for one in keys if one.name == key.name]
    line = _line(raw, [one for one in keys if one.name not in (key.name, *key.also)])
    if len(line) >= LEAST:
        return shape_along("run", [raw.values[raw.places[run]] for run in line], values[line], grows)
    return None if averages is None else shape_along("average", key.values, averages, grows)


def _line(key: VariedKey, others: Sequence[VariedKey]) -> list[int]:
    """Return the best run with the key, and runs that differ from it in this key alone: at most one run per value."""
    best = int(np.argmax(key.having))
    places = np.array([one.places for one in others]).reshape(-1, len(key.places))
    alike = np.flatnonzero((places == places[:, [best]]).all(axis=0) & key.having)
    return [int(run) for run in alike[np.unique(key.places[alike], return_index=True)[1]]]


def shape_along(along: Literal["run", "average"], texts: Sequence[str], rows: np.ndarray, grows: bool) -> Plateau:
    """Return the plateau or spike at the best of a key's values.

    texts: the values, ascending. rows: float64 [len(texts), Q], the finite score of each value on each query.
    """
    means = rows.mean(axis=1)
    best = int(np.argmax(means))
    less = rows[best] - rows
    below, error = less.mean(axis=1), less.std(axis=1, ddof=1) / np.sqrt(rows.shape[1])
    reached = below <= error + CLOSE
    low = best - int(np.argmin([*reached[best::-1], False])) + 1
    high = best + int(np.argmin([*reached[best:], False])) - 1
    floats = [tuple(float(one) for one in row) for row in (means, below, error)]
    return Plateau(along, tuple(texts), floats[0], best, low, high, floats[1], floats[2], grows)
