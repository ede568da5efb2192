"""`harness score`: score a file made elsewhere (ranked lists, or predictions of a text task), and log it as a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.analysis.ranking import is_same, leader, needed_metric
from harness.config.check import Invocation
from harness.config.commands import ScoreConfig
from harness.errors import BadInput
from harness.measures.scores import UNANSWERABLE
from harness.recording import provenance, recording
from harness.recording.retrieval_run import stored
from harness.recording.run_files import FileScores
from harness.recording.task_run import save_view, tags, task_inputs, task_params, write_task_run
from harness.reports import run_page, terminal
from harness.reports.evaluation import Evaluation
from harness.reports.markup import number
from harness.reports.next_steps import Place
from harness.reports.report import Report
from harness.reports.result import CommandAnswer
from harness.reports.tables import Column, Number, Rows, Table
from harness.storage.atomic import write_text
from harness.tasks.scored_file import ScoredFile, TextPlan, judge_files
from harness.tasks.task import TextTask
from harness.tracking.tracker import NOTE, RunRecord, as_note


@dataclass(frozen=True, eq=False)
class _Scored:
    """A scored file. numbers: the scores for the JSON document. shown: the measure that the next commands name."""

    record: RunRecord
    write: Callable[[Path], None]
    numbers: Mapping[str, Any]
    report: Report
    shown: str
    task: TextTask | None = None


def score_file(config: ScoreConfig, invocation: Invocation) -> CommandAnswer:
    """Score a file that was made elsewhere, and log it like a run."""
    began = time.perf_counter()
    scored = (_of_lists if config.task is None else _of_texts)(config, invocation)
    record, task = scored.record, scored.task
    tracker = recording.open_tracker(config)
    target = recording.new_folder(config.outputs.absolute() / "runs")
    with recording.live_run(tracker, record, target) as live:
        scored.write(live.folder)
    best, peeks, steps, verdict = None, 0, [], []
    if live.run_id and not record.unsent:
        peeks = tracker.count_private_view(config.experiment_name)
        if task:
            save_view(tracker, config.experiment_name, task)
        best, own, place = leader(tracker, record, live.run_id), tracker.run(live.run_id), Place.of(config, invocation)
        steps = [place.command("ui")]
        if best and record.objective and best.objective:
            same = is_same(best, own)
            verdict = [terminal.standing(record.objective, best.objective, best.short_id)]
            if same:
                unit = "predictions" if task else "lists"
                verdict = [f"This file has the same {unit} as run {best.named}: on a board, they share one row."]
            elif all(best.params.get(name) == own.params.get(name) for name in ("public", "seed") if task):
                steps.append(place.command("compare", f"runs=[{best.short_id},{own.short_id}]"))
        if task:
            metric = needed_metric(scored.shown, own)
            steps.append(place.command("export", f"run={own.short_id}", metric=metric))
    document = {
        "run_id": live.run_id,
        "experiment": config.experiment_name,
        "best_before": best and {"run_id": best.run_id, "objective": best.objective},
        "objective": record.objective,
        **scored.numbers,
        "files": {"predictions": live.folder / stored(config.predictions), "folder": live.folder},
        "private_peeks": peeks,
        "seconds": round(time.perf_counter() - began, 3),
    }
    files = terminal.where_logged(live.folder, live.run_id, config.experiment_name)
    said = replace(scored.report, verdict=verdict, files=files, steps=steps)
    return CommandAnswer(document, said, failed="" if record.unsent else None)


def _of_lists(config: ScoreConfig, invocation: Invocation) -> _Scored:
    found = FileScores.of(config, invocation.choices)
    record, scores, objective = found.record, found.scores, found.record.objective

    def write(folder: Path) -> None:
        found.write(folder)
        write_text(folder / "requirements.txt", provenance.requirements())
        source = {"Predictions": config.predictions.name, "Labels": record.inputs["qrels"].source}
        note = run_page.write_scored(folder, Evaluation(scores, None, objective), source)
        record.end_tags[NOTE] = as_note(note)

    # If a measure's denominator is 0, its mean is 0, as in the contest's reference values, and its n is 0 in `summary`.
    numbers: dict[str, Any] = {"metrics": {name: summary.mean for name, summary in scores.summary.items()}}
    numbers |= {"estimates": scores.estimates} if scores.checked else {}
    numbers |= {name: getattr(scores, name) for name in ("summary", "losses", "counts", "missing", "duplicates")}
    numbers[UNANSWERABLE] = scores.unanswerable
    title = terminal.ranked_by(objective, scores) if objective else terminal.counted_queries(scores)
    notes = terminal.score_notes(scores)
    for name, ids in (("Missing", scores.missing), ("Duplicates in", list(scores.duplicates))):
        if ids:
            notes.append(f"{name}: {', '.join(ids[:20])}{' …' if len(ids) > 20 else ''}")
    said = Report(title, tables=terminal.score_tables(scores, objective=objective), notes=notes)
    return _Scored(record, write, numbers, said, config.objective)


def _of_texts(config: ScoreConfig, invocation: Invocation) -> _Scored:
    choice = invocation.choices["task"]
    for override in invocation.overrides:
        if (key := override.partition("=")[0].partition(".")[0]) in ("dataset", "missing"):
            raise BadInput(f"{override}: {key} is for retrieval only. Leave it out, since task={choice} is given.")
    plan = TextPlan.of(config.document)
    found = judge_files(plan)
    record = RunRecord(
        config.experiment_name,
        config.run_name or plan.predictions.name,
        params=task_params(plan, choice),
        tags=provenance.provenance({}, plan) | tags(plan, found),
        inputs=task_inputs(plan, found),
    )

    def write(folder: Path) -> None:
        write_task_run(folder, record, plan, found)

    numbers = {
        "task": found.task.name,
        "metrics": {name: one.mean for name, one in found.summary.items()},
        "absent": found.judged.absent,
        "counts": found.counts,
        "summary": found.summary,
        **{part: {name: one.mean for name, one in means.items()} for part, means in found.parts.items()},
        "by_kind": {
            kind: {"items": found.judged.kinds.count(kind)} | {name: one.mean for name, one in means.items()}
            for kind, means in found.by_kind.items()
        },
        "notes": found.judged.notes,
    }
    return _Scored(record, write, numbers, _texts_report(found), found.shown, found.task)


def _texts_report(found: ScoredFile) -> Report:
    numbers = [Column("value", "value"), Column("× 100", "value", 2)]
    parts = [Column(part, "value") for part in found.parts]
    rows: Rows = []
    for name, one in found.summary.items():
        halves = (means[name].mean for means in found.parts.values())
        rows.append([name, Number(one.mean, one.low, one.high), 100 * one.mean, *halves])
    counts = ", ".join(f"{name} {count:,}" for name, count in found.counts.items()) + "."
    notes = [
        counts,
        *(
            f"{kind} ({found.judged.kinds.count(kind)}): {found.shown} {number(means[found.shown].mean)}"
            for kind, means in found.by_kind.items()
        ),
        *(f"{name} is absent: {reason}" for name, reason in found.judged.absent.items()),
        *(f"Note: {note}" for note in found.judged.notes),
        *(f"Intervals: {note}." for note in sorted({one.note for one in found.summary.values() if one.note})),
    ]
    title = terminal.ranked_by(found.ranked_by) if found.ranked_by else counts
    return Report(title, tables=[Table("Measures", [Column("measure"), *numbers, *parts], rows)], notes=notes)
