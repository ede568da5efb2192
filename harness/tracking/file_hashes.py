"""Read and write files of runs in MLflow. A run logs its files' hashes when it ends; files edited later are refused."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from harness.data.files import sha256_of, some
from harness.errors import BadInput
from harness.tracking.tracker import LoggedRun, NoFile, RunRecord

if TYPE_CHECKING:
    from mlflow.store.artifact.artifact_repo import ArtifactRepository
    from mlflow.tracking import MlflowClient

Table = Mapping[str, Sequence[Any]]  # column -> values


class RunFiles:
    """The files of a tracking store's runs.

    The folders of an experiment's runs are in one artifact repository, which this class opens once, not for each run.
    """

    def __init__(self, client: MlflowClient, uri: str) -> None:
        self._client, self._uri = client, uri
        self._uris: dict[str, str] = {}  # run id -> URI of its files
        self._around = ("", "")  # the latest URI, split at the run's id; runs of an experiment share these two parts
        self._copies: dict[str, Path] = {}  # run id -> a folder with the same files
        self._opened: dict[str, ArtifactRepository] = {}  # start of a URI, up to the run's id -> the repository

    def note(self, run_id: str, uri: str | None, latest: bool = False) -> None:
        """Remember where a run's files are. latest: whether this process has just begun the run."""
        self._uris[run_id] = uri or ""
        if latest:
            self._around = self._uris[run_id].partition(run_id)[::2]

    def keep(self, run_id: str, folder: Path) -> None:
        """Remember a folder that has all files of a run, until more files are stored or the folder is removed."""
        self._copies[run_id] = folder

    def forget(self, run_id: str) -> None:
        self._uris.pop(run_id, None)

    def place(self, run_id: str) -> Path | None:
        """Return a run's folder on this machine; None if the run is unknown or on a server."""
        return local_place(self._uris.get(run_id, ""))

    def add(self, run_id: str, uri: str, folder: Path) -> None:
        """Store the files of a run before the run itself is stored. On this machine, move their folder.

        Do nothing if an earlier call has moved it.
        """
        self.note(run_id, uri, latest=True)
        if not (place := self.place(run_id)):
            self.upload(run_id, folder)
        elif folder != place and folder.is_dir():
            shutil.rmtree(place, ignore_errors=True)  # what a call has left that was interrupted
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(folder, place)
        self.forget(run_id)

    def upload(self, run_id: str, folder: Path) -> None:
        self._copies.pop(run_id, None)
        opened, inside = self._at(run_id)
        opened.log_artifacts(str(folder), inside)  # one file after another, since parallel uploads took longer

    def upload_tables(self, run_id: str, tables: Mapping[str, Table]) -> None:
        """Store tables under their file names, in the form that MLflow's pages read."""
        with tempfile.TemporaryDirectory() as folder:
            for name, table in tables.items():
                (Path(folder) / name).write_text(mlflow_table_text(table), "utf-8")
            self.upload(run_id, Path(folder))

    def download(self, run_id: str, name: str, folder: Path) -> Path:
        """Return a run's file; do not change this file. A server's file is copied to `folder`, which is made if needed.

        Raise NoFile if the run has no such file.
        """
        guessed = local_place(run_id.join(self._around))  # correct if the latest run belongs to the same experiment
        own = self._copies.get(run_id) or self.place(run_id)
        for artifacts in filter(None, (own, guessed)):
            if (artifacts / name).is_file():
                return artifacts / name
        folder.mkdir(parents=True, exist_ok=True)
        try:
            if own and own.is_dir() and not (own / name).exists():  # MLflow would take long to find out
                raise FileNotFoundError
            opened, inside = self._at(run_id)
            return Path(opened.download_artifacts(f"{inside}/{name}" if inside else name, str(folder)))
        except Exception as why:
            raise NoFile(f"Run {run_id} has no file {name!r} ({type(why).__name__}). Choose another run.") from why

    def _at(self, run_id: str) -> tuple[ArtifactRepository, str | None]:
        """Return the opened repository of the run's experiment, and the path of the run's files inside it."""
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        if run_id not in self._uris:
            self.note(run_id, self._client.get_run(run_id).info.artifact_uri)
        before, found, after = self._uris[run_id].partition(run_id)
        if before not in self._opened:
            self._opened[before] = get_artifact_repository(before.rstrip("/"), tracking_uri=self._uri)
        return self._opened[before], f"{found}{after}" or None


def mlflow_table_text(table: Table) -> str:
    """Return a table in the form that MLflow's pages read."""
    rows = list(zip(*table.values(), strict=True))
    return json.dumps({"columns": list(table), "data": rows}, ensure_ascii=False)


def local_place(uri: str) -> Path | None:
    """Return the file or folder of a URI on this machine; None for another URI."""
    parts = urlsplit(uri)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


FILE_HASHES = "files.sha256"  # a tag with JSON: name -> sha256 of each file that a command may read back
PAGES = (".html", ".png")  # endings of files that no command reads
REMEDY = "Put the file back, or delete the run and make it again."


def seal(record: RunRecord, folder: Path) -> None:
    """Put the hashes of a run's files and tables into the run's tags. folder: the folder of the files."""
    record.end_tags[FILE_HASHES] = json.dumps(_hashes(record, folder), sort_keys=True)


def require_sealed(record: RunRecord, folder: Path) -> None:
    """If files of a saved run have changed since `seal`, raise BadInput with their names."""
    then, now = _read(record.end_tags, record.name), _hashes(record, folder)
    if changed := [name for name in sorted(then | now) if then.get(name) != now.get(name)]:
        raise BadInput(f"{some(changed)} changed since the run was saved. Restore them, or remove the run's folder.")


def verify(run: LoggedRun, name: str, file: Path) -> None:
    """Raise BadInput with the names of the run and the file if the file has changed since the run logged it."""
    then, now = _read(run.tags, run.named).get(name), sha256_of(file)
    if then is None:
        raise BadInput(
            f"Run {run.named} has not logged the hash of {name}, so edits of this file cannot be found. The file was "
            "added later, or an earlier version of the harness made the run. Make the run again."
        )
    if then != now:
        raise BadInput(
            f"{name} of run {run.named} has changed since the run logged it: its sha256 was {then[:12]}… and is "
            f"{now[:12]}…. {REMEDY}"
        )


def fetch_verified(run: LoggedRun, name: str, fetch: Callable[[], Path]) -> Path:
    """Return the verified file from `fetch`. For a missing file, raise BadInput if the run logged it, else NoFile."""
    try:
        file = fetch()
    except NoFile as why:
        if name in _read(run.tags, run.named):
            raise BadInput(f"{name} of run {run.named} is gone ({type(why.__cause__).__name__}). {REMEDY}") from why
        raise
    verify(run, name, file)
    return file


def _hashes(record: RunRecord, folder: Path) -> dict[str, str]:
    found = {
        name: hashlib.sha256(mlflow_table_text(table).encode()).hexdigest() for name, table in record.tables.items()
    }
    files = (file for file in folder.iterdir() if file.is_file() and file.suffix not in PAGES)
    return found | {file.name: sha256_of(file) for file in files}


def _read(tags: Mapping[str, str], named: str) -> dict[str, str]:
    try:
        found = json.loads(tags.get(FILE_HASHES, "{}"))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
        raise BadInput(f"The tag {FILE_HASHES} of run {named} is damaged. Delete the run and make it again.")
    return found
