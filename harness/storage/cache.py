"""The cache of slow results, addressed by their identities.

An entry is a folder `<kind>/<key>`. The key is the sha256 of the entry's identity as canonical JSON. If machines share
a bucket, the bucket keeps the entries, and the cache's folder is this machine's copy.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from harness.config.canonical import digest
from harness.config.places import BucketPlace, bucket_place
from harness.storage.bucket import Bucket, bucket_address
from harness.storage.bucket_entries import BucketEntries
from harness.storage.entries import CacheEntry, FolderEntries, fill, missing_entry, verify_entry
from harness.storage.rankings import load_ranking, save_ranking
from retrievers.base import Ranking, load_array

LOCAL = "HARNESS_CACHE_LOCAL"  # the environment variable with the path of the folder of local copies
FLUSH_SECONDS = 5.0  # time between two writes of newly scored pairs; a killed process loses those since the last write
AT_ONCE = 4  # number of segments of scored pairs that are fetched in parallel


def open_cache(path: str) -> Cache:
    """Return the cache in a folder or in `s3://BUCKET/PREFIX`. Create a missing folder, but send no request yet."""
    if place := bucket_place(path):
        return _in_bucket(place, local_copy(place), bucket_address())
    return Cache(Path(path))


def existing_cache(path: str) -> Cache | None:
    """Return the cache at a place. If its folder does not exist, return None and create nothing."""
    return open_cache(path) if bucket_place(path) or Path(path).is_dir() else None


def local_copy(place: BucketPlace) -> Path:
    """Return the folder of this machine's copy of a bucket. Each bucket, prefix and server has its own folder."""
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "retrieval-harness"
    folder = Path(os.environ.get(LOCAL) or usual).absolute()
    return folder / f"{place.bucket}-{hashlib.sha256(f'{bucket_address()} {place.url}'.encode()).hexdigest()[:16]}"


@functools.cache
def _in_bucket(place: BucketPlace, local: Path, server: str) -> Cache:
    return Cache(local, BucketEntries(Bucket(place), local))


