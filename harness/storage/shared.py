"""The cache in a bucket, which machines share, with a copy on this machine of what was used here.

An entry is the objects `<kind>/<key>/<file>.<sha256, cut>` and, written last and only if there is none, its
`manifest.json`: of machines that race, one wins, and nothing of a finished entry is ever written over. It is built in
the local copy, which has the layout of a cache folder, and read from there. So what is used again asks for nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from harness.config.canonical import digest
from harness.progress import stage
from harness.storage import listing as object_listing
from harness.storage.atomic import create_text
from harness.storage.bucket import Bucket, Content, NotAllowed, server_name
from harness.storage.cache import Cache
from harness.storage.entries import (
    KEY,
    MANIFEST,
    UNFINISHED,
    Entry,
    checksum,
    delete,
    fill_entry,
    intact,
    lock_file,
    parsed_manifest,
    read_manifest,
)
from harness.storage.lease import ObjectLock, require_conditions
from harness.storage.listing import object_name
from harness.storage.shared_log import SharedLog
from retrievers.base import BadInput, Failed

log = logging.getLogger(__name__)
AT_ONCE = 4  # files of an entry that are sent or fetched
USED_SECONDS = 86_400  # a use is noted once a day
FETCHING = ".fetching"  # folder of the local copy, for what has arrived in part

T = TypeVar("T")


@dataclass(frozen=True)
class State:
    """A cache in a bucket. local_bytes: of the copy on this machine. encrypted: whether what is sent is."""

    entries: int
    bytes: int
    local_bytes: int
    server: str
    encrypted: bool
    writable: bool


class ObjectCache(Cache):
    """A cache in a bucket. bucket: its objects. local: folder of this machine's copy.

    Several processes and machines may use it at once; processes may share the copy. Raises what `Bucket` raises.
    """

    def __init__(self, bucket: Bucket, local: Path) -> None:
        super().__init__(local)
        self._bucket = bucket
        self._checked = False  # whether the server minds conditions

    @property
    def location(self) -> str:
        return self._bucket.place.url

    def size(self, kind: str, identity: Mapping[str, Any]) -> int | None:
        if (size := super().size(kind, identity)) is not None:
            return size
        manifest = self._bucket.read(self._name(self.root / kind / digest(identity), MANIFEST))
        try:
            return sum(size for size, _ in parsed_manifest(manifest.data)["files"].values()) if manifest else None
        except ValueError:
            return None

    def found(self, kind: str, identity: Mapping[str, Any]) -> Path | None:
        place = self.root / kind / digest(identity)
        if not intact(place) and not self._fetched(place):
            return None
        self._used(place)
        return place

    def log_folder(self, kind: str, identity: Mapping[str, Any]) -> Path:
        """As of `Cache`. What other machines have added is fetched, and what this one could not send before is sent."""
        from filelock import FileLock, Timeout

        place = Cache(self.root).log_folder(kind, identity)
        shared = self._shared_log(place)
        shared.fetch()
        with contextlib.suppress(Timeout, NotAllowed), FileLock(lock_file(place), timeout=0):
            shared.send()
        return place

    def found_log(self, kind: str, identity: Mapping[str, Any]) -> Path | None:
        if not any(self._bucket.listed(self._name(self.root / kind / digest(identity), ""), most=1)):
            return super().found_log(kind, identity)
        return self.log_folder(kind, identity)

    @contextlib.contextmanager
    def adding(self, folder: Path) -> Iterator[None]:
        with self._lock(folder).held():
            self._bucket.create(self._name(folder, MANIFEST), (folder / MANIFEST).read_bytes())
            with self._shared_log(folder).adding():
                yield

    def ranking_depth(self, identity: Mapping[str, Any], depth: int) -> int | None:
        if (cached := super().ranking_depth(identity, depth)) is not None:
            return cached  # deeper ones begin with the same documents
        start = f"rankings/{digest(identity)}-"
        names = (one.name for one in self._bucket.listed(start) if one.name.endswith(f"/{MANIFEST}"))
        depths = sorted(int(found) for name in names if (found := name[len(start) :].partition("/")[0]).isdecimal())
        return next((other for other in depths if other >= depth), None)

    def holds_pairs(self, identity: Mapping[str, Any]) -> bool:
        return super().holds_pairs(identity) or any(self._segments(self.root / "pairs" / digest(identity)))

    def entries(self) -> list[Entry]:
        return object_listing.entries(self._bucket)

    def contents(self, name: str) -> Iterator[bytes]:
        return object_listing.contents(self._bucket, name)

    def remove(self, entry: Entry) -> bool:
        from filelock import FileLock, Timeout

        if entry.state == "foreign":
            return False
        place = self.root / entry.kind / entry.key
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(lock_file(place), timeout=0):
                if not (lock := self._lock(place)).acquire():
                    return False
                try:
                    self._bucket.delete([self._name(place, MANIFEST)])  # first: what is half deleted does not count
                    self._bucket.delete([one.name for one in self._bucket.listed(self._name(place, ""))])
                    for left in (place / MANIFEST, place, place.with_name(place.name + UNFINISHED)):
                        delete(left)
                finally:
                    lock.release()
        except Timeout:
            return False
        return True

    def examine(self) -> State:
        """What `harness doctor` says of it."""
        found = list(self._bucket.listed(""))
        try:
            require_conditions(self._bucket)
            writable = True
        except NotAllowed:
            writable = False
        return State(
            entries=sum(one.name.endswith(f"/{MANIFEST}") for one in found),
            bytes=sum(one.size for one in found),
            local_bytes=sum(entry.bytes for entry in Cache(self.root).entries()),
            server=server_name(),
            encrypted=self._bucket.encrypted,
            writable=writable,
        )

    def _entry(
        self, place: Path, identity: Mapping[str, Any], build: Callable[[Path], None], resume: bool = False
    ) -> Path:
        if not intact(place):
            if place.exists():
                log.warning("%s is damaged and will be fetched or built again", place)
            lock = None  # one for all rounds: it remembers how long another machine has been silent
            while not self._fetched(place):
                with super()._turn(place):
                    if intact(place):
                        break  # another process was quicker
                    lock = lock or self._lock(place)
                    if not lock.acquire():
                        lock.wait()
                        continue  # what others have made is fetched without the lock, all at once
                    try:
                        if not self._fetched(place, held=True):
                            self._build(place, identity, build, resume)
                    finally:
                        lock.release()
                    break
        self._used(place)
        return place

    @contextlib.contextmanager
    def _turn(self, place: Path) -> Iterator[None]:
        with super()._turn(place), self._lock(place).held():
            yield

    def _build(self, place: Path, identity: Mapping[str, Any], build: Callable[[Path], None], resume: bool) -> None:
        """Make an entry here and send it; of another machine that was quicker, take the result.

        What could not be sent stays, and is sent the next time.
        """
        unfinished = place.with_name(place.name + UNFINISHED)
        if not intact(unfinished):
            unfinished = fill_entry(place, identity, build, resume)
        files = read_manifest(unfinished)["files"]
        self._transfer(files, "sending", lambda name: self._send(place, unfinished, name, files[name][1]))
        text = (unfinished / MANIFEST).read_bytes()
        while self._bucket.create(self._name(place, MANIFEST), text) is None:
            first = self._bucket.read(self._name(place, MANIFEST))
            if first and first.data == text:
                break  # the same result, or ours, sent twice
            if self._fetched(place, held=True):
                delete(unfinished)
                return
        delete(place)
        unfinished.rename(place)

    def _send(self, place: Path, folder: Path, name: str, checksum: str) -> None:
        self._bucket.upload(folder / name, object_name(self._name(place), name, checksum))

    def _fetched(self, place: Path, held: bool = False) -> bool:
        """Whether the bucket has an entry, which then lies in `place`. Of a damaged one, the manifest is removed.

        held: whether the caller holds its lock; else nothing is removed.
        """
        from filelock import FileLock

        if (manifest := self._bucket.read(self._name(place, MANIFEST))) is None:
            return False
        place.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(place.with_name(f"{place.name}.fetch.lock")):
            if intact(place):
                return True  # another process has fetched it
            arriving = self.root / FETCHING / digest([place.relative_to(self.root).as_posix()])
            if not self._fetch(place, arriving, manifest):
                if held:
                    log.warning("%s is damaged and will be built again", self._url(place))
                    self._bucket.delete([self._name(place, MANIFEST)])
                delete(arriving)
                return False
            delete(place)
            arriving.rename(place)
        return True

    def _fetch(self, place: Path, arriving: Path, manifest: Content) -> bool:
        """Fetch an entry into a folder, where a killed process may have left part of it; whether it is whole."""
        try:
            files = parsed_manifest(manifest.data)["files"]
        except ValueError:
            return False

        def fetch(name: str) -> bool:
            size, checksum = files[name]
            file = arriving / name
            file.parent.mkdir(parents=True, exist_ok=True)
            for _ in range(2):  # what was damaged on its way arrives whole the second time
                if is_file(file, size, checksum):
                    return True
                if not self._bucket.download(object_name(self._name(place), name, checksum), file):
                    return False
            return is_file(file, size, checksum)

        arriving.mkdir(parents=True, exist_ok=True)
        if not all(self._transfer(files, "fetching", fetch)):
            return False
        (arriving / MANIFEST).write_bytes(manifest.data)
        os.utime(arriving / MANIFEST, (manifest.modified, manifest.modified))
        return True

    def _transfer(self, files: Mapping[str, Any], doing: str, one: Callable[[str], T]) -> list[T]:
        """What `one` gives for each file, several at once."""
        size = sum(size for size, _ in files.values())
        with stage(f"{doing} {size / 1e6:,.1f} MB of the cache"), ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(one, files))

    def _used(self, place: Path) -> None:
        """Note that an entry is in use, for pruning: here and in the bucket, once a day."""
        with contextlib.suppress(OSError, BadInput, Failed):  # it may be read-only
            if time.time() - (place / MANIFEST).stat().st_mtime >= USED_SECONDS:
                os.utime(place / MANIFEST)
                self._bucket.touch(self._name(place, MANIFEST))

    def _cached_pairs(self, place: Path, keys: Sequence[bytes], held: bool = False) -> dict[bytes, float]:
        known = super()._cached_pairs(place, keys, held)
        if all(key in known for key in keys):
            return known
        new = [segment for segment in self._segments(place) if not intact(segment)]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda segment: self._fetched(segment, held), new))
        return super()._cached_pairs(place, keys, held)

    def _segments(self, place: Path) -> Iterator[Path]:
        """The folders of all segments of scored pairs that are finished."""
        for one in self._bucket.listed(self._name(place, "")):
            folder, _, file = one.name.rpartition("/")
            if file == MANIFEST and KEY.fullmatch(folder.rpartition("/")[2]):
                yield place / folder.rpartition("/")[2]

    def _shared_log(self, folder: Path) -> SharedLog:
        return SharedLog(self._bucket, self._name(folder, ""), folder)

    def _lock(self, place: Path) -> ObjectLock:
        """The lock of an entry; all segments of scored pairs in a folder share one."""
        if not self._checked:
            require_conditions(self._bucket)
            self._checked = True
        return ObjectLock(self._bucket, self._name(lock_file(place)), self._machine)

    @cached_property
    def _machine(self) -> str:
        """Names the local copy, and so those who share its locks."""
        file = self.root / ".machine"
        create_text(file, uuid.uuid4().hex)
        return file.read_text("utf-8")

    def _name(self, place: Path, *inner: str) -> str:
        """The name of an object for a path of the local copy."""
        return "/".join([place.relative_to(self.root).as_posix(), *inner])

    def _url(self, place: Path) -> str:
        return f"{self.location}/{self._name(place)}"


def is_file(file: Path, size: int, sha256: str) -> bool:
    """Whether there is a file of this size and checksum."""
    return file.is_file() and file.stat().st_size == size and checksum(file) == sha256
