"""Work on the shards of a corpus: what a cluster must do, and how this process does it alone.

To add a cluster, write a class like `Cluster` in a module of this folder and a file in conf/cluster/. Its constructor's
arguments are the keys of `cluster.` in a config.
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

    do: a function in a module of this project, called once per job, on any node, in any order. If a node dies, its job
        is done again on another; the cache holds what was finished.
    jobs: small frozen values of plain data, which name entries of the cache.
    sizes: of each job, in `unit`, for the overall progress.
    needs: "model": a job loads an encoder, so few run at a time, each with many cores or a GPU.
    store: the folder or address of the cache, which all nodes must see; None: the jobs name no entries.
    """

    do: Callable[[JobT], ResultT]
    jobs: Sequence[JobT]
    sizes: Sequence[int]
    unit: str = "documents"
    needs: Literal["cores", "model"] = "cores"
    store: str | None = None


class Cluster(Protocol):
    """Works on shards. shard: about how many documents a shard has; None: the corpus is not cut."""

    shard: int | None

    def run(self, work: ShardWork[Any, ResultT], progress: Progress | None = None) -> list[ResultT]:
        """Return the result of each job, in order. Raise Failed if a job fails or no node is left to do it."""

    def examined(self) -> str:
        """Return a line about the nodes, "" if this process works alone. Raise BadInput or Failed if they are unfit."""


Documents = Annotated[int, AtMost(100_000_000, "no node has as much memory")]


class Local:
    """Works in this process, on one shard after the other. shard: None: the corpus stays in memory and is not cut."""

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
    """Return a progress that counts a job as a part of the whole. before: total size of earlier jobs."""
    reached = 0

    def count(done: int, of: int, _: str) -> None:
        nonlocal reached
        if of and (now := size * done // of) > reached:  # a job may count several things, one after the other
            reached = now
            progress(before + now, total, unit)

    return count


def checked_shard(shard: int | None) -> int | None:
    if shard is not None and (isinstance(shard, bool) or not isinstance(shard, int) or shard < 1):
        raise BadInput(f"cluster.shard is {shard!r}: give a number of documents, at least 1, or null.")
    return shard
