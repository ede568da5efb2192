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
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
    from mlflow.tracking import MlflowClient
    from sqlalchemy.orm import Session

KNOWN = {"3.17.2": "dc11669786a5"}  # version of MLflow -> its revision of the tables
DATABASES = ("sqlite", "postgresql")
ENTITY = ("key", "value", "run_uuid")  # columns of params and of tags
METRIC = ("key", "value", "timestamp", "step", "is_nan", "run_uuid")
SOURCE = {"source_type": "UNKNOWN", "source_name": "", "source_version": "", "entry_point_name": ""}


Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class RunRows:
    """A run as MLflow stores it, with pairs (name, value). began, ended, logged: milliseconds since 1970."""

    run_id: str
    experiment_id: str
    artifact_uri: str
    name: str
    status: str
    began: int
    ended: int
    logged: int
    metrics: Sequence[tuple[str, float]]
    params: Pairs
    tags: Pairs


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
    from sqlalchemy import insert, select

    with store.ManagedSessionMaker(read_only=False) as session:
        wanted = select(SqlRun.run_uuid).where(SqlRun.run_uuid.in_([run.run_id for run in runs]))
        there = set(session.execute(wanted).scalars())
        if not (runs := [run for run in runs if run.run_id not in there]):
            return
        params, tags = _checked(runs)
        metrics = [_metric_row(store, run, *pair) for run in runs for pair in run.metrics]
        session.execute(insert(SqlRun.__table__), [_run_row(run) for run in runs])
        _insert(session, SqlTag, ENTITY, [(*tags[pair], run.run_id) for run in runs for pair in run.tags])
        _insert(session, SqlParam, ENTITY, [(*params[pair], run.run_id) for run in runs for pair in run.params])
        _insert(session, SqlMetric, METRIC, metrics)
        _insert(session, SqlLatestMetric, METRIC, metrics)


def _checked(runs: Sequence[RunRows]) -> list[dict[tuple[str, str], tuple[str, str]]]:
    """Return (name, value) -> name and value as MLflow stores them, of all params and of all tags.

    Let MLflow check each distinct name and value once: runs of a sweep share most of them.
    """
    from mlflow.entities import Metric, Param, RunTag
    from mlflow.utils.validation import _validate_batch_log_data, _validate_param_keys_unique

    metrics = {(name, type(value)): Metric(name, value, run.logged, 0) for run in runs for name, value in run.metrics}
    params = {pair: Param(*pair) for run in runs for pair in run.params}
    tags = {pair: RunTag(*pair) for run in runs for pair in run.tags}
    _, *checked = _validate_batch_log_data([*metrics.values()], [*params.values()], [*tags.values()])
    for run in runs:
        if len({name for name, _ in run.params}) < len(run.params):
            _validate_param_keys_unique([Param(*pair) for pair in run.params])
    return [
        {pair: (one.key, one.value) for pair, one in zip(given, valid, strict=True)}
        for given, valid in zip((params, tags), checked, strict=True)
    ]


def _insert(session: Session, table: Any, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    from sqlalchemy import insert

    if rows and (connection := session.connection()).dialect.name == "sqlite":  # SQLAlchemy takes as long as SQLite
        values = ", ".join("?" * len(columns))
        statement = f"INSERT INTO {table.__tablename__} ({', '.join(columns)}) VALUES ({values})"  # noqa: S608
        connection.exec_driver_sql(statement, [*rows])
    elif rows:
        session.execute(insert(table.__table__), [dict(zip(columns, row, strict=True)) for row in rows])


def _run_row(run: RunRows) -> dict[str, Any]:
    return SOURCE | {
        "run_uuid": run.run_id,
        "name": run.name,
        "user_id": dict(run.tags).get("mlflow.user", "unknown"),
        "status": run.status,
        "start_time": run.began,
        "end_time": run.ended,
        "deleted_time": None,
        "lifecycle_stage": "active",
        "artifact_uri": run.artifact_uri,
        "experiment_id": int(run.experiment_id),
    }


def _metric_row(store: SqlAlchemyStore, run: RunRows, name: str, value: float) -> tuple[Any, ...]:
    is_nan, value = store.sanitize_metric_value(value)
    return name, value, run.logged, 0, is_nan, run.run_id


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
