"""`harness sweep` against what it replaces."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from measuring import HARNESS, SAMPLE, Table, apart, harness, opened_tracker, relative, resident, seconds

from harness.cli import call

# Not range(0.1,1.1,0.1): by rounding errors Hydra would add an eleventh value.
WEIGHTS = ",".join(str(n / 10) for n in range(1, 11))
MEASURED = ("seconds/", "ms_per_query", "peak_memory_mb")  # metrics that may differ between equal trials


@dataclass
class Workbench:
    """A working folder, the words that choose the data, and how many thresholds are tried."""

    folder: Path
    words: list[str]
    thresholds: int

    def axes(self, *words: str) -> list[str]:
        """Return the words of a sweep over 10 weights, the thresholds and what else is given."""
        gate = ["gate=score", "gate.source=bm25", f"gate.threshold=range({self.thresholds})"]
        return [*self.words, *gate, f"fusion.weights.bm25={WEIGHTS}", *words]

    @functools.cached_property
    def warm(self) -> Path:
        """A cache as one run leaves it, reduced to tokens and indexes."""
        cache = self.folder / "cache"
        words = ["tracking=none", f"outputs={self.folder / 'warm'}", f"store.path={cache}"]
        harness("run", *words, *self.words, folder=self.folder)
        for kind in cache.iterdir():
            if kind.name not in ("tokens", "indexes"):
                shutil.rmtree(kind)
        return cache

    def sweep(self, name: str, words: Sequence[str], count: int) -> tuple[float, list[Any], Path]:
        """Return the seconds of `harness sweep` with a new cache and outputs, its finished trials, and the outputs."""
        outputs, cache = self.folder / f"outputs-{name}", self.folder / f"cache-{name}"
        shutil.copytree(self.warm, cache)
        spent, document = harness("sweep", f"outputs={outputs}", f"store.path={cache}", *words, folder=self.folder)
        tracker = opened_tracker(outputs)
        experiment = tracker.client.get_run(document["run_id"]).info.experiment_id
        children = f"tags.`mlflow.parentRunId` = '{document['run_id']}' AND attributes.status = 'FINISHED'"
        trials = list(tracker.client.search_runs([experiment], children, max_results=5000))
        _expect(len(trials), count, "finished trials")
        return spent, trials, outputs


def sweep(
    what: Literal["grid", "memory", "launchers"] = "grid",
    *,
    data: Path | None = None,
    qrels: Path | None = None,
    pairs: int = 3,
    sample: int = 5,
    thresholds: int = 20,
) -> None:
    """Time `harness sweep` against what it replaces, as ratios within one run.

    grid: 1,000 trials, against a loop of bare MLflow calls in alternation, and against `harness run -m`
    memory: resident memory over 1,000 trials in one process
    launchers: 200 trials in one process and in two; all metrics must be equal

    All sweeps fuse BM25 on morphemes with BM25 on character bigrams and gate by score; --data is a folder in the
    contest's layout (default: the shipped sample), --qrels its labels. Seconds are of a process, including its start;
    tokens and indexes are cached. `harness run -m` is extrapolated from runs of 1 and of 1 + --sample trials.
    Fewer --thresholds make fewer trials.
    """
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    folder = (data or SAMPLE).absolute()
    contest = ["dataset=contest", f"dataset.path={folder}"]
    contest += [f"dataset.qrels={(qrels or folder / 'qrels.jsonl').absolute()}"]
    with tempfile.TemporaryDirectory() as name:
        words = [*(contest if data else ["dataset=sample"]), "retriever=hybrid_lexical"]
        bench = Workbench(Path(name), words, thresholds)
        if what == "grid":
            _grid(bench, pairs, sample)
        else:
            {"memory": _memory, "launchers": _launchers}[what](bench)


def _grid(bench: Workbench, pairs: int, sample: int) -> None:
    count, taken = 50 * bench.thresholds, []
    words = bench.axes("fusion=rrf", "depth=20,40,60,80,100")
    for number in range(pairs):
        again = bench.folder / f"bare-{number}"
        spent, runs, outputs = bench.sweep(str(number), words, count)
        _describe(outputs, runs[0].info.run_id, again)
        taken.append((spent, seconds(lambda again=again: apart(log_bare, again, count))))
        shutil.rmtree(outputs)

    def anew(trials: int) -> float:
        """Return the seconds of `harness run -m` with an empty cache for each trial."""
        outputs, *caches = (tempfile.mkdtemp(dir=bench.folder) for _ in range(trials + 1))
        fixed = ["fusion=rrf", "gate=score", "gate.source=bm25", f"outputs={outputs}", *bench.words]
        command = [*HARNESS, "run", "-m", *fixed, f"store.path={','.join(caches)}"]
        return seconds(lambda: subprocess.run(command, cwd=bench.folder, capture_output=True, check=True))

    ours, bare = (statistics.median(times) for times in zip(*taken, strict=True))
    start = anew(1)
    extrapolated = start + (anew(1 + sample) - start) / sample * (count - 1)
    print(f"{count} trials; medians of {pairs} pairs\n")
    rows = [
        ("harness sweep, tokens and indexes cached", ours),
        (f"a bare loop that logs {count} equal runs", bare),
        (f"harness run -m with an empty cache for each trial, extrapolated from {sample}", extrapolated),
    ]
    relative(rows, "the sweep")
    print(f"\nThe sweep over the bare loop, pair by pair: {', '.join(f'{one / two:.2f}' for one, two in taken)}")


def _memory(bench: Workbench) -> None:
    count, samples, over = 50 * bench.thresholds, list[tuple[int, float]](), threading.Event()
    outputs, words = bench.folder / "outputs", bench.axes("fusion=rrf", "depth=20,40,60,80,100")

    def finished() -> int:
        return sum(journal.read_bytes().count(b"\n") for journal in outputs.glob("sweeps/*/journal.jsonl"))

    def watch() -> None:
        while not over.wait(0.5):
            samples.append((finished(), resident() / 2**20))

    watcher = threading.Thread(target=watch)
    watcher.start()
    with contextlib.redirect_stdout(io.StringIO()):
        code = call("sweep", [*words, f"outputs={outputs}", f"store.path={bench.warm}"])
    over.set()
    watcher.join()
    _expect(code, 0, "exit code")
    _expect(finished(), count, "finished trials")
    shares = (0.1, 0.25, 0.5, 0.75, 0.95)
    rows = [found for share in shares if (found := next((row for row in samples if row[0] >= share * count), None))]
    table = Table("finished trials", "resident MB", "growth")
    for trials, size in [*rows, (count, resident() / 2**20)]:  # the last: after the report and its figures
        table.row(trials, f"{size:.1f}", f"{100 * (size / (rows or [(0, size)])[0][1] - 1):+.1f} %")


def _launchers(bench: Workbench) -> None:
    count, results, rows = 10 * bench.thresholds, [], []
    for name, words in {"basic": [], "joblib": ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]}.items():
        spent, runs, _ = bench.sweep(name, bench.axes("fusion.normalise=min_max", *words), count)
        rows.append((f"harness sweep, {name} launcher, {count} trials, tokens and indexes cached", spent))
        results.append({run.data.tags["trial_key"]: _scores(run) for run in runs})
        _expect(len(results[-1]), count, f"different trials with the {name} launcher")
    relative(rows, "the sweep")
    differing = sum(results[0][key] != results[1].get(key) for key in results[0])
    _expect(differing, 0, "trials whose metrics differ between the launchers")
    print(f"\nThe {len(next(iter(results[0].values())))} metrics of each of the {count} trials are equal.")


def _scores(run: Any) -> dict[str, float]:
    return {name: value for name, value in run.data.metrics.items() if not name.startswith(MEASURED)}


def _expect(number: int, expected: int, what: str) -> None:
    if number != expected:
        sys.exit(f"{number} {what}, expected {expected}")


def _describe(outputs: Path, run_id: str, folder: Path) -> None:
    """Write tags, params, metrics and files of a run to `folder`, for `log_bare`."""
    client, files = opened_tracker(outputs).client, folder / "files"
    data = client.get_run(run_id).data
    files.mkdir(parents=True)
    for file in client.list_artifacts(run_id):
        client.download_artifacts(run_id, file.path, str(files))
    (folder / "run.json").write_text(json.dumps({"tags": data.tags, "params": data.params, "metrics": data.metrics}))


def log_bare(folder: Path, runs: int) -> None:
    """Log the run in `folder` repeatedly with MLflow alone: the least that a sweep of so many trials costs."""
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
