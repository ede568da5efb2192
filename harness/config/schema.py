"""The schema of configs: functions that declare the keys of a command, and the check of a value.

Every command has a class in `harness.config.commands`, with a field for each key. Checks, quoting, help and
completion use these fields. The fields also limit which keys `harness.yaml` and sweeps may set.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import math
import os
import types
import typing
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from harness.errors import BadInput, did_you_mean

Node = Mapping[str, Any]  # the config of one component; `build` makes the component
LARGEST = 10**15  # the largest value of a key without `most`; floats represent all smaller integers exactly
REQUIRED = "???"  # marks a key without a default


class Role(enum.Flag):
    """What a key means to the rest of the program.

    READS: the key names a file or folder that is read. Keys of type `Path` without WRITES also have this role.
    WRITES: the key names a file or folder that is written.
    LOCATES: the key says where runs are logged. Suggested next commands repeat it.
    ASIDE: the key changes only the place or look of output. It is not part of names, params, trial keys or sweeps.
    FIXED: the key has one value for a whole sweep.
    ONCE: the key belongs to one run. Commands that are proposed for further runs leave it out.
    ACTS: the key runs code, opens this machine to others, or changes or deletes data. Only the command line may set it.
    LINES: the key takes a text that may have line breaks and tabs.
    """

    READS = enum.auto()
    WRITES = enum.auto()
    LOCATES = enum.auto()
    ASIDE = enum.auto()
    FIXED = enum.auto()
    ONCE = enum.auto()
    ACTS = enum.auto()
    LINES = enum.auto()


NOTHING = Role(0)

# Types for path arguments of components.
ReadPath = Annotated[str, Role.READS]
WritePath = Annotated[str, Role.WRITES]


@dataclass(frozen=True)
class Key:
    """A plain key, whose value is not a component. most: the greatest number or length. why: the reason for `most`."""

    hint: Any
    default: Any = REQUIRED
    help: str = ""
    least: float | None = None
    most: float | None = None
    why: str = ""
    roles: Role = NOTHING

    @property
    def is_text(self) -> bool:
        """Return whether every value is a text. For such a key, the value 2024 means the text "2024"."""
        return all(one in (str, Path, type(None)) for one in _kinds(self.hint))

    @property
    def is_texts(self) -> bool:
        """Return whether the value may be a list of texts."""
        tuples = (one for one in _kinds(self.hint) if typing.get_origin(one) is tuple)
        return any(typing.get_args(one)[0] not in (int, float) for one in tuples)

    @property
    def reads(self) -> bool:
        inner = [one for kind in _kinds(self.hint) for one in (kind, *typing.get_args(kind))]
        return Role.READS in self.roles or (Path in inner and Role.WRITES not in self.roles)

    @property
    def places(self) -> bool:
        return self.reads or Role.WRITES in self.roles

    @property
    def written(self) -> str:
        plain = {None: "null", True: "true", False: "false"}
        if isinstance(self.default, tuple):
            return f"[{', '.join(map(str, self.default))}]"
        return plain[self.default] if self.default is None or isinstance(self.default, bool) else str(self.default)

    @property
    def values(self) -> list[str]:
        """Return the allowed values of a `Literal` key; [] for other keys."""
        return [str(one) for one in _choices(self.hint) if one is not None]


@dataclass(frozen=True)
class Group:
    """A config group. optional: whether it may have no choice. recipe: whether its choices only set other keys."""

    roles: Role
    optional: bool
    recipe: bool


# These marks stand in for a default. FROM_GROUP: every choice of a group sets the key. IF_GROUP: only some choices do.
FROM_GROUP = "(from the group)"
IF_GROUP = "(from the group, if it has this key)"


def key(default: Any, help: str, *, hint: Any = None, **about: Any) -> Any:
    """Declare a plain key. hint: a narrower type than the type of the field. about: other fields of `Key`."""
    return dataclasses.field(metadata={"key": Key(hint, default, help, **about)})


def component(roles: Role = NOTHING) -> Any:
    """Declare a config group of components, or of recipes if the field's type is None."""
    return dataclasses.field(metadata={"group": roles})


def inner(roles: Role = NOTHING) -> Any:
    """Declare a group of plain keys. roles: roles that every key of the group gets in addition."""
    return dataclasses.field(metadata={"inner": roles})


