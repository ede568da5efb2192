"""The keys in which runs differ, as coordinates: which values each key has, and the place of each run among them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

MOST_VALUES = 12  # of a number; more are grouped, unless each is that of several runs
RECUR = 4  # runs that a value has on average, if each is that of several runs
MOST_BINS = 8  # into which numbers are grouped

Params = Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Key:
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

    def among(self, runs: np.ndarray) -> Key:
        """The key as some runs have it, bool [R]; all values stay."""
        return replace(self, places=self.places[runs])

    def grouped(self, bins: int) -> Key:
        """The key itself; if it is a number that hardly recurs, the key with values in groups of as many runs each."""
        count = len(self.values)
        if self.numbers is None or count <= MOST_VALUES or RECUR * count <= self.having.sum():
            return self
        where = self.places[self.having]
        share = (np.searchsorted(np.sort(where), np.arange(count), "right") - 0.5) / len(where)
        group = np.unique((share * bins).astype(int), return_inverse=True)[1].reshape(-1)
        ends = [np.flatnonzero(group == one)[[0, -1]] for one in range(group.max() + 1)]
        return replace(
            self,
            values=tuple(" – ".join(dict.fromkeys((self.values[low], self.values[high]))) for low, high in ends),
            numbers=tuple((self.numbers[low] + self.numbers[high]) / 2 for low, high in ends),
            places=np.where(self.having, group[self.places], -1),
        )


def varied(params: Sequence[Params]) -> list[Key]:
    """The keys that have different values in the runs that have them, in the order in which they first occur.

    A run that lacks a key, such as `fusion` where there is one retriever, is not compared by it.
    """
    names = dict.fromkeys(name for one in params for name in one)
    return [key for name in names if len((key := _key(name, params)).values) > 1]


def comparable(keys: Sequence[Key]) -> list[Key]:
    """The keys as an analysis takes them: numbers that hardly recur in groups, and none that follows from another.

    Keys that split the same runs alike are one, named after a choice if one of them is; so is a key with one from
    whose value its own follows. The others are named in `also`.
    """
    bins = [min(MOST_BINS, max(2, int(key.having.sum()) // (RECUR * len(keys)))) for key in keys]
    kept: list[Key] = []
    order = {key.name: place for place, key in enumerate(keys)}
    grouped = [key.grouped(count) for key, count in zip(keys, bins, strict=True)]
    for key in sorted(grouped, key=lambda key: (-len(key.values), "." in key.name)):
        finer = next((place for place, one in enumerate(kept) if _follows(key, one)), None)
        if finer is None:
            kept.append(key)
        else:
            kept[finer] = replace(kept[finer], also=(*kept[finer].also, key.name))
    return sorted(kept, key=lambda key: order[key.name])


def groups(keys: Sequence[Key]) -> list[tuple[np.ndarray, list[Key]]]:
    """(the runs, bool [R]; the keys that just these runs have), the most runs first."""
    found: dict[bytes, list[Key]] = {}
    for key in keys:
        found.setdefault(key.having.tobytes(), []).append(key)
    return sorted(((some[0].having, some) for some in found.values()), key=lambda group: -int(group[0].sum()))


def _key(name: str, params: Sequence[Params]) -> Key:
    texts = [one.get(name) for one in params]
    values = list(dict.fromkeys(text for text in texts if text is not None))
    numbers = [_number(text) for text in values]
    known = [one for one in numbers if one is not None]
    if len(known) == len(values):  # as in a sweep's figures, numbers are in their order
        order = sorted(range(len(values)), key=known.__getitem__)
        values, known = [values[place] for place in order], [known[place] for place in order]
    place = {text: number for number, text in enumerate(values)}
    places = np.array([-1 if text is None else place[text] for text in texts])
    return Key(name, tuple(values), tuple(known) if len(known) == len(values) else None, places)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _follows(key: Key, finer: Key) -> bool:
    """Whether both keys are those of the same runs, and each value of `finer` has one of `key`."""
    if not np.array_equal(key.having, finer.having):
        return False
    pairs = np.unique(np.stack([finer.places[key.having], key.places[key.having]]), axis=1)
    return pairs.shape[1] == len(np.unique(finer.places[key.having]))
