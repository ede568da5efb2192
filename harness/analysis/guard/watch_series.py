"""What one watch keeps for the next. An experiment has one run of `harness watch`, to which each watch adds a point."""

from __future__ import annotations

import gzip
import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from harness.data.dataset import Dataset
from harness.data.files import json_file, some
from harness.data.shards import fingerprint_row
from harness.progress import stage
from harness.storage.typed import encoded, row_as
from harness.tracking import file_hashes
from harness.tracking.tracker import LoggedRun, RunRecord, Tracker

VERB = "watch"
STATE = "watch.state"  # tag with the name of the file that holds the latest state
FIRST = 5  # number of ids that are listed


@dataclass(frozen=True, kw_only=True)
class WatchState:
    """What a watch has seen.

    step: the number of watches until then. baseline: the id of the run whose results were the baseline.
    queries: key of queries and labels -> query_id -> fingerprint of the query and its labels, see `fingerprints_of`.
        Those of the latest KEPT queries and labels that a watch has seen.
    fingerprint: sha256 of all documents. documents: doc_id -> 16 hexadecimal digits of a hash of the document.
    """

    watch: Literal[1] = 1
    step: int = 0
    baseline: str = ""
    queries: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    fingerprint: str = ""
    documents: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ListedIds:
    """Ids in ascending order. first: the first FIRST of them."""

    count: int
    first: Sequence[str]

    @classmethod
    def of(cls, ids: Sequence[str]) -> ListedIds:
        return cls(len(ids), ids[:FIRST])

    @property
    def text(self) -> str:
        return some(self.first, FIRST, self.count)


@dataclass(frozen=True)
class DocumentsChange:
    """The documents of today, and what has changed since the last watch.

    lists: "new", "gone" and "changed" -> ids; empty in the first watch.
    relevant: the number of changed documents that are relevant to a labelled query.
    """

    count: int
    lists: Mapping[str, ListedIds] = field(default_factory=dict)
    relevant: int = 0

    @property
    def sentence(self) -> str:
        if not self.lists:
            return "This is the first watch. From the next one on, the report lists new, gone and changed documents."
        found = ", ".join(f"{ids.count:,} {name}" for name, ids in self.lists.items() if ids.count)
        said = f"Documents since the last watch: {found or 'no change'}; {self.count:,} in all."
        return f"{said} Relevant to labelled queries: {self.relevant:,} of the changed ones." if found else said


def documents_change(before: WatchState, dataset: Dataset) -> tuple[DocumentsChange, Mapping[str, str]]:
    """Return (what has changed since the state `before`, the hash of each document of today by its id)."""
    count, known, today = len(dataset.documents), before.documents, before.documents
    if before.fingerprint != dataset.fingerprints["documents"]:
        with stage("comparing the documents"):
            today = {
                document.doc_id: hashlib.blake2b(fingerprint_row(document), digest_size=8).hexdigest()
                for document in dataset.documents
            }
    if not before.fingerprint:
        return DocumentsChange(count), today
    parts = {
        "new": [one for one in today if one not in known],
        "gone": [one for one in known if one not in today],
        "changed": [one for one, digits in today.items() if known.get(one, digits) != digits],
    }
    grades = dataset.qrels.grades if dataset.qrels else {}
    relevant = {doc_id for of_query in grades.values() for doc_id in of_query}
    lists = {name: ListedIds.of(ids) for name, ids in parts.items()}
    return DocumentsChange(count, lists, len(relevant.intersection(parts["changed"]))), today


@dataclass(frozen=True, eq=False)
class WatchSeries:
    """The run of `harness watch` in an experiment, and its latest state. run: None before the first watch."""

    tracker: Tracker
    experiment: str
    run: LoggedRun | None
    state: WatchState

    @classmethod
    def read(cls, tracker: Tracker, experiment: str) -> WatchSeries:
        """Read the latest state. Raise BadInput if its file is gone or damaged."""
        runs = tracker.runs(experiment, {"harness.verb": VERB})
        run = next((one for one in runs if STATE in one.tags), runs[0] if runs else None)
        if run is None or STATE not in run.tags:  # a first watch that was stopped has a run without a state
            return cls(tracker, experiment, run, WatchState())
        with tempfile.TemporaryDirectory() as folder:
            file = tracker.download(run, run.tags[STATE], Path(folder))
            return cls(tracker, experiment, run, row_as(WatchState, json_file(file), f"{file.name} of {run.named}"))

    def add(self, state: WatchState, metrics: Mapping[str, float], tags: Mapping[str, str]) -> str:
        """Log a point and the state, and return the run's id.

        Two names of files take turns, and the tags that name a file and its hash come last. So if this call is
        stopped, the earlier state is still valid.
        """
        name = f"watch_{state.step % 2}.json.gz"
        with tempfile.TemporaryDirectory() as folder:
            content = json.dumps(encoded(state), ensure_ascii=False, separators=(",", ":"))
            (Path(folder) / name).write_bytes(gzip.compress(content.encode(), mtime=0))
            record = RunRecord(
                self.experiment,
                VERB,
                tags={"harness.verb": VERB},
                end_tags={**tags, STATE: name},
                metrics=dict(metrics),
                step=state.step,
                folder=Path(folder),
            )
            file_hashes.seal(record, Path(folder))
            run_id = self.run.run_id if self.run else self.tracker.begin(record)
            self.tracker.finish(run_id, record, "FINISHED")
        assert run_id is not None  # `open_store` returns a tracker that keeps runs
        return run_id
