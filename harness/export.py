"""The verb `export`: the best finished run of an experiment as a validated submission, with its provenance."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import metrics, report
from harness.config import Asked, build, check_part
from harness.datasets import Dataset, load
from harness.predictions import validate_against, validate_submission, with_contents, write_text
from harness.tracking import LoggedRun, Tracker
from retrievers.base import BadInput

if TYPE_CHECKING:
    from rich.console import Console


def export(config: dict[str, Any], asked: Asked) -> dict[str, Any]:
    """Write the submission of the best run by `metric`, or of `run`; refuse it if anything about it is wrong."""
    metrics.parse(config["metric"])
    outputs = Path(config["outputs"]).absolute()
    tracker: Tracker = build(config["tracking"], where="tracking")
    tracker.connect(outputs)
    run = tracker.best(config["experiment_name"], config["metric"], config["run"], config["select_on"])
    if run.status != "FINISHED":
        raise BadInput(f"Run {run.run_id} is {run.status}: only finished runs can be exported.")
    name = f"{run.experiment}-{run.run_id[:8]}.jsonl".replace("/", "_")
    target = Path(config["submission"] or outputs / "submissions" / name)
    if target.is_dir():
        raise BadInput(f"submission={target} is a folder. Name a file in it.")
    with tempfile.TemporaryDirectory() as folder:
        rows = tracker.download(run.run_id, "predictions.jsonl", Path(folder))
        resolved = _resolved(tracker.download(run.run_id, "config.yaml", Path(folder)))
        dataset = _dataset(resolved, run)
        query_ids = [query.query_id for query in dataset.queries]
        validate_submission(rows, query_ids, dataset.by_id, resolved["top_k"])
        if config["against"]:
            validate_against(rows, Path(config["against"]))
        text = with_contents(rows, dataset.by_id)
    target.parent.mkdir(parents=True, exist_ok=True)
    chosen_by = metrics.ranked_by(run.metrics, config["metric"], config["select_on"])
    value = run.metrics[chosen_by] if chosen_by else None
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    provenance = target.with_name(target.name + ".provenance.json")
    write_text(target, text)
    write_text(provenance, _provenance(run, config["metric"], value, sha256, resolved))
    document = {
        "run_id": run.run_id,
        "metric": config["metric"],
        "value": value,
        "ranked_by": chosen_by,
        "submission": str(target),
        "queries": len(query_ids),
        "sha256": sha256,
        "provenance": str(provenance),
    }

    def show(console: Console) -> None:
        score = "not scored" if value is None else f"{value:.4f}"
        console.print(f"Run {run.run_id} ({run.name}), {config['metric']} {score}: {len(query_ids)} queries, valid.")
        console.print(f"Submission: {target}")
        console.print(f"Provenance: {provenance}")

    report.emit(config["format"], document, show)
    return document


def _resolved(file: Path) -> dict[str, Any]:
    import yaml

    return yaml.safe_load(file.read_text("utf-8"))


def _dataset(resolved: Mapping[str, Any], run: LoggedRun) -> Dataset:
    """The data of the run as it is now, which must be what it was then."""
    check_part(resolved["dataset"], "dataset")
    dataset = load(build(resolved["dataset"], where="dataset"), run.params.get("dataset", "dataset"))
    for name in ("documents", "queries"):
        then = run.tags.get(f"data.{name}")
        if dataset.fingerprints[name] != then:
            raise BadInput(
                f"The {name} have changed since run {run.run_id}: they were {str(then)[:12]}… and are "
                f"{str(dataset.fingerprints[name])[:12]}…. Run the experiment again, or put the data back."
            )
    return dataset


def _provenance(run: LoggedRun, metric: str, value: float | None, sha256: str, resolved: Mapping[str, Any]) -> str:
    """Where a submission comes from: the run, its numbers, data, code and versions."""
    tags = {k: v for k, v in sorted(run.tags.items()) if k.startswith(("data.", "git.", "version.", "trial_key"))}
    content = {
        "sha256": sha256,
        "run_id": run.run_id,
        "run_name": run.name,
        "experiment": run.experiment,
        "metric": metric,
        "value": value,
        "metrics": dict(sorted(run.metrics.items())),
        "made_with": tags,
        "config": resolved,
    }
    return json.dumps(content, ensure_ascii=False, indent=2) + "\n"
