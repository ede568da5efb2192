"""The work on one shard of a corpus: whatever a job needs lies in the cache, and so does what it finds.

A job is plain data, so that it can be done in another process or on another node with the same cache and the same
versions. Each result is one entry of the cache with an identity of its own: nothing that is finished is done twice.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from harness.config.canonical import digest
from harness.config.components import build, identity, recorded_name, target_class
from harness.config.schema import Node
from harness.data.files import json_lines, json_text
from harness.data.shards import Shard, open_shard
from harness.errors import Failed
from harness.pipeline.cached_parts import Caching
from harness.progress import silent, watch
from harness.storage.cache import Cache, open_cache
from retrievers.base import Document, Query, Ranking, Retriever
from retrievers.sharding import Summed, merge_rankings

KEPT = 2  # retrievers that a process keeps between jobs, with their models
VANISHED = "{what} is no longer in the cache {store}. Repeat the command: what is missing is computed again."


@dataclass(frozen=True)
class ShardJob:
    """A shard and the retriever that works on it.

    store: the cache, as `open_cache` takes it. node: the retriever's config. shard: the fingerprint of its documents.
    expected: digest of the retriever's identity, which must be the same on every node.
    summary: identity of the summary of the corpus; None for a retriever whose shards are independent.
    """

    store: str
    node: Node
    shard: str
    expected: str
    summary: Mapping[str, Any] | None = None

    @property
    def index(self) -> dict[str, Any]:
        """What decides the index of the shard: where shards are independent, as if it were a corpus."""
        decides = {"retriever": identity(self.node), "documents": self.shard}
        return decides | ({"summary": digest(self.summary)} if self.summary else {})

    @property
    def surveyed(self) -> dict[str, Any]:
        """What decides the survey of the shard."""
        return {"retriever": surveyor(self.node), "documents": self.shard}


@dataclass(frozen=True)
class SearchJob:
    """A search of some shards, at least one. queries: digest of those to search for. depth: documents of each."""

    shards: tuple[ShardJob, ...]
    queries: str
    depth: int


@dataclass(frozen=True)
class SummaryJob:
    """The shards of a corpus whose surveys are to be summed. shards: fingerprints; the rest as in `ShardJob`."""

    store: str
    node: Node
    shards: tuple[str, ...]
    expected: str

    @property
    def identity(self) -> dict[str, Any]:
        return {"retriever": surveyor(self.node), "shards": digest(self.shards)}


def surveyor(node: Node) -> dict[str, Any]:
    """The identity of a retriever as far as it decides surveys and summaries."""
    found, cls = identity(node), cast("type[Summed]", target_class(node, "retriever"))
    return found | {"arguments": {name: found["arguments"][name] for name in cls.surveyed_by}}


def survey(job: ShardJob) -> None:
    """Count what is to be summed over all shards."""
    _survey_folder(job, open_cache(job.store))


def summarise(job: SummaryJob) -> None:
    """Sum the surveys of all shards."""
    cache = open_cache(job.store)
    surveys = [_survey_folder(ShardJob(job.store, job.node, shard, job.expected), cache) for shard in job.shards]
    retriever = cast(Summed, _retriever(job.store, json.dumps(job.node), job.expected))
    cache.folder("summaries", job.identity, lambda folder: retriever.summarise(surveys, folder))


def index(job: ShardJob) -> None:
    """Index the shard."""
    _index_folder(job, open_cache(job.store))


def ask(job: SearchJob) -> None:
    """Search one shard for the best document alone, so that the vectors of the queries are in the cache for all."""
    search(SearchJob(job.shards[:1], job.queries, 1))


def search(job: SearchJob) -> Ranking:
    """The best documents of the shards together. A search is quick beside an index: its rankings are not kept."""
    first = job.shards[0]
    cache = open_cache(first.store)
    queries = _queries(job.queries, first.store, cache)
    with _at_work(first) as retriever:
        return merge_rankings((_searched(retriever, one, cache, queries, job.depth) for one in job.shards), job.depth)


def save_queries(cache: Cache, name: str, queries: Sequence[Query]) -> None:
    """Cache queries for the jobs that search for them. name: their digest."""
    rows = ({"query_id": query.query_id, "text": query.text} for query in queries)
    cache.folder("queries", {"queries": name}, lambda folder: _write(folder / "queries.jsonl", json_text(rows)))


def open_index(retriever: Retriever, job: ShardJob, cache: Cache) -> list[Path]:
    """Have a retriever open the index of a shard, which is built if it is missing; the folders that it reads."""
    folders = [_index_folder(job, cache)]
    if job.summary is None:
        retriever.load(folders[0])
    else:
        folders.append(_summary_folder(job, cache))
        cast(Summed, retriever).load_shard(*folders)
    return folders


def kind(node: Node) -> str | None:
    """How a retriever's index can be cut: independent, summed, or None: not at all."""
    found: str | None = getattr(target_class(node, "retriever"), "sharding", None)
    return found


