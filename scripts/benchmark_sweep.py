"""Measure `harness sweep` against what it replaces, as ratios within one run.

    python scripts/benchmark_sweep.py [grid] [--pairs 3] [--sample 5]  # 1,000 trials beside MLflow's own cost, no store
    python scripts/benchmark_sweep.py baseline [--sample 10]    # 200 trials beside baseline_sweep.py; 0: run all of it
    python scripts/benchmark_sweep.py memory                    # resident memory over 1,000 trials in one process
    python scripts/benchmark_sweep.py launchers                 # 200 trials, one process and two
    python scripts/benchmark_sweep.py grid --data FOLDER --qrels FILE    # in the contest's layout, not the sample

All sweeps fuse BM25 on morphemes with BM25 on character bigrams and gate by score. Seconds are a process's wall clock,
its start included. What begins warm is said in each line; everything else is made in a new folder. A sweep that would
take too long is extrapolated: from a run of one trial and one of 1 + SAMPLE trials come its start and the cost of one
more trial, and the line says so.
"""

from __future__ import annotations

import argparse
import contextlib
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
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from harness.cli import call  # noqa: E402
from harness.tracking.mlflow_tracker import MlflowTracker  # noqa: E402

# Hydra's range(0.1,1.1,0.1) would give an eleventh value: its sums of 0.1 stay below 1.1.
WEIGHTS = ",".join(str(n / 10) for n in range(1, 11))
GATE = ["gate=score", "gate.source=bm25", "gate.threshold=range(20)"]
CHEAP = [*GATE, f"fusion.weights.bm25={WEIGHTS}", "fusion.normalise=min_max"]  # 200 trials
LARGE = [*GATE, f"fusion.weights.bm25={WEIGHTS}", "fusion=rrf", "depth=20,40,60,80,100"]  # 1,000 trials
MEASURED = ("seconds/", "ms_per_query", "peak_memory_mb")  # metrics that two equal trials need not share


class Bench:
    """A folder to work in, the data, and the commands that are timed."""

    def __init__(self, folder: Path, data: Path | None, qrels: Path | None) -> None:
        self.folder = folder
        self.data = (data or ROOT / "harness" / "sample").absolute()
        self.qrels = (qrels or self.data / "qrels.jsonl").absolute()
        contest = ["dataset=contest", f"dataset.path={self.data}", f"dataset.qrels={self.qrels}"]
        self.words = [*(contest if data else ["dataset=sample"]), "retriever=hybrid_lexical", "format=json"]

    def warm(self, name: str, keep: Collection[str]) -> Path:
        """A cache after one run, of which only the kinds `keep` are left."""
        cache = self.folder / name
        self.harness("run", ["tracking=none", f"outputs={self.folder / 'warm'}", f"store.path={cache}"])
        for kind in cache.iterdir():
            if kind.name not in keep:
                shutil.rmtree(kind)
        return cache

    def harness(self, verb: str, words: Sequence[str]) -> tuple[float, str]:
        """Seconds and standard output of `harness VERB ...`."""
        return self.timed(["-c", "from harness.cli import main; main()", verb, *words, *self.words])

    def sweep(self, name: str, cache: Path, words: Sequence[str]) -> tuple[float, list[Any]]:
        """Seconds of `harness sweep` with its own outputs, and its finished trials as MLflow runs."""
        outputs = self.folder / name
        seconds, printed = self.harness("sweep", [f"outputs={outputs}", f"store.path={cache}", *words])
        return seconds, trials(outputs, json.loads(printed)["run_id"])

    def timed(self, words: Sequence[str]) -> tuple[float, str]:
        """Seconds and standard output of a Python process in the folder; the benchmark ends where it fails."""
        began = time.perf_counter()
        done = subprocess.run([sys.executable, *words], cwd=self.folder, capture_output=True, text=True)
        seconds = time.perf_counter() - began
        if done.returncode:
            sys.exit(f"{' '.join(words)} failed:\n{done.stderr[-3000:]}")
        return seconds, done.stdout


