"""The full lists of logged retrieval runs: all documents that a run retrieved before its gate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.analysis.ranking import Wanted, distinct, rank, recommended_runs
from harness.config.text import counted
from harness.data.dataset import Dataset
from harness.data.predictions import trec_scores
from harness.errors import BadInput
from harness.recording.retrieval_run import RUN_FILE
from harness.tracking.tracker import RETRIEVAL, LoggedRun, NoFile, Tracker
from retrievers.base import one_word

LIGHT = "has no full lists: a sweep logs them only for its best trial. Repeat the run with `harness run`"


@dataclass(frozen=True)
class FullLists:
    """The full lists of a run. lists: query_id -> doc_ids, the best first. Queries without documents may be missing."""

    run: LoggedRun
    lists: Mapping[str, Sequence[str]]


def named(tracker: Tracker, words: Sequence[str], dataset: Dataset, folder: Path) -> list[FullLists]:
    """Return the full lists of the runs with these ids or beginnings of ids.

    Raise BadInput unless all are finished retrieval runs with full lists, on the dataset's documents and queries.
    """
    names, found = _Names(dataset), []
    for run in recommended_runs(tracker, words):
        if why := _unfit(run, dataset):
            raise BadInput(f"Run {run.named} {why}.")
        if (one := _read(tracker, run, names, folder)) is None:
            raise NoFile(f"Run {run.named} {LIGHT}.")
        found.append(one)
    return found


def best_repeatable(
    tracker: Tracker, wanted: Wanted, top: int, dataset: Dataset, folder: Path
) -> tuple[list[FullLists], list[str]]:
    """Return (the full lists of the `top` best configurations that have such lists, notes on left-out runs).

    Raise BadInput if no configuration has full lists that fit the dataset.
    """
    names = _Names(dataset)
    found: list[FullLists] = []
    left: Counter[str] = Counter()
    for one in distinct(rank(tracker, wanted).runs, by_lists=False):  # equal results may have different full lists
        if len(found) == top:
            break
        why = _unfit(one.run, dataset)
        full = None if why else _read(tracker, one.run, names, folder)
        if full:
            found.append(full)
        else:
            left[why or LIGHT] += 1
    which = {1: " that"}
    notes = [f"Left out: {counted(n, 'run')}{which.get(n, ', each of which')} {why}." for why, n in left.items()]
    if not found:
        raise BadInput(f"Experiment {wanted.experiment!r} has no run to pool. {' '.join(notes)}")
    return found, notes


def _unfit(run: LoggedRun, dataset: Dataset) -> str | None:
    """Return why a run cannot have full lists of this dataset, as a phrase to follow the run's name; None if it can."""
    if (verb := run.tags.get("harness.verb")) == "score":
        return "is a scored file, which may lack documents. Name a run of `harness run`"
    if verb != "run":
        return f"is a record of `harness {verb}`, which retrieved nothing"
    if (task := run.tags.get("task", RETRIEVAL)) != RETRIEVAL:
        return f"is of task={task}, which ranks no documents"
    if run.status == "RUNNING":
        return "has not ended. Wait for it"
    if run.status != "FINISHED":
        return f"is {run.status}: its lists may be incomplete. Repeat the run"
    for name in ("documents", "queries"):
        if run.tags.get(f"data.{name}") != dataset.fingerprints[name]:
            edited = " (they may have been edited)" if name == "queries" else " (they may have been prepared anew)"
            return f"was not made with the {name} that the test set has now{edited}. Repeat the run"
    return None


def _read(tracker: Tracker, run: LoggedRun, names: _Names, folder: Path) -> FullLists | None:
    """Return the full lists of a run; None if they were not logged. Raise BadInput if they are damaged."""
    try:
        file = tracker.download(run, RUN_FILE, folder / run.run_id)
    except NoFile:
        return None
    damaged = f"{RUN_FILE} of run {run.named} is damaged:"
    try:
        lists = {
            names.queries[query]: [names.documents[one] for one in scores]
            for query, scores in trec_scores(file).items()
        }
    except BadInput as error:
        raise BadInput(f"{damaged} {error}") from None
    except KeyError as error:
        raise BadInput(f"{damaged} the test set has no query or document {error.args[0]!r:.60}.") from None
    return FullLists(run, lists)


class _Names:
    """Map ids in TREC runs, where white space is percent-encoded (%20), to ids of the dataset."""

    def __init__(self, dataset: Dataset) -> None:
        self.queries = _words(query.query_id for query in dataset.queries)
        self.documents = _words(document.doc_id for document in dataset.documents)


def _words(ids: Iterable[str]) -> dict[str, str]:
    """Return id in TREC runs -> id of the dataset. Raise BadInput if TREC runs cannot tell two ids apart."""
    found: dict[str, str] = {}
    for one in ids:
        if (other := found.setdefault(one_word(one), one)) != one:
            raise BadInput(f"The ids {other!r:.60} and {one!r:.60} are the same in TREC runs. Change one of them.")
    return found
