"""Formats of what lies beside the runs: defaults, recipes, claims, the database, and runs that wait to be sent."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import sqlite3
import tempfile
from pathlib import Path
from unittest import mock

from fuzzing.formats import Files, Folder, Format, Wrong, reads, same
from harness.config import defaults, manual, recipes
from harness.config.components import conf_folder
from harness.config.hydra_app import override_of
from harness.data.files import opened
from harness.evaluation.objective import Objective
from harness.tracking import database, file_hashes, in_progress, outbox, recording
from harness.tracking.tracker import Input, LoggedRun, RunRecord
from retrievers.base import BadInput

BESIDE: dict[str, Format] = {}
DEFAULTS = """dataset: contest  # as everywhere here
dataset.path: data
top_k: 5
retriever: hybrid_lexical
retriever.bm25.k1: 1.5
metrics: [ndcg@10, mrr]
experiment_name: "2024"
"""


@reads("harness.yaml", {"harness.yaml": DEFAULTS.encode()}, BESIDE)
def _defaults(folder: Path) -> None:
    for word in ("top_k=3", "retriever=bm25"):
        defaults.defaults("run", [word], folder)


def _claims() -> Files:
    with tempfile.TemporaryDirectory() as name:
        claim = in_progress.claim_work(Path(name), in_progress.Work())
        claim.unlock()
        work = {"folder": "runs/2026.unfinished", "scratch": False, "experiment": "e", "store": None}
        return {f".claims/{claim.name}": json.dumps(work).encode(), "runs/2026.unfinished/config.yaml": b"top_k: 3\n"}


@reads(
    "claim", _claims, BESIDE, fixed=frozenset({"runs/2026.unfinished/config.yaml"}), changes=True, ended=(".killed",)
)
def _claim(folder: Path) -> None:
    tracker = Folder()
    tracker.outputs = folder
    recording.end_abandoned(tracker)  # type: ignore[arg-type]


LOGGED = {"scores.csv": b"query_id,map\n1,0.5\n", "run.trec": b"q1 Q0 d1 1 2.5 x\n"}
HASHES = json.dumps({name: hashlib.sha256(content).hexdigest() for name, content in LOGGED.items()}).encode()


@reads("hashes of files", LOGGED | {"tag.json": HASHES}, BESIDE, named=False)
def _hashes(folder: Path) -> None:
    """What is believed of a run is what it has logged: a file as it was, or a tag that was made for another."""
    tag = (folder / "tag.json").read_bytes().decode("utf-8", "replace") if (folder / "tag.json").is_file() else "{}"
    run = LoggedRun("a" * 32, "a", "e", "FINISHED", {}, {}, {file_hashes.FILE_HASHES: tag})
    for name, before in LOGGED.items():
        read = file_hashes.checked(run, name, lambda name=name: Folder().download(run, str(folder / name), folder))  # type: ignore[misc]
        with opened(read) as file:  # unpacks what is packed
            if tag == HASHES.decode() and file.read() != before:
                raise Wrong("an edited file is believed", name)


def _database() -> Files:
    with tempfile.TemporaryDirectory() as name:
        with contextlib.closing(sqlite3.connect(Path(name) / "x.db")) as made:
            for table in sorted(database.TABLES):
                made.execute(f"CREATE TABLE {table} (a TEXT)")
                made.execute(f"INSERT INTO {table} VALUES ('x')")
            made.commit()
        return {"mlflow.db": (Path(name) / "x.db").read_bytes()}


@reads("database", _database, BESIDE)
def _fault(folder: Path) -> None:
    if why := database.fault(folder / "mlflow.db", thorough=True):
        raise BadInput(f"mlflow.db {why}")


RECIPE = """# @package _global_
# What everybody here uses.
defaults:
  - base
  - override /gate: score
  - override /retriever: hybrid_lexical

gate: {source: bigram, threshold: 6}
fusion:
  weights:
    bm25: 0.5
dataset:
  path: "a folder, with = signs"  # a comment
experiment_name: "2024"
metrics: [ndcg@10, mrr]
top_k: 5
hydra:
  sweeper:
    params:
      top_k: 1,2
"""
BASE = """# @package _global_
outputs: elsewhere
metrics:
  - mrr
  - ndcg@10
"""
_read = manual.read


def _page(path: Path) -> manual.Page:
    """A page of a config, read anew unless it is shipped."""
    return (_read if path.is_relative_to(conf_folder()) else _read.__wrapped__)(path)


@reads("recipe", {"experiment/mine.yaml": RECIPE.encode(), "experiment/base.yaml": BASE.encode()}, BESIDE)
def _recipe(folder: Path) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    if not (folder / "experiment" / "mine.yaml").exists():  # what the command line names, not a file
        raise BadInput("mine.yaml is missing")
    with mock.patch.object(manual, "read", _page):
        settings, others = recipes.unfolded("search", ["experiment=mine", "top_k=3"], [folder])
    same(others, ["top_k=3"], "the command line")
    for one in settings:
        parsed = OverridesParser.create().parse_override(override_of(one))
        same(parsed.key_or_group, one.key, "a key")


RECORD = RunRecord(
    "e", "run", {"top_k": 3, "metrics": ["mrr"], "dataset": None}, {"harness.verb": "run"}, {"x": "\u00e9"},
    {"mrr": 0.5, "private/mrr": 0.25}, Objective("mrr", 0.5, kind="out of fold"), True,
    {"qrels": Input("toy", "ab", "qrels.jsonl", 3)},
    {"scores.json": {"query_id": ["a", "b"], "mrr": [1.0, None]}}, began=1_790_000_000_000
)  # fmt: skip


def _unsent() -> Files:
    with tempfile.TemporaryDirectory() as name:
        outbox.write(Path(name), outbox.Held(None, "FINISHED", "sqlite:///mlflow.db", "full", RECORD))
        return {f"runs/run.unsent/{outbox.RECORD}": (Path(name) / outbox.RECORD).read_bytes()}


@reads("unsent run", _unsent, BESIDE)
def _held(folder: Path) -> None:
    held = outbox.read(folder / "runs" / "run.unsent")
    held.record.all_metrics, held.record.all_end_tags  # noqa: B018
    with tempfile.TemporaryDirectory() as name:
        outbox.write(Path(name), held)
        same(repr(dataclasses.asdict(held)), repr(dataclasses.asdict(outbox.read(Path(name)))), "the record")
