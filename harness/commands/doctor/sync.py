"""`harness doctor sync`: upload the runs that were saved while the tracking server was down."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from harness.config.check import Invocation
from harness.config.commands import SyncConfig
from harness.config.components import build
from harness.errors import BadInput
from harness.progress import watch
from harness.recording.recording import open_tracker
from harness.reports.report import Report
from harness.reports.result import CommandAnswer
from harness.tracking import file_hashes, outbox
from harness.tracking.mlflow_client import shown_address, uri_of, without_login
from harness.tracking.outbox import ENDING, FILES, RECORD, Held
from harness.tracking.tracker import CLAIM, RunRecord, Tracker


def sync(config: SyncConfig, invocation: Invocation) -> CommandAnswer:
    """Upload every run saved in `outputs` to the tracking store of this command."""
    outputs = config.outputs.absolute()
    if not (tracker := build(config.tracking, where="tracking")).keeps_runs:
        raise BadInput(
            f"tracking={tracker.choice} cannot store runs. Leave tracking out, or name a server: tracking.uri=..."
        )
    elsewhere = any(word.startswith(("tracking.uri=", "tracking=")) for word in invocation.overrides)
    unsent = sorted(record.parent for record in outputs.rglob(f"*{ENDING}/{RECORD}"))
    own = without_login(config.tracking.get("uri") or uri_of(outputs / "mlflow.db"))
    opened: dict[str, Tracker | BadInput] = {}
    sent: list[dict[str, str | None]] = []
    left: list[dict[str, str]] = []
    with watch("sync") as progress:
        for n, folder in enumerate(unsent):
            progress(n, len(unsent), "runs")
            try:
                held = outbox.read_saved(folder)
                if not elsewhere and held.store != own:  # a saved run must not choose where it is sent
                    raise BadInput(
                        f"it was meant for {shown_address(held.store)}. Only the command line can name this address: "
                        "repeat the command with tracking.uri=ADDRESS."
                    )
                run_id = _upload(_tracker_of(held.detail, config, opened), folder, held)
            except Exception as error:  # one failure does not stop the other uploads
                kind = "" if isinstance(error, BadInput) else f"{type(error).__name__}: "
                left.append({"folder": str(folder), "why": f"{kind}{error}"})
            else:
                sent.append({"run_id": run_id, "name": held.record.name, "status": held.status})
    lines = [f"Uploaded {one['run_id']}: {one['name']} ({one['status']})" for one in sent]
    lines += [f"Still unsent: {one['folder']}: {one['why']}" for one in left]
    said = Report("", files=lines or [f"No unsent runs in {outputs}."])
    return CommandAnswer({"sent": sent, "left": left}, said, failed="" if left else None)


def _tracker_of(detail: str, config: SyncConfig, opened: dict[str, Tracker | BadInput]) -> Tracker:
    """Return a tracker that logs at the level `detail`. opened: level -> tracker or error of an earlier call."""
    if detail not in opened:
        try:
            opened[detail] = open_tracker(config.changed(tracking={**config.tracking, "detail": detail}))
        except BadInput as error:
            opened[detail] = error
    if isinstance(tracker := opened[detail], BadInput):
        raise tracker
    return tracker


def _begun(tracker: Tracker, held: Held) -> str | None:
    """Return the id under which the server began the run; None if it did not begin the run.

    If a reply of the server was lost, the run may have been begun twice: end the duplicates.
    """
    claim = held.record.tags.get(CLAIM)
    running = tracker.runs(held.record.experiment, {CLAIM: claim}, "RUNNING") if claim else []
    known = held.run_id if held.run_id and tracker.has(held.run_id) else None
    own = known or (running[0].run_id if running else None)
    for twin in running:
        if twin.run_id != own:
            tracker.finish(twin.run_id, RunRecord(twin.experiment, twin.name), "KILLED")
    return own


def _upload(tracker: Tracker, folder: Path, held: Held) -> str | None:
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
