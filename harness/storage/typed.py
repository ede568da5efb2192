"""Dataclasses as JSON and back: what a file holds is checked against the types of the fields."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar, cast

from retrievers.base import BadInput

T = TypeVar("T")
Read = Callable[[Any, str], Any]  # a value and the name of its field -> the value as its type has it; or raises Unfit
_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", type(None): "null"}


class Unfit(ValueError):
    """A value that does not fit its field."""


def row_as(kind: type[T], row: Any, where: str) -> T:
    """Return the dataclass `kind` that a JSON object holds, with all dataclasses inside it.

    A field may be text, a number, a truth value, a Literal, a mapping, a sequence, another dataclass or a union of
    these. Lists become tuples where the field is a Sequence. Raise BadInput for a missing or unknown field, and for a
    value of another type or one that the dataclass itself refuses. where: the position in the file.
    """
    try:
        return cast(T, _reader(cast(Any, kind))(row, ""))
    except Unfit as error:
        raise BadInput(f"{where}: {error}") from None


def row_of(one: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as JSON has them."""
    return {
        field.name: dataclasses.asdict(cast(Any, value)) if dataclasses.is_dataclass(value) else value
        for field in dataclasses.fields(one)
        for value in [getattr(one, field.name)]
    }


@functools.cache
def _reader(hint: Any) -> Read:
    """Return what reads a value of this type."""
    kind, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind is Any:
        return lambda value, name: value
    if kind is Literal:
        return _checked(hint, lambda value: any(type(value) is type(one) and value == one for one in inner))
    if kind in (types.UnionType, typing.Union):
        return _one_of(hint, inner)
    if dataclasses.is_dataclass(kind):
        return _dataclass(cast(type, kind))
    if kind in (dict, Mapping):
        read = _reader(inner[1])
        return _inside(hint, dict, lambda value, name: {key: read(one, name) for key, one in value.items()})
    if kind in (list, tuple, Sequence):
        made, read_one = list if kind is list else tuple, _reader(inner[0])
        return _inside(hint, list, lambda value, name: made(read_one(one, name) for one in value))
    if kind is float:
        return _checked(hint, lambda value: type(value) is float or (type(value) is int and abs(value) < 2**63))
    if kind is int:
        return _checked(hint, lambda value: type(value) is int and abs(value) < 2**63)
    return _checked(hint, lambda value: type(value) is kind)


def _checked(hint: Any, fits: Callable[[Any], bool]) -> Read:
    def read(value: Any, name: str) -> Any:
        if not fits(value):
            raise _unfit(hint, value, name)
        return value

    return read


def _inside(hint: Any, kind: type, made: Read) -> Read:
    def read(value: Any, name: str) -> Any:
        if type(value) is not kind:
            raise _unfit(hint, value, name)
        return made(value, name)

    return read


def _one_of(hint: Any, inner: Sequence[Any]) -> Read:
    """Read the first type that fits; where all but null are one type, an error is that type's."""
    readers = [_reader(one) for one in inner]
    deep = [one for one in inner if dataclasses.is_dataclass(one)]

    def read(value: Any, name: str) -> Any:
        if value is not None and deep and len(deep) == len(inner) - 1:
            return _reader(cast(Any, deep[0]))(value, name)
        for one in readers:
            try:
                return one(value, name)
            except Unfit:
                continue
        raise _unfit(hint, value, name)

    return read


def _dataclass(kind: type) -> Read:
    hints = typing.get_type_hints(kind)
    fields = {field.name: (_reader(hints[field.name]), _required(field)) for field in dataclasses.fields(kind)}

    def read(row: Any, name: str) -> Any:
        if type(row) is not dict:
            raise _unfit(kind, row, name)
        prefix = f"{name}." if name else ""
        for key in row:
            if key not in fields:
                raise Unfit(f"{prefix}{key:.60} is not a field here: the fields are {', '.join(fields)}.")
        values = {}
        for key, (reader, required) in fields.items():
            if key in row:
                values[key] = reader(row[key], prefix + key)
            elif required:
                raise Unfit(f"{prefix}{key} is missing.")
        try:
            return kind(**values)
        except (ValueError, BadInput) as error:
            raise Unfit(str(error)) from None

    return read


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _unfit(hint: Any, value: Any, name: str) -> Unfit:
    said = " or ".join(part for part in (", ".join(_words(hint)[:-1]), _words(hint)[-1]) if part)
    return Unfit(f"{name or 'the row'} is {value!r:.60}, but must be {said}.")


def _words(hint: Any) -> list[str]:
    """Return what a value of this type may be, for people."""
    kind, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind is Literal:
        return [str(one) or "empty" for one in inner]
    if kind in (types.UnionType, typing.Union):
        return [word for one in inner for word in _words(one)]
    if kind in (list, tuple, Sequence):
        return ["a list"]
    return [_WORDS.get(kind, "an object" if kind in (dict, Mapping) or dataclasses.is_dataclass(kind) else "left out")]
