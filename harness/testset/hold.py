"""Holding a test set, so that two processes do not do the same work on it at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.progress import stage


@contextmanager
def held(folder: Path, file: str, does: str) -> Iterator[None]:
    """Hold a file of a test set: a second process waits, and then finds what the first has done.

    folder: of the test set. file: the name of what is written. does: what the other process does, for people.
    """
    from filelock import FileLock

    lock = FileLock(folder / f".{file}.lock")
    with stage(f"waiting for another process that {does} this test set"):
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
