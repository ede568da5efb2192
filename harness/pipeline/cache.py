"""Results kept by content: what was asked decides where it lies, and a result exists only when its manifest does.

The only module that knows the paths of the cache. An entry is a folder `<kind>/<key>`, key = sha256 of the
canonical JSON of its identity. It is built as `<key>.unfinished` under a lock and renamed when its manifest (sizes
and sha256 of its files) is written, so that a killed builder leaves nothing that another would believe.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.config.canonical import digest, flatten
from retrievers.base import BadInput, Ranking

log = logging.getLogger(__name__)
MANIFEST = "manifest.json"
UNFINISHED = ".unfinished"
FLUSH_SECONDS = 5.0  # between two segments of scored pairs: what a killed process loses at most

_verified: dict[tuple[int, int, int, int], str] = {}  # (device, inode, size, mtime) of a file -> its sha256


@dataclass(frozen=True)
class Entry:
    """What the cache holds under one key. bytes: a file that two entries share counts in the first alone."""

    kind: str
    key: str
    bytes: int
    used: float  # when it was last made use of, in seconds since the epoch
    finished: bool
    identity: Mapping[str, Any]  # empty where it is unfinished


class Cache:
    """root: the cache folder, made if it is not there."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root

    def folder(
        self, kind: str, identity: Mapping[str, Any], build: Callable[[Path], None], resume: bool = False
    ) -> Path:
        """The folder of the result that `identity` asks for; `build(folder)` fills it if it does not exist yet.

        A second process that wants the same result waits for the first. A damaged entry is built again with a
        warning. With `resume`, `build` finds what an interrupted call left. BadInput if the disk is full.
        """
        return self._entry(self.root / kind / digest(identity), identity, build, resume)

    def size(self, kind: str, identity: Mapping[str, Any]) -> int | None:
        """Bytes of a kept result; None where it is not kept."""
        try:
            return sum(size for size, _ in _manifest(self.root / kind / digest(identity))["files"].values())
        except FileNotFoundError:
            return None

    def ranking(self, identity: Mapping[str, Any], depth: int, build: Callable[[int], Ranking]) -> Ranking:
        """The ranking that `identity` asks for, at `depth`; one kept at a greater depth serves as well.

        `build(depth)` makes it where none is kept.
        """
        key = digest(identity)
        found = self._ranking_depth(key, depth) or depth
        place = self.root / "rankings" / f"{key}-{found}"
        folder = self._entry(place, {**identity, "depth": found}, lambda folder: save_ranking(build(found), folder))
        return load_ranking(folder).top(depth)

    def holds_ranking(self, identity: Mapping[str, Any], depth: int) -> bool:
        """Whether a ranking is kept at `depth` or a greater one."""
        return self._ranking_depth(digest(identity), depth) is not None

    def pairs(
        self,
        identity: Mapping[str, Any],
        keys: Sequence[bytes],
        compute: Callable[[Sequence[int]], Iterator[tuple[np.ndarray, np.ndarray]]],
    ) -> np.ndarray:
        """float64 [n]: a score for each key, such as one of a (query, document) pair, each computed once for all runs.

        `compute(places)` yields (places within `places`, scores) for those that are not kept. What it gave is kept
        every few seconds and when it stops, for whatever reason, in segments that are entries of their own.
        """
        from filelock import FileLock

        place = self.root / "pairs" / digest(identity)
        known = self._kept_pairs(place)
        if any(key not in known for key in keys):
            place.mkdir(parents=True, exist_ok=True)
            with FileLock(_lock(place)):
                known = self._kept_pairs(place)
                missing = {key: i for i, key in enumerate(keys) if key not in known}
                places = list(missing.values())
                for rows, scores, took in _gathered(compute(places)) if places else ():
                    some = [keys[places[row]] for row in rows]
                    self._keep_pairs(place, identity, some, scores, took)
                    known.update(zip(some, scores.tolist(), strict=True))
        return np.array([known[key] for key in keys], np.float64)

    def pair_seconds(self, identity: Mapping[str, Any]) -> float:
        """The mean of the seconds that computing one of the kept scores took; NaN where none is kept."""
        places = [path.parent for path in (self.root / "pairs" / digest(identity)).glob(f"*/{MANIFEST}")]
        files = [place / "seconds.npy" for place in places if not place.name.endswith(UNFINISHED)]
        spent = np.array([np.load(file, allow_pickle=False) for file in files]).reshape(-1, 2).sum(axis=0)
        return float(spent[0] / spent[1]) if spent[1] else float("nan")

    def entries(self) -> list[Entry]:
        """Everything that is kept, and what interrupted builders left."""
        seen: set[tuple[int, int]] = set()
        found = []
        for place in sorted(self._places()):
            try:
                found.append(self._described(place, seen))
            except FileNotFoundError:
                continue  # another process has just removed it
        return found

    def remove(self, entry: Entry) -> bool:
        """Delete an entry; False where a process is at work on it."""
        from filelock import FileLock, Timeout

        place = self.root / entry.kind / (entry.key if entry.finished else entry.key + UNFINISHED)
        try:
            with FileLock(_lock(place.parent / entry.key), timeout=0):
                (place / MANIFEST).unlink(missing_ok=True)  # first: what is half deleted is not believed
                shutil.rmtree(place)
        except Timeout:
            return False
        return True

    def _ranking_depth(self, key: str, depth: int) -> int | None:
        """The least depth from `depth` on at which a ranking is kept."""
        kept = sorted(int(place.name.rpartition("-")[2]) for place in (self.root / "rankings").glob(f"{key}-*[0-9]"))
        return next((other for other in kept if other >= depth), None)

    def _entry(
        self, place: Path, identity: Mapping[str, Any], build: Callable[[Path], None], resume: bool = False
    ) -> Path:
        from filelock import FileLock

        if not _intact(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(_lock(place)):
                if not _intact(place):
                    if place.exists():
                        log.warning("%s is damaged and is built again", place)
                        shutil.rmtree(place)
                    _build(place, identity, build, resume)
        with contextlib.suppress(OSError):  # a shared cache may be read-only
            os.utime(place / MANIFEST)
        return place

    def _kept_pairs(self, place: Path) -> dict[bytes, float]:
        known: dict[bytes, float] = {}
        for manifest in place.glob(f"*/{MANIFEST}"):
            if manifest.parent.name.endswith(UNFINISHED):
                continue  # another process is about to give it its name
            if _intact(segment := manifest.parent):
                keys = np.load(segment / "keys.npy", allow_pickle=False)
                scores = np.load(segment / "scores.npy", allow_pickle=False)
                known.update(zip(map(bytes, keys), scores.tolist(), strict=True))
            else:
                log.warning("%s is damaged; its pairs are scored again", segment)
                shutil.rmtree(segment, ignore_errors=True)
        return known

    def _keep_pairs(
        self, place: Path, identity: Mapping[str, Any], keys: Sequence[bytes], scores: np.ndarray, seconds: float
    ) -> None:
        def save(folder: Path) -> None:
            np.save(folder / "keys.npy", np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), -1))
            np.save(folder / "scores.npy", scores)
            np.save(folder / "seconds.npy", np.array([seconds, len(keys)]))

        asked = {"pairs": identity, "keys": hashlib.sha256(b"".join(keys)).hexdigest()}
        _build(place / digest(asked), asked, save, resume=False)

    def _places(self) -> Iterator[Path]:
        for kind in self.root.iterdir():
            for place in kind.iterdir() if kind.is_dir() else ():
                if place.is_dir() and kind.name == "pairs":
                    yield from (segment for segment in place.iterdir() if segment.is_dir())
                elif place.is_dir():
                    yield place

    def _described(self, place: Path, seen: set[tuple[int, int]]) -> Entry:
        size = 0
        for path in place.rglob("*"):
            about = path.stat()
            if path.is_file() and (about.st_dev, about.st_ino) not in seen:
                seen.add((about.st_dev, about.st_ino))
                size += about.st_size
        finished = (place / MANIFEST).exists() and not place.name.endswith(UNFINISHED)
        return Entry(
            place.parent.relative_to(self.root).as_posix(),
            place.name.removesuffix(UNFINISHED),
            size,
            (place / MANIFEST if finished else place).stat().st_mtime,
            finished,
            _manifest(place)["identity"] if finished else {},
        )


