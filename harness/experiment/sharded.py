"""Index and search a corpus shard by shard, in this process or on a cluster.

A job is plain data, so any process on any node with the same cache and versions can run it. The inputs and results of
jobs are cache entries.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

from harness.cluster.cluster import Cluster, JobT, Local, ResultT, ShardWork
from harness.config.canonical import digest
from harness.config.components import build, component_identity, recorded_name, reusable, target_class
from harness.config.schema import Node
from harness.data.files import json_lines, json_text
from harness.data.shards import OpenShard, Shard, ShardedDocuments
from harness.errors import Failed
from harness.experiment.cached_parts import Caching
from harness.experiment.plan import sharding
from harness.experiment.session import queries_digest
from harness.progress import silent, watch
from harness.storage.cache import Cache, open_cache
from retrievers.base import Document, Progress, Query, Ranking, Retriever
from retrievers.sharding import Summed, merge_rankings

KEPT = 2  # number of retrievers, with their models, that a process keeps between jobs


@dataclass(frozen=True)
class ShardJob:
    """A shard of the corpus, and the retriever that works on it.

    shard: fingerprint of the shard's documents.
    expected: digest of the retriever's identity. Every node must compute the same digest.
    summary: identity of the counts summed over all shards; None if shards are independent.
    """

    store: str
    node: Node
    shard: str
    expected: str
    summary: Mapping[str, Any] | None = None

    @property
    def index(self) -> dict[str, Any]:
        """The identity of the shard's index. An independent shard is indexed like a whole corpus."""
        decides = {"retriever": component_identity(self.node), "documents": self.shard}
        return decides | ({"summary": digest(self.summary)} if self.summary else {})

    @property
    def surveyed(self) -> dict[str, Any]:
        return {"retriever": surveyor(self.node), "documents": self.shard}


@dataclass(frozen=True)
class SearchJob:
    """A search of one or more shards. queries: the digest of the queries. depth: documents per query."""

    shards: tuple[ShardJob, ...]
    queries: str
    depth: int


@dataclass(frozen=True)
class SummaryJob:
    """A job that adds up the surveys (the counts) of all shards. shards: fingerprints of the shards."""

    store: str
    node: Node
    shards: tuple[str, ...]
    expected: str

    @property
    def identity(self) -> dict[str, Any]:
        return {"retriever": surveyor(self.node), "shards": digest(self.shards)}


def surveyor(node: Node) -> dict[str, Any]:
    """Return the part of a retriever's identity on which its surveys (counts per shard) and their sums depend."""
    found, cls = component_identity(node), cast("type[Summed]", target_class(node, "retriever"))
    return found | {"arguments": {name: found["arguments"][name] for name in cls.surveyed_by}}


def survey(job: ShardJob) -> None:
    """Compute the counts of one shard, which are later summed over all shards."""
    _survey_folder(job, open_cache(job.store))


def summarise(job: SummaryJob) -> None:
    cache = open_cache(job.store)
    surveys = [_survey_folder(ShardJob(job.store, job.node, shard, job.expected), cache) for shard in job.shards]
    retriever = cast(Summed, _retriever(job.store, json.dumps(job.node), job.expected))
    cache.folder("summaries", job.identity, lambda folder: retriever.summarise(surveys, folder))


def index(job: ShardJob) -> None:
    _index_folder(job, open_cache(job.store))


def ask(job: SearchJob) -> None:
    """Search one shard for one document per query, so that the vectors of the queries are cached for all jobs."""
    search_shards(SearchJob(job.shards[:1], job.queries, 1))


def search_shards(job: SearchJob) -> Ranking:
    """Return the best documents of all shards of a job. The rankings are not cached."""
    first = job.shards[0]
    cache = open_cache(first.store)
    folder = _required(cache.found("queries", {"queries": job.queries}), "The list of queries", first.store)
    queries = tuple(Query.of(**row) for _, row in json_lines(folder / "queries.jsonl"))
    with _at_work(first) as retriever:
        opened = (open_index(retriever, shard, cache) for shard in job.shards)  # opened one at a time
        return merge_rankings((retriever.search(queries, job.depth) for _ in opened), job.depth)


