"""The record that a run logs, and the base class of trackers."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from harness.config.text import short_id
from harness.errors import BadInput
from harness.measures.objective import Kind, Objective, logged_name, score_kind
from harness.statistics.prediction_powered import Estimate

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

    from harness.tracking.mlflow_spans import Trace

TIMES = ("ms_per_query", "latency_")  # a metric whose name begins with one of these differs even between equal runs
LESS_IS_BETTER = (*TIMES, "loss/")  # a metric whose name begins with one of these is lower in better runs
METRICS = "metrics.json"  # file with all numbers of a run; not written if detail is "light"
RETRIEVAL = "retrieval"  # the task of runs without a tag `task`
OBJECTIVE = "objective"  # metric that decides the order of runs; the names of related metrics and tags begin with it
OBJECTIVE_METRICS = (OBJECTIVE, f"{OBJECTIVE}_low", f"{OBJECTIVE}_high")
ESTIMATE = ("value", "low", "high", "checked", "others")  # fields of an `Estimate`, logged as `estimate_value`, …


def member_tag(sweep_id: str) -> str:
    """Return the tag of a sweep's trials. The tag's value says whether this sweep computed or reused the run."""
    return f"sweep.{sweep_id}"


def mlflow_name(name: str) -> str:
    """Replace the at sign, which MLflow refuses: `ndcg@10` -> `ndcg_at_10`."""
    return name.replace("@", "_at_")


def measured(logged: Mapping[str, float], name: str, select_on: str = "all") -> Objective | None:
    """Return a run's score by a measure, if possible the out-of-fold score; None if the run has no such score.

    logged: the run's metrics by MLflow's names. name: a measure, such as `ndcg@10`, or another logged number.
    """
    for kind in (score_kind(True, select_on), score_kind(False, select_on)):
        if (key := mlflow_name(logged_name(name, kind))) in logged:
            ends = (mlflow_name(logged_name(f"interval_{end}/{name}", kind)) for end in ("low", "high"))
            low, high = (logged.get(end, math.nan) for end in ends)
            return Objective(name, logged[key], low, high, kind)
    return None


def objective_metrics(one: Objective | None) -> dict[str, float]:
    """Return name -> value of the metrics in which an objective is logged. Leave out NaN values."""
    values = (one.value, one.low, one.high) if one else ()
    found = dict(zip(OBJECTIVE_METRICS, values, strict=False))
    if one and one.estimate:
        found |= {f"estimate_{name}": float(getattr(one.estimate, name)) for name in ESTIMATE}
    return {name: value for name, value in found.items() if value == value}


def now_ms() -> int:
    """Return the milliseconds since 1970, in which MLflow gives times."""
    return int(time.time() * 1000)


CLAIM = "harness.claim"  # tag with the name of the run's lock file, by which later commands find a dead process's run
PARENT = "mlflow.parentRunId"  # tag of a sweep's trials with the id of the sweep's run
ONLY_BEST = "sweep.runs.best"  # tag of a sweep that logged only its best trials as runs: how many
TRIAL = "sweep.trial"  # tag with a trial's number
SHOWN_FIRST = ("retriever", "gate")  # settings whose values are in every brief name
NOTE = "mlflow.note.content"  # tag that MLflow shows as a run's description
TAG_LIMIT = 8000  # maximum number of characters; MLflow cuts longer tags
PARAM_LIMIT = 6000  # maximum number of characters; MLflow refuses longer params


def param_text(value: Any) -> str:
    """Return the text in which MLflow keeps a param."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= PARAM_LIMIT else text[: PARAM_LIMIT - 1] + "…"


def as_note(text: str) -> str:
    """Return a description for MLflow's pages. Add space between table cells, and cut a long text at a line's end."""
    text = re.sub(r"^\| (?!---).*", lambda row: row[0].replace(" |", "&emsp;|"), text, flags=re.MULTILINE)
    return text if len(text) <= TAG_LIMIT else text[: TAG_LIMIT - 2].rpartition("\n")[0] + "\n…"


@dataclass(frozen=True)
class Input:
    """Data that a run read. source: a file, a folder, or the name of the component that read the data."""

    name: str
    sha256: str
    source: str
    rows: int


