"""`harness score`: scores a predictions file that was made elsewhere, logged like a run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from harness.analysis.ranking import leader
from harness.config.check import Invocation
from harness.config.commands import ScoreConfig
from harness.config.text import short_id
from harness.errors import BadInput
from harness.measures.scores import UNANSWERABLE
from harness.recording import provenance, recording
from harness.recording.retrieval_run import LISTS
from harness.recording.run_files import FileScores
from harness.recording.task_run import save_view, stored, tags, task_inputs, task_params, write_task_run
from harness.reports import run_page, terminal
from harness.reports.markup import number
from harness.reports.next_steps import Place
from harness.reports.report import Report
from harness.reports.result import CommandAnswer
from harness.reports.run_note import ShownScores
from harness.reports.tables import Column, Number, Rows, Table
from harness.storage.atomic import write_text
from harness.storage.typed import encoded
from harness.tasks.scored_file import ScoredFile, TextPlan, judge_files
from harness.tracking.tracker import NOTE, RunRecord, as_note


def score_task(config: ScoreConfig, invocation: Invocation) -> CommandAnswer:
    """The command `score` for a text task. Returns the JSON document of `harness score task=NAME format=json`."""
    began = time.perf_counter()
    for override in invocation.overrides:
        if (key := override.partition("=")[0].partition(".")[0]) in ("dataset", "missing"):
            task = invocation.choices["task"]
            raise BadInput(f"{override}: {key} is for retrieval only. Leave it out with task={task}.")
    plan = TextPlan.of(config.document)
    scored = judge_files(plan)
    record = RunRecord(
        config.experiment_name,
        config.run_name or plan.predictions.name,
        params=task_params(plan, invocation.choices["task"]),
        tags=provenance.provenance({}, plan) | tags(plan, scored),
        inputs=task_inputs(plan, scored),
    )
    tracker = recording.open_tracker(config)
    target = recording.new_folder(config.outputs.absolute() / "runs")
    with recording.live_run(tracker, record, target) as live:
        write_task_run(live.folder, record, plan, scored)
    run_id, folder = live.run_id, live.folder
    peeks = 0
    if not record.unsent:
        peeks = tracker.count_private_view(config.experiment_name)
        save_view(tracker, config.experiment_name, scored.task)
    document = {
        "run_id": run_id,
        "experiment": config.experiment_name,
        "task": scored.task.name,
        "objective": scored.ranked_by,
        **_numbers(scored),
        "files": {"predictions": str(folder / stored(plan.predictions)), "folder": str(folder)},
        "private_peeks": peeks,
        "seconds": round(time.perf_counter() - began, 3),
    }
    said = _task_report(scored, terminal.where_logged(folder, run_id, config.experiment_name))
    if run_id:
        place, metric = Place.of(config, invocation), None if scored.ranked_by else scored.shown
        run = f"run={short_id(run_id)}"
        steps = [
            place.command("ui"),
            place.command("compare", metric=metric),
            place.command("export", run, metric=metric),
        ]
        said = replace(said, steps=steps)
    return CommandAnswer(document, said, failed="" if record.unsent else None)


def _numbers(scored: ScoredFile) -> dict[str, Any]:
    """The scores as JSON takes them: what is absent or undefined is null."""
    found: dict[str, Any] = encoded(
        {
            "metrics": {name: one.mean for name, one in scored.summary.items()},
            "absent": scored.judged.absent,
            "counts": scored.counts,
            "summary": scored.summary,
            **{part: {name: one.mean for name, one in means.items()} for part, means in scored.parts.items()},
            "by_kind": {
                kind: {"items": scored.judged.kinds.count(kind)} | {name: one.mean for name, one in means.items()}
                for kind, means in scored.by_kind.items()
            },
            "notes": scored.judged.notes,
        }
    )
    return found


def _task_report(scored: ScoredFile, files: Sequence[str]) -> Report:
    """Return what a submission to a text task scores. files: lines that name its files."""
    numbers = [
        Column("value", "value"),
        Column("× 100", "value", 2),
        Column("public", "value"),
        Column("private", "value"),
    ]
    rows: Rows = [
        [name, Number(one.mean, one.low, one.high), 100 * one.mean, scored.parts["public"][name].mean,
         scored.parts["private"][name].mean]
        for name, one in scored.summary.items()
    ]  # fmt: skip
    counts = ", ".join(f"{name} {count:,}" for name, count in scored.counts.items()) + "."
    notes = [
        counts,
        *(
            f"{kind} ({scored.judged.kinds.count(kind)}): {scored.shown} {number(means[scored.shown].mean)}"
            for kind, means in scored.by_kind.items()
        ),
        *(f"{name} is absent: {reason}" for name, reason in scored.judged.absent.items()),
        *(f"Note: {note}" for note in scored.judged.notes),
        *(f"Intervals: {note}." for note in sorted({one.note for one in scored.summary.values() if one.note})),
    ]
    title = terminal.ranked_by(scored.ranked_by) if scored.ranked_by else counts
    return Report(title, [], [Table("Measures", [Column("measure"), *numbers], rows)], notes, files)


def score_file(config: ScoreConfig, invocation: Invocation) -> CommandAnswer:
    """Score a predictions file that was made elsewhere, logged like a run."""
    if config.task is not None:
        return score_task(config, invocation)
    scored = FileScores.of(config, invocation.choices)
    config = scored.config
    record, scores, objective = scored.record, scored.scores, scored.record.objective
    tracker = recording.open_tracker(config)
    target = recording.new_folder(config.outputs.absolute() / "runs")
    with recording.live_run(tracker, record, target) as live:
        scored.write(live.folder)
        write_text(live.folder / "requirements.txt", provenance.requirements())
        source = {"Predictions": config.predictions.name, "Labels": record.inputs["qrels"].source}
        shown = ShownScores(scores, None, config.objective, objective)
        record.end_tags[NOTE] = as_note(run_page.write_scored(live.folder, shown, source))
    best = None
    if live.run_id and not record.unsent:
        tracker.count_private_view(config.experiment_name)
        best = leader(tracker, record, live.run_id)
    same = best and best.tags.get(LISTS) == record.tags[LISTS]
    document: dict[str, Any] = {
        "run_id": live.run_id,
        "experiment": config.experiment_name,
        "best_before": best and {"run_id": best.run_id, "objective": best.objective},
        "objective": objective,
    }
    # By the definition of the reference values: 0 for a ratio without a denominator, whose summary has n = 0.
    document["metrics"] = {name: summary.mean for name, summary in scores.summary.items()}
    document |= {"estimates": scores.estimates} if scores.checked else {}
    document |= {name: getattr(scores, name) for name in ("summary", "losses", "counts", "missing", "duplicates")}
    document[UNANSWERABLE] = scores.unanswerable

    title = terminal.ranked_by(objective, scores) if objective else terminal.counted_queries(scores)
    verdict, steps = [], []
    if best and same:
        verdict = [f"The same lists as run {best.named}: on a board, both are one row."]
    elif objective and best and best.objective:
        verdict = [terminal.standing(objective, best.objective, best.short_id)]
    notes = terminal.score_notes(scores)
    for name, ids in (("Missing", scores.missing), ("Duplicates in", list(scores.duplicates))):
        if ids:
            notes.append(f"{name}: {', '.join(ids[:20])}{' …' if len(ids) > 20 else ''}")
    if live.run_id:
        place = Place.of(config, invocation)
        runs = [f"runs=[{best.short_id},{short_id(live.run_id)}]"] if best and not same else []
        steps = [place.command("ui"), *(place.command("compare", one) for one in runs)]
    files = terminal.where_logged(live.folder, live.run_id, config.experiment_name)
    said = Report(title, verdict, terminal.score_tables(scores, objective=objective), notes, files, steps)
    return CommandAnswer(document, said, failed="" if record.unsent else None)
