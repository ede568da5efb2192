"""Log a run that was saved while the tracking server was down."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from harness.tracking import file_hashes, outbox
from harness.tracking.outbox import ENDING, FILES, Held
from harness.tracking.tracker import CLAIM, TRIAL, RunRecord, Tracker


def upload(tracker: Tracker, folder: Path, held: Held) -> str | None:
    """Log a saved run, delete its folder and return its id. After a failure, this may be called again."""
    files = folder / FILES
    record = replace(held.record, folder=files if files.is_dir() else None)
    if record.folder:
        file_hashes.require_sealed(record, record.folder)
    begun = _begun(tracker, held)
    if begun is None or begun != held.run_id:
        held.run_id = begun or tracker.begin(record)
        outbox.write_saved(folder, held)
    tracker.finish(held.run_id, record, held.status)
    if record.shows_private:
        tracker.count_private_view(record.experiment)
    ending = "" if held.status == "FINISHED" else f".{held.status.lower()}"
    final = folder.with_name(folder.name.removesuffix(ENDING) + ending)
    if record.folder and not final.exists():
        files.rename(final)
    shutil.rmtree(folder)
    return held.run_id


def _begun(tracker: Tracker, held: Held) -> str | None:
    """Return the id under which the server began the run; None if it did not begin the run.

    If a reply of the server was lost, the run may have been begun twice: end the duplicates. A sweep's trials share the
    claim of the sweep's own run, but have numbers.
    """
    tags = held.record.tags
    running = tracker.runs(held.record.experiment, {CLAIM: tags[CLAIM]}, "RUNNING") if CLAIM in tags else []
    running = [run for run in running if run.tags.get(TRIAL) == tags.get(TRIAL)]
    known = held.run_id if held.run_id and tracker.has(held.run_id) else None
    own = known or (running[0].run_id if running else None)
    for twin in running:
        if twin.run_id != own:
            tracker.finish(twin.run_id, RunRecord(twin.experiment, twin.name), "KILLED")
    return own
