"""What is kept of a run, and where: MLflow, in this one place, in few calls."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit, urlunsplit

from harness.metrics import mlflow_name
from retrievers.base import BadInput, did_you_mean

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

PARAM_LIMIT = 6000  # characters that MLflow keeps of a param
TAG_LIMIT = 8000
EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}  # the pages for runs, not those for prompts

# MLflow draws bars for a handful of files, prints addresses to standard output and reports its use over the network.
QUIET = {
    "GIT_PYTHON_REFRESH": "quiet",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


@dataclass
class RunRecord:
    """One run as it is logged. Names are ours (`ndcg@10`); MLflow's spelling is the tracker's business.

    inputs: context ("documents", "queries", "qrels") -> (name, sha256, source, number of rows).
    table:  column -> values, one row a query. folder: its files become the run's artifacts.
    """

    experiment: str
    name: str
    params: dict[str, Any] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    inputs: dict[str, tuple[str, str, str, int]] = field(default_factory=dict)
    table: dict[str, list[Any]] | None = None
    folder: Path | None = None


@dataclass(frozen=True)
class LoggedRun:
    """A run read back. `metrics` and `params` carry MLflow's names."""

    run_id: str
    name: str
    experiment: str
    status: str
    metrics: dict[str, float]
    params: dict[str, str]
    tags: dict[str, str]


class Tracker(Protocol):
    def connect(self, outputs: Path) -> None: ...
    def begin(self, record: RunRecord) -> str | None: ...
    def finish(self, run_id: str | None, record: RunRecord, status: str) -> None: ...
    def best(self, experiment: str, metric: str, run_id: str | None = None) -> LoggedRun: ...
    def download(self, run_id: str, name: str, folder: Path) -> Path: ...


class NoTracker:
    """Nothing is logged and MLflow is not imported."""

    def connect(self, outputs: Path) -> None:
        pass

    def begin(self, record: RunRecord) -> str | None:
        return None

    def finish(self, run_id: str | None, record: RunRecord, status: str) -> None:
        pass

    def best(self, experiment: str, metric: str, run_id: str | None = None) -> LoggedRun:
        raise BadInput("tracking=none keeps no runs to choose from. Leave tracking out, or say tracking=mlflow.")

    def download(self, run_id: str, name: str, folder: Path) -> Path:
        raise BadInput("tracking=none keeps no files. Leave tracking out, or say tracking=mlflow.")


class MlflowTracker:
    """uri: of an MLflow server or database; None = `sqlite:///<outputs>/mlflow.db`."""

    def __init__(self, uri: str | None = None) -> None:
        self.uri = uri
        self.artifacts: str | None = None  # where a local store keeps files
        self._client: MlflowClient | None = None

    def connect(self, outputs: Path) -> None:
        """Open the store, made under a lock: several processes on a fresh SQLite store break it for good."""
        self.uri = _without_secrets(self.uri or f"sqlite:///{outputs.absolute() / 'mlflow.db'}")
        if not self.uri.startswith("sqlite:///"):
            self._client = _client(self.uri)
            return
        database = Path(self.uri.removeprefix("sqlite:///")).absolute()
        self.uri = f"sqlite:///{database}"
        self.artifacts = (database.parent / "artifacts").as_uri()
        database.parent.mkdir(parents=True, exist_ok=True)
        from filelock import FileLock

        with FileLock(database.with_suffix(".lock")):
            if not database.exists():
                _write_ahead(database)
            self._client = _client(self.uri)

    @property
    def client(self) -> MlflowClient:
        if self._client is None:
            raise RuntimeError("connect() comes first")
        return self._client

    def begin(self, record: RunRecord) -> str:
        """Make a RUNNING run with its params, tags and inputs: two calls."""
        from mlflow.entities import Dataset, DatasetInput, InputTag, Param

        run = self.client.create_run(
            self._experiment_id(record.experiment),
            start_time=_now(),
            run_name=record.name,
            tags={name: str(value)[:TAG_LIMIT] for name, value in record.tags.items()},
        )
        run_id = run.info.run_id
        params = [Param(name, _param(value)) for name, value in record.params.items()]
        for first in range(0, len(params), 100):  # MLflow's limit for one call
            self.client.log_batch(run_id, params=params[first : first + 100])
        self.client.log_inputs(
            run_id,
            [
                DatasetInput(
                    Dataset(
                        name, sha256[:36], "local", json.dumps({"uri": source}), profile=json.dumps({"rows": rows})
                    ),
                    [InputTag("mlflow.data.context", context), InputTag("sha256", sha256)],
                )
                for context, (name, sha256, source, rows) in record.inputs.items()
            ],
        )
        return run_id

    def finish(self, run_id: str | None, record: RunRecord, status: str) -> None:
        """Log metrics, table and files, and close the run as FINISHED, FAILED or KILLED."""
        from mlflow.entities import Metric

        if run_id is None:
            raise RuntimeError("begin() comes first")
        now = _now()
        metrics = [Metric(mlflow_name(name), value, now, 0) for name, value in record.metrics.items()]
        for first in range(0, len(metrics), 1000):
            self.client.log_batch(run_id, metrics=metrics[first : first + 1000])
        if record.table is not None:
            self.client.log_table(run_id, record.table, "queries.json")
        if record.folder is not None:
            self.client.log_artifacts(run_id, str(record.folder))
        self.client.set_terminated(run_id, status, _now())

    def best(self, experiment: str, metric: str, run_id: str | None = None) -> LoggedRun:
        """The finished run with the greatest `metric` (the earliest of equals), or the one with `run_id`."""
        from mlflow.exceptions import MlflowException

        if run_id is not None:
            try:
                return self._logged(self.client.get_run(run_id))
            except MlflowException:
                raise BadInput(f"run={run_id}: no such run in {redacted(self.uri)}.") from None
        found = self.client.get_experiment_by_name(experiment)
        if found is None:
            names = [one.name for one in self.client.search_experiments()]
            raise BadInput(
                f"experiment_name={experiment!r}: no such experiment in {redacted(self.uri)}."
                f"{did_you_mean(experiment, names)} Known: {', '.join(names)}."
            )
        name = mlflow_name(metric)
        runs = self.client.search_runs(
            [found.experiment_id],
            "attributes.status = 'FINISHED' AND tags.`harness.verb` = 'run'",
            max_results=1,
            order_by=[f"metrics.`{name}` DESC", "attributes.start_time ASC"],
        )
        if not runs or name not in runs[0].data.metrics:
            logged = [mine for run in runs for mine in run.data.metrics]
            raise BadInput(
                f"metric={metric}: no finished run of experiment {experiment!r} has it."
                f"{did_you_mean(name, logged)} Make one with `harness run experiment_name={experiment}`."
            )
        return self._logged(runs[0])

    def download(self, run_id: str, name: str, folder: Path) -> Path:
        """A file of a run, in `folder`. BadInput if the run has none of that name."""
        try:
            return Path(self.client.download_artifacts(run_id, name, str(folder)))
        except Exception as error:
            raise BadInput(f"run {run_id} has no file {name!r} ({type(error).__name__}): it cannot be used.") from error

    def _experiment_id(self, name: str) -> str:
        from mlflow.exceptions import MlflowException

        found = self.client.get_experiment_by_name(name)
        if found is None:
            location = f"{self.artifacts}/{int(time.time() * 1000)}" if self.artifacts else None
            try:
                return self.client.create_experiment(name, artifact_location=location, tags=EXPERIMENT_TAGS)
            except MlflowException:  # made by another process in the meantime
                found = self.client.get_experiment_by_name(name)
                if found is None:
                    raise
        if found.lifecycle_stage != "active":
            raise BadInput(f"experiment_name={name!r} is deleted in {redacted(self.uri)}. Restore it or take another.")
        return found.experiment_id

    def _logged(self, run: Run) -> LoggedRun:
        experiment = self.client.get_experiment(run.info.experiment_id).name
        data, info = run.data, run.info
        return LoggedRun(
            info.run_id, info.run_name or "", experiment, info.status, data.metrics, data.params, data.tags
        )


