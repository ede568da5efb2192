"""The keys in which runs differ, as coordinates: which values each key has, and the place of each run among them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.board.settings import changed_settings
from harness.config.components import SHARED

MOST_VALUES = 12  # of a number; more are grouped, unless each is that of several runs
RECUR = 4  # runs that a value has on average, if each is that of several runs
MOST_BINS = 8  # into which numbers are grouped
ABSENT = "none"  # the value of a choice that a run lacks
BROUGHT = (*SHARED, "fusion")  # choices that a run has only if its retriever asks for them

Params = Mapping[str, str]


@dataclass(frozen=True, eq=False)
class VariedKey:
    """A key that varies.

    also: keys that tell these runs apart in the same way or less finely, so that no effect is theirs alone.
    values: the different values as texts; numbers ascending, others as they first occur.
    numbers: the values as numbers; None if one of them is none.
    places: int [R], the place of each run among `values`; -1 for a run that does not have the key.
    """

    name: str
    values: tuple[str, ...]
    numbers: tuple[float, ...] | None
    places: np.ndarray
    also: tuple[str, ...] = ()

    @property
    def having(self) -> np.ndarray:
        """bool [R], the runs that have the key."""
        return self.places >= 0

    def among(self, runs: np.ndarray) -> VariedKey:
        """The key for some runs, bool [R], among which each value occurs."""
        return replace(self, places=self.places[runs])

    def grouped(self, bins: int) -> VariedKey:
        """The key itself; if it is a number that hardly recurs, the key with values in groups of as many runs each."""
        count = len(self.values)
        if self.numbers is None or count <= MOST_VALUES or RECUR * count <= self.having.sum():
            return self
        where = self.places[self.having]
        share = (np.searchsorted(np.sort(where), np.arange(count), "right") - 0.5) / len(where)
        group = np.unique((share * bins).astype(int), return_inverse=True)[1].reshape(-1)
        ends = [np.flatnonzero(group == one)[[0, -1]] for one in range(group.max() + 1)]
        numbers = [(self.numbers[low], self.numbers[high]) for low, high in ends]
        return replace(
            self,
            values=tuple(" – ".join(dict.fromkeys(f"{end:.4g}" for end in both)) for both in numbers),
            numbers=tuple(sum(both) / 2 for both in numbers),
            places=np.where(self.having, group[self.places], -1),
        )


def varied(params: Sequence[Params]) -> list[VariedKey]:
    """The keys that have different values in the runs that have them, in the order in which they first occur.

    What follows from a choice is left out, as in `changed_settings`. A run without a key is not compared by it; but a
    run without a choice that no retriever brings with it, such as `rerank`, has the value "none".
    """
    keys = []
    for name in changed_settings(params):
        absent = ABSENT if "." not in name and name not in BROUGHT else None
        key = _key(name, [run.get(name, absent) for run in params])
        if len(key.values) > 1:
            keys.append(key)
    return keys


def comparable(keys: Sequence[VariedKey]) -> list[VariedKey]:
    """The keys as an analysis takes them: numbers that hardly recur in groups, and none that follows from another.

    Keys that split the same runs alike are one, named after a choice if one of them is; so is a key with one from
    whose value its own follows. The others are named in `also`.
    """
    bins = [min(MOST_BINS, max(2, int(key.having.sum()) // (RECUR * len(keys)))) for key in keys]
    kept: list[VariedKey] = []
    order = {key.name: place for place, key in enumerate(keys)}
    grouped = [key.grouped(count) for key, count in zip(keys, bins, strict=True)]
    for key in sorted(grouped, key=lambda key: (-len(key.values), "." in key.name)):
        finer = next((place for place, one in enumerate(kept) if _follows(key, one)), None)
        if finer is None:
            kept.append(key)
        else:
            kept[finer] = replace(kept[finer], also=(*kept[finer].also, key.name))
    return sorted(kept, key=lambda key: order[key.name])


def groups(keys: Sequence[VariedKey]) -> list[tuple[np.ndarray, list[VariedKey]]]:
    """(the runs, bool [R]; the keys that just these runs have), the most runs first."""
    found: dict[bytes, list[VariedKey]] = {}
    for key in keys:
        found.setdefault(key.having.tobytes(), []).append(key)
    return sorted(((some[0].having, some) for some in found.values()), key=lambda group: -int(group[0].sum()))


def _key(name: str, texts: Sequence[str | None]) -> VariedKey:
    values = list(dict.fromkeys(text for text in texts if text is not None))
    numbers = _numbers(values)
    if numbers:
        values = sorted(values, key=float)
    place = {text: number for number, text in enumerate(values)}
    places = np.array([-1 if text is None else place[text] for text in texts])
    return VariedKey(name, tuple(values), tuple(sorted(numbers)) if numbers else None, places)


def _numbers(texts: Sequence[str | None]) -> list[float] | None:
    """Texts as numbers, without those that are absent; None unless all are finite numbers."""
    try:
        found = [float(text) for text in texts if text is not None]
    except ValueError:
        return None
    return found if all(map(math.isfinite, found)) else None


def _follows(key: VariedKey, finer: VariedKey) -> bool:
    """Whether both keys are those of the same runs, and each value of `finer` has one of `key`."""
    if not np.array_equal(key.having, finer.having):
        return False
    pairs = np.unique(np.stack([finer.places[key.having], key.places[key.having]]), axis=1)
    return pairs.shape[1] == len(np.unique(finer.places[key.having]))
