"""The road of the text tasks: predictions held against references, scored, logged and shown as a run.

What is counted and how the counts make measures is the task's own business (answers.py, corrections.py); everything
else is the same for all of them and here.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from harness.config.canonical import digest
from harness.config.components import check_component, recorded
from harness.data.files import csv_text, opened, write_text
from harness.pipeline.cache import Cache
from harness.reports import task_page
from harness.tasks.scored_file import FILES, ScoredFile, fingerprints, task_of
from harness.tracking import provenance, retrieval_run
from harness.tracking.logged_run import ValidRun, logged_config, require_unchanged
from harness.tracking.tracker import NOTE, DataInput, LoggedRun, RunRecord, Tracker, as_note

TABLE = "tallies.csv"  # what is counted of each item: all that a comparison needs
WORST = 1000  # items in the table of a run's page in MLflow
KEYS = ("task", *FILES)  # of a config that are a text task's alone
DECIDES = ("task", "metrics", "objective", "public", "seed")  # keys that decide the numbers, beside the two files


def save_view(tracker: Tracker, config: Mapping[str, Any]) -> None:
    """The experiment's page lists the task's runs, the best first, with its measures as columns."""
    task, objective = task_of(config), config["objective"]
    shown = [objective, *(name for name in task.measures if name != objective)]
    tracker.view(config["experiment_name"], "runs", {"task": task.name}, shown, ["task.scheme", "predictions"])


def validated(tracker: Tracker, run: LoggedRun) -> ValidRun:
    """A run's predictions as they were scored.

    BadInput if they do not pair with the references any more, or if predictions or references have changed.
    """
    config = logged_config(tracker, run)
    check_component(config["task"], "task")
    with tempfile.TemporaryDirectory() as folder:
        file = tracker.download(run.run_id, stored(run.params["predictions"]), Path(folder))
        judged = task_of(config).judge(file, Path(config["references"]), [], Cache(Path(config["store"]["path"])))
        require_unchanged(run, fingerprints(judged), config, "Put the files back, or score the predictions again.")
        with opened(file) as text:
            return ValidRun(text.read().decode(), config, len(judged.item_ids))


def params(config: Mapping[str, Any], choice: str | None) -> dict[str, Any]:
    """What was asked, as a run shows it."""
    asked = {name: config[name] for name in (*DECIDES, *FILES)}
    return retrieval_run.params(asked, {"task": choice})


def tags(config: Mapping[str, Any], submission: ScoredFile) -> dict[str, str]:
    """What a run of a text task is found and compared by."""
    task = submission.task
    return {f"data.{name}": sha256 for name, sha256 in submission.fingerprints.items()} | {
        "harness.verb": "score",
        "task": task.name,
        "trial_key": trial_key(config),
        "objective": config["objective"],
        "version.measures": f"{task.name} {task.version}",
    }


def trial_key(config: Mapping[str, Any]) -> str:
    """sha256 of what decides the numbers: the task with its version, what is asked of it, and the two files."""
    files = []
    for name in FILES:
        with opened(Path(config[name])) as file:
            files.append(hashlib.sha256(file.read()).hexdigest())
    made_with = provenance.versions(provenance.packages(config))
    asked = [config[key] for key in DECIDES[1:]]
    return digest([recorded(_rules(config["task"])), task_of(config).version, asked, files, made_with])


def _rules(node: Mapping[str, Any]) -> dict[str, Any]:
    """A part's arguments without those of `runtime:`, parts inside it too."""
    kept = {name: value for name, value in node.items() if name != "runtime"}
    return {name: _rules(value) if isinstance(value, Mapping) else value for name, value in kept.items()}


def inputs(config: Mapping[str, Any], submission: ScoredFile) -> dict[str, DataInput]:
    """context -> what a run has read, as MLflow shows it."""
    n, sha256 = len(submission.judged.item_ids), submission.fingerprints
    return {name: DataInput(Path(config[name]).name, sha256[name], config[name], n) for name in FILES}


def write(
    folder: Path,
    record: RunRecord,
    config: Mapping[str, Any],
    submission: ScoredFile,
    light: bool = False,
) -> None:
    """A run's files and numbers. light: without what is only looked at: page, figure, table of items, versions."""
    judged = submission.judged
    shutil.copyfile(config["predictions"], folder / stored(config["predictions"]))
    kept = (*DECIDES, *FILES, "experiment_name", "store")
    write_text(folder / "config.yaml", provenance.resolved({name: config[name] for name in kept}))
    tallied = {name: values.tolist() for name, values in judged.tallies.items()}
    flags = {"public": submission.public.astype(int).tolist()}
    columns = {"id": judged.item_ids, "kind": judged.kinds, **flags, **tallied}
    write_text(folder / TABLE, csv_text(columns))
    record.metrics |= logged(submission)
    if light:
        return
    from harness.reports import task_figures

    write_text(folder / "items.csv", csv_text(judged.table))
    write_text(folder / "requirements.txt", provenance.requirements())
    shown, counts = submission.shown, {name: float(submission.counts[name]) for name in submission.task.counts}
    task_figures.scored(submission.summary, _means_of(submission, shown), shown, folder / "measures.png", counts)
    facts, parts = _facts(config, submission), submission.parts
    by_kind = {name: _means_of(submission, name) for name in submission.summary}
    told = (facts, submission.summary, parts["public"], parts["private"], counts)
    page = task_page.page(submission.task.name, *told, by_kind, judged, submission.values, shown)
    write_text(folder / "report.html", page)
    worst = np.argsort(submission.values, kind="stable")[:WORST]
    record.tables["items.json"] = {name: [cells[i] for i in worst] for name, cells in judged.table.items()}
    names = [path.name for path in folder.iterdir()] + list(record.tables)
    record.end_tags[NOTE] = as_note(task_page.note(*told, judged, shown, names))


def stored(predictions: str) -> str:
    """What a run calls its copy of the predictions file."""
    name = Path(predictions)
    return "predictions" + "".join(name.suffixes[-2:] if name.suffix == ".gz" else [name.suffix])


def logged(submission: ScoredFile) -> dict[str, float]:
    """The numbers of a run by their logged names; what is absent is left out."""
    found = {name: one.mean for name, one in submission.summary.items()}
    for end in ("low", "high"):
        found |= {f"interval_{end}/{name}": getattr(one, end) for name, one in submission.summary.items()}
    for part, means in submission.parts.items():
        found |= {f"{part}/{name}": one.mean for name, one in means.items()}
    found |= {f"count/{name}": float(count) for name, count in submission.counts.items()}
    return {name: value for name, value in found.items() if value == value}


def _facts(config: Mapping[str, Any], submission: ScoredFile) -> dict[str, str]:
    """What was scored, for page and description."""
    found = {"Task": submission.task.name, "Scheme": config["task"].get("scheme", "")}
    found |= {"Predictions": Path(config["predictions"]).name, "References": Path(config["references"]).name}
    public = submission.counts["public"]
    found["Items"] = f"{submission.counts['items']}, {public} of them public"
    return {name: said for name, said in found.items() if said}


def _means_of(submission: ScoredFile, measure: str) -> dict[str, tuple[int, float]]:
    """Kind of items -> (how many, the measure)."""
    return {kind: (means[measure].n, means[measure].mean) for kind, means in submission.by_kind.items()}
