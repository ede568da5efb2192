"""`harness doctor engine`: what the harness keeps in Milvus, and the pruning of it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from harness.config.check import Invocation
from harness.config.text import counted
from harness.progress import watch
from harness.reports import terminal
from harness.storage.cache import open_cache
from retrievers.engines.listing import Described, described
from retrievers.engines.milvus import Milvus, connect, is_unfinished

if TYPE_CHECKING:
    from rich.console import Console

    from harness.storage.cache import Cache

HOUR = 3600
RECORD = "engine.json"  # the file of an index in the store that names its collection

State = Literal["finished", "unknown", "unfinished", "missing"]


@dataclass(frozen=True)
class Collection:
    """A collection of the harness.

    state: "finished": the store has an index that uses it. "unknown": the store has none, but another store may have
        one. "unfinished": it is being filled, or was left half-filled. "missing": the store has an index that uses it,
        but the server has it no more; the next search that needs it fills it again.
    kind: of its vectors. dimensions: None of sparse vectors. rows: what the server says, or the index of one that is
        missing. hours: since it was created. None where it is not known.
    """

    name: str
    state: State
    kind: Literal["dense", "sparse"] | None
    dimensions: int | None
    rows: int | None
    hours: float | None


def engine(config: dict[str, Any], invocation: Invocation) -> dict[str, Any]:
    """List the collections of the harness in Milvus, and drop those that `prune` names. Others are never touched."""
    milvus = connect()
    used = _used(open_cache(config["store"]["path"]))
    listed = _listed(described(milvus), used, time.time())
    doomed = [one for one in listed if _doomed(one, config["prune"], config["older_hours"], milvus)]
    with watch("engine") as progress:
        for n, one in enumerate(doomed):
            progress(n, len(doomed), "collections")
            milvus.drop(one.name)
    left = [one for one in listed if one not in doomed]
    document: dict[str, Any] = {
        "address": milvus.address.place,
        "version": milvus.version,
        "store": config["store"]["path"],
        "collections": [asdict(one) for one in left],
        "pruned": [asdict(one) for one in doomed],
    }
    terminal.emit(config["format"], document, lambda console: _show(console, document))
    return document


def _used(cache: Cache) -> dict[str, int]:
    """Name of each collection that an index in the store uses -> its rows."""
    used = {}
    for content in cache.contents(RECORD):
        record = json.loads(content)
        used[str(record["collection"])] = int(record["rows"])
    return used


def _listed(found: list[Described], used: Mapping[str, int], now: float) -> list[Collection]:
    """The server's collections, then those that it lacks. now: seconds since 1970."""
    listed = []
    for one in found:
        state: State = "unfinished" if is_unfinished(one.name) else "finished" if one.name in used else "unknown"
        hours = None if one.created is None else round(max(0.0, now - one.created) / HOUR, 2)
        listed.append(Collection(one.name, state, one.kind, one.dimensions, one.rows, hours))
    lacking = sorted(used.keys() - {one.name for one in found})
    return listed + [Collection(name, "missing", None, None, used[name], None) for name in lacking]


def _doomed(one: Collection, prune: str | None, older_hours: float, milvus: Milvus) -> bool:
    """Whether a collection is to be dropped.

    An unfinished one may still be filled by another process, unless it is old; or milvus-lite has it, which serves one
    process alone.
    """
    if one.state == "unfinished":
        alone = milvus.address.path is not None
        return prune is not None and (alone or (one.hours is not None and one.hours > older_hours))
    return prune == "unknown" and one.state == "unknown"


COLUMNS = "{:<10}  {:<6}  {:>12}  {:>10}  {:>9}  {}"


def _show(console: Console, document: Mapping[str, Any]) -> None:
    collections = document["collections"]
    if collections:
        console.print(COLUMNS.format("state", "kind", "rows", "dimensions", "hours old", "name"), style="bold")
    for one in collections:
        rows, numbers = f"{one['rows']:,}", (one["dimensions"], one["hours"])
        shown = ["" if value is None else str(value) for value in numbers]
        console.print(COLUMNS.format(one["state"], one["kind"] or "", rows, *shown, one["name"]))
    said = (
        f"{counted(len(collections), 'collection')} of the harness" if collections else "No collection of the harness"
    )
    console.print(f"{document['address']} ({document['version']}): {said}. The store is {document['store']}.")
    if document["pruned"]:
        console.print(f"Pruned {counted(len(document['pruned']), 'collection')}:")
        for one in document["pruned"]:
            console.print(f"  {one['name']} ({one['state']}, {counted(one['rows'], 'row')})")
    states = {one["state"] for one in collections}
    if "unknown" in states:
        console.print(
            "unknown: no index of this store uses it, but one of another store may. prune=unknown drops it; whoever "
            "needs it fills it again."
        )
    if "unfinished" in states:
        console.print(
            "unfinished: it is being filled, or was left half-filled. prune=unfinished drops those that are older than "
            "older_hours."
        )
    if "missing" in states:
        console.print("missing: an index of this store uses it; the next search that needs it fills it again.")
