"""Repeatable samples: documents drawn in strata by file, and choices by hash."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping


def draw_ids(files: Mapping[str, str], seed: int, limit: int | None) -> list[str]:
    """Return at most `limit` ids of documents (None: all), in drawing order. files: doc_id -> its file.

    Every file first gives one document, then further ones in proportion to its documents. A hash of seed and id orders
    the documents of a file, and the files. So a smaller limit gives a prefix of the same list. An added file changes
    how many documents the others give, but not their order.
    """
    strata: dict[str, list[str]] = defaultdict(list)
    for doc_id, file in files.items():
        strata[file].append(doc_id)
    order: list[tuple[float, str, str]] = []
    for file, doc_ids in strata.items():
        place = _hash(seed, file)
        doc_ids.sort(key=lambda doc_id: (_hash(seed, doc_id), doc_id))
        order += [(rank / len(doc_ids), place, doc_id) for rank, doc_id in enumerate(doc_ids)]
    return [doc_id for _, _, doc_id in sorted(order)[:limit]]


def picked(values: Iterable[str], count: int, *key: object) -> list[str]:
    """Return at most `count` of the values: always the same for the same key, in whatever order they are given."""
    return sorted(values, key=lambda value: (_hash(*key, value), value))[:count]


def draw_number(below: int, *key: object) -> int:
    """Return a whole number in [0, below), always the same for the same key."""
    return int(_hash(*key), 16) % below


def _hash(*parts: object) -> str:
    return hashlib.sha256("\x1f".join(map(str, parts)).encode("utf-8", "surrogatepass")).hexdigest()
