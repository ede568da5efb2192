"""Log and read runs in MLflow with few calls. Other modules access runs in MLflow only through this one."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from harness import interruption
from harness.errors import BadInput, did_you_mean
from harness.tracking import file_hashes, mlflow_rows, mlflow_spans
from harness.tracking.file_hashes import RunFiles
from harness.tracking.mlflow_client import (
    ONCE,
    asked,
    database_file,
    make_database,
    name_places,
    open_client,
    reaching,
    require_sound,
    shown_address,
    uri_of,
    without_login,
    without_secrets,
)
from harness.tracking.mlflow_rows import RunRows
from harness.tracking.tracker import (
    CLAIM,
    LESS_IS_BETTER,
    NOTE,
    OBJECTIVE,
    OBJECTIVE_METRICS,
    TAG_LIMIT,
    TRIAL,
    Detail,
    EndedRun,
    Input,
    LoggedRun,
    RunRecord,
    Tracker,
    mlflow_name,
    now_ms,
    param_text,
)
from retrievers.hosts import name_host

if TYPE_CHECKING:
    from mlflow.entities import Experiment, Metric, Param, Run, RunTag
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
    from mlflow.tracking import MlflowClient

    from harness.tracking.mlflow_spans import Trace


def begin_once(
    client: MlflowClient, experiment_id: str, name: str, start_time: int, tags: Mapping[str, str]
) -> tuple[Run, bool]:
    """Return a RUNNING run, and whether the server might begin a second run for the same request.

    MLflow's client repeats a request that gets no answer, so a slow server may begin two runs. If the tags have a
    `CLAIM`, send the request once, and look for a RUNNING run with this claim before sending it again.
    """
    from mlflow.exceptions import MlflowException

    def create() -> Run:
        return client.create_run(experiment_id, start_time=start_time, run_name=name, tags=dict(tags))

    if CLAIM not in tags:
        return create(), False
    try:
        with asked(ONCE):
            return create(), False
    except MlflowException as error:
        if error.get_http_status_code() < 500 or interruption.exit_code():  # a wrong request, or an interruption
            raise
    found = running_claims(client, experiment_id, tags)
    return (found[0] if found else create()), True


def running_claims(client: MlflowClient, experiment_id: str, tags: Mapping[str, str]) -> list[Run]:
    """Return the RUNNING runs with the claim in these tags. The trials of a sweep share its claim, but no number."""
    same = {name: tags[name] for name in (CLAIM, TRIAL) if name in tags}
    return list(client.search_runs([experiment_id], " AND ".join([*_has_tags(same), "attributes.status = 'RUNNING'"])))


SECTION = "sweep"  # id of the section with a sweep's charts; it comes before MLflow's own charts of every metric
SCATTERED = 6  # maximum number of params that get a chart each, since MLflow limits the length of a saved view
RUNS = 100  # maximum number of runs drawn in a chart


def experiment_page(experiment_id: str, view: str | None) -> str:
    """Return the path of an experiment's page with runs and charts; MLflow has another page for agents."""
    shown = f"&viewStateShareKey={view}" if view else ""
    return f"#/experiments/{experiment_id}/runs?workflowType=machine_learning{shown}"


def charts(metric: str, params: Sequence[str]) -> dict[str, Any]:
    """Return a view's charts: all params in parallel coordinates, and the metric against each of the first params.

    metric, params: MLflow's names.
    """
    parallel = _chart("parallel", "PARALLEL") | {"selectedParams": [*params], "selectedMetrics": [metric]}
    scattered = [
        _chart(f"by-{name}", "SCATTER")
        | {"xaxis": {"key": name, "type": "PARAM"}, "yaxis": {"key": metric, "type": "METRIC"}}
        for name in params[:SCATTERED]
    ]
    section = {"uuid": SECTION, "name": "Sweep", "display": True, "isReordered": False, "deleted": False}
    return {
        "isAccordionReordered": True,  # otherwise MLflow sorts the sections by name
        "compareRunSections": [section | {"isGenerated": False}],
        "compareRunCharts": [parallel | {"showAllRuns": True}, *scattered],
    }


