"""Kill a whole sweep with SIGKILL at random moments, restart it once, and check that every trial is logged once.

    python scripts/sweep_crash_test.py [--kills 20] [--launcher basic|joblib] [--seed 0]

`harness sweep` runs 96 trials over four retrievals on the shipped sample. It is killed, with all its workers, at a
random moment between its start and its end, and the same command is run once more. Then every trial must be FINISHED
exactly once and none RUNNING, with the numbers of an undisturbed sweep; the parent must be FINISHED too.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from harness.tracking.mlflow_tracker import MlflowTracker
from harness.tracking.tracker import LoggedRun

WORDS = [
    "retriever=hybrid_lexical", "tokenizer=word,whitespace", "retriever.bm25.k1=0.9,1.5", "gate=score",
    "gate.source=bm25", "gate.threshold=0,1,2,3,4,5", "fusion.weights.bm25=0.5,1,2,4",
]  # fmt: skip
TRIALS = 96
TIMES = ("seconds/", "ms_per_query")


class Sweep:
    """The sweep in a folder with separate outputs and cache."""

    def __init__(self, folder: Path, launcher: str) -> None:
        self.outputs = folder / "outputs"
        extra = [] if launcher == "basic" else ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
        extra += [] if launcher == "basic" else ["hydra.sweeper.trials_per_job=4"]
        self.command = [
            sys.executable, "-c", "from harness.cli import main; main()", "sweep", *WORDS, *extra,
            f"outputs={self.outputs}", f"store.path={folder / 'cache'}", "format=json",
        ]  # fmt: skip

    def start(self) -> subprocess.Popen[str]:
        environment = {k: v for k, v in os.environ.items() if k != "MLFLOW_TRACKING_URI"}
        return subprocess.Popen(
            self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            env=environment,
        )  # fmt: skip

    def runs(self) -> list[LoggedRun]:
        tracker = MlflowTracker()
        if not tracker.exists(self.outputs):
            return []
        tracker.connect(self.outputs)
        return tracker.runs("retrieval", {})

    def stage(self) -> str:
        """The stage in which a sweep was killed."""
        statuses = Counter(run.status for run in self.runs() if run.tags.get("harness.verb") == "run")
        if statuses["FINISHED"] == TRIALS:
            return "summary"
        return "trials" if statuses.total() else "retrieval" if self.runs() else "start"


def numbers(run: LoggedRun) -> dict[str, float]:
    return {name: value for name, value in run.metrics.items() if not name.startswith(TIMES)}


def finish(child: subprocess.Popen[str]) -> dict[str, object]:
    out, err = child.communicate()
    if child.returncode != 0:
        sys.exit(f"a sweep failed:\n{err}")
    document: dict[str, object] = json.loads(out)
    return document


def check(sweep: Sweep, expected: dict[str, dict[str, float]], best: str) -> None:
    """Exit with a message unless every trial is logged once with the right numbers."""
    children = [run for run in sweep.runs() if run.tags.get("harness.verb") == "run"]
    finished = Counter(run.tags["trial_key"] for run in children if run.status == "FINISHED")
    if finished != Counter(list(expected)):
        sys.exit(f"not every trial is FINISHED exactly once: {len(finished)} trials, {finished.total()} runs")
    if left := [run.run_id for run in children if run.status == "RUNNING"]:
        sys.exit(f"still RUNNING: {left}")
    for run in children:
        if run.status == "FINISHED":
            light = {name: value for name, value in numbers(run).items() if name in expected[run.tags["trial_key"]]}
            if light != expected[run.tags["trial_key"]] and run.tags["trial_key"] != best:
                sys.exit(f"trial {run.name} has other numbers than in an undisturbed sweep")
    [parent] = [run for run in sweep.runs() if run.tags.get("harness.verb") == "sweep"] or [None]
    if parent is None or parent.status != "FINISHED":
        sys.exit(f"the parent run is {parent and parent.status}")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--launcher", choices=["basic", "joblib"], default="basic")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    chance, stages = random.Random(chosen.seed), Counter[str]()
    with tempfile.TemporaryDirectory() as name:
        reference = Sweep(Path(name) / "reference", chosen.launcher)
        began = time.monotonic()
        result = finish(reference.start())
        whole = time.monotonic() - began
        runs = [run for run in reference.runs() if run.tags.get("harness.verb") == "run"]
        expected = {run.tags["trial_key"]: numbers(run) for run in runs}
        best = next(run.tags["trial_key"] for run in runs if run.run_id == result["best"]["run_id"])  # type: ignore[index]
        print(f"undisturbed: {len(expected)} trials in {whole:.1f} s", flush=True)
        for attempt in itertools.count():
            if stages.total() == chosen.kills:
                break
            # A new folder each time, since MLflow keeps a database open for the life of the process.
            sweep = Sweep(Path(name) / f"trial{attempt}", chosen.launcher)
            child, moment = sweep.start(), chance.uniform(0, whole)
            try:
                child.wait(moment)
                continue  # it had completed
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.communicate()
            stage = sweep.stage()
            stages[stage] += 1
            finish(sweep.start())
            check(sweep, expected, best)
            print(f"kill {stages.total()}: after {moment:.1f} s, in {stage}; resumed, all trials once", flush=True)
    counts = ", ".join(f"{stage} {count}" for stage, count in stages.items())
    print(f"{stages.total()} kills ({counts}); after one resume each, all {TRIALS} trials FINISHED once, same numbers")


if __name__ == "__main__":
    main(sys.argv[1:])
