"""How much the references `${...}` of a config stand for: found before any is resolved, which may take for ever."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from harness.errors import BadInput

MOST = 1_000_000  # characters that a key may stand for
REFERENCE = re.compile(r"\$\{([^${}:]+)\}")  # not those of a resolver, whose names have a colon
COMPUTED = re.compile(r"\$\{[^${}:]*(\$\{[^{}]*\}[^${}:]*)+\}")


def check_size(config: Mapping[str, Any]) -> None:
    """BadInput for a key whose references, with those behind them, stand for more than MOST characters.

    config: plain dicts and lists, unresolved.
    """
    values = dict(_values(config, ()))
    sizes: dict[tuple[str, ...], int] = {}

    def size(path: tuple[str, ...]) -> int:
        if path not in sizes:
            sizes[path] = 0  # a circle adds nothing: OmegaConf refuses it
            value = values.get(path, "")
            if isinstance(value, list | Mapping):
                names = value if isinstance(value, Mapping) else range(len(value))
                sizes[path] = 1 + sum(size((*path, str(name))) for name in names)
            else:
                sizes[path] = 1 + len(value) + sum(size(_target(name, path)) for name in REFERENCE.findall(value))
        return sizes[path]

    for path, value in values.items():
        if isinstance(value, str) and COMPUTED.search(value):
            raise BadInput(f"{'.'.join(path)}: {value:.60}: a reference must name its key itself.")
        if size(path) > MOST:
            raise BadInput(f"{'.'.join(path)} refers to keys that refer to others: {size(path):,} characters in all.")


def _values(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(path, value) of everything in a config: groups and lists as they are, other values as text."""
    inner = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    yield path, value if isinstance(value, Mapping | list) else str(value)
    for name, one in inner:
        yield from _values(one, (*path, str(name)))


def _target(name: str, path: tuple[str, ...]) -> tuple[str, ...]:
    """The path that a reference names: from the root, or with dots at its front, from where it stands."""
    bare = name.strip().lstrip(".")
    up = len(name.strip()) - len(bare)
    return (*(path[:-up] if up else ()), *re.findall(r"[^.\[\]]+", bare))
