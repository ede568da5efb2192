"""Read YAML files that may come from a stranger. Errors are short, and name the file and the line.

Aliases that contain themselves, or that would fill the memory, are refused before anything is built.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.errors import BadInput

# PyYAML raises these for impossible dates and numbers, deep nesting, and tags such as `!!bool x`.
UNREAD = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
MOST = 10_000  # the maximum number of values that the aliases of a file may repeat


def text_of(path: Path) -> str:
    """Return the text of a YAML file. Raise BadInput if it cannot be read or its aliases are harmful."""
    if not path.is_file():  # reading a pipe or a device might never end
        raise BadInput(f"{path}: this is not a config: it is {'a folder' if path.is_dir() else 'not a file'}.")
    with refusing(path):
        text = path.read_text("utf-8")
        if "&" in text and "*" in text:
            _check_aliases(text, path)
    return text


def load_yaml(path: Path) -> Any:
    """Return the content of a YAML file. Raise BadInput, with file and line, if it is not YAML."""
    import yaml

    text = text_of(path)
    with refusing(path):
        return yaml.safe_load(text)


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Turn errors of a `with` block that reads YAML into BadInput with file and line."""
    from yaml import YAMLError

    try:
        yield
    except BadInput:
        raise
    except (YAMLError, OSError, *UNREAD) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else f"{path}"
        raise BadInput(f"{where}: this is not a config: {why(error)}. Correct the file.") from None


def why(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, LookupError | AttributeError):
        return "a value is not what its tag says"
    return f"{' '.join(str(getattr(error, 'problem', None) or error).split()):.300}"


def _check_aliases(text: str, path: Path) -> None:
    import yaml

    sizes: dict[str, int] = {}  # anchor -> number of values in it, including repeated values
    opened: list[tuple[str | None, int]] = []  # open collections: (anchor, number of values before the collection)
    values = repeated = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            where = f"{path}:{event.start_mark.line + 1}"
            if event.anchor in dict(opened):
                raise BadInput(f"{where}: *{event.anchor:.60} stands within &{event.anchor:.60}: it would never end.")
            repeated += sizes.get(event.anchor, 1)
            values += sizes.get(event.anchor, 1)
            if repeated > MOST:
                raise BadInput(f"{where}: the aliases repeat more than {MOST:,} values. Write fewer aliases.")
        elif isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, values))
            values += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            sizes |= {anchor: values - before} if anchor else {}
        elif isinstance(event, yaml.ScalarEvent):
            values += 1
            sizes |= {event.anchor: 1} if event.anchor else {}
