"""The cache of slow results, addressed by what determines them.

An entry is a folder `<kind>/<key>`, where key is the sha256 of the canonical JSON of its identity. `storage.entries`
says how one is built, and a `Backend` where it is kept: a folder, or a bucket with a copy on this machine.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from harness.config.canonical import digest, flatten
from harness.config.places import BucketPlace, bucket_place
from harness.storage.bucket import Bucket, endpoint
from harness.storage.bucket_backend import BucketBackend
from harness.storage.entries import MANIFEST, Entry, fill, read_manifest, verify
from harness.storage.folder import Backend, FolderBackend
from retrievers.base import BadInput, Ranking

LOCAL = "HARNESS_CACHE_LOCAL"  # the environment variable that names the folder of local copies
FLUSH_SECONDS = 5.0  # between two segments of scored pairs: the most work that a killed process loses
AT_ONCE = 4  # segments of scored pairs that are fetched


def open_cache(path: str) -> Cache:
    """The cache at a place; any process on any machine may open it by the same text.

    path: a folder, which is created if it is not there, or `s3://BUCKET/PREFIX`. A bucket is not asked before something
        is looked up in it.
    """
    if place := bucket_place(path):
        return Cache(_in_bucket(place, local_copy(place), endpoint()))
    return Cache(Path(path))


def existing_cache(path: str) -> Cache | None:
    """The cache at a place; None if it is a folder that is not there, which is not created."""
    return open_cache(path) if bucket_place(path) or Path(path).is_dir() else None


def local_copy(place: BucketPlace) -> Path:
    """The folder of this machine's copy of a cache in a bucket: one for each bucket, prefix and server."""
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "retrieval-harness"
    folder = Path(os.environ.get(LOCAL) or usual).absolute()
    return folder / f"{place.bucket}-{hashlib.sha256(f'{endpoint()} {place.url}'.encode()).hexdigest()[:16]}"


@functools.cache
def _in_bucket(place: BucketPlace, local: Path, server: str) -> BucketBackend:
    """One for each place and server, so that connections are made once."""
    return BucketBackend(Bucket(place), local)


