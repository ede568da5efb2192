"""Logging a run, and a sweep, against bare MLflow calls that log the same."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from measuring import SAMPLE, Table, apart, harness, in_turns, opened_tracker, relative, seconds, timed

from harness.cli import call
from harness.tracking.mlflow_tracker import MlflowTracker
from harness.tracking.tracker import RunRecord, mlflow_name

# Not range(0.1,1.1,0.1): by rounding errors Hydra would add an eleventh value.
WEIGHTS = ",".join(str(n / 10) for n in range(1, 11))
AXES = ["gate=score", "gate.source=bm25", f"fusion.weights.bm25={WEIGHTS}", "fusion=rrf", "depth=20,40,60,80,100"]


def tracking(*words: str, rounds: int = 15) -> None:
    """Compare the time to log a run with bare MLflow calls that log the same, to SQLite and to a server over HTTP.

    WORDS are overrides of `harness run`; tracking.detail=light logs like the trials of a sweep. One run is made, then
    logged repeatedly, in alternation by the harness and by an `MlflowClient` with as few calls as possible. Making the
    files (figures, page, table) is timed separately.
    """
    from mlflow_server import serving as mlflow_server

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        record, made = one_run(folder, words)
        assert record.folder is not None
        files = [path.stat().st_size for path in record.folder.rglob("*") if path.is_file()]
        about = f"{len(record.params)} params, {len(record.metrics)} metrics, {len(record.tables)} tables"
        print(f"{about}, {len(files)} files of {sum(files) / 1000:,.0f} kB; page and figures took {made:.0f} ms\n")
        table = Table("store", "harness, ms", "few bare calls", "harness over bare", "min - max")
        with mlflow_server(folder) as (address, _):
            for label, uri in (("SQLite", f"sqlite:///{folder / 'bench.db'}"), ("HTTP", address)):
                tracker = MlflowTracker(uri, "full" if record.tables else "light")
                tracker.connect(folder)
                tracker.begin(RunRecord("bench", "makes the experiment"))
                ways = [lambda log=log, to=tracker: log(to, record) for log in (_ours, _bare)]
                spent = 1000 * in_turns(ways, rounds)
                ratios = spent[:, 0] / spent[:, 1]
                medians = [*map(float, np.median(spent, axis=0)), float(np.median(ratios))]
                table.row(label, *medians, f"{ratios.min():.2f} - {ratios.max():.2f}")


def one_run(folder: Path, words: Sequence[str]) -> tuple[RunRecord, float]:
    """Return the record of one run with its folder of files, and the ms for its page and figures."""
    from harness.recording import recording, retrieval_run

    caught, took = list[RunRecord](), list[float]()
    plain_write, plain_end = retrieval_run.write_page, recording.LiveRun.end

    def write(*arguments: Any) -> None:
        took.append(1000 * timed(lambda: plain_write(*arguments))[0])

    def end(run: recording.LiveRun, status: str) -> None:
        caught.append(run.record)
        plain_end(run, status)

    with mock.patch.object(retrieval_run, "write_page", write), mock.patch.object(recording.LiveRun, "end", end):
        for _ in range(2):  # the first imports and compiles
            with contextlib.redirect_stdout(io.StringIO()) as out:
                assert call("run", ["format=json", f"outputs={folder}", *words]) == 0, "the run failed"
    caught[-1].folder = Path(json.loads(out.getvalue())["files"]["folder"])
    return caught[-1], took[-1] if took else 0.0


def _ours(tracker: MlflowTracker, record: RunRecord) -> None:
    record.experiment = "bench"
    tracker.finish(tracker.begin(record), record, "FINISHED")


def _bare(tracker: MlflowTracker, record: RunRecord) -> None:
    from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag

    client, now = tracker.client, int(1000 * time.time())
    experiment = client.get_experiment_by_name("bench")
    run_id = client.create_run(experiment.experiment_id, tags=record.tags, run_name=record.name).info.run_id
    client.log_batch(
        run_id,
        [Metric(mlflow_name(name), value, now, 0) for name, value in record.metrics.items()],
        [Param(name, str(value)) for name, value in record.params.items()],
        [RunTag(name, value) for name, value in record.end_tags.items()],
    )
    inputs = []
    for context, one in record.inputs.items():
        about = Dataset(one.name, one.sha256[:36], "local", json.dumps({"uri": one.source}))
        inputs.append(DatasetInput(about, [InputTag("context", context)]))
    if inputs and tracker.detail != "light":
        client.log_inputs(run_id, inputs)
    client.log_artifacts(run_id, str(record.folder))
    for name, table in record.tables.items():
        rows = list(zip(*table.values(), strict=True))
        client.log_text(run_id, json.dumps({"columns": list(table), "data": rows}, ensure_ascii=False), name)
    client.set_terminated(run_id)


def sweep(*, data: Path | None = None, qrels: Path | None = None, pairs: int = 3, thresholds: int = 20) -> None:
    """Time a sweep of 1,000 trials against a loop of bare MLflow calls that logs as many runs, in alternation.

    The sweep fuses BM25 on morphemes with BM25 on character bigrams and gates by score. Times are of whole processes;
    tokens and indexes are cached. --data: folder in the contest's layout (default: the shipped sample), --qrels: its
    labels. Each of --thresholds makes 50 trials.
    """
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    folder = (data or SAMPLE).absolute()
    contest = ["dataset=contest", f"dataset.path={folder}"]
    contest += [f"dataset.qrels={(qrels or folder / 'qrels.jsonl').absolute()}"]
    words = [*(contest if data else ["dataset=sample"]), "retriever=hybrid_lexical"]
    count, taken = 50 * thresholds, []
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        warm = _warm_cache(place, words)
        words += [*AXES, f"gate.threshold=range({thresholds})"]
        for number in range(pairs):
            outputs, cache, again = (place / f"{kind}-{number}" for kind in ("outputs", "cache", "bare"))
            shutil.copytree(warm, cache)
            spent, document = harness("sweep", f"outputs={outputs}", f"store.path={cache}", *words, folder=place)
            _describe(outputs, document["run_id"], count, again)
            taken.append((spent, seconds(lambda again=again: apart(log_bare, again, count))))
            shutil.rmtree(outputs)
    ours, bare = (statistics.median(times) for times in zip(*taken, strict=True))
    print(f"{count} trials; medians of {pairs} pairs\n")
    rows = [("harness sweep, tokens and indexes cached", ours), (f"a bare loop that logs {count} equal runs", bare)]
    relative(rows, "the sweep")
    print(f"\nThe sweep over the bare loop, pair by pair: {', '.join(f'{one / two:.2f}' for one, two in taken)}")


def _warm_cache(folder: Path, words: list[str]) -> Path:
    cache = folder / "cache"
    harness("run", "tracking=none", f"outputs={folder / 'warm'}", f"store.path={cache}", *words, folder=folder)
    for kind in cache.iterdir():
        if kind.name not in ("tokens", "indexes"):
            shutil.rmtree(kind)
    return cache


def _describe(outputs: Path, sweep_id: str, count: int, folder: Path) -> None:
    client, files = opened_tracker(outputs).client, folder / "files"
    experiment = client.get_run(sweep_id).info.experiment_id
    children = f"tags.`mlflow.parentRunId` = '{sweep_id}' AND attributes.status = 'FINISHED'"
    trials = client.search_runs([experiment], children, max_results=5000)
    assert len(trials) == count, f"{len(trials)} finished trials"
    files.mkdir(parents=True)
    client.download_artifacts(trials[0].info.run_id, "", str(files))
    about = {name: getattr(trials[0].data, name) for name in ("tags", "params", "metrics")}
    (folder / "run.json").write_text(json.dumps(about))


def log_bare(folder: Path, runs: int) -> None:
    """Log the run in `folder` repeatedly with MLflow alone: the least cost of a sweep of so many trials."""
    from mlflow.entities import Metric, Param

    about = json.loads((folder / "run.json").read_text())
    client = opened_tracker(folder).client  # a tracking store with the same settings as the sweep's
    experiment = client.create_experiment("bare", (folder / "artifacts").as_uri())
    for _ in range(runs):
        now = int(time.time() * 1000)
        run_id = client.create_run(experiment, now, about["tags"]).info.run_id
        metrics = [Metric(name, value, now, 0) for name, value in about["metrics"].items()]
        client.log_batch(run_id, metrics, [Param(name, value) for name, value in about["params"].items()])
        client.log_artifacts(run_id, str(folder / "files"))
        client.set_terminated(run_id)
