"""Read `harness.yaml` in the working folder: defaults for every command that runs there.

Each line is `key: value`, with the keys of the command line:

    dataset: contest
    dataset.path: data

The file may come from a stranger. It may set only keys of shipped configs, except those that only the command line may
set (see `consent`). Each value must be a single value or a list of single values.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config import consent, manual, yaml_files
from harness.config.command_list import PRIMARY
from harness.errors import BadInput, did_you_mean

if TYPE_CHECKING:
    from yaml import Node

FILE = "harness.yaml"
SIZE_LIMIT = 100_000  # bytes


@dataclass(frozen=True)
class Setting:
    """A line of `harness.yaml`. value: a single value or a list. text: the value as written. where: file:line."""

    key: str
    value: Any
    text: str
    where: str

    @property
    def is_choice(self) -> bool:
        return self.key in _groups()


@dataclass(frozen=True)
class Defaults:
    """The settings of `harness.yaml` that concern a command.

    replaced: keys of the file that do not apply, since the command line chooses another component. If it chooses
        several for a sweep, and the file's component is one of them, the keys do apply.
    """

    settings: tuple[Setting, ...] = ()
    replaced: tuple[str, ...] = ()

    def note(self) -> str:
        """Return the note that `harness.yaml` is used; "" if none of its lines concerns the command."""
        without = f", without {', '.join(self.replaced)}" if self.replaced else ""
        return f"Defaults: {FILE}{without}" if self.settings or self.replaced else ""


def command_defaults(name: str, words: Sequence[str], folder: Path | None = None) -> Defaults:
    """Return the defaults of a command from `harness.yaml`. Raise BadInput, with file and line, for a bad file.

    name: the command's primary config. folder: the folder of `harness.yaml`; None: the working folder.
    """
    settings = read_defaults((folder or Path()) / FILE, config_folders(words))
    known = manual.manual(name)
    chosen, given = _said(words)
    kept: list[Setting] = []
    replaced: list[str] = []
    of_file = {one.key: one.value for one in settings}
    for one in settings:
        if not known.has(one.key) or one.key in given:
            continue
        if any(
            one.key.startswith(f"{group}.") or one.key in manual.all_keys(group)
            for group, choice in chosen.items()
            if group in known.groups and of_file.get(group, known.groups[group].value) not in choice.split(",")
        ):
            replaced.append(one.key)
        else:
            kept.append(one)
    return Defaults(tuple(kept), tuple(replaced))


def chosen_groups(name: str, words: Sequence[str]) -> dict[str, str]:
    """Return group -> choice. The command line wins over `harness.yaml`, which wins over the command's default."""
    known = manual.manual(name).groups
    found = {group: entry.value for group, entry in known.items()}
    found |= {one.key: one.text for one in file_settings(words).values() if one.is_choice}
    found |= _said(words)[0]
    return {group: found[group] for group in known}


def file_settings(words: Sequence[str]) -> dict[str, Setting]:
    """Return key -> setting for `harness.yaml` in the working folder."""
    return {one.key: one for one in read_defaults(Path(FILE), config_folders(words))}


def commands_with(key: str) -> list[str]:
    """Return the primary configs with a key or group of this name, or with a group whose choices have this key."""
    groups = [group for group in sorted(_groups()) if key in manual.all_keys(group) and group not in manual.RECIPES]
    return [
        name for name, one in _manuals().items() if key in one.keys or key in one.groups or {*groups} & {*one.groups}
    ]


def read_defaults(path: Path, folders: Sequence[Path] = ()) -> tuple[Setting, ...]:
    """Return the settings of a file; () if there is no file. folders: more folders of configs."""
    if not path.is_file():
        return ()
    if path.stat().st_size > SIZE_LIMIT:
        raise BadInput(f"{path}: a file of defaults may have at most {SIZE_LIMIT:,} bytes.")
    return parse_defaults(yaml_files.text_of(path), path, folders)


def parse_defaults(text: str, path: Path, folders: Sequence[Path] = ()) -> tuple[Setting, ...]:
    """Return the settings in a file's text. Raise BadInput, with file and line, for a bad line."""
    settings = tuple(_parsed(text, path))
    first: dict[str, Setting] = {}
    for one in settings:
        if one.key in first:
            raise BadInput(f"{one.where}: {one.key:.200} is set twice; {first[one.key].where} has it too.")
        first[one.key] = one
        _check(one, path.parent, tuple(folders))
    return settings


def config_folders(words: Sequence[str]) -> tuple[Path, ...]:
    """Return the folders of `--config-dir` on a command line."""
    found = []
    for word, following in zip(words, [*words[1:], ""], strict=bool(words)):
        flag, equals, value = word.partition("=")
        if flag in ("--config-dir", "-cd"):
            found.append(Path(value if equals else following))
    return tuple(found)