@dataclass
class RunRecord:
    """One run to log. The tracker translates names such as `ndcg@10` to MLflow's spelling.

    shows_private: whether the run shows scores on the private part of the test data.
    inputs: context ("documents", "queries", "qrels"; "predictions", "references") -> the data that was read.
    tables: file name -> column -> values. folder: the folder whose files become the run's artifacts.
    began, ended: milliseconds since 1970; 0 to use the time when the tracker begins or ends the run.
    unsent: the folder where the run is saved if the tracking server was down, else None.
    step: the step of the metrics, for a run to which several commands add points.
    """

    experiment: str
    name: str
    params: dict[str, Any] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    end_tags: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    objective: Objective | None = None
    shows_private: bool = False
    inputs: dict[str, Input] = field(default_factory=dict)
    tables: dict[str, dict[str, list[Any]]] = field(default_factory=dict)
    folder: Path | None = None
    began: int = 0
    ended: int = 0
    unsent: Path | None = None
    step: int = 0

    @property
    def all_metrics(self) -> dict[str, float]:
        return self.metrics | objective_metrics(self.objective)

    def logged(self, run_id: str | None) -> LoggedRun:
        """Return the finished run that this record describes, as if it were read from the tracking store."""
        metrics = {mlflow_name(name): value for name, value in self.all_metrics.items()}
        params = {name: param_text(value) for name, value in self.params.items()}
        tags = self.tags | self.all_end_tags
        return LoggedRun(run_id or "", self.name, self.experiment, "FINISHED", metrics, params, tags)

    @property
    def all_end_tags(self) -> dict[str, str]:
        one = self.objective
        return self.end_tags | ({f"{OBJECTIVE}.name": one.name, f"{OBJECTIVE}.kind": one.kind} if one else {})


Status = Literal["FINISHED", "FAILED", "KILLED"]


@dataclass(frozen=True)
class EndedRun:
    """A run that has ended, to be logged as a whole. run_id: its id in a database; a server chooses another id."""

    run_id: str
    status: Status
    record: RunRecord


@dataclass(frozen=True)
class LoggedRun:
    """A run in the tracking store. Its metrics and params have MLflow's names. began: milliseconds since 1970."""

    run_id: str
    name: str
    experiment: str
    status: str
    metrics: dict[str, float]
    params: dict[str, str]
    tags: dict[str, str]
    began: int = 0

    @property
    def short_id(self) -> str:
        return short_id(self.run_id)

    @property
    def named(self) -> str:
        """Return the run's id and its brief name, for use in a sentence: `3f2a91bc (bm25 · none)`."""
        return f"{self.short_id} ({self.brief})"

    @property
    def brief(self) -> str:
        """Return the run's retriever and gate, such as `bm25 · none`; or its name, if not made from its choices."""
        retriever = self.params.get("retriever") if self.has_settings else None
        if retriever is None or not (TRIAL in self.tags or self.name.startswith(f"{retriever}-")):
            return self.name
        return " · ".join(self.params[key] for key in SHOWN_FIRST if key in self.params)

    @property
    def called(self) -> str:
        """Return the run's short name for lists: its name if it only scored a file, otherwise its short id."""
        return self.short_id if self.has_settings else self.name

    @property
    def has_settings(self) -> bool:
        """Return whether the params led to the results. If the run scored a file, params only describe the scoring."""
        return self.tags.get("harness.verb") != "score"

    @property
    def objective(self) -> Objective | None:
        """Return the logged score that decides the order of runs; None if the run has no such score."""
        name, kind = self.tags.get(f"{OBJECTIVE}.name"), self.tags.get(f"{OBJECTIVE}.kind")
        if name is None or kind is None or OBJECTIVE not in self.metrics:
            return None
        low, high = (self.metrics.get(f"{OBJECTIVE}_{end}", math.nan) for end in ("low", "high"))
        mean, least, most, checked, others = (self.metrics.get(f"estimate_{one}", math.nan) for one in ESTIMATE)
        estimate = None if math.isnan(checked) else Estimate(mean, least, most, int(checked), int(others))
        return Objective(name, self.metrics[OBJECTIVE], low, high, cast(Kind, kind), estimate)

    @property
    def select_on(self) -> str:
        """Return which labelled queries decide the order of runs: "all" or "public"."""
        return self.objective.select_on if self.objective else self.params.get("select_on", "all")

    def score(self, name: str, select_on: str) -> Objective | None:
        """Return the run's own objective if it has this `name` and `select_on`, else the result of `measured`."""
        own = self.objective
        if own and (own.name, own.select_on) == (name, select_on):
            return own
        return measured(self.metrics, name, select_on)


