"""Runs in MLflow, in few calls: the one place that talks to its tracking store."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from harness.evaluation.measures import OOF
from harness.tracking import mlflow_spans
from harness.tracking.mlflow_client import make_database, open_client, reaching, redacted, without_secrets
from harness.tracking.tracker import (
    LESS_IS_BETTER,
    TAG_LIMIT,
    Detail,
    Input,
    LoggedRun,
    RunRecord,
    mlflow_name,
    ranked_by,
)
from retrievers.base import BadInput, did_you_mean

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

    from harness.tracking.mlflow_spans import Trace


PARAM_LIMIT = 6000  # characters that MLflow keeps of a param
NOT_IN_NAMES = re.compile(r"[^\w. :/-]")  # what MLflow takes in no name of a param
VIEWS = "mlflow.sharedViewState."  # tag of an experiment
SHOWN_METRICS = ("modified_map_at_3", "oof/modified_map_at_3", "ndcg_at_10", "recall_at_100")
SHOWN_PARAMS = ("retriever", "tokenizer", "gate")
PEEKS = "private.peeks"


class MlflowTracker:
    """uri: of an MLflow server or database; None = `sqlite:///<outputs>/mlflow.db`.

    detail: "full", or "light" for runs by the thousand: no inputs, table of queries, figure and TREC run, and of the
    metrics the means, with interval and parts for the objective alone.
    """

    recorded_as = "tracking/mlflow"
    keeps_files = True

    def __init__(self, uri: str | None = None, detail: Detail = "full") -> None:
        self.uri, self.detail = uri, detail
        self.artifacts: str | None = None
        self.down_until = 0.0  # monotonic seconds
        self._client: MlflowClient | None = None
        self._experiments: dict[str, str] = {}  # name -> id
        self._places: dict[str, str] = {}  # id of a run -> where its files are
        self._around = ("", "")  # what stands before and after the id in the latest one's place

    def exists(self, outputs: Path) -> bool:
        """Whether there is anything to read: a local store is made by the first `connect`."""
        place = (self.uri or f"sqlite:///{outputs.absolute() / 'mlflow.db'}").partition("sqlite:///")[2]
        return not place or Path(place).exists()

    def connect(self, outputs: Path) -> None:
        """Open the store, made under a lock: several processes on a fresh SQLite store break it for good."""
        self.uri = without_secrets(self.uri or f"sqlite:///{outputs.absolute() / 'mlflow.db'}")
        if not self.uri.startswith("sqlite:///"):
            self._client = open_client(self.uri)
            return
        database = Path(self.uri.removeprefix("sqlite:///")).absolute()
        self.uri = f"sqlite:///{database}"
        self.artifacts = (database.parent / "artifacts").as_uri()
        database.parent.mkdir(parents=True, exist_ok=True)
        from filelock import FileLock

        with FileLock(database.with_suffix(".lock")):
            if not database.exists():
                make_database(database)
            self._client = open_client(self.uri)

    @property
    def client(self) -> MlflowClient:
        if self._client is None:
            raise RuntimeError("connect() comes first")
        return self._client

    @reaching
    def begin(self, record: RunRecord, adopted: LoggedRun | None = None) -> str:
        """Make a RUNNING run with its tags, in one call, so that it is there or not; all else is told at the end.

        adopted: a run that a crash left, which is taken up if its params say the same.
        """
        if adopted is not None:
            said = {NOT_IN_NAMES.sub("_", name): _param(value) for name, value in record.params.items()}
            if adopted.params.items() <= said.items():
                self.client.update_run(adopted.run_id, status="RUNNING")
                return adopted.run_id
            self.client.set_terminated(adopted.run_id, "KILLED", _now())
        run = self.client.create_run(
            self._experiment_id(record.experiment),
            start_time=record.began or _now(),
            run_name=record.name,
            tags={name: str(value)[:TAG_LIMIT] for name, value in record.tags.items()},
        )
        run_id = run.info.run_id
        self._places[run_id] = run.info.artifact_uri or ""
        self._around = self._places[run_id].partition(run_id)[::2]
        return run_id

    def place(self, run_id: str | None) -> Path | None:
        """Where a local store keeps the files of a run that was begun or read here; None where that is not known."""
        return _local(self._places.get(run_id or "", ""))

    @reaching
    def log(self, run_id: str | None, record: RunRecord) -> None:
        """Log params, metrics, inputs, files and tables."""
        if run_id is None:
            raise RuntimeError("begin() comes first")
        tags = dict(record.end_tags)
        if record.tables:  # by this tag MLflow's pages find tables; its own log_table appends to what is there
            tags["mlflow.loggedArtifacts"] = json.dumps([{"path": name, "type": "table"} for name in record.tables])
        self._log_batch(run_id, record.params, record.metrics, tags)
        if record.inputs and self.detail == "full":
            self._log_inputs(run_id, record.inputs)
        if record.folder is not None:
            self.client.log_artifacts(run_id, str(record.folder))  # one by one: several at a time took longer
        for name, table in record.tables.items():
            rows = list(zip(*table.values(), strict=True))
            text = json.dumps({"columns": list(table), "data": rows}, ensure_ascii=False)
            self.client.log_text(run_id, text, name)

    @reaching
    def tag(self, run_id: str | None, tags: Mapping[str, str]) -> None:
        if run_id is None:
            raise RuntimeError("begin() comes first")
        for name, value in tags.items():
            self.client.set_tag(run_id, name, value[:TAG_LIMIT])

    @reaching
    def finish(self, run_id: str | None, record: RunRecord, status: str) -> None:
        """`log`, and close the run as FINISHED, FAILED or KILLED."""
        self.log(run_id, record)
        self.client.set_terminated(str(run_id), status, record.ended or _now())
        self._places.pop(str(run_id), None)

    @reaching
    def runs(self, experiment: str, tags: Mapping[str, str], status: str | None = None) -> list[LoggedRun]:
        """The runs of an experiment with these tags and status, the latest first; none without the experiment."""
        if (found := self.client.get_experiment_by_name(experiment)) is None:
            return []
        asked = [f"tags.`{name}` = '{value}'" for name, value in tags.items()]
        wanted = " AND ".join(asked + ([f"attributes.status = '{status}'"] if status else []))
        page = self.client.search_runs([found.experiment_id], wanted, max_results=1000)
        runs = [self._logged(run, experiment) for run in page]
        while page.token:
            page = self.client.search_runs([found.experiment_id], wanted, max_results=1000, page_token=page.token)
            runs += [self._logged(run, experiment) for run in page]
        return runs

    @reaching
    def has(self, run_id: str) -> bool:
        """Whether the store has such a run."""
        from mlflow.exceptions import MlflowException

        try:
            self.client.get_run(run_id)
        except MlflowException as error:
            if error.get_http_status_code() >= 500:
                raise
            return False
        return True

    @reaching
    def best(
        self,
        experiment: str,
        metric: str,
        run_id: str | None = None,
        select_on: str = "all",
        task: str | None = None,
    ) -> LoggedRun:
        """The finished run with the greatest `metric` (the earliest of equals), or the one with `run_id`.

        What is compared is `metrics.ranked_by`: a run whose gate was fitted on labels counts with what it scores out of
        fold. task: of the runs, which are then scored files; None: retrieval runs.
        """
        if run_id is not None:
            if not self.has(run_id):
                raise BadInput(f"run={run_id}: no such run in {redacted(self.uri)}.")
            run = self.client.get_run(run_id)
            return self._logged(run, self.client.get_experiment(run.info.experiment_id).name)
        found = self.client.get_experiment_by_name(experiment)
        if found is None:
            names = [one.name for one in self.client.search_experiments()]
            raise BadInput(
                f"experiment_name={experiment!r}: no such experiment in {redacted(self.uri)}."
                f"{did_you_mean(experiment, names)} Known: {', '.join(names)}."
            )
        part = "public/" if select_on == "public" else ""
        keys = [mlflow_name(f"{prefix}{part}{metric}") for prefix in (OOF, "")]
        leaders = {key: led for key in keys if (led := self._leader(found.experiment_id, key, metric, select_on, task))}
        if not leaders:
            some = self.client.search_runs([found.experiment_id], finished(task), max_results=1)
            made = f"score task={task} predictions=FILE references=FILE" if task else "run"
            raise BadInput(
                f"metric={metric}: no finished run of experiment {experiment!r} has it."
                f"{did_you_mean(keys[1], [name for run in some for name in run.data.metrics])} "
                f"Make one with `harness {made} experiment_name={experiment}`."
            )
        best = min(leaders, key=lambda key: (-leaders[key].data.metrics[key], leaders[key].info.start_time))
        return self._logged(leaders[best], experiment)

    def _leader(self, experiment_id: str, key: str, metric: str, select_on: str, task: str | None) -> Run | None:
        """The best of the finished runs that are ranked by `key`."""
        order, token = [f"metrics.`{key}` DESC", "attributes.start_time ASC"], None
        while True:
            page = self.client.search_runs([experiment_id], finished(task), order_by=order, page_token=token)
            for run in page:
                if key not in run.data.metrics:  # these come last
                    return None
                if ranked_by(run.data.metrics, metric, select_on) == key:
                    return run
            if not (token := page.token):
                return None

    @reaching
    def count_private_view(self, experiment: str, count: int = 1) -> int:
        """Add to how many runs of an experiment have shown their private scores; return how many it is now."""
        experiment_id = self._experiment_id(experiment)
        seen = int(self.client.get_experiment(experiment_id).tags.get(PEEKS, "0")) + count
        self.client.set_experiment_tag(experiment_id, PEEKS, str(seen))
        return seen

    @reaching
    def page(self, experiment: str) -> str:
        """Path and fragment of the page that lists an experiment's runs, scores and choices; "" where there is none."""
        found = self.client.get_experiment_by_name(experiment)
        return _page(found.experiment_id, "runs" if f"{VIEWS}runs" in found.tags else None) if found else ""

    @reaching
    def view(
        self, experiment: str, name: str, tags: Mapping[str, str], metrics: Sequence[str], params: list[str]
    ) -> str:
        """Save a view of an experiment's runs with `tags`, the best by the first of `metrics` first; its page.

        metrics, params: shown as columns.
        """
        wanted = " AND ".join(f"tags.`{key}` = '{value}'" for key, value in tags.items())
        view = _view([mlflow_name(metric) for metric in metrics], params, wanted, metrics[0].startswith(LESS_IS_BETTER))
        experiment_id = self._experiment_id(experiment)
        self.client.set_experiment_tag(experiment_id, f"{VIEWS}{name}", view)
        return _page(experiment_id, name)

    @reaching
    def trace(self, run_id: str, experiment: str, traces: Sequence[Trace]) -> None:
        """Keep traces of a run's queries."""
        mlflow_spans.write(self.client, run_id, self._experiment_id(experiment), traces)

    def download(self, run_id: str, name: str, folder: Path) -> Path:
        """A file of a run, where it lies or else in `folder`, made for it; not to be changed. BadInput without it."""
        beside = _local(run_id.join(self._around))  # where it lies if the run is of the same experiment
        for place in filter(None, (self.place(run_id), beside)):
            if (place / name).is_file():
                return place / name
        folder.mkdir(parents=True, exist_ok=True)
        try:
            return Path(self.client.download_artifacts(run_id, name, str(folder)))
        except Exception as error:
            raise BadInput(f"run {run_id} has no file {name!r} ({type(error).__name__}): it cannot be used.") from error

    def _log_batch(
        self, run_id: str, params: Mapping[str, Any], metrics: Mapping[str, float], tags: Mapping[str, str]
    ) -> None:
        """Params, metrics and tags in one call, or in as many as MLflow's limits ask for."""
        from mlflow.entities import Metric, Param, RunTag

        now = _now()
        marks = [RunTag(name, value[:TAG_LIMIT]) for name, value in tags.items()]
        told = [Param(NOT_IN_NAMES.sub("_", name), _param(value)) for name, value in params.items()]
        found = [Metric(mlflow_name(name), value, now, 0) for name, value in metrics.items()]
        while told or found or marks:
            told, now_told = told[100:], told[:100]
            marks, now_marks = marks[100:], marks[:100]
            room = 1000 - len(now_told) - len(now_marks)
            found, now_found = found[room:], found[:room]
            self.client.log_batch(run_id, metrics=now_found, params=now_told, tags=now_marks)

    def _log_inputs(self, run_id: str, inputs: Mapping[str, Input]) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag

        datasets = [
            DatasetInput(
                Dataset(
                    one.name,
                    one.sha256[:36],
                    "local",
                    json.dumps({"uri": one.source}),
                    profile=json.dumps({"rows": one.rows}),
                ),
                [InputTag("mlflow.data.context", context), InputTag("sha256", one.sha256)],
            )
            for context, one in inputs.items()
        ]
        self.client.log_inputs(run_id, datasets)

    def _experiment_id(self, name: str) -> str:
        from mlflow.exceptions import MlflowException

        if name in self._experiments:
            return self._experiments[name]
        found = self.client.get_experiment_by_name(name)
        if found is None:
            location = f"{self.artifacts}/{int(time.time() * 1000)}" if self.artifacts else None
            try:
                tags = {"mlflow.experimentKind": "custom_model_development"}  # the pages for runs, not for prompts
                tags[f"{VIEWS}runs"] = _view(SHOWN_METRICS, SHOWN_PARAMS)
                created = self.client.create_experiment(name, artifact_location=location, tags=tags)
                return self._experiments.setdefault(name, created)
            except MlflowException:  # made by another process in the meantime
                found = self.client.get_experiment_by_name(name)
                if found is None:
                    raise
        if found.lifecycle_stage != "active":
            raise BadInput(f"experiment_name={name!r} is deleted in {redacted(self.uri)}. Restore it or take another.")
        return self._experiments.setdefault(name, found.experiment_id)

    def _logged(self, run: Run, experiment: str) -> LoggedRun:
        data, info = run.data, run.info
        self._places[info.run_id] = info.artifact_uri or ""
        return LoggedRun(
            info.run_id, info.run_name or "", experiment, info.status, data.metrics, data.params, data.tags
        )


