"""The cache of slow results on disk, addressed by what determines them.

Only this module knows the paths of the cache. An entry is a folder `<kind>/<key>`, where key is the sha256 of the
canonical JSON of its identity. It is built as `<key>.unfinished` under a lock, and renamed once its manifest (sizes and
sha256 of its files) is written. So a killed process never leaves an entry that looks complete.
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
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from harness.config.canonical import digest, flatten
from harness.data.files import write_text
from retrievers.base import BadInput, Ranking

log = logging.getLogger(__name__)
MANIFEST = "manifest.json"
UNFINISHED = ".unfinished"
_PART_WRITTEN = re.compile(r"\d+ requested and \d+ written")  # numpy's words for a full disk, without an errno
KEY = re.compile(r"[0-9a-f]{64}(-\d+)?")  # the name of an entry's folder; a ranking's ends with its depth
FLUSH_SECONDS = 5.0  # between two segments of scored pairs: the most work that a killed process loses

_verified: dict[tuple[int, int, int, int], str] = {}  # (device, inode, size, mtime) of a file -> its sha256


@dataclass(frozen=True)
class Entry:
    """One result in the cache.

    kind:     such as "indexes" or "rankings".
    key:      sha256 of its identity.
    bytes:    size; a file that two entries share counts only for the first.
    used:     time of its last use, in seconds since the epoch.
    state:    "unfinished": being built, or left by a killed process. "damaged": without a manifest that can be read, or
        files are missing or of another size. "foreign": a folder that the cache did not make; key is its name.
    identity: everything that determines it; empty unless it is finished.
    """

    kind: str
    key: str
    bytes: int
    used: float
    state: Literal["finished", "unfinished", "damaged", "foreign"]
    identity: Mapping[str, Any]


class Cache:
    """A cache folder; several processes may use it at once. root: the folder, created if it does not exist."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root

    def folder(
        self, kind: str, identity: Mapping[str, Any], build: Callable[[Path], None], resume: bool = False
    ) -> Path:
        """The folder of a result; on a miss, `build(folder)` fills it.

        A second process that needs the same result waits for the first. A damaged entry is built again, with a
        warning. An OSError, such as of a full disk, has the path.

        kind:     folder of the cache.
        identity: everything that determines the result, as plain JSON.
        build:    writes the files of the result.
        resume:   whether `build` continues in the folder that an interrupted call left.
        """
        return self._entry(self.root / kind / digest(identity), identity, build, resume)

    def size(self, kind: str, identity: Mapping[str, Any]) -> int | None:
        """Size of a cached result in bytes; None if it is not cached."""
        try:
            return sum(size for size, _ in _manifest(self.root / kind / digest(identity))["files"].values())
        except (OSError, ValueError):
            return None

    def found(self, kind: str, identity: Mapping[str, Any]) -> Path | None:
        """The folder of a cached result; None if it is not cached, or damaged."""
        place = self.root / kind / digest(identity)
        return place if _intact(place) else None

    def log_folder(self, kind: str, identity: Mapping[str, Any]) -> Path:
        """The folder of a result that grows, such as a log of replies; empty at first.

        Its manifest lists no files: whoever writes to it checks what it reads, and holds the lock `FOLDER.lock`, so
        that the entry is not removed meanwhile. It is never built again, whatever is in it. Arguments as for `folder`.
        """
        place = self.root / kind / digest(identity)
        if place.is_dir() and not _intact(place):  # its manifest is lost, but what it holds may have been paid for
            _delete(place / MANIFEST)
            write_text(place / MANIFEST, _manifest_text(identity, {}))
        return self._entry(place, identity, lambda _: None)

    def ranking(self, identity: Mapping[str, Any], depth: int, build: Callable[[int], Ranking]) -> Ranking:
        """A ranking at `depth`, taken from one cached at that depth or more; on a miss, `build(depth)` makes it.

        identity: everything but the depth that determines the ranking, as plain JSON.
        """
        cached = self.ranking_depth(identity, depth) or depth
        place = self.root / "rankings" / f"{digest(identity)}-{cached}"
        folder = self._entry(place, {**identity, "depth": cached}, lambda folder: save_ranking(build(cached), folder))
        return load_ranking(folder).top(depth)

    def holds_ranking(self, identity: Mapping[str, Any], depth: int) -> bool:
        """Whether a ranking is cached at `depth` or more."""
        return self.ranking_depth(identity, depth) is not None

    def ranking_depth(self, identity: Mapping[str, Any], depth: int) -> int | None:
        """The least cached depth of a ranking that is at least `depth`; None if there is none."""
        names = (place.name for place in (self.root / "rankings").glob(f"{digest(identity)}-*[0-9]"))
        cached = sorted(int(name.rpartition("-")[2]) for name in names if KEY.fullmatch(name))
        return next((other for other in cached if other >= depth), None)

    def holds_pairs(self, identity: Mapping[str, Any]) -> bool:
        """Whether scores of any pairs are cached."""
        return bool(self._cached_pairs(self.root / "pairs" / digest(identity)))

    def pairs(
        self,
        identity: Mapping[str, Any],
        keys: Sequence[bytes],
        compute: Callable[[Sequence[int]], Iterator[tuple[np.ndarray, np.ndarray]]],
    ) -> np.ndarray:
        """A score for each key, float64 [n], such as of a (query, document) pair; each is computed once for all runs.

        New scores are cached every few seconds, and when `compute` ends or fails, in segments that are entries of
        their own.

        identity: everything but the key that determines a score, as plain JSON.
        keys:     of equal length in bytes; they may repeat.
        compute:  called with the positions (within `keys`) of the missing scores; yields (positions within that
                  argument, their scores).
        """
        from filelock import FileLock

        place = self.root / "pairs" / digest(identity)
        known = self._cached_pairs(place)
        if any(key not in known for key in keys):
            place.mkdir(parents=True, exist_ok=True)
            with FileLock(_lock(place)):
                known = self._cached_pairs(place)
                missing = {key: i for i, key in enumerate(keys) if key not in known}
                positions = list(missing.values())
                for rows, scores in _batched(compute(positions)) if positions else ():
                    scored = [keys[positions[row]] for row in rows]
                    self._cache_pairs(place, identity, scored, scores)
                    known.update(zip(scored, scores.tolist(), strict=True))
        return np.array([known[key] for key in keys], np.float64)

    def entries(self) -> list[Entry]:
        """All entries, whatever their state. Other processes may remove entries while this lists them."""
        seen: set[tuple[int, int]] = set()
        entries = []
        for place in sorted(self._places()):
            with contextlib.suppress(FileNotFoundError):  # another process has just removed it
                entries.append(self._described(place, seen))
        return entries

    def remove(self, entry: Entry) -> bool:
        """Delete an entry; False if a process is using it, or if it is foreign."""
        from filelock import FileLock, Timeout

        if entry.state == "foreign":
            return False
        place = self.root / entry.kind / (entry.key + UNFINISHED if entry.state == "unfinished" else entry.key)
        try:
            with FileLock(_lock(place.parent / entry.key), timeout=0):
                _delete(place / MANIFEST)  # first, so that a half deleted entry does not count
                _delete(place)
        except Timeout:
            return False
        return True

    def _entry(
        self, place: Path, identity: Mapping[str, Any], build: Callable[[Path], None], resume: bool = False
    ) -> Path:
        """The folder `place`, built if it is not intact; arguments as for `folder`."""
        from filelock import FileLock

        if not _intact(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(_lock(place)):
                if not _intact(place):
                    if place.exists():
                        log.warning("%s is damaged and will be built again", place)
                        _delete(place)
                    _build(place, identity, build, resume)
        with contextlib.suppress(OSError):  # a shared cache may be read-only
            os.utime(place / MANIFEST)
        return place

    def _cached_pairs(self, place: Path) -> dict[bytes, float]:
        """key -> score, from all intact segments in a folder; damaged ones are removed."""
        known: dict[bytes, float] = {}
        for manifest in place.glob(f"*/{MANIFEST}"):
            if manifest.parent.name.endswith(UNFINISHED):
                continue  # another process is about to rename it
            if _intact(segment := manifest.parent):
                keys = np.load(segment / "keys.npy", allow_pickle=False)
                scores = np.load(segment / "scores.npy", allow_pickle=False)
                known.update(zip(map(bytes, keys), scores.tolist(), strict=True))
            else:
                log.warning("%s is damaged; its pairs will be scored again", segment)
                shutil.rmtree(segment, ignore_errors=True)
        return known

    def _cache_pairs(self, place: Path, identity: Mapping[str, Any], keys: Sequence[bytes], scores: np.ndarray) -> None:
        """Add a segment."""

        def save(folder: Path) -> None:
            np.save(folder / "keys.npy", np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), -1))
            np.save(folder / "scores.npy", scores)

        segment = {"pairs": identity, "keys": hashlib.sha256(b"".join(keys)).hexdigest()}
        _delete(place / digest(segment))  # it has these keys, but has lost its manifest
        _build(place / digest(segment), segment, save, resume=False)

    def _places(self) -> Iterator[Path]:
        """The folders of all entries."""
        for kind in _folders(self.root):
            for place in _folders(kind):
                if kind.name == "pairs" and KEY.fullmatch(place.name):
                    yield from _folders(place)
                else:
                    yield place

    def _described(self, place: Path, seen: set[tuple[int, int]]) -> Entry:
        """The entry in a folder. seen: (device, inode) of files that already counted; new ones are added."""
        size = 0
        for folder, _, names in os.walk(place):  # leaves out what vanishes meanwhile
            for name in names:
                with contextlib.suppress(OSError):
                    about = Path(folder, name).lstat()
                    if (about.st_dev, about.st_ino) not in seen:
                        seen.add((about.st_dev, about.st_ino))
                        size += about.st_size
        kind, key = place.parent.relative_to(self.root).as_posix(), place.name.removesuffix(UNFINISHED)
        if not KEY.fullmatch(key):
            return Entry(kind, place.name, size, place.stat().st_mtime, "foreign", {})
        if place.name.endswith(UNFINISHED):
            return Entry(kind, key, size, place.stat().st_mtime, "unfinished", {})
        try:
            manifest = _manifest(place)
            if any((place / name).stat().st_size != size for name, (size, _) in manifest["files"].items()):
                raise ValueError("a file has another size")
            return Entry(kind, key, size, (place / MANIFEST).stat().st_mtime, "finished", manifest["identity"])
        except (OSError, ValueError):
            return Entry(kind, key, size, place.stat().st_mtime, "damaged", {})


