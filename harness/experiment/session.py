"""The session that the steps of an experiment share: data, queries, cache and clock."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from harness import progress
from harness.cluster.cluster import Cluster, Local
from harness.config.canonical import canonical, digest_rows
from harness.config.components import reusable
from harness.config.schema import Node
from harness.data.dataset import Dataset, checked_dataset, in_memory
from harness.data.source import Source, Streamed
from harness.experiment import timing
from harness.experiment.ingest import sharded
from harness.experiment.plan import Plan
from harness.llm.chat import Chat, ChatModel
from harness.storage.cache import Cache, open_cache
from retrievers.base import Document, Query

IN_MEMORY = 2_000_000  # if more documents than this are in memory, the dataset gets a note
LARGE = 128 << 20  # the documents of a file with more bytes are read from the cache
SHARD = 50_000  # documents in a shard if one index covers all shards


@dataclass
class Clock:
    """Seconds spent in each stage."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str, label: str = "") -> Iterator[None]:
        began = time.perf_counter()
        try:
            with progress.stage(label or name):
                yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began


@dataclass(frozen=True, eq=False)
class Session:
    """The data of an experiment, and its caches.

    queries: the queries to search for, with one user turn each.
    timed: which rankings to time if this machine has not timed them yet. "computed" skips cached rankings, and
        rankings whose timing would load a model.
    replies: the cache for replies of language models; None to use `cache`. unasked: see `Chat`.
    """

    dataset: Dataset
    queries: tuple[Query, ...]
    cache: Cache
    clock: Clock = field(default_factory=Clock)
    timed: Literal["never", "computed", "always"] = "computed"
    cluster: Cluster = field(default_factory=Local)
    replies: Cache | None = None
    unasked: str = ""

    @cached_property
    def queries_digest(self) -> str:
        return queries_digest(self.queries)

    def chat(self, model: ChatModel, purpose: str) -> Chat:
        return chat_for(model, self.replies or self.cache, purpose, self.unasked)

    def time_of(
        self, cache: Cache, about: Mapping[str, Any], computed: bool, measure: Callable[[], timing.Timing]
    ) -> timing.Timing | None:
        """Return the time to compute a result on this machine, measured now if `timed` says so; None if unknown.

        cache: the cache of the result. about: from `timing.subject`. computed: whether the result was just computed.
        """
        if self.timed == "never":
            return None
        found = timing.known(cache, about)
        if found is None and (computed or self.timed == "always"):
            with self.clock.stage("timing", "timing queries"):
                found = measure()
            timing.remember(cache, about, found)
        return found


def open_session(plan: Plan, dataset: Dataset, clock: Clock | None = None, unasked: str = "") -> Session:
    """Open a session on a dataset. If a language model writes queries, ask it for all that are not cached.

    Raise Failed if the model writes no usable text, and BadInput for bad `query` keys.
    """
    clock = clock or Clock()
    if plan.writer:
        with clock.stage("queries", "writing queries"):
            queries = plan.writer.queries(dataset.queries, _chat(plan, unasked))
    else:
        queries = plan.given_queries(dataset)
    return Session(dataset, queries, plan.cache, clock, cluster=plan.workers, replies=plan.cache, unasked=unasked)


def foreseen_queries(plan: Plan, dataset: Dataset) -> tuple[tuple[Query, ...], int]:
    """Return the queries without asking a language model, and the number of queries that it would have to write.

    If any query lacks a usable cached text, return placeholders for all queries. Raise BadInput for bad `query` keys.
    """
    if not plan.writer:
        return plan.given_queries(dataset), 0
    if not plan.llm.get("model"):  # the run will be refused; make no cache entry for it
        return plan.writer.stand_ins(dataset.queries), len(dataset.queries)
    return plan.writer.foreseen(dataset.queries, _chat(plan))


def _chat(plan: Plan, unasked: str = "") -> Chat:
    return chat_for(plan.made("llm"), plan.cache, "queries", unasked)


def open_dataset(plan: Plan, name: str) -> Dataset:
    """Read the dataset of a plan. name: the name to log. Raise BadInput if its files are wrong."""
    with progress.stage("reading the data"):
        return read_dataset(plan.source(), plan.workers.shard, plan.store, name)


def read_dataset(source: Source, shard: int | None, store: str, name: str) -> Dataset:
    """Read and check a dataset. shard, store: see `read_documents`. name: the name to log."""
    found = checked_dataset(source, name, read_documents(source, shard, store))
    if isinstance(found.documents, tuple) and len(found.documents) > IN_MEMORY:
        note = f"{len(found.documents):,} documents are in memory. cluster.shard=50000 reads them from the cache."
        return replace(found, notes=(*found.notes, note))
    return found


def read_documents(source: Source, shard: int | None, store: str) -> Sequence[Document]:
    """Return the documents by ascending doc_id.

    They are in the cache at `store`, in shards of about `shard` documents. If `shard` is None, one index covers all
    documents, and documents that are not read from a large file are in memory.
    """
    documents = source.documents()
    large = isinstance(documents, Streamed) and documents.path.is_file() and documents.path.stat().st_size > LARGE
    if shard is None and not large:
        return in_memory(documents)
    return sharded(documents, shard or SHARD, open_cache(store), whole=shard is None)


def cache_for(retriever: Node, cache: Cache) -> Cache:
    """Return the cache for a retriever's results. It is temporary if the retriever sets `cache: false`."""
    return cache if reusable(retriever) else Cache(_own_folder() / moment())


def chat_for(model: ChatModel, cache: Cache, purpose: str, unasked: str = "") -> Chat:
    """Return a chat that caches its replies. purpose: the use of the replies, such as "gate". unasked: see `Chat`."""
    folder = cache.log_folder("replies", model.log_identity(purpose))
    return Chat(model, folder, unasked, functools.partial(cache.adding, folder))


@functools.cache
def moment() -> str:
    """Return the id of the current period, in which services are assumed not to change. `ask_anew` ends the period."""
    return uuid.uuid4().hex


def ask_anew() -> None:
    """Make retrievers with `cache: false` search again for queries that they have already searched for."""
    moment.cache_clear()


@functools.cache
def _own_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="harness-cache-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def queries_digest(queries: tuple[Query, ...]) -> str:
    """Return the sha256 of the ids and texts of queries."""
    return digest_rows(canonical([query.query_id, query.text]) for query in queries)
