"""A sweep against bare MLflow calls that log as many runs."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from measuring import apart, harness, opened_tracker, relative, seconds
from mlflow_server import serving

# Not range(0.1,1.1,0.1): by rounding errors Hydra would add an eleventh value.
WEIGHTS = ",".join(str(n / 10) for n in range(1, 11))
AXES = ["gate=score", "gate.source=bm25", f"fusion.weights.bm25={WEIGHTS}", "fusion=rrf", "depth=20,40,60,80,100"]


def sweep(*words: str, pairs: int = 3, thresholds: int = 20, server: int = 0) -> None:
    """Time a sweep of 1,000 trials against a loop of bare MLflow calls that logs as many runs, in alternation.

    WORDS name the dataset (default: dataset=sample). The sweep fuses BM25 on morphemes with BM25 on character bigrams
    and gates by score. Times are of whole processes; tokens and indexes are cached. Each of --thresholds makes 50
    trials. Both log into SQLite; with --server N, into an MLflow server of N processes on this machine, over SQLite.
    By default, MLflow starts 4.
    """
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    plain = [*(words or ["dataset=sample"]), "retriever=hybrid_lexical"]
    count, taken = 50 * thresholds, []
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        place = Path(name)
        uri = stack.enter_context(serving(place, processes=server))[0] if server else None
        warm = _warm_cache(place, plain)
        swept = [*plain, *AXES, f"gate.threshold=range({thresholds})"]
        for number in range(pairs):
            outputs, cache, again = (place / f"{kind}-{number}" for kind in ("outputs", "cache", "bare"))
            shutil.copytree(warm, cache)
            own = [f"outputs={outputs}", f"store.path={cache}", f"experiment_name=swept-{number}"]
            own += [f"tracking.uri={uri}"] if uri else []
            spent, document = harness("sweep", *own, *swept, folder=place)
            _describe(outputs, uri, document["run_id"], count, again)
            # Nothing is deleted before the end: ext4 is slow to create files where many were deleted a minute ago.
            taken.append((spent, seconds(lambda again=again: apart(log_bare, again, uri, count))))
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


def _describe(outputs: Path, uri: str | None, sweep_id: str, count: int, folder: Path) -> None:
    client, files = opened_tracker(outputs, uri).client, folder / "files"
    experiment = client.get_run(sweep_id).info.experiment_id
    children = f"tags.`mlflow.parentRunId` = '{sweep_id}' AND attributes.status = 'FINISHED'"
    trials = client.search_runs([experiment], children, max_results=5000)
    assert len(trials) == count, f"{len(trials)} finished trials"
    files.mkdir(parents=True)
    client.download_artifacts(trials[0].info.run_id, "", str(files))
    about = {name: getattr(trials[0].data, name) for name in ("tags", "params", "metrics")}
    (folder / "run.json").write_text(json.dumps(about))


def log_bare(folder: Path, uri: str | None, runs: int) -> None:
    """Log the run in `folder` repeatedly with MLflow alone: the least cost of a sweep of so many trials."""
    from mlflow.entities import Metric, Param

    about = json.loads((folder / "run.json").read_text())
    client = opened_tracker(folder, uri).client  # a tracking store with the same settings as the sweep's
    experiment = client.create_experiment(folder.name, None if uri else (folder / "artifacts").as_uri())
    for _ in range(runs):
        now = int(time.time() * 1000)
        run_id = client.create_run(experiment, now, about["tags"]).info.run_id
        metrics = [Metric(name, value, now, 0) for name, value in about["metrics"].items()]
        client.log_batch(run_id, metrics, [Param(name, value) for name, value in about["params"].items()])
        client.log_artifacts(run_id, str(folder / "files"))
        client.set_terminated(run_id)
