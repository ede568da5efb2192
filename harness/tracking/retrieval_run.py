"""What a retrieval run logs: name, params, trial key, metrics, files; the same for single runs and sweep trials."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.config.canonical import digest, flatten
from harness.config.check import Invocation
from harness.config.components import SHARED, active_groups, build, identity, recorded_name, target_class
from harness.config.hydra_app import typed
from harness.data.dataset import Dataset
from harness.data.files import json_text, write_text
from harness.data.submissions import bare_text, submission_rows
from harness.evaluation import measures
from harness.evaluation.score_table import table_text
from harness.evaluation.scores import Scores
from harness.pipeline import steps, timing
from harness.pipeline.run_config import Node, RunConfig
from harness.pipeline.session import Session
from harness.reports import run_page
from harness.tracking.mlflow_client import redacted
from harness.tracking.provenance import requirements, resolved
from harness.tracking.tracker import NOTE, Input, RunRecord, as_note

FILE_KEYS = ("path", "documents", "queries", "qrels", "corpus", "qa", "file")
# Keys that decide where output goes and how it looks, but no result.
ELSEWHERE = ("outputs", "format", "store", "tracking", "experiment_name", "run_name", "trace")
OPTIONAL = (*SHARED, "fusion", "rerank")  # groups that not every run uses
PREDICTED = "predictions.sha256"  # tag: sha256 of the submission rows without document texts
UNSAID = ("experiment", "sweep", "search")  # groups that only set other keys, so that they are no params


def absolute(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config with absolute paths of its data files, so that it means the same in any folder."""
    found = dict(config)
    for group in ("dataset", "query", "gate"):
        if isinstance(node := config.get(group), Mapping):
            found[group] = {k: os.path.abspath(v) if k in FILE_KEYS and v else v for k, v in node.items()}  # noqa: PTH100
    return found


def trial_key(
    config: RunConfig,
    fingerprints: Mapping[str, str | None],
    texts: str,
    identify: Callable[[Node], Any] = identity,
) -> str:
    """sha256 of what decides a run's numbers: its config without paths and runtime, data, versions, measures.

    fingerprints: part of the data -> sha256.
    texts: digest of the query texts searched for.
    identify: `components.identity`, or a version of it with a memory.
    """
    read = build(config.gate, where="gate").parts
    shared = [group for group in config.active if group in ("fusion", "rerank", *read)]
    nodes = [*config.retriever.items(), *((group, config.document[group]) for group in shared)]
    apart = (*ELSEWHERE, *OPTIONAL, "dataset", "query", "retriever", "gate")
    decides = {key: value for key, value in config.document.items() if key not in apart}
    decides["gate"] = identify(config.gate)
    identities = {name: identify(node) for name, node in nodes}
    depth = config.rerank["depth"] if "rerank" in shared else 0  # not in the identity, since it changes no pair's score
    return digest([decides, identities, depth, texts, fingerprints, measures.VERSION])


def run_name(config: RunConfig, invocation: Invocation) -> str:
    """The chosen components and the other overrides, such as `bm25-kiwi-score gate.threshold=5`."""
    chosen = "-".join(invocation.choices[group] for group in ("retriever", *config.active, "gate"))
    known = (*invocation.choices, *ELSEWHERE, "metrics", "objective")
    others = [word for word in invocation.overrides if word.partition("=")[0] not in known]
    return " ".join([chosen, *(word for word in others if not word.startswith(("dataset.", "tracking.", "store.")))])


def params(config: Mapping[str, Any], choices: Mapping[str, str | None]) -> dict[str, Any]:
    """The choice in each group and every plain value that decides a result."""
    unused = (*ELSEWHERE, *UNSAID, *(set(OPTIONAL) - set(active_groups(config)) if "retriever" in config else ()))
    found: dict[str, Any] = {group: choice for group, choice in choices.items() if group not in unused}
    shared = flatten({name: config[name] for name in SHARED if name in config and name not in unused})
    for name, value in flatten({k: v for k, v in config.items() if k not in unused}).items():
        _, _, inner = name.removeprefix("retriever.").partition(".")
        repeated = name.startswith("retriever.") and inner in shared and shared[inner] == value
        if not repeated and ".runtime." not in name and not name.endswith("_target_"):
            found[name] = value
    return found


def inputs(dataset: Dataset, source: Mapping[str, Any]) -> dict[str, Input]:
    """The data of a run as MLflow shows it, by context."""
    sizes = {
        "documents": len(dataset.documents),
        "queries": len(dataset.queries),
        "qrels": len(dataset.qrels.grades) if dataset.qrels else 0,
    }
    return {
        name: Input(name=f"{dataset.name}-{name}", sha256=sha256, source=place(source, name), rows=sizes[name])
        for name, sha256 in dataset.fingerprints.items()
        if sha256
    }


def place(source: Mapping[str, Any], name: str) -> str:
    """Where a part of the data was read from: its own file, the folder, or the class that reads it."""
    return source.get(name) or source.get("path") or recorded_name(target_class(source, "dataset"))


