"""What a run logs, and the protocol of what logs it. MLflow's implementation is in mlflow_tracker.py."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from harness.evaluation.measures import OOF
from retrievers.base import BadInput

if TYPE_CHECKING:
    from harness.tracking.mlflow_spans import Trace

LESS_IS_BETTER = ("ms_per_query", "loss/")  # prefixes of the names of metrics where a lower value is better
RETRIEVAL_RUNS = {"harness.verb": "run"}  # tag of the runs of `harness run` and of trials of a sweep


def mlflow_name(name: str) -> str:
    """`ndcg@10` -> `ndcg_at_10`: MLflow refuses the at sign."""
    return name.replace("@", "_at_")


def ranked_by(logged: Container[str], name: str, select_on: str = "all") -> str | None:
    """The logged name of the score that ranks a run; None if the run does not have it.

    The out-of-fold score if a gate was fitted on labels; with select_on="public" the score of the public part.

    logged: names of the run's metrics, in MLflow's spelling.
    name: a measure, such as `ndcg@10`.
    """
    part = "public/" if select_on == "public" else ""
    return next((key for key in (mlflow_name(f"{OOF}{part}{name}"), mlflow_name(part + name)) if key in logged), None)


NOTE = "mlflow.note.content"  # the tag that MLflow shows as a run's description
TAG_LIMIT = 8000  # characters; MLflow cuts longer tags


def as_note(text: str) -> str:
    """A description, cut at the end of a line if it is too long for a tag."""
    return text if len(text) <= TAG_LIMIT else text[: TAG_LIMIT - 2].rpartition("\n")[0] + "\n…"


@dataclass(frozen=True)
class Input:
    """Data that a run read. source: a file, a folder, or the name of the component that reads it."""

    name: str
    sha256: str
    source: str
    rows: int


@dataclass
class RunRecord:
    """One run as it is logged. Names are ours (`ndcg@10`); the tracker translates them to MLflow's spelling.

    end_tags: tags that are known when the run ends.
    inputs: context ("documents", "queries", "qrels"; "predictions", "references") -> the data that was read.
    tables: file name -> column -> values.
    folder: its files become the run's artifacts.
    began, ended: milliseconds since 1970; 0: the time of the call.
    unsent: the folder where the run is saved because the tracking server was down.
    """

    experiment: str
    name: str
    params: dict[str, Any] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    end_tags: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    inputs: dict[str, Input] = field(default_factory=dict)
    tables: dict[str, dict[str, list[Any]]] = field(default_factory=dict)
    folder: Path | None = None
    began: int = 0
    ended: int = 0
    unsent: Path | None = None

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> RunRecord:
        """A record as `dataclasses.asdict` wrote it; earlier versions wrote each input as a list."""
        inputs = {
            context: Input(**one) if isinstance(one, Mapping) else Input(*one)
            for context, one in content["inputs"].items()
        }
        return cls(**{**content, "inputs": inputs})


@dataclass(frozen=True)
class LoggedRun:
    """A run as the tracking store has it. `metrics` and `params` have MLflow's names."""

    run_id: str
    name: str
    experiment: str
    status: str
    metrics: dict[str, float]
    params: dict[str, str]
    tags: dict[str, str]


Detail = Literal["full", "light"]


class Tracker(Protocol):
    """Where runs are logged and read. Methods raise `Unreachable` if the tracking server is down.

    uri: of the tracking store; known once it is connected.
    artifacts: URI of the folder where a local tracking store keeps files; None for others.
    outputs: the folder of what the harness writes; known once it is connected.
    keeps_files: whether logged files are copied to the tracking store, so that the run's own folder may be deleted.
    """

    uri: str | None
    artifacts: str | None
    outputs: Path | None
    detail: Detail
    keeps_files: bool

    def exists(self, outputs: Path) -> bool: ...
    def connect(self, outputs: Path) -> None: ...
    def begin(self, record: RunRecord, adopted: LoggedRun | None = None) -> str | None: ...
    def place(self, run_id: str | None) -> Path | None: ...
    def log(self, run_id: str | None, record: RunRecord) -> None: ...
    def tag(self, run_id: str | None, tags: Mapping[str, str]) -> None: ...
    def finish(self, run_id: str | None, record: RunRecord, status: str) -> None: ...
    def runs(self, experiment: str, tags: Mapping[str, str], status: str | None = None) -> list[LoggedRun]: ...
    def run(self, run_id: str) -> LoggedRun: ...
    def best(
        self, experiment: str, metric: str, select_on: str = "all", tags: Mapping[str, str] = RETRIEVAL_RUNS
    ) -> LoggedRun: ...
    def require_scored(
        self, experiment: str, metric: str, select_on: str = "all", tags: Mapping[str, str] = RETRIEVAL_RUNS
    ) -> None: ...
    def has(self, run_id: str) -> bool: ...
    def count_private_view(self, experiment: str, count: int = 1) -> int: ...
    def page(self, experiment: str) -> str: ...
    def view(
        self, experiment: str, name: str, tags: Mapping[str, str | None], metrics: Sequence[str], params: list[str]
    ) -> str: ...
    def trace(self, run_id: str, experiment: str, traces: Sequence[Trace]) -> None: ...
    def download(self, run_id: str, name: str, folder: Path) -> Path: ...


NO_RUNS = "tracking=none keeps no runs to choose from. Leave tracking out, or use tracking=mlflow."


class NoTracker:
    """Logs nothing and does not import MLflow. detail: as for `MlflowTracker`, for the files of a run."""

    recorded_as = "tracking/none"
    uri = artifacts = None
    keeps_files = False

    def __init__(self, detail: Detail = "full") -> None:
        self.detail = detail
        self.outputs: Path | None = None

    def exists(self, outputs: Path) -> bool:
        return False

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

    def runs(self, experiment: str, tags: Mapping[str, str], status: str | None = None) -> list[LoggedRun]:
        return []

    def finish(self, run_id: str | None, record: RunRecord, status: str) -> None:
        pass

    def run(self, run_id: str) -> LoggedRun:
        raise BadInput(NO_RUNS)

    def best(
        self, experiment: str, metric: str, select_on: str = "all", tags: Mapping[str, str] = RETRIEVAL_RUNS
    ) -> LoggedRun:
        raise BadInput(NO_RUNS)

    def require_scored(
        self, experiment: str, metric: str, select_on: str = "all", tags: Mapping[str, str] = RETRIEVAL_RUNS
    ) -> None:
        raise BadInput(NO_RUNS)

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

    def trace(self, run_id: str, experiment: str, traces: Sequence[Trace]) -> None:
        raise BadInput("tracking=none cannot store traces. Leave trace out, or use tracking=mlflow.")

    def download(self, run_id: str, name: str, folder: Path) -> Path:
        raise BadInput("tracking=none stores no files. Leave tracking out, or use tracking=mlflow.")
