"""Indexing and searching a corpus shard by shard, in this process or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from harness.cluster.cluster import Cluster, JobT, ResultT, ShardWork
from harness.cluster.local import Local
from harness.config.canonical import digest
from harness.config.components import build, identity, reusable, target_class
from harness.config.schema import Node
from harness.data.shards import Shard, ShardedDocuments
from harness.pipeline import shard_jobs
from harness.pipeline.session import queries_digest
from harness.pipeline.shard_jobs import SearchJob, ShardJob, SummaryJob, kind
from harness.progress import silent
from harness.storage.cache import Cache
from retrievers.base import Document, Progress, Query, Ranking, Retriever
from retrievers.sharding import merge_rankings

PARTS = 16  # of a search, at most: so many rankings come back, whatever the number of shards

if TYPE_CHECKING:
    from retrievers.dense.encoders import Encoder
    from retrievers.lexical.tokenize import Tokenizer, Tokens


def shards_of(documents: Sequence[Document]) -> tuple[Shard, ...]:
    """The shards of documents; () where they are not cut."""
    return documents.shards if isinstance(documents, ShardedDocuments) else ()


def shards_for(node: Node, shards: tuple[Shard, ...]) -> tuple[Shard, ...]:
    """Those of the shards that a retriever indexes one by one: all, or () where it works on the whole corpus."""
    return shards if kind(node) and reusable(node) else ()


def cut(node: Node, shards: Sequence[Shard]) -> dict[str, str]:
    """What a cut adds to what decides a retriever's ranking; {} where the ranking is that of the whole corpus."""
    if kind(node) != "independent" or len(shards) < 2 or not reusable(node):
        return {}
    return {"shards": digest(shard_jobs.whole(shards))}


def check(node: Node) -> None:
    """BadInput where the index of a retriever cannot be cut with its arguments."""
    retriever = build(node, where="retriever")
    if hasattr(retriever, "check_sharding"):
        retriever.check_sharding()


def indexes(node: Node, shards: Sequence[Shard], cache: Cache) -> list[dict[str, Any]]:
    """What decides the index of each shard."""
    return [job.index for job in Shards(node, shards, cache, Local(), silent).jobs]


def deciding_size(config: Mapping[str, Any]) -> int | None:
    """cluster.shard of a run's config where it decides numbers: some retriever's shards are independent. Else None."""
    nodes, cluster = config["retriever"].values(), config.get("cluster") or {}
    independent = any(kind(node) == "independent" and reusable(node) for node in nodes)
    return cluster.get("shard") if independent else None


