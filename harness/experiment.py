"""The verbs `run`, `score` and `search`: a checked config in, a tracked result out."""

from __future__ import annotations

import itertools
import logging
import os
import resource
import shutil
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import metrics, pipeline, report
from harness.config import SHARED, Asked, build, digest, digest_texts, flatten, identity, used
from harness.datasets import Dataset, conversations, load, search_queries
from harness.predictions import read_predictions, submission_rows, write_json_lines, write_text
from harness.scores import Scores, score
from harness.store import Store
from harness.tracking import RunRecord, Tracker, provenance
from retrievers.base import BadInput, Query, Ranking

if TYPE_CHECKING:
    from rich.console import Console

log = logging.getLogger(__name__)
FILE_KEYS = ("path", "documents", "queries", "qrels", "corpus", "qa", "file")
# Keys that decide where things go and how they look, but no result.
ELSEWHERE = ("outputs", "format", "store", "tracking", "experiment_name", "run_name")
OPTIONAL = (*SHARED, "fusion", "rerank")  # groups that some runs make no use of


def run(config: dict[str, Any], asked: Asked) -> dict[str, Any]:
    """One experiment: retrieve, gate, score, log. Returns the JSON document of `harness run format=json`."""
    began = time.perf_counter()
    clock = pipeline.Clock()
    config = config | {"dataset": _absolute(config["dataset"]), "query": _absolute(config["query"])}
    with clock.stage("read"):
        dataset = load(build(config["dataset"], where="dataset"), asked.choices["dataset"])
    pipeline.check(config, dataset)
    record = RunRecord(
        config["experiment_name"],
        config["run_name"] or _name(config, asked),
        params=_params(config, asked.choices),
        tags=provenance(dataset.fingerprints)
        | {"harness.verb": "run", "trial_key": trial_key(config, dataset), "objective": config["objective"]},
        inputs=_inputs(dataset, config["dataset"]),
    )
    store = Store(Path(config["store"]["path"]))
    with _tracked(config, record) as (run_id, unfinished, folder):
        outcome = pipeline.run(config, dataset, store, clock)
        _write_files(unfinished, config, dataset, outcome)
        record.table = report.query_table(outcome, config["objective"])
        record.metrics |= _logged(outcome.scores) if outcome.scores else {}
        record.metrics |= measured(outcome.rankings)
        record.metrics |= {f"seconds/{name}": value for name, value in clock.seconds.items()}
        record.metrics |= {"peak_memory_mb": _peak_memory(), "index_mb": _index_size(config, dataset, store)}
    document = {
        "run_id": run_id,
        "experiment": config["experiment_name"],
        "metrics": _json_metrics(outcome.scores),
        "measured": measured(outcome.rankings),
        "losses": outcome.scores.to_json()["losses"] if outcome.scores else None,
        "counts": outcome.scores.counts if outcome.scores else None,
        "files": {"predictions": str(folder / "predictions.jsonl"), "folder": str(folder)},
        "seconds": round(time.perf_counter() - began, 3),
    }

    def show(console: Console) -> None:
        for note in dataset.notes:
            console.print(f"Data: {note}")
        if outcome.scores:
            report.show_scores(console, outcome.scores)
        else:
            console.print("No labels: nothing is scored. Give them with dataset.qrels=FILE.")
        for name, value in measured(outcome.rankings).items():
            console.print(f"{name} {value:.4f}")
        console.print(f"Files: {folder}")
        if run_id:
            console.print(f"Run {run_id} of experiment {config['experiment_name']!r}. Next:")
            console.print(f"  harness ui experiment_name='{config['experiment_name']}'")
            console.print("  the same command with gate=score gate.threshold=5, to withhold documents below a score")
            console.print(f"  harness export run={run_id}")

    report.emit(config["format"], document, show)
    return document


def score_file(config: dict[str, Any], asked: Asked) -> dict[str, Any]:
    """Score a predictions file that was made elsewhere, logged like a run."""
    for name in [*config["metrics"], config["objective"]]:
        metrics.parse(name)
    config = config | {"dataset": _absolute(config["dataset"])}
    path = Path(config["predictions"])
    predictions = read_predictions(path)
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
    file_digest = digest([predictions.query_ids, predictions.doc_ids, predictions.docs.tolist()])
    labels = digest({query: dict(grades) for query, grades in qrels.grades.items()})
    record = RunRecord(
        config["experiment_name"],
        config["run_name"] or path.name,
        params=_params(config, asked.choices),
        tags=provenance({"predictions": file_digest, "qrels": labels})
        | {"harness.verb": "score", "objective": config["objective"]},
        inputs={"qrels": (asked.choices["dataset"], labels, _place(config["dataset"], "qrels"), len(qrels.grades))},
        metrics=_logged(scores),
    )
    with _tracked(config, record) as (run_id, unfinished, _):
        shutil.copyfile(path, unfinished / f"predictions{path.suffix}")
        write_text(unfinished / "config.yaml", _yaml(config))
        _draw(scores, unfinished)
    numbers = scores.to_json()
    document = {"run_id": run_id, "experiment": config["experiment_name"]}
    document |= {name: numbers[name] for name in ("metrics", "summary", "losses", "counts", "missing", "duplicates")}

    def show(console: Console) -> None:
        report.show_scores(console, scores)
        for name, ids in (("Missing", scores.missing), ("Duplicates in", list(scores.duplicates))):
            if ids:
                console.print(f"{name}: {', '.join(ids[:20])}{' …' if len(ids) > 20 else ''}")

    report.emit(config["format"], document, show)
    return document


