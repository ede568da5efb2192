"""Runs that could not be logged because the tracking server was down: saved whole until `doctor sync` uploads them."""

from __future__ import annotations

import dataclasses
import itertools
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from harness.data.files import write_text
from harness.tracking.mlflow_client import without_login
from harness.tracking.tracker import RunRecord, Tracker

ENDING = ".unsent"
UNFINISHED = ".unfinished"
RECORD = "record.json"
FILES = "files"  # folder beside the record: the run's files


def hold(tracker: Tracker, record: RunRecord, *, run_id: str | None, status: str, folder: Path) -> Path:
    """Save a run in `<folder>.unsent`, or in the next free `<folder>-n.unsent`; returns that folder.

    record: its `folder` is moved here; None if the files are in the tracking store.
    run_id: None if the run could not even begin in the tracking store.
    """
    held = next(_free_names(folder))
    content = dataclasses.asdict(dataclasses.replace(record, folder=None, ended=int(time.time() * 1000)))
    about = {"run_id": run_id, "status": status, "store": without_login(tracker.uri), "detail": tracker.detail}
    unfinished = held.with_name(held.name + UNFINISHED)
    unfinished.mkdir(parents=True)
    try:
        write_text(unfinished / RECORD, json.dumps(about | {"record": content}, ensure_ascii=False, indent=1) + "\n")
        if record.folder is not None:
            record.folder.rename(unfinished / FILES)
        return unfinished.rename(held)
    except OSError:  # such as of a full disk
        shutil.rmtree(unfinished)
        raise


def _free_names(folder: Path) -> Iterator[Path]:
    for n in itertools.count(1):
        candidate = folder.with_name(f"{folder.name}{'' if n == 1 else f'-{n}'}{ENDING}")
        if not candidate.exists():
            yield candidate
