"""A collection of Milvus that holds vectors of the cache: filled whole or not at all, and trusted only when checked.

A collection is derived from what lies in the cache and never owns anything: where it is missing or wrong, it is filled
again. It is filled under an unfinished name; only when the server has counted all rows it is renamed. So nobody, in
this process or another, ever searches a half-filled one.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from retrievers.base import BadInput, Failed, Progress
from retrievers.engines.milvus import MESSAGE, PATIENCE, Milvus, is_finished, unfinished

COMPARED = 32  # rows that are compared with the cache when a collection is opened
LOADING = 1800.0  # seconds in which a collection must be loaded or indexed
SEARCHING = 600.0  # seconds in which a request for documents must be answered, by a server that others keep busy, too
SETTLING = 10.0  # seconds in which a collection that was complete once must count all its rows
WIDEST = 32768  # dimensions of a vector

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Contents:
    """What a collection is to hold: N rows, each the number of a document as `id`, and its vector.

    name: `rh_` and a hash of the vectors and of all that decides the index.
    rows: N.
    field: Milvus's name of the type of vector, such as FLOAT_VECTOR.
    dimensions: of a vector; None of a sparse one.
    index: Milvus's name of the index. An exact one, if what is found is to be certified.
    size: bytes of a row in a message, at most.
    vectors: from the first row and the one after the last to their vectors, as pymilvus takes them.
    equal: whether a vector that came back is that of a row, given as (vector, row).
    """

    name: str
    rows: int
    field: str
    dimensions: int | None
    index: str
    size: int
    vectors: Callable[[int, int], Sequence[Any]]
    equal: Callable[[Any, int], bool]


def ensure(engine: Milvus, contents: Contents, progress: Progress | None = None, expected: bool = False) -> None:
    """Have the collection loaded and complete: as it is found, or filled. Failed where the server cannot do it.

    progress: called as progress(done, total, "documents sent to Milvus").
    expected: whether it was there before, so that a warning says if it is not.
    """
    with engine.doing("looking for a collection"):
        there = engine.client.has_collection(contents.name, timeout=PATIENCE)
    if there:
        _load(engine, contents.name)
    wrong = _problem(engine, contents, SETTLING) if there else "is missing"
    if not wrong:
        return
    if there or expected:
        log.warning("the collection %s of Milvus %s: it is filled again", contents.name, wrong)
    if there:
        engine.drop(contents.name)
    _fill(engine, contents, progress)


def _fill(engine: Milvus, contents: Contents, progress: Progress | None) -> None:
    """Fill an unfinished collection and give it its name; what an error or an interruption leaves is dropped."""
    if contents.dimensions is not None and contents.dimensions > WIDEST:
        raise BadInput(f"Milvus takes vectors of {WIDEST:,} dimensions at most, not {contents.dimensions:,}.")
    name = unfinished(contents.name)
    try:
        _create(engine, contents, name)
        _send(engine, contents, name, progress)
        with engine.doing("writing rows to disk"):
            engine.client.flush(name, timeout=LOADING)
        _index(engine, contents, name)
        _load(engine, name)
        if wrong := _problem(engine, contents, PATIENCE, name):
            raise Failed(f"Milvus at {engine.address.place} took all rows, but the collection {wrong}.")
    except BaseException:
        with contextlib.suppress(Failed, BadInput):  # the first error is the one to report
            engine.drop(name)
        raise
    _rename(engine, contents, name)


def _create(engine: Milvus, contents: Contents, name: str) -> None:
    from pymilvus import DataType

    schema = engine.client.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field("id", DataType.INT64, is_primary=True)
    width = {} if contents.dimensions is None else {"dim": contents.dimensions}
    schema.add_field("vector", DataType[contents.field], **width)
    with engine.doing("creating a collection"):
        engine.client.create_collection(name, schema=schema, consistency_level="Strong", timeout=PATIENCE)


def _send(engine: Milvus, contents: Contents, name: str, progress: Progress | None) -> None:
    """Upsert all rows: an insert that the client repeats after a lost answer would be counted twice."""
    batch = max(1, MESSAGE // contents.size)
    for first in range(0, contents.rows, batch):
        last = min(first + batch, contents.rows)
        vectors = contents.vectors(first, last)
        rows = [{"id": first + i, "vector": vector} for i, vector in enumerate(vectors)]
        with engine.doing("receiving rows"):
            engine.client.upsert(name, rows, timeout=PATIENCE)
        if progress:
            progress(last, contents.rows, "documents sent to Milvus")


def _index(engine: Milvus, contents: Contents, name: str) -> None:
    wanted = engine.client.prepare_index_params()
    wanted.add_index("vector", index_type=contents.index, metric_type="IP")
    with engine.doing("indexing"):
        engine.client.create_index(name, wanted, timeout=LOADING, sync=False)  # it would sleep half a second at least
    until, pause = time.monotonic() + LOADING, 0.02
    while (state := _description(engine, name).get("state", "unknown")) != "Finished":
        if state == "Failed" or time.monotonic() > until:
            raise Failed(f"Milvus at {engine.address.place} could not index a collection: its state is {state}.")
        time.sleep(pause)
        pause = min(1.0, 2 * pause)


def _description(engine: Milvus, name: str) -> dict[str, Any]:
    """Of the index of a collection: its type, metric and state."""
    with engine.doing("describing an index"):
        return engine.client.describe_index(name, "vector", timeout=PATIENCE) or {}


def _load(engine: Milvus, name: str) -> None:
    with engine.doing("loading a collection"):
        engine.client.load_collection(name, timeout=LOADING)


def _rename(engine: Milvus, contents: Contents, name: str) -> None:
    """Give a full collection its name. If another builder was first, theirs is kept, and must be right."""
    try:
        with engine.doing("naming a collection"):
            engine.client.rename_collection(name, contents.name, timeout=PATIENCE)
    except Failed:
        with engine.doing("looking for a collection"):
            taken = engine.client.has_collection(contents.name, timeout=PATIENCE)
        with contextlib.suppress(Failed):  # it may have been renamed, and the answer lost
            engine.drop(name)
        if not taken:
            raise
    _load(engine, contents.name)  # milvus-lite releases a collection that is renamed
    if wrong := _problem(engine, contents, SETTLING):
        raise Failed(f"the collection {contents.name} of Milvus at {engine.address.place} {wrong}.")


def _problem(engine: Milvus, contents: Contents, patience: float, name: str | None = None) -> str:
    """What is wrong with a loaded collection, in words that follow "the collection"; empty if nothing is.

    patience: seconds to wait for rows, which a server may show late.
    """
    name = name or contents.name
    index = _description(engine, name)
    if (found := (index.get("index_type"), index.get("metric_type"))) != (contents.index, "IP"):
        return f"is indexed by {' and '.join(map(str, found))} instead of {contents.index} and IP"
    until = time.monotonic() + patience
    while (count := engine.count(name)) < contents.rows and time.monotonic() < until:
        time.sleep(0.2)
    if count != contents.rows:
        return f"has {count:,} rows instead of {contents.rows:,}"
    rows = np.unique(np.linspace(0, contents.rows - 1, COMPARED).astype(np.int64)).tolist()
    with engine.doing("reading rows"):
        read = engine.client.query(
            name,
            filter=f"id in {rows}",
            output_fields=["id", "vector"],
            consistency_level="Strong",
            timeout=PATIENCE,
        )
    vectors = {row["id"]: row["vector"] for row in read}
    if sorted(vectors) != rows or not all(contents.equal(vectors[row], row) for row in rows):
        return "holds other vectors"
    return ""


def found_ids(engine: Milvus, name: str, queries: Sequence[Any], width: int) -> list[np.ndarray]:
    """The `width` documents of the greatest inner product with each query, by the server: their numbers, int64 [n].

    queries: vectors, as pymilvus takes them.
    """
    assert is_finished(name)
    with engine.doing("searching"):
        hits = engine.client.search(
            name,
            data=queries,
            anns_field="vector",
            limit=width,
            search_params={"metric_type": "IP"},
            output_fields=["id"],  # milvus-lite returns the vectors, too, unless it is told
            consistency_level="Strong",
            timeout=SEARCHING,
        )
    return [np.array(row.ids, np.int64) for row in hits]