def search(config: dict[str, Any], asked: Asked) -> dict[str, Any]:
    """Search for one query: top documents with scores and snippets, the gate's signal and decision."""
    text = config["query"].strip()
    if not text:
        raise BadInput("query is empty. Give the text to search for: harness search query='...'")
    source = build(config["dataset"], where="dataset")
    documents = tuple(sorted(source.documents(), key=lambda document: document.doc_id))
    dataset = Dataset(asked.choices["dataset"], documents, (Query.of("query", text),), None)
    store = Store(Path(config["store"]["path"]))
    clock = pipeline.Clock()
    rankings = pipeline.retrieve(config["retriever"], dataset, dataset.queries, config["depth"], store, clock)
    decision = build(config["gate"], where="gate").decide(rankings)
    found = pipeline.order(config, rankings, dataset, dataset.queries, store, clock).top(config["top_k"]).row(0)
    texts = {document.doc_id: document for document in documents}
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


def measured(rankings: Mapping[str, Ranking]) -> dict[str, float]:
    """What the retrievers found out about themselves, such as `index_recall/dense`."""
    return {f"{key}/{name}": value for name, found in rankings.items() for key, value in found.measured.items()}


def trial_key(config: Mapping[str, Any], dataset: Dataset) -> str:
    """sha256 of what decides a run's numbers: its config without paths and runtime, data, versions, measures."""
    parts = {group: config[group] for group in used(config) if group in ("fusion", "rerank")}
    decides = {k: v for k, v in config.items() if k not in (*ELSEWHERE, *OPTIONAL, "dataset", "query", "retriever")}
    retrievers = {name: identity(node) for name, node in (*config["retriever"].items(), *parts.items())}
    queries = search_queries(dataset, config["query"]["text"], config["query"]["file"])
    asked = digest_texts(query.text for query in queries)
    depth = parts["rerank"]["depth"] if "rerank" in parts else 0  # no part of the identity: pairs are scored alike
    return digest([decides, retrievers, depth, asked, dataset.fingerprints, metrics.VERSION])


@contextmanager
def _tracked(config: Mapping[str, Any], record: RunRecord) -> Iterator[tuple[str | None, Path, Path]]:
    """Open the run, give (run id, folder to write to, its name afterwards), and close the run.

    It ends FINISHED, or FAILED or KILLED with the traceback. The folder gets its name when the run is over: what is
    half-written never looks like a result.
    """
    outputs = Path(config["outputs"]).absolute()
    tracker: Tracker = build(config["tracking"], where="tracking")
    tracker.connect(outputs)
    run_id = tracker.begin(record)
    folder = _new_folder(outputs / "runs")
    unfinished = record.folder = folder.with_name(folder.name + ".unfinished")
    try:
        yield run_id, unfinished, folder
    except BaseException as error:
        failed = "KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED"
        write_text(unfinished / "traceback.txt", traceback.format_exc())
        unfinished = record.folder = unfinished.rename(folder.with_name(f"{folder.name}.{failed.lower()}"))
        try:
            tracker.finish(run_id, record, failed)
        except Exception as lost:  # the first error is the one to tell; its traceback is in the folder
            log.warning("the run could not be closed as %s: %s", failed, lost)
        raise
    tracker.finish(run_id, record, "FINISHED")
    unfinished.rename(folder)


def _new_folder(runs: Path) -> Path:
    """A fresh `<runs>/<time>[-n]`, claimed by making its unfinished twin."""
    stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
    for n in itertools.count(1):
        folder = runs / (stamp if n == 1 else f"{stamp}-{n}")
        if not folder.exists():
            try:
                folder.with_name(folder.name + ".unfinished").mkdir(parents=True)
                return folder
            except FileExistsError:
                continue
    raise AssertionError