def logged(outcome: steps.Outcome, config: RunConfig, light: bool = False) -> dict[str, float]:
    """Every number of a run by its logged name; what does not apply is left out.

    light: interval and parts only of the objective, no ceilings and counts; no number of the private part where runs
        are selected on the public part.
    """
    if not outcome.scores:
        return dict(outcome.measured)
    only = [config.objective] if light else None
    found = scored(outcome.scores, only)
    if outcome.held_out:
        found |= {
            f"{measures.OOF}{name}": value for name, value in scored(outcome.held_out, only, counts=False).items()
        }
    if fitted := outcome.decision.fitted:
        found |= {f"gate/{name}": value for name, value in _learnt(fitted).items()}
    if light and config.split.select_on == "public":
        found = {name: value for name, value in found.items() if "private/" not in name}
    return found | outcome.measured


def write_page(
    folder: Path,
    record: RunRecord,
    run_id: str | None,
    config: RunConfig,
    dataset: Dataset,
    outcome: steps.Outcome,
    overrides: Sequence[str] | None = None,
) -> None:
    """Write figures, page and installed versions; put the query table and the description into the record.

    overrides: of the command that made the run, shown without passwords; None if they are unknown.
    """
    if overrides is not None:
        parts = (typed(word).partition("=") for word in overrides)
        overrides = [f"{key}{sign}{redacted(value)}" for key, sign, value in parts]
    write_text(folder / "requirements.txt", requirements())
    report = run_page.write(folder, record.name, run_id, config, dataset, outcome, overrides)
    record.tables[run_page.TABLE] = report.table
    record.end_tags[NOTE] = as_note(report.note)


def _learnt(fitted: Mapping[str, Any]) -> dict[str, float]:
    """The numbers a gate learned: finite thresholds by the number of documents shown above them, and signal weights."""
    rule = fitted["rule"]
    found = {f"threshold_{n}": value for n, value in zip(rule["levels"], rule["thresholds"], strict=False)}
    if len(rule["features"]) > 1:
        named = zip(rule["features"], rule["weights"], strict=True)
        found |= {f"weight/{'.'.join(filter(None, feature))}": weight for feature, weight in named}
    return {name: value for name, value in found.items() if not isinstance(value, str)}


def scored(scores: Scores, only: Collection[str] | None = None, counts: bool = True) -> dict[str, float]:
    """Scores by their logged names.

    only: measures whose intervals and parts are included; None: all.
    counts: whether ceilings and query counts are included.
    """
    wanted = scores.summary if only is None else [name for name in scores.summary if name in only]
    values = {name: summary.mean for name, summary in scores.summary.items()}
    values |= {f"interval_low/{name}": scores.summary[name].low for name in wanted}
    values |= {f"interval_high/{name}": scores.summary[name].high for name in wanted}
    values |= {f"public/{name}": scores.public[name].mean for name in wanted if name in scores.public}
    values |= {f"private/{name}": scores.private[name].mean for name in wanted if name in scores.private}
    values |= {f"loss/{name}": value for name, value in scores.losses.items()}
    if only is None and counts:
        values |= {f"ceiling/{name}": value for name, value in scores.ceilings.items()}
        values |= {f"queries/{name}": float(value) for name, value in scores.counts.items()}
    return {name: value for name, value in values.items() if value == value}


def machine(config: RunConfig, session: Session) -> dict[str, float]:
    """Seconds of each stage, peak memory of the process in MB, and size of all indexes in MB."""
    indexes = [steps.index_identity(node, session.dataset) for node in config.retriever.values()]
    sizes = [session.cache.size("indexes", index) for index in indexes]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # Linux counts kilobytes, macOS bytes
    found = {f"seconds/{name}": value for name, value in session.clock.seconds.items()}
    found["peak_memory_mb"] = round(peak / (1024 * 1024 if sys.platform == "darwin" else 1024), 1)
    return found | {"index_mb": sum(size or 0 for size in sizes) / 1024**2}


def write_files(
    folder: Path, config: RunConfig, dataset: Dataset, outcome: steps.Outcome, light: bool = False
) -> dict[str, str]:
    """Write a run's files (resolved config, submission rows, scores by query, learned gate, TREC run); return its tags.

    light: no TREC run, and submission rows without document texts, which `export` adds again.
    """
    bare = bare_text(outcome.queries, outcome.candidates, outcome.final.lengths, dataset.by_id)
    found = {PREDICTED: hashlib.sha256(bare.encode()).hexdigest(), timing.MACHINE: timing.machine()}
    rows = bare if light else json_text(submission_rows(outcome.queries, outcome.final, dataset.by_id))
    files = {"config.yaml": resolved(config.document), "predictions.jsonl": rows}
    if outcome.scores:
        files["scores.csv"] = table_text(outcome.scores, outcome.held_out)
    if outcome.decision.fitted:
        files["gate.json"] = json.dumps(outcome.decision.fitted, ensure_ascii=False, indent=1) + "\n"
    if light:
        for name, text in files.items():  # only on the way to the tracker, so without waiting for the disk
            (folder / name).write_text(text, "utf-8")
        return found
    files["run.trec"] = "".join(line + "\n" for line in outcome.candidates.to_trec("retrieval-harness"))
    for name, text in files.items():
        write_text(folder / name, text)
    return found
