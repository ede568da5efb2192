"""Runs that their tracking store was not there to take: kept whole, and sent later by the verb `doctor sync`."""

from __future__ import annotations

import dataclasses
import itertools
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from harness.data.files import write_text
from harness.tracking.mlflow_client import redacted
from harness.tracking.tracker import RunRecord, Tracker

ENDING = ".unsent"
RECORD = "record.json"  # beside the folder `files`, what was written of the run


def keep(
    tracker: Tracker, run_id: str | None, record: RunRecord, status: str, folder: Path, files: Path | None
) -> Path:
    """Keep a run's record and files in `<folder>.unsent`, or the next free name; returns it.

    run_id: None where the store did not even take the run's begin. files: None where they lie where the store keeps
    them.
    """
    place = next(_free_names(folder))
    place.mkdir(parents=True)
    if files is not None:
        files.rename(place / "files")
    content = dataclasses.asdict(dataclasses.replace(record, folder=None, ended=int(time.time() * 1000)))
    about = {"run_id": run_id, "status": status, "store": redacted(tracker.uri), "detail": tracker.detail}
    write_text(place / RECORD, json.dumps(about | {"record": content}, ensure_ascii=False, indent=1) + "\n")
    return place


def looks(metrics: Mapping[str, float]) -> bool:
    """Whether a run that logs these has shown private scores."""
    return any("private/" in name for name in metrics)


def _free_names(folder: Path) -> Iterator[Path]:
    for n in itertools.count(1):
        place = folder.with_name(f"{folder.name}{'' if n == 1 else f'-{n}'}{ENDING}")
        if not place.exists():
            yield place
