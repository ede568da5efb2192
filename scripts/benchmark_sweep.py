"""Time `harness sweep` against what it replaces, as ratios within one run.

    python scripts/benchmark_sweep.py [grid] [--pairs 3] [--sample 5]  # 1,000 trials, against bare MLflow calls
    python scripts/benchmark_sweep.py baseline [--sample 10]    # 200 trials, against baseline_sweep.py; 0: in full
    python scripts/benchmark_sweep.py memory                    # resident memory over 1,000 trials in one process
    python scripts/benchmark_sweep.py launchers                 # 200 trials in one process and in two
    python scripts/benchmark_sweep.py grid --data FOLDER --qrels FILE    # in the contest's layout

All sweeps fuse BM25 on morphemes with BM25 on character bigrams and gate by score. Seconds are wall-clock time of a
process, including its start. Each line names what is already cached; everything else is computed in a new folder. A
sweep that would take too long is extrapolated from a run of 1 trial and a run of 1 + SAMPLE trials, which give its
start-up time and the time per trial; the line says so.
"""

from __future__ import annotations

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

from benchmark import parser, relative

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from harness.cli import call  # noqa: E402
from harness.tracking.mlflow_tracker import MlflowTracker  # noqa: E402

# Not range(0.1,1.1,0.1): by rounding errors Hydra would add an eleventh value.
WEIGHTS = ",".join(str(n / 10) for n in range(1, 11))
GATE = ["gate=score", "gate.source=bm25", "gate.threshold=range(20)"]
CHEAP = [*GATE, f"fusion.weights.bm25={WEIGHTS}", "fusion.normalise=min_max"]  # 200 trials
LARGE = [*GATE, f"fusion.weights.bm25={WEIGHTS}", "fusion=rrf", "depth=20,40,60,80,100"]  # 1,000 trials
MEASURED = ("seconds/", "ms_per_query", "peak_memory_mb")  # metrics that may differ between equal trials


class Bench:
    """A working folder, the data, and the commands to time."""

    def __init__(self, folder: Path, data: Path | None, qrels: Path | None) -> None:
        self.folder = folder
        self.data = (data or ROOT / "harness" / "sample").absolute()
        self.qrels = (qrels or self.data / "qrels.jsonl").absolute()
        contest = ["dataset=contest", f"dataset.path={self.data}", f"dataset.qrels={self.qrels}"]
        self.words = [*(contest if data else ["dataset=sample"]), "retriever=hybrid_lexical", "format=json"]

    def warm(self, name: str, keep: Collection[str]) -> Path:
        """A cache as one run leaves it, reduced to the kinds of entries in `keep`."""
        cache = self.folder / name
        self.harness("run", ["tracking=none", f"outputs={self.folder / 'warm'}", f"store.path={cache}"])
        for kind in cache.iterdir():
            if kind.name not in keep:
                shutil.rmtree(kind)
        return cache

    def harness(self, command: str, words: Sequence[str]) -> tuple[float, str]:
        """Seconds and standard output of `harness COMMAND ...`."""
        return self.timed(["-c", "from harness.cli import main; main()", command, *words, *self.words])

    def sweep(self, name: str, cache: Path, words: Sequence[str]) -> tuple[float, list[Any]]:
        """Seconds of `harness sweep` with separate outputs, and its finished trials as MLflow runs."""
        outputs = self.folder / name
        seconds, printed = self.harness("sweep", [f"outputs={outputs}", f"store.path={cache}", *words])
        return seconds, trials(outputs, json.loads(printed)["run_id"])

    def timed(self, words: Sequence[str]) -> tuple[float, str]:
        """Seconds and standard output of a Python process in the folder; exits if it fails."""
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
    """Seconds of `count` trials, extrapolated from 1 and 1 + `sample` trials."""
    start = seconds(1)
    return start + (seconds(1 + sample) - start) / sample * (count - 1)


def grid(bench: Bench, pairs: int, sample: int) -> None:
    """The sweep against a bare loop of MLflow calls, in alternation, so that a slow minute affects both."""
    warm = bench.warm("cache", ("tokens", "indexes"))
    taken = []
    for number in range(pairs):
        outputs, again = bench.folder / f"outputs_{number}", bench.folder / f"bare_{number}"
        cache = Path(shutil.copytree(warm, bench.folder / f"cache_{number}"))
        seconds, runs = bench.sweep(outputs.name, cache, LARGE)
        expect(len(runs), 1000, "finished trials")
        expect(len(list(cache.glob("rankings/*/manifest.json"))), 2, "searches")
        describe(outputs, runs[0].info.run_id, again)
        logging, _ = bench.timed([__file__, "bare", str(again), str(len(runs))])
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
    relative(
        [
            ("harness sweep, tokens and indexes cached", sweep),
            ("a bare loop that logs 1000 equal runs", logging),
            (f"harness run -m with an empty cache for each trial, extrapolated from {sample}", without),
        ],
        "the sweep",
        digits=1,
    )
    print(f"\nThe sweep over the bare loop, pair by pair: {', '.join(f'{ratio:.2f}' for ratio in ratios)}")


