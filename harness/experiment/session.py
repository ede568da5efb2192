"""What the steps of an experiment share: the data, the queries as they are searched, the cache and the clock."""

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
from harness.config.components import build, reusable
from harness.config.schema import Node
from harness.data.dataset import Dataset, checked_dataset, in_memory, search_queries
from harness.data.source import Source
from harness.experiment import timing
from harness.experiment.ingest import sharded
from harness.experiment.plan import Plan
from harness.experiment.writing import QueryWriter
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
        """Measure a stage. label: what it is called if it takes long; empty: its name."""
        began = time.perf_counter()
        try:
            with progress.stage(label or name):
                yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began


@dataclass(frozen=True, eq=False)
class Session:
    """What an experiment works on.

    queries: those of the dataset as they are searched, each with one user turn.
    timed: which component rankings and rerankings are timed, unless this machine has done so before: those that are
        computed, if that takes no further model; `always` also those that come from the cache.
    cluster: where shards of the documents are worked on.
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
        """sha256 of the queries as they are searched."""
        return queries_digest(self.queries)

    def chat(self, model: ChatModel, purpose: str) -> Chat:
        """Asks a language model for a purpose, such as "gate"."""
        return chat_for(model, self.replies or self.cache, purpose, self.unasked)

    def time_of(
        self, cache: Cache, about: Mapping[str, Any], computed: bool, measure: Callable[[], timing.Timing]
    ) -> timing.Timing | None:
        """The time of something on this machine, measured where `timed` says so; None if it is unknown.

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
    """A session on a dataset with the queries and the cache that the config names.

    Where a language model writes the queries, it is asked for those that are not cached; Failed where it writes none.
    BadInput for bad `query` keys. unasked: as in `Session`.
    """
    cache, clock = open_cache(plan.cache), clock or Clock()
    if writer := QueryWriter.of(plan):
        with clock.stage("queries", "writing queries"):
            queries = writer.queries(dataset.queries, _writing(plan, cache, unasked))
    else:
        queries = search_queries(dataset, plan.query_text, plan.query_file)
    return Session(dataset, queries, cache, clock, cluster=cluster_of(plan.cluster), replies=cache, unasked=unasked)


def cluster_of(node: Node) -> Cluster:
    """The cluster of a config; this process where it is empty."""
    made: Cluster = build(node, where="cluster") if node else Local()
    return made


def foreseen_queries(plan: Plan, dataset: Dataset) -> tuple[tuple[Query, ...], int]:
    """(the queries as far as they are known without asking a language model, how many it would be asked for).

    Unless a usable text is cached for each, they are stand-ins, the same for the same writer. BadInput for bad `query`
    keys.
    """
    if not (writer := QueryWriter.of(plan)):
        return search_queries(dataset, plan.query_text, plan.query_file), 0
    if not plan.llm.get("model"):  # to be refused, without an entry in the cache
        return writer.stand_ins(dataset.queries), len(dataset.queries)
    return writer.foreseen(dataset.queries, _writing(plan, open_cache(plan.cache)))


def _writing(plan: Plan, cache: Cache, unasked: str = "") -> Chat:
    return chat_for(plan.made("llm"), cache, "queries", unasked)


def open_dataset(plan: Plan, name: str) -> Dataset:
    """The dataset that the config names. name: what it is called in logs. BadInput where its files are wrong."""
    with progress.stage("reading the data"):
        return read_dataset(plan.dataset, plan.cluster, plan.cache, name)


def read_dataset(dataset: Node, cluster: Node, cache: str, name: str) -> Dataset:
    """As `open_dataset`. dataset, cluster: their configs. cache: where it is."""
    source = build(dataset, where="dataset")
    found = checked_dataset(source, name, documents_of(source, cluster, cache))
    if isinstance(found.documents, tuple) and len(found.documents) > IN_MEMORY:
        note = (
            f"{len(found.documents):,} documents lie in memory: cluster.shard=50000 reads them from the cache instead."
        )
        return replace(found, notes=(*found.notes, note))
    return found


def documents_of(source: Source, cluster: Node, cache: str) -> Sequence[Document]:
    """The documents of a dataset in ascending order of doc_id: in memory, or in shards if the cluster names a size."""
    shard = cluster_of(cluster).shard
    if shard is None:
        return in_memory(source)
    return sharded(source, shard, open_cache(cache))


def cache_for(retriever: Node, cache: Cache) -> Cache:
    """Where the results of a retriever are cached: those with `cache: false` for this process alone."""
    return cache if reusable(retriever) else Cache(_own_folder() / moment())


def chat_for(model: ChatModel, cache: Cache, purpose: str, unasked: str = "") -> Chat:
    """Asks a language model for a purpose, such as "gate", with its replies in the cache. unasked: as in `Chat`."""
    folder = cache.log_folder("replies", model.log_identity(purpose))
    return Chat(model, folder, unasked, functools.partial(cache.adding, folder))


@functools.cache
def moment() -> str:
    """Names the time in which what a changing service says stays as it is: this process, until `ask_anew`."""
    return uuid.uuid4().hex


def ask_anew() -> None:
    """Have retrievers with `cache: false` search again, whatever they have found in this process."""
    moment.cache_clear()


@functools.cache
def _own_folder() -> Path:
    """A folder that is removed when this process ends."""
    folder = tempfile.mkdtemp(prefix="harness-cache-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def queries_digest(queries: tuple[Query, ...]) -> str:
    """sha256 of queries as they are searched: ids and texts."""
    return digest([[query.query_id, query.text] for query in queries])
