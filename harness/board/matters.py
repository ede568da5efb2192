"""What matters: which of the keys in which runs differ moves the score, how much, and how far a number can move."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.board.compared import KeyGroup, KeyMatters, compare
from harness.board.runs import BoardRuns
from harness.board.varied import VariedKey, comparable, groups, varied
from harness.config.text import counted
from harness.data.files import some
from harness.reports.markup import finite
from harness.reports.tables import Cell, Column, Number, Table
from harness.tracking.tracker import LoggedRun

MOST_MAPPED = 10  # keys that have heat maps, those that matter most
MOST_CELLS = 1000  # of a heat map
SHOWN = 5  # keys on a terminal

COLUMNS = (
    Column("key"),
    Column("values", "count"),
    Column("share", "percent", 1),
    Column("with pairs", "percent", 1),
    Column("best value"),
    Column("adjusted mean", "value"),
)

# Why the share of a key is not known, by what a page calls it
REASONS = {
    "runs": "there are too few runs for so many keys",
    "queries": "too few queries have a value in every run",
    "mixed": "these runs cannot tell such effects from those of other keys",
    "same": "all scores are the same",
}


@dataclass(frozen=True, eq=False)
class Map:
    """The mean score of the runs that have each two values of two keys, float64 [L1, L2]; NaN where no run has both."""

    first: str
    second: str
    means: np.ndarray

    def to_json(self) -> dict[str, Any]:
        means = [[finite(one) for one in row] for row in self.means]
        return {"first": self.first, "second": self.second, "means": means}


@dataclass(frozen=True, eq=False)
class Matters:
    """What matters among runs.

    runs, queries: how many; left_out: queries without a value in some run.
    groups: keys that the same runs have are compared among those, the group of the most runs first.
    axes: every key that varies, with its values as they are; the keys of groups may have numbers in groups.
    """

    metric: str
    runs: int
    queries: int
    left_out: int
    groups: tuple[KeyGroup, ...]
    axes: tuple[VariedKey, ...] = field(repr=False)
    maps: tuple[Map, ...] = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        return {
            "metric": self.metric,
            "runs": self.runs,
            "queries": self.queries,
            "left_out": self.left_out,
            "groups": [one.to_json() for one in self.groups],
            "axes": [{"name": one.name, "numeric": one.numbers is not None} for one in self.axes],
            "maps": [one.to_json() for one in self.maps],
        }

    @property
    def table(self) -> Table:
        """The keys that surely matter, with their shapes, and one sentence for the others."""
        keys = sorted((one for group in self.groups for one in group.keys if one.tells), key=_share, reverse=True)
        return Table("What matters", COLUMNS, [_row(one) for one in keys[:SHOWN]], self._lines(keys[:SHOWN]), "matters")

    def _lines(self, shown: Sequence[KeyMatters]) -> list[str]:
        lines = [line for group in self.groups for line in _group_lines(group, self.runs, shown)]
        if shown:
            about = (
                f"Shares of the variance of {self.metric} over the values tried; intervals are over the queries; means "
                "are adjusted for the other keys."
            )
            lines = [about, *lines]
        others = [one for group in self.groups for one in group.keys if one not in shown]
        lines += [" ".join(_others(others))] if others else []
        if self.left_out:
            lines.append(f"Left out: {counted(self.left_out, 'query')} without a value in some run.")
        return lines


def matters(runs: BoardRuns) -> Matters | None:
    """Which keys matter, by the queries that rank the runs; None if none varies, or no query has a value in every run.

    Keys that only some runs have are compared among those. Values out of fold are values as any. Scored files have no
    settings and do not count. Runs with other settings that return the same do: they say that these change nothing.
    """
    rows, made = _configurations(runs)
    axes = varied([one.params for one in made])
    chosen = runs.public if runs.select_on == "public" else np.ones(len(runs.query_ids), bool)
    known = chosen & ~np.isnan(runs.values[rows]).any(axis=0)
    if not axes or not known.any():
        return None
    values = runs.values[rows][:, known]
    found = [compare(runs.metric, having, keys, axes, values) for having, keys in groups(comparable(axes))]
    return Matters(
        metric=runs.metric,
        runs=len(made),
        queries=int(known.sum()),
        left_out=int((chosen & ~known).sum()),
        groups=tuple(found),
        axes=tuple(axes),
        maps=tuple(_maps([one.key for group in found for one in group.keys][:MOST_MAPPED], values)),
    )


def _configurations(runs: BoardRuns) -> tuple[list[int], list[LoggedRun]]:
    """(rows of values, the runs they are of): each configuration once, the best first."""
    found: dict[str, tuple[int, LoggedRun]] = {}
    for row, one in enumerate(runs.runs):
        for run in (one.run, *one.also):
            if run.has_settings:
                found.setdefault(run.tags.get("trial_key", run.run_id), (row, run))
    return [row for row, _ in found.values()], [run for _, run in found.values()]


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
            found.append(Map(first.name, second.name, means))
    return found


def _row(one: KeyMatters) -> list[Cell]:
    shares: list[Cell] = [None, None]
    if one.alone and one.total:
        shares = [Number(one.alone.value, one.alone.low, one.alone.high), one.total.value]
    return [one.key.name, len(one.levels), *shares, one.best.value, one.best.mean]


def _others(keys: Sequence[KeyMatters]) -> list[str]:
    """What is said of the keys that are not shown."""
    kinds: dict[str, list[str]] = {}
    for one in keys:
        why = f"Not known, since {REASONS[one.reason]}" if one.reason in REASONS else "No clear effect"
        kinds.setdefault("Smaller shares" if one.tells else why, []).append(one.key.name)
    return [f"{said}: {some(names, SHOWN)}." for said, names in kinds.items()]


def _share(one: KeyMatters) -> float:
    return one.alone.value if one.alone else 1.0


def _group_lines(group: KeyGroup, runs: int, shown: Sequence[KeyMatters]) -> list[str]:
    """What limits the numbers of the keys of a group that are shown, and their shapes."""
    own = [one for one in group.keys if one in shown]
    lines = []
    if group.rest and not group.beyond_chance:
        names = some([one.key.name for one in group.keys], SHOWN)
        lines.append(f"The scores of these runs differ no more than by chance: which of {names} matters is not known.")
    if own and group.runs < runs:
        lines.append(f"Among the {counted(group.runs, 'run')} that have it: {', '.join(one.key.name for one in own)}.")
    if own and group.rest and not group.whole:
        model = "keys and pairs of keys" if group.paired else "single keys"
        lines.append(f"Not every combination of values was tried: a model of {model} stands for the others.")
    for one in own:
        if one.key.also:
            together = f"{', '.join([one.key.name, *one.key.also[:-1]])} and {one.key.also[-1]}"
            lines.append(f"{together} were always changed together: their effects cannot be separated.")
    names_shown = {one.key.name for one in own}
    for pair in group.strong:
        if {pair.first, pair.second} <= names_shown:
            lines.append(
                f"{pair.first} and {pair.second} together: {pair.share.value:.1%} beyond what each does alone."
            )
    return lines + [one.plateau.sentence(one.key.name) for one in own if one.plateau]
