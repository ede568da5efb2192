"""While the tracking server is down, save runs in folders, from which `doctor sync` uploads them later."""

from __future__ import annotations

import dataclasses
import itertools
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from harness.data.files import DAMAGED, open_unpacked
from harness.errors import BadInput
from harness.storage.atomic import write_text
from harness.storage.typed import row_as
from harness.tracking.mlflow_client import without_login
from harness.tracking.tracker import Detail, RunRecord, Status, Tracker, now_ms

ENDING = ".unsent"
UNFINISHED = ".unfinished"
RECORD = "record.json"
FILES = "files"  # folder of the run's files, next to the record


@dataclass
class Held:
    """A saved run.

    run_id: None if the run could not begin in the tracking store. store: the store's URI without user and password.
    """

    run_id: str | None
    status: Status
    store: str
    detail: Detail
    record: RunRecord


def hold(tracker: Tracker, record: RunRecord, *, run_id: str | None, status: str, folder: Path) -> Path:
    """Save a run in `<folder>.unsent` or the first unused `<folder>-n.unsent`, and return that folder.

    Move `record.folder` there. If it is None, the run's files are in the tracking store already.
    """
    names = (f"{folder.name}{'' if n == 1 else f'-{n}'}{ENDING}" for n in itertools.count(1))
    held = next(place for name in names if not (place := folder.with_name(name)).exists())
    saved = dataclasses.replace(record, folder=None, unsent=None, ended=record.ended or now_ms())
    unfinished = held.with_name(held.name + UNFINISHED)
    unfinished.mkdir(parents=True)
    try:
        write_saved(unfinished, Held(run_id, cast(Status, status), without_login(tracker.uri), tracker.detail, saved))
        if record.folder is not None:
            record.folder.rename(unfinished / FILES)
        return unfinished.rename(held)
    except OSError:  # such as a full disk
        shutil.rmtree(unfinished)
        raise


def write_saved(folder: Path, held: Held) -> None:
    write_text(folder / RECORD, _text(held))


def read_saved(folder: Path) -> Held:
    """Return a saved run. Raise BadInput with the name of the file if the file is damaged."""
    file = folder / RECORD
    try:
        with open_unpacked(file) as stream:
            held = row_as(Held, json.loads(stream.read()), str(file))
        _text(held).encode()
    except BadInput as error:
        raise BadInput(f"{error} Correct the file, or remove its folder to give up the run.") from None
    except (*DAMAGED, ValueError, RecursionError) as error:
        raise BadInput(
            f"{file} is not a saved run ({type(error).__name__}: {error!s:.200}). Correct the file, or remove its "
            "folder to give up the run."
        ) from None
    return held


def _text(held: Held) -> str:
    return json.dumps(dataclasses.asdict(held), ensure_ascii=False, indent=1) + "\n"
