"""Score ranked lists from a file against the labels of a dataset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from harness.config.canonical import canonical, digest_rows
from harness.config.commands import ScoreConfig
from harness.config.components import build
from harness.config.text import counted
from harness.data.dataset import conversations
from harness.data.predictions import Predictions
from harness.data.qrels import Qrels
from harness.data.source import Source, Streamed
from harness.errors import BadInput
from harness.measures.measures import requested
from harness.measures.scores import UNKNOWN, Scores, ShownLists, score_lists
from harness.statistics.split import Split
from retrievers.base import Ranking, row_blocks


def file_scores(config: ScoreConfig, predictions: Predictions) -> tuple[Scores, Qrels]:
    """Return the scores of the predictions, and the labels.

    The scores include the number of listed documents that the dataset lacks. Raise BadInput if the dataset has no
    labels or none of the listed documents.
    """
    source = build(config.dataset, where="dataset")
    qrels = source.qrels()
    if qrels is None:
        raise BadInput("The dataset has no labels to score with. Name a file of labels: dataset.qrels=FILE.")
    turns = None if labels_alone(config.dataset) else conversations(source.queries())
    scores = score_lists(
        ShownLists(predictions, complete=predictions.whole),
        qrels,
        requested(config.metrics or (), qrels),
        split=Split(config.public, config.seed),
        multi_turn=turns,
        missing=config.missing,
    )
    unknown = unknown_documents(source, predictions)
    return (replace(scores, counts={**scores.counts, UNKNOWN: len(unknown)}) if unknown else scores), qrels


def unknown_documents(source: Source, predictions: Predictions) -> set[str]:
    """Return the listed documents that the dataset lacks; the empty set if the dataset has only labels.

    Raise BadInput if the dataset has none of the listed documents.
    """
    try:
        documents = source.documents()
    except BadInput:  # the dataset has only labels
        return set()
    placed = None
    if isinstance(documents, Streamed):
        if not documents.path.exists():
            return set()
        placed = (document for _, document in documents.placed())
    unknown = set(predictions.doc_ids)
    for document in placed or documents if unknown else ():
        unknown.discard(document.doc_id)
        if not unknown:
            break
    if unknown and len(unknown) == len(predictions.doc_ids):
        raise BadInput(
            f"predictions: the dataset has none of the {counted(len(unknown), 'document')} in the lists, such as "
            f"{predictions.doc_ids[0]!r:.60}. Are they from another corpus? Name the dataset that they belong to, "
            "or only a file of labels: dataset=trec dataset.qrels=FILE."
        )
    return unknown


def lists_digest(lists: Predictions | Ranking) -> str:
    """Return the sha256 of the ranked doc_ids of all queries, regardless of the scores and of the order of queries."""
    order = np.array(sorted(range(len(lists.query_ids)), key=lists.query_ids.__getitem__), np.intp)
    rows = ((row, docs) for part in row_blocks(lists.docs.shape) for row, docs in _rows(lists.docs, order[part]))
    return digest_rows(
        _row_text(lists.query_ids[row], *[lists.doc_ids[doc] for doc in docs if doc >= 0]) for row, docs in rows
    )


@lru_cache(maxsize=1 << 14)  # trials of a sweep have most rows in common
def _row_text(*ids: str) -> str:
    return canonical(ids)


def _rows(docs: np.ndarray, rows: np.ndarray) -> Iterator[tuple[int, list[int]]]:
    return zip(rows.tolist(), docs[rows].tolist(), strict=True)


def labels_alone(source: Mapping[str, Any]) -> bool:
    """Return whether a dataset's config names labels, but no queries."""
    given = {name for name, value in source.items() if value}
    return "qrels" in given and not given & {"path", "queries"}
