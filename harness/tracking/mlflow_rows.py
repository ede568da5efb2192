"""Write and read many runs at once, directly in the tables of MLflow's database.

The rows are those that MLflow's client writes and reads: `tests/tracking/test_mlflow_rows.py` compares all tables. This
takes about a tenth of the client's time. It is used only for the versions of MLflow and of its tables in `KNOWN`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlflow.entities import Metric, Param, RunTag
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
    from mlflow.tracking import MlflowClient

KNOWN = {"3.17.2": "dc11669786a5"}  # version of MLflow -> its revision of the tables
DATABASES = ("sqlite", "postgresql")
SOURCE = {"source_type": "UNKNOWN", "source_name": "", "source_version": "", "entry_point_name": ""}


@dataclass(frozen=True)
class RunRows:
    """A run as MLflow stores it. began, ended: milliseconds since 1970. entities: with unique names."""

    run_id: str
    experiment_id: str
    artifact_uri: str
    name: str
    status: str
    began: int
    ended: int
    entities: tuple[Sequence[Metric], Sequence[Param], Sequence[RunTag]]


def open_tables(client: MlflowClient) -> SqlAlchemyStore | None:
    """Return the store of a client if this module knows its tables, else None."""
    import mlflow
    from mlflow.store.db.utils import _get_schema_version
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    store = client._tracking_client.store
    if mlflow.__version__ not in KNOWN or type(store) is not SqlAlchemyStore or store.db_type not in DATABASES:
        return None
    return store if _get_schema_version(store.engine) == KNOWN[mlflow.__version__] else None


def write_rows(store: SqlAlchemyStore, runs: Sequence[RunRows]) -> None:
    """Write the runs, except those that the database has already. Raise MlflowException if MLflow would refuse one."""
    from mlflow.store.tracking.dbmodels.models import SqlLatestMetric, SqlMetric, SqlParam, SqlRun, SqlTag
    from mlflow.utils.validation import _validate_batch_log_data, _validate_param_keys_unique
    from sqlalchemy import insert, select

    rows: dict[Any, list[dict[str, Any]]] = {one: [] for one in (SqlRun, SqlTag, SqlParam, SqlMetric, SqlLatestMetric)}
    with store.ManagedSessionMaker(read_only=False) as session:
        wanted = select(SqlRun.run_uuid).where(SqlRun.run_uuid.in_([run.run_id for run in runs]))
        there = set(session.execute(wanted).scalars())
        for run in runs:
            if run.run_id in there:
                continue
            metrics, params, tags = _validate_batch_log_data(*run.entities)
            _validate_param_keys_unique(params)
            of_run, user = {"run_uuid": run.run_id}, {tag.key: tag.value for tag in tags}.get("mlflow.user", "unknown")
            rows[SqlRun].append(_run_row(run, user))
            rows[SqlTag] += [{"key": one.key, "value": one.value, **of_run} for one in tags]
            rows[SqlParam] += [{"key": one.key, "value": one.value, **of_run} for one in params]
            measured = [_metric_row(store, one) | of_run for one in metrics]
            rows[SqlMetric] += measured
            rows[SqlLatestMetric] += measured
        for table, several in rows.items():
            if several:
                session.execute(insert(table.__table__), several)


def _run_row(run: RunRows, user: str) -> dict[str, Any]:
    return SOURCE | {
        "run_uuid": run.run_id,
        "name": run.name,
        "user_id": user,
        "status": run.status,
        "start_time": run.began,
        "end_time": run.ended,
        "deleted_time": None,
        "lifecycle_stage": "active",
        "artifact_uri": run.artifact_uri,
        "experiment_id": int(run.experiment_id),
    }


def _metric_row(store: SqlAlchemyStore, metric: Metric) -> dict[str, Any]:
    is_nan, value = store.sanitize_metric_value(metric.value)
    return {"key": metric.key, "value": value, "timestamp": metric.timestamp, "step": metric.step, "is_nan": is_nan}


@dataclass
class ReadRun:
    """A run as it was read. began: milliseconds since 1970."""

    run_id: str
    name: str
    status: str
    began: int
    artifact_uri: str
    tags: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)


def read_rows(store: SqlAlchemyStore, experiment_id: str, tags: Mapping[str, str], status: str | None) -> list[ReadRun]:
    """Return an experiment's runs with these tags and this status (None: any), the latest first."""
    from mlflow.store.tracking.dbmodels.models import SqlLatestMetric, SqlParam, SqlRun, SqlTag
    from sqlalchemy import select

    wanted = select(SqlRun.run_uuid).where(SqlRun.experiment_id == int(experiment_id))
    wanted = wanted.where(SqlRun.lifecycle_stage == "active", *([SqlRun.status == status] if status else []))
    for key, value in tags.items():
        tagged = select(SqlTag.run_uuid).where(SqlTag.key == key, SqlTag.value == value)
        wanted = wanted.where(SqlRun.run_uuid.in_(tagged))
    about = select(SqlRun.run_uuid, SqlRun.name, SqlRun.status, SqlRun.start_time, SqlRun.artifact_uri)
    with store.ManagedSessionMaker() as session:
        rows = session.execute(about.where(SqlRun.run_uuid.in_(wanted)).order_by(SqlRun.start_time.desc(), "run_uuid"))
        runs = {run_id: ReadRun(run_id, name or "", *rest) for run_id, name, *rest in rows}
        for name, table in (("tags", SqlTag), ("params", SqlParam)):
            for run_id, key, value in session.execute(
                select(table.run_uuid, table.key, table.value).where(table.run_uuid.in_(wanted))
            ):
                getattr(runs[run_id], name)[key] = value
        found = select(SqlLatestMetric.run_uuid, SqlLatestMetric.key, SqlLatestMetric.value, SqlLatestMetric.is_nan)
        for run_id, key, value, is_nan in session.execute(found.where(SqlLatestMetric.run_uuid.in_(wanted))):
            runs[run_id].metrics[key] = math.nan if is_nan else value
    for run in runs.values():
        run.name = run.name or run.tags.get("mlflow.runName", "")
    return [*runs.values()]