def _chart(uuid: str, kind: str) -> dict[str, Any]:
    about = {"metricSectionId": SECTION, "deleted": False, "isGenerated": False, "runsCountToCompare": RUNS}
    return {"uuid": uuid, "type": kind} | about


TRIALS = re.compile(r"all|best:[1-9]\d{0,5}")
AT_ONCE = 8  # number of runs that are sent to a server at the same time
ATTEMPTS = 5  # number of attempts when other processes log the same data at the same moment
NOT_IN_NAMES = re.compile(r"[^\w. :/-]")  # characters that MLflow refuses in the name of a param
LEAST_DIGITS = 4  # minimum number of digits of an abbreviated id
BEGINNING = re.compile(rf"[0-9a-f]{{{LEAST_DIGITS}}}")
NAMED = 10  # maximum number of runs named in a message
VIEWS = "mlflow.sharedViewState."  # prefix of an experiment's tags that hold saved views
SHOWN_METRICS = (*OBJECTIVE_METRICS, "ms_per_query")
UNRANKED = ("sweep", "compare", "load", "watch")  # commands whose own runs have no scores
RANKED = " AND ".join(f"tags.`harness.verb` != '{verb}'" for verb in UNRANKED)  # filter: runs with scores
SHOWN_PARAMS = ("retriever", "tokenizer", "gate")
SHOWN_TAGS = (f"{OBJECTIVE}.name", f"{OBJECTIVE}.kind")
PRIVATE_VIEWS = "private.peeks"  # tag of an experiment: how many runs have shown their private scores


