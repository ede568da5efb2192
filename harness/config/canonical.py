"""Canonical forms of configs and texts, and their digests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def digest(value: Any) -> str:
    """Return the sha256 of the canonical JSON of a value."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def digest_rows(rows: Iterable[str]) -> str:
    """Return the digest of a list of rows, with one row in memory at a time. rows: as canonical JSON."""
    found = hashlib.sha256()
    mark = b"["
    for row in rows:
        found.update(mark + row.encode())
        mark = b","
    found.update(b"]" if mark == b"," else b"[]")
    return found.hexdigest()


canonical = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
).encode  # `json.dumps` would make an encoder in each call


def digest_texts(texts: Iterable[str]) -> str:
    """Return the sha256 of a sequence of texts, with one text in memory at a time."""
    found = hashlib.sha256()
    for text in texts:
        found.update(json.dumps(text).encode() + b"\n")
    return found.hexdigest()


def flatten(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return dotted key -> value for every leaf. Lists are leaves."""
    found: dict[str, Any] = {}
    for key, inner in value.items():
        found |= flatten(inner, f"{prefix}{key}.") if isinstance(inner, Mapping) else {f"{prefix}{key}": inner}
    return found


def mappings_in(value: Any, where: str = "config") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (path, mapping) for every mapping in a config, outermost first."""
    if isinstance(value, Mapping):
        yield where, value
        for key, inner in value.items():
            yield from mappings_in(inner, f"{where}.{key}")
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from mappings_in(inner, f"{where}[{i}]")
