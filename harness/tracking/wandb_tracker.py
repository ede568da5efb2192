"""Runs in Weights & Biases."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from harness.children import refuse_settings
from harness.errors import BadInput, Failed
from harness.tracking.csv_tracker import plain_tags
from harness.tracking.tracker import Detail, RunRecord, Tracker
from retrievers.hosts import name_host

OFFLINE = ("offline", "disabled")  # values of WANDB_MODE


class WandbTracker(Tracker):
    """Sends each run when it ends: params and tags as the config, metrics as the summary. Files stay in its folder.

    The experiment is the project. WANDB_API_KEY or an earlier `wandb login` identifies the user. With
    WANDB_MODE=offline, runs wait in `<outputs>/wandb` for `wandb sync`.

    entity: a user or team; None: the default one.
    """

    recorded_as = "tracking/wandb"
    choice = "wandb"

    def __init__(self, entity: str | None = None, detail: Detail = "full") -> None:
        super().__init__(detail)
        self._entity = entity

    def connect(self, outputs: Path) -> None:
        """Raise BadInput if the package or the key is missing, before anything is computed."""
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
        # W&B would send facts about this machine.
        unasked: dict[str, Any] = {"console": "off", "disable_git": True, "disable_code": True, "host": "unnamed"}
        unasked |= {"x_disable_meta": True, "x_disable_stats": True, "x_disable_machine_info": True}
        try:
            run = wandb.init(
                project=record.experiment,
                entity=self._entity,
                name=record.name,
                job_type=record.tags.get("harness.verb"),
                config={"status": status, **record.params, **plain_tags(record)},
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
