"""Retrievers over a corpus that is cut into shards, and the merging of the shards' rankings.

The class attribute `sharding` says how a retriever's index can be cut:

- "independent": `index` and `search` treat each shard as the whole corpus. Vectors may differ in the last digits if
  they are computed in different batches, so the cut is part of the rankings' identity.
- "summed": the retriever has the methods of `Summed`. Merged rankings equal the rankings of one index in every bit, and
  have the same identity.
- absent: the index cannot be cut. The retriever gets the documents as a sequence that reads them from disk.

Optional methods:

- `check_sharding()`: raise BadInput, before a run begins, if an index with these arguments cannot be cut.
- `sibling() -> Retriever`: return an instance that serves another shard and shares this one's model in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np

from retrievers.base import Document, Ranking, Retriever, occurring, one_table

TOGETHER = 8  # number of rankings merged at a time


class Summed(Retriever, Protocol):
    """Weighs the terms of a shard by statistics of the whole corpus, in two passes.

    surveyed_by: the retriever's arguments on which surveys depend. Surveys are reused unless one of these changes.
    """

    surveyed_by: tuple[str, ...]

    def survey(self, documents: Sequence[Document], folder: Path) -> None:
        """First pass: write a shard's statistics to `folder`: sums over its documents, such as document frequencies."""

    def summarise(self, surveys: Sequence[Path], folder: Path) -> None:
        """Write the statistics of the whole corpus to `folder`. surveys: the surveys of all shards, in order."""

    def index_shard(self, documents: Sequence[Document], survey: Path, summary: Path, folder: Path) -> None:
        """Second pass: write the index of a shard to `folder`. survey: the shard's own survey."""

    def load_shard(self, folder: Path, summary: Path) -> None:
        """Open the index of a shard. `search` then returns only documents of this shard."""


def merge_rankings(rankings: Iterable[Ranking], k: int) -> Ranking:
    """Return each query's k best documents over all shards. Average the rankings' `measured` values, if any.

    rankings: one or more, with equal `query_ids` and different documents. Only a few are in memory at a time.
    """
    best: list[Ranking] = []
    measured: list[Mapping[str, float]] = []
    left = iter(rankings)
    while some := [one.top(k) for one in islice(left, TOGETHER)]:
        measured += [one.measured for one in some]
        best = [_merged([*best, *some], k)]
    return best[0].with_measured(mean_measured(measured))


def mean_measured(several: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return name -> mean of the values in all mappings that have this name."""
    measured: dict[str, list[float]] = {}
    for one in several:
        for name, value in one.items():
            measured.setdefault(name, []).append(value)
    return {name: float(np.mean(values)) for name, values in sorted(measured.items())}


def _merged(parts: Sequence[Ranking], k: int) -> Ranking:
    if any(one.query_ids != parts[0].query_ids for one in parts):
        raise ValueError("rankings to merge must have the same queries in the same order")
    table, places = one_table([one.doc_ids for one in parts])
    docs = np.hstack([np.append(place, -1)[one.docs] for place, one in zip(places, parts, strict=True)])
    scores = np.hstack([one.scores for one in parts])
    order = np.lexsort((docs, np.where(docs >= 0, -scores, np.inf)), axis=1)[:, :k]
    docs, scores = np.take_along_axis(docs, order, axis=1), np.take_along_axis(scores, order, axis=1)
    used, docs = occurring(docs, len(table))
    return Ranking(parts[0].query_ids, tuple(table[i] for i in used.tolist()), docs, scores)
