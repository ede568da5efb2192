"""Locks between processes, and claims: locks that tell what their process is going to end.

The system releases both however a process ends, even by SIGKILL.
"""

from __future__ import annotations

import json
import re
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from harness.errors import BadInput
from harness.progress import stage
from harness.storage.typed import fields_of, row_as

if TYPE_CHECKING:
    from filelock import FileLock

T = TypeVar("T")


@contextmanager
def locked(file: Path, waits_for: str) -> Iterator[None]:
    """Hold the lock of a file. waits_for: what the process does that holds it, such as "judges this test set"."""
    from filelock import FileLock, Timeout

    lock = FileLock(file)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        with stage(f"waiting for another process that {waits_for}"):
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


class Claim(Generic[T]):
    """A claim that this process has locked. work: what it has claimed; None if its process died before it could say."""

    def __init__(self, file: Path, lock: FileLock | None, work: T | None) -> None:
        self.file, self.work, self._lock = file, work, lock

    @property
    def name(self) -> str:
        return self.file.name

    def release(self) -> None:
        """Remove the claim: the work is ended."""
        self.file.unlink(missing_ok=True)
        self.unlock()

    def unlock(self) -> None:
        """Leave the claim to the next command."""
        if self._lock:
            self._lock.release()


def claim(folder: Path, work: T) -> Claim[T]:
    """Claim work, a dataclass, before it begins. Where files cannot be locked, the claim is no more than a name."""
    from filelock import FileLock, Timeout

    folder.mkdir(parents=True, exist_ok=True)
    while True:
        file = folder / f"{_host()}~{secrets.token_hex(6)}"
        lock = FileLock(file, fallback_to_soft=False)
        try:
            lock.acquire(timeout=0)
        except Timeout:  # taken for an abandoned one, just before it was locked
            continue
        except OSError:
            file.unlink(missing_ok=True)
            return Claim(file, None, work)
        made = Claim(file, lock, work)
        try:
            file.write_text(json.dumps(fields_of(work)), "utf-8")
        except OSError as error:  # such as of a full disk
            made.release()
            error.filename = str(file)
            raise
        return made


def abandoned(folder: Path, kind: type[T]) -> Iterator[Claim[T]]:
    """Yield the claims of this host whose processes have died, each locked until the next one is asked for.

    kind: of the work that is claimed.
    """
    from filelock import FileLock, Timeout

    for file in sorted(folder.glob(f"{_host()}~*")):
        if not file.is_file():  # reading a pipe would wait for ever
            continue
        lock = FileLock(file, fallback_to_soft=False)
        try:
            lock.acquire(timeout=0)
        except (Timeout, OSError):  # in use, just released, or of another user
            continue
        found: Claim[T] = Claim(file, lock, None)
        try:
            with suppress(BadInput, ValueError, RecursionError):
                found.work = row_as(kind, json.loads(file.read_bytes()[:1_000_000]), str(file))
            yield found
        finally:
            found.unlock()


def _host() -> str:
    return re.sub(r"[^\w.-]", "_", socket.gethostname())
