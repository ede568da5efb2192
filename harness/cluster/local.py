"""This process: shards are worked on one after the other, each with all cores."""

from __future__ import annotations

from typing import Annotated, Any

from harness.cluster.cluster import ResultT, Work
from retrievers.base import AtMost, BadInput, Progress

Documents = Annotated[int, AtMost(100_000_000, "no node has as much memory")]


class Local:
    """Works in this process alone.

    shard: about how many documents a shard has; None: the corpus is kept in memory and not cut.
    """

    recorded_as = "cluster/local"
    version = 1

    def __init__(self, shard: Documents | None = None) -> None:
        self.shard = checked_shard(shard)

    def run(self, work: Work[Any, ResultT], progress: Progress | None = None) -> list[ResultT]:
        """As in Cluster."""
        results, done, total = [], 0, sum(work.sizes)
        for job, size in zip(work.jobs, work.sizes, strict=True):
            results.append(work.do(job))
            done += size
            if progress:
                progress(done, total, work.unit)
        return results


def checked_shard(shard: int | None) -> int | None:
    """BadInput unless it is a number of documents, at least 1, or None."""
    if shard is not None and (isinstance(shard, bool) or not isinstance(shard, int) or shard < 1):
        raise BadInput(f"cluster.shard is {shard!r}: give a number of documents, at least 1, or null.")
    return shard
