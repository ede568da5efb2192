"""The cache of slow results on disk, addressed by what determines them.

Only this module knows the paths of the cache. An entry is a folder `<kind>/<key>`, where key is the sha256 of the
canonical JSON of its identity. `harness.storage.entries` says how one is built.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.config.canonical import digest, flatten
from harness.storage.atomic import write_text
from harness.storage.entries import (
    KEY,
    MANIFEST,
    UNFINISHED,
    Entry,
    build_entry,
    checksum,
    delete,
    describe,
    folders,
    intact,
    lock_file,
    manifest_text,
    read_manifest,
    verify,
)
from retrievers.base import BadInput, Ranking

log = logging.getLogger(__name__)
FLUSH_SECONDS = 5.0  # between two segments of scored pairs: the most work that a killed process loses


class Cache:
    """A cache folder; several processes may use it at once. root: the folder, created if it does not exist."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root

    @property
    def location(self) -> str:
        """Where it is, as `open_cache` takes it."""
        return str(self.root)

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
            return sum(size for size, _ in read_manifest(self.root / kind / digest(identity))["files"].values())
        except (OSError, ValueError):
            return None

    def found(self, kind: str, identity: Mapping[str, Any]) -> Path | None:
        """The folder of a cached result; None if it is not cached, or damaged."""
        place = self.root / kind / digest(identity)
        return place if intact(place) else None

    def log_folder(self, kind: str, identity: Mapping[str, Any]) -> Path:
        """The folder of a result that grows, such as a log of replies; empty at first.

        Its manifest lists no files: whoever writes to it checks what it reads, and holds the lock `FOLDER.lock`, so
        that the entry is not removed meanwhile. It is never built again, whatever is in it. Arguments as for `folder`.
        """
        place = self.root / kind / digest(identity)
        if place.is_dir() and not intact(place):  # its manifest is lost, but what it holds may have been paid for
            delete(place / MANIFEST)
            write_text(place / MANIFEST, manifest_text(identity, {}))
        return self._entry(place, identity, lambda _: None)

    def found_log(self, kind: str, identity: Mapping[str, Any]) -> Path | None:
        """The folder of a result that grows; None if there is none. Nothing is made."""
        return self.found(kind, identity)

    @contextlib.contextmanager
    def adding(self, folder: Path) -> Iterator[None]:
        """Whoever adds to a log holds this, too. folder: that `log_folder` gave."""
        yield

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
        return bool(self._cached_pairs(self.root / "pairs" / digest(identity), ()))

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
        place = self.root / "pairs" / digest(identity)
        known = self._cached_pairs(place, keys)
        if any(key not in known for key in keys):
            with self._turn(place):
                known = self._cached_pairs(place, keys, held=True)
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
                entries.append(describe(self.root, place, seen))
        return entries

    def contents(self, name: str) -> Iterator[bytes]:
        """What is in each small file `name` of a finished entry, wherever in its folder; damaged files are left out."""
        for entry in self.entries():
            place = self.root / entry.kind / entry.key
            with contextlib.suppress(OSError, ValueError):  # another process has just removed it
                for file, (_, known) in read_manifest(place)["files"].items() if entry.state == "finished" else ():
                    if Path(file).name == name and checksum(place / file) == known:
                        yield (place / file).read_bytes()

    def remove(self, entry: Entry) -> bool:
        """Delete an entry; False if a process is using it, or if it is foreign."""
        from filelock import FileLock, Timeout

        if entry.state == "foreign":
            return False
        place = self.root / entry.kind / (entry.key + UNFINISHED if entry.state == "unfinished" else entry.key)
        try:
            with FileLock(lock_file(place.parent / entry.key), timeout=0):
                delete(place / MANIFEST)  # first, so that a half deleted entry does not count
                delete(place)
        except Timeout:
            return False
        return True

    def _entry(
        self, place: Path, identity: Mapping[str, Any], build: Callable[[Path], None], resume: bool = False
    ) -> Path:
        """The folder `place`, built if it is not intact; arguments as for `folder`."""
        if not intact(place):
            with self._turn(place):
                if not intact(place):
                    if place.exists():
                        log.warning("%s is damaged and will be built again", place)
                        delete(place)
                    self._build(place, identity, build, resume)
        with contextlib.suppress(OSError):  # a shared cache may be read-only
            os.utime(place / MANIFEST)
        return place

    @contextlib.contextmanager
    def _turn(self, place: Path) -> Iterator[None]:
        """Hold the lock of an entry."""
        from filelock import FileLock

        place.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(lock_file(place)):
            yield

    def _cached_pairs(self, place: Path, keys: Sequence[bytes], held: bool = False) -> dict[bytes, float]:
        """key -> score, of those wanted and others, from all intact segments in a folder; damaged ones are removed.

        held: whether the caller holds the lock.
        """
        known: dict[bytes, float] = {}
        for manifest in place.glob(f"*/{MANIFEST}"):
            if manifest.parent.name.endswith(UNFINISHED):
                continue  # another process is about to rename it
            if intact(segment := manifest.parent):
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
        place.mkdir(exist_ok=True)
        delete(place / digest(segment))  # it has these keys, but has lost its manifest
        self._build(place / digest(segment), segment, save, resume=False)

    def _build(self, place: Path, identity: Mapping[str, Any], build: Callable[[Path], None], resume: bool) -> None:
        """Make an entry where there is none; the caller holds its lock. Arguments as for `folder`."""
        build_entry(place, identity, build, resume)

    def _places(self) -> Iterator[Path]:
        """The folders of all entries."""
        for kind in folders(self.root):
            for place in () if kind.name.startswith(".") else folders(kind):
                if kind.name == "pairs" and KEY.fullmatch(place.name):
                    yield from folders(place)
                else:
                    yield place


class SealedCache(Cache):
    """A read-only cache: BadInput for a result that is missing or has changed, which is never built again."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def _entry(
        self, place: Path, identity: Mapping[str, Any], build: Callable[[Path], None], resume: bool = False
    ) -> Path:
        if not place.is_dir():
            cached = [read_manifest(other.parent)["identity"] for other in place.parent.glob(f"*/{MANIFEST}")]
            raise BadInput(
                f"{self.root} has no entry in {place.parent.name} that matches this configuration"
                f"{_difference(identity, cached)}. It is read-only, so nothing is built: restore the versions, models "
                "and files that it was built with."
            )
        verify(place)
        return place


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


def _difference(identity: Mapping[str, Any], cached: Sequence[Mapping[str, Any]]) -> str:
    """The values in which an identity differs from the most similar cached one, for an error message."""
    ours = flatten(identity)
    differences = [{key: value for key, value in flatten(one).items() if ours.get(key) != value} for one in cached]
    smallest = min(differences, key=len, default={})
    return "".join(f"; {key} was {value!r} and is {ours.get(key)!r}" for key, value in smallest.items())


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
