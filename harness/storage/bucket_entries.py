"""A bucket that machines share, with a local copy of the entries that this machine has used.

An entry consists of the objects `<kind>/<key>/<file>.<beginning of its sha256>` and a `manifest.json`. The manifest is
written last, and only if there is none: the first of several machines wins, and a finished entry is never overwritten.
Entries are built in the local copy and read from it. Using an entry again sends at most one request a day.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from harness.config.canonical import digest
from harness.errors import BadInput, Failed
from harness.progress import stage
from harness.storage.append_log import SharedLog
from harness.storage.atomic import create_text
from harness.storage.bucket import Bucket, NotAllowed, ObjectContent, StoredObject
from harness.storage.entries import (
    KEY,
    MANIFEST,
    CacheEntry,
    FolderEntries,
    checksum,
    delete,
    intact,
    lock_name,
    parsed_manifest,
    read_entry_manifest,
    unfinished_of,
)
from harness.storage.locks import Lease, require_conditions

log = logging.getLogger(__name__)
AT_ONCE = 4  # number of files that are sent or fetched in parallel
MANIFESTS_AT_ONCE = 16  # number of manifests that are read in parallel
FETCHING = ".fetching"  # folder in the local copy, for entries that have arrived only in part
CHECKSUM = 16  # hexadecimal digits of a file's sha256 in the name of its object
USED_SECONDS = 86_400  # an entry's last use is recorded at most once in this time

T = TypeVar("T")


class BucketEntries(FolderEntries):
    """The entries in a bucket. Methods raise the errors of `Bucket`. root: the folder of this machine's copy."""

    def __init__(self, bucket: Bucket, root: Path) -> None:
        super().__init__(root)
        self._bucket = bucket
        self._checked = False  # whether the server is known to support conditional writes

    @property
    def location(self) -> str:
        return self._bucket.place.url

    @contextlib.contextmanager
    def turn(self, name: str, until: Callable[[], object] | None = None) -> Iterator[None]:
        with super().turn(name):
            if intact(self.root / name):
                yield
            else:
                with self._lease(name).held(until):
                    yield

    def get(self, name: str, held: bool = False) -> bool:
        """Do the same as `FolderEntries.get`, but first fetch an entry that this machine lacks."""
        return intact(self.root / name) or self._fetched(name, held) or super().get(name, held)

    def put(self, name: str) -> None:
        """Send an entry that was built. If another machine was first, fetch that machine's entry instead."""
        unfinished = unfinished_of(self.root / name)
        files = read_entry_manifest(unfinished)["files"]

        def send(file: str) -> None:
            self._bucket.upload(unfinished / file, _object(name, file, files[file][1]))

        self._transfer(files, "sending", send)
        text = (unfinished / MANIFEST).read_bytes()
        while self._bucket.create(f"{name}/{MANIFEST}", text) is None:
            first = self._bucket.read(f"{name}/{MANIFEST}")
            if first and first.data == text:
                break  # another machine made the same entry, or an earlier attempt had succeeded
            if self._fetched(name, held=True):
                delete(unfinished)
                return
        super().put(name)

    def names(self, start: str) -> Iterator[list[str]]:
        yield from super().names(start)
        names = (one.name.rpartition("/") for one in self._bucket.listed(start))
        yield [name for name, _, file in names if file == MANIFEST and KEY.fullmatch(name.rpartition("/")[2])]

    def entries(self) -> list[CacheEntry]:
        """Return all entries, sorted by name. The time of their last use is accurate to one day."""
        objects: dict[str, list[StoredObject]] = defaultdict(list)
        for one in self._bucket.listed(""):
            parts = one.name.split("/")
            depth = 3 if parts[0] == "pairs" and KEY.fullmatch(parts[1] if parts[1:] else "") else 2
            if len(parts) > depth:  # a shorter name belongs to a lock or a foreign object
                objects["/".join(parts[:depth])].append(one)

        def described(name: str) -> CacheEntry:
            file = f"{name}/{MANIFEST}"
            there = any(one.name == file for one in objects[name])
            return _described(name, objects[name], self._bucket.read(file) if there else None)

        with ThreadPoolExecutor(MANIFESTS_AT_ONCE) as pool:
            return [*pool.map(described, sorted(objects))]

    def manifest(self, name: str) -> Mapping[str, Any] | None:
        if found := super().manifest(name):
            return found
        with contextlib.suppress(ValueError):
            if content := self._bucket.read(f"{name}/{MANIFEST}"):
                return parsed_manifest(content.data)
        return None

    def used(self, name: str) -> Path:
        with contextlib.suppress(OSError, BadInput, Failed):  # the bucket may be read-only
            if time.time() - (self.root / name / MANIFEST).stat().st_mtime >= USED_SECONDS:
                super().used(name)
                self._bucket.touch(f"{name}/{MANIFEST}")
        return self.root / name

    def _delete(self, name: str) -> bool:
        if not (lease := self._lease(name)).acquire():
            return False
        try:
            self._bucket.delete([f"{name}/{MANIFEST}"])  # first, because an entry without its manifest does not count
            self._bucket.delete([one.name for one in self._bucket.listed(f"{name}/")])
        finally:
            lease.release()
        return super()._delete(name)

    def log_folder(self, name: str, identity: Mapping[str, Any]) -> Path:
        from filelock import Timeout

        place, shared = super().log_folder(name, identity), self._log(name)
        shared.fetch()
        with contextlib.suppress(Timeout, NotAllowed), self.lock(name, 0):
            shared.send()  # rows that could not be sent before
        return place

    @contextlib.contextmanager
    def adding(self, name: str) -> Iterator[None]:
        """Hold the lease of a log while rows are added, and send the rows."""
        with self._lease(name).held():
            self._bucket.create(f"{name}/{MANIFEST}", (self.root / name / MANIFEST).read_bytes())
            with self._log(name).adding():
                yield

    @property
    def writable(self) -> bool:
        """Return whether these credentials may write. Raise BadInput if the server lacks conditional writes."""
        try:
            require_conditions(self._bucket)
        except NotAllowed:
            return False
        return True

    def _log(self, name: str) -> SharedLog:
        return SharedLog(self._bucket, f"{name}/", self.root / name)

    def _lease(self, name: str) -> Lease:
        if not self._checked:
            require_conditions(self._bucket)
            self._checked = True
        return Lease(self._bucket, lock_name(name), self._machine)

    def _fetched(self, name: str, held: bool) -> bool:
        from filelock import FileLock

        if (manifest := self._bucket.read(f"{name}/{MANIFEST}")) is None:
            return False
        place = self.root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(place.with_name(f"{place.name}.fetch.lock")):
            if intact(place):
                return True  # another process has fetched it
            arriving = self.root / FETCHING / digest([name])
            if not self._fetch(name, arriving, manifest):
                if held:
                    log.warning("%s/%s is damaged and will be built again", self.location, name)
                    self._bucket.delete([f"{name}/{MANIFEST}"])
                delete(arriving)
                return False
            if os.path.lexists(place):
                log.warning("%s was damaged and has been fetched again", place)
                delete(place)
            arriving.rename(place)
        return True

    def _fetch(self, name: str, arriving: Path, manifest: ObjectContent) -> bool:
        try:
            files = parsed_manifest(manifest.data)["files"]
        except ValueError:
            return False

        def fetch(file: str) -> bool:
            path, (size, sha256) = arriving / file, files[file]
            path.parent.mkdir(parents=True, exist_ok=True)
            for attempt in range(3):  # another attempt repairs damage in transit
                if path.is_file() and path.stat().st_size == size and checksum(path) == sha256:
                    return True
                if attempt == 2 or not self._bucket.download(_object(name, file, sha256), path):
                    break
            return False

        arriving.mkdir(parents=True, exist_ok=True)
        if not all(self._transfer(files, "fetching", fetch)):
            return False
        (arriving / MANIFEST).write_bytes(manifest.data)
        os.utime(arriving / MANIFEST, (manifest.modified, manifest.modified))
        return True

    def _transfer(self, files: Mapping[str, Any], doing: str, one: Callable[[str], T]) -> list[T]:
        size = sum(size for size, _ in files.values())
        with stage(f"{doing} {size / 1e6:,.1f} MB of the cache"), ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(one, files))

    @cached_property
    def _machine(self) -> str:
        """The name of the local copy. All processes that use the copy share its locks."""
        file = self.root / ".machine"
        create_text(file, uuid.uuid4().hex)
        return file.read_text("utf-8")


def _object(name: str, file: str, sha256: str) -> str:
    """Return the name of the object for a file. A checksum in the name keeps finished files from being overwritten."""
    return f"{name}/{file}.{sha256[:CHECKSUM]}"


def _described(name: str, objects: list[StoredObject], manifest: ObjectContent | None) -> CacheEntry:
    kind, _, key = name.rpartition("/")
    size, changed = sum(one.size for one in objects), max(one.modified for one in objects)
    if not KEY.fullmatch(key):
        return CacheEntry(kind, key, size, changed, "foreign", {})
    if manifest is None:
        return CacheEntry(kind, key, size, changed, "unfinished", {})
    sizes = {one.name: one.size for one in objects}
    with contextlib.suppress(ValueError):
        parsed = parsed_manifest(manifest.data)
        if all(sizes.get(_object(name, file, sha256)) == size for file, (size, sha256) in parsed["files"].items()):
            return CacheEntry(kind, key, size, manifest.modified, "finished", parsed["identity"])
    return CacheEntry(kind, key, size, changed, "damaged", {})
