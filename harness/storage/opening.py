"""Opening the cache that `store.path` names."""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path

from harness.config.places import BucketPlace, bucket_place
from harness.storage.bucket import Bucket, endpoint
from harness.storage.cache import Cache
from harness.storage.shared import ObjectCache

LOCAL = "HARNESS_CACHE_LOCAL"  # the environment variable that names the folder of local copies


def open_cache(path: str) -> Cache:
    """The cache at a place; any process on any machine may open it by the same text.

    path: a folder, which is created if it is not there, or `s3://BUCKET/PREFIX`. A bucket is not asked before something
        is looked up in it.
    """
    if place := bucket_place(path):
        return _in_bucket(place, local_copy(place), endpoint())
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
def _in_bucket(place: BucketPlace, local: Path, server: str) -> ObjectCache:
    """One for each place and server, so that connections are made once."""
    return ObjectCache(Bucket(place), local)
