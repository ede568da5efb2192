"""`harness doctor sync`: upload the runs that were saved while the tracking server was down."""

from __future__ import annotations

from harness.config.check import Invocation
from harness.config.commands import SyncConfig
from harness.config.components import build
from harness.errors import BadInput
from harness.progress import watch
from harness.recording.recording import open_tracker
from harness.recording.sending import upload
from harness.reports.report import Report
from harness.reports.result import CommandAnswer
from harness.tracking import outbox
from harness.tracking.mlflow_client import shown_address, uri_of, without_login
from harness.tracking.outbox import ENDING, RECORD
from harness.tracking.tracker import Tracker


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
                run_id = upload(_tracker_of(held.detail, config, opened), folder, held)
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