class MlflowTracker(Tracker):
    """Logs runs to an MLflow server or database.

    uri: URI of a server, or of a database: `sqlite:///FILE`, with %20 for a space; None for
        `sqlite:///<outputs>/mlflow.db`.
    detail: "light" suits thousands of runs. It leaves out inputs, query table, figures, TREC run and metrics.json.
    bulk: whether many runs may be read from and written to the tables of a database directly (see `mlflow_rows`).
    trials: which trials of a sweep become runs: "all", or "best:N" for the N best. All are in the sweep's table.
    """

    recorded_as = "tracking/mlflow"
    choice = "mlflow"
    keeps_runs = True

    def __init__(self, uri: str | None = None, detail: Detail = "full", bulk: bool = True, trials: str = "all") -> None:
        try:
            urlsplit(uri or "").port  # noqa: B018
        except ValueError as error:  # the address is not shown, since it may hold a password
            raise BadInput(f"uri is not an address: {error}.") from None
        super().__init__(detail)
        if not TRIALS.fullmatch(trials):
            raise BadInput(f"trials={trials!r} must be all, or best:N with a number N of at least 1, such as best:20.")
        self.best = None if trials == "all" else int(trials.removeprefix("best:"))
        self.uri = uri
        self.bulk = bulk
        self.database: Path | None = None  # the file of a local tracking store
        self.down_until = 0.0  # earliest time of the next call, in monotonic seconds
        self._client: MlflowClient | None = None
        self._experiments: dict[str, str] = {}  # name -> id
        self._names: dict[str, str] = {}  # id of an experiment -> name
        self._locations: dict[str, str] = {}  # id of an experiment -> URI of the folder with its files
        self._files: RunFiles | None = None
        self._doubtful: set[str] = set()  # ids of runs that the server may have begun twice
        self._begun: dict[str, str] = {}  # id of an `EndedRun` -> id of the run that the server has begun for it

    def exists(self, outputs: Path) -> bool:
        """Return whether there may be runs to read. Ask this before `connect`, which makes a missing local store."""
        database = database_file(self.uri) if self.uri else outputs.absolute() / "mlflow.db"
        return database is None or database.exists()

    def connect(self, outputs: Path) -> None:
        """Open the tracking store. If a local store is missing, make it under a lock, so that only one process does.

        Raise Damaged for a damaged file, NoAnswer if a server does not answer, BadInput if the store cannot be used.
        """
        self.outputs = outputs.absolute()
        chosen = self.uri is not None
        self.uri = without_secrets(self.uri or uri_of(outputs.absolute() / "mlflow.db"))
        if not (named := database_file(self.uri)):
            from_environment = self.uri == without_login(os.environ.get("MLFLOW_TRACKING_URI"))
            name_host(self.uri, "MLFLOW_TRACKING_URI" if from_environment else "tracking.uri")
            self._open()
            return
        self.database = database = named.absolute()
        self.uri = uri_of(database)
        self.artifacts = (database.parent / "artifacts").as_uri()
        database.parent.mkdir(parents=True, exist_ok=True)
        from filelock import FileLock

        with FileLock(database.with_suffix(".lock")):
            if not database.exists():
                make_database(database)
        require_sound(database, self.outputs)
        name_places(database, chosen)
        try:
            self._open()  # not under the lock, since this takes seconds
        except Exception:  # damage may cause any error in MLflow
            require_sound(database, self.outputs, thorough=True)
            raise

    def _open(self) -> None:
        assert self.uri is not None
        self._client = open_client(self.uri)
        self._files = RunFiles(self._client, self.uri)

    @property
    def client(self) -> MlflowClient:
        assert self._client is not None, "connect() comes first"
        return self._client

    @property
    def files(self) -> RunFiles:
        assert self._files is not None, "connect() comes first"
        return self._files

    @reaching
    def begin(self, record: RunRecord, adopted: LoggedRun | None = None) -> str:
        """Make a RUNNING run together with its tags in one call. `finish` logs everything else.

        adopted: a crashed run to continue. If its params differ from the record's, end it as KILLED and make a new one.
        """
        if adopted is not None:
            params = {_param_name(name): param_text(value) for name, value in record.params.items()}
            if adopted.params.items() <= params.items():
                self.client.update_run(adopted.run_id, status="RUNNING")
                self._log_batch(adopted.run_id, {}, {}, {CLAIM: record.tags[CLAIM]} if CLAIM in record.tags else {})
                return adopted.run_id
            self.client.set_terminated(adopted.run_id, "KILLED", now_ms())
        tags = {name: str(value)[:TAG_LIMIT] for name, value in record.tags.items()}
        experiment_id = self._experiment_id(record.experiment)
        run, doubtful = begin_once(self.client, experiment_id, record.name, record.began or now_ms(), tags)
        self.files.note(run.info.run_id, run.info.artifact_uri, latest=True)
        if doubtful:
            self._doubtful.add(run.info.run_id)
        return str(run.info.run_id)

    def place(self, run_id: str | None) -> Path | None:
        """Return a run's folder in a local tracking store; None for a run that this tracker has not begun or read."""
        return self._files.place(run_id) if self._files and run_id else None

    @reaching
    def log(self, run_id: str | None, record: RunRecord) -> None:
        assert run_id is not None
        tags = self._end_tags(run_id, record)
        if record.folder is not None:
            self.files.upload(run_id, record.folder)
        if record.tables:
            self.files.upload_tables(run_id, record.tables)
        # After the files, as tags hold their hashes.
        self._log_batch(run_id, record.params, record.all_metrics, tags, record.step)
        if record.inputs and self.detail == "full":
            self._log_inputs(run_id, record.inputs)

    def _end_tags(self, run_id: str, record: RunRecord) -> dict[str, str]:
        tags = dict(record.all_end_tags)
        if NOTE in tags:  # on MLflow's page, a link to the report must lead to MLflow's copy
            files = f"#/experiments/{self._experiment_id(record.experiment)}/runs/{run_id}/artifacts"
            tags[NOTE] = tags[NOTE].replace("](report.html)", f"]({files}/report.html)")
        if record.tables:  # MLflow's pages find tables by this tag. log_table is not used: it appends to old tables.
            tags["mlflow.loggedArtifacts"] = json.dumps([{"path": name, "type": "table"} for name in record.tables])
        return tags

    @reaching
    def tag(self, run_id: str | None, tags: Mapping[str, str]) -> None:
        assert run_id is not None
        self._log_batch(run_id, {}, {}, tags)  # MLflow repeats batches if two processes set a tag at once

    @reaching
    def finish(self, run_id: str | None, record: RunRecord, status: str) -> None:
        """Log the record, and end the run as FINISHED, FAILED or KILLED."""
        self.log(run_id, record)
        self.client.set_terminated(str(run_id), status, record.ended or now_ms())
        self.files.forget(str(run_id))
        if run_id in self._doubtful:
            self._doubtful.discard(run_id)
            for twin in running_claims(self.client, self._experiment_id(record.experiment), record.tags):
                self.client.set_terminated(twin.info.run_id, "KILLED", now_ms())

    @reaching
    def log_ended(self, runs: Sequence[EndedRun], logged: Callable[[EndedRun, str | None], None]) -> None:
        """Log runs that have ended: in one transaction of a database whose tables are known, else several at a time."""
        plain = not any(one.record.inputs or one.record.tables for one in runs)
        if plain and (store := self._tables()):
            rows = [self._rows(one) for one in runs]
            for one, row in zip(runs, rows, strict=True):
                if one.record.folder:
                    self.files.add(one.run_id, row.artifact_uri, one.record.folder)
            mlflow_rows.write_rows(store, rows)
            for one in runs:
                logged(one, one.run_id)
            return
        with ThreadPoolExecutor(AT_ONCE, "logging") as pool:
            with asked(ONCE):  # for all threads together, since they share the environment
                for one, run_id in _results(pool, self._begin_ended, [one for one in runs if not self.begun(one)]):
                    self._begun[one.run_id] = run_id
            for one, run_id in _results(pool, self._finish_ended, runs):
                del self._begun[one.run_id]
                logged(one, run_id)

    def _tables(self) -> SqlAlchemyStore | None:
        return mlflow_rows.open_tables(self.client) if self.bulk else None

    def _read(
        self, store: SqlAlchemyStore, experiment: Experiment, tags: Mapping[str, str], status: str | None
    ) -> list[LoggedRun]:
        found = []
        for run in mlflow_rows.read_rows(store, experiment.experiment_id, tags, status):
            self.files.note(run.run_id, run.artifact_uri)
            read = (dict(run.metrics), dict(run.params), dict(run.tags), run.began)
            found.append(LoggedRun(run.run_id, run.name, experiment.name, run.status, *read))
        return found

    def keep(self, run_id: str, folder: Path) -> None:
        self.files.keep(run_id, folder)

    def begun(self, run: EndedRun) -> str | None:
        return self._begun.get(run.run_id)

    def moved(self, run: EndedRun) -> Path | None:
        place = file_hashes.local_place(self._files_of(run))
        return place if place and place.is_dir() else None

    def _files_of(self, run: EndedRun) -> str:
        """Return the URI under which MLflow keeps a run's files in a database."""
        from mlflow.utils.uri import append_to_uri_path

        experiment = self._experiment_id(run.record.experiment)
        if experiment not in self._locations:
            self._locations[experiment] = self.client.get_experiment(experiment).artifact_location
        return str(append_to_uri_path(self._locations[experiment], run.run_id, "artifacts"))

    def _begin_ended(self, run: EndedRun) -> str:
        """Begin a run with all tags: a server takes longer to add tags to a run."""
        return self.begin(replace(run.record, tags=run.record.tags | run.record.all_end_tags))

    def _finish_ended(self, run: EndedRun) -> str:
        run_id, record = self._begun[run.run_id], run.record
        late = {name: value for name, value in record.end_tags.items() if name == NOTE}  # its links need the run's id
        self.finish(run_id, replace(record, metrics=record.all_metrics, objective=None, end_tags=late), run.status)
        return run_id

    def _rows(self, run: EndedRun) -> RunRows:
        record = run.record
        tags = {"mlflow.runName": record.name, **record.tags, **self._end_tags(run.run_id, record)}
        return RunRows(
            run_id=run.run_id,
            experiment_id=self._experiment_id(record.experiment),
            artifact_uri=self._files_of(run),
            name=record.name,
            status=run.status,
            began=record.began or now_ms(),
            ended=record.ended or now_ms(),
            logged=now_ms(),
            **_named(record.params, record.all_metrics, tags),
        )

    @reaching
    def runs(self, experiment: str, tags: Mapping[str, str], status: str | None = None) -> list[LoggedRun]:
        """Return an experiment's runs with these tags and status, the latest first; [] for an unknown experiment."""
        if (found := self.client.get_experiment_by_name(experiment)) is None:
            return []
        if store := self._tables():
            return self._read(store, found, tags, status)
        wanted = " AND ".join(_has_tags(tags) + ([f"attributes.status = '{status}'"] if status else []))
        runs: list[LoggedRun] = []
        token: str | None = ""
        while token is not None:
            page = self.client.search_runs([found.experiment_id], wanted, max_results=1000, page_token=token or None)
            runs += [self._logged(run, experiment) for run in page]
            token = page.token or None
        return runs

    @reaching
    def leaders(self, experiment: str, tags: Mapping[str, str], params: Mapping[str, Any]) -> list[LoggedRun]:
        """Return the two finished runs with the highest objective. Of equally good runs, take the earlier first."""
        experiment_id = self._experiment_id(experiment)
        wanted = [*_has_tags(tags), *(f"params.`{name}` = '{param_text(value)}'" for name, value in params.items())]
        wanted.append("attributes.status = 'FINISHED'")
        best_first = [f"metrics.`{OBJECTIVE}` DESC", "attributes.start_time ASC"]
        page = self.client.search_runs([experiment_id], " AND ".join(wanted), max_results=2, order_by=best_first)
        return [self._logged(run, experiment) for run in page]

    @reaching
    def has(self, run_id: str) -> bool:
        return self._found(run_id) is not None

    def _found(self, run_id: str) -> Run | None:
        from mlflow.exceptions import MlflowException

        try:
            return self.client.get_run(run_id)
        except MlflowException as error:
            if error.get_http_status_code() >= 500:
                raise
            return None

    @reaching
    def run(self, run_id: str) -> LoggedRun:
        """Return the run with this id in any experiment. A unique beginning of 4 or more digits also names a run.

        Raise BadInput if no run or more than one run is found, or if the run was deleted.
        """
        run = self._found(run_id) or self.client.get_run(self._only_match(run_id))
        if run.info.lifecycle_stage != "active":
            raise BadInput(
                f"run={run_id} was deleted in {shown_address(self.uri)}. Choose another run, or restore it: "
                f"MLFLOW_TRACKING_URI='{shown_address(self.uri)}' mlflow runs restore --run-id {run_id}"
            )
        if (experiment := run.info.experiment_id) not in self._names:
            self._names[experiment] = self.client.get_experiment(experiment).name
        return self._logged(run, self._names[experiment])

    def _only_match(self, beginning: str) -> str:
        near: list[Run] = []
        if BEGINNING.match(beginning):
            everywhere = [one.experiment_id for one in self.client.search_experiments()]
            alike = f"attributes.run_id LIKE '{beginning[:LEAST_DIGITS]}%'"
            near = list(self.client.search_runs(everywhere, alike, max_results=1000))
        found = [run.info for run in near if run.info.run_id.startswith(beginning)]
        if len(found) == 1:
            return str(found[0].run_id)
        if found:
            named = "\n".join(f"  {info.run_id} ({info.run_name})" for info in found[:NAMED])
            more = f"\n  and {len(found) - NAMED} more" if len(found) > NAMED else ""
            raise BadInput(f"run={beginning}: several ids begin with these digits. Give more digits:\n{named}{more}")
        hint = did_you_mean(beginning, [run.info.run_id for run in near])
        if len(beginning) < LEAST_DIGITS:
            hint = f" Give at least {LEAST_DIGITS} digits of its id."
        raise BadInput(f"run={beginning}: no such run in {shown_address(self.uri)}.{hint}")

    @reaching
    def experiments(self) -> list[str]:
        """Return the names of all experiments, latest first. Leave out MLflow's default experiment if it is empty."""
        found = list(self.client.search_experiments())
        own = next((one for one in found if one.experiment_id == "0"), None)
        if own and not self.client.search_runs([own.experiment_id], max_results=1):
            found = [one for one in found if one is not own]
        return [one.name for one in found]

    @reaching
    def count_private_view(self, experiment: str, count: int = 1) -> int:
        """Add `count` to the number of runs that have shown their private scores, and return the new number."""
        from mlflow.exceptions import MlflowException

        experiment_id = self._experiment_id(experiment)
        for attempt in range(ATTEMPTS):
            seen = int(self.client.get_experiment(experiment_id).tags.get(PRIVATE_VIEWS, "0")) + count
            try:
                self.client.set_experiment_tag(experiment_id, PRIVATE_VIEWS, str(seen))
                break
            except MlflowException as error:  # another process has just set the tag for the first time
                if "IntegrityError" not in str(error) or attempt == ATTEMPTS - 1:
                    raise
        return seen

    @reaching
    def page(self, experiment: str) -> str:
        """Return the path of the page that lists an experiment's runs; "" for an unknown experiment."""
        found = self.client.get_experiment_by_name(experiment)
        return experiment_page(found.experiment_id, "runs" if f"{VIEWS}runs" in found.tags else None) if found else ""

    @reaching
    def view(
        self, experiment: str, name: str, tags: Mapping[str, str | None], metrics: Sequence[str], params: list[str]
    ) -> str:
        """Save a view of the runs with these tags, sorted by the first metric, best first. Return the path of its page.

        tags: tag -> value; None matches any value, and adds a column for the tag. metrics, params: the other columns.
        """
        columns = [f"params.`{name}`" for name in params]
        columns += [f"tags.`{name}`" for name, value in tags.items() if value is None]
        shown = [mlflow_name(metric) for metric in metrics]
        view = _view(shown, columns, " AND ".join(_has_tags(tags)), metrics[0].startswith(LESS_IS_BETTER))
        view |= charts(shown[0], [*map(_param_name, params)])
        experiment_id = self._experiment_id(experiment)
        self.client.set_experiment_tag(experiment_id, f"{VIEWS}{name}", json.dumps(view))
        return experiment_page(experiment_id, name)

    @reaching
    def trace(self, run_id: str, experiment: str, traces: Sequence[Trace]) -> None:
        mlflow_spans.write_spans(self.client, run_id, self._experiment_id(experiment), traces)

    def download(self, run: LoggedRun, name: str, folder: Path) -> Path:
        """Return a run's file; do not change this file. A server's file is copied to `folder`, which is made if needed.

        Raise NoFile if the run has logged no such file, and BadInput if the file has changed since the run logged it.
        """
        return file_hashes.fetch_verified(run, name, lambda: self.files.download(run.run_id, name, folder))

    def _log_batch(
        self,
        run_id: str,
        params: Mapping[str, Any],
        metrics: Mapping[str, float],
        tags: Mapping[str, str],
        step: int = 0,
    ) -> None:
        left_metrics, left_params, left_tags = _entities(params, metrics, tags, step)
        while left_params or left_metrics or left_tags:
            some_params, left_params = left_params[:100], left_params[100:]
            some_tags, left_tags = left_tags[:100], left_tags[100:]
            room = 1000 - len(some_params) - len(some_tags)
            some_metrics, left_metrics = left_metrics[:room], left_metrics[room:]
            self.client.log_batch(run_id, metrics=some_metrics, params=some_params, tags=some_tags)

    def _log_inputs(self, run_id: str, inputs: Mapping[str, Input]) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag
        from mlflow.exceptions import MlflowException

        datasets = []
        for context, one in inputs.items():
            source, profile = json.dumps({"uri": one.source}), json.dumps({"rows": one.rows})
            tags = [InputTag("mlflow.data.context", context), InputTag("sha256", one.sha256)]
            datasets.append(DatasetInput(Dataset(one.name, one.sha256[:36], "local", source, profile=profile), tags))
        for left in reversed(range(ATTEMPTS)):
            try:
                self.client.log_inputs(run_id, datasets)
                return
            except MlflowException:  # another process has just logged the same data; the next attempt finds them
                if not left:
                    raise

    def _experiment_id(self, name: str) -> str:
        from mlflow.exceptions import MlflowException

        if name in self._experiments:
            return self._experiments[name]
        found = self.client.get_experiment_by_name(name)
        if found is None:
            location = f"{self.artifacts}/{now_ms()}" if self.artifacts else None
            try:
                tags = {"mlflow.experimentKind": "custom_model_development"}  # MLflow then shows runs, not prompts
                columns = [f"params.`{name}`" for name in SHOWN_PARAMS]
                tags[f"{VIEWS}runs"] = json.dumps(_view(SHOWN_METRICS, columns, RANKED, ascending=False))
                created = self.client.create_experiment(name, artifact_location=location, tags=tags)
                return self._experiments.setdefault(name, created)
            except MlflowException:  # another process has just made the experiment
                found = self.client.get_experiment_by_name(name)
                if found is None:
                    raise
        if found.lifecycle_stage != "active":
            raise BadInput(
                f"experiment_name={name!r} is deleted in {shown_address(self.uri)}. Restore it, or choose another name."
            )
        return self._experiments.setdefault(name, found.experiment_id)

    def _logged(self, run: Run, experiment: str) -> LoggedRun:
        data, info = run.data, run.info
        self.files.note(info.run_id, info.artifact_uri)
        found = (data.metrics, data.params, data.tags, info.start_time)
        return LoggedRun(info.run_id, info.run_name or "", experiment, info.status, *found)


