"""What a run leaves behind: name, params, key, metrics, files. The same for a single run and a trial of a sweep."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import logging
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import metrics, pipeline, unsent
from harness.config import SHARED, Asked, build, digest, flatten, identity, target_class, used
from harness.datasets import Dataset
from harness.mlflow_store import Unreachable
from harness.predictions import bare_text, json_text, submission_rows, write_text
from harness.scores import Scores, table_text
from harness.store import Store
from harness.tracking import LoggedRun, RunRecord, Tracker

log = logging.getLogger(__name__)
FILE_KEYS = ("path", "documents", "queries", "qrels", "corpus", "qa", "file")
# Keys that decide where things go and how they look, but no result.
ELSEWHERE = ("outputs", "format", "store", "tracking", "experiment_name", "run_name", "trace")
OPTIONAL = (*SHARED, "fusion", "rerank")  # groups that some runs make no use of
PREDICTED = "predictions.sha256"  # tag: sha256 of the submission rows without the documents' texts
PACKAGES = ("retrieval-harness", "numpy", "scipy", "numba", "hydra-core", "mlflow")  # that every run makes use of
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
    parts = {group: config[group] for group in used(config) if group in ("fusion", "rerank", *read)}
    apart = (*ELSEWHERE, *OPTIONAL, "dataset", "query", "retriever", "gate")
    decides = {k: v for k, v in config.items() if k not in apart}
    decides["gate"] = identify(config["gate"])
    retrievers = {name: identify(node) for name, node in (*config["retriever"].items(), *parts.items())}
    depth = parts["rerank"]["depth"] if "rerank" in parts else 0  # no part of the identity: pairs are scored alike
    return digest([decides, retrievers, depth, asked, fingerprints, metrics.VERSION])


def run_name(config: Mapping[str, Any], asked: Asked) -> str:
    """What was chosen, and what was set besides: `bm25-kiwi-score gate.threshold=5`."""
    chosen = "-".join(asked.choices[group] for group in ("retriever", *used(config), "gate"))
    unsaid = (*asked.choices, *ELSEWHERE, "metrics", "objective")
    said = [word for word in asked.overrides if word.partition("=")[0] not in unsaid]
    return " ".join([chosen, *(word for word in said if not word.startswith(("dataset.", "tracking.", "store.")))])


def params(config: Mapping[str, Any], choices: Mapping[str, str | None]) -> dict[str, Any]:
    """The choices by group and every plain value that decides a result."""
    unused = (*ELSEWHERE, *UNSAID, *(set(OPTIONAL) - set(used(config)) if "retriever" in config else ()))
    found: dict[str, Any] = {group: choice for group, choice in choices.items() if group not in unused}
    shared = flatten({name: config[name] for name in SHARED if name in config and name not in unused})
    for name, value in flatten({k: v for k, v in config.items() if k not in unused}).items():
        _, _, inner = name.removeprefix("retriever.").partition(".")
        repeated = name.startswith("retriever.") and inner in shared and shared[inner] == value
        if not repeated and ".runtime." not in name and not name.endswith("_target_"):
            found[name] = value
    return found


def inputs(dataset: Dataset, source: Mapping[str, Any]) -> dict[str, tuple[str, str, str, int]]:
    """The data of a run as MLflow shows it: context -> (name, sha256, place, rows)."""
    sizes = {
        "documents": len(dataset.documents),
        "queries": len(dataset.queries),
        "qrels": len(dataset.qrels.grades) if dataset.qrels else 0,
    }
    return {
        name: (f"{dataset.name}-{name}", sha256, place(source, name), sizes[name])
        for name, sha256 in dataset.fingerprints.items()
        if sha256
    }


def place(source: Mapping[str, Any], name: str) -> str:
    """Where a part of the data was read: its own file, the folder, or the reader's name."""
    return source.get(name) or source.get("path") or source["_target_"]


def logged(outcome: pipeline.Outcome, config: Mapping[str, Any], light: bool = False) -> dict[str, float]:
    """Every number of a run by its logged name; what does not apply is left out.

    light: with interval and parts of the objective alone, without ceilings and counts; and where runs are chosen by
    the public part, without a look at the private one.
    """
    if not outcome.scores:
        return dict(outcome.measured)
    only = [config["objective"]] if light else None
    found = scored(outcome.scores, only)
    if outcome.held_out:
        found |= {f"{metrics.OOF}{name}": value for name, value in scored(outcome.held_out, only, counts=False).items()}
    if fitted := outcome.decision.fitted:
        found |= {f"gate/{name}": value for name, value in _learnt(fitted).items()}
    if light and config["select_on"] == "public":
        found = {name: value for name, value in found.items() if "private/" not in name}
    return found | outcome.measured


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


def machine(config: Mapping[str, Any], dataset: Dataset, store: Store, clock: pipeline.Clock) -> dict[str, float]:
    """Seconds of each stage, MB of the process at its greatest and of the indexes of all retrievers."""
    sizes = [store.size("indexes", pipeline.index_identity(node, dataset)) for node in config["retriever"].values()]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # Linux counts kilobytes, macOS bytes
    found = {f"seconds/{name}": value for name, value in clock.seconds.items()}
    found["peak_memory_mb"] = round(peak / (1024 * 1024 if sys.platform == "darwin" else 1024), 1)
    return found | {"index_mb": sum(size or 0 for size in sizes) / 1024**2}


