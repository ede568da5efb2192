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
from pathlib import Path
from typing import Protocol

import numpy as np

from retrievers.base import Document, Ranking, Retriever


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


def merged(rankings: Iterable[Ranking], k: int) -> Ranking:
    """The k best documents of each query over all shards, in the order of score descending, then doc_id ascending.

    rankings: at least one; of the same queries in the same order, and of different documents. They are taken one by
        one, so that memory holds two. Of what they measured, the mean.
    """
    best: Ranking | None = None
    measured: dict[str, list[float]] = {}
    for one in rankings:
        for name, value in one.measured.items():
            measured.setdefault(name, []).append(value)
        best = _used(one.top(k)) if best is None else _used(_merged(best, one.top(k), k))
    if best is None:
        raise ValueError("there is no ranking to merge")
    means = {name: float(np.mean(values)) for name, values in sorted(measured.items())}
    return Ranking(best.query_ids, best.doc_ids, best.docs, best.scores, means)


def _merged(one: Ranking, other: Ranking, k: int) -> Ranking:
    if one.query_ids != other.query_ids:
        raise ValueError("rankings to merge must have the same queries in the same order")
    table, places = _joined(one.doc_ids, other.doc_ids)
    docs = np.hstack([places[0][one.docs], places[1][other.docs]])
    scores = np.hstack([one.scores, other.scores])
    keys = np.where(docs >= 0, -scores, np.inf)
    if one.doc_ids and other.doc_ids and one.doc_ids[-1] < other.doc_ids[0]:
        order = np.argsort(keys, axis=1, kind="stable")[:, :k]  # all ids of the first are smaller: ties keep its order
    else:
        order = np.lexsort((docs, keys), axis=1)[:, :k]
    docs, scores = np.take_along_axis(docs, order, axis=1), np.take_along_axis(scores, order, axis=1)
    return Ranking(one.query_ids, table, docs, scores)


def _joined(one: Sequence[str], other: Sequence[str]) -> tuple[tuple[str, ...], list[np.ndarray]]:
    """(the ids of both in ascending order, for each of the two its documents' places there, with -1 for the pad)."""
    if not one or not other or one[-1] < other[0]:
        table = (*one, *other)
        places = [np.arange(len(one)), np.arange(len(one), len(table))]
    else:
        table = tuple(sorted({*one, *other}))
        place = {doc_id: i for i, doc_id in enumerate(table)}
        places = [np.fromiter((place[doc_id] for doc_id in ids), np.int64, len(ids)) for ids in (one, other)]
    return table, [np.append(found, -1).astype(np.int32) for found in places]


def _used(ranking: Ranking) -> Ranking:
    """The same ranking, whose table has only the documents that occur."""
    used = np.unique(ranking.docs[ranking.docs >= 0])
    docs = np.where(ranking.docs >= 0, np.searchsorted(used, ranking.docs), -1).astype(np.int32)
    return Ranking(ranking.query_ids, tuple(ranking.doc_ids[i] for i in used.tolist()), docs, ranking.scores)
