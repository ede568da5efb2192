"""What is known of the collections of the harness in Milvus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from retrievers.engines.milvus import PATIENCE, Milvus

LOGICAL_BITS = 18  # of a time stamp of Milvus; the others are milliseconds since 1970


@dataclass(frozen=True)
class Described:
    """A collection.

    kind: of its vectors. dimensions: None of sparse vectors. rows: as the server counts them without loading the
    collection, which may be some minutes old. created: seconds since 1970; None where the server does not say.
    """

    name: str
    kind: Literal["dense", "sparse"]
    dimensions: int | None
    rows: int
    created: float | None


def described(milvus: Milvus) -> list[Described]:
    """All collections of the harness, by name. Failed where the server does not answer."""
    found = []
    for name in milvus.collections():
        with milvus.doing("describing its collections"):
            if milvus.client.has_collection(name, timeout=PATIENCE):  # another process may just have dropped it
                about = milvus.client.describe_collection(name, timeout=PATIENCE)
                rows = milvus.client.get_collection_stats(name, timeout=PATIENCE)["row_count"]
                found.append(_of(name, about, int(rows)))
    return found


def _of(name: str, about: Mapping[str, Any], rows: int) -> Described:
    dimensions = [int(field["params"]["dim"]) for field in about["fields"] if "dim" in field["params"]]
    stamp = about.get("created_timestamp")
    return Described(
        name=name,
        kind="dense" if dimensions else "sparse",
        dimensions=dimensions[0] if dimensions else None,
        rows=rows,
        created=(int(stamp) >> LOGICAL_BITS) / 1000 if stamp else None,
    )
