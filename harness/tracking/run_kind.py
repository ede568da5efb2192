"""The two kinds of run, retrieval and text task, behind one protocol: what commands need to treat them alike."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from harness.evaluation.measures import Family, parse
from harness.tasks import scored_file
from harness.tasks.task import TextTask
from harness.tracking import retrieval_run, task_run
from harness.tracking.tracker import LESS_IS_BETTER, LoggedRun, Tracker
from retrievers.base import BadInput

RETRIEVAL = "retrieval"
VERSION = {"version.measures": "version of the measures"}


class RunKind(Protocol):
    """name: `retrieval`, or the task's name, which is the tag `task` of its runs. unit: what is scored, in the plural.

    tags: those that its scored runs have. shared: tag -> what it stands for, of tags that comparable runs have in
    common.
    """

    name: str
    unit: str
    tags: Mapping[str, str]
    shared: Mapping[str, str]

    def check_measure(self, key: str, name: str) -> None:
        """BadInput, which names the config key, unless runs of the kind can have the measure."""

    def check_objective(self, config: Mapping[str, Any], name: str) -> None:
        """BadInput unless runs of this config have the number, so that a sweep can have it as an objective."""

    def is_query_mean(self, measure: str) -> bool:
        """Whether the measure is a mean over queries, with a value for each query in a run's scores.csv."""

    def absolute(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The config with its files named from the root, so that a run is found again from any folder."""

    def params(self, config: Mapping[str, Any], choices: Mapping[str, str | None]) -> dict[str, Any]:
        """The choices and plain values that decide a result."""

    def predictions(self, run: LoggedRun) -> str:
        """The name of a run's predictions file among its artifacts."""

    def save_view(self, tracker: Tracker, config: Mapping[str, Any]) -> None:
        """Save how the experiment's page in MLflow lists runs of the kind."""


class Retrieval:
    name, unit = RETRIEVAL, "queries"
    tags: Mapping[str, str] = {"harness.verb": "run"}
    shared: Mapping[str, str] = {"data.qrels": "labels", "data.queries": "queries"} | VERSION

    def check_measure(self, key: str, name: str) -> None:
        parse(name)

    def check_objective(self, config: Mapping[str, Any], name: str) -> None:
        if not name.startswith(LESS_IS_BETTER) and parse(name).name not in config["metrics"]:
            raise BadInput(f"objectives: {name} is not among the metrics: add it to metrics=[...].")

    def is_query_mean(self, measure: str) -> bool:
        return parse(measure).family in (Family.STANDARD, Family.MODIFIED)

    def absolute(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return retrieval_run.absolute(config)

    def params(self, config: Mapping[str, Any], choices: Mapping[str, str | None]) -> dict[str, Any]:
        return retrieval_run.params(config, choices)

    def predictions(self, run: LoggedRun) -> str:
        made_elsewhere = run.tags.get("harness.verb") == "score"
        return f"predictions{Path(run.params['predictions']).suffix if made_elsewhere else '.jsonl'}"

    def save_view(self, tracker: Tracker, config: Mapping[str, Any]) -> None:
        """The tracker's own view lists retrieval runs."""


class Text:
    """Runs of a text task."""

    unit = "items"
    shared: Mapping[str, str] = {"data.references": "references"} | VERSION

    def __init__(self, task: TextTask) -> None:
        self.task, self.name = task, task.name
        self.tags: Mapping[str, str] = {"task": task.name}

    def check_measure(self, key: str, name: str) -> None:
        scored_file.check_measure(self.task, key, name)

    def check_objective(self, config: Mapping[str, Any], name: str) -> None:
        scored_file.check_measure(self.task, "objectives", name)

    def is_query_mean(self, measure: str) -> bool:
        return False

    def absolute(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return scored_file.absolute(config)

    def params(self, config: Mapping[str, Any], choices: Mapping[str, str | None]) -> dict[str, Any]:
        return task_run.params(config, choices["task"])

    def predictions(self, run: LoggedRun) -> str:
        return task_run.stored(run.params["predictions"])

    def save_view(self, tracker: Tracker, config: Mapping[str, Any]) -> None:
        task_run.save_view(tracker, config)


def kind_of(config: Mapping[str, Any]) -> RunKind:
    """The kind of run that a config describes: of the text task that it names, or of retrieval."""
    return Text(scored_file.task_of(config)) if "task" in config else Retrieval()


def require_kind(kind: RunKind, run: LoggedRun, purpose: str) -> None:
    """BadInput unless the run is of the kind. purpose: what it is wanted for, such as `export it`."""
    if (found := run.tags.get("task", RETRIEVAL)) != kind.name:
        raise BadInput(f"Run {run.run_id} ({run.name}) is of task={found}. Say task={found} to {purpose}.")
