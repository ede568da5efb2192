"""Work on the shards of a corpus: the interface of a cluster, and its implementation in this process.

To add a cluster, write a class like `Cluster` in a module of this folder, and a file in conf/cluster/. The arguments of
the constructor are the keys `cluster.KEY` of a config.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, Protocol, TypeVar

from harness.errors import BadInput
from harness.progress import silent, told
from retrievers.base import AtMost, Progress

JobT = TypeVar("JobT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class ShardWork(Generic[JobT, ResultT]):
    """The same work on several shards.

    do: a function in a module of this project. It is called once for each job, on any node and in any order. If a node
        dies, another node does its job again, and reads the finished parts from the cache.
    jobs: small frozen values of plain data, which name entries of the cache.
    sizes: the size of each job in `unit`, for the overall progress.
    needs: "model" means that a job loads an encoder: few jobs run at a time, each with many cores or a GPU.
    store: the folder or address of the cache, which all nodes must see. None: the jobs name no cache entries.
    """

    do: Callable[[JobT], ResultT]
    jobs: Sequence[JobT]
    sizes: Sequence[int]
    unit: str = "documents"
    needs: Literal["cores", "model"] = "cores"
    store: str | None = None


class Cluster(Protocol):
    """Works on shards. shard: the approximate number of documents in a shard; None: the corpus is not cut."""

    shard: int | None

    def run(self, work: ShardWork[Any, ResultT], progress: Progress | None = None) -> list[ResultT]:
        """Return the results in the order of the jobs. Raise Failed if a job fails or no node is left for it."""

    def examined(self) -> str:
        """Return a line about the nodes, or "" for this process alone. Raise BadInput or Failed if a node is unfit."""


Documents = Annotated[int, AtMost(100_000_000, "no node has enough memory for more")]


class Local:
    """Works in this process, on one shard after another. shard=None: one index covers the whole corpus."""

    recorded_as = "cluster/local"
    version = 1

    def __init__(self, shard: Documents | None = None) -> None:
        self.shard = checked_shard(shard)

    def run(self, work: ShardWork[Any, ResultT], progress: Progress | None = None) -> list[ResultT]:
        results, before, total = [], 0, sum(work.sizes)
        for job, size in zip(work.jobs, work.sizes, strict=True):
            with told(_part(progress or silent, before, size, total, work.unit)):
                results.append(work.do(job))
            before += size
            if progress:
                progress(before, total, work.unit)
        return results

    def examined(self) -> str:
        return ""


def _part(progress: Progress, before: int, size: int, total: int, unit: str) -> Progress:
    """Return a function that turns one job's progress into overall progress. before: the total size of earlier jobs."""
    reached = 0

    def count(done: int, of: int, _: str) -> None:
        nonlocal reached
        # A job may count several things one after the other, each from 0: report only an advance.
        if of and (now := size * done // of) > reached:
            reached = now
            progress(before + now, total, unit)

    return count


def checked_shard(shard: int | None) -> int | None:
    if shard is not None and (isinstance(shard, bool) or not isinstance(shard, int) or shard < 1):
        raise BadInput(f"cluster.shard is {shard!r}: give a number of documents, at least 1, or null.")
    return shard