def trials(outputs: Path, parent: str) -> list[Any]:
    """The finished child runs of a sweep."""
    tracker = MlflowTracker()
    tracker.connect(outputs)
    experiment = tracker.client.get_run(parent).info.experiment_id
    children = f"tags.`mlflow.parentRunId` = '{parent}' AND attributes.status = 'FINISHED'"
    return list(tracker.client.search_runs([experiment], children, max_results=5000))


def extrapolated(seconds: Callable[[int], float], sample: int, count: int) -> float:
    """Seconds of `count` trials, from those of 1 and of 1 + `sample`."""
    start = seconds(1)
    return start + (seconds(1 + sample) - start) / sample * (count - 1)


def table(rows: Sequence[tuple[str, float]]) -> None:
    """Seconds, and the first row's share of them."""
    print("| what | seconds | times the sweep |\n|---|---:|---:|")
    for what, seconds in rows:
        print(f"| {what} | {seconds:.1f} | {seconds / rows[0][1]:.2f} |")


def grid(bench: Bench, pairs: int, sample: int) -> None:
    """The sweep and the bare loop take turns, so that a machine's slow minute meets both."""
    warm = bench.warm("cache", ("tokens", "indexes"))
    taken = []
    for number in range(pairs):
        outputs, again = bench.folder / f"outputs_{number}", bench.folder / f"bare_{number}"
        cache = Path(shutil.copytree(warm, bench.folder / f"cache_{number}"))
        seconds, found = bench.sweep(outputs.name, cache, LARGE)
        expect(len(found), 1000, "finished trials")
        expect(len(list(cache.glob("rankings/*/manifest.json"))), 2, "searches")
        describe(outputs, found[0].info.run_id, again)
        logging, _ = bench.timed([__file__, "bare", str(again), str(len(found))])
        taken.append((seconds, logging))
        for folder in (outputs, again, cache):
            shutil.rmtree(folder)
    sweep, logging = (statistics.median(times) for times in zip(*taken, strict=True))

    def anew(count: int) -> float:
        outputs, *caches = (tempfile.mkdtemp(dir=bench.folder) for _ in range(count + 1))
        fixed = ["fusion=rrf", "gate=score", "gate.source=bm25", f"outputs={outputs}"]
        return bench.harness("run", ["-m", *fixed, f"store.path={','.join(caches)}"])[0]

    without = extrapolated(anew, sample, 1000)
    ratios = [one / other for one, other in taken]
    print(f"1000 trials, 2 searches; medians of {pairs} pairs\n")
    table(
        [
            ("harness sweep, tokens and indexes warm", sweep),
            ("a bare loop that logs 1000 equal runs", logging),
            (f"harness run -m with an empty cache for each trial, extrapolated from {sample}", without),
        ]
    )
    print(f"\nThe sweep over the bare loop, pair by pair: {', '.join(f'{ratio:.2f}' for ratio in ratios)}")


def baseline(bench: Bench, sample: int) -> None:
    seconds, found = bench.sweep("outputs", bench.warm("cache", ("tokens",)), CHEAP)
    expect(len(found), 200, "finished trials")
    script = [str(ROOT / "scripts" / "baseline_sweep.py"), "-m", f"data={bench.data}", f"qrels={bench.qrels}"]
    bench.timed(script)  # keeps its tokens
    if sample:
        theirs = extrapolated(lambda n: bench.timed([*script, f"threshold=range({n})"])[0], sample, len(found))
    else:
        theirs, _ = bench.timed([*script, "threshold=range(20)", f"weight={WEIGHTS}"])
    how = f"extrapolated from {sample} trials" if sample else "all of it"
    table([("harness sweep, tokens warm", seconds), (f"baseline_sweep.py -m, tokens warm, {how}", theirs)])


