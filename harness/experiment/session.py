"""What the steps of an experiment share: data, queries as they are searched, cache and clock."""

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
from harness.config.canonical import digest
from harness.config.components import reusable
from harness.config.schema import Node
from harness.data.dataset import Dataset, checked_dataset, in_memory
from harness.data.source import Source
from harness.experiment import timing
from harness.experiment.ingest import sharded
from harness.experiment.plan import Plan
from harness.llm.chat import Chat, ChatModel
from harness.storage.cache import Cache, open_cache
from retrievers.base import Document, Query

IN_MEMORY = 2_000_000  # documents, of which more are said to be many for a machine's memory


@dataclass
class Clock:
    """Seconds spent in each stage."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str, label: str = "") -> Iterator[None]:
        """Measure a stage. label: its name in the announcement if it takes long."""
        began = time.perf_counter()
        try:
            with progress.stage(label or name):
                yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began


@dataclass(frozen=True, eq=False)
class Session:
    """The data of an experiment, and where its results are cached.

    queries: as they are searched, each with one user turn.
    timed: the component rankings and rerankings to time, unless this machine has done so before: computed ones, if that
        takes no further model; `always` also those from the cache.
    replies: where the replies of language models are cached; None: in `cache`. unasked: as in `Chat`.
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
        """Return the time of something on this machine, measured where `timed` says so; None if it is unknown.

        cache: where the thing is cached. computed: whether it was computed just now.
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
    """Return a session on a dataset with the queries and the cache that the config names. unasked: as in `Session`.

    A language model that writes the queries is asked for those that are not cached. Raise Failed if it writes no usable
    text, and BadInput for bad `query` keys.
    """
    clock = clock or Clock()
    if plan.writer:
        with clock.stage("queries", "writing queries"):
            queries = plan.writer.queries(dataset.queries, _chat(plan, unasked))
    else:
        queries = plan.given_queries(dataset)
    return Session(dataset, queries, plan.cache, clock, cluster=plan.workers, replies=plan.cache, unasked=unasked)


def foreseen_queries(plan: Plan, dataset: Dataset) -> tuple[tuple[Query, ...], int]:
    """Return the queries as far as they are known without asking a language model, and how many it would be asked for.

    Unless a usable text is cached for each, they are stand-ins, the same for the same writer. Raise BadInput for bad
    `query` keys.
    """
    if not plan.writer:
        return plan.given_queries(dataset), 0
    if not plan.llm.get("model"):  # to be refused, without an entry in the cache
        return plan.writer.stand_ins(dataset.queries), len(dataset.queries)
    return plan.writer.foreseen(dataset.queries, _chat(plan))


def _chat(plan: Plan, unasked: str = "") -> Chat:
    return chat_for(plan.made("llm"), plan.cache, "queries", unasked)


def open_dataset(plan: Plan, name: str) -> Dataset:
    """Read the dataset that the config names. name: as logs call it. Raise BadInput where its files are wrong."""
    with progress.stage("reading the data"):
        return read_dataset(plan.source(), plan.workers.shard, plan.store, name)


def read_dataset(source: Source, shard: int | None, store: str, name: str) -> Dataset:
    """Read and check a dataset. shard, store: as for `read_documents`. name: as logs call it."""
    found = checked_dataset(source, name, read_documents(source, shard, store))
    if isinstance(found.documents, tuple) and len(found.documents) > IN_MEMORY:
        note = (
            f"{len(found.documents):,} documents lie in memory: cluster.shard=50000 reads them from the cache instead."
        )
        return replace(found, notes=(*found.notes, note))
    return found


def read_documents(source: Source, shard: int | None, store: str) -> Sequence[Document]:
    """Return the documents by ascending doc_id: in memory, or in shards of about `shard` documents in a cache.

    store: where the cache is, as `open_cache` takes it.
    """
    return in_memory(source) if shard is None else sharded(source, shard, open_cache(store))


def cache_for(retriever: Node, cache: Cache) -> Cache:
    """Return the cache for the results of a retriever: with `cache: false`, one for this process alone."""
    return cache if reusable(retriever) else Cache(_own_folder() / moment())


def chat_for(model: ChatModel, cache: Cache, purpose: str, unasked: str = "") -> Chat:
    """Return a chat for a purpose, such as "gate", with its replies in the cache. unasked: as in `Chat`."""
    folder = cache.log_folder("replies", model.log_identity(purpose))
    return Chat(model, folder, unasked, functools.partial(cache.adding, folder))


@functools.cache
def moment() -> str:
    """Name the period in which replies of a changing service count as fixed: this process, until `ask_anew`."""
    return uuid.uuid4().hex


def ask_anew() -> None:
    """Have retrievers with `cache: false` search again, whatever they have found in this process."""
    moment.cache_clear()


@functools.cache
def _own_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="harness-cache-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def queries_digest(queries: tuple[Query, ...]) -> str:
    """Return the sha256 of queries as they are searched: ids and texts."""
    return digest([[query.query_id, query.text] for query in queries])
