"""Retrievers over a corpus that is cut into shards: what they provide, and how the shards' rankings become one.

A retriever says by its class attribute `sharding` how its index can be cut:

- "independent": each shard is indexed and searched as if it were the whole corpus, by `index` and `search`. Vectors
  that are computed in other batches may differ in the last digits, so the cut is part of the identity of the rankings.
- "summed": as `Summed` below. Rankings are equal to those of one index, bit by bit, and have its identity.
- absent: the index cannot be cut. The retriever gets the documents as a sequence that reads them from the disk.

Methods, optional:

- `check_sharding()`: BadInput where the index cannot be cut with these arguments, before a run begins.
- `sibling() -> Retriever`: another one with the same arguments and the same model in memory, to open another shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np

from retrievers.base import Document, Ranking, Retriever, one_table

TOGETHER = 8  # rankings merged at a time


class Summed(Retriever, Protocol):
    """A retriever that weighs the terms of a shard by statistics of the whole corpus, in two passes.

    Class attribute:
        surveyed_by: the arguments that decide surveys and summaries; others may change, and these are used again.
    """

    surveyed_by: tuple[str, ...]

    def survey(self, documents: Sequence[Document], folder: Path) -> None:
        """The first pass over a shard: write to `folder` what is to be summed, such as document frequencies."""
        ...

    def summarise(self, surveys: Sequence[Path], folder: Path) -> None:
        """Write to `folder` the statistics of the whole corpus. surveys: of all shards, in their order."""
        ...

    def index_shard(self, documents: Sequence[Document], survey: Path, summary: Path, folder: Path) -> None:
        """The second pass over a shard: write its index to `folder`. survey: of this shard."""
        ...

    def load_shard(self, folder: Path, summary: Path) -> None:
        """Open the index of a shard; `search` can then be called, and finds documents of this shard alone."""
        ...


def merge_rankings(rankings: Iterable[Ranking], k: int) -> Ranking:
    """Return the k best documents of each query over all shards, and the means of what they measured.

    rankings: at least one; of the same queries in the same order, and of different documents. Memory holds a few of
        them at a time.
    """
    best: list[Ranking] = []
    measured: dict[str, list[float]] = {}
    left = iter(rankings)
    while some := [one.top(k) for one in islice(left, TOGETHER)]:
        for one in some:
            for name, value in one.measured.items():
                measured.setdefault(name, []).append(value)
        best = [_merged([*best, *some], k)]
    if not best:
        raise ValueError("there is no ranking to merge")
    means = {name: float(np.mean(values)) for name, values in sorted(measured.items())}
    return replace(best[0], measured=means)


def _merged(parts: Sequence[Ranking], k: int) -> Ranking:
    if any(one.query_ids != parts[0].query_ids for one in parts):
        raise ValueError("rankings to merge must have the same queries in the same order")
    table, places = one_table([one.doc_ids for one in parts])
    docs = np.hstack([np.append(place, -1)[one.docs] for place, one in zip(places, parts, strict=True)])
    scores = np.hstack([one.scores for one in parts])
    order = np.lexsort((docs, np.where(docs >= 0, -scores, np.inf)), axis=1)[:, :k]
    docs, scores = np.take_along_axis(docs, order, axis=1), np.take_along_axis(scores, order, axis=1)
    used = np.unique(docs[docs >= 0])
    docs = np.where(docs >= 0, np.searchsorted(used, docs), -1).astype(np.int32)
    return Ranking(parts[0].query_ids, tuple(table[i] for i in used.tolist()), docs, scores)
