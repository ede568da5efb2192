"""The settings that differ between runs, for short names of runs and for the analysis of which keys matter."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from harness.config import manual
from harness.config.components import GROUPS, SHARED
from harness.config.text import shortest
from harness.storage.typed import HIDDEN
from harness.tracking.tracker import SHOWN_FIRST, LoggedRun

SAID = {"top_k": "top"}  # key -> its abbreviation in a run's short name
LONGEST = 30  # a value in a short name has at most this many characters
Params = Mapping[str, str]
MOST_VALUES = 12  # a numeric key with more values is binned, unless the values recur
RECUR = 4  # values recur if, on average, at least this many runs share a value
MOST_BINS = 8  # a numeric key has at most this many bins
ABSENT = "none"  # the value of a choice that a run lacks
BROUGHT = (*SHARED, "fusion")  # choices that a run has only if its retriever asks for them


def changed_settings(params: Sequence[Params]) -> dict[str, list[str | None]]:
    """Return the logged params that differ: name -> the value of each run, None if absent or null.

    If some runs lack a key and all other runs use its default value, the key is left out. The default depends on the
    run's choices: with `fusion=rrf`, for example, the default of `fusion.k` is 60.
    """
    return _changed(params, _brought(params))


def changes(params: Sequence[Params]) -> list[dict[str, tuple[str | None, str | None]]]:
    """For each run but the first, return the settings that differ from the run before: name -> (before, here)."""
    brought = _brought(params)
    found = []
    for place in range(1, len(params)):
        both = slice(place - 1, place + 1)
        changed = _changed(params[both], brought[both])
        found.append({name: (before, here) for name, (before, here) in changed.items()})
    return found


def _changed(params: Sequence[Params], brought: Sequence[Params]) -> dict[str, list[str | None]]:
    names = dict.fromkeys(name for run in params for name in run if name != "metrics")  # these change no result
    every = {name: [None if (one := run.get(name)) == "null" else one for run in params] for name in names}
    found = {}
    for name, values in every.items():
        pairs = zip(values, brought, strict=True)
        if len({*values}) > 1 and (None not in values or any(one not in (None, own.get(name)) for one, own in pairs)):
            found[name] = values
    return found


def short_names(runs: Sequence[LoggedRun]) -> list[str]:
    """Return a short name for each run, unique among these runs, for example `hybrid_light · auto`.

    A name is the run's brief name: its retriever and gate, unless a person named it. If runs have equal names, values
    of a few other settings that tell these runs apart are added. A value is left out if more than half of these runs
    share it. If names are still equal, the beginning of the run's id is added.
    """
    made = [run.params if run.has_settings else {} for run in runs]
    names = [run.brief for run in runs]
    said = _said({key: values for key, values in changed_settings(made).items() if key not in SHOWN_FIRST})
    for places in _alike(names, range(len(names))):
        for key in _telling(said, places):
            usual, count = Counter(said[key][place] for place in places).most_common(1)[0]
            for place in places:
                if said[key][place] != usual or 2 * count <= len(places):
                    names[place] += f" · {said[key][place]}"
    for places in _alike(names, range(len(names))):
        for place in places:
            names[place] += f" · {runs[place].short_id}"
    return names


def _telling(said: Mapping[str, Sequence[str]], places: Sequence[int]) -> list[str]:
    """Return a few keys that tell the runs at `places` apart as well as all keys do, the most telling key first."""
    found: list[str] = []

    def parts(keys: Sequence[str]) -> int:
        return len({tuple(said[key][place] for key in keys) for place in places})

    while parts(found) < parts([*said]):
        found.append(max(said, key=lambda key: parts([*found, key])))
    for key in [*found]:
        if parts(rest := [one for one in found if one != key]) == parts(found):
            found = rest
    return found


def overrides_in_words(overrides: Sequence[str]) -> str:
    """Return the overrides of a trial in the form of a short name: `hybrid_light · auto · dense 0.5`."""
    pairs = [(key.lstrip("+~"), value.strip("'\"")) for key, _, value in (word.partition("=") for word in overrides)]
    called = _called([key for key, _ in pairs])
    return " · ".join(value if key in (*SHOWN_FIRST, *GROUPS) else f"{called[key]} {value}" for key, value in pairs)


def _alike(names: Sequence[str], places: Iterable[int]) -> list[list[int]]:
    found: dict[str, list[int]] = {}
    for place in places:
        found.setdefault(names[place], []).append(place)
    return [alike for alike in found.values() if len(alike) > 1]


def _said(changed: Mapping[str, Sequence[str | None]]) -> dict[str, list[str]]:
    """Return key -> what it adds to each run's name, such as `top 2`. Leave out keys with overlong values."""
    called, found = _called(changed), {}
    for key, values in changed.items():
        if all(len(value or "") <= LONGEST for value in values):
            plain = f"{called[key]} "
            found[key] = [f"{'' if key in GROUPS and one else plain}{one or 'none'}" for one in values]
    return found


