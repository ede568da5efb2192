"""What a run leaves behind: name, params, key, metrics, files. The same for a single run and a trial of a sweep."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from harness.config.canonical import digest, flatten
from harness.config.check import Invocation
from harness.config.components import SHARED, active_groups, build, identity, recorded_name, target_class
from harness.data.dataset import Dataset
from harness.data.files import json_text, write_text
from harness.data.submissions import bare_text, submission_rows
from harness.evaluation import measures
from harness.evaluation.score_table import table_text
from harness.evaluation.scores import Scores
from harness.pipeline import steps
from harness.pipeline.cache import Cache
from harness.reports import run_page
from harness.tracking.provenance import requirements, resolved
from harness.tracking.tracker import NOTE, DataInput, RunRecord, as_note

FILE_KEYS = ("path", "documents", "queries", "qrels", "corpus", "qa", "file")
# Keys that decide where things go and how they look, but no result.
ELSEWHERE = ("outputs", "format", "store", "tracking", "experiment_name", "run_name", "trace")
OPTIONAL = (*SHARED, "fusion", "rerank")  # groups that some runs make no use of
PREDICTED = "predictions.sha256"  # tag: sha256 of the submission rows without the documents' texts
UNSAID = ("experiment", "sweep", "search")  # groups that only set other keys


def absolute(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config whose data files are named from the root, so that a run is found again from any folder."""
    found = dict(config)
    for group in ("dataset", "query", "gate"):
        if isinstance(node := config.get(group), Mapping):
            found[group] = {k: os.path.abspath(v) if k in FILE_KEYS and v else v for k, v in node.items()}  # noqa: PTH100
    return found


def trial_key(
    config: Mapping[str, Any],
    fingerprints: Mapping[str, str | None],
    asked: str,
    identify: Callable[[Mapping[str, Any]], Any] = identity,
) -> str:
    """sha256 of what decides a run's numbers: its config without paths and runtime, data, versions, measures.

    asked: digest of the texts that are searched for. identify: `config.identity`, or one that remembers.
    """
    read = build(config["gate"], where="gate").parts
    parts = {group: config[group] for group in active_groups(config) if group in ("fusion", "rerank", *read)}
    apart = (*ELSEWHERE, *OPTIONAL, "dataset", "query", "retriever", "gate")
    decides = {k: v for k, v in config.items() if k not in apart}
    decides["gate"] = identify(config["gate"])
    retrievers = {name: identify(node) for name, node in (*config["retriever"].items(), *parts.items())}
    depth = parts["rerank"]["depth"] if "rerank" in parts else 0  # no part of the identity: pairs are scored alike
    return digest([decides, retrievers, depth, asked, fingerprints, measures.VERSION])


def run_name(config: Mapping[str, Any], invocation: Invocation) -> str:
    """What was chosen, and what was set besides: `bm25-kiwi-score gate.threshold=5`."""
    chosen = "-".join(invocation.choices[group] for group in ("retriever", *active_groups(config), "gate"))
    unsaid = (*invocation.choices, *ELSEWHERE, "metrics", "objective")
    said = [word for word in invocation.overrides if word.partition("=")[0] not in unsaid]
    return " ".join([chosen, *(word for word in said if not word.startswith(("dataset.", "tracking.", "store.")))])


def params(config: Mapping[str, Any], choices: Mapping[str, str | None]) -> dict[str, Any]:
    """The choices by group and every plain value that decides a result."""
    unused = (*ELSEWHERE, *UNSAID, *(set(OPTIONAL) - set(active_groups(config)) if "retriever" in config else ()))
    found: dict[str, Any] = {group: choice for group, choice in choices.items() if group not in unused}
    shared = flatten({name: config[name] for name in SHARED if name in config and name not in unused})
    for name, value in flatten({k: v for k, v in config.items() if k not in unused}).items():
        _, _, inner = name.removeprefix("retriever.").partition(".")
        repeated = name.startswith("retriever.") and inner in shared and shared[inner] == value
        if not repeated and ".runtime." not in name and not name.endswith("_target_"):
            found[name] = value
    return found


def inputs(dataset: Dataset, source: Mapping[str, Any]) -> dict[str, DataInput]:
    """context -> what a run has read, as MLflow shows it."""
    sizes = {
        "documents": len(dataset.documents),
        "queries": len(dataset.queries),
        "qrels": len(dataset.qrels.grades) if dataset.qrels else 0,
    }
    return {
        name: DataInput(f"{dataset.name}-{name}", sha256, place(source, name), sizes[name])
        for name, sha256 in dataset.fingerprints.items()
        if sha256
    }


