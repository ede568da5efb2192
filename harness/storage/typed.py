"""Encode values as JSON, and read dataclasses from JSON with a check of the types of their fields."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import types
import typing
from collections.abc import Callable, Mapping, Sequence, Set
from enum import Enum
from pathlib import PurePath
from typing import Any, Literal, TypeVar, cast

from harness.errors import BadInput, did_you_mean

T = TypeVar("T")
Read = Callable[[Any, str], Any]  # (value, name of its field) -> converted value; raises _Unfit
_PLAIN = {str: "text", int: "a whole number", float: "a number", bool: "true or false", types.NoneType: "null"}

HIDDEN = {"json": "hidden"}  # metadata of a field that JSON leaves out
OPTIONAL = {"json": "optional"}  # a field that JSON leaves out if it is None
INLINE = {"json": "inline"}  # a dataclass or mapping whose keys become fields of the outer object


class _Unfit(ValueError):
    """A value that does not fit its field."""


def row_as(kind: type[T], row: Any, where: str) -> T:
    """Build the dataclass `kind`, and all dataclasses in its fields, from a JSON object.

    A field may be text, a number, a truth value, a Literal, a mapping, a sequence, another dataclass or a union of
    these. Lists become tuples if the field is a Sequence. Keys that the class attribute `json_too` names are ignored.
    Raise BadInput for missing and unknown fields, values of another type, and values that the dataclass refuses.
    where: the position of the object in its file.
    """
    try:
        return cast(T, _reader(cast(Any, kind))(row, ""))
    except _Unfit as error:
        raise BadInput(f"{where}: {error}") from None


def key_named(name: str) -> Mapping[str, str]:
    """Return metadata for a field that has another name in JSON."""
    return {"json_name": name}


def encoded(value: Any) -> Any:
    """Convert a value to dicts, lists, texts, numbers, truth values and None.

    A dataclass becomes a dict with the field names as keys, unless metadata such as HIDDEN changes this. Its class
    attribute `json_too` names properties to add. NaN and infinity become None. A Path becomes its text. An Enum becomes
    its value. NumPy scalars become numbers; arrays, sequences and sets become lists. Mappings keep their keys.
    """
    if value is None or (isinstance(value, str | bool | int) and not isinstance(value, Enum)):
        return value
    if hasattr(value, "tolist"):
        plain = value.tolist()
        if value.dtype.kind == "f" and value.ndim == 1:  # by far the most common arrays
            return [one if math.isfinite(one) else None for one in plain]
        return encoded(plain)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Enum):
        return encoded(value.value)
    if isinstance(value, PurePath):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _encoded_fields(value)
    if isinstance(value, Mapping):
        return {key: encoded(one) for key, one in value.items()}
    if isinstance(value, Sequence | Set) and not isinstance(value, bytes):
        return [encoded(one) for one in value]
    raise TypeError(f"{value!r:.60} is a {type(value).__name__}, which JSON does not have.")


def _encoded_fields(one: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in dataclasses.fields(one):
        value, role = getattr(one, field.name), field.metadata.get("json")
        if role == "inline" and value is not None:
            found |= encoded(value)
        elif role != "hidden" and not (value is None and role is not None):
            found[field.metadata.get("json_name", field.name)] = encoded(value)
    return found | {name: encoded(getattr(one, name)) for name in getattr(one, "json_too", ())}


def require_path(text: str | None) -> None:
    """Raise ValueError for text that cannot be a path because it has a zero byte or half a surrogate pair."""
    try:
        valid = b"\0" not in os.fsencode(text or "")
    except UnicodeEncodeError:
        valid = False
    if not valid:
        raise ValueError(f"{text!r:.60} is not a path.")


@functools.cache
def _reader(hint: Any) -> Read:
    kind, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind is Any:
        return lambda value, name: value
    if dataclasses.is_dataclass(kind):
        return _dataclass(cast(type, kind))
    if kind in (types.UnionType, typing.Union):
        return _union(hint, inner)

    def fits(value: Any) -> bool:
        if kind is Literal:
            return any(type(value) is type(one) and value == one for one in inner)
        if kind in (dict, Mapping):
            return type(value) is dict
        if kind in (list, tuple, Sequence):
            return type(value) is list
        if kind in (int, float) and type(value) is int:
            return abs(value) < 2**63  # databases store no greater whole numbers
        return type(value) is kind

    def read(value: Any, name: str) -> Any:
        if not fits(value):
            raise _Unfit(f"{name} is {value!r:.60}, but must be {_words(hint)}.")
        if kind in (dict, Mapping):
            return {key: _reader(inner[1])(one, f"{name}.{key:.60}") for key, one in value.items()}
        if kind in (list, tuple, Sequence):
            several = (_reader(inner[0])(one, f"{name}[{n}]") for n, one in enumerate(value))
            return [*several] if kind is list else (*several,)
        return value

    return read


def _union(hint: Any, inner: Sequence[Any]) -> Read:
    deep = next((one for one in inner if dataclasses.is_dataclass(one) and len(inner) == 2), None)

    def read(value: Any, name: str) -> Any:
        if deep and value is not None:
            return _reader(cast(Any, deep))(value, name)
        for one in inner:
            try:
                return _reader(one)(value, name)
            except _Unfit:
                continue
        raise _Unfit(f"{name} is {value!r:.60}, but must be {_words(hint)}.")

    return read


def _dataclass(kind: type) -> Read:
    hints = typing.get_type_hints(kind)
    fields = dataclasses.fields(kind)
    readers = {field.name: _reader(hints[field.name]) for field in fields}
    derived = getattr(kind, "json_too", ())
    missing = dataclasses.MISSING
    needed = [one.name for one in fields if one.default is missing and one.default_factory is missing]

    def read(row: Any, name: str) -> Any:
        if type(row) is not dict:
            raise _Unfit(f"{name or 'the row'} is {row!r:.60}, but must be an object.")
        prefix = f"{name}." if name else ""
        row = {key: value for key, value in row.items() if key not in derived}
        if unknown := [key for key in row if key not in readers]:
            near = did_you_mean(unknown[0], readers)
            raise _Unfit(f"{prefix}{unknown[0]:.60} is not a field here.{near} The fields are {', '.join(readers)}.")
        if lacking := [key for key in needed if key not in row]:
            raise _Unfit(f"{prefix}{lacking[0]} is missing.")
        values = {key: readers[key](value, prefix + key) for key, value in row.items()}
        try:
            return kind(**values)
        except ValueError as error:
            raise _Unfit(str(error)) from None

    return read


def _words(hint: Any) -> str:
    kind, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind is Literal or kind in (types.UnionType, typing.Union):
        words = [str(one) if kind is Literal else _words(one) for one in inner]
        return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))
    if kind in (list, tuple, Sequence):
        return "a list"
    return _PLAIN.get(kind, "an object" if kind in (dict, Mapping) or dataclasses.is_dataclass(kind) else "left out")