def baseline(bench: Bench, sample: int) -> None:
    """The sweep against a plain script."""
    seconds, runs = bench.sweep("outputs", bench.warm("cache", ("tokens",)), CHEAP)
    expect(len(runs), 200, "finished trials")
    script = [str(ROOT / "scripts" / "baseline_sweep.py"), "-m", f"data={bench.data}", f"qrels={bench.qrels}"]
    bench.timed(script)  # caches its tokens
    if sample:
        theirs = extrapolated(lambda n: bench.timed([*script, f"threshold=range({n})"])[0], sample, len(runs))
    else:
        theirs, _ = bench.timed([*script, "threshold=range(20)", f"weight={WEIGHTS}"])
    how = f"extrapolated from {sample} trials" if sample else "in full"
    rows = [("harness sweep, tokens cached", seconds), (f"baseline_sweep.py -m, tokens cached, {how}", theirs)]
    relative(rows, "the sweep", digits=1)


def memory(bench: Bench) -> None:
    """Resident memory by number of finished trials; Linux only, since it is read from /proc."""
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
    rows.append((1000, resident_mb()))  # after the report and its figures
    print("| finished trials | resident MB | growth |\n|---:|---:|---:|")
    for count, size in rows:
        print(f"| {count} | {size:.1f} | {100 * (size / rows[0][1] - 1):+.1f} % |")


def launchers(bench: Bench) -> None:
    """The same sweep in one process and in two."""
    cache = bench.warm("cache", ("tokens", "indexes"))
    two = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    results, rows = [], []
    for name, words in (("basic", []), ("joblib", two)):
        fresh = Path(shutil.copytree(cache, bench.folder / f"cache_{name}"))
        seconds, runs = bench.sweep(name, fresh, [*CHEAP, *words])
        expect(len(runs), 200, f"finished trials with the {name} launcher")
        rows.append((f"harness sweep, {name} launcher, 200 trials, tokens and indexes cached", seconds))
        results.append({run.data.tags["trial_key"]: scores(run) for run in runs})
        expect(len(results[-1]), 200, f"different trials with the {name} launcher")
    relative(rows, "the sweep", digits=1)
    differing = sum(results[0][key] != results[1].get(key) for key in results[0])
    expect(differing, 0, "trials whose metrics differ between the launchers")
    print(f"\nThe {len(next(iter(results[0].values())))} metrics of each of the {len(results[0])} trials are equal.")


def scores(run: Any) -> dict[str, float]:
    return {name: value for name, value in run.data.metrics.items() if not name.startswith(MEASURED)}


def finished(outputs: Path) -> int:
    return sum(journal.read_bytes().count(b"\n") for journal in outputs.glob("sweeps/*/journal.jsonl"))


def resident_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def expect(number: int, expected: int, what: str) -> None:
    if number != expected:
        sys.exit(f"{number} {what}, expected {expected}")


def describe(outputs: Path, run_id: str, folder: Path) -> None:
    """Write tags, params, metrics and files of a run to `folder`, for `bare`."""
    tracker = MlflowTracker()
    tracker.connect(outputs)
    data, files = tracker.client.get_run(run_id).data, folder / "files"
    files.mkdir(parents=True)
    for file in tracker.client.list_artifacts(run_id):
        tracker.client.download_artifacts(run_id, file.path, str(files))
    (folder / "run.json").write_text(json.dumps({"tags": data.tags, "params": data.params, "metrics": data.metrics}))


def bare(folder: Path, runs: int) -> None:
    """Log the run in `folder` repeatedly with MLflow alone: the least that a sweep of so many trials costs."""
    from mlflow.entities import Metric, Param

    about = json.loads((folder / "run.json").read_text())
    tracker = MlflowTracker()
    tracker.connect(folder)  # a tracking store with the same settings as the sweep's
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
    options = parser(__doc__)
    options.add_argument("what", nargs="?", default="grid", choices=("grid", "baseline", "memory", "launchers"))
    options.add_argument("--data", type=Path, help="folder in the contest's layout (default: the shipped sample)")
    options.add_argument("--qrels", type=Path, help="its labels (default: qrels.jsonl in it)")
    options.add_argument("--pairs", type=int, default=3, help="grid: number of alternations of sweep and bare loop")
    options.add_argument("--sample", type=int, help="trials to extrapolate from: grid 5, baseline 10")
    chosen = options.parse_args()
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name), chosen.data, chosen.qrels)
        if chosen.what == "grid":
            grid(bench, chosen.pairs, 5 if chosen.sample is None else chosen.sample)
        elif chosen.what == "baseline":
            baseline(bench, 10 if chosen.sample is None else chosen.sample)
        else:
            {"memory": memory, "launchers": launchers}[chosen.what](bench)


if __name__ == "__main__":
    if sys.argv[1:2] == ["bare"]:
        bare(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