def open_index(retriever: Retriever, job: ShardJob, cache: Cache) -> list[Path]:
    """Load the index of a shard into a retriever, building it if necessary. Return the folders that were read."""
    folders = [_index_folder(job, cache)]
    if job.summary is None:
        retriever.load(folders[0])
    else:
        folders.append(_summary_folder(job, cache))
        cast(Summed, retriever).load_shard(*folders)
    return folders


@contextmanager
def _at_work(job: ShardJob) -> Iterator[Retriever]:
    retriever = cast(Any, _retriever(job.store, json.dumps(job.node), job.expected))
    before = getattr(retriever, "progress", None)  # restored below, since an outer block may share this retriever
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
    return OpenShard(_required(found, f"The shard {job.shard[:12]}… of the documents", job.store))


def _required(folder: Path | None, what: str, store: str) -> Path:
    if folder is None:
        raise Failed(f"{what} is no longer in the cache {store}. Repeat the command to compute it again.")
    return folder


@functools.lru_cache(maxsize=KEPT)
def _retriever(store: str, node: str, expected: str) -> Retriever:
    """Return the retriever for all jobs of this process. Raise Failed unless its identity is the expected one."""
    config = json.loads(node)
    if digest(component_identity(config)) != expected:
        raise Failed(
            f"{recorded_name(target_class(config, 'retriever'))} would give other scores on this node: its versions, "
            "models or files differ, or its device uses another number format (if so, set encoder.dtype=float32)."
        )
    parts = Caching(open_cache(store), "", silent, resume=False)  # a resumed encoding may give other vectors
    made: Retriever = build(config, parts, "retriever")
    return made


PARTS = 16  # the maximum number of jobs into which a search is split; each job returns a ranking


def shards_of(documents: Sequence[Document]) -> tuple[Shard, ...]:
    """Return the shards to index one by one; () if one index covers all documents."""
    return documents.shards if isinstance(documents, ShardedDocuments) and not documents.whole else ()


def shards_for(node: Node, shards: tuple[Shard, ...]) -> tuple[Shard, ...]:
    """Return the shards that a retriever indexes one by one; () if it indexes the whole corpus at once."""
    return shards if sharding(node) and reusable(node) else ()


def cut_identity(node: Node, shards: Sequence[Shard]) -> dict[str, str]:
    """Return the part of a ranking's identity that names the shards; {} if the shards do not change the ranking."""
    if sharding(node) != "independent" or len(shards) < 2 or not reusable(node):
        return {}
    return {"shards": digest([shard.fingerprint for shard in shards])}


def check_cut(node: Node) -> None:
    """Raise BadInput if a retriever with these arguments cannot index shards."""
    retriever = build(node, where="retriever")
    if hasattr(retriever, "check_sharding"):
        retriever.check_sharding()


def indexes(node: Node, shards: Sequence[Shard], cache: Cache) -> list[dict[str, Any]]:
    return [job.index for job in Shards(node, shards, cache, Local(), silent).jobs]


