"""What ranked lists from a file score by the labels of a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.config.canonical import digest
from harness.config.components import build
from harness.data.dataset import conversations
from harness.evaluation.scores import Scores, ShownLists, score
from harness.evaluation.split import Split
from retrievers.base import BadInput, Predictions, Qrels


def file_scores(config: Mapping[str, Any], predictions: Predictions) -> tuple[Scores, Qrels]:
    """What lists made elsewhere score by the labels of a checked `score` config, and these labels."""
    source = build(config["dataset"], where="dataset")
    qrels = source.qrels()
    if qrels is None:
        raise BadInput("There are no labels to score with. Give them with dataset.qrels=FILE.")
    turns = None if _labels_alone(config["dataset"]) else conversations(source.queries())
    split = Split(config["public"], config["seed"])
    missing = config["missing"]
    scores = score(ShownLists(predictions), qrels, config["metrics"], split=split, multi_turn=turns, missing=missing)
    return scores, qrels


def lists_digest(predictions: Predictions) -> str:
    """sha256 of lists made elsewhere: queries and documents in the file's order, nothing else of it."""
    return digest([predictions.query_ids, predictions.doc_ids, predictions.docs.tolist()])


def _labels_alone(source: Mapping[str, Any]) -> bool:
    """Whether a data set's config gives labels without queries: enough to score, if not to tell conversations apart."""
    given = {name for name, value in source.items() if value}
    return "qrels" in given and not given & {"path", "queries"}