def _called(keys: Collection[str]) -> dict[str, str]:
    """Return key -> its last part, or its last two parts if another key has the same last part."""
    ends = Counter(key.rpartition(".")[2] for key in keys)
    parts = {key: key.split(".") for key in keys}
    return {key: SAID.get(key) or ".".join(one[-1:] if ends[one[-1]] == 1 else one[-2:]) for key, one in parts.items()}


def _brought(params: Sequence[Params]) -> list[dict[str, str]]:
    chosen = [[(group, run[group]) for group in ("retriever", *GROUPS) if group in run] for run in params]
    brings = {choice: _values(*choice) for choice in {one for several in chosen for one in several}}
    return [{key: value for choice in several for key, value in brings[choice].items()} for several in chosen]


def _values(group: str, choice: str) -> dict[str, str]:
    import yaml

    values = {key: yaml.safe_load(entry.value) for key, entry in manual.manual_keys(group, choice).items()}
    dumped = {key: json.dumps(shortest(one), ensure_ascii=False) for key, one in values.items()}
    return {key: one if isinstance(one, str) else dumped[key] for key, one in values.items()}


@dataclass(frozen=True, eq=False)
class VariedKey:
    """A setting that differs between R runs.

    also: keys whose values follow from this key's value, so that their effects cannot be separated.
    values: the distinct values; numbers ascending, others in order of appearance.
    numbers: the values as numbers; None if some are not numbers.
    places: int [R], the index of each run's value in `values`; -1 for a run without the key.
    """

    name: str
    values: tuple[str, ...] = field(metadata=HIDDEN)
    numbers: tuple[float, ...] | None = field(metadata=HIDDEN)
    places: np.ndarray = field(metadata=HIDDEN)
    also: tuple[str, ...] = ()
    json_too = ("numeric",)

    @property
    def numeric(self) -> bool:
        return self.numbers is not None

    @property
    def having(self) -> np.ndarray:
        """bool [R], the runs with the key."""
        return self.places >= 0

    def among(self, runs: np.ndarray) -> VariedKey:
        """Return the key as restricted to some of the runs. runs: bool [R]; each value must occur among these runs."""
        return replace(self, places=self.places[runs])

    def grouped(self, bins: int) -> VariedKey:
        """Return the key. If its numbers hardly recur, put them into at most `bins` bins of about equally many runs."""
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
    """Return the keys that vary, in order of appearance, without keys that `changed_settings` leaves out.

    A run without a key is not compared by this key. But if the key is a choice that every run could have, such as
    `rerank`, a run without it gets the value "none".
    """
    keys = []
    for name in changed_settings(params):
        absent = ABSENT if "." not in name and name not in BROUGHT else None
        key = _key(name, [run.get(name, absent) for run in params])
        if len(key.values) > 1:
            keys.append(key)
    return keys


def comparable(keys: Sequence[VariedKey]) -> list[VariedKey]:
    """Bin numbers and drop each key whose value follows from the value of another key. Return the keys that are left.

    If several keys split the runs in the same way, keep one, preferably the choice of a config group. The field
    `also` of a kept key names the keys dropped for it.
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


def runs_by_keys(keys: Sequence[VariedKey]) -> list[tuple[np.ndarray, list[VariedKey]]]:
    """Group keys by the runs that have them. Return (the runs, bool [R]; their keys) of each group, most runs first."""
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


def _numbers(texts: Sequence[str]) -> list[float] | None:
    try:
        found = [float(text) for text in texts]
    except ValueError:
        return None
    return found if all(map(math.isfinite, found)) else None


def _follows(key: VariedKey, finer: VariedKey) -> bool:
    """Return True if both keys occur in the same runs and the value of `finer` determines the value of `key`."""
    if not np.array_equal(key.having, finer.having):
        return False
    pairs = np.unique(np.stack([finer.places[key.having], key.places[key.having]]), axis=1)
    return pairs.shape[1] == len(np.unique(finer.places[key.having]))
