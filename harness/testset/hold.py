"""Holding a test set, so that two processes do not do the same work on it at once, and folders that appear whole."""

from __future__ import annotations

import glob
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.storage.locks import locked


@contextmanager
def held(folder: Path, file: str, does: str) -> Iterator[None]:
    """Hold a file of a test set: a second process waits, and then finds what the first has done.

    folder: of the test set. file: the name of what is written. does: what the other process does, for people.
    """
    with locked(folder / f".{file}.lock", f"{does} this test set"):
        yield


@contextmanager
def unfinished(target: Path) -> Iterator[Path]:
    """Provide an empty folder beside the target, to be filled and renamed; it is removed if it is still there then.

    What a killed process has left of it is removed first, so that the caller must hold the target.
    """
    for left in target.parent.glob(f".{glob.escape(target.name)}.*.unfinished"):
        shutil.rmtree(left, ignore_errors=True)
    folder = target.with_name(f".{target.name}.{secrets.token_hex(4)}.unfinished")
    try:
        folder.mkdir()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