def memory(bench: Bench) -> None:
    """Linux only: resident memory is read from /proc."""
    cache, outputs = bench.warm("cache", ("tokens", "indexes")), bench.folder / "outputs"
    samples: list[tuple[int, float]] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.5):
            samples.append((finished(outputs), resident_mb()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    with contextlib.redirect_stdout(io.StringIO()):
        code = call("sweep", [*bench.words, *LARGE, f"outputs={outputs}", f"store.path={cache}"])
    over.set()
    watcher.join()
    expect(code, 0, "exit code")
    expect(finished(outputs), 1000, "finished trials")
    rows = [next(row for row in samples if row[0] >= count) for count in (100, 250, 500, 750, 950)]
    rows.append((1000, resident_mb()))  # the report is written, its pictures are drawn
    print("| finished trials | resident MB | growth |\n|---:|---:|---:|")
    for count, size in rows:
        print(f"| {count} | {size:.1f} | {100 * (size / rows[0][1] - 1):+.1f} % |")


def launchers(bench: Bench) -> None:
    cache = bench.warm("cache", ("tokens", "indexes"))
    two = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    found, rows = [], []
    for name, words in (("basic", []), ("joblib", two)):
        fresh = Path(shutil.copytree(cache, bench.folder / f"cache_{name}"))
        seconds, runs = bench.sweep(name, fresh, [*CHEAP, *words])
        expect(len(runs), 200, f"finished trials with the {name} launcher")
        rows.append((f"harness sweep, {name} launcher, 200 trials, tokens and indexes warm", seconds))
        found.append({run.data.tags["trial_key"]: scores(run) for run in runs})
        expect(len(found[-1]), 200, f"different trials with the {name} launcher")
    table(rows)
    differing = sum(found[0][key] != found[1].get(key) for key in found[0])
    expect(differing, 0, "trials whose metrics differ between the launchers")
    print(f"\nThe {len(next(iter(found[0].values())))} metrics of each of the {len(found[0])} trials are equal.")


def scores(run: Any) -> dict[str, float]:
    return {name: value for name, value in run.data.metrics.items() if not name.startswith(MEASURED)}


def finished(outputs: Path) -> int:
    return sum(journal.read_bytes().count(b"\n{") for journal in outputs.glob("sweeps/*/journal.jsonl"))


def resident_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def expect(found: int, right: int, what: str) -> None:
    if found != right:
        sys.exit(f"{found} {what}: {right} were expected")


def describe(outputs: Path, run_id: str, folder: Path) -> None:
    """Write a run's tags, params, metrics and files to `folder`, for `bare`."""
    tracker = MlflowTracker()
    tracker.connect(outputs)
    data, files = tracker.client.get_run(run_id).data, folder / "files"
    files.mkdir(parents=True)
    for file in tracker.client.list_artifacts(run_id):
        tracker.client.download_artifacts(run_id, file.path, str(files))
    (folder / "run.json").write_text(json.dumps({"tags": data.tags, "params": data.params, "metrics": data.metrics}))


def bare(folder: Path, runs: int) -> None:
    """Log the run of `folder` again and again with MLflow alone: what any sweep of so many trials has to pay."""
    from mlflow.entities import Metric, Param

    about = json.loads((folder / "run.json").read_text())
    tracker = MlflowTracker()
    tracker.connect(folder)  # a store with the same settings as the sweep's
    client = tracker.client
    experiment = client.create_experiment("bare", (folder / "artifacts").as_uri())
    for _ in range(runs):
        now = int(time.time() * 1000)
        run_id = client.create_run(experiment, now, about["tags"]).info.run_id
        metrics = [Metric(name, value, now, 0) for name, value in about["metrics"].items()]
        client.log_batch(run_id, metrics, [Param(name, value) for name, value in about["params"].items()])
        client.log_artifacts(run_id, str(folder / "files"))
        client.set_terminated(run_id)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="grid", choices=("grid", "baseline", "memory", "launchers"))
    parser.add_argument("--data", type=Path, help="folder in the contest's layout (default: the shipped sample)")
    parser.add_argument("--qrels", type=Path, help="its labels (default: qrels.jsonl in it)")
    parser.add_argument("--pairs", type=int, default=3, help="grid: times that the sweep and the bare loop take turns")
    parser.add_argument("--sample", type=int, help="trials to extrapolate from: grid 5, baseline 10")
    asked = parser.parse_args()
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name), asked.data, asked.qrels)
        if asked.what == "grid":
            grid(bench, asked.pairs, 5 if asked.sample is None else asked.sample)
        elif asked.what == "baseline":
            baseline(bench, 10 if asked.sample is None else asked.sample)
        else:
            {"memory": memory, "launchers": launchers}[asked.what](bench)


if __name__ == "__main__":
    if sys.argv[1:2] == ["bare"]:
        bare(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