@typing.dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(key, component, inner))
class Keys:
    """Keys of a config. Each subclass becomes a frozen dataclass with keyword arguments."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)


class Config(Keys):
    """The checked config of a command. document: the config in JSON types, for trial keys, params and config.yaml."""

    document: Mapping[str, Any]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """Return the typed config of a document that `check_config` accepts."""
        return cls(document=document, **_values(cls, document))

    def changed(self, **values: Any) -> Self:
        return type(self).of({**self.document, **values})


def keys(cls: type) -> Mapping[str, Key]:
    return _members(cls)[0]


def schema_groups(cls: type) -> Mapping[str, Group]:
    return _members(cls)[1]


def top_level(cls: type) -> set[str]:
    """Return the names of the keys and groups of a class, without the part after a dot."""
    return {name.partition(".")[0] for name in (*keys(cls), *schema_groups(cls))}


def with_role(cls: type, role: Role) -> tuple[str, ...]:
    """Return the top-level keys and groups of a class that have a role."""
    members: dict[str, Key | Group] = {**keys(cls), **schema_groups(cls)}
    return tuple(dict.fromkeys(name.partition(".")[0] for name, one in members.items() if role in one.roles))


def recipes(cls: type) -> tuple[str, ...]:
    """Return two kinds of groups: those that only set other keys, and those that have one value for a whole sweep."""
    return tuple(name for name, one in schema_groups(cls).items() if one.recipe or Role.FIXED in one.roles)


def absolute_path(value: Any) -> Any:
    """Make a path, or every path in a list, absolute. Return None for None."""
    if isinstance(value, list):
        return [absolute_path(one) for one in value]
    return os.path.abspath(value) if value else value  # noqa: PTH100 - wildcards stay as they are


def schema_defaults(cls: type, base: type | None = None) -> dict[str, Any]:
    """Return the defaults of the plain keys as a nested config. Leave out keys that `base` declares in the same way."""
    found: dict[str, Any] = {}
    known = keys(base) if base else {}
    for name, one in keys(cls).items():
        if known.get(name) != one and one.default not in (FROM_GROUP, IF_GROUP):
            *parents, last = name.split(".")
            place = found
            for parent in parents:
                place = place.setdefault(parent, {})
            place[last] = list(one.default) if isinstance(one.default, tuple) else one.default
    return found


@functools.cache
def _members(cls: type) -> tuple[dict[str, Key], dict[str, Group]]:
    hints = typing.get_type_hints(cls)
    plain: dict[str, Key] = {}
    components: dict[str, Group] = {}
    for field in dataclasses.fields(cls):
        name, about = field.name.rstrip("_"), field.metadata  # `from_` is the key `from`
        if "key" in about:
            plain[name] = dataclasses.replace(about["key"], hint=about["key"].hint or hints[field.name])
        elif "group" in about:
            kinds = _kinds(hints[field.name])
            components[name] = Group(about["group"], type(None) in kinds, kinds == (type(None),))
        elif dataclasses.is_dataclass(group := hints[field.name]):
            for one, found in keys(typing.cast(type, group)).items():
                roles = found.roles | about.get("inner", NOTHING)
                plain[f"{name}.{one}"] = dataclasses.replace(found, roles=roles)
    return plain, components


def _values(cls: type, document: Mapping[str, Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    found: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        name = field.name
        if name == "document":
            continue
        plain = name.rstrip("_")
        if "key" in field.metadata:
            found[name] = _typed(document.get(plain), hints[name])
        elif "group" in field.metadata:
            found[name] = document.get(plain)
        else:
            found[name] = hints[name](**_values(hints[name], document[name]))
    return found


def _typed(value: Any, hint: Any) -> Any:
    for one in _kinds(hint):
        if typing.get_origin(one) is tuple and isinstance(value, list):
            return tuple(_typed(inner, typing.get_args(one)[0]) for inner in value)
        if one is Path and isinstance(value, str):
            return Path(value)
    return value


def check_value(value: Any, key: Key, name: str) -> None:
    if value == REQUIRED:
        raise BadInput(f"{name} is missing. Give it on the command line: {name}=...")
    if value == "":
        raise BadInput(f"{name} is empty. Give it a value, or leave it out.")
    if isinstance(value, float) and not math.isfinite(value):
        raise BadInput(f"{name}={value} is not a finite number.")
    if not _fits(value, key.hint):
        choices = key.values
        several = "a list of" if key.is_texts else "one of"
        expected = f"{several} {', '.join(choices)}" if choices else type_text(key.hint)
        shown = _number(value) if isinstance(value, int) else f"{value!r:.200}"
        wrong = next((one for one in value if one not in choices), None) if isinstance(value, list) else value
        near = did_you_mean(wrong, choices) if isinstance(wrong, str) else ""
        raise BadInput(f"{name}={shown} is not {expected}.{near}")
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, str):
            _check_text(one, key, name)
        elif isinstance(one, int | float) and not isinstance(one, bool):
            _check_number(one, key, name)


def _check_number(value: float, key: Key, name: str) -> None:
    if key.least is not None and value < key.least:
        raise BadInput(f"{name}={_number(value)} is too small: the minimum is {_number(key.least)}.")
    most = LARGEST if key.most is None else key.most
    if value > most:
        why = f" ({key.why})" if key.why else ""
        raise BadInput(f"{name}={_number(value)} is too large: the maximum is {_number(most)}{why}.")


def _check_text(text: str, key: Key, name: str) -> None:
    """Raise BadInput for lone surrogates and control characters, which files, pages and terminals cannot show."""
    for letter in text:
        kind = unicodedata.category(letter)
        if kind == "Cs" or (kind == "Cc" and not (Role.LINES in key.roles and letter in "\n\r\t")):
            what = "bytes that are not UTF-8" if kind == "Cs" else f"the control character {letter!r}"
            raise BadInput(f"{name}={text!r:.60} contains {what}. Leave it out.")
    if key.most is not None and len(text) > key.most:
        raise BadInput(f"{name} has {len(text):,} characters: the maximum is {_number(key.most)} ({key.why}).")


def _number(value: float) -> str:
    return f"{value}" if abs(value) < 10**30 else f"{'-' if value < 0 else ''}(more than 10^30)"


def _kinds(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a plain value (JSON types) fits a type hint. Any value fits an unknown hint."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return value in inner and not isinstance(value, bool)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, one) for one in inner)
    if hint is None or hint is type(None):
        return value is None
    if hint is bool:
        return isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if hint in (str, Path):
        return isinstance(value, str)
    if origin in (list, tuple) or (inspect.isclass(origin) and issubclass(origin, typing.Sequence)):
        return isinstance(value, list) and all(_fits(one, inner[0]) for one in value)
    if _is_mapping(hint):
        return isinstance(value, Mapping)  # its values are checked where they are used
    return True


def one_spelling(value: Any, hint: Any) -> Any:
    """Return a value in the one spelling that its type hint allows, such as 1.0 for 1 where a float is expected."""
    for one in _kinds(hint):
        inner = typing.get_args(one)
        if one is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value) + 0.0  # turns -0.0 into 0.0
        if isinstance(value, Mapping) and _is_mapping(one) and inner:
            return {key: one_spelling(item, inner[1]) for key, item in value.items()}
        if isinstance(value, list) and inner and _fits(value, one):
            return [one_spelling(item, inner[0]) for item in value]
    return value


def _is_mapping(hint: Any) -> bool:
    origin = typing.get_origin(hint)
    return inspect.isclass(origin) and issubclass(origin, Mapping)


def _choices(hint: Any) -> list[Any]:
    if typing.get_origin(hint) is Literal:
        return list(typing.get_args(hint))
    return [c for one in typing.get_args(hint) for c in _choices(one)]


def type_text(hint: Any) -> str:
    names = {int: "a whole number", float: "a finite number", str: "text", bool: "true or false", type(None): "null"}
    if hint is Path:
        return "text"
    if hint in names:
        return names[hint]
    if _is_mapping(hint):
        return "a group of keys"
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(type_text(one) for one in typing.get_args(hint))
    inner, several = typing.get_args(hint), {int: "whole numbers", float: "finite numbers"}
    return f"a list of {several.get(inner[0]) or type_text(inner[0])}" if inner else str(hint)
