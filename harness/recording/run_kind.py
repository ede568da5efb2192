"""The differences between retrieval runs and runs of text tasks, for commands that read both."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.config.schema import Node
from harness.data.submissions import validate_against, validate_submission, with_contents
from harness.errors import BadInput
from harness.measures.measures import SPAN_MEASURES, MeasureFamily, of_spans, parse_measure
from harness.recording import task_run
from harness.recording.logged_run import ValidRun, load_unchanged, logged_config, logged_value
from harness.recording.retrieval_run import stored
from harness.tasks.scored_file import check_measure, task_of, task_rules
from harness.tracking.tracker import LESS_IS_BETTER, RETRIEVAL, LoggedRun, Tracker


class RunKind:
    """A kind of run: retrieval, or one text task.

    node: the config of the task; None for retrieval. name: the tag `task` of these runs, or `retrieval`.
    unit: "queries" or "items". rules: config key -> the value that comparable runs share.
    """

    def __init__(self, node: Node | None = None) -> None:
        self.task = task_of(node) if node else None
        self.name = self.task.name if self.task else RETRIEVAL
        self.unit = "items" if self.task else "queries"
        self.rules = {f"task.{name}": value for name, value in task_rules(node).items()} if node else {}

    def shared(self, metric: str) -> Mapping[str, str]:
        """Return tag -> its name in messages, for each tag whose value must be equal in runs compared by `metric`."""
        measured = {"version.measures": "version of the measures"}
        if self.task:
            return {"data.references": "references"} | measured
        labels = {"data.evidence": "evidence"} if of_spans(metric) else {"data.qrels": "labels"}
        return labels | {"data.queries": "queries"} | measured

    def check_objective(self, metrics: Sequence[str] | None, name: str) -> None:
        """Raise BadInput unless `name` can be an objective of a sweep with these metrics."""
        if self.task:
            check_measure(self.task, "objectives", name)
        elif not name.startswith(LESS_IS_BETTER) and parse_measure(name).name not in (*(metrics or ()), *SPAN_MEASURES):
            raise BadInput(f"objectives: {name} is not among the metrics: add it to metrics=[...].")

    def is_query_mean(self, measure: str) -> bool:
        """Return whether the measure is a mean over queries, with a value for each query in a run's scores.csv."""
        averaged = (MeasureFamily.STANDARD, MeasureFamily.MODIFIED)
        return self.task is None and parse_measure(measure).family in averaged

    def predictions(self, run: LoggedRun) -> str:
        """Return the name of a run's predictions file among its artifacts."""
        made_elsewhere = run.tags.get("harness.verb") == "score"
        return stored(run.params["predictions"]) if made_elsewhere or self.task else "predictions.jsonl"

    def validated(self, tracker: Tracker, run: LoggedRun, against: Path | None) -> ValidRun:
        """Return a run's predictions for export. Raise BadInput if they are invalid, or if the run's data have changed.

        against: a sample submission; the predictions must have the same ids in the same order.
        """
        if self.task:
            return task_run.validated(tracker, run)
        config = logged_config(tracker, run)
        dataset, top_k = load_unchanged(run, logged_value(config, "dataset", dict)), logged_value(config, "top_k", int)
        with tempfile.TemporaryDirectory() as folder:
            rows = tracker.download(run, "predictions.jsonl", Path(folder))
            validate_submission(rows, [query.query_id for query in dataset.queries], dataset.by_id, top_k)
            if against:
                validate_against(rows, against)
            return ValidRun(with_contents(rows, dataset.by_id), config, len(dataset.queries), dataset)


def require_retrieval(task: Node | None, command: str) -> None:
    if task:
        name = task_of(task).name
        raise BadInput(
            f"task={name}: harness {command} needs a value for each query, but measures of text tasks are computed "
            f"from sums over items. `harness board task={name}` says which of these runs differ."
        )


def require_kind(kind: RunKind, run: LoggedRun, purpose: str) -> None:
    """Raise BadInput for a run of another kind. purpose: the end of the message, such as `export it`."""
    if (found := run.tags.get("task", RETRIEVAL)) != kind.name:
        raise BadInput(f"Run {run.named} is of task={found}. Add task={found} to the command to {purpose}.")
