"""Retrievers over a corpus that is cut into shards: what they provide, and how the shards' rankings become one.

A retriever says by its class attribute `sharding` how its index can be cut:

- "independent": each shard is indexed and searched as if it were the whole corpus, by `index` and `search`. Vectors
  that are computed in other batches may differ in the last digits, so the size of the shards is part of the identity
  of the rankings.
- "summed": as `Summed` below. Rankings are equal to those of one index, bit by bit, and have its identity.
- absent: the index cannot be cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from retrievers.base import Document, Ranking, Retriever


class Summed(Retriever, Protocol):
    """A retriever that weighs the terms of a shard by statistics of the whole corpus, in two passes."""

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


def merged(rankings: Sequence[Ranking], k: int) -> Ranking:
    """The k best documents of each query over all shards, in the order of score descending, then doc_id ascending.

    rankings: at least one; of the same queries in the same order, and of different documents. Of what they measured,
    the mean.
    """
    if any(one.query_ids != rankings[0].query_ids for one in rankings):
        raise ValueError("rankings to merge must have the same queries in the same order")
    table = tuple(sorted({doc_id for one in rankings for doc_id in one.doc_ids}))
    place = {doc_id: i for i, doc_id in enumerate(table)}
    docs = np.hstack([_renumbered(one, place) for one in rankings])
    scores = np.hstack([one.scores for one in rankings])
    order = np.lexsort((docs, np.where(docs >= 0, -scores, np.inf)), axis=1)[:, :k]
    names = {name for one in rankings for name in one.measured}
    measured = {
        name: float(np.mean([one.measured[name] for one in rankings if name in one.measured])) for name in sorted(names)
    }
    docs, scores = np.take_along_axis(docs, order, axis=1), np.take_along_axis(scores, order, axis=1)
    return Ranking(rankings[0].query_ids, table, docs, scores, measured)


def _renumbered(ranking: Ranking, place: dict[str, int]) -> np.ndarray:
    """The ranking's documents as places in another table, int32 [Q, K]."""
    places = np.array([*(place[doc_id] for doc_id in ranking.doc_ids), -1], np.int32)
    return places[ranking.docs]
