"""What all clusters share: how they are asked to work on the shards of a corpus.

To add a cluster, write a class like `Cluster` in a module of this folder and a file in conf/cluster/. The arguments of
its constructor are the keys of `cluster.` in a config.

This process: shards are worked on one after the other, each with all cores.
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

    do: a function of a module of this project, called once for each job, on any node, in any order. A job whose node
        died is done again elsewhere: what it had finished lies in the cache, and is not computed again.
    jobs: frozen values of plain data, small: they name what lies in the cache.
    sizes: of each job, in `unit`, for the progress of the whole.
    unit: what the progress counts, such as "documents".
    needs: "model": a job loads an encoder, so that few run at a time, each with many cores or a GPU; "cores": any
        number may run.
    store: the folder or address of the cache that the jobs name, so that a cluster can tell whether all of its nodes
        see it; None: they name none.
    """

    do: Callable[[JobT], ResultT]
    jobs: Sequence[JobT]
    sizes: Sequence[int]
    unit: str = "documents"
    needs: Literal["cores", "model"] = "cores"
    store: str | None = None


class Cluster(Protocol):
    """Does work on shards.

    shard: about how many documents a shard has; None: the corpus is not cut, and every step works on the whole.
    """

    shard: int | None

    def run(self, work: ShardWork[Any, ResultT], progress: Progress | None = None) -> list[ResultT]:
        """The result of each job, in order. Failed where a job fails, or no node is left to do it.

        progress: called as progress(done, total, unit).
        """

    def examined(self) -> str:
        """What the nodes are, on one line, once they have answered; empty where there are none beside this process.

        BadInput or Failed for what keeps them from working together.
        """


Documents = Annotated[int, AtMost(100_000_000, "no node has as much memory")]


class Local:
    """Works in this process alone.

    shard: about how many documents a shard has; None: the corpus is kept in memory and not cut.
    """

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
    """Counts what a job counts as a part of the whole. before: the sizes of earlier jobs."""
    reached = 0

    def count(done: int, of: int, _: str) -> None:
        nonlocal reached
        if of and (now := size * done // of) > reached:  # a job may count several things, one after the other
            reached = now
            progress(before + now, total, unit)

    return count


def checked_shard(shard: int | None) -> int | None:
    """BadInput unless it is a number of documents, at least 1, or None."""
    if shard is not None and (isinstance(shard, bool) or not isinstance(shard, int) or shard < 1):
        raise BadInput(f"cluster.shard is {shard!r}: give a number of documents, at least 1, or null.")
    return shard
