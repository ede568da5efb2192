"""Trackers that only write: to a CSV table, or to Weights & Biases."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from harness.children import refuse_settings
from harness.config.schema import WritePath
from harness.data.tables import csv_text, read_columns
from harness.errors import BadInput, Failed
from harness.storage.atomic import write_text
from harness.tracking.file_hashes import FILE_HASHES
from harness.tracking.outbox import UNFINISHED
from harness.tracking.tracker import CLAIM, NOTE, Detail, RunRecord, Tracker
from retrievers.hosts import name_host

TABLE = "runs.csv"
LEFT_OUT = (NOTE, CLAIM, FILE_HASHES)  # tags that serve only MLflow's pages and other commands
OFFLINE = ("offline", "disabled")  # values of WANDB_MODE


class CsvTracker(Tracker):
    """Adds a row to a table when a run ends: time, status, name, folder, metrics, params, tags.

    A new metric, param or tag adds a column. Several processes may log at once.

    path: the file of the table; None for `<outputs>/runs.csv`.
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
        """Before anything is computed, raise BadInput if the table cannot be read."""
        super().connect(outputs)
        self._columns()

    def finish(self, run_id: str | None, record: RunRecord, status: str) -> None:
        from filelock import FileLock

        began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.began / 1000))
        folder = str(record.folder).removesuffix(UNFINISHED) if record.folder else None
        row: dict[str, Any] = {"start_time": began, "status": status, "experiment": record.experiment}
        row |= {"name": record.name, "folder": folder}  # other columns have prefixes, as in `mlflow.search_runs`
        kinds = {"metrics": record.all_metrics, "params": record.params, "tags": _plain_tags(record)}
        row |= {f"{kind}.{name}": value for kind, named in kinds.items() for name, value in named.items()}
        self.table.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self.table.with_name(f".{self.table.name}.lock")):
            columns = self._columns()
            rows = max(map(len, columns.values()), default=0)
            columns |= {name: [None] * rows for name in row if name not in columns}
            write_text(self.table, csv_text({name: [*cells, row.get(name)] for name, cells in columns.items()}))

    def _columns(self) -> dict[str, list[Any]]:
        return dict(read_columns(self.table)) if self.table.exists() else {}


class WandbTracker(Tracker):
    """Sends each run when it ends: params and tags as W&B's config, metrics as W&B's summary. Files are not sent.

    The experiment's name becomes the W&B project's name. WANDB_API_KEY or an earlier `wandb login` identifies the user.
    With WANDB_MODE=offline, runs wait in `<outputs>/wandb` for `wandb sync`.

    entity: a user or team; None for the user's default.
    """

    recorded_as = "tracking/wandb"
    choice = "wandb"

    def __init__(self, entity: str | None = None, detail: Detail = "full") -> None:
        super().__init__(detail)
        self._entity = entity

    def connect(self, outputs: Path) -> None:
        """Before anything is computed, raise BadInput if the package or the key is missing."""
        super().connect(outputs)
        for folder in ("wandb", ".wandb"):
            place = Path(os.environ.get("WANDB_DIR") or ".", folder, "settings")
            refuse_settings(place, "W&B", "where it sends runs and the key", "WANDB_BASE_URL")
        try:
            import wandb
        except ImportError:
            raise BadInput("tracking=wandb needs a package: pip install wandb") from None
        if os.environ.get("WANDB_MODE") in OFFLINE:
            return
        name_host(str(wandb.setup().settings.base_url), "tracking=wandb")
        if not wandb.login(prompt=False):
            raise BadInput(
                "tracking=wandb needs a key. Set the environment variable WANDB_API_KEY; or set WANDB_MODE=offline and "
                "send the runs later by `wandb sync`."
            )

    def finish(self, run_id: str | None, record: RunRecord, status: str) -> None:
        import wandb

        outputs = self.outputs or Path()
        outputs.mkdir(parents=True, exist_ok=True)
        # Without these settings, W&B sends facts about this machine.
        unasked: dict[str, Any] = {"console": "off", "disable_git": True, "disable_code": True, "host": "unnamed"}
        unasked |= {"x_disable_meta": True, "x_disable_stats": True, "x_disable_machine_info": True}
        try:
            run = wandb.init(
                project=record.experiment,
                entity=self._entity,
                name=record.name,
                job_type=record.tags.get("harness.verb"),
                config={"status": status, **record.params, **_plain_tags(record)},
                dir=outputs,
                reinit="create_new",
                settings=wandb.Settings(silent=True, **unasked),
            )
            run.summary.update(record.all_metrics)
            run.finish(exit_code=0 if status == "FINISHED" else 1)
        except wandb.Error as error:
            raise Failed(
                f"W&B has not accepted run {record.name}: {error} Its files are in {outputs / 'runs'}."
            ) from error


def _plain_tags(record: RunRecord) -> dict[str, str]:
    """Return the tags that describe the run."""
    return {name: value for name, value in (record.tags | record.all_end_tags).items() if name not in LEFT_OUT}