class SealedCache(Cache):
    """A read-only cache: BadInput for a result that is missing or has changed, which is never built again."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def _entry(
        self, place: Path, identity: Mapping[str, Any], build: Callable[[Path], None], resume: bool = False
    ) -> Path:
        if not place.is_dir():
            cached = [_manifest(other.parent)["identity"] for other in place.parent.glob(f"*/{MANIFEST}")]
            raise BadInput(
                f"{self.root} has no entry in {place.parent.name} that matches this configuration"
                f"{_difference(identity, cached)}. It is read-only, so nothing is built: restore the versions, models "
                "and files that it was built with."
            )
        verify(place)
        return place


def verify(place: Path) -> None:
    """Raise BadInput, which names the first wrong file, unless the files of an entry match its manifest."""
    try:
        files = _manifest(place)["files"]
    except (OSError, ValueError) as error:
        raise BadInput(
            f"{place / MANIFEST} cannot be read ({type(error).__name__}): it is damaged. Restore it."
        ) from None
    for name, (size, checksum) in files.items():
        if not (file := place / name).is_file():
            raise BadInput(f"{file} is missing. Restore it: a read-only cache builds nothing.")
        if file.stat().st_size != size or _checksum(file) != checksum:
            raise BadInput(
                f"{file} has changed: its sha256 is not {checksum[:12]}… of the manifest. Restore it: a read-only "
                "cache builds nothing."
            )


def save_ranking(ranking: Ranking, folder: Path) -> None:
    """Write a ranking to a folder, with only those doc_ids that occur in it."""
    used = np.unique(ranking.docs[ranking.docs >= 0])
    docs = np.where(ranking.docs >= 0, np.searchsorted(used, ranking.docs), -1).astype(np.int32)
    np.save(folder / "docs.npy", docs, allow_pickle=False)
    np.save(folder / "scores.npy", ranking.scores, allow_pickle=False)
    ids = {"query_ids": ranking.query_ids, "doc_ids": [ranking.doc_ids[i] for i in used]}
    text = json.dumps({**ids, "measured": dict(ranking.measured)}, ensure_ascii=False)
    (folder / "ids.json").write_text(text, "utf-8")


def load_ranking(folder: Path) -> Ranking:
    """The ranking that `save_ranking` wrote, with memory-mapped arrays."""
    ids = json.loads((folder / "ids.json").read_text("utf-8"))
    docs = np.load(folder / "docs.npy", mmap_mode="r", allow_pickle=False)
    scores = np.load(folder / "scores.npy", mmap_mode="r", allow_pickle=False)
    return Ranking(tuple(ids["query_ids"]), tuple(ids["doc_ids"]), docs, scores, ids["measured"])


def _build(place: Path, identity: Mapping[str, Any], build: Callable[[Path], None], resume: bool) -> None:
    """Build an entry under another name, write its manifest and rename it; the caller holds the lock."""
    unfinished = place.with_name(place.name + UNFINISHED)
    if not resume:
        shutil.rmtree(unfinished, ignore_errors=True)  # left by a killed process
    unfinished.mkdir(exist_ok=True)
    try:
        build(unfinished)
        files = {}
        for path in sorted(p for p in unfinished.rglob("*") if p.is_file()):
            files[path.relative_to(unfinished).as_posix()] = [path.stat().st_size, _checksum(path, sync=True)]
        manifest = unfinished / MANIFEST
        manifest.write_text(_manifest_text(identity, files), "utf-8")
        _checksum(manifest, sync=True)
        unfinished.rename(place)
    except BaseException as error:
        if not resume:
            shutil.rmtree(unfinished, ignore_errors=True)
        if isinstance(error, OSError) and error.filename is None:  # whatever writes it: the message is to say where
            if _PART_WRITTEN.search(str(error)):
                error.errno, error.strerror = errno.ENOSPC, os.strerror(errno.ENOSPC)
            error.filename = str(place.parent)
        raise


def _manifest_text(identity: Mapping[str, Any], files: Mapping[str, Any]) -> str:
    return json.dumps({"identity": identity, "files": files}, ensure_ascii=False, indent=1)


def _difference(identity: Mapping[str, Any], cached: Sequence[Mapping[str, Any]]) -> str:
    """The values in which an identity differs from the most similar cached one, for an error message."""
    ours = flatten(identity)
    differences = [{key: value for key, value in flatten(one).items() if ours.get(key) != value} for one in cached]
    smallest = min(differences, key=len, default={})
    return "".join(f"; {key} was {value!r} and is {ours.get(key)!r}" for key, value in smallest.items())


def _lock(place: Path) -> Path:
    """The lock file of an entry; all segments of scored pairs in a folder share one."""
    owner = place.parent if place.parent.parent.name == "pairs" else place
    return owner.with_name(f"{owner.name}.lock")


def _folders(parent: Path) -> list[Path]:
    """The folders in a folder; [] if it has vanished."""
    try:
        return [path for path in parent.iterdir() if path.is_dir()]
    except FileNotFoundError:
        return []


def _delete(path: Path) -> None:
    """Remove a file, a link or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        with contextlib.suppress(FileNotFoundError):  # another process is removing it
            shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _manifest(place: Path) -> dict[str, Any]:
    """The manifest of an entry. FileNotFoundError if there is none, ValueError if it is damaged."""
    file = place / MANIFEST
    try:
        if file.exists() and not file.is_file():  # reading a pipe would wait for ever
            raise OSError
        content = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise
    except (OSError, RecursionError):
        content = None
    match content:
        case {"identity": dict(), "files": dict() as files}:
            if all(isinstance(one, list) and list(map(type, one)) == [int, str] for one in files.values()):
                return dict(content)
    raise ValueError(f"{file} is not a manifest")


