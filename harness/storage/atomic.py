"""Write files whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.errors import BadInput


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically: fill a temporary file in the same folder, then rename this file."""
    write_parts(path, (text,))


def write_parts(path: Path, parts: Iterable[str]) -> None:
    """Write a text like `write_text`, with one of its parts in memory at a time."""
    if path.exists() and not path.is_file():
        raise BadInput(f"{path} is not a file, so it is not replaced. Name another file.")
    with _written(path, parts) as unfinished:
        unfinished.replace(path)


def create_text(path: Path, text: str) -> bool:
    """Create a file with UTF-8 text, complete from the start. Return False, and change nothing, if the file exists."""
    with _written(path, (text,)) as unfinished:
        try:
            os.link(unfinished, path)
        except FileExistsError:
            return False
        except OSError:  # without hard links, the file exists before its content is complete
            return _create(path, (text,))
    return True


@contextmanager
def _written(path: Path, parts: Iterable[str]) -> Iterator[Path]:
    unfinished = path.with_name(f".{secrets.token_hex(8)}.unfinished")
    try:
        _create(unfinished, parts)
        yield unfinished
    finally:
        unfinished.unlink(missing_ok=True)


def _create(path: Path, parts: Iterable[str]) -> bool:
    try:
        file = path.open("xb")
    except FileExistsError:
        return False
    with file:
        try:
            for part in parts:
                file.write(part.encode())
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            path.unlink()
            raise
    return True