class Cache:
    """Results that processes share.

    An entry's name is `<kind>/<key>`; a segment of scored pairs is named `pairs/<key>/<segment's key>`.
    root: folder of the entries on this machine; created if missing. backend: by default `FolderEntries(root)`.
    sealed: whether a missing or changed result raises BadInput instead of being built.
    """

    def __init__(self, root: Path, backend: FolderEntries | None = None, sealed: bool = False) -> None:
        if not sealed:
            root.mkdir(parents=True, exist_ok=True)
        self.root, self.backend, self._sealed = root, backend or FolderEntries(root), sealed

    @property
    def location(self) -> str:
        return self.backend.location

    def folder(
        self, kind: str, identity: Mapping[str, Any], build: Callable[[Path], None], resume: bool = False
    ) -> Path:
        """Return the folder of a result; on a miss, `build(folder)` fills it.

        A second process that needs the same result waits for the first. A damaged entry is built again, with a
        warning. An OSError, such as for a full disk, names the path.

        identity: everything that determines the result, as plain JSON.
        resume: whether `build` continues in the folder that an interrupted call left.
        """
        return self._entry(_name(kind, identity), identity, build, resume)

    def size(self, kind: str, identity: Mapping[str, Any]) -> int | None:
        """Return the size of a cached result in bytes; None if it is not cached."""
        manifest = self.backend.manifest(_name(kind, identity))
        return sum(size for size, _ in manifest["files"].values()) if manifest else None

    def found(self, kind: str, identity: Mapping[str, Any]) -> Path | None:
        """Return the folder of a cached result; None if it is missing or damaged."""
        name = _name(kind, identity)
        return self.backend.used(name) if self.backend.get(name) else None

    def log_folder(self, kind: str, identity: Mapping[str, Any]) -> Path:
        """Return the folder of a growing result, such as a log of replies; empty at first.

        The manifest of the entry lists no files. Writers must check the rows that they read, and hold the lock
        `FOLDER.lock` to keep the entry from being removed. A damaged entry is not built again. Arguments: see `folder`.
        """
        return self.backend.log_folder(_name(kind, identity), identity)

    def found_log(self, kind: str, identity: Mapping[str, Any]) -> Path | None:
        """Return the folder of a growing result. If there is none, return None and create nothing."""
        return self.log_folder(kind, identity) if self.found(kind, identity) else None

    def adding(self, folder: Path) -> AbstractContextManager[None]:
        """Return the context in which rows may be added to a log. folder: from `log_folder`."""
        return self.backend.adding(folder.relative_to(self.root).as_posix())

    def ranking(self, identity: Mapping[str, Any], depth: int, build: Callable[[int], Iterable[Ranking]]) -> Ranking:
        """Return a ranking at `depth`. If a cached one is at least as deep, cut it; else call `build`.

        build: takes a depth; returns one or more rankings of consecutive queries, for `save_ranking`.
        """
        cached = self.ranking_depth(identity, depth) or depth
        name = f"{_name('rankings', identity)}-{cached}"
        folder = self._entry(name, {**identity, "depth": cached}, lambda folder: save_ranking(build(cached), folder))
        return load_ranking(folder).top(depth)

    def holds_ranking(self, identity: Mapping[str, Any], depth: int) -> bool:
        return self.ranking_depth(identity, depth) is not None

    def ranking_depth(self, identity: Mapping[str, Any], depth: int) -> int | None:
        """Return the smallest cached depth >= `depth`; None if there is none."""
        start = f"{_name('rankings', identity)}-"
        for names in self.backend.names(start):  # a ranking that is deeper than `depth` begins with the wanted one
            depths = (int(name.removeprefix(start)) for name in names)
            if (least := min((other for other in depths if other >= depth), default=None)) is not None:
                return least
        return None

    def holds_pairs(self, identity: Mapping[str, Any]) -> bool:
        return any(self.backend.names(f"{_name('pairs', identity)}/"))

    def pairs(
        self,
        identity: Mapping[str, Any],
        keys: Sequence[bytes],
        compute: Callable[[Sequence[int]], Iterator[tuple[np.ndarray, np.ndarray]]],
    ) -> np.ndarray:
        """Return the scores of keys, such as (query, document) pairs, as float64 [n]. Each score is computed once.

        New scores are cached in segments, every FLUSH_SECONDS and when `compute` ends or fails.

        identity: everything that determines a score besides its key, as plain JSON.
        keys: of equal length in bytes; they may repeat.
        compute: takes a list of positions in `keys` whose scores are missing; yields (indices into this list, scores).
        """
        name = _name("pairs", identity)
        known = self._known_pairs(name, keys)
        if any(key not in known for key in keys):
            with self.backend.turn(name):
                known = self._known_pairs(name, keys, held=True)
                missing = {key: i for i, key in enumerate(keys) if key not in known}
                positions = list(missing.values())
                for rows, scores in _batched(iter(compute(positions))) if positions else ():
                    scored = [keys[positions[row]] for row in rows]
                    self._cache_pairs(name, identity, scored, scores)
                    known.update(zip(scored, scores.tolist(), strict=True))
        return np.array([known[key] for key in keys], np.float64)

    def entries(self) -> list[CacheEntry]:
        """Return all entries, in any state."""
        return self.backend.entries()

    def remove(self, entry: CacheEntry) -> bool:
        """Delete an entry; return False if the cache did not make it, or if it is in use."""
        return entry.state != "foreign" and self.backend.remove(f"{entry.kind}/{entry.key}")

    def _entry(
        self, name: str, identity: Mapping[str, Any], build: Callable[[Path], None], resume: bool = False
    ) -> Path:
        place = self.root / name
        if self._sealed:
            if not place.is_dir():
                raise missing_entry(place, identity)
            verify_entry(place)
            return place
        if not self.backend.get(name):
            with self.backend.turn(name, until=lambda: self.backend.get(name)):
                if not self.backend.get(name, held=True):
                    self._build(name, identity, build, resume)
        return self.backend.used(name)

    def _build(self, name: str, identity: Mapping[str, Any], build: Callable[[Path], None], resume: bool) -> None:
        """Build an entry. The caller must hold `backend.turn` of the entry."""
        fill(self.root / name, identity, build, resume)
        self.backend.put(name)

    def _known_pairs(self, name: str, keys: Sequence[bytes], held: bool = False) -> dict[bytes, float]:
        """Return key -> score from undamaged segments. Segments on this machine are read first."""
        known: dict[bytes, float] = {}
        read: set[str] = set()
        for names in self.backend.names(f"{name}/"):
            new = [one for one in names if one not in read]
            read.update(new)
            with ThreadPoolExecutor(AT_ONCE) as pool:
                whole = [*pool.map(lambda one: self.backend.get(one, held), new)]
            for segment in itertools.compress(new, whole):
                found = np.asarray(load_array(self.root / segment, "keys"))
                scores = load_array(self.root / segment, "scores")
                known.update(zip(map(bytes, found), scores.tolist(), strict=True))
            if all(key in known for key in keys):
                break
        return known

    def _cache_pairs(self, name: str, identity: Mapping[str, Any], keys: Sequence[bytes], scores: np.ndarray) -> None:
        def save(folder: Path) -> None:
            np.save(folder / "keys.npy", np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), -1))
            np.save(folder / "scores.npy", scores)

        segment = {"pairs": identity, "keys": hashlib.sha256(b"".join(keys)).hexdigest()}
        self._build(f"{name}/{digest(segment)}", segment, save, resume=False)


def _name(kind: str, identity: Mapping[str, Any]) -> str:
    return f"{kind}/{digest(identity)}"


def _batched(computed: Iterator[tuple[np.ndarray, np.ndarray]]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Join the (rows, scores) that arrive within FLUSH_SECONDS. If `computed` fails, yield the finished parts first."""
    parts: list[tuple[np.ndarray, np.ndarray]] = []
    began = time.monotonic()
    failed: list[BaseException] = []
    while not failed:
        try:
            parts.append(next(computed))
        except BaseException as error:
            failed.append(error)
        if parts and (failed or time.monotonic() - began >= FLUSH_SECONDS):
            yield np.concatenate([rows for rows, _ in parts]), np.concatenate([scores for _, scores in parts])
            parts, began = [], time.monotonic()
    if not isinstance(failed[0], StopIteration):
        raise failed[0]
