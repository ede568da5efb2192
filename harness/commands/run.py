"""`harness run`: one experiment, from a checked config to a tracked result."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config.check import Invocation
from harness.evaluation.objective import Objective
from harness.evaluation.scores import Scores
from harness.pipeline import preflight, steps
from harness.pipeline.run_config import RunConfig
from harness.pipeline.session import Clock, Session, load_dataset, open_session
from harness.progress import stage
from harness.reports import terminal
from harness.reports.next_steps import Place, Proposals
from harness.tracking import provenance, recording, retrieval_run, traces
from harness.tracking.ranking import leader
from harness.tracking.tracker import RunRecord, short_id

if TYPE_CHECKING:
    from rich.console import Console


def run(config: dict[str, Any], invocation: Invocation) -> dict[str, Any]:
    """Prepare, execute, record and present one experiment. Returns the JSON document of `harness run format=json`."""
    began = time.perf_counter()
    run_config = RunConfig.of(retrieval_run.absolute(config))
    session, record = prepare(run_config, invocation)
    tracker = recording.open_tracker(config)
    target = recording.new_folder(Path(config["outputs"]).absolute() / "runs")
    with recording.live_run(tracker, record, target) as live:
        outcome = steps.run(run_config, session)
        with stage("writing files and figures"):
            write_results(live.folder, record, live.run_id, run_config, session, outcome, invocation.overrides)
    run_id, folder = live.run_id, live.folder
    name, sent = run_config.experiment_name, not record.unsent
    best = leader(tracker, record, run_id) if run_id and sent else None
    document = {
        "run_id": run_id,
        "experiment": name,
        "best_before": best and {"run_id": best.run_id, "objective": best.objective and best.objective.to_json()},
        **numbers(outcome),
        "files": {"predictions": str(folder / "predictions.jsonl"), "folder": str(folder)},
        "private_peeks": tracker.count_private_view(name) if record.shows_private and sent else 0,
        "traces": traces.write(config, session.dataset, outcome, session.cache, tracker, run_id)
        if run_id and sent
        else 0,
        "seconds": round(time.perf_counter() - began, 3),
    }
    terminal.emit(
        config["format"], document, lambda console: show(console, document, run_config, invocation, session, outcome)
    )
    recording.exit_if_unsent(record)
    return document


def prepare(config: RunConfig, invocation: Invocation) -> tuple[Session, RunRecord]:
    """Read the data, refuse what cannot work, and name the run. Nothing is computed or logged yet."""
    clock = Clock()
    with clock.stage("read"):
        dataset = load_dataset(config, invocation.choices["dataset"])
    session = open_session(config, dataset, clock)
    labelled = dataset.qrels is not None
    facts = preflight.DataFacts.of(dataset, session.queries)
    preflight.check(config, facts, session.cache)
    traces.check(config.document, labelled)
    tags = {
        "harness.verb": "run",
        "trial_key": retrieval_run.trial_key(config, dataset.fingerprints, facts.texts),
    }
    record = RunRecord(
        config.experiment_name,
        config.run_name or retrieval_run.run_name(config, invocation),
        params=retrieval_run.params(config.document, invocation.choices),
        tags=provenance.provenance(dataset.fingerprints, config.document) | tags,
        inputs=retrieval_run.inputs(dataset, config.dataset),
    )
    return session, record


def write_results(
    folder: Path,
    record: RunRecord,
    run_id: str | None,
    config: RunConfig,
    session: Session,
    outcome: steps.Outcome,
    overrides: Sequence[str],
) -> None:
    """Write a run's files and page, and put its numbers into the record. overrides: of the command line."""
    record.end_tags |= retrieval_run.write_files(folder, config, session.dataset, outcome, config.light)
    retrieval_run.log_numbers(folder, record, outcome, retrieval_run.machine(config, session), config.light)
    if not config.light:
        retrieval_run.write_page(folder, record, run_id, config, session.dataset, outcome, overrides)


def numbers(outcome: steps.Outcome) -> dict[str, Any]:
    """What the experiment found, as JSON takes it."""
    scores = outcome.scores
    return {
        "objective": outcome.objective and outcome.objective.to_json(),
        "metrics": _means(scores),
        "out_of_fold": _means(outcome.held_out),
        "gate": outcome.decision.fitted,
        "measured": outcome.measured,
        "losses": scores.to_json()["losses"] if scores else None,
        "counts": scores.counts if scores else None,
    }


def show(
    console: Console,
    document: Mapping[str, Any],
    config: RunConfig,
    invocation: Invocation,
    session: Session,
    outcome: steps.Outcome,
) -> None:
    """The result on a terminal, and what to do next."""
    for note in session.dataset.notes:
        console.print(f"Data: {note}")
    if outcome.scores:
        terminal.show_scores(console, outcome.scores, outcome.held_out, outcome.objective)
        if outcome.decision.fitted:
            terminal.show_gate(console, outcome.decision.fitted)
    else:
        console.print("No labels: nothing is scored. Give them with dataset.qrels=FILE.")
    if outcome.objective and (best := document["best_before"]):
        console.print(standing(outcome.objective, best))
    name, run_id = config.experiment_name, document["run_id"]
    if document["private_peeks"] and config.split.select_on == "public":
        console.print(terminal.peeked(name, document["private_peeks"]))
    terminal.show_measured(console, outcome.measured)
    console.print(f"Files: {document['files']['folder']}")
    if run_id:
        console.print(f"Run {short_id(run_id)} of experiment {name!r}. Next:")
        for line in next_lines(run_id, config, invocation, outcome):
            console.print(line)


def standing(one: Objective, best: Mapping[str, Any]) -> str:
    """How an objective stands to the best run before, in one sentence. best: this run, as in the JSON document."""
    before = best["objective"]
    kind = "" if before["kind"] == one.kind else f", {before['kind']}"
    so_far = f"the best so far (run {short_id(best['run_id'])}{kind})."
    difference = one.value - before["value"]
    return f"{difference:+.4f} against {so_far}" if difference else f"As good as {so_far}"


def next_lines(run_id: str, config: RunConfig, invocation: Invocation, outcome: steps.Outcome) -> Iterator[str]:
    """The commands that show and export a run, and those that may win back what loses most."""
    place = Place(config.document, invocation.choices)
    yield f"  {place.command('ui')}"
    yield f"  {place.command('export', f'run={run_id}')}"
    if scores := outcome.held_out or outcome.scores:
        proposals = Proposals(invocation, list(config.retriever), config.depth)
        yield from proposals.lines(scores.losses, scores.counts["needs_no_retrieval"])


def _means(scores: Scores | None) -> dict[str, float | None] | None:
    return scores.to_json()["metrics"] if scores else None
