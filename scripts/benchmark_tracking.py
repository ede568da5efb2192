"""Time for logging a run, against bare MLflow calls that log the same: to SQLite, and to a server over HTTP.

    python scripts/benchmark_tracking.py                            # the sample
    python scripts/benchmark_tracking.py tracking.detail=light      # overrides of `harness run`: as in a sweep's trials
    python scripts/benchmark_tracking.py dataset=contest dataset.path=FOLDER gate=auto

One run is made and then logged repeatedly, alternating between the harness, an `MlflowClient` with as few calls, and
one call per value, as most programs do. The time for making the files (figures, page, table) is printed separately.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.cli import call
from harness.tracking import recording, retrieval_run
from harness.tracking.mlflow_tracker import MlflowTracker
from harness.tracking.tracker import RunRecord, mlflow_name

ROUNDS = 15
PORT = 5092


def main(words: list[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        record, made = one_run(folder, words)
        assert record.folder is not None
        files = [path for path in record.folder.rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files) / 1000
        print(
            f"{len(record.params)} params, {len(record.metrics)} metrics, {len(files)} files of {size:,.0f} kB, "
            f"{len(record.tables)} tables; making page and figures took {made:.0f} ms"
        )
        compare("SQLite", f"sqlite:///{folder / 'bench.db'}", record, folder)
        with server(folder) as address:
            compare("HTTP", address, record, folder)


def one_run(folder: Path, words: list[str]) -> tuple[RunRecord, float]:
    """The record of one run with its folder of files, and the ms that making page and figures took in a second run."""
    caught: list[RunRecord] = []
    took: list[float] = []
    plain_write, plain_end = retrieval_run.write_page, recording.LiveRun.end

    def write(*arguments: Any) -> None:
        began = time.perf_counter()
        plain_write(*arguments)
        took.append(1000 * (time.perf_counter() - began))

    def end(run: recording.LiveRun, status: str) -> None:
        caught.append(run.record)
        plain_end(run, status)

    retrieval_run.write_page, recording.LiveRun.end = write, end  # type: ignore[method-assign]
    for _ in range(2):  # the first imports and compiles
        with contextlib.redirect_stdout(io.StringIO()) as out:
            code = call("run", ["format=json", f"outputs={folder}", *words])
            assert code == 0, "the run failed"
    record = caught[-1]
    record.folder = Path(json.loads(out.getvalue())["files"]["folder"])
    return record, took[-1] if took else 0.0


@contextlib.contextmanager
def server(folder: Path) -> Iterator[str]:
    address = f"http://127.0.0.1:{PORT}"
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(PORT), "--workers", "1",
               "--backend-store-uri", f"sqlite:///{folder / 'server.db'}",
               "--artifacts-destination", (folder / "files").as_uri()]  # fmt: skip
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ
    )
    try:
        for _ in range(600):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{address}/health", timeout=2).close()
                break
            time.sleep(0.2)
        yield address
    finally:
        process.terminate()
        process.wait()


def compare(label: str, uri: str, record: RunRecord, folder: Path) -> None:
    """Print the median times of all ways to log `record` to one address."""
    tracker = MlflowTracker(uri, "full" if record.tables else "light")
    tracker.connect(folder)
    tracker.begin(RunRecord("bench", "makes the experiment"))
    ways: dict[str, Callable[[MlflowTracker, RunRecord], None]] = {"harness": ours, "bare": bare, "one by one": single}
    spent: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(ROUNDS + 1):
        for way, log in ways.items():
            if way == "one by one" and turn > 3:
                continue
            began = time.perf_counter()
            log(tracker, record)
            spent[way].append(1000 * (time.perf_counter() - began))
    ms = {way: statistics.median(times[1:]) for way, times in spent.items()}
    ratios = [a / b for a, b in zip(spent["harness"][1:], spent["bare"][1:], strict=True)]
    print(
        f"{label}: harness {ms['harness']:.0f} ms per run, bare calls {ms['bare']:.0f}, one call per value "
        f"{ms['one by one']:.0f}; harness over bare: median {statistics.median(ratios):.2f} of {ROUNDS} "
        f"({min(ratios):.2f} to {max(ratios):.2f})"
    )


def ours(tracker: MlflowTracker, record: RunRecord) -> None:
    record.experiment = "bench"
    tracker.finish(tracker.begin(record), record, "FINISHED")


def bare(tracker: MlflowTracker, record: RunRecord) -> None:
    """Log the same content with MLflow's client, one call per kind of content."""
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
    inputs = (
        []
        if tracker.detail == "light"
        else [
            DatasetInput(
                Dataset(name, sha256[:36], "local", json.dumps({"uri": source})), [InputTag("context", context)]
            )
            for context, (name, sha256, source, _) in record.inputs.items()
        ]
    )
    if inputs:
        client.log_inputs(run_id, inputs)
    client.log_artifacts(run_id, str(record.folder))
    for name, table in record.tables.items():
        rows = list(zip(*table.values(), strict=True))
        client.log_text(run_id, json.dumps({"columns": list(table), "data": rows}, ensure_ascii=False), name)
    client.set_terminated(run_id)


def single(tracker: MlflowTracker, record: RunRecord) -> None:
    """Log with one call per param, metric, tag and file."""
    client = tracker.client
    experiment = client.get_experiment_by_name("bench")
    run_id = client.create_run(experiment.experiment_id, run_name=record.name).info.run_id
    for name, value in (record.tags | record.end_tags).items():
        client.set_tag(run_id, name, value)
    for name, value in record.params.items():
        client.log_param(run_id, name, str(value))
    for name, value in record.metrics.items():
        client.log_metric(run_id, mlflow_name(name), value)
    assert record.folder is not None
    for path in record.folder.iterdir():
        client.log_artifact(run_id, str(path))
    client.set_terminated(run_id)


if __name__ == "__main__":
    main(sys.argv[1:])
