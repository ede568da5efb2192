"""Runs that begin once on an MLflow server, though its answers may be lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from harness import interruption
from harness.tracking.in_progress import TAG
from harness.tracking.mlflow_client import ONCE, asked

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient


def begin_once(
    client: MlflowClient, experiment_id: str, name: str, start_time: int, tags: Mapping[str, str]
) -> tuple[Run, bool]:
    """(a RUNNING run, whether the server may make another one for the same request).

    MLflow's client repeats a request without an answer, and a server that was only slow, or was killed before it could
    answer, then has two runs. So the request is sent once, and before it is sent again, the run is looked for by its
    claim.
    """
    from mlflow.exceptions import MlflowException

    def create() -> Run:
        return client.create_run(experiment_id, start_time=start_time, run_name=name, tags=dict(tags))

    if TAG not in tags:
        return create(), False
    try:
        with asked(ONCE):
            return create(), False
    except MlflowException as error:
        if error.get_http_status_code() < 500 or interruption.exit_code():  # our mistake, or the user's wish
            raise
    found = running(client, experiment_id, tags[TAG])
    return (found[0] if found else create()), True


def running(client: MlflowClient, experiment_id: str, claim: str) -> list[Run]:
    """The RUNNING runs of a claim."""
    wanted = f"tags.`{TAG}` = '{claim}' AND attributes.status = 'RUNNING'"
    return list(client.search_runs([experiment_id], wanted))
