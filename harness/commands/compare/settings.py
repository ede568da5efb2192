"""The settings in which compared runs differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from harness.commands.compare.comparison import RunScores
from harness.config import manual
from harness.config.components import GROUPS


def changed_settings(runs: Sequence[RunScores]) -> dict[str, list[str | None]]:
    """The logged params in which the runs differ: name -> the value of each run, None where it has none or null.

    What follows from another choice is left out: keys that some of the runs lack, with the values that the choices of
    the others bring, such as `fusion.k` 60 beside `fusion` rrf.
    """
    names = dict.fromkeys(name for run in runs for name in run.run.params)
    logged = {name: [run.run.params.get(name) for run in runs] for name in names}
    found = {name: [None if value == "null" else value for value in values] for name, values in logged.items()}
    brought = [_brought(run.run.params) for run in runs]
    return {
        name: values
        for name, values in found.items()
        if len(set(values)) > 1
        and (
            None not in values
            or any(value is not None and value != own.get(name) for value, own in zip(values, brought, strict=True))
        )
    }


def _brought(params: Mapping[str, str]) -> dict[str, str]:
    """Key -> value as it is logged, of all that the choices among a run's params bring."""
    import yaml

    chosen = [(group, params[group]) for group in ("retriever", *GROUPS) if group in params]
    entries = [pair for group, choice in chosen for pair in manual.keys_of(group, choice).items()]
    values = {key: yaml.safe_load(entry.value) for key, entry in entries}
    return {key: one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for key, one in values.items()}
