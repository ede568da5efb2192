"""Locks between processes, claims of work, and leases between machines.

The operating system releases locks and claims even after SIGKILL. A lease is an object in a bucket that one machine
creates and renews. A waiting machine takes over a lease that it has not seen renewed for DEAD_SECONDS.
"""

from __future__ import annotations

import json
import logging
import platform
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from harness.errors import BadInput, Failed
from harness.progress import stage
from harness.storage.bucket import Bucket
from harness.storage.typed import encoded, row_as

if TYPE_CHECKING:
    from filelock import FileLock

T = TypeVar("T")
log = logging.getLogger(__name__)
BEAT_SECONDS = 15.0  # time between two renewals
DEAD_SECONDS = 60.0  # time without renewal after which a lease counts as abandoned
LOOK_SECONDS = (0.1, 3.0)  # shortest and longest time between two checks of a taken lease
PROBE = ".conditions"  # the object that is written to test whether the server supports conditional writes


@contextmanager
def locked(file: Path, waits_for: str) -> Iterator[None]:
    """Hold the lock of a file. waits_for: what the present holder does, such as "judges this test set"."""
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
    """A claim of work, locked by this process. work: None if the claiming process died before it wrote the work."""

    def __init__(self, file: Path, lock: FileLock | None, work: T | None) -> None:
        self.file, self.work, self._lock = file, work, lock

    @property
    def name(self) -> str:
        return self.file.name

    def release(self) -> None:
        """Remove the claim and release its lock."""
        self.file.unlink(missing_ok=True)
        self.unlock()

    def unlock(self) -> None:
        """Release the lock, but leave the claim for the next command."""
        if self._lock:
            self._lock.release()


def claim(folder: Path, work: T) -> Claim[T]:
    """Claim work before it begins. work: a dataclass. On a file system without locks, the claim protects nothing."""
    from filelock import FileLock, Timeout

    folder.mkdir(parents=True, exist_ok=True)
    while True:
        file = folder / f"{_host()}~{secrets.token_hex(6)}"
        lock = FileLock(file, fallback_to_soft=False)
        try:
            lock.acquire(timeout=0)
        except Timeout:  # another process just mistook the file for an abandoned claim, and locked it
            continue
        except OSError:
            file.unlink(missing_ok=True)
            return Claim(file, None, work)
        made = Claim(file, lock, work)
        try:
            file.write_text(json.dumps(encoded(work)), "utf-8")
        except OSError as error:  # for example, the disk is full
            made.release()
            error.filename = str(file)
            raise
        return made


def abandoned(folder: Path, kind: type[T]) -> Iterator[Claim[T]]:
    """Yield the claims of dead processes on this host, locked until the next is yielded. kind: class of the work."""
    from filelock import FileLock, Timeout

    for file in sorted(folder.glob(f"{_host()}~*")):
        if not file.is_file():  # reading a pipe would wait for ever
            continue
        lock = FileLock(file, fallback_to_soft=False)
        try:
            lock.acquire(timeout=0)
        except (Timeout, OSError):  # in use, just released, or owned by another user
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


def require_conditions(bucket: Bucket) -> None:
    """Raise BadInput if the server does not support conditional writes (If-None-Match, If-Match)."""
    taken = bucket.create(PROBE, b"") is None or bucket.create(PROBE, b"") is None
    if not taken or bucket.replace(PROBE, b"", '"another"') is not None:
        raise BadInput(
            f"{bucket.place.url}: this server does not support conditional writes (If-None-Match, If-Match), so "
            "machines would overwrite each other's results. Use a newer server, or a shared folder: store.path=FOLDER."
        )


class Lease:
    """A lease. The process that uses it must hold this machine's lock of the same name.

    If the bucket already has a lease of this machine, it is abandoned: the process that made it has lost that lock.
    """

    def __init__(self, bucket: Bucket, name: str, machine: str) -> None:
        self._bucket, self._name, self._machine = bucket, name, machine
        self._etag = ""  # ETag of the lease's object while this process holds the lease
        self._seen = ("", 0.0)  # latest ETag of another process's lease, and the time when this ETag was first seen
        self._over = threading.Event()
        self._renewal = threading.Thread(target=self._renew, name="lease", daemon=True)

    @contextmanager
    def held(self, until: Callable[[], object] | None = None) -> Iterator[None]:
        """Wait for the lease and hold it. Continue without the lease once `until` returns a true value."""
        pause, most = LOOK_SECONDS
        with stage("waiting for another machine that computes the same result"):
            while not self.acquire() and not (until and until()):
                time.sleep(pause)
                pause = min(2 * pause, most)
        try:
            yield
        finally:
            self.release()

    def acquire(self) -> bool:
        """Take the lease if it is free or abandoned. Return whether this process now holds it."""
        etag = self._bucket.create(self._name, self._content())
        if etag is None and (other := self._bucket.read(self._name)):
            if other.etag != self._seen[0]:
                self._seen = other.etag, time.monotonic()
            # This process holds the machine's lock, so any other lease of this machine is abandoned.
            if self._is_ours(other.data) or time.monotonic() - self._seen[1] >= DEAD_SECONDS:
                etag = self._bucket.replace(self._name, self._content(), other.etag)
        if etag is not None:
            self._etag = etag
            self._renewal.start()
        return etag is not None

    def release(self) -> None:
        """Give the lease back. If that fails, the lease is free after DEAD_SECONDS."""
        self._over.set()
        if self._renewal.ident:
            self._renewal.join(timeout=BEAT_SECONDS)
        if self._etag:
            with suppress(BadInput, Failed):
                self._bucket.delete([self._name])

    def _renew(self) -> None:
        """Renew the lease until its release. A process that loses it goes on: the first finished result counts."""
        while self._etag and not self._over.wait(BEAT_SECONDS):
            try:
                etag = self._bucket.replace(self._name, self._content(), self._etag)
                if etag is None and (found := self._bucket.read(self._name)) and self._is_ours(found.data):
                    etag = found.etag  # the client repeated a request that had already arrived
            except (BadInput, Failed):
                continue  # the server may answer the next time
            if etag is None:
                log.warning(
                    "Another machine has taken over %s, because this machine did not renew it in time.", self._name
                )
            self._etag = etag or ""

    def _is_ours(self, content: bytes) -> bool:
        return content.startswith(self._machine.encode())

    def _content(self) -> bytes:
        """Return new content each time, so that the ETag changes."""
        return f"{self._machine} {platform.node()} {time.time_ns()}\n".encode()
