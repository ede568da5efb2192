"""Runs that could not be logged because the tracking server was down: saved whole until `doctor sync` uploads them."""

from __future__ import annotations

import dataclasses
import itertools
import json
import shutil
import time
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from harness.data.files import DAMAGED, opened, write_text
from harness.evaluation.objective import Objective
from harness.tracking.mlflow_client import without_login
from harness.tracking.tracker import Detail, Input, RunRecord, Tracker
from retrievers.base import BadInput

ENDING = ".unsent"
UNFINISHED = ".unfinished"
RECORD = "record.json"
FILES = "files"  # folder beside the record: the run's files

Status = Literal["FINISHED", "FAILED", "KILLED"]


@dataclass
class Held:
    """A run in the outbox.

    run_id: None if the run could not even begin in the tracking store.
    store: URI of the tracking store that it was meant for, without a login.
    """

    run_id: str | None
    status: Status
    store: str
    detail: Detail
    record: RunRecord


def hold(tracker: Tracker, record: RunRecord, *, run_id: str | None, status: str, folder: Path) -> Path:
    """Save a run in `<folder>.unsent`, or in the next free `<folder>-n.unsent`; returns that folder.

    record: its `folder` is moved here; None if the files are in the tracking store.
    run_id: None if the run could not even begin in the tracking store.
    """
    held = next(_free_names(folder))
    saved = dataclasses.replace(record, folder=None, unsent=None, ended=int(time.time() * 1000))
    unfinished = held.with_name(held.name + UNFINISHED)
    unfinished.mkdir(parents=True)
    try:
        write(unfinished, Held(run_id, cast(Status, status), without_login(tracker.uri), tracker.detail, saved))
        if record.folder is not None:
            record.folder.rename(unfinished / FILES)
        return unfinished.rename(held)
    except OSError:  # such as of a full disk
        shutil.rmtree(unfinished)
        raise


def write(folder: Path, held: Held) -> None:
    """Write the record of a saved run into its folder."""
    write_text(folder / RECORD, _text(held))


def read(folder: Path) -> Held:
    """A saved run, as `write` wrote it. BadInput, which names the file, if it is damaged."""
    file = folder / RECORD
    try:
        with opened(file) as stream:
            content = json.loads(stream.read())
        held = Held(**content | {"record": RunRecord.from_json(content["record"])})
        wrong = _unfit(held) or _unfit(held.record, "record.")
        _text(held).encode()
    except BadInput:
        raise
    except (*DAMAGED, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        wrong = f"{type(error).__name__}: {error!s:.200}"
    if wrong:
        raise BadInput(f"{file} is no saved run ({wrong}). Correct it, or remove its folder to give the run up.")
    return held


def _text(held: Held) -> str:
    return json.dumps(dataclasses.asdict(held), ensure_ascii=False, indent=1) + "\n"


def _unfit(one: Held | RunRecord | Input | Objective, prefix: str = "") -> str:
    """The first field whose value is not what it must be, with that value; empty if there is none."""
    for name, hint in typing.get_type_hints(type(one)).items():
        if not _fits(value := getattr(one, name), hint):
            return f"{prefix}{name} is {value!r:.60}"
    return ""


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value read from JSON has the type of a field. Whole numbers are those that a database keeps."""
    kind: Any = typing.get_origin(hint) or hint
    inner = typing.get_args(hint)
    if kind is Any:
        return True
    if kind is Literal:
        return value in inner
    if kind is types.UnionType:
        return any(_fits(value, one) for one in inner)
    if kind is dict:
        return isinstance(value, dict) and all(_fits(one, inner[1]) for one in value.values())
    if kind is list:
        return isinstance(value, list) and all(_fits(one, inner[0]) for one in value)
    if isinstance(value, bool) or kind is bool:
        return kind is bool and isinstance(value, bool)
    if kind in (Input, Objective):
        return isinstance(value, kind) and not _unfit(value)
    if isinstance(value, int):
        return kind in (int, float) and abs(value) < 2**63
    return isinstance(value, kind)


def _free_names(folder: Path) -> Iterator[Path]:
    for n in itertools.count(1):
        candidate = folder.with_name(f"{folder.name}{'' if n == 1 else f'-{n}'}{ENDING}")
        if not candidate.exists():
            yield candidate
