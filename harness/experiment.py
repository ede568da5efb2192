"""The verbs `run`, `score` and `search`: a checked config in, a tracked result out."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import metrics, pipeline, records, report, run_page, tasks, traces
from harness.config import Asked, build, digest, digest_texts
from harness.datasets import Dataset, conversations, load, search_queries
from harness.predictions import read_predictions, write_text
from harness.scores import Scores, score, table_text
from harness.searcher import Searcher
from harness.signals import random_queries
from harness.store import Store
from harness.tracking import RunRecord
from harness.unsent import looks
from retrievers.base import BadInput, Predictions, Qrels, Query

if TYPE_CHECKING:
    from rich.console import Console


def run(config: dict[str, Any], asked: Asked) -> dict[str, Any]:
    """One experiment: retrieve, gate, score, log. Returns the JSON document of `harness run format=json`."""
    began = time.perf_counter()
    clock = pipeline.Clock()
    config = records.absolute(config)
    with clock.stage("read"):
        dataset = load(build(config["dataset"], where="dataset"), asked.choices["dataset"])
    pipeline.check(config, dataset)
    traces.check(config, dataset.qrels is not None)
    queries = search_queries(dataset, config["query"]["text"], config["query"]["file"])
    key = records.trial_key(config, dataset.fingerprints, digest_texts(query.text for query in queries))
    record = RunRecord(
        config["experiment_name"],
        config["run_name"] or records.run_name(config, asked),
        params=records.params(config, asked.choices),
        tags=records.provenance(dataset.fingerprints, config)
        | {"harness.verb": "run", "trial_key": key, "objective": config["objective"]},
        inputs=records.inputs(dataset, config["dataset"]),
    )
    store = Store(Path(config["store"]["path"]))
    light = config["tracking"]["detail"] == "light"
    with records.tracked(config, record) as (tracker, run_id, unfinished, folder):
        outcome = pipeline.run(config, dataset, store, clock)
        record.found |= records.write_files(unfinished, config, dataset, outcome, light)
        if not light:
            run_page.write(unfinished, record, run_id, config, dataset, outcome)
        record.metrics |= records.logged(outcome, config, light) | records.machine(config, dataset, store, clock)
    folder = record.unsent / "files" if record.unsent else folder
    peeks = tracker.peek(config["experiment_name"]) if looks(record.metrics) and not record.unsent else 0
    traced = traces.write(config, dataset, outcome, store, tracker, run_id) if run_id and not record.unsent else 0
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
            report.show_scores(console, outcome.scores, outcome.held_out)
            if outcome.decision.fitted:
                report.show_gate(console, outcome.decision.fitted)
        else:
            console.print("No labels: nothing is scored. Give them with dataset.qrels=FILE.")
        if peeks and config["select_on"] == "public":
            console.print(report.peeked(config["experiment_name"], peeks))
        for name, value in outcome.measured.items():
            console.print(f"{name} {value:.4f}")
        console.print(f"Files: {folder}")
        if run_id:
            console.print(f"Run {run_id} of experiment {config['experiment_name']!r}. Next:")
            console.print(f"  harness ui experiment_name='{config['experiment_name']}'")
            if asked.choices["gate"] == "none" and outcome.scores:
                console.print("  the same command with gate=auto, to withhold documents where that scores better")
            console.print(f"  harness export run={run_id}")

    report.emit(config["format"], document, show)
    records.end(record)
    return document


def score_file(config: dict[str, Any], asked: Asked) -> dict[str, Any]:
    """Score a predictions file that was made elsewhere, logged like a run."""
    if "task" in config:
        return tasks.score(config, asked)
    for name in [*config["metrics"], config["objective"]]:
        metrics.parse(name)
    config = records.absolute(config)
    path = Path(config["predictions"])
    predictions = read_predictions(path)
    scores, qrels = file_scores(config, predictions)
    labels = str(Dataset("", (), (), qrels).fingerprints["qrels"])
    where = records.place(config["dataset"], "qrels")
    record = RunRecord(
        config["experiment_name"],
        config["run_name"] or path.name,
        params=records.params(config, asked.choices),
        tags=records.provenance({"predictions": lists_digest(predictions), "qrels": labels})
        | {"harness.verb": "score", "objective": config["objective"]},
        inputs={"qrels": (asked.choices["dataset"], labels, where, len(qrels.grades))},
        metrics=records.scored(scores),
    )
    with records.tracked(config, record) as (tracker, run_id, unfinished, _):
        shutil.copyfile(path, unfinished / f"predictions{path.suffix}")
        write_text(unfinished / "config.yaml", records.resolved(config))
        write_text(unfinished / "scores.csv", table_text(scores))
        run_page.write_scored(unfinished, record, scores, {"Predictions": path.name, "Labels": where}, config)
    if not record.unsent:
        tracker.peek(config["experiment_name"])
    numbers = scores.to_json()
    document = {"run_id": run_id, "experiment": config["experiment_name"]}
    document |= {name: numbers[name] for name in ("metrics", "summary", "losses", "counts", "missing", "duplicates")}

    def show(console: Console) -> None:
        report.show_scores(console, scores)
        for name, ids in (("Missing", scores.missing), ("Duplicates in", list(scores.duplicates))):
            if ids:
                console.print(f"{name}: {', '.join(ids[:20])}{' …' if len(ids) > 20 else ''}")

    report.emit(config["format"], document, show)
    records.end(record)
    return document


def file_scores(config: Mapping[str, Any], predictions: Predictions) -> tuple[Scores, Qrels]:
    """What lists made elsewhere score by the labels of a checked `score` config, and these labels."""
    source = build(config["dataset"], where="dataset")
    qrels = source.qrels()
    if qrels is None:
        raise BadInput("There are no labels to score with. Give them with dataset.qrels=FILE.")
    scores = score(
        predictions,
        qrels,
        config["metrics"],
        missing=config["missing"],
        multi_turn=None if _labels_alone(config["dataset"]) else conversations(source.queries()),
        public=config["public"],
        seed=config["seed"],
    )
    return scores, qrels


def lists_digest(predictions: Predictions) -> str:
    """sha256 of lists made elsewhere: queries and documents in the file's order, nothing else of it."""
    return digest([predictions.query_ids, predictions.doc_ids, predictions.docs.tolist()])