def _said(words: Sequence[str]) -> tuple[dict[str, str], set[str]]:
    """Return what a command line and its recipes set: (group -> choices, joined by commas; all keys)."""
    folders = config_folders(words)
    said = (word.partition("=") for word in words if "=" in word or word.startswith("~"))  # not the values of flags
    pairs = [(key.lstrip("+~"), value) for key, _, value in said]
    chosen: dict[str, str] = {}
    given: set[str] = set()
    for group, choice in pairs:
        path = manual.choice_files(group, folders).get(choice) if group in manual.RECIPES else None
        if path:
            page = manual.read_manual(path)
            swept = {key: entry for key, entry in page.keys.items() if key in _groups()}
            chosen |= {name: entry.value for name, entry in (page.groups | swept).items()}
            given |= {*page.keys, *page.groups}
    chosen |= {key: value for key, value in pairs if key in _groups()}
    return chosen, given | {key for key, _ in pairs}


@functools.cache
def _manuals() -> dict[str, manual.Manual]:
    return {name: manual.manual(name) for name in ("common", *PRIMARY)}


@functools.cache
def _groups() -> frozenset[str]:
    return frozenset(group for one in _manuals().values() for group in one.groups)


def every_key(folders: Sequence[Path] = ()) -> list[str]:
    """Return all keys and groups of all commands."""
    found: dict[str, None] = {}
    for one in _manuals().values():
        found |= dict.fromkeys([*one.keys, *one.groups])
    for group in sorted(_groups() - {*manual.RECIPES}):
        found |= dict.fromkeys(manual.all_keys(group, folders))
    return list(found)


def _parsed(text: str, path: Path) -> Iterator[Setting]:
    import yaml

    with yaml_files.refusing(path):
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
    if root is None:
        return
    if not isinstance(root, yaml.MappingNode):
        raise BadInput(f"{path}:1: each line must be `key: value`, such as `dataset: contest`.")
    for key, value in root.value:
        where = f"{path}:{key.start_mark.line + 1}"
        if not isinstance(key, yaml.ScalarNode):
            raise BadInput(f"{where}: a key must be a name, such as dataset.path.")
        yield Setting(key.value, _plain(loader, key.value, value, where), getattr(value, "value", ""), where)


def _plain(loader: Any, key: str, node: Node, where: str) -> Any:
    import yaml

    if isinstance(node, yaml.MappingNode):
        inner = next((one.value for one, _ in node.value if isinstance(one, yaml.ScalarNode)), "name")
        raise BadInput(f"{where}: write `{key:.200}.{inner:.200}: value`, each key on its own line.")
    inner = node.value if isinstance(node, yaml.SequenceNode) else [node]
    for one in inner:
        if not isinstance(one, yaml.ScalarNode):
            raise BadInput(f"{where}: {key:.200} must be a single value or a list of values.")
        if "${" in one.value or one.value == "???":
            raise BadInput(f"{where}: {key:.200}: {one.value!r:.200} is not allowed here. Write the value itself.")
    try:
        value = loader.construct_object(node, deep=True)
    except (yaml.YAMLError, *yaml_files.UNREAD) as error:
        raise BadInput(f"{where}: {key:.200}: {yaml_files.why(error)}.") from None
    for one in value if isinstance(value, list) else [value]:
        if not isinstance(one, str | int | float | bool | None):
            raise BadInput(f"{where}: {key:.200}: put the value in quotation marks.")
        if isinstance(one, float) and not math.isfinite(one):
            raise BadInput(f"{where}: {key:.200}: {one} is not a finite number.")
    return value


def _check(one: Setting, here: Path, folders: tuple[Path, ...]) -> None:
    if one.is_choice:
        known = manual.choice_files(one.key, folders)
        if one.value is not None and (not isinstance(one.value, str) or one.value not in known):
            near = did_you_mean(str(one.value), known)
            raise BadInput(
                f"{one.where}: {one.key}: {one.value!s:.200}: there is no such choice.{near} Known: {', '.join(known)}."
            )
    if why := consent.consent_refusal(one.key, one.value, here):
        raise BadInput(f"{one.where}: {why}, not in {FILE}.")
    known_here = every_key(folders)
    if one.key not in known_here and not is_free(one.key, folders):
        near = did_you_mean(one.key, known_here)
        raise BadInput(f"{one.where}: no command has the key {one.key:.200}.{near}")


def is_free(key: str, folders: tuple[Path, ...]) -> bool:
    """Return whether a key is inside a mapping whose keys users choose, such as fusion.weights."""
    parent, _, name = key.rpartition(".")
    entry = (
        manual.all_keys(key.partition(".")[0], folders).get(parent) if name.isidentifier() and name[0] != "_" else None
    )
    return entry is not None and entry.value == "{}"