def _view(
    metrics: Sequence[str], columns: Sequence[str], wanted: str = "", ascending: bool | None = None
) -> dict[str, Any]:
    """Return a saved view in the form that MLflow's pages read.

    columns: params and tags to show before the metrics. wanted: MLflow's filter for the runs.
    ascending: whether the lowest value of the first metric comes first; None to show the latest run first.
    """
    order = "attributes.start_time" if ascending is None else f"metrics.`{metrics[0]}`"
    shown = [*columns, *(f"metrics.`{name}`" for name in metrics), *(f"tags.`{name}`" for name in SHOWN_TAGS)]
    view = {"searchFilter": wanted, "orderByKey": order, "orderByAsc": bool(ascending), "selectedColumns": shown}
    return view | {
        "startTime": "ALL", "lifecycleFilter": "Active", "modelVersionFilter": "All Runs", "datasetsFilter": []
    }  # fmt: skip


def _entities(
    params: Mapping[str, Any], metrics: Mapping[str, float], tags: Mapping[str, str], step: int
) -> tuple[list[Metric], list[Param], list[RunTag]]:
    from mlflow.entities import Metric, Param, RunTag

    now, named = now_ms(), _named(params, metrics, tags)
    return (
        [Metric(name, value, now, step) for name, value in named["metrics"]],
        [Param(*pair) for pair in named["params"]],
        [RunTag(*pair) for pair in named["tags"]],
    )