def write_files(
    folder: Path, config: Mapping[str, Any], dataset: Dataset, outcome: pipeline.Outcome, light: bool = False
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


@contextmanager
def tracked(config: Mapping[str, Any], record: RunRecord) -> Iterator[tuple[Tracker, str | None, Path, Path]]:
    """Open the run, give (tracker, run id, folder to write to, its name afterwards), and close the run."""
    outputs = Path(config["outputs"]).absolute()
    tracker: Tracker = build(config["tracking"], where="tracking")
    tracker.connect(outputs)
    folder = new_folder(outputs / "runs")
    with recording(tracker, record, folder) as (run_id, unfinished):
        yield tracker, run_id, unfinished, folder


def end(record: RunRecord) -> None:
    """Exit code 1 for a run that is not logged, though it has all its numbers."""
    if record.unsent:
        raise SystemExit(1)


@contextmanager
def recording(
    tracker: Tracker, record: RunRecord, folder: Path, adopted: LoggedRun | None = None, direct: bool = False
) -> Iterator[tuple[str | None, Path]]:
    """Open a run, or take up the one that a crash left; give (run id, folder to write to); close the run.

    It ends FINISHED, or FAILED or KILLED with the traceback. What is written becomes `folder` when the run is over:
    what is half-written never looks like a result. direct: it may be written straight to where the tracker keeps it,
    and then there is no `folder`; the run that is not FINISHED says that it is half-written. A store that is down
    does not keep the run from its end: what it did not take is kept, see `record.unsent`.
    """
    run_id, down = None, None
    record.began = int(time.time() * 1000)
    try:
        run_id = tracker.begin(record, adopted)
    except Unreachable as error:
        down = error
    place = tracker.place(run_id) if direct else None
    written = place or folder.with_name(folder.name + ".unfinished")
    written.mkdir(parents=True, exist_ok=True)
    try:
        yield run_id, written
    except BaseException as error:
        failed = "KILLED" if isinstance(error, KeyboardInterrupt | SystemExit) else "FAILED"
        write_text(written / "traceback.txt", traceback.format_exc())
        final = place or written.rename(folder.with_name(f"{folder.name}.{failed.lower()}"))
        try:
            close(tracker, run_id, record, failed, folder, None if place else final, down)
        except Exception as lost:  # the first error is the one to tell; its traceback is in the folder
            log.warning("the run could not be closed as %s: %s", failed, lost)
        raise
    close(tracker, run_id, record, "FINISHED", folder, None if place else written, down)
    if not place and not record.unsent:
        written.rename(folder)


def close(
    tracker: Tracker,
    run_id: str | None,
    record: RunRecord,
    status: str,
    folder: Path,
    files: Path | None,
    down: Unreachable | None = None,
) -> None:
    """End a run; if its store is down, keep what it did not take in `<folder>.unsent`, for `harness doctor sync`.

    files: where what was written lies; None where that is where the store keeps it. down: known from the run's begin.
    """
    record.folder = files
    try:
        if down:
            raise down
        tracker.finish(run_id, record, status)
    except Unreachable as error:
        record.unsent = unsent.keep(tracker, run_id, record, status, folder, files)
        log.warning("Not logged, since %s. Kept in %s; `harness doctor sync` sends it.", error, record.unsent)


def provenance(fingerprints: Mapping[str, str | None], config: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Tags that say with what a run was made: data, code and versions, those of its parts' packages with `config`."""
    import platform
    import subprocess

    tags = {f"data.{name}": sha256 for name, sha256 in fingerprints.items() if sha256}
    tags |= {"mlflow.source.name": "harness", "mlflow.source.type": "LOCAL"}
    tags |= {"version.python": platform.python_version(), "version.measures": str(metrics.VERSION)}
    tags |= versions(PACKAGES) | (versions(packages(config)) if config and {"retriever", "task"} & set(config) else {})
    try:
        commit, changed = (
            subprocess.run(["git", *words], capture_output=True, text=True, timeout=5, check=True).stdout.strip()  # noqa: S603, S607
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain"])
        )
        tags |= {"git.commit": commit, "mlflow.source.git.commit": commit, "git.dirty": str(bool(changed)).lower()}
    except (OSError, subprocess.SubprocessError):
        tags["git.commit"] = "none"  # not a checkout, or no git here
    return tags


def packages(config: Mapping[str, Any]) -> set[str]:
    """The packages that compute the results of a run's parts, as their classes name them."""
    if "task" in config:
        parts = [config["task"]]
    else:
        parts = [*config["retriever"].values(), config["gate"], *(config[group] for group in used(config))]
    found: set[str] = set()
    while parts:
        part = parts.pop()
        found |= set(getattr(target_class(part, "config"), "packages", ()))
        parts += [inner for inner in part.values() if isinstance(inner, Mapping) and "_target_" in inner]
    return found | ({"torch"} if "transformers" in found else set())


def versions(names: Iterable[str]) -> dict[str, str]:
    """Tags with the installed versions of packages."""
    return {f"version.{name}": _version(name) for name in names}


@functools.cache
def _version(package: str) -> str:
    import importlib.metadata

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def resolved(config: Mapping[str, Any]) -> str:
    """The resolved config as YAML, without the tracking address, which may carry a password."""
    return "".join(_yaml(json.dumps({name: node})) for name, node in config.items() if name != "tracking")


@functools.lru_cache(maxsize=1000)  # trials have most of their config in common
def _yaml(node: str) -> str:
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # the same text, ten times as fast
    return yaml.dump(json.loads(node), Dumper=dumper, allow_unicode=True, sort_keys=False)


def new_folder(runs: Path) -> Path:
    """A fresh `<runs>/<time>[-n]`, claimed by making its unfinished twin."""
    stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
    for n in itertools.count(1):
        folder = runs / (stamp if n == 1 else f"{stamp}-{n}")
        if not any(folder.with_name(folder.name + ending).exists() for ending in ("", ".failed", ".killed", ".unsent")):
            try:
                folder.with_name(folder.name + ".unfinished").mkdir(parents=True)
                return folder
            except FileExistsError:
                continue
    raise AssertionError