class SealedCache(Cache):
    """A store that is only read: what is missing or has changed is refused with a BadInput, and never made again."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def _entry(
        self, place: Path, identity: Mapping[str, Any], build: Callable[[Path], None], resume: bool = False
    ) -> Path:
        if not place.is_dir():
            kept = [_manifest(other.parent)["identity"] for other in place.parent.glob(f"*/{MANIFEST}")]
            raise BadInput(
                f"{self.root} holds nothing of the kind {place.parent.name} that was made as it would be made here"
                f"{_difference(identity, kept)}. Nothing is made anew here: bring back what it was made with."
            )
        verify(place)
        return place


def verify(place: Path) -> None:
    """Raise BadInput, which names the first file, unless a finished folder is what its manifest says."""
    try:
        files = _manifest(place)["files"]
    except (OSError, ValueError, KeyError) as error:
        raise BadInput(f"{place / MANIFEST} cannot be read ({type(error).__name__}): it is damaged.") from None
    for name, (size, checksum) in files.items():
        if not (file := place / name).is_file():
            raise BadInput(f"{file} is missing. Bring it back: nothing is made anew here.")
        if file.stat().st_size != size or _checksum(file) != checksum:
            raise BadInput(
                f"{file} has changed: its sha256 is not {checksum[:12]}… of the manifest. Bring it back: nothing is "
                "made anew here."
            )


def save_ranking(ranking: Ranking, folder: Path) -> None:
    """Write the arrays, and of the doc_ids those that occur."""
    used = np.unique(ranking.docs[ranking.docs >= 0])
    docs = np.where(ranking.docs >= 0, np.searchsorted(used, ranking.docs), -1).astype(np.int32)
    np.save(folder / "docs.npy", docs, allow_pickle=False)
    np.save(folder / "scores.npy", ranking.scores, allow_pickle=False)
    ids = {"query_ids": ranking.query_ids, "doc_ids": [ranking.doc_ids[i] for i in used]}
    text = json.dumps({**ids, "measured": dict(ranking.measured)}, ensure_ascii=False)
    (folder / "ids.json").write_text(text, "utf-8")


def load_ranking(folder: Path) -> Ranking:
    ids = json.loads((folder / "ids.json").read_text("utf-8"))
    docs = np.load(folder / "docs.npy", mmap_mode="r", allow_pickle=False)
    scores = np.load(folder / "scores.npy", mmap_mode="r", allow_pickle=False)
    return Ranking(tuple(ids["query_ids"]), tuple(ids["doc_ids"]), docs, scores, ids["measured"])


def _build(place: Path, identity: Mapping[str, Any], build: Callable[[Path], None], resume: bool) -> None:
    unfinished = place.with_name(place.name + UNFINISHED)
    if not resume:
        shutil.rmtree(unfinished, ignore_errors=True)  # a killed builder's
    unfinished.mkdir(exist_ok=True)
    try:
        build(unfinished)
        files = {}
        for path in sorted(p for p in unfinished.rglob("*") if p.is_file()):
            files[path.relative_to(unfinished).as_posix()] = [path.stat().st_size, _checksum(path, sync=True)]
        manifest = unfinished / MANIFEST
        manifest.write_text(json.dumps({"identity": identity, "files": files}, ensure_ascii=False, indent=1))
        _checksum(manifest, sync=True)
        unfinished.rename(place)
    except BaseException as error:
        if not resume:
            shutil.rmtree(unfinished, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise BadInput(
                f"No space left for {place.parent}. Free some (`harness doctor cache` lists and prunes what is kept), "
                "or put the cache elsewhere: store.path=FOLDER or the environment variable HARNESS_CACHE."
            ) from error
        raise


def _difference(asked: Mapping[str, Any], kept: Sequence[Mapping[str, Any]]) -> str:
    """In which plain values an identity departs from the nearest one that is kept."""
    ours = flatten(asked)
    others = [{name: value for name, value in flatten(one).items() if ours.get(name) != value} for one in kept]
    nearest = min(others, key=len, default={})
    return "".join(f"; {name} was {value!r} and is {ours.get(name)!r}" for name, value in nearest.items())


def _lock(place: Path) -> Path:
    """The lock of an entry; the segments of scored pairs share that of their folder."""
    owner = place.parent if place.parent.parent.name == "pairs" else place
    return owner.with_name(f"{owner.name}.lock")


def _manifest(place: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((place / MANIFEST).read_text("utf-8"))
    return found


def _intact(place: Path) -> bool:
    """Whether an entry is whole: its manifest is there and every file has the size and sha256 it names."""
    try:
        return all(
            (place / name).stat().st_size == size and _checksum(place / name) == checksum
            for name, (size, checksum) in _manifest(place)["files"].items()
        )
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return False


def _checksum(path: Path, sync: bool = False) -> str:
    """sha256 of a file, read once a process as long as it stays as it is; with `sync` it is on the disk afterwards."""
    with path.open("rb") as file:
        if sync:
            os.fsync(file.fileno())
        about = os.fstat(file.fileno())
        state = (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns)
        if state not in _verified:
            _verified[state] = hashlib.file_digest(file, "sha256").hexdigest()
    return _verified[state]


def _gathered(found: Iterator[tuple[np.ndarray, np.ndarray]]) -> Iterator[tuple[np.ndarray, np.ndarray, float]]:
    """Join small parts to parts of some seconds, which come with them; what there is when `found` fails comes first."""
    rows: list[np.ndarray] = []
    scores: list[np.ndarray] = []
    began = time.monotonic()
    failed: BaseException | None = None
    try:
        for some, values in found:
            rows.append(some)
            scores.append(values)
            if (took := time.monotonic() - began) >= FLUSH_SECONDS:
                yield np.concatenate(rows), np.concatenate(scores), took
                rows, scores, began = [], [], time.monotonic()
    except GeneratorExit:
        raise
    except BaseException as error:
        failed = error
    if rows:
        yield np.concatenate(rows), np.concatenate(scores), time.monotonic() - began
    if failed is not None:
        raise failed
