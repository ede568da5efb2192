"""The two kinds of run, retrieval and text task, behind one protocol: what commands need to treat them alike."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from harness.data.submissions import validate_against, validate_submission, with_contents
from harness.errors import BadInput
from harness.measures.measures import SPAN_MEASURES, MeasureFamily, of_spans, parse_measure
from harness.recording import retrieval_run, task_run
from harness.recording.logged_run import ValidRun, load_unchanged, logged_config, logged_value
from harness.tasks.scored_file import check_measure, rules, task_of, with_absolute_files
from harness.tasks.task import TextTask
from harness.tracking.tracker import LESS_IS_BETTER, RETRIEVAL, LoggedRun, Tracker

VERSION = {"version.measures": "version of the measures"}


class RunKind(Protocol):
    """What differs between runs of retrieval and runs of a text task.

    name: `retrieval`, or the name of the text task, which its runs have as tag `task`.
    unit: what is scored, in the plural.
    """

    name: str
    unit: str

    def shared(self, metric: str) -> Mapping[str, str]:
        """tag -> what it identifies; runs that compare by a measure have the same values of these tags."""

    def check_measure(self, key: str, name: str) -> None:
        """BadInput, which names the config key, for a measure that runs of this kind cannot have."""

    def check_objective(self, config: Mapping[str, Any], name: str) -> None:
        """BadInput unless runs of this config have the number, so that a sweep can have it as an objective."""

    def is_query_mean(self, measure: str) -> bool:
        """Whether the measure is a mean over queries, with a value for each query in a run's scores.csv."""

    def rules(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """How runs of this config are scored, by config key; comparable runs have the same rules and `shared` tags."""

    def absolute(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The config with absolute file names, which hold from any folder."""

    def params(self, config: Mapping[str, Any], choices: Mapping[str, str | None]) -> dict[str, Any]:
        """The params of a run: its choices and the plain values that decide a result."""

    def predictions(self, run: LoggedRun) -> str:
        """The name of a run's predictions file among its artifacts."""

    def save_view(self, tracker: Tracker, config: Mapping[str, Any]) -> None:
        """Save how the experiment's page in MLflow lists runs of this kind."""

    def check_export(self, config: Mapping[str, Any]) -> None:
        """BadInput for options of `harness export` that do not apply to this kind."""

    def validated(self, tracker: Tracker, run: LoggedRun, against: Path | None) -> ValidRun:
        """A run's predictions for export. BadInput if they are not valid, or if the run's data have changed.

        against: a sample submission, whose ids the predictions must have in the same order.
        """


class Retrieval:
    """Runs of `harness run`, of sweeps, and scored files of ranked lists."""

    name, unit = RETRIEVAL, "queries"

    def shared(self, metric: str) -> Mapping[str, str]:
        labels = {"data.evidence": "evidence"} if of_spans(metric) else {"data.qrels": "labels"}
        return labels | {"data.queries": "queries"} | VERSION

    def check_measure(self, key: str, name: str) -> None:
        parse_measure(name)

    def check_objective(self, config: Mapping[str, Any], name: str) -> None:
        if not name.startswith(LESS_IS_BETTER) and parse_measure(name).name not in (*config["metrics"], *SPAN_MEASURES):
            raise BadInput(f"objectives: {name} is not among the metrics: add it to metrics=[...].")

    def is_query_mean(self, measure: str) -> bool:
        return parse_measure(measure).family in (MeasureFamily.STANDARD, MeasureFamily.MODIFIED)

    def rules(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    def absolute(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return retrieval_run.with_absolute_paths(config)

    def params(self, config: Mapping[str, Any], choices: Mapping[str, str | None]) -> dict[str, Any]:
        return retrieval_run.retrieval_params(config, choices)

    def predictions(self, run: LoggedRun) -> str:
        made_elsewhere = run.tags.get("harness.verb") == "score"
        return f"predictions{Path(run.params['predictions']).suffix if made_elsewhere else '.jsonl'}"

    def save_view(self, tracker: Tracker, config: Mapping[str, Any]) -> None:
        """Nothing to do: the view that the tracker makes with an experiment lists retrieval runs."""

    def check_export(self, config: Mapping[str, Any]) -> None:
        parse_measure(config["metric"])

    def validated(self, tracker: Tracker, run: LoggedRun, against: Path | None) -> ValidRun:
        config = logged_config(tracker, run)
        dataset, top_k = load_unchanged(run, logged_value(config, "dataset", dict)), logged_value(config, "top_k", int)
        with tempfile.TemporaryDirectory() as folder:
            rows = tracker.download(run, "predictions.jsonl", Path(folder))
            validate_submission(rows, [query.query_id for query in dataset.queries], dataset.by_id, top_k)
            if against:
                validate_against(rows, against)
            return ValidRun(with_contents(rows, dataset.by_id), config, len(dataset.queries), dataset)


class Text:
    """Runs of a text task."""

    unit = "items"

    def __init__(self, task: TextTask) -> None:
        self.task, self.name = task, task.name

    def shared(self, metric: str) -> Mapping[str, str]:
        return {"data.references": "references"} | VERSION

    def check_measure(self, key: str, name: str) -> None:
        check_measure(self.task, key, name)

    def check_objective(self, config: Mapping[str, Any], name: str) -> None:
        check_measure(self.task, "objectives", name)

    def is_query_mean(self, measure: str) -> bool:
        return False

    def rules(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {f"task.{name}": value for name, value in rules(config).items()}

    def absolute(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return with_absolute_files(config)

    def params(self, config: Mapping[str, Any], choices: Mapping[str, str | None]) -> dict[str, Any]:
        return task_run.task_params(config, choices["task"])

    def predictions(self, run: LoggedRun) -> str:
        return task_run.stored(run.params["predictions"])

    def save_view(self, tracker: Tracker, config: Mapping[str, Any]) -> None:
        task_run.save_view(tracker, config)

    def check_export(self, config: Mapping[str, Any]) -> None:
        if config["model"] or config["against"]:
            raise BadInput(f"model and against are about retrieval: leave them out with task={self.name}.")

    def validated(self, tracker: Tracker, run: LoggedRun, against: Path | None) -> ValidRun:
        return task_run.validated(tracker, run)


def run_kind(config: Mapping[str, Any]) -> RunKind:
    """The kind of run that a config is about: the text task that it names, or retrieval."""
    return Text(task_of(config)) if "task" in config else Retrieval()


def require_retrieval(config: Mapping[str, Any], command: str) -> None:
    """BadInput for a text task, which the command cannot be about."""
    if isinstance(kind := run_kind(config), Text):
        raise BadInput(
            f"task={kind.name}: harness {command} goes by values of each query, and measures of text tasks are "
            f"computed from sums over items. `harness compare task={kind.name}` says whether such runs differ."
        )


def require_kind(kind: RunKind, run: LoggedRun, purpose: str) -> None:
    """BadInput for a run of another kind. purpose: what the run is needed for, such as `export it`."""
    if (found := run.tags.get("task", RETRIEVAL)) != kind.name:
        raise BadInput(f"Run {run.named} is of task={found}. Say task={found} to {purpose}.")
