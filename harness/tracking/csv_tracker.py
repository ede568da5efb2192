"""Runs as rows of a CSV table, for people without a server."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from harness.config.schema import WritePath
from harness.data.tables import csv_text, read_columns
from harness.storage.atomic import write_text
from harness.tracking.file_hashes import FILE_HASHES
from harness.tracking.outbox import UNFINISHED
from harness.tracking.tracker import CLAIM, NOTE, Detail, RunRecord, Tracker

TABLE = "runs.csv"
LEFT_OUT = (NOTE, CLAIM, FILE_HASHES)  # tags for MLflow's pages, other processes, and reading files


class CsvTracker(Tracker):
    """Adds a row to a table when a run ends: time, status, name, folder, metrics, params, tags.

    A new metric, param or tag adds a column. Processes write one after another.

    path: of the table; None: `<outputs>/runs.csv`.
    """

    recorded_as = "tracking/csv"
    choice = "csv"

    def __init__(self, path: WritePath | None = None, detail: Detail = "full") -> None:
        super().__init__(detail)
        self._path = path

    @property
    def table(self) -> Path:
        return Path(self._path).absolute() if self._path else (self.outputs or Path()) / TABLE

    def connect(self, outputs: Path) -> None:
        """Raise BadInput if the table cannot be read, before anything is computed."""
        super().connect(outputs)
        self._columns()

    def finish(self, run_id: str | None, record: RunRecord, status: str) -> None:
        from filelock import FileLock

        began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.began / 1000))
        folder = str(record.folder).removesuffix(UNFINISHED) if record.folder else None
        row: dict[str, Any] = {"start_time": began, "status": status, "experiment": record.experiment}
        row |= {"name": record.name, "folder": folder}  # the rest has prefixes, as in `mlflow.search_runs`
        for kind, named in {"metrics": record.all_metrics, "params": record.params, "tags": plain_tags(record)}.items():
            row |= {f"{kind}.{name}": value for name, value in named.items()}
        self.table.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self.table.with_name(f".{self.table.name}.lock")):
            columns = self._columns()
            rows = max(map(len, columns.values()), default=0)
            columns |= {name: [None] * rows for name in row if name not in columns}
            write_text(self.table, csv_text({name: [*cells, row.get(name)] for name, cells in columns.items()}))

    def _columns(self) -> dict[str, list[Any]]:
        return dict(read_columns(self.table)) if self.table.exists() else {}


def plain_tags(record: RunRecord) -> dict[str, str]:
    """Return the tags that describe the run."""
    return {name: value for name, value in (record.tags | record.all_end_tags).items() if name not in LEFT_OUT}
