"""What keeps the entries of a cache, as the cache sees it, and the folder that does."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from harness.storage.atomic import write_text
from harness.storage.entries import (
    KEY,
    MANIFEST,
    Entry,
    delete,
    describe,
    folders,
    intact,
    manifest_text,
    read_manifest,
    unfinished_of,
)

log = logging.getLogger(__name__)
Until = Callable[[], object]


def never() -> None:
    """What gives nothing, however long it is waited for."""


class Backend(Protocol):
    """Keeps entries. A name is `<kind>/<key>`, of a segment of scored pairs `pairs/<key>/<key>`.

    location: as `open_cache` takes it. root: entries lie in `root/name` on this machine when they are read.
    """

    @property
    def location(self) -> str: ...

    @property
    def root(self) -> Path: ...

    def get(self, name: str, held: bool = False) -> Path | None:
        """Return the folder of an entry whose files are all as they were written; None if there is none.

        held: whether the caller holds the turn of the entry; then a damaged one is removed, with a warning.
        """

    def put(self, name: str) -> Path:
        """Keep the entry that was built in `unfinished_of(root / name)`, if there is none; return what is kept."""

    def names(self, start: str, near: bool) -> list[str]:
        """Return the names of entries that begin with this. near: of those alone that are on this machine."""

    def entries(self) -> list[Entry]:
        """Return all entries, whatever their state."""

    def delete(self, name: str) -> bool:
        """Remove an entry, in whatever state; False if a process is using it."""

    def turn(self, name: str, until: Until = never) -> AbstractContextManager[None]:
        """Wait for whoever builds the entry, and keep others out; or wait until `until` gives something."""

    def manifest(self, name: str) -> Mapping[str, Any] | None:
        """Return the manifest of an entry without fetching its files; None if there is none."""

    def read(self, name: str, file: str, sha256: str) -> bytes | None:
        """Return what is in one file of an entry, unchecked; None if it is gone."""

    def used(self, name: str) -> None:
        """Note that an entry is in use, for pruning."""

    def log(self, name: str, identity: Mapping[str, Any]) -> Path:
        """Return the folder of an entry that grows, made if there is none, with what other machines have added."""

    def adding(self, name: str) -> AbstractContextManager[None]:
        """Hold what a process holds while it adds to a log."""


class FolderBackend:
    """A folder, which several processes may use at once."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def location(self) -> str:
        return str(self.root)

    def get(self, name: str, held: bool = False) -> Path | None:
        place = self.root / name
        if intact(place):
            return place
        if held and os.path.lexists(place):
            log.warning("%s is damaged and will be built again", place)
            delete(place)
        return None

    def put(self, name: str) -> Path:
        return unfinished_of(self.root / name).rename(self.root / name)

    def names(self, start: str, near: bool = True) -> list[str]:
        parent, _, prefix = start.rpartition("/")
        try:
            found = sorted(os.listdir(self.root / parent))  # noqa: PTH208 (there may be many)
        except FileNotFoundError:
            return []
        return [f"{parent}/{one}" for one in found if one.startswith(prefix) and KEY.fullmatch(one)]

    def delete(self, name: str) -> bool:
        from filelock import FileLock, Timeout

        try:
            with FileLock(self.lock_file(name), timeout=0):
                delete(self.root / name / MANIFEST)  # first, so that a half deleted entry does not count
                delete(self.root / name)
                delete(unfinished_of(self.root / name))
        except Timeout:
            return False
        return True

    @contextlib.contextmanager
    def turn(self, name: str, until: Until = never) -> Iterator[None]:
        from filelock import FileLock

        with FileLock(self.lock_file(name)):
            yield

    def manifest(self, name: str) -> Mapping[str, Any] | None:
        try:
            return read_manifest(self.root / name)
        except (OSError, ValueError):
            return None

    def read(self, name: str, file: str, sha256: str) -> bytes | None:
        with contextlib.suppress(OSError):
            return (self.root / name / file).read_bytes()
        return None

    def used(self, name: str) -> None:
        with contextlib.suppress(OSError):  # a shared cache may be read-only
            os.utime(self.root / name / MANIFEST)

    def entries(self) -> list[Entry]:
        seen: set[tuple[int, int]] = set()
        found = []
        for kind in folders(self.root):
            for place in () if kind.name.startswith(".") else folders(kind):
                inner = kind.name == "pairs" and KEY.fullmatch(place.name)
                for one in folders(place) if inner else [place]:
                    with contextlib.suppress(FileNotFoundError):  # another process has just removed it
                        found.append(describe(self.root, one, seen))
        return found

    def log(self, name: str, identity: Mapping[str, Any]) -> Path:
        place = self.root / name
        if not intact(place):
            with self.turn(name):
                place.mkdir(parents=True, exist_ok=True)
                if not intact(place):  # where only its manifest is lost, what it holds may have been paid for
                    delete(place / MANIFEST)
                    write_text(place / MANIFEST, manifest_text(identity, {}))
        self.used(name)
        return place

    def adding(self, name: str) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def lock_file(self, name: str) -> Path:
        """The lock file of an entry; all segments of scored pairs in a folder share one."""
        file = self.root / f"{'/'.join(name.split('/')[:2])}.lock"
        file.parent.mkdir(parents=True, exist_ok=True)
        return file