class Shards:
    """The shards of a corpus, which a retriever indexes and searches.

    node: the retriever's config. shards: at least one. cluster: does the work. progress: of all shards together.
    """

    def __init__(self, node: Node, shards: Sequence[Shard], cache: Cache, cluster: Cluster, progress: Progress) -> None:
        self._node, self._shards, self._cache = node, shards, cache
        self._cluster, self._progress = cluster, progress
        self._sizes = [shard.size for shard in shards]
        self._store = cache.location if "://" in cache.location else str(Path(cache.location).absolute())
        self._expected, names = digest(identity(node)), shard_jobs.whole(shards)
        summed = kind(node) == "summed"
        self._summary = SummaryJob(self._store, node, names, self._expected) if summed else None

    @cached_property
    def jobs(self) -> list[ShardJob]:
        summary, expected = self._summary.identity if self._summary else None, self._expected
        return [ShardJob(self._store, self._node, shard.fingerprint, expected, summary) for shard in self._shards]

    def index(self) -> None:
        """Index all shards that are not indexed yet. BadInput where the retriever's index cannot be cut."""
        check(self._node)
        missing = self._missing("indexes", lambda job: job.index)
        if missing and self._summary and self._cache.found("summaries", self._summary.identity) is None:
            uncounted = self._missing("surveys", lambda job: job.surveyed)
            self._run(shard_jobs.survey, uncounted, "documents counted")
            summing: ShardWork[SummaryJob, None] = ShardWork(
                shard_jobs.summarise, [self._summary], [len(self._shards)], "shards", store=self._store
            )
            self._cluster.run(summing, self._progress)
        self._run(shard_jobs.index, missing, "documents indexed")

    def search(self, queries: Sequence[Query], depth: int) -> Ranking:
        """The best documents of all shards."""
        name = queries_digest(tuple(queries))
        shard_jobs.save_queries(self._cache, name, queries)
        each = -(-len(self.jobs) // PARTS)
        groups = [tuple(self.jobs[i : i + each]) for i in range(0, len(self.jobs), each)]
        jobs = [(SearchJob(group, name, depth), len(group)) for group in groups]
        if len(jobs) > 1 and _needs(self._node) == "model":
            self._run(shard_jobs.ask, [(jobs[0][0], len(queries))], "queries")
        return merge_rankings(self._run(shard_jobs.search, jobs, "shards searched"), depth)

    def size(self) -> int:
        """Bytes of the index of all shards, as far as they are cached."""
        summaries = [self._cache.size("summaries", self._summary.identity)] if self._summary else []
        return sum(filter(None, [*(self._cache.size("indexes", job.index) for job in self.jobs), *summaries]))

    def opened(self, where: str) -> Opened:
        """All shards opened in this process, with one model for all. where: the config key of the retriever."""
        share, made, folders = _Shared(), list[Retriever](), list[Path]()
        for job in self.jobs:
            sibling = getattr(made[0], "sibling", None) if made else None
            made.append(sibling() if sibling else build(self._node, share, where))
            folders += shard_jobs.open_index(made[-1], job, self._cache)
        return Opened(made, list(dict.fromkeys(folders)))

    def _missing(self, kind: str, identify: Callable[[ShardJob], Mapping[str, Any]]) -> list[tuple[ShardJob, int]]:
        """(job, documents) of the shards that have no such entry in the cache."""
        sized = zip(self.jobs, self._sizes, strict=True)
        return [(job, size) for job, size in sized if self._cache.size(kind, identify(job)) is None]

    def _run(self, do: Callable[[JobT], ResultT], jobs: Sequence[tuple[JobT, int]], unit: str) -> list[ResultT]:
        """What `do` returns for each of the (job, size)."""
        if not jobs:
            return []
        work = ShardWork(
            do, [job for job, _ in jobs], [size for _, size in jobs], unit, _needs(self._node), self._store
        )
        return self._cluster.run(work, self._progress)


class Opened:
    """Searches the shards of a corpus one after the other in this process, as a retriever. folders: that it reads."""

    def __init__(self, retrievers: Sequence[Retriever], folders: Sequence[Path]) -> None:
        self._retrievers, self.folders = retrievers, folders

    def search(self, queries: Sequence[Query], k: int) -> Ranking:
        """At most k documents per query."""
        return merge_rankings((retriever.search(queries, k) for retriever in self._retrievers), k)


class _Shared:
    """The `wrap` argument of `build` for the retrievers of all shards: they share a tokenizer and an encoder."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __call__(self, key: str, node: Mapping[str, Any], make: Callable[[], Any]) -> Any:
        if key not in ("tokenizer", "encoder"):
            return make()
        if key not in self._made:
            self._made[key] = (_Tokenizing if key == "tokenizer" else _Encoding)(make())
        return self._made[key]


class _Tokenizing:
    """A tokenizer that remembers the last texts: each shard asks for the same queries."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._last: tuple[tuple[str, ...], Tokens] | None = None

    def __call__(self, texts: Sequence[str], progress: Progress | None = None) -> Tokens:
        last, asked = self._last, tuple(texts)  # other threads may ask for others meanwhile
        if last is None or last[0] != asked:
            self._last = last = asked, self._tokenizer(texts, progress)
        return last[1]


class _Encoding:
    """An encoder that remembers the last queries, as `_Tokenizing` does."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._last: tuple[tuple[str, ...], np.ndarray] | None = None

    def encode_queries(self, texts: Sequence[str], folder: Path, progress: Progress | None = None) -> np.ndarray:
        last, asked = self._last, tuple(texts)
        if last is None or last[0] != asked:
            self._last = last = asked, self._encoder.encode_queries(texts, folder, progress)
        return last[1]


def _needs(node: Node) -> Literal["cores", "model"]:
    """Whether a retriever loads a model for documents or queries."""
    loads = hasattr(target_class(node, "retriever"), "require_model")
    return "model" if loads or isinstance(node.get("encoder"), Mapping) else "cores"
