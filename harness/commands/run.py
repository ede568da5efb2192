"""`harness run`: run one experiment, and show its result."""

from __future__ import annotations

from typing import Any

from harness.analysis.proposals.command_lines import search_as
from harness.analysis.ranking import GET_LABELS
from harness.analysis.single_run import Result, experiment
from harness.config.check import Invocation
from harness.config.commands import RunConfig
from harness.config.text import short_id
from harness.experiment import steps, timing
from harness.measures.measures import OOF
from harness.measures.scores import UNANSWERABLE
from harness.reports import terminal
from harness.reports.markup import number
from harness.reports.next_steps import Place, sample_note
from harness.reports.report import Report
from harness.reports.result import CommandAnswer
from harness.reports.tables import Table

SHOWN = 5  # maximum number of measures that are printed, including the objective


def run(config: RunConfig, invocation: Invocation) -> CommandAnswer:
    result = experiment(config, invocation)
    failed = "" if result.unsent else result.untraced or None
    return CommandAnswer(run_document(result), run_report(result), value=result, failed=failed)


def run_document(one: Result) -> dict[str, Any]:
    best, scores = one.best_before, one.scores
    document = {
        "run_id": one.run_id,
        "experiment": one.experiment,
        "best_before": best and {"run_id": best.run_id, "objective": best.objective},
        "objective": one.objective,
        "metrics": one.metrics if scores else None,
        "out_of_fold": one.out_of_fold if one.held_out else None,
        "gate": one.gate,
        "fusion": one.fusion,
        "measured": one.measured,
        "losses": one.losses if scores else None,
        UNANSWERABLE: scores.unanswerable if scores else None,
        "counts": one.counts if scores else None,
        "files": {"predictions": one.folder / "predictions.jsonl", "folder": one.folder},
        "private_peeks": one.private_peeks,
        "traces": one.traces,
        "seconds": one.seconds,
    }
    optional = {"slices": one.slices if one.plan.slices else None, "estimates": one.estimates or None}
    return document | {name: found for name, found in optional.items() if found is not None}


def run_report(result: Result) -> Report:
    """Return a report of the result, with the most important facts first, followed by the next commands."""
    words = (*result.invocation.defaults, *result.invocation.overrides)
    whole = any(word.startswith("metrics=") for word in words)
    scores, held_out, objective = result.scores, result.held_out, result.objective
    tables: list[Table] = []
    verdict, notes, steps = [], [], []
    if scores is None:
        title = f"No labels: nothing is scored. {GET_LABELS}"
    else:
        title = terminal.ranked_by(objective, held_out or scores) if objective else terminal.counted_queries(scores)
        if whole:
            tables, notes = terminal.score_tables(scores, held_out, objective), terminal.score_notes(scores)
        else:
            tables = [terminal.loss_table(scores, held_out, objective, terminal.LEAST_LOSS)]
            notes = terminal.main_notes(held_out or scores)
    tables += [terminal.slice_table(result.slices, objective.title)] if objective and result.slices else []
    if objective and (best := result.best_before) and best.objective:
        verdict.append(terminal.standing(objective, best.objective, best.short_id))
    if result.private_peeks and result.plan.split.select_on == "public":
        verdict.append(terminal.peeked(result.experiment, result.private_peeks))
    tables += [terminal.fusion_table(result.fusion, whole)] if result.fusion else []
    tables += [terminal.gate_table(result.gate, whole)] if result.gate else []
    tables += [Table("To try next, the best first", notes=result.next_commands)]
    notes += [*terminal.measured_lines(result.measured)] if whole else _beside(result)
    notes += [f"Data: {note}" for note in (*sample_note(result.plan.document, words), *result.data_notes)]
    if result.run_id:
        place = Place.of(result.plan, result.invocation)
        steps = [place.command("ui"), *_search(result), place.command("export", f"run={short_id(result.run_id)}")]
    files = terminal.where_logged(result.folder, result.run_id, result.experiment)
    return Report(title, verdict, tables, notes, files, steps)


def _beside(result: Result) -> list[str]:
    rows = [row for row in result.headline(SHOWN) if result.held_out is None or row[0].startswith(OOF)]
    numbers = {name: one.known for name, one, _ in rows[1:]} | timing.main_timings(result.measured)
    values = ", ".join(f"{name} {number(value)}" for name, value in numbers.items())
    also = [*([f"Also: {values}."] if values else []), *(["All measures: metrics=all"] if result.scores else [])]
    return [" ".join(also)] if also else []


def _search(result: Result) -> list[str]:
    if any(steps.is_precomputed(node) for node in result.plan.retriever.values()):
        return []
    rules = {group: rule for group, rule in {"gate": result.gate, "fusion": result.fusion}.items() if rule}
    return search_as(result.invocation, {group: result.folder / f"{group}.json" for group in rules})