def whole(shards: Sequence[Shard]) -> tuple[str, ...]:
    """The fingerprints of shards."""
    return tuple(shard.fingerprint for shard in shards)


@contextmanager
def _at_work(job: ShardJob) -> Iterator[Retriever]:
    """The job's retriever, which reports its progress."""
    retriever = cast(Any, _retriever(job.store, json.dumps(job.node), job.expected))
    before = getattr(retriever, "progress", None)  # jobs are nested where an entry was damaged
    with watch(recorded_name(type(retriever))) as progress:
        retriever.progress = progress
        try:
            yield retriever
        finally:
            retriever.progress = before


def _index_folder(job: ShardJob, cache: Cache) -> Path:
    def build_index(folder: Path) -> None:
        documents = _documents(job, cache)
        with _at_work(job) as retriever:
            if job.summary is None:
                retriever.index(documents, folder)
            else:
                survey, summary = _survey_folder(job, cache), _summary_folder(job, cache)
                cast(Summed, retriever).index_shard(documents, survey, summary, folder)

    return cache.folder("indexes", job.index, build_index)


def _survey_folder(job: ShardJob, cache: Cache) -> Path:
    def build_survey(folder: Path) -> None:
        documents = _documents(job, cache)
        with _at_work(job) as retriever:
            cast(Summed, retriever).survey(documents, folder)

    return cache.folder("surveys", job.surveyed, build_survey)


def _summary_folder(job: ShardJob, cache: Cache) -> Path:
    assert job.summary is not None
    return _required(cache.found("summaries", job.summary), "The summary of the corpus", job.store)


def _documents(job: ShardJob, cache: Cache) -> Sequence[Document]:
    found = cache.found("documents", {"documents": job.shard})
    return open_shard(_required(found, f"The shard {job.shard[:12]}… of the documents", job.store))


def _searched(retriever: Retriever, job: ShardJob, cache: Cache, queries: Sequence[Query], depth: int) -> Ranking:
    open_index(retriever, job, cache)
    return retriever.search(queries, depth)


def _queries(name: str, store: str, cache: Cache) -> tuple[Query, ...]:
    folder = _required(cache.found("queries", {"queries": name}), "The list of queries", store)
    return tuple(Query.of(**row) for _, row in json_lines(folder / "queries.jsonl"))


def _required(folder: Path | None, what: str, store: str) -> Path:
    if folder is None:
        raise Failed(VANISHED.format(what=what, store=store))
    return folder


@functools.lru_cache(maxsize=KEPT)
def _retriever(store: str, node: str, expected: str) -> Retriever:
    """A retriever with its models, for all jobs of this process. node: its config as JSON. Failed where its identity is
    another one here."""
    config = json.loads(node)
    if digest(identity(config)) != expected:
        raise Failed(
            f"{recorded_name(target_class(config, 'retriever'))} would give other scores on this node: its versions, "
            "models or files differ, or its device, which decides the number format: then set encoder.dtype=float32."
        )
    parts = Caching(open_cache(store), "", silent, resume=False)  # equal vectors, whichever node died at a shard
    made: Retriever = build(config, parts, "retriever")
    return made


def _write(path: Path, text: str) -> None:
    path.write_text(text, "utf-8")
