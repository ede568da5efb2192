"""What a format is, and the registry: to add one, write a function under `@reads(name, files)`."""

from __future__ import annotations

import dataclasses
import functools
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.errors import BadInput

Files = Mapping[str, bytes]


class Wrong(Exception):
    """What was read is not what was written, or not what is there. what: the kind of failure."""

    def __init__(self, what: str, detail: str = "") -> None:
        super().__init__(detail)
        self.what = what


@dataclasses.dataclass(frozen=True)
class Format:
    """A format that the harness reads.

    files:    name -> valid content. fixed: names that are not mutated.
    read:     reads the files in a folder as the harness does and uses what it has read, writes it again where that is
        possible, and compares. Raises `refusals`, or Wrong.
    refusals: errors that refuse an input. named: whether their message must name a file of the folder.
    changes:  whether reading may change the folder. ended: endings of names that it may leave, though unfinished.
    command:  whether it is a whole command, which takes long.
    """

    name: str
    files: Callable[[], Files]
    read: Callable[[Path], Any]
    fixed: frozenset[str] = frozenset()
    refusals: tuple[type[Exception], ...] = (BadInput,)
    named: bool = True
    changes: bool = False
    ended: tuple[str, ...] = ()
    command: bool = False

    @functools.cached_property
    def valid(self) -> Files:
        return self.files()


FORMATS: dict[str, Format] = {}


def reads(name: str, files: Files | Callable[[], Any], **options: Any) -> Callable[..., Any]:
    """Register a reader. files: name -> content, or what returns it, or what writes the files into a given folder."""

    def register(read: Callable[[Path], Any]) -> Callable[[Path], Any]:
        made = files if callable(files) else lambda: files
        FORMATS[name] = Format(name, made, read, **options)
        return read

    return register


def written(write: Callable[[Path], Any], prefix: str = "") -> Callable[[], Files]:
    """Return what gives the files that a function writes into a folder."""

    def files() -> Files:
        with tempfile.TemporaryDirectory() as name:
            write(Path(name))
            found = sorted(path for path in Path(name).rglob("*") if path.is_file() and path.suffix != ".lock")
            return {prefix + path.relative_to(name).as_posix(): path.read_bytes() for path in found}

    return files


def again(write: Callable[[Path], Any], read: Callable[[Path], Any], expected: Any, what: str) -> None:
    """Raise Wrong unless what is written into another folder is read as expected."""
    with tempfile.TemporaryDirectory() as name:
        write(Path(name))
        same(read(Path(name)), expected, what)


def text_again(said: str, read: Callable[[Path], Any], expected: Any, what: str, name: str = "again") -> None:
    """Raise Wrong unless a text is read as expected from another file."""
    again(
        lambda into: (into / name).write_text(said, "utf-8", newline=""), lambda into: read(into / name), expected, what
    )


def same(one: Any, other: Any, what: str) -> None:
    """Raise Wrong unless the two are equal."""
    if one != other:
        raise Wrong(f"{what} is not what was written", f"{one!r:.500} became {other!r:.500}")


def lines(*rows: Any) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def text(path: Path) -> str:
    """Return what a service has sent: the text of a file; "" where there is none."""
    return path.read_bytes().decode("utf-8", "replace") if path.is_file() else ""
