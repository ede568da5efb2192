"""Describe what each command takes: its keys, from the schema, and the choices of its groups, from `conf/`.

This module does not import Hydra, so help and the checks of `harness.yaml` take milliseconds.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config import plugins, yaml_files
from harness.config.command_list import config_class
from harness.config.places import conf_folder
from harness.config.schema import FROM_GROUP, IF_GROUP, keys
from harness.errors import BadInput

if TYPE_CHECKING:
    from yaml import Node

RECIPES = ("experiment", "sweep")  # groups whose choices set other keys and groups
GLOBAL = "# @package _global_"
SWEPT = "hydra.sweeper.params."  # the prefix of the keys that a named sweep sets


@dataclass(frozen=True)
class Entry:
    """A key in a config. value: the raw text of the value. comment: the comment beside the value."""

    value: str
    comment: str


@dataclass(frozen=True)
class Page:
    """One config file.

    about: the first comment. keys: dotted key -> entry, for every leaf.
    groups: the choices in the list `defaults`. bases: the other configs in this list.
    package: whether the keys belong to no group (`_global_`). targets: the class names in the file.
    """

    about: str
    keys: dict[str, Entry]
    groups: dict[str, Entry]
    bases: tuple[str, ...]
    package: bool
    targets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Manual:
    """The keys of a command, and its groups with their default choices."""

    keys: dict[str, Entry]
    groups: dict[str, Entry]

    def has(self, key: str) -> bool:
        """Return whether the command has this key or group, or a group that could contain the key."""
        return key in self.keys or key in self.groups or ("." in key and key.partition(".")[0] in self.groups)


def is_inner(override: str, is_group: Callable[[str], bool]) -> bool:
    """Return whether an override sets a key inside a group. Some choices of the group may lack the key."""
    key = override.partition("=")[0]
    group, dot, _ = key.partition(".")
    return bool(dot) and group != "hydra" and is_group(group) and not is_group(key)


def manual(name: str) -> Manual:
    """Return the manual of a command. name: the primary config of the command."""
    cls, of_groups = config_class(name), dict(_groups_of(name))
    own = {key: Entry(one.written, one.help) for key, one in keys(cls).items()}
    if (task := of_groups.get("task")) and (path := choice_files("task").get(task.value)):
        own |= read_manual(path).keys
    reads_runs = "metric" in own and "experiment_name" in own
    gone = [key for key, one in own.items() if one.value in (FROM_GROUP, IF_GROUP)]
    gone += ["objective"] if reads_runs else []
    return Manual({key: one for key, one in own.items() if key not in gone}, of_groups)


def _groups_of(name: str) -> dict[str, Entry]:
    page = read_manual(conf_folder() / f"{name}.yaml")
    inherited: dict[str, Entry] = {}
    for base in page.bases:
        inherited |= _groups_of(base)
    return inherited | page.groups


def shipped(group: str, choice: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml_files.load_yaml(conf_folder() / group / f"{choice}.yaml")
    return found


def choice_files(group: str, folders: Sequence[Path] = ()) -> dict[str, Path]:
    """Return choice -> file. folders: more folders of configs; their files win over shipped files."""
    found: dict[str, Path] = {}
    for folder in (conf_folder(), *plugins.folders(), *folders):
        found |= {path.stem: path for path in sorted((folder / group).glob("*.yaml"))}
    return found


def manual_keys(group: str, choice: str, folders: Sequence[Path] = (), above: Sequence[str] = ()) -> dict[str, Entry]:
    """Return dotted key -> entry for every key that a choice brings; {} for an unknown choice.

    above: the choices that build on this choice. Raise BadInput if `choice` is among them.
    """
    path = choice_files(group, folders).get(choice)
    if path is None:
        return {}
    if choice in above:
        raise BadInput(
            f"{path}: this config builds on itself, by {' -> '.join([*above, choice])}. Remove one of these steps."
        )
    page = read_manual(path)
    found: dict[str, Entry] = {}
    for base in page.bases:
        found |= manual_keys(group, base.partition("@")[0], folders, [*above, choice])
    return found | (page.keys if page.package else {f"{group}.{key}": entry for key, entry in page.keys.items()})


def targets(group: str, choice: str, folders: Sequence[Path] = ()) -> list[str]:
    """Return the class names in a choice and in its bases; [] for an unknown choice."""
    if (path := choice_files(group, folders).get(choice)) is None:
        return []
    page = read_manual(path)
    found = [one for base in page.bases for one in targets(group, base.partition("@")[0], folders)]
    return [*found, *page.targets]


def all_keys(group: str, folders: Sequence[Path] = ()) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for choice in choice_files(group, folders):
        found = manual_keys(group, choice, folders) | found
    return found


@functools.cache
def read_manual(path: Path) -> Page:
    """Read a config file with its comments. Raise BadInput, with file and line, if the file is not a config."""
    import yaml

    text = yaml_files.text_of(path)
    lines = text.splitlines()
    leading = itertools.takewhile(lambda line: line.startswith("#"), lines)
    first = [line.lstrip("# ") for line in leading if line != GLOBAL]
    named = tuple(re.findall(r"\b_target_: *([\w./]+)", text))
    page = Page(" ".join(first), {}, {}, (), text.startswith(GLOBAL), named)
    with yaml_files.refusing(path):
        root: Node | None = yaml.compose(text, yaml.SafeLoader)
        if root is None:
            return page
        for key, value in _pairs(root):
            if key.value == "defaults":
                bases = tuple(one.value for one in value.value if isinstance(one, yaml.ScalarNode))
                bases = tuple(one for one in bases if one != "_self_")
                page = replace(page, groups=_groups(value, text, lines), bases=bases)
        for name, entry in _entries(root, text, lines):
            if not name.startswith("hydra.") or name.startswith(SWEPT):
                page.keys[name.removeprefix(SWEPT)] = entry
    return page


def _pairs(node: Node) -> list[tuple[Node, Node]]:
    from yaml import MappingNode, MarkedYAMLError, ScalarNode

    if not isinstance(node, MappingNode):
        raise MarkedYAMLError(problem="`key: value` is expected here", problem_mark=node.start_mark)
    for key, _ in node.value:
        if not isinstance(key, ScalarNode):
            raise MarkedYAMLError(problem="a key must be a name", problem_mark=key.start_mark)
    return node.value


def _entries(node: Node, text: str, lines: Sequence[str], prefix: str = "") -> Iterator[tuple[str, Entry]]:
    from yaml import MappingNode

    for key, value in _pairs(node):
        name = f"{prefix}{key.value}"
        if name == "defaults" or key.value == "_target_":
            continue
        if isinstance(value, MappingNode) and value.value:
            yield from _entries(value, text, lines, f"{name}.")
        else:
            yield name, _entry(key, value, text, lines)


def _entry(key: Node, value: Node, text: str, lines: Sequence[str]) -> Entry:
    from yaml import SequenceNode

    if isinstance(value, SequenceNode) and not value.flow_style:
        items = (text[inner.start_mark.index : inner.end_mark.index] for inner in value.value)
        written = f"[{', '.join(' '.join(item.split()) for item in items)}]"
        line, column = key.end_mark.line, key.end_mark.column
    else:
        written = text[value.start_mark.index : value.end_mark.index]
        line, column = value.end_mark.line, value.end_mark.column
    return Entry(written, _comment(lines, line, column))


def _comment(lines: Sequence[str], line: int, column: int) -> str:
    place = lines[line].find("#", column) if line < len(lines) else -1  # YAML may end a value after the last line
    if place < 0:
        return ""
    found = [lines[line][place:]]
    for below in lines[line + 1 :]:
        if below.find("#") != place or below[:place].strip():
            break
        found.append(below[place:])
    return " ".join(one.lstrip("# ") for one in found)


def _groups(defaults: Node, text: str, lines: Sequence[str]) -> dict[str, Entry]:
    from yaml import MappingNode, MarkedYAMLError, ScalarNode

    found = {}
    for item in defaults.value:
        if isinstance(item, MappingNode):
            [(key, value), *others] = _pairs(item)
            if others:
                raise MarkedYAMLError(
                    problem="write each default on its own line", problem_mark=others[0][0].start_mark
                )
            group = re.sub(r"^override */?", "", key.value)
            if "/" not in group:
                if not isinstance(value, ScalarNode):
                    raise MarkedYAMLError(problem="a choice must be a name", problem_mark=value.start_mark)
                found[group] = replace(_entry(key, value, text, lines), value=value.value)
    return found