def _named(params: Mapping[str, Any], metrics: Mapping[str, float], tags: Mapping[str, str]) -> dict[str, Any]:
    """Return each as pairs (name, value) with names and lengths that MLflow takes."""
    return {
        "metrics": [(mlflow_name(name), value) for name, value in metrics.items()],
        "params": [(_param_name(name), param_text(value)) for name, value in params.items()],
        "tags": [(name, str(value)[:TAG_LIMIT]) for name, value in tags.items()],
    }


def _results(
    pool: ThreadPoolExecutor, work: Callable[[EndedRun], str], runs: Sequence[EndedRun]
) -> Iterator[tuple[EndedRun, str]]:
    """Yield each run with the result of `work`, as soon as it is known. After the last run, raise the first error."""
    futures = {pool.submit(work, one): one for one in runs}
    failed: list[BaseException] = []
    for future in as_completed(futures):
        if error := future.exception():
            failed.append(error)
        else:
            yield futures[future], future.result()
    if failed:
        raise failed[0]


@functools.cache
def _param_name(name: str) -> str:
    return NOT_IN_NAMES.sub("_", name)


def _has_tags(tags: Mapping[str, str | None]) -> list[str]:
    """Return MLflow's filters for runs with these tags. None matches any value."""
    return [f"tags.`{name}` " + ("LIKE '%'" if value is None else f"= '{value}'") for name, value in tags.items()]
