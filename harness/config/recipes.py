"""Apply recipes (`experiment=NAME`) to commands without the group `experiment`, such as `harness compare`.

Such a command takes from a recipe only the keys and groups that the command itself has. Hydra applies the recipes of
`run` and `sweep`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.config import consent, manual, places, yaml_files
from harness.config.canonical import flatten
from harness.config.defaults import Setting, every_key
from harness.errors import BadInput, did_you_mean
from retrievers.hosts import host_of

GROUP = "experiment"
NOTHING = ("null", "~", "")  # the spellings of null in YAML


def unfolded(name: str, words: Sequence[str], folders: Sequence[Path] = ()) -> tuple[list[Setting], list[str]]:
    """Return the settings of the recipes that a command's overrides choose, and the other overrides.

    Raise BadInput for an unknown recipe, and for a recipe with a key that no command has. name: the primary config.
    """
    own = manual.manual(name)
    if GROUP in own.groups:
        return [], list(words)
    settings: dict[str, Setting] = {}
    others = []
    for word in words:
        key, equals, choice = word.partition("=")
        if key.lstrip("+") != GROUP or not equals:
            others.append(word)
            continue
        for one in _settings(choice, folders):
            if own.has(one.key):
                settings[one.key] = one
    return sorted(settings.values(), key=lambda one: not one.is_choice), others


def own(content: Any, name: str) -> Any:
    """Return the content of a recipe without the keys that only other commands have."""
    if not isinstance(content, Mapping):
        return content
    known, everywhere = manual.manual(name), every_key()
    foreign = [key for key in everywhere if not known.has(key)]
    kept: dict[Any, Any] = {}
    for key, value in content.items():
        inner = [one.partition(".")[2] for one in foreign if one.startswith(f"{key}.")]
        if key in foreign:
            continue
        kept[key] = {k: v for k, v in value.items() if k not in inner} if isinstance(value, Mapping) else value
    return {key: value for key, value in kept.items() if value != {} or content[key] == {}}


def name_senders(content: Any, file: str) -> None:
    """Print a note, once for each file, if the file decides where data go."""
    values = _values(content)
    found = [
        key
        for key, value in values.items()
        if (consent.sends(key) and value not in (None, {})) or (consent.writes(key) and places.is_address(value))
    ]
    if found:
        named = [key + (f" ({host})" if (host := host_of(str(values[key]))) else "") for key in found]
        _say(f"Note: {file} sets {' and '.join(named)}, so it decides where your data go.")


@functools.cache
def _say(line: str) -> None:
    print(line, file=sys.stderr)  # noqa: T201


def _settings(choice: str, folders: Sequence[Path], above: Sequence[str] = ()) -> Iterator[Setting]:
    """Yield the settings of a recipe, after those of its bases. above: the recipes that build on this recipe."""
    known = manual.choice_files(GROUP, folders)
    if choice not in known:
        near = did_you_mean(choice, known)
        where = f"{known[above[-1]]}: " if above else ""
        raise BadInput(f"{where}{GROUP}={choice:.60}: there is no such choice.{near} Known: {', '.join(known)}.")
    path = known[choice]
    if choice in above:
        raise BadInput(
            f"{path}: this recipe builds on itself, by {' -> '.join([*above, choice])}. Remove one of these steps."
        )
    page, content = manual.read_manual(path), yaml_files.load_yaml(path) or {}
    for base in page.bases:
        yield from _settings(base, folders, [*above, choice])
    if path.parent.parent in folders:
        name_senders(content, str(path))
    everywhere = every_key(folders)
    for group, entry in page.groups.items():
        value = None if entry.value in NOTHING else entry.value
        found = manual.choice_files(group, folders) if group in everywhere else {}
        if group not in everywhere or value not in (None, *found):
            raise BadInput(f"{path}: {group:.60}={entry.value:.60} is not a choice.{did_you_mean(entry.value, found)}")
        yield Setting(group, value, entry.value, str(path))
    for key, value in _values(content).items():
        if key not in everywhere and not any(one.startswith(f"{key}.") for one in everywhere):
            parent, _, name = key.rpartition(".")
            if parent not in everywhere or not name.isidentifier():
                raise BadInput(f"{path}: no command has the key {key:.80}.{did_you_mean(key, everywhere)}")
        if not _is_plain(value):
            raise BadInput(f"{path}: {key} must be a single value or a list of values, not {value!r:.60}.")
        setting = Setting(key, value, str(value), str(path))
        if setting.is_choice:
            raise BadInput(f"{path}: choose {key} in the list `defaults`, with a line `- override /{key}: NAME`.")
        yield setting


def _is_plain(value: Any) -> bool:
    return all(map(_is_plain, value)) if isinstance(value, list) else isinstance(value, str | int | float | None)


def _values(content: Any) -> dict[str, Any]:
    if not isinstance(content, Mapping):
        return {}
    return flatten({key: value for key, value in content.items() if key not in ("defaults", "hydra")})