class Shards:
    """Indexes and searches the shards of a corpus with one retriever. progress: reports progress over all shards."""

    def __init__(self, node: Node, shards: Sequence[Shard], cache: Cache, cluster: Cluster, progress: Progress) -> None:
        self._node, self._shards, self._cache = node, shards, cache
        self._cluster, self._progress = cluster, progress
        self._sizes = [shard.size for shard in shards]
        self._store = cache.location if "://" in cache.location else str(Path(cache.location).absolute())
        self._expected, names = digest(component_identity(node)), tuple(shard.fingerprint for shard in shards)
        summed = sharding(node) == "summed"
        self._summary = SummaryJob(self._store, node, names, self._expected) if summed else None

    @cached_property
    def jobs(self) -> list[ShardJob]:
        summary, expected = self._summary.identity if self._summary else None, self._expected
        return [ShardJob(self._store, self._node, shard.fingerprint, expected, summary) for shard in self._shards]

    def index(self) -> None:
        """Index the shards that are not indexed yet. Raise BadInput if the retriever cannot index shards."""
        check_cut(self._node)
        missing = self._missing("indexes", lambda job: job.index)
        if missing and self._summary and self._cache.found("summaries", self._summary.identity) is None:
            uncounted = self._missing("surveys", lambda job: job.surveyed)
            self._run(survey, uncounted, "documents counted")
            summarise(self._summary)  # here, since this only adds up counts: a worker would take longer to start
        self._run(index, missing, "documents indexed")

    def search(self, queries: Sequence[Query], depth: int) -> Ranking:
        def write(folder: Path) -> None:
            rows = ({"query_id": query.query_id, "text": query.text} for query in queries)
            (folder / "queries.jsonl").write_text(json_text(rows), "utf-8")

        name = queries_digest(tuple(queries))
        self._cache.folder("queries", {"queries": name}, write)
        each = -(-len(self.jobs) // PARTS)
        groups = [tuple(self.jobs[i : i + each]) for i in range(0, len(self.jobs), each)]
        jobs = [(SearchJob(group, name, depth), len(group)) for group in groups]
        if len(jobs) > 1 and _needs(self._node) == "model":
            self._run(ask, [(jobs[0][0], len(queries))], "queries")
        return merge_rankings(self._run(search_shards, jobs, "shards searched"), depth)

    def size(self) -> int:
        summaries = [self._cache.size("summaries", self._summary.identity)] if self._summary else []
        return sum(filter(None, [*(self._cache.size("indexes", job.index) for job in self.jobs), *summaries]))

    def opened(self, where: str) -> Opened:
        """Open all shards in this process, with a shared tokenizer and encoder. where: the retriever's config key."""
        shared, made, folders = dict[str, _Remembering](), list[Retriever](), list[Path]()

        def share(key: str, node: Node, make: Callable[[], Any]) -> Any:
            if key not in ("tokenizer", "encoder"):
                return make()
            if key not in shared:
                shared[key] = _Remembering(make())
            return shared[key]

        for job in self.jobs:
            sibling = getattr(made[0], "sibling", None) if made else None
            made.append(sibling() if sibling else build(self._node, share, where))
            folders += open_index(made[-1], job, self._cache)
        return Opened(made, list(dict.fromkeys(folders)))

    def _missing(self, kind: str, identify: Callable[[ShardJob], Mapping[str, Any]]) -> list[tuple[ShardJob, int]]:
        sized = zip(self.jobs, self._sizes, strict=True)
        return [(job, size) for job, size in sized if self._cache.size(kind, identify(job)) is None]

    def _run(self, do: Callable[[JobT], ResultT], jobs: Sequence[tuple[JobT, int]], unit: str) -> list[ResultT]:
        if not jobs:
            return []
        work = ShardWork(
            do, [job for job, _ in jobs], [size for _, size in jobs], unit, _needs(self._node), self._store
        )
        return self._cluster.run(work, self._progress)


class Opened:
    """Searches the shards of a corpus one after the other in this process."""

    def __init__(self, retrievers: Sequence[Retriever], folders: Sequence[Path]) -> None:
        self._retrievers, self.folders = retrievers, folders

    def search(self, queries: Sequence[Query], k: int) -> Ranking:
        return merge_rankings((retriever.search(queries, k) for retriever in self._retrievers), k)


class _Remembering:
    """A tokenizer or encoder that remembers its last result, since it gets the same queries for every shard."""

    def __init__(self, part: Any) -> None:
        self._part = part
        self._last: tuple[tuple[str, ...], Any] | None = None

    def _of(self, texts: Sequence[str], compute: Callable[[], Any]) -> Any:
        last, asked = self._last, tuple(texts)  # another thread may change `_last` at any time
        if last is None or last[0] != asked:
            self._last = last = asked, compute()
        return last[1]

    def __call__(self, texts: Sequence[str], progress: Progress | None = None) -> Any:
        return self._of(texts, lambda: self._part(texts, progress))

    def encode_queries(self, texts: Sequence[str], folder: Path, progress: Progress | None = None) -> Any:
        return self._of(texts, lambda: self._part.encode_queries(texts, folder, progress))


def _needs(node: Node) -> Literal["cores", "model"]:
    loads = hasattr(target_class(node, "retriever"), "require_model")
    return "model" if loads or isinstance(node.get("encoder"), Mapping) else "cores"
