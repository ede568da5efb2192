"""The data of a board's runs, read again: the same documents, queries and labels once for all runs that share them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.data.dataset import Dataset
from harness.errors import BadInput
from harness.progress import stage
from harness.tracking.logged_run import load_unchanged, logged_config, logged_value
from harness.tracking.tracker import LoggedRun, Tracker

PARTS = ("data.documents", "data.queries", "data.qrels")


@dataclass(frozen=True, eq=False)
class ReadAgain:
    """The data of some runs as they are now.

    dataset: None where its documents or queries have changed, or cannot be read.
    grades: query_id -> {doc_id: grade} of relevant documents; None where the labels have changed, or cannot be read.
    """

    dataset: Dataset | None = None
    grades: Mapping[str, Mapping[str, float]] | None = None


@dataclass(frozen=True)
class Notice:
    """Something that a board does not show, in words that its page has in its reader's language.

    kind: unread (data could not be read again), unmarked (labels have changed), gone (lists that are no more), best
        (what only the best runs have), cut (documents without text). count: of runs or documents. why: a reason.
    """

    kind: str
    count: int
    why: str = ""


def read_again(runs: Sequence[LoggedRun], tracker: Tracker) -> tuple[list[ReadAgain], list[int], list[Notice]]:
    """(the data, the place in them of each run's, what could not be read again)."""
    keys = [tuple(run.tags.get(part) for part in PARTS) for run in runs]
    distinct = list(dict.fromkeys(keys))
    found, notes = [], []
    for key in distinct:
        data, why = _read(runs[keys.index(key)], tracker)
        found.append(data)
        if why:
            notes.append(Notice("unmarked" if data.dataset else "unread", keys.count(key), why))
    return found, [distinct.index(key) for key in keys], notes


def _read(run: LoggedRun, tracker: Tracker) -> tuple[ReadAgain, str]:
    """(the data of a run, why some of them are missing)."""
    if "data.documents" not in run.tags:
        return ReadAgain(), "scored files name no documents."
    try:
        with stage("reading the data again"):
            dataset = load_unchanged(run, logged_value(logged_config(tracker, run), "dataset", dict))
    except (BadInput, OSError) as error:
        return ReadAgain(), str(error)
    if dataset.qrels is None or dataset.fingerprints["qrels"] != run.tags.get("data.qrels"):
        return ReadAgain(dataset), f"The labels are not those of run {run.short_id}."
    return ReadAgain(dataset, dataset.qrels.grades), ""