class Cache:
    """Results that several processes share.

    backend: what keeps them; a path is a folder, which is made.
    sealed: whether it is read-only: BadInput for a result that is missing or has changed, which is never built again.
    """

    def __init__(self, backend: Backend | Path, sealed: bool = False) -> None:
        if isinstance(backend, Path):
            if not sealed:
                backend.mkdir(parents=True, exist_ok=True)
            backend = FolderBackend(backend)
        self._backend, self._sealed = backend, sealed

    @property
    def root(self) -> Path:
        """The folder where entries lie on this machine."""
        return self._backend.root

    @property
    def location(self) -> str:
        """Where it is, as `open_cache` takes it."""
        return self._backend.location

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
        return self._entry(_name(kind, identity), identity, build, resume)

    def size(self, kind: str, identity: Mapping[str, Any]) -> int | None:
        """Size of a cached result in bytes; None if it is not cached."""
        manifest = self._backend.manifest(_name(kind, identity))
        return sum(size for size, _ in manifest["files"].values()) if manifest else None

    def found(self, kind: str, identity: Mapping[str, Any]) -> Path | None:
        """The folder of a cached result; None if it is not cached, or damaged."""
        if place := self._backend.get(_name(kind, identity)):
            self._backend.used(_name(kind, identity))
        return place

    def log_folder(self, kind: str, identity: Mapping[str, Any]) -> Path:
        """The folder of a result that grows, such as a log of replies; empty at first.

        Its manifest lists no files: whoever writes to it checks what it reads, and holds the lock `FOLDER.lock`, so
        that the entry is not removed meanwhile. It is never built again, whatever is in it. Arguments as for `folder`.
        """
        return self._backend.log(_name(kind, identity), identity)

    def found_log(self, kind: str, identity: Mapping[str, Any]) -> Path | None:
        """The folder of a result that grows; None if there is none. Nothing is made."""
        return self.log_folder(kind, identity) if self.found(kind, identity) else None

    def adding(self, folder: Path) -> AbstractContextManager[None]:
        """Whoever adds to a log holds this, too. folder: that `log_folder` gave."""
        return self._backend.adding(folder.relative_to(self.root).as_posix())

    def ranking(self, identity: Mapping[str, Any], depth: int, build: Callable[[int], Ranking]) -> Ranking:
        """A ranking at `depth`, taken from one cached at that depth or more; on a miss, `build(depth)` makes it.

        identity: everything but the depth that determines the ranking, as plain JSON.
        """
        cached = self.ranking_depth(identity, depth) or depth
        name = f"{_name('rankings', identity)}-{cached}"
        folder = self._entry(name, {**identity, "depth": cached}, lambda folder: save_ranking(build(cached), folder))
        return load_ranking(folder).top(depth)

    def holds_ranking(self, identity: Mapping[str, Any], depth: int) -> bool:
        """Whether a ranking is cached at `depth` or more."""
        return self.ranking_depth(identity, depth) is not None

    def ranking_depth(self, identity: Mapping[str, Any], depth: int) -> int | None:
        """The least cached depth of a ranking that is at least `depth`; None if there is none."""
        start = f"{_name('rankings', identity)}-"
        for near in (True, False):  # deeper ones begin with the same documents
            depths = sorted(int(name.removeprefix(start)) for name in self._backend.names(start, near))
            if enough := [other for other in depths if other >= depth]:
                return enough[0]
        return None

    def holds_pairs(self, identity: Mapping[str, Any]) -> bool:
        """Whether scores of any pairs are cached."""
        return any(self._backend.names(f"{_name('pairs', identity)}/", near) for near in (True, False))

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
        name = _name("pairs", identity)
        known = self._known_pairs(name, keys)
        if any(key not in known for key in keys):
            with self._backend.turn(name):
                known = self._known_pairs(name, keys, held=True)
                missing = {key: i for i, key in enumerate(keys) if key not in known}
                positions = list(missing.values())
                for rows, scores in _batched(compute(positions)) if positions else ():
                    scored = [keys[positions[row]] for row in rows]
                    self._cache_pairs(name, identity, scored, scores)
                    known.update(zip(scored, scores.tolist(), strict=True))
        return np.array([known[key] for key in keys], np.float64)

    def entries(self) -> list[Entry]:
        """All entries, whatever their state. Other processes may remove entries while this lists them."""
        return self._backend.entries()

    def contents(self, name: str) -> Iterator[bytes]:
        """What is in each small file `name` of a finished entry, wherever in its folder; damaged files are left out."""
        for entry in self.entries():
            place = f"{entry.kind}/{entry.key}"
            manifest = self._backend.manifest(place) if entry.state == "finished" else None
            for file, (_, sha256) in manifest["files"].items() if manifest else ():
                content = self._backend.read(place, file, sha256) if file.rpartition("/")[2] == name else None
                if content is not None and hashlib.sha256(content).hexdigest() == sha256:
                    yield content

    def remove(self, entry: Entry) -> bool:
        """Delete an entry; False if a process is using it, or if it is foreign."""
        return entry.state != "foreign" and self._backend.delete(f"{entry.kind}/{entry.key}")

    @property
    def bucket(self) -> BucketBackend | None:
        """What keeps the entries, if it is a bucket."""
        return self._backend if isinstance(self._backend, BucketBackend) else None

    def _entry(
        self, name: str, identity: Mapping[str, Any], build: Callable[[Path], None], resume: bool = False
    ) -> Path:
        """The folder of an entry, built if there is none; arguments as for `folder`."""
        if self._sealed:
            return self._verified(name, identity)
        if (place := self._backend.get(name)) is None:
            with self._backend.turn(name, until=lambda: self._backend.get(name)):
                place = self._backend.get(name, held=True) or self._built(name, identity, build, resume)
        self._backend.used(name)
        return place

    def _built(self, name: str, identity: Mapping[str, Any], build: Callable[[Path], None], resume: bool) -> Path:
        """Make an entry where there is none; the caller holds its turn."""
        fill(self.root / name, identity, build, resume)
        return self._backend.put(name)

    def _verified(self, name: str, identity: Mapping[str, Any]) -> Path:
        """The folder of an entry of a sealed cache."""
        place = self.root / name
        if not place.is_dir():
            cached = [read_manifest(other.parent)["identity"] for other in place.parent.glob(f"*/{MANIFEST}")]
            raise BadInput(
                f"{self.root} has no entry in {place.parent.name} that matches this configuration"
                f"{_difference(identity, cached)}. It is read-only, so nothing is built: restore the versions, models "
                "and files that it was built with."
            )
        verify(place)
        return place

    def _known_pairs(self, name: str, keys: Sequence[bytes], held: bool = False) -> dict[bytes, float]:
        """key -> score, of those wanted and others, from all whole segments; from this machine's alone if they do.

        held: whether the caller holds the turn.
        """
        known: dict[bytes, float] = {}
        read: set[str] = set()
        for near in (True, False):
            new = [one for one in self._backend.names(f"{name}/", near) if one not in read]
            read.update(new)
            with ThreadPoolExecutor(AT_ONCE) as pool:
                places = [*pool.map(lambda one: self._backend.get(one, held), new)]
            for segment in filter(None, places):
                found = np.load(segment / "keys.npy", allow_pickle=False)
                scores = np.load(segment / "scores.npy", allow_pickle=False)
                known.update(zip(map(bytes, found), scores.tolist(), strict=True))
            if all(key in known for key in keys):
                break
        return known

    def _cache_pairs(self, name: str, identity: Mapping[str, Any], keys: Sequence[bytes], scores: np.ndarray) -> None:
        """Add a segment."""

        def save(folder: Path) -> None:
            np.save(folder / "keys.npy", np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), -1))
            np.save(folder / "scores.npy", scores)

        segment = {"pairs": identity, "keys": hashlib.sha256(b"".join(keys)).hexdigest()}
        self._built(f"{name}/{digest(segment)}", segment, save, resume=False)


def _name(kind: str, identity: Mapping[str, Any]) -> str:
    return f"{kind}/{digest(identity)}"


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
