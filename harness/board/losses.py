"""The kind of loss of each query of runs of earlier versions, which did not log it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.config.text import counted
from harness.data.files import some
from harness.data.predictions import read_predictions
from harness.evaluation.judged import judge
from harness.evaluation.losses import kinds, losses
from harness.tracking.logged_run import load_unchanged, logged_config, logged_value
from harness.tracking.run_kind import Retrieval
from harness.tracking.tracker import LoggedRun, Tracker
from retrievers.base import BadInput, Qrels


@dataclass
class Derived:
    """Derives kinds of loss from the lists that runs returned, and from their labels if these are still the same.

    Where a list lacks relevant documents, it is unknown whether they were found: the list before the gate is not read.

    folder: for downloads.
    """

    tracker: Tracker
    folder: Path
    _qrels: dict[str, Qrels | str] = field(default_factory=dict)  # by sha256; why they are unknown
    _unknown: dict[str, int] = field(default_factory=dict)  # reason -> runs

    def kinds(self, run: LoggedRun, query_ids: Sequence[str]) -> tuple[str, ...] | None:
        """One of `losses.KINDS` for each of the queries; None where files are gone, or labels have changed."""
        qrels = self._labels(run)
        if not isinstance(qrels, str):
            try:
                if unlabelled := [query_id for query_id in query_ids if query_id not in qrels.grades]:
                    raise BadInput(f"scores.csv of run {run.short_id} has queries without labels: {some(unlabelled)}.")
                lists = read_predictions(self.tracker.download(run, Retrieval().predictions(run), self.folder))
                return kinds(losses(judge(lists, qrels, query_ids)), cut=True)
            except (BadInput, OSError) as error:
                qrels = str(error)
        self._unknown[qrels] = self._unknown.get(qrels, 0) + 1
        return None

    @property
    def notes(self) -> list[str]:
        """Which runs have no kinds of loss, and why."""
        return [
            f"Of {counted(count, 'run')} of an earlier version it is unknown how queries lose: {reason}"
            for reason, count in self._unknown.items()
        ]

    def _labels(self, run: LoggedRun) -> Qrels | str:
        """The labels of a run, read once for all runs with the same; why they are unknown, if they are."""
        digest = run.tags["data.qrels"]
        if digest not in self._qrels:
            try:
                source = logged_value(logged_config(self.tracker, run), "dataset", dict)
                qrels = load_unchanged(run, source, ("qrels",)).qrels
                assert qrels is not None  # its fingerprint is that of the run's
                self._qrels[digest] = qrels
            except (BadInput, OSError) as error:
                self._qrels[digest] = str(error)
        return self._qrels[digest]
