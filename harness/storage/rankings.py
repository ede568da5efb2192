"""Rankings on disk.

ids.json:   {query_ids, doc_ids, measured}, as in `Ranking`, with those documents that occur.
docs.npy:   int32 [Q, K]. scores.npy: float64 [Q, K].
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from retrievers.base import Ranking, load_array, occurring, one_table, row_blocks
from retrievers.sharding import mean_measured


def save_ranking(parts: Iterable[Ranking], folder: Path) -> None:
    """Write a ranking to a folder. parts: at least one, with consecutive queries; one part is in memory at a time."""
    saved: list[Ranking] = []
    for number, part in enumerate(parts):
        place = folder / f"part-{number}"
        place.mkdir()
        _save(part, place)
        saved.append(load_ranking(place))
    if len(saved) > 1:
        _join(saved, folder)
    else:
        for file in sorted((folder / "part-0").iterdir()):
            file.rename(folder / file.name)
    for number in range(len(saved)):
        shutil.rmtree(folder / f"part-{number}")


def load_ranking(folder: Path) -> Ranking:
    """Return the ranking that `save_ranking` wrote, with memory-mapped arrays."""
    ids = json.loads((folder / "ids.json").read_text("utf-8"))
    docs, scores = load_array(folder, "docs"), load_array(folder, "scores")
    return Ranking(tuple(ids["query_ids"]), tuple(ids["doc_ids"]), docs, scores, ids["measured"])


def _save(ranking: Ranking, folder: Path) -> None:
    used, docs = occurring(ranking.docs, len(ranking.doc_ids))
    np.save(folder / "docs.npy", docs, allow_pickle=False)
    np.save(folder / "scores.npy", ranking.scores, allow_pickle=False)
    _save_ids(ranking.query_ids, [ranking.doc_ids[i] for i in used.tolist()], dict(ranking.measured), folder)


def _save_ids(query_ids: Sequence[str], doc_ids: Sequence[str], measured: dict[str, float], folder: Path) -> None:
    text = json.dumps({"query_ids": query_ids, "doc_ids": doc_ids, "measured": measured}, ensure_ascii=False)
    (folder / "ids.json").write_text(text, "utf-8")


def _join(parts: Sequence[Ranking], folder: Path) -> None:
    doc_ids, places = one_table([one.doc_ids for one in parts])
    shape = sum(len(one.docs) for one in parts), max(one.docs.shape[1] for one in parts)
    docs = np.lib.format.open_memmap(folder / "docs.npy", "w+", np.int32, shape)
    scores = np.lib.format.open_memmap(folder / "scores.npy", "w+", np.float64, shape)
    first = 0
    for one, place in zip(parts, places, strict=True):
        numbers = np.append(place, np.int32(-1))
        for part in row_blocks(one.docs.shape):
            rows, width = slice(first + part.start, first + min(part.stop, len(one.docs))), one.docs.shape[1]
            docs[rows, :width], docs[rows, width:] = numbers[one.docs[part]], -1
            scores[rows, :width] = one.scores[part]
        first += len(one.docs)
    query_ids = [*chain.from_iterable(one.query_ids for one in parts)]
    _save_ids(query_ids, doc_ids, mean_measured(one.measured for one in parts), folder)
