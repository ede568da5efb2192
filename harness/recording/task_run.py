"""The params, tags, trial key, metrics and files of a run of any text task."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from harness.config.canonical import digest
from harness.config.components import check_component, recorded
from harness.config.schema import Node
from harness.data.files import open_unpacked, sha256_of
from harness.data.tables import csv_text
from harness.recording import provenance, retrieval_run
from harness.recording.logged_run import ValidRun, logged_config, logged_value, require_unchanged
from harness.recording.retrieval_run import stored
from harness.reports.figure import save
from harness.reports.run_figures import draw_scored
from harness.reports.run_note import task_note
from harness.reports.run_page import task_page
from harness.storage.atomic import write_text
from harness.storage.cache import open_cache
from harness.tasks.scored_file import FILES, ScoredFile, TextPlan, task_of
from harness.tasks.task import TextTask
from harness.tracking.tracker import NOTE, OBJECTIVE_METRICS, Input, LoggedRun, RunRecord, Tracker, as_note

TABLE = "tallies.csv"  # file with the counts of every item; commands compare runs by these counts
WORST = 1000  # maximum number of items in the table on a run's page in MLflow; the worst items come first
# The keys that decide the numbers, besides the two files.
DECIDES = ("task", "metrics", "objective", "public", "seed")


def save_view(tracker: Tracker, experiment: str, task: TextTask) -> None:
    """Let MLflow's page of the experiment show the task's runs, best first, with the task's measures as columns."""
    columns = [*OBJECTIVE_METRICS, *task.measures]
    tracker.view(experiment, "runs", {"task": task.name}, columns, ["task.scheme", "predictions"])


def validated(tracker: Tracker, run: LoggedRun) -> ValidRun:
    """Return the predictions of a run. Raise BadInput if predictions or references have changed since the run."""
    config = logged_config(tracker, run)
    check_component(logged_value(config, "task", dict), "task")
    references, store = Path(logged_value(config, "references", str)), logged_value(config, "store.path", str)
    with tempfile.TemporaryDirectory() as folder:
        file = tracker.download(run, stored(run.params["predictions"]), Path(folder))
        judged = task_of(config["task"]).judge(file, references, [], open_cache(store))
        require_unchanged(run, judged.fingerprints, config, "Put the files back, or score the predictions again.")
        with open_unpacked(file) as content:
            return ValidRun(content.read().decode(), config, len(judged.item_ids))


def task_params(plan: TextPlan, choice: str | None) -> dict[str, Any]:
    decides = {name: plan.document[name] for name in (*DECIDES, *FILES)}
    return retrieval_run.plain_params(decides, {"task": choice})


def tags(plan: TextPlan, scored: ScoredFile) -> dict[str, str]:
    """Return the tags by which commands find and compare a text task's runs."""
    task = scored.task
    return {f"data.{name}": sha256 for name, sha256 in scored.judged.fingerprints.items()} | {
        "harness.verb": "score",
        "task": task.name,
        "trial_key": task_trial_key(plan),
        "version.measures": f"{task.name} {task.version}",
    }


def task_trial_key(plan: TextPlan) -> str:
    """Return the sha256 of everything that decides the numbers: task, settings, both files, and package versions."""
    sha256s = [sha256_of(plan.predictions), sha256_of(plan.references)]
    versions = provenance.version_tags(provenance.packages(plan))
    settings = [plan.document[key] for key in DECIDES[1:]]
    return digest([recorded(_without_runtime(plan.node)), plan.task.version, settings, sha256s, versions])


def _without_runtime(node: Node) -> dict[str, Any]:
    return {
        name: _without_runtime(value) if isinstance(value, Mapping) else value
        for name, value in node.items()
        if name != "runtime"
    }


def task_inputs(plan: TextPlan, scored: ScoredFile) -> dict[str, Input]:
    """Return "predictions" and "references" -> the data to log in MLflow."""
    rows, files = len(scored.judged.item_ids), zip(FILES, (plan.predictions, plan.references), strict=True)
    return {name: Input(file.name, scored.judged.fingerprints[name], str(file), rows) for name, file in files}


def write_task_run(folder: Path, record: RunRecord, plan: TextPlan, scored: ScoredFile, light: bool = False) -> None:
    """Write a run's files, and put its numbers into the record. light: leave out files that no command reads."""
    shutil.copyfile(plan.predictions, folder / stored(plan.predictions))
    recorded_keys = (*DECIDES, *FILES, "experiment_name", "store")
    write_text(folder / "config.yaml", provenance.resolved({name: plan.document[name] for name in recorded_keys}))
    judged, public = scored.judged, scored.public.astype(int).tolist()
    counts = {name: values.tolist() for name, values in judged.item_counts.items()}
    write_text(folder / TABLE, csv_text({"id": judged.item_ids, "kind": judged.kinds, "public": public, **counts}))
    retrieval_run.write_metrics(folder, record, task_numbers(scored), scored.ranked_by, light)
    if not light:
        record.shows_private = True
        _write_pages(folder, record, plan, scored)


def _write_pages(folder: Path, record: RunRecord, plan: TextPlan, scored: ScoredFile) -> None:
    table = scored.judged.table
    write_text(folder / "items.csv", csv_text(table))
    write_text(folder / "requirements.txt", provenance.requirements())
    by_kind = scored.means_by_kind(scored.shown)
    save(draw_scored(scored.summary, by_kind, scored.shown, scored.totals), folder / "measures.png")
    named = {
        "Task": scored.task.name,
        "Scheme": plan.node.get("scheme", ""),
        "Predictions": plan.predictions.name,
        "References": plan.references.name,
        "Items": f"{scored.counts['items']}, {scored.counts['public']} of them public",
    }
    facts = [(name, text) for name, text in named.items() if text]
    write_text(folder / "report.html", task_page(scored, facts))
    worst = np.argsort(scored.values, kind="stable")[:WORST]
    record.tables["items.json"] = {name: [cells[i] for i in worst] for name, cells in table.items()}
    files = [path.name for path in folder.iterdir()] + list(record.tables)
    record.end_tags[NOTE] = as_note(task_note(scored, facts, files))


def task_numbers(scored: ScoredFile) -> dict[str, float]:
    found = retrieval_run.by_part({"": scored.summary} | {f"{part}/": means for part, means in scored.parts.items()})
    found |= {f"count/{name}": float(count) for name, count in scored.counts.items()}
    return {name: value for name, value in found.items() if value == value}
