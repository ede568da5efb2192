"""Scoring ranked lists from a file against the labels of a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.config.canonical import digest
from harness.config.components import build
from harness.data.dataset import conversations
from harness.evaluation.measures import requested
from harness.evaluation.scores import Scores, ShownLists, score
from harness.evaluation.split import Split
from retrievers.base import BadInput, Predictions, Qrels


def file_scores(config: Mapping[str, Any], predictions: Predictions) -> tuple[Scores, Qrels]:
    """(scores of the predictions, the labels used), by a checked config of `harness score`."""
    source = build(config["dataset"], where="dataset")
    qrels = source.qrels()
    if qrels is None:
        raise BadInput("There are no labels to score with. Name the file that has them: dataset.qrels=FILE.")
    turns = None if labels_alone(config["dataset"]) else conversations(source.queries())
    split = Split(config["public"], config["seed"])
    missing = config["missing"]
    scores = score(
        ShownLists(predictions, complete=predictions.whole),
        qrels,
        requested(config["metrics"], qrels),
        split=split,
        multi_turn=turns,
        missing=missing,
    )
    return scores, qrels


def lists_digest(predictions: Predictions) -> str:
    """sha256 of the queries and documents of the predictions, in the file's order; scores do not enter."""
    return digest([predictions.query_ids, predictions.doc_ids, predictions.docs.tolist()])


def labels_alone(source: Mapping[str, Any]) -> bool:
    """Whether a dataset's config names labels but no queries; then conversations cannot be told from single queries."""
    given = {name for name, value in source.items() if value}
    return "qrels" in given and not given & {"path", "queries"}
