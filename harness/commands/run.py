"""The verbs `run`, `score` and `search`: a checked config in, a tracked result out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config.canonical import digest_texts
from harness.config.check import Invocation
from harness.config.components import build
from harness.data.dataset import load, search_queries
from harness.evaluation.scores import Scores
from harness.pipeline import steps
from harness.pipeline.cache import Cache
from harness.reports import terminal
from harness.tracking import provenance, recording, retrieval_run, traces
from harness.tracking.outbox import shows_private_scores
from harness.tracking.tracker import RunRecord

if TYPE_CHECKING:
    from rich.console import Console


def run(config: dict[str, Any], invocation: Invocation) -> dict[str, Any]:
    """One experiment: retrieve, gate, score, log. Returns the JSON document of `harness run format=json`."""
    began = time.perf_counter()
    clock = steps.Clock()
    config = retrieval_run.absolute(config)
    with clock.stage("read"):
        dataset = load(build(config["dataset"], where="dataset"), invocation.choices["dataset"])
    steps.check(config, dataset)
    traces.check(config, dataset.qrels is not None)
    queries = search_queries(dataset, config["query"]["text"], config["query"]["file"])
    key = retrieval_run.trial_key(config, dataset.fingerprints, digest_texts(query.text for query in queries))
    record = RunRecord(
        config["experiment_name"],
        config["run_name"] or retrieval_run.run_name(config, invocation),
        params=retrieval_run.params(config, invocation.choices),
        tags=provenance.provenance(dataset.fingerprints, config)
        | {"harness.verb": "run", "trial_key": key, "objective": config["objective"]},
        inputs=retrieval_run.inputs(dataset, config["dataset"]),
    )
    cache = Cache(Path(config["store"]["path"]))
    light = config["tracking"]["detail"] == "light"
    tracker = recording.open_tracker(config)
    target = recording.new_folder(Path(config["outputs"]).absolute() / "runs")
    with recording.live_run(tracker, record, target) as live:
        outcome = steps.run(config, dataset, cache, clock)
        record.end_tags |= retrieval_run.write_files(live.folder, config, dataset, outcome, light)
        if not light:
            retrieval_run.write_page(live.folder, record, live.run_id, config, dataset, outcome)
        record.metrics |= retrieval_run.logged(outcome, config, light) | retrieval_run.machine(
            config, dataset, cache, clock
        )
    run_id, folder = live.run_id, live.folder
    seen = shows_private_scores(record.metrics) and not record.unsent
    peeks = tracker.count_private_view(config["experiment_name"]) if seen else 0
    traced = traces.write(config, dataset, outcome, cache, tracker, run_id) if run_id and not record.unsent else 0
    document = {
        "run_id": run_id,
        "experiment": config["experiment_name"],
        "metrics": _json_metrics(outcome.scores),
        "out_of_fold": _json_metrics(outcome.held_out),
        "gate": outcome.decision.fitted,
        "measured": outcome.measured,
        "losses": outcome.scores.to_json()["losses"] if outcome.scores else None,
        "counts": outcome.scores.counts if outcome.scores else None,
        "files": {"predictions": str(folder / "predictions.jsonl"), "folder": str(folder)},
        "private_peeks": peeks,
        "traces": traced,
        "seconds": round(time.perf_counter() - began, 3),
    }

    def show(console: Console) -> None:
        for note in dataset.notes:
            console.print(f"Data: {note}")
        if outcome.scores:
            terminal.show_scores(console, outcome.scores, outcome.held_out)
            if outcome.decision.fitted:
                terminal.show_gate(console, outcome.decision.fitted)
        else:
            console.print("No labels: nothing is scored. Give them with dataset.qrels=FILE.")
        if peeks and config["select_on"] == "public":
            console.print(terminal.peeked(config["experiment_name"], peeks))
        for name, value in outcome.measured.items():
            console.print(f"{name} {value:.4f}")
        console.print(f"Files: {folder}")
        if run_id:
            console.print(f"Run {run_id} of experiment {config['experiment_name']!r}. Next:")
            console.print(f"  harness ui experiment_name='{config['experiment_name']}'")
            if invocation.choices["gate"] == "none" and outcome.scores:
                console.print("  the same command with gate=auto, to withhold documents where that scores better")
            console.print(f"  harness export run={run_id}")

    terminal.emit(config["format"], document, show)
    recording.exit_if_unsent(record)
    return document


def _json_metrics(scores: Scores | None) -> dict[str, float | None] | None:
    return scores.to_json()["metrics"] if scores else None
