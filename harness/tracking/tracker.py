"""What is kept of a run, and what a tracker does with it. MLflow's is in mlflow_tracker.py."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from harness.evaluation.measures import OOF
from retrievers.base import BadInput

if TYPE_CHECKING:
    from harness.tracking.mlflow_spans import Trace

LESS_IS_BETTER = ("ms_per_query", "loss/")  # numbers of a run that these begin


def mlflow_name(name: str) -> str:
    """`ndcg@10` -> `ndcg_at_10`: MLflow refuses the at sign."""
    return name.replace("@", "_at_")


def ranked_by(logged: Container[str], name: str, select_on: str = "all") -> str | None:
    """The logged name of the number by which runs are ranked, None where they have none.

    It is out of fold where a gate was fitted on labels, and of the public part where select_on is "public".
    """
    part = "public/" if select_on == "public" else ""
    return next((one for one in (mlflow_name(f"{OOF}{part}{name}"), mlflow_name(part + name)) if one in logged), None)


NOTE = "mlflow.note.content"  # the tag that MLflow shows as a run's description
TAG_LIMIT = 8000  # characters that MLflow stores of a tag


def as_note(text: str) -> str:
    """A description that fits into a tag, cut at the end of a line."""
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
    """One run as it is logged. Names are ours (`ndcg@10`); MLflow's spelling is the tracker's business.

    inputs: by context: "documents", "queries", "qrels"; or "predictions", "references".
    tables: file name -> column -> values. folder: its files become the run's artifacts. end_tags: tags known when the
    run ends. began, ended: ms since 1970; 0 = the time of the call. unsent: where the run is saved because the tracking
    server was down.
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
    """A run read back. `metrics` and `params` carry MLflow's names."""

    run_id: str
    name: str
    experiment: str
    status: str
    metrics: dict[str, float]
    params: dict[str, str]
    tags: dict[str, str]


Detail = Literal["full", "light"]


class Tracker(Protocol):
    uri: str | None  # of the store, known when it is connected
    artifacts: str | None  # where a local store keeps files
    detail: Detail
    keeps_files: bool  # whether what is logged is kept by the tracker, so that the folder may go

    def exists(self, outputs: Path) -> bool: ...
    def connect(self, outputs: Path) -> None: ...
    def begin(self, record: RunRecord, adopted: LoggedRun | None = None) -> str | None: ...
    def place(self, run_id: str | None) -> Path | None: ...
    def log(self, run_id: str | None, record: RunRecord) -> None: ...
    def tag(self, run_id: str | None, tags: Mapping[str, str]) -> None: ...
    def finish(self, run_id: str | None, record: RunRecord, status: str) -> None: ...
    def runs(self, experiment: str, tags: Mapping[str, str], status: str | None = None) -> list[LoggedRun]: ...
    def best(
        self, experiment: str, metric: str, run_id: str | None = None, select_on: str = "all", task: str | None = None
    ) -> LoggedRun: ...
    def has(self, run_id: str) -> bool: ...
    def count_private_view(self, experiment: str, count: int = 1) -> int: ...
    def page(self, experiment: str) -> str: ...
    def view(
        self, experiment: str, name: str, tags: Mapping[str, str], metrics: Sequence[str], params: list[str]
    ) -> str: ...
    def trace(self, run_id: str, experiment: str, traces: Sequence[Trace]) -> None: ...
    def download(self, run_id: str, name: str, folder: Path) -> Path: ...


class NoTracker:
    """Nothing is logged and MLflow is not imported. detail: as in MlflowTracker, of the files alone."""

    recorded_as = "tracking/none"
    uri = artifacts = None
    keeps_files = False

    def __init__(self, detail: Detail = "full") -> None:
        self.detail = detail

    def exists(self, outputs: Path) -> bool:
        return False

    def connect(self, outputs: Path) -> None:
        pass

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

    def best(
        self, experiment: str, metric: str, run_id: str | None = None, select_on: str = "all", task: str | None = None
    ) -> LoggedRun:
        raise BadInput("tracking=none keeps no runs to choose from. Leave tracking out, or say tracking=mlflow.")

    def has(self, run_id: str) -> bool:
        return False

    def count_private_view(self, experiment: str, count: int = 1) -> int:
        return 0

    def page(self, experiment: str) -> str:
        return ""

    def view(
        self, experiment: str, name: str, tags: Mapping[str, str], metrics: Sequence[str], params: list[str]
    ) -> str:
        return ""

    def trace(self, run_id: str, experiment: str, traces: Sequence[Trace]) -> None:
        raise BadInput("tracking=none keeps no traces. Leave trace out, or say tracking=mlflow.")

    def download(self, run_id: str, name: str, folder: Path) -> Path:
        raise BadInput("tracking=none keeps no files. Leave tracking out, or say tracking=mlflow.")