def _write_files(folder: Path, config: Mapping[str, Any], dataset: Dataset, outcome: pipeline.Outcome) -> None:
    """The run's artifacts: resolved config, submission rows, TREC run of what was found, and a figure."""
    write_text(folder / "config.yaml", _yaml(config))
    documents = {document.doc_id: document for document in dataset.documents}
    write_json_lines(folder / "predictions.jsonl", submission_rows(outcome.queries, outcome.final, documents))
    write_text(folder / "run.trec", "".join(line + "\n" for line in outcome.candidates.to_trec("retrieval-harness")))
    if outcome.scores:
        _draw(outcome.scores, folder)


def _draw(scores: Scores, folder: Path) -> None:
    from harness import plots

    plots.overview(scores, folder / "overview.png")


def _yaml(config: Mapping[str, Any]) -> str:
    """The resolved config, without the tracking address, which may carry a password."""
    import yaml

    return yaml.safe_dump({k: v for k, v in config.items() if k != "tracking"}, allow_unicode=True, sort_keys=False)


def _absolute(node: Mapping[str, Any]) -> dict[str, Any]:
    """A config node whose files are named from the root, so that a run is found again from any folder."""
    return {k: os.path.abspath(v) if k in FILE_KEYS and v else v for k, v in node.items()}  # noqa: PTH100


def _name(config: Mapping[str, Any], asked: Asked) -> str:
    """What was chosen, and what was set besides: `bm25-kiwi-score gate.threshold=5`."""
    chosen = "-".join(asked.choices[group] for group in ("retriever", *used(config), "gate"))
    unsaid = (*asked.choices, *ELSEWHERE, "metrics", "objective")
    said = [word for word in asked.overrides if word.partition("=")[0] not in unsaid]
    return " ".join([chosen, *(word for word in said if not word.startswith(("dataset.", "tracking.", "store.")))])


def _params(config: Mapping[str, Any], choices: Mapping[str, str]) -> dict[str, Any]:
    """The choices by group and every plain value that decides a result."""
    unused = (*ELSEWHERE, *(set(OPTIONAL) - set(used(config)) if "retriever" in config else ()))
    params: dict[str, Any] = {group: choice for group, choice in choices.items() if group not in unused}
    shared = flatten({name: config[name] for name in SHARED if name in config and name not in unused})
    for name, value in flatten({k: v for k, v in config.items() if k not in unused}).items():
        _, _, inner = name.removeprefix("retriever.").partition(".")
        repeated = name.startswith("retriever.") and inner in shared and shared[inner] == value
        if not repeated and ".runtime." not in name and not name.endswith("_target_"):
            params[name] = value
    return params


def _inputs(dataset: Dataset, source: Mapping[str, Any]) -> dict[str, tuple[str, str, str, int]]:
    sizes = {
        "documents": len(dataset.documents),
        "queries": len(dataset.queries),
        "qrels": len(dataset.qrels.grades) if dataset.qrels else 0,
    }
    return {
        name: (f"{dataset.name}-{name}", sha256, _place(source, name), sizes[name])
        for name, sha256 in dataset.fingerprints.items()
        if sha256
    }


def _place(source: Mapping[str, Any], name: str) -> str:
    return source.get(name) or source.get("path") or source["_target_"]


def _logged(scores: Scores) -> dict[str, float]:
    """Every number of the scores by its logged name; what does not apply is left out."""
    values = {name: summary.mean for name, summary in scores.summary.items()}
    values |= {f"interval_low/{name}": summary.low for name, summary in scores.summary.items()}
    values |= {f"interval_high/{name}": summary.high for name, summary in scores.summary.items()}
    values |= {f"public/{name}": summary.mean for name, summary in scores.public.items()}
    values |= {f"private/{name}": summary.mean for name, summary in scores.private.items()}
    values |= {f"loss/{name}": value for name, value in scores.losses.items()}
    values |= {f"ceiling/{name}": value for name, value in scores.ceilings.items()}
    values |= {f"queries/{name}": float(value) for name, value in scores.counts.items()}
    return {name: value for name, value in values.items() if value == value}


def _labels_alone(source: Mapping[str, Any]) -> bool:
    """Whether a data set's config gives labels without queries: enough to score, if not to tell conversations apart."""
    given = {name for name, value in source.items() if value}
    return "qrels" in given and not given & {"path", "queries"}


def _json_metrics(scores: Scores | None) -> dict[str, float | None] | None:
    return scores.to_json()["metrics"] if scores else None


def _index_size(config: Mapping[str, Any], dataset: Dataset, store: Store) -> float:
    """MB of the indexes of all retrievers."""
    sizes = [store.size("indexes", pipeline.index_identity(node, dataset)) for node in config["retriever"].values()]
    return sum(size or 0 for size in sizes) / 1024**2


def _peak_memory() -> float:
    """MB; Linux counts kilobytes, macOS bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1024 * 1024 if sys.platform == "darwin" else 1024), 1)
