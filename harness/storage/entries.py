"""The entries of a cache on this machine's disk: folders, each complete once it has its manifest.

An entry is built as `<key>.unfinished` under a lock. It is renamed after its manifest (sizes and sha256 of its files)
is written, so a killed process never leaves an entry that looks complete.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from harness.config.canonical import flatten
from harness.errors import BadInput
from harness.storage.atomic import write_text

if TYPE_CHECKING:
    from filelock import FileLock

log = logging.getLogger(__name__)
MANIFEST = "manifest.json"
UNFINISHED = ".unfinished"
_PART_WRITTEN = re.compile(r"\d+ requested and \d+ written")  # numpy's error for a full disk, which has no errno
KEY = re.compile(r"[0-9a-f]{64}(-\d+)?")  # name of an entry's folder: the key; for a ranking, then its depth

_verified: dict[tuple[int, int, int, int], str] = {}  # (device, inode, size, mtime) of a file -> its sha256


@dataclass(frozen=True)
class CacheEntry:
    """One result in the cache.

    kind: kind of the result, such as "indexes" or "rankings".
    key: sha256 of the identity, or the name of a foreign folder.
    bytes: size of the files; a file that several entries share counts only for the first.
    used: time of the last use, in seconds since 1970.
    state: "unfinished" while it is built, or if its process was killed; "damaged" if the manifest cannot be read, or if
        files are missing or have another size; "foreign" if the cache did not make the folder.
    identity: empty unless the entry is finished.
    """

    kind: str
    key: str
    bytes: int
    used: float
    state: Literal["finished", "unfinished", "damaged", "foreign"]
    identity: Mapping[str, Any]


class FolderEntries:
    """The entries in a folder; `BucketEntries` has the same methods. An entry's name is its path in the folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def location(self) -> str:
        return str(self.root)

    def lock(self, name: str, seconds: float = -1) -> FileLock:
        """Return the lock that processes on this machine hold to change an entry."""
        from filelock import FileLock

        file = self.root / lock_name(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(file, timeout=seconds)

    @contextlib.contextmanager
    def turn(self, name: str, until: Callable[[], object] | None = None) -> Iterator[None]:
        """Wait for other builders of an entry, then keep them out. until: see `Lease.held`."""
        with self.lock(name):
            yield

    def get(self, name: str, held: bool = False) -> bool:
        """Return whether an entry is there and undamaged.

        held: whether the caller holds the entry's `turn`. If so, delete a damaged entry, with a warning.
        """
        place = self.root / name
        if intact(place):
            return True
        if held:
            if os.path.lexists(place):
                log.warning("%s is damaged and will be built again", place)
            delete(place)
        return False

    def put(self, name: str) -> None:
        """Finish an entry that `fill` has built. The caller must hold the entry's `turn`."""
        place = self.root / name
        unfinished_of(place).rename(place)

    def names(self, start: str) -> Iterator[list[str]]:
        """Yield lists of the entry names that begin with `start`. A list that a bucket must be asked for comes last."""
        parent, _, prefix = start.rpartition("/")
        try:
            found = sorted(os.listdir(self.root / parent))  # noqa: PTH208 (there may be many)
        except FileNotFoundError:
            found = []
        yield [f"{parent}/{one}" for one in found if one.startswith(prefix) and KEY.fullmatch(one)]

    def entries(self) -> list[CacheEntry]:
        """Return all entries, in any state."""
        seen: set[tuple[int, int]] = set()
        found = []
        for kind in _subfolders(self.root):
            for place in () if kind.name.startswith(".") else _subfolders(kind):
                inner = kind.name == "pairs" and KEY.fullmatch(place.name)
                for one in _subfolders(place) if inner else [place]:
                    with contextlib.suppress(FileNotFoundError):  # another process has just removed it
                        found.append(_described(self.root, one, seen))
        return found

    def manifest(self, name: str) -> Mapping[str, Any] | None:
        """Return the manifest of an entry; None if there is none, or if it is damaged."""
        try:
            return read_entry_manifest(self.root / name)
        except (OSError, ValueError):
            return None

    def used(self, name: str) -> Path:
        """Return an entry's folder, and record the time of this use, by which entries are pruned."""
        with contextlib.suppress(OSError):  # a shared cache may be read-only
            os.utime(self.root / name / MANIFEST)
        return self.root / name

    def remove(self, name: str) -> bool:
        """Delete an entry; return False if a process is using it."""
        from filelock import Timeout

        try:
            with self.lock(name, 0):
                return self._delete(name)
        except Timeout:
            return False

    def _delete(self, name: str) -> bool:
        place = self.root / name
        for left in (place / MANIFEST, place, unfinished_of(place)):  # first the manifest, which marks finished entries
            delete(left)
        return True

    def log_folder(self, name: str, identity: Mapping[str, Any]) -> Path:
        """Return the folder of a growing result: see `Cache.log_folder`."""
        place = self.root / name
        if not intact(place):
            with self.lock(name):
                place.mkdir(parents=True, exist_ok=True)
                if not intact(place):  # if only the manifest is lost, keep the content, which may have cost money
                    delete(place / MANIFEST)
                    write_text(place / MANIFEST, _manifest_text(identity, {}))
        return self.used(name)

    def adding(self, name: str) -> AbstractContextManager[None]:
        """Return the context in which rows may be added to a log."""
        return contextlib.nullcontext()


def fill(place: Path, identity: Mapping[str, Any], build: Callable[[Path], None], resume: bool) -> None:
    """Build an entry as `<key>.unfinished`. The caller must hold the entry's `turn`."""
    unfinished = unfinished_of(place)
    if intact(unfinished):
        return  # a process was killed before it could rename the folder or send it
    if not resume:
        shutil.rmtree(unfinished, ignore_errors=True)  # left by a killed process
    unfinished.mkdir(parents=True, exist_ok=True)
    delete(unfinished / MANIFEST)
    try:
        build(unfinished)
        files = {}
        for path in sorted(p for p in unfinished.rglob("*") if p.is_file()):
            files[path.relative_to(unfinished).as_posix()] = [path.stat().st_size, checksum(path, sync=True)]
        write_text(unfinished / MANIFEST, _manifest_text(identity, files))
    except BaseException as error:
        if not resume:
            shutil.rmtree(unfinished, ignore_errors=True)
        if isinstance(error, OSError) and error.filename is None:
            if _PART_WRITTEN.search(str(error)):
                error.errno, error.strerror = errno.ENOSPC, os.strerror(errno.ENOSPC)
            error.filename = str(place.parent)
        raise


def unfinished_of(place: Path) -> Path:
    return place.with_name(place.name + UNFINISHED)


def _manifest_text(identity: Mapping[str, Any], files: Mapping[str, Any]) -> str:
    return json.dumps({"identity": identity, "files": files}, ensure_ascii=False, indent=1)


def _described(root: Path, place: Path, seen: set[tuple[int, int]]) -> CacheEntry:
    """Describe the entry in a folder of the cache `root`. seen: (device, inode) of files counted so far."""
    size = 0
    for folder, _, names in os.walk(place):  # files that vanish meanwhile are left out
        for name in names:
            with contextlib.suppress(OSError):
                about = Path(folder, name).lstat()
                if (about.st_dev, about.st_ino) not in seen:
                    seen.add((about.st_dev, about.st_ino))
                    size += about.st_size
    kind, key = place.parent.relative_to(root).as_posix(), place.name.removesuffix(UNFINISHED)
    if not KEY.fullmatch(key):
        return CacheEntry(kind, place.name, size, place.stat().st_mtime, "foreign", {})
    if place.name.endswith(UNFINISHED):
        return CacheEntry(kind, key, size, place.stat().st_mtime, "unfinished", {})
    with contextlib.suppress(OSError, ValueError):
        manifest = read_entry_manifest(place)
        if all((place / name).stat().st_size == size for name, (size, _) in manifest["files"].items()):
            return CacheEntry(kind, key, size, (place / MANIFEST).stat().st_mtime, "finished", manifest["identity"])
    return CacheEntry(kind, key, size, place.stat().st_mtime, "damaged", {})


def missing_entry(place: Path, identity: Mapping[str, Any]) -> BadInput:
    """Return the error for an entry that a read-only cache lacks. It names the differences from the closest entry."""
    ours = flatten(identity)
    cached = [flatten(read_entry_manifest(other.parent)["identity"]) for other in place.parent.glob(f"*/{MANIFEST}")]
    differences = [{key: value for key, value in one.items() if ours.get(key) != value} for one in cached]
    smallest = min(differences, key=len, default={})
    return BadInput(
        f"{place.parents[1]} has no entry in {place.parent.name} that matches this configuration"
        f"{''.join(f'; cached: {key}={value!r}, now: {ours.get(key)!r}' for key, value in smallest.items())}. "
        "The cache is read-only and builds nothing: restore the versions, models and files that its entries need."
    )


def verify_entry(place: Path) -> None:
    """Raise BadInput for the first file of an entry that does not match its manifest."""
    restore = "Restore it: a read-only cache builds nothing."
    try:
        files = read_entry_manifest(place)["files"]
    except (OSError, ValueError) as error:
        raise BadInput(f"{place / MANIFEST} is damaged ({type(error).__name__}). {restore}") from None
    for name, (size, known) in files.items():
        if not (file := place / name).is_file():
            raise BadInput(f"{file} is missing. {restore}")
        if file.stat().st_size != size or checksum(file) != known:
            raise BadInput(f"{file} has changed: its sha256 differs from {known[:12]}… in the manifest. {restore}")


def lock_name(name: str) -> str:
    """Return the name of an entry's lock file. All segments in `pairs/<key>` share one lock."""
    return f"{'/'.join(name.split('/')[:2])}.lock"


def _subfolders(parent: Path) -> list[Path]:
    try:
        return sorted(path for path in parent.iterdir() if path.is_dir())
    except FileNotFoundError:
        return []


def delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        with contextlib.suppress(FileNotFoundError):  # another process is removing it
            shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def read_entry_manifest(place: Path) -> dict[str, Any]:
    """Return the manifest of an entry. Raise FileNotFoundError if there is none, ValueError if it is damaged."""
    file = place / MANIFEST
    try:
        if file.exists() and not file.is_file():  # reading a pipe would wait for ever
            raise OSError
        return parsed_manifest(file.read_bytes())
    except FileNotFoundError:
        raise
    except (OSError, ValueError):
        raise ValueError(f"{file} is not a manifest") from None


def parsed_manifest(content: bytes) -> dict[str, Any]:
    """Parse a manifest. Raise ValueError if it is damaged or names a file outside its folder."""
    try:
        parsed: Any = json.loads(content.decode("utf-8"))
    except RecursionError:
        parsed = None
    match parsed:
        case {"identity": dict(), "files": dict() as files}:
            sound = all(isinstance(one, list) and list(map(type, one)) == [int, str] for one in files.values())
            if sound and not any({"", ".", ".."} & {*name.split("/")} or "\0" in name for name in files):
                return dict(parsed)
    raise ValueError("not a manifest")


def intact(place: Path) -> bool:
    """Return whether an entry has a manifest, and all its files have the sizes and sha256 that the manifest lists."""
    try:
        verify_entry(place)
    except PermissionError:
        raise
    except (OSError, BadInput):
        return False
    return True


def checksum(path: Path, sync: bool = False) -> str:
    """Return the sha256 of a file, and remember it until the file changes. sync: flush the file to disk first."""
    with path.open("rb") as file:
        if sync:
            os.fsync(file.fileno())
        about = os.fstat(file.fileno())
        state = (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns)
        if state not in _verified:
            _verified[state] = hashlib.file_digest(file, "sha256").hexdigest()
    return _verified[state]
