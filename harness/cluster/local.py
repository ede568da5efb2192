"""This process: shards are worked on one after the other, each with all cores."""

from __future__ import annotations

from typing import Annotated, Any

from harness.cluster.cluster import ResultT, ShardWork
from harness.errors import BadInput
from harness.progress import silent, told
from retrievers.base import AtMost, Progress

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
        """As in Cluster."""
        results, before, total = [], 0, sum(work.sizes)
        for job, size in zip(work.jobs, work.sizes, strict=True):
            with told(_part(progress or silent, before, size, total, work.unit)):
                results.append(work.do(job))
            before += size
            if progress:
                progress(before, total, work.unit)
        return results

    def examined(self) -> str:
        """As in Cluster."""
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