def place(source: Mapping[str, Any], name: str) -> str:
    """Where a part of the data was read: its own file, the folder, or the reader's name."""
    return source.get(name) or source.get("path") or recorded_name(target_class(source, "dataset"))


def logged(outcome: steps.Outcome, config: Mapping[str, Any], light: bool = False) -> dict[str, float]:
    """Every number of a run by its logged name; what does not apply is left out.

    light: with interval and parts of the objective alone, without ceilings and counts; and where runs are chosen by
    the public part, without a look at the private one.
    """
    if not outcome.scores:
        return dict(outcome.measured)
    only = [config["objective"]] if light else None
    found = scored(outcome.scores, only)
    if outcome.held_out:
        found |= {
            f"{measures.OOF}{name}": value for name, value in scored(outcome.held_out, only, counts=False).items()
        }
    if fitted := outcome.decision.fitted:
        found |= {f"gate/{name}": value for name, value in _learnt(fitted).items()}
    if light and config["select_on"] == "public":
        found = {name: value for name, value in found.items() if "private/" not in name}
    return found | outcome.measured


def write_page(
    folder: Path,
    record: RunRecord,
    run_id: str | None,
    config: Mapping[str, Any],
    dataset: Dataset,
    outcome: steps.Outcome,
) -> None:
    """Write what people look at: figures, page, installed versions; table and description go into the record."""
    write_text(folder / "requirements.txt", requirements())
    table, note = run_page.write(folder, record.name, run_id, config, dataset, outcome)
    record.tables[run_page.TABLE] = table
    record.end_tags[NOTE] = as_note(note)


def _learnt(fitted: Mapping[str, Any]) -> dict[str, float]:
    """What a gate learnt in numbers: finite thresholds by the documents shown above them, weights of its signals."""
    rule = fitted["rule"]
    found = {f"threshold_{n}": value for n, value in zip(rule["levels"], rule["thresholds"], strict=False)}
    if len(rule["features"]) > 1:
        named = zip(rule["features"], rule["weights"], strict=True)
        found |= {f"weight/{'.'.join(filter(None, feature))}": weight for feature, weight in named}
    return {name: value for name, value in found.items() if not isinstance(value, str)}


def scored(scores: Scores, only: Collection[str] | None = None, counts: bool = True) -> dict[str, float]:
    """The numbers of scores by their logged names. only: measures whose interval and parts are wanted; None = all."""
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


def machine(config: Mapping[str, Any], dataset: Dataset, cache: Cache, clock: steps.Clock) -> dict[str, float]:
    """Seconds of each stage, MB of the process at its greatest and of the indexes of all retrievers."""
    sizes = [cache.size("indexes", steps.index_identity(node, dataset)) for node in config["retriever"].values()]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # Linux counts kilobytes, macOS bytes
    found = {f"seconds/{name}": value for name, value in clock.seconds.items()}
    found["peak_memory_mb"] = round(peak / (1024 * 1024 if sys.platform == "darwin" else 1024), 1)
    return found | {"index_mb": sum(size or 0 for size in sizes) / 1024**2}


def write_files(
    folder: Path, config: Mapping[str, Any], dataset: Dataset, outcome: steps.Outcome, light: bool = False
) -> dict[str, str]:
    """A run's files: resolved config, submission rows, scores by query, what the gate learnt, TREC run.

    light: without the run, and the rows without the documents' texts, which `export` puts back. Returns
    tags that say what was found.
    """
    bare = bare_text(outcome.queries, outcome.candidates, outcome.final.lengths, dataset.by_id)
    found = {PREDICTED: hashlib.sha256(bare.encode()).hexdigest()}
    rows = bare if light else json_text(submission_rows(outcome.queries, outcome.final, dataset.by_id))
    files = {"config.yaml": resolved(config), "predictions.jsonl": rows}
    if outcome.scores:
        files["scores.csv"] = table_text(outcome.scores, outcome.held_out)
    if outcome.decision.fitted:
        files["gate.json"] = json.dumps(outcome.decision.fitted, ensure_ascii=False, indent=1) + "\n"
    if light:
        for name, text in files.items():  # on their way to the tracker: nothing is gained by waiting for the disk
            (folder / name).write_text(text, "utf-8")
        return found
    files["run.trec"] = "".join(line + "\n" for line in outcome.candidates.to_trec("retrieval-harness"))
    for name, text in files.items():
        write_text(folder / name, text)
    return found