Detail = Literal["full", "light"]


class NoFile(BadInput):
    """A run has logged no file of this name."""


class Tracker:
    """Logs and reads runs. Methods raise `Unreachable` if the tracking server is down.

    This class logs nothing and does not import MLflow. If a subclass can only write runs, its runs have no ids, so no
    command can read them.

    detail: "light" leaves out some files of a run. choice: the tracker's name in `tracking=`.
    keeps_runs: whether runs and their files can be read again, which `open_store` requires.
    artifacts: URI of the folder where a local store keeps files.
    best: how many of a sweep's trials are logged, the best ones; None: all.
    """

    recorded_as = "tracking/none"
    choice = "none"
    uri: str | None = None
    artifacts: str | None = None
    keeps_runs = False
    best: int | None = None

    def __init__(self, detail: Detail = "full") -> None:
        self.detail = detail
        self.outputs: Path | None = None

    # ---- Writing

    def connect(self, outputs: Path) -> None:
        self.outputs = outputs.absolute()

    def begin(self, record: RunRecord, adopted: LoggedRun | None = None) -> str | None:
        return None

    def place(self, run_id: str | None) -> Path | None:
        return None

    def log(self, run_id: str | None, record: RunRecord) -> None:
        pass

    def tag(self, run_id: str | None, tags: Mapping[str, str]) -> None:
        pass

    def trace(self, run_id: str, experiment: str, traces: Sequence[Trace]) -> None:
        raise tracker_error(self, "cannot store traces")

    def finish(self, run_id: str | None, record: RunRecord, status: str) -> None:
        pass

    def log_ended(self, runs: Sequence[EndedRun], logged: Callable[[EndedRun, str | None], None]) -> None:
        """Log runs that have ended. Call `logged` with each run and its id as soon as the run is logged.

        A tracker may move the files of the runs.
        """
        for run in runs:
            run_id = self.begin(run.record)
            self.finish(run_id, run.record, run.status)
            logged(run, run_id)

    def begun(self, run: EndedRun) -> str | None:
        """Return the id of the run that a failed `log_ended` has begun for this run; None if it has begun none."""
        return None

    def moved(self, run: EndedRun) -> Path | None:
        """Return the folder to which `log_ended` has moved the files of a run, even if it has not logged the run."""
        return None

    def keep(self, run_id: str, folder: Path) -> None:
        """Let `download` take files of a run from this folder, which has the same files as the store."""

    # ---- Reading

    def exists(self, outputs: Path) -> bool:
        return False

    def runs(self, experiment: str, tags: Mapping[str, str], status: str | None = None) -> list[LoggedRun]:
        return []

    def leaders(self, experiment: str, tags: Mapping[str, str], params: Mapping[str, Any]) -> list[LoggedRun]:
        return []

    def run(self, run_id: str) -> LoggedRun:
        raise tracker_error(self, "keeps no runs to choose from")

    def experiments(self) -> list[str]:
        return []

    def has(self, run_id: str) -> bool:
        return False

    def count_private_view(self, experiment: str, count: int = 1) -> int:
        return 0

    def page(self, experiment: str) -> str:
        return ""

    def view(
        self, experiment: str, name: str, tags: Mapping[str, str | None], metrics: Sequence[str], params: list[str]
    ) -> str:
        return ""

    def download(self, run: LoggedRun, name: str, folder: Path) -> Path:
        raise tracker_error(self, "stores no files")

    @property
    def client(self) -> MlflowClient:
        raise tracker_error(self, "stores no models")


def tracker_error(tracker: Tracker, why: str) -> BadInput:
    """Return the error for a tracker that lacks an ability. why: the reason, such as `keeps no runs to choose from`."""
    return BadInput(f"tracking={tracker.choice} {why}. Leave tracking out, or use tracking=mlflow.")