def _local(uri: str) -> Path | None:
    """The folder that a file URI names."""
    parts = urlsplit(uri)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def _view(metrics: Sequence[str], params: Sequence[str], wanted: str = "", ascending: bool | None = None) -> str:
    """What MLflow's pages keep of a view that is shared: which runs, in which order, with which columns.

    ascending: by the first of the metrics; None = the latest run first.
    """
    order = "attributes.start_time" if ascending is None else f"metrics.`{metrics[0]}`"
    columns = [*(f"params.`{name}`" for name in params), *(f"metrics.`{name}`" for name in metrics)]
    view = {"searchFilter": wanted, "orderByKey": order, "orderByAsc": bool(ascending), "selectedColumns": columns}
    view |= {"startTime": "ALL", "lifecycleFilter": "Active", "modelVersionFilter": "All Runs", "datasetsFilter": []}
    return json.dumps(view)


def _page(experiment_id: str, view: str | None) -> str:
    """The pages about runs and their charts, instead of those about agents."""
    shown = f"&viewStateShareKey={view}" if view else ""
    return f"#/experiments/{experiment_id}/runs?workflowType=machine_learning{shown}"


def _param(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= PARAM_LIMIT else text[: PARAM_LIMIT - 1] + "…"


def _now() -> int:
    return int(time.time() * 1000)


def finished(task: str | None) -> str:
    """MLflow's filter for finished runs: those of `harness run` and sweeps, or every scored file of a text task."""
    kind = f"tags.task = '{task}'" if task else "tags.`harness.verb` = 'run'"
    return f"attributes.status = 'FINISHED' AND {kind}"
