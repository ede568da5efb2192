"""The hashes of a run's files: logged when the run ends, so that no file that was edited later is believed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from harness.data.files import sha256_of, some
from harness.errors import BadInput
from harness.tracking.mlflow_files import table_text
from harness.tracking.tracker import LoggedRun, NoFile, RunRecord

FILE_HASHES = "files.sha256"  # tag: name -> sha256 of each file that a command may read back, as JSON
PAGES = (".html", ".png")  # for people; no command reads them
REMEDY = "Put the file back, or delete the run and make it again."


def seal(record: RunRecord, folder: Path) -> None:
    """Put the hashes of a run's files and tables into its tags. folder: where the files are."""
    record.end_tags[FILE_HASHES] = json.dumps(_hashes(record, folder), sort_keys=True)


def require_sealed(record: RunRecord, folder: Path) -> None:
    """BadInput, which names them, if files in a saved run's folder are not those that `seal` saw there."""
    then, now = _read(record.end_tags, record.name), _hashes(record, folder)
    if changed := [name for name in sorted(then | now) if then.get(name) != now.get(name)]:
        raise BadInput(f"{some(changed)} changed since the run was saved. Put them back, or remove the folder.")


def verify(run: LoggedRun, name: str, file: Path) -> None:
    """BadInput, which names the run and the file, unless the file is as the run has logged it."""
    then, now = _read(run.tags, run.named).get(name), sha256_of(file)
    if then is None:
        raise BadInput(
            f"Run {run.named} has not logged the hash of {name}, so that nothing tells whether the file was edited: it "
            "was added later, or an earlier version made the run. Make the run again."
        )
    if then != now:
        raise BadInput(
            f"{name} of run {run.named} has changed since the run logged it: its sha256 was {then[:12]}… and is "
            f"{now[:12]}…. {REMEDY}"
        )


def checked(run: LoggedRun, name: str, fetch: Callable[[], Path]) -> Path:
    """The file that `fetch` gives, verified. NoFile if there is none; BadInput if the run has logged one."""
    try:
        file = fetch()
    except NoFile as why:
        if name in _read(run.tags, run.named):
            raise BadInput(f"{name} of run {run.named} is gone ({type(why.__cause__).__name__}). {REMEDY}") from why
        raise
    verify(run, name, file)
    return file


def _hashes(record: RunRecord, folder: Path) -> dict[str, str]:
    found = {name: hashlib.sha256(table_text(table).encode()).hexdigest() for name, table in record.tables.items()}
    files = (file for file in folder.iterdir() if file.is_file() and file.suffix not in PAGES)
    return found | {file.name: sha256_of(file) for file in files}


def _read(tags: Mapping[str, str], named: str) -> dict[str, str]:
    """name -> sha256, as a run has logged them; {} if it has not."""
    try:
        found = json.loads(tags.get(FILE_HASHES, "{}"))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
        raise BadInput(f"The tag {FILE_HASHES} of run {named} is damaged. Delete the run and make it again.")
    return found
