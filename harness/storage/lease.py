"""A lock that machines share through a bucket: an object that only one of them can create.

Who holds it renews it. A lease that is not renewed for a minute belongs to a process that died, and is taken over; the
minute is counted by the clock of whoever waits, so clocks of machines need not agree.
"""

from __future__ import annotations

import contextlib
import logging
import platform
import threading
import time
from collections.abc import Callable, Iterator

from harness.errors import BadInput, Failed
from harness.progress import stage
from harness.storage.bucket import Bucket

log = logging.getLogger(__name__)
BEAT_SECONDS = 15.0  # between two renewals
DEAD_SECONDS = 60.0  # without one, until a lease counts as left behind
LOOK_SECONDS = (0.1, 3.0)  # between two looks at a lease that is taken: at first, and at most
Until = Callable[[], object]
PROBE = ".conditions"  # an object that shows whether the server minds conditions


def never() -> None:
    """What gives nothing, however long it is waited for."""


def require_conditions(bucket: Bucket) -> None:
    """BadInput unless the server writes on a condition: without that, machines would overwrite each other's results."""
    taken = bucket.create(PROBE, b"") is None or bucket.create(PROBE, b"") is None
    if not taken or bucket.replace(PROBE, b"", '"another"') is not None:
        raise BadInput(
            f"{bucket.place.url}: this server ignores the conditions of writes (If-None-Match, If-Match), so machines "
            "would overwrite each other's results. Use a newer server, or a shared folder: store.path=FOLDER."
        )


class Lease:
    """One lease. Whoever uses it holds a lock of this machine first, so that processes of one machine do not race.

    name: of the object. machine: who shares that lock: what one of them left behind is free at once.
    """

    def __init__(self, bucket: Bucket, name: str, machine: str) -> None:
        self._bucket, self._name, self._machine = bucket, name, machine
        self._etag = ""  # of the object while this process holds it
        self._seen = ("", 0.0)  # the ETag of another's lease, and when it was first seen
        self._over = threading.Event()
        self._renewal = threading.Thread(target=self._renew, name="lease", daemon=True)

    @contextlib.contextmanager
    def held(self, until: Until = never) -> Iterator[None]:
        """Hold the lease, once it is free; or wait until `until` gives something."""
        pause, most = LOOK_SECONDS
        with stage("waiting for another machine that computes the same"):
            while not self.acquire() and not until():
                time.sleep(pause)
                pause = min(2 * pause, most)
        try:
            yield
        finally:
            self.release()

    def acquire(self) -> bool:
        """Take the lease if it is free or was left behind; whether it was."""
        etag = self._bucket.create(self._name, self._content())
        if etag is None and (other := self._bucket.read(self._name)):
            if other.etag != self._seen[0]:
                self._seen = other.etag, time.monotonic()
            # A process of this machine would still hold the lock of this machine.
            if self._is_ours(other.data) or time.monotonic() - self._seen[1] >= DEAD_SECONDS:
                etag = self._bucket.replace(self._name, self._content(), other.etag)
        if etag is not None:
            self._etag = etag
            self._renewal.start()
        return etag is not None

    def release(self) -> None:
        """Give the lease back. One that cannot be given back is free a minute later."""
        self._over.set()
        if self._renewal.ident:
            self._renewal.join(timeout=BEAT_SECONDS)
        if self._etag:
            with contextlib.suppress(BadInput, Failed):
                self._bucket.delete([self._name])

    def _renew(self) -> None:
        """Write the lease again and again. Who loses it goes on working: of two equal results, the first counts."""
        while self._etag and not self._over.wait(BEAT_SECONDS):
            try:
                etag = self._bucket.replace(self._name, self._content(), self._etag)
                if etag is None and (found := self._bucket.read(self._name)) and self._is_ours(found.data):
                    etag = found.etag  # a request that was sent again: the first had arrived
            except (BadInput, Failed):
                continue  # the server may answer the next time
            if etag is None:
                log.warning("Another machine has taken over %s: this one was not heard of for a while.", self._name)
            self._etag = etag or ""

    def _is_ours(self, content: bytes) -> bool:
        return content.startswith(self._machine.encode())

    def _content(self) -> bytes:
        """What a person reads who looks at the object; differs each time, and so does the ETag."""
        return f"{self._machine} {platform.node()} {time.time_ns()}\n".encode()
