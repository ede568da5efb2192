"""The verb `export`: the best finished run of an experiment as a validated submission, with its provenance."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.commands.export.ledger import Ledger, Submission, now, provenance_of
from harness.commands.export.model import log_model
from harness.config.check import Invocation
from harness.config.components import build, check_component
from harness.data.dataset import Dataset, load
from harness.data.files import write_text
from harness.data.submissions import validate_against, validate_submission, with_contents
from harness.evaluation import measures
from harness.pipeline.cache import Cache
from harness.reports import terminal
from harness.tasks import scored_file
from harness.tracking import task_run
from harness.tracking.tracker import LoggedRun, Tracker, mlflow_name, ranked_by
from retrievers.base import BadInput

if TYPE_CHECKING:
    from rich.console import Console


def export(config: dict[str, Any], invocation: Invocation) -> dict[str, Any]:
    """Write the submission of the best run by `metric`, or of `run`, and enter it in the ledger.

    It is refused if anything about it is wrong. The same content is the same submission, whatever its file is called.
    """
    task = scored_file.task_of(config) if "task" in config else None
    if not task:
        measures.parse(config["metric"])
    if task and (config["model"] or config["against"]):
        raise BadInput("model and against are about retrieval: leave them out with task=...")
    outputs = Path(config["outputs"]).absolute()
    tracker: Tracker = build(config["tracking"], where="tracking")
    tracker.connect(outputs)
    name = task.name if task else None
    run = tracker.best(config["experiment_name"], config["metric"], config["run"], config["select_on"], name)
    if run.status != "FINISHED":
        raise BadInput(f"Run {run.run_id} is {run.status}: only finished runs can be exported.")
    if (kind := run.tags.get("task", "retrieval")) != (task.name if task else "retrieval"):
        raise BadInput(f"Run {run.run_id} is of task={kind}. Say task={kind} to export it.")
    ledger = Ledger(outputs / "submissions")
    target = _target(config["submission"], ledger, run)
    dataset: Dataset | None = None
    if task:
        text, resolved, count = task_run.validated(tracker, run)
    else:
        text, resolved, dataset = _validated(tracker, run, config["against"])
        count = len(dataset.queries)
    unit = "items" if task else "queries"
    target.parent.mkdir(parents=True, exist_ok=True)
    with ledger.locked():
        ledger.settle(tracker)
        line = _line(run, config, target, hashlib.sha256(text.encode()).hexdigest())
        ledger.begin(line, _provenance(run, line, resolved))
        write_text(target, text)
        ledger.settle(tracker)
        submission = ledger.submissions()[line["sha256"]]
    document = {name: line[name] for name in ("run_id", "metric", "value", "ranked_by", "sha256")} | {
        "submission": str(target),
        unit: count,
        "provenance": str(provenance_of(target)),
        "number": submission.number,
        "new": submission.exports[0] == line,
        "model": None,
    }
    if config["model"] and dataset:
        cache, name = Cache(Path(config["store"]["path"])), config["model_name"] or run.experiment
        document["model"] = log_model(tracker, run, resolved, dataset, cache, name)

    terminal.emit(config["format"], document, lambda console: _show(console, document, run, submission, unit))
    return document


def _show(console: Console, document: Mapping[str, Any], run: LoggedRun, submission: Submission, unit: str) -> None:
    score = "not scored" if document["value"] is None else f"{document['value']:.4f}"
    found = f"{document['metric']} {score}: {document[unit]} {unit}, valid."
    console.print(f"Run {run.run_id} ({run.name}), {found}")
    console.print(f"Submission: {document['submission']}")
    console.print(f"Provenance: {document['provenance']}")
    if model := document["model"]:
        console.print(f"Model: version {model['version']} of {model['name']}, its {model['alias']}. Serve it:")
        console.print(f"  {model['serve']}")
    if document["new"]:
        console.print(f"It is submission {submission.number} of the ledger. When the leaderboard has answered:")
        console.print(f"  harness export record submission={document['submission']} public=SCORE")
    else:
        console.print(f"This is no new submission: the same content is {submission.about}.")


def _target(submission: str | None, ledger: Ledger, run: LoggedRun) -> Path:
    """The file to write."""
    suffix = Path(run.params["predictions"].removesuffix(".gz")).suffix if "task" in run.tags else ".jsonl"
    name = f"{run.experiment}-{run.run_id[:8]}{suffix}".replace("/", "_")
    target = Path(submission or ledger.folder / name)
    if target.is_dir():
        raise BadInput(f"submission={target} is a folder. Name a file in it.")
    if target.absolute() == ledger.file:
        raise BadInput(f"submission={target} is the ledger of all submissions. Choose another name.")
    return target


def _validated(tracker: Tracker, run: LoggedRun, against: str | None) -> tuple[str, dict[str, Any], Dataset]:
    """(the submission's text, the run's resolved config, its data)."""
    with tempfile.TemporaryDirectory() as folder:
        rows = tracker.download(run.run_id, "predictions.jsonl", Path(folder))
        resolved = _resolved(tracker.download(run.run_id, "config.yaml", Path(folder)))
        dataset = _dataset(resolved, run)
        query_ids = [query.query_id for query in dataset.queries]
        validate_submission(rows, query_ids, dataset.by_id, resolved["top_k"])
        if against:
            validate_against(rows, Path(against))
        return with_contents(rows, dataset.by_id), resolved, dataset


def _resolved(file: Path) -> dict[str, Any]:
    import yaml

    return yaml.safe_load(file.read_text("utf-8"))


def _dataset(resolved: Mapping[str, Any], run: LoggedRun) -> Dataset:
    """The data of the run as it is now, which must be what it was then."""
    check_component(resolved["dataset"], "dataset")
    dataset = load(build(resolved["dataset"], where="dataset"), run.params.get("dataset", "dataset"))
    for name in ("documents", "queries"):
        then = run.tags.get(f"data.{name}")
        if dataset.fingerprints[name] != then:
            raise BadInput(
                f"The {name} have changed since run {run.run_id}: they were {str(then)[:12]}… and are "
                f"{str(dataset.fingerprints[name])[:12]}…. Run the experiment again, or put the data back."
            )
    return dataset


def _line(run: LoggedRun, config: Mapping[str, Any], target: Path, sha256: str) -> dict[str, Any]:
    """What the ledger says of an export: the file, its run, what it was chosen by, the numbers of that measure."""
    metric, chosen_by = config["metric"], ranked_by(run.metrics, config["metric"], config["select_on"])
    told = {mlflow_name(name) for name in (metric, run.tags.get("objective", metric))}
    return {
        "event": "export",
        "time": now(),
        "sha256": sha256,
        "file": str(target.absolute()),
        "run_id": run.run_id,
        "run_name": run.name,
        "experiment": run.experiment,
        "trial_key": run.tags.get("trial_key"),
        "queries": run.tags.get("data.queries") or run.tags.get("data.references"),
        "metric": metric,
        "ranked_by": chosen_by,
        "value": run.metrics[chosen_by] if chosen_by else None,
        "metrics": {name: value for name, value in sorted(run.metrics.items()) if name.rpartition("/")[2] in told},
    }


def _provenance(run: LoggedRun, line: Mapping[str, Any], resolved: Mapping[str, Any]) -> str:
    """Where a submission comes from: the run, its numbers, data, code and versions."""
    made_with = ("data.", "git.", "version.", "trial_key")
    content = {name: line[name] for name in ("sha256", "run_id", "run_name", "experiment", "metric", "value")} | {
        "metrics": dict(sorted(run.metrics.items())),
        "made_with": {name: value for name, value in sorted(run.tags.items()) if name.startswith(made_with)},
        "config": resolved,
    }
    return json.dumps(content, ensure_ascii=False, indent=2) + "\n"
