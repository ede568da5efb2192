"""Opening the cache that `store.path` names."""

from __future__ import annotations

from pathlib import Path

from harness.pipeline.cache import Cache


def open_cache(path: str) -> Cache:
    """The cache at a place, which is created if it is not there. path: a folder."""
    return Cache(Path(path))