def redacted(uri: str | None) -> str:
    """An address as it may be shown: without the user and password that it may carry."""
    parts = urlsplit(uri or "")
    if "@" not in parts.netloc:
        return uri or ""
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _without_secrets(uri: str) -> str:
    """A server's address without user and password, which go to MLflow by its environment variables instead.

    So no message, log or artifact can show them. A database's address must keep them.
    """
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https") or "@" not in parts.netloc:
        return uri
    os.environ["MLFLOW_TRACKING_USERNAME"] = unquote(parts.username or "")
    os.environ["MLFLOW_TRACKING_PASSWORD"] = unquote(parts.password or "")
    return redacted(uri)


def _client(uri: str) -> MlflowClient:
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    import logging

    from mlflow.exceptions import MlflowException

    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.getLogger("mlflow").setLevel(logging.WARNING)
    from mlflow.tracking import MlflowClient

    try:
        client = MlflowClient(uri)
        client.search_experiments(max_results=1)
    except MlflowException as error:
        raise BadInput(f"tracking.uri={redacted(uri)} cannot be used: {str(error).splitlines()[0]}") from error
    return client


def _write_ahead(database: Path) -> None:
    """Readers and a writer at a time: cuts the worst case with many processes from 8 s to 5 s."""
    import sqlite3

    connection = sqlite3.connect(database)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.close()


def _param(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= PARAM_LIMIT else text[: PARAM_LIMIT - 1] + "…"


def _now() -> int:
    return int(time.time() * 1000)


def provenance(fingerprints: Mapping[str, str | None]) -> dict[str, str]:
    """Tags that say with what a run was made: data, code and versions."""
    import importlib.metadata
    import platform
    import subprocess

    tags = {f"data.{name}": sha256 for name, sha256 in fingerprints.items() if sha256}
    tags |= {"mlflow.source.name": "harness", "mlflow.source.type": "LOCAL"}
    tags["version.python"] = platform.python_version()
    for name in ("retrieval-harness", "numpy", "scipy", "numba", "hydra-core", "mlflow", "kiwipiepy"):
        tags[f"version.{name}"] = importlib.metadata.version(name)
    try:
        commit, changed = (
            subprocess.run(["git", *words], capture_output=True, text=True, timeout=5, check=True).stdout.strip()  # noqa: S603, S607
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain"])
        )
        tags |= {"git.commit": commit, "mlflow.source.git.commit": commit, "git.dirty": str(bool(changed)).lower()}
    except (OSError, subprocess.SubprocessError):
        tags["git.commit"] = "none"  # not a checkout, or no git here
    return tags