def search(config: dict[str, Any], asked: Asked) -> dict[str, Any]:
    """Search for one query: top documents with scores and snippets, the gate's signal and decision."""
    text = config["query"].strip()
    if not text:
        raise BadInput("query is empty. Give the text to search for: harness search query='...'")
    source = build(config["dataset"], where="dataset")
    documents = tuple(sorted(source.documents(), key=lambda document: document.doc_id))
    searcher = Searcher(
        {**config, "query": {"text": "user_turns", "file": None}},
        Dataset(asked.choices["dataset"], documents, (), None),
        Store(Path(config["store"]["path"])),
        lambda: random_queries([document.indexed_text for document in documents], source.queries()),
    )
    _, candidates, decision, _ = searcher.search([Query.of("query", text)])
    found = candidates.top(config["top_k"]).row(0)
    texts = searcher.documents
    kept = bool(decision.keep[0])
    document = {
        "query": text,
        "signal": None if decision.signal is None else float(decision.signal[0]),
        "retrieve": kept,
        "documents": [
            {"doc_id": doc_id, "score": value, "title": texts[doc_id].title, "text": texts[doc_id].text}
            for doc_id, value in found
        ],
    }

    def show(console: Console) -> None:
        for rank, (doc_id, value) in enumerate(found, start=1):
            console.print(f"{rank}. {doc_id}  {value:.4f}", style="bold")
            console.print(f"   {report.snippet(texts[doc_id].indexed_text)}")
        if not found:
            console.print("No document shares a term with the query.")
        signal = "" if document["signal"] is None else f", signal {document['signal']:.4f}"
        console.print(f"Gate {asked.choices['gate']}{signal}: {'retrieves' if kept else 'withholds the documents'}.")

    report.emit(config["format"], document, show)
    return document


def _labels_alone(source: Mapping[str, Any]) -> bool:
    """Whether a data set's config gives labels without queries: enough to score, if not to tell conversations apart."""
    given = {name for name, value in source.items() if value}
    return "qrels" in given and not given & {"path", "queries"}


def _json_metrics(scores: Scores | None) -> dict[str, float | None] | None:
    return scores.to_json()["metrics"] if scores else None
