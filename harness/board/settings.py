"""The settings in which runs differ, and the short names that tell the runs apart by them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from harness.config import manual
from harness.config.components import GROUPS
from harness.config.text import shortest
from harness.tracking.tracker import LoggedRun

FIRST = ("retriever", "gate")  # what every short name says
SAID = {"top_k": "top"}  # how a short name calls a key
LONGEST = 30  # characters of a value that a short name says
Params = Mapping[str, str]


def changed_settings(params: Sequence[Params]) -> dict[str, list[str | None]]:
    """The logged params in which runs differ: name -> the value of each run, None where it has none or null.

    What follows from another choice is left out: keys that some of the runs lack, with the values that the choices of
    the others bring, such as `fusion.k` 60 beside `fusion` rrf.
    """
    return _changed(params, _brought(params))


def changes(params: Sequence[Params]) -> list[dict[str, tuple[str | None, str | None]]]:
    """For each run but the first the settings in which it differs from the one before: name -> (before, here)."""
    brought = _brought(params)
    found = []
    for place in range(1, len(params)):
        both = slice(place - 1, place + 1)
        changed = _changed(params[both], brought[both])
        found.append({name: (before, here) for name, (before, here) in changed.items()})
    return found


def _changed(params: Sequence[Params], brought: Sequence[Params]) -> dict[str, list[str | None]]:
    """As `changed_settings`. brought: for each run what its choices bring."""
    names = dict.fromkeys(name for run in params for name in run)
    logged = {name: [run.get(name) for run in params] for name in names}
    found = {name: [None if value == "null" else value for value in values] for name, values in logged.items()}
    found = {name: values for name, values in found.items() if len(set(values)) > 1}
    return {
        name: values
        for name, values in found.items()
        if None not in values
        or any(value is not None and value != own.get(name) for value, own in zip(values, brought, strict=True))
    }


def short_names(runs: Sequence[LoggedRun]) -> list[str]:
    """A name for each run that people can say, such as `hybrid_light · auto`, unique among these runs.

    It says the retriever and the gate. Of runs that are alike so far it says the fewest other settings that tell them
    apart, without the values that more than half of them have: of many runs with one weight and one with another, that
    one says it. A file that was scored is called as its run is. Runs that differ in nothing that can be said are
    told apart by the beginnings of their ids.
    """
    made = [run.params if run.has_settings else {} for run in runs]
    names = [
        " · ".join(own[key] for key in FIRST if key in own) or run.name for own, run in zip(made, runs, strict=True)
    ]
    said = _said({key: values for key, values in changed_settings(made).items() if key not in FIRST})
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
    """The fewest keys that tell these runs apart as well as all do, that which splits them most first."""
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
    """The overrides of a trial as short as its name is: `hybrid_light · auto · dense 0.5`; "" without any."""
    pairs = [(key.lstrip("+~"), value.strip("'\"")) for key, _, value in (word.partition("=") for word in overrides)]
    called = _called([key for key, _ in pairs])
    return " · ".join(value if key in (*FIRST, *GROUPS) else f"{called[key]} {value}" for key, value in pairs)


def _alike(names: Sequence[str], places: Iterable[int]) -> list[list[int]]:
    """Those of the places that share a name with others of them."""
    found: dict[str, list[int]] = {}
    for place in places:
        found.setdefault(names[place], []).append(place)
    return [alike for alike in found.values() if len(alike) > 1]


def _said(changed: Mapping[str, Sequence[str | None]]) -> dict[str, list[str]]:
    """Key -> how the name of each run says its value: `top 2`, `kiwi`. Without values that are too long to be said."""
    called, found = _called(changed), {}
    for key, values in changed.items():
        if all(len(value or "") <= LONGEST for value in values):
            found[key] = [
                f"{'' if key in GROUPS and value else f'{called[key]} '}{value or 'none'}" for value in values
            ]
    return found


def _called(keys: Collection[str]) -> dict[str, str]:
    """Key -> how it is called: by its last part, or by its last two where another of the keys ends alike."""
    ends = Counter(key.rpartition(".")[2] for key in keys)
    parts = {key: key.split(".") for key in keys}
    return {key: SAID.get(key) or ".".join(one[-1:] if ends[one[-1]] == 1 else one[-2:]) for key, one in parts.items()}


def _brought(params: Sequence[Params]) -> list[dict[str, str]]:
    """For each run key -> value as it is logged, of all that the choices among its params bring."""
    chosen = [[(group, run[group]) for group in ("retriever", *GROUPS) if group in run] for run in params]
    values = {choice: _values(*choice) for choice in {one for several in chosen for one in several}}
    found: list[dict[str, str]] = []
    for several in chosen:
        found.append({})
        for choice in several:
            found[-1] |= values[choice]
    return found


def _values(group: str, choice: str) -> dict[str, str]:
    import yaml

    values = {key: yaml.safe_load(entry.value) for key, entry in manual.keys_of(group, choice).items()}
    return {key: one if isinstance(one, str) else _logged(one) for key, one in values.items()}


def _logged(value: Any) -> str:
    return json.dumps(shortest(value), ensure_ascii=False)
