"""Results kept by content: what was asked decides where it lies, and a result exists only when its manifest does.

The only module that knows the paths of the cache. An entry is a folder `<kind>/<key>`, key = sha256 of the
canonical JSON of its identity. It is built under a temporary name and renamed when its manifest (sizes and
sha256 of its files) is written, so that a killed builder leaves nothing that another would believe.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from harness.config import digest
from retrievers.base import BadInput, Ranking

log = logging.getLogger(__name__)
MANIFEST = "manifest.json"


class Store:
    """root: the cache folder, made if it is not there."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root

    def folder(self, kind: str, identity: Mapping[str, Any], build: Callable[[Path], None]) -> Path:
        """The folder of the result that `identity` asks for; `build(folder)` fills it if it does not exist yet.

        A second process that wants the same result waits for the first. A damaged entry is built again with a
        warning. BadInput if the disk is full.
        """
        from filelock import FileLock

        place = self.root / kind / digest(identity)
        if self._intact(place):
            return place
        place.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(place.with_suffix(".lock")):
            if self._intact(place):
                return place
            if place.exists():
                log.warning("%s is damaged and is built again", place)
                shutil.rmtree(place)
            self._build(place, identity, build)
        return place

    def size(self, kind: str, identity: Mapping[str, Any]) -> int | None:
        """Bytes of a kept result; None where it is not kept."""
        try:
            files = json.loads((self.root / kind / digest(identity) / MANIFEST).read_text("utf-8"))["files"]
        except FileNotFoundError:
            return None
        return sum(size for size, _ in files.values())

    def ranking(self, identity: Mapping[str, Any], build: Callable[[], Ranking]) -> Ranking:
        """The ranking that `identity` asks for; built only when it is not kept yet."""
        return load_ranking(self.folder("rankings", identity, lambda folder: save_ranking(build(), folder)))

    def _build(self, place: Path, identity: Mapping[str, Any], build: Callable[[Path], None]) -> None:
        unfinished = Path(tempfile.mkdtemp(prefix=f"{place.name[:12]}.tmp-", dir=place.parent))
        try:
            build(unfinished)
            files = {}
            for path in sorted(p for p in unfinished.rglob("*") if p.is_file()):
                files[path.relative_to(unfinished).as_posix()] = [path.stat().st_size, _checksum(path, sync=True)]
            manifest = unfinished / MANIFEST
            manifest.write_text(json.dumps({"identity": identity, "files": files}, ensure_ascii=False, indent=1))
            _checksum(manifest, sync=True)
            unfinished.rename(place)
        except OSError as error:
            shutil.rmtree(unfinished, ignore_errors=True)
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise BadInput(
                    f"No space left for {place.parent}. Free some, or put the cache elsewhere: store.path=FOLDER "
                    "or the environment variable HARNESS_CACHE."
                ) from error
            raise
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise

    def _intact(self, place: Path) -> bool:
        """Whether an entry is whole: its manifest is there and every file has the size and sha256 it names."""
        try:
            files = json.loads((place / MANIFEST).read_text("utf-8"))["files"]
            return all(
                (place / name).stat().st_size == size and _checksum(place / name) == checksum
                for name, (size, checksum) in files.items()
            )
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return False


def save_ranking(ranking: Ranking, folder: Path) -> None:
    """Write the arrays, and of the doc_ids those that occur."""
    used = np.unique(ranking.docs[ranking.docs >= 0])
    docs = np.where(ranking.docs >= 0, np.searchsorted(used, ranking.docs), -1).astype(np.int32)
    np.save(folder / "docs.npy", docs, allow_pickle=False)
    np.save(folder / "scores.npy", ranking.scores, allow_pickle=False)
    ids = {"query_ids": ranking.query_ids, "doc_ids": [ranking.doc_ids[i] for i in used]}
    (folder / "ids.json").write_text(json.dumps(ids, ensure_ascii=False), "utf-8")


def load_ranking(folder: Path) -> Ranking:
    ids = json.loads((folder / "ids.json").read_text("utf-8"))
    docs = np.load(folder / "docs.npy", mmap_mode="r", allow_pickle=False)
    scores = np.load(folder / "scores.npy", mmap_mode="r", allow_pickle=False)
    return Ranking(tuple(ids["query_ids"]), tuple(ids["doc_ids"]), docs, scores)


def _checksum(path: Path, sync: bool = False) -> str:
    """sha256 of a file; with `sync` its content is on the disk afterwards."""
    with path.open("rb") as file:
        if sync:
            os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()
