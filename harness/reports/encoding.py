"""Values as JSON: the one encoder of results, documents and files."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence, Set
from enum import Enum
from pathlib import PurePath
from typing import Any

HIDDEN = {"json": "hidden"}  # metadata of a field: it is left out
OPTIONAL = {"json": "optional"}  # it is left out while it is None
INLINE = {"json": "inline"}  # a dataclass or a mapping: its keys stand beside those of the other fields


def key_named(name: str) -> Mapping[str, str]:
    """Return metadata of a field that has another name in JSON."""
    return {"json_name": name}


def encoded(value: Any) -> Any:
    """Return a value as JSON has it: dicts, lists, texts, numbers, truth values, None.

    A dataclass becomes a dict by field name; the metadata above say otherwise, and the properties that its class
    attribute `json_too` names follow the fields. NaN and infinity become None, a Path its text, an Enum its value,
    NumPy's scalars and arrays numbers and lists, and tuples and other sequences lists. Keys of mappings are kept.
    """
    if value is None or (isinstance(value, str | bool | int) and not isinstance(value, Enum)):
        return value
    if hasattr(value, "tolist"):
        return encoded(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Enum):
        return encoded(value.value)
    if isinstance(value, PurePath):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _fields(value)
    if isinstance(value, Mapping):
        return {key: encoded(one) for key, one in value.items()}
    if isinstance(value, Sequence | Set) and not isinstance(value, bytes):
        return [encoded(one) for one in value]
    raise TypeError(f"{value!r:.60} is a {type(value).__name__}, which JSON does not have.")


def _fields(one: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in dataclasses.fields(one):
        value, role = getattr(one, field.name), field.metadata.get("json")
        if role == "inline" and value is not None:
            found |= encoded(value)
        elif role != "hidden" and not (value is None and role is not None):
            found[field.metadata.get("json_name", field.name)] = encoded(value)
    return found | {name: encoded(getattr(one, name)) for name in getattr(one, "json_too", ())}
