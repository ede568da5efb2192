"""`harness doctor sync`: uploads the runs that were saved while the tracking server was down."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config.check import Invocation
from harness.config.components import build
from harness.data.files import write_text
from harness.progress import watch
from harness.reports import terminal
from harness.tracking.outbox import ENDING, RECORD, looks
from harness.tracking.tracker import RunRecord, Tracker
from retrievers.base import BadInput

if TYPE_CHECKING:
    from rich.console import Console


def sync(config: dict[str, Any], invocation: Invocation) -> dict[str, Any]:
    """Send every run that is kept under `outputs` to the store that it was meant for, or to `tracking.uri`."""
    outputs = Path(config["outputs"]).absolute()
    if not build(config["tracking"], where="tracking").keeps_files:
        raise BadInput("tracking=none takes no runs. Leave tracking out, or name a store: tracking.uri=...")
    elsewhere = any(word.startswith(("tracking.uri=", "tracking=")) for word in invocation.overrides)
    waiting = sorted(place.parent for place in outputs.rglob(f"*{ENDING}/{RECORD}"))
    trackers: dict[tuple[str, str], Tracker | BadInput] = {}
    sent, left = [], []
    with watch("sync") as progress:
        for n, place in enumerate(waiting):
            progress(n, len(waiting), "runs")
            try:
                about = json.loads((place / RECORD).read_text("utf-8"))
                node = dict(config["tracking"]) | {"detail": about["detail"]}
                if not elsewhere:
                    node["uri"] = about["store"]
                store = (str(node.get("uri")), about["detail"])
                if store not in trackers:
                    trackers[store] = _connected(node, outputs)
                if isinstance(tracker := trackers[store], BadInput):
                    raise tracker
                run_id = _send(tracker, place, about)
            except Exception as error:  # one that cannot be sent does not keep the others from it
                left.append({"folder": str(place), "why": f"{type(error).__name__}: {error}"})
            else:
                sent.append({"run_id": run_id, "name": about["record"]["name"], "status": about["status"]})
    document = {"sent": sent, "left": left}

    def show(console: Console) -> None:
        for one in sent:
            console.print(f"Sent {one['run_id']}: {one['name']} ({one['status']})")
        for one in left:
            console.print(f"Still kept: {one['folder']}: {one['why']}", style="red")
        if not waiting:
            console.print(f"Nothing waits in {outputs}.")

    terminal.emit(config["format"], document, show)
    if left:
        raise SystemExit(1)
    return document


def _connected(node: dict[str, Any], outputs: Path) -> Tracker | BadInput:
    """The tracker of a store, or why it cannot be used: waiting for a server once is enough."""
    tracker: Tracker = build(node, where="tracking")
    try:
        tracker.connect(outputs)
    except BadInput as error:
        return error
    return tracker


def _send(tracker: Tracker, place: Path, about: dict[str, Any]) -> str:
    """Log what is kept in `place`, and free the place; returns the run's id. May be called again after it failed."""
    record, files, run_id = RunRecord.from_json(about["record"]), place / "files", about["run_id"]
    record.folder = files if files.is_dir() else None
    if run_id is None or not tracker.has(run_id):
        run_id = about["run_id"] = tracker.begin(record)
        write_text(place / RECORD, json.dumps(about, ensure_ascii=False, indent=1) + "\n")
    tracker.finish(run_id, record, about["status"])
    if looks(record.metrics):
        tracker.count_private_view(record.experiment)
    ended = "" if about["status"] == "FINISHED" else f".{about['status'].lower()}"
    folder = place.with_name(place.name.removesuffix(ENDING) + ended)
    if record.folder and not folder.exists():
        files.rename(folder)
    shutil.rmtree(place)
    return run_id