def _intact(place: Path) -> bool:
    """Whether an entry is complete: it has a manifest, and every file has the size and sha256 in it."""
    try:
        return all(
            (place / name).stat().st_size == size and _checksum(place / name) == checksum
            for name, (size, checksum) in _manifest(place)["files"].items()
        )
    except PermissionError:
        raise
    except (OSError, ValueError):
        return False


def _checksum(path: Path, sync: bool = False) -> str:
    """sha256 of a file, computed once per process unless the file changes. sync: flush the file to disk first."""
    with path.open("rb") as file:
        if sync:
            os.fsync(file.fileno())
        about = os.fstat(file.fileno())
        state = (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns)
        if state not in _verified:
            _verified[state] = hashlib.file_digest(file, "sha256").hexdigest()
    return _verified[state]


def _batched(computed: Iterator[tuple[np.ndarray, np.ndarray]]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Joins small parts into (rows, scores) of a few seconds each.

    If `computed` fails, the parts before the failure come first, then the error.
    """
    rows: list[np.ndarray] = []
    scores: list[np.ndarray] = []
    began = time.monotonic()
    failed: BaseException | None = None
    try:
        for part_rows, part_scores in computed:
            rows.append(part_rows)
            scores.append(part_scores)
            if time.monotonic() - began >= FLUSH_SECONDS:
                yield np.concatenate(rows), np.concatenate(scores)
                rows, scores, began = [], [], time.monotonic()
    except GeneratorExit:
        raise
    except BaseException as error:
        failed = error
    if rows:
        yield np.concatenate(rows), np.concatenate(scores)
    if failed is not None:
        raise failed
