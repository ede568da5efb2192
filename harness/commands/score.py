"""`harness score`: scores a predictions file that was made elsewhere, logged like a run."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.config.check import Invocation
from harness.data.dataset import Dataset
from harness.data.files import write_text
from harness.data.predictions import read_predictions
from harness.evaluation import measures
from harness.evaluation.score_table import table_text
from harness.evaluation.scores import plain
from harness.pipeline.file_scores import file_scores, lists_digest
from harness.reports import run_page, terminal
from harness.tasks.scored_file import ScoredFile, absolute, judge
from harness.tracking import provenance, recording, retrieval_run
from harness.tracking.task_run import inputs, params, save_view, stored, tags, write
from harness.tracking.tracker import NOTE, DataInput, RunRecord, as_note
from retrievers.base import BadInput

if TYPE_CHECKING:
    from rich.console import Console


def score(config: dict[str, Any], invocation: Invocation) -> dict[str, Any]:
    """The verb `score` of a text task. Returns the JSON document of `harness score task=NAME format=json`."""
    began = time.perf_counter()
    for word in invocation.overrides:
        if (key := word.partition("=")[0].partition(".")[0]) in ("dataset", "missing"):
            raise BadInput(f"{word}: {key} is about retrieval. Leave it out with task={invocation.choices['task']}.")
    config = absolute(config)
    submission = judge(config)
    record = RunRecord(
        config["experiment_name"],
        config["run_name"] or Path(config["predictions"]).name,
        params=params(config, invocation.choices["task"]),
        tags=provenance.provenance({}, config) | tags(config, submission),
        inputs=inputs(config, submission),
    )
    tracker = recording.open_tracker(config)
    target = recording.new_folder(Path(config["outputs"]).absolute() / "runs")
    with recording.live_run(tracker, record, target) as live:
        write(live.folder, record, config, submission)
    run_id, folder = live.run_id, live.folder
    peeks = 0
    if not record.unsent:
        peeks = tracker.count_private_view(config["experiment_name"])
        save_view(tracker, config)
    document = {
        "run_id": run_id,
        "experiment": config["experiment_name"],
        "task": submission.task.name,
        **_told(submission),
        "files": {"predictions": str(folder / stored(config["predictions"])), "folder": str(folder)},
        "private_peeks": peeks,
        "seconds": round(time.perf_counter() - began, 3),
    }
    terminal.emit(config["format"], document, lambda console: _show(console, submission, document))
    recording.exit_if_unsent(record)
    return document


def _told(submission: ScoredFile) -> dict[str, Any]:
    """The submission in numbers as JSON takes them: what is absent or undefined is null."""
    summary = {name: asdict(one) for name, one in submission.summary.items()}
    return plain(
        {
            "metrics": {name: one.mean for name, one in submission.summary.items()},
            "absent": submission.judged.absent,
            "counts": submission.counts,
            "summary": summary,
            **{part: {name: one.mean for name, one in means.items()} for part, means in submission.parts.items()},
            "by_kind": {
                kind: {"items": submission.judged.kinds.count(kind)} | {name: one.mean for name, one in means.items()}
                for kind, means in submission.by_kind.items()
            },
            "notes": list(submission.judged.notes),
        }
    )


def _show(console: Console, submission: ScoredFile, document: Mapping[str, Any]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("measure")
    for name in ("value", "× 100", "95 % interval", "public", "private"):
        table.add_column(name, justify="right")
    for name, one in submission.summary.items():
        known = one.mean == one.mean
        interval = f"{one.low:.3f} – {one.high:.3f}" if one.low == one.low else ""
        parts = [_number(submission.parts[part][name].mean) for part in ("public", "private")]
        table.add_row(name, _number(one.mean), f"{100 * one.mean:.2f}" if known else "", interval, *parts)
    console.print(table)
    console.print(", ".join(f"{name} {count:,}" for name, count in submission.counts.items()) + ".")
    for kind, means in submission.by_kind.items():
        applies = [name for name, one in means.items() if one.mean == one.mean]
        name = submission.shown if submission.shown in applies or not applies else applies[0]
        console.print(f"  {kind} ({submission.judged.kinds.count(kind)}): {name} {_number(means[name].mean)}")
    for name, reason in submission.judged.absent.items():
        console.print(f"{name} is absent: {reason}", style="bold")
    for note in submission.judged.notes:
        console.print(f"Note: {note}")
    for note in sorted({one.note for one in submission.summary.values() if one.note}):
        console.print(f"Intervals: {note}.", style="dim")
    console.print(f"Files: {document['files']['folder']}")
    if document["run_id"]:
        name = document["experiment"]
        console.print(f"Run {document['run_id']} of experiment {name!r}. Next:")
        console.print(f"  harness ui experiment_name='{name}'")
        task, by = f"task={submission.task.name}", f"metric={submission.shown}"
        console.print(f"  harness compare {task} {by} experiment_name='{name}'")
        console.print(f"  harness export {task} {by} run={document['run_id']}")


def _number(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.4f}"


def score_file(config: dict[str, Any], invocation: Invocation) -> dict[str, Any]:
    """Score a predictions file that was made elsewhere, logged like a run."""
    if "task" in config:
        return score(config, invocation)
    for name in [*config["metrics"], config["objective"]]:
        measures.parse(name)
    config = retrieval_run.absolute(config)
    path = Path(config["predictions"])
    predictions = read_predictions(path)
    scores, qrels = file_scores(config, predictions)
    labels = str(Dataset("", (), (), qrels).fingerprints["qrels"])
    where = retrieval_run.place(config["dataset"], "qrels")
    record = RunRecord(
        config["experiment_name"],
        config["run_name"] or path.name,
        params=retrieval_run.params(config, invocation.choices),
        tags=provenance.provenance({"predictions": lists_digest(predictions), "qrels": labels})
        | {"harness.verb": "score", "objective": config["objective"]},
        inputs={"qrels": DataInput(invocation.choices["dataset"], labels, where, len(qrels.grades))},
        metrics=retrieval_run.scored(scores),
    )
    tracker = recording.open_tracker(config)
    target = recording.new_folder(Path(config["outputs"]).absolute() / "runs")
    with recording.live_run(tracker, record, target) as live:
        shutil.copyfile(path, live.folder / f"predictions{path.suffix}")
        write_text(live.folder / "config.yaml", provenance.resolved(config))
        write_text(live.folder / "scores.csv", table_text(scores))
        write_text(live.folder / "requirements.txt", provenance.requirements())
        source = {"Predictions": path.name, "Labels": where}
        record.end_tags[NOTE] = as_note(run_page.write_scored(live.folder, scores, source, config["objective"]))
    if not record.unsent:
        tracker.count_private_view(config["experiment_name"])
    numbers = scores.to_json()
    document = {"run_id": live.run_id, "experiment": config["experiment_name"]}
    document |= {name: numbers[name] for name in ("metrics", "summary", "losses", "counts", "missing", "duplicates")}

    def show(console: Console) -> None:
        terminal.show_scores(console, scores)
        for name, ids in (("Missing", scores.missing), ("Duplicates in", list(scores.duplicates))):
            if ids:
                console.print(f"{name}: {', '.join(ids[:20])}{' …' if len(ids) > 20 else ''}")

    terminal.emit(config["format"], document, show)
    recording.exit_if_unsent(record)
    return document
