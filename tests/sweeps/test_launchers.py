"""Sweeps whose jobs run in parallel, with joblib, Ray and submitit, and sweeps and workers that are killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from logged_runs import told, with_store
from planted_modules import Planted

from harness.tracking.mlflow_tracker import MlflowTracker

pytestmark = pytest.mark.slow
WORDS = ["tokenizer=word,whitespace", "gate=score", "experiment_name=e"]
THRESHOLDS = ["gate.threshold=0,2", "trials_per_job=2"]
JOBLIB = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
RAY = [
    "hydra/launcher=ray", "hydra.launcher.ray.init.address=local", "+hydra.launcher.ray.init.num_cpus=2",
    "+hydra.launcher.ray.init.include_dashboard=false", "+hydra.launcher.ray.init.log_to_driver=false",
]  # fmt: skip
TIMES = ("seconds/", "ms_per_query")


@pytest.fixture(scope="module")
def place(tmp_path_factory, fresh_database):
    """Make a folder with an MLflow database of its own."""

    return lambda name: with_store(tmp_path_factory.mktemp(name), fresh_database)


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    """`harness sweep` in its own process, with its own cache."""
    return subprocess.Popen(
        [sys.executable, "-P", "-c", "from harness.cli import main; main()", "sweep", *words, "store.path=store",
         "format=json"],
        cwd=folder, text=True, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={k: v for k, v in os.environ.items() if k != "MLFLOW_TRACKING_URI"} | {"RAY_USAGE_STATS_ENABLED": "0"},
    )  # fmt: skip


def sweep(folder: Path, *words: str) -> dict:
    planted = Planted(folder)  # no process that takes part imports from the working folder
    child = start(folder, *words)
    out, err = child.communicate()
    assert child.returncode == 0, err
    assert planted.executed == []
    assert left_of(child) == []
    return json.loads(out)


def inside(folder: Path, *words: str) -> dict:
    """`harness sweep` in this process."""
    return told(folder, ("sweep", *words, "store.path=store"))[0]


def left_of(child: subprocess.Popen) -> list[str]:
    """Processes of the child's session that are still alive five seconds after its end."""
    for _ in range(50):
        listed = subprocess.run(["ps", "-ww", "-s", str(child.pid), "-o", "args="], capture_output=True, text=True)
        if not listed.stdout.strip():
            return []
        time.sleep(0.1)
    return listed.stdout.splitlines()


def trials(folder: Path) -> list:
    tracker = MlflowTracker()
    tracker.connect(folder / "outputs")
    return tracker.runs("e", {"harness.verb": "run"})


def numbers(folder: Path) -> dict[str, dict[str, float]]:
    """trial key -> every number of its finished run but times."""
    runs = [run for run in trials(folder) if run.status == "FINISHED"]
    found = {run.tags["trial_key"]: {k: v for k, v in run.metrics.items() if not k.startswith(TIMES)} for run in runs}
    assert len(found) == len(runs), "each trial is there once"
    return found


def assert_same(found: dict[str, dict[str, float]], expected: dict[str, dict[str, float]]) -> None:
    """Compare what light runs log: which of equal trials is logged in full depends on their times."""
    for key, numbers in expected.items():
        names = numbers.keys() & found[key].keys()
        assert len(names) > 10
        assert {name: found[key][name] for name in names} == {name: numbers[name] for name in names}


@pytest.fixture(scope="module")
def one_by_one(place):
    """The numbers with the basic launcher in this process: 4 trials over 2 retrievals."""
    inside(folder := place("basic"), *WORDS, *THRESHOLDS)
    return numbers(folder)


def test_parallel_jobs_give_the_same_numbers(one_by_one, place):
    found = sweep(folder := place("ray"), *WORDS, *THRESHOLDS, *RAY)
    rest = dict.fromkeys(("failed", "killed", "skipped", "reused", "same"), 0)
    assert found["trials"] == {"asked": 4, "finished": 4, **rest}
    assert found["plan"]["jobs"] == [2, 2]
    assert found["plan"]["retrievals"] == {"compute": 2, "cached": 0}
    assert len(list((folder / "store" / "rankings").glob("*/manifest.json"))) == 2
    assert_same(numbers(folder), one_by_one)
    assert len({json.dumps(one, sort_keys=True) for one in one_by_one.values()}) == 4, "the trials differ"


def test_submitit_runs_a_job_in_a_process_of_its_own_which_imports_what_is_allowed(place):
    folder = place("submitit")
    (folder / "mine.py").write_text("def search(queries, k):\n    return [[]] * len(queries)")
    words = ["retriever=python", "retriever.python.function=mine:search", "plugins.allow=[mine]", "experiment_name=e"]
    found = sweep(folder, *words, "top_k=1,2", "hydra/launcher=submitit_local")
    assert found["trials"]["finished"] == len(numbers(folder)) == 2
    assert [path.name for path in folder.glob("outputs/sweeps/.submitit/*/*/*_result.pkl")]


def test_a_worker_that_is_killed_costs_its_trials_until_the_next_start(one_by_one, place):
    folder = place("killed")
    words = [*WORDS, "gate.threshold=range(0,100)", "trials_per_job=100"]
    child = start(folder, *words, *JOBLIB)
    try:
        os.kill(_worker_at_work(child, folder), signal.SIGKILL)
        out, err = child.communicate(timeout=60)
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
    assert child.returncode == 1, err
    assert left_of(child) == []
    found = json.loads(out)
    counts = found["trials"]
    assert counts["finished"] + counts["failed"] == counts["asked"] == 200
    assert len(found["failed"]) == counts["failed"] > 0
    assert all("its job ended without a result" in row["error"] for row in found["failed"])
    assert not [run for run in trials(folder) if run.status == "RUNNING"]
    before = {run.run_id for run in trials(folder) if run.status == "FINISHED"}
    assert len(before) >= counts["finished"] > 0
    again = inside(folder, *words)  # one by one: a sweep is the same with any launcher
    assert again["trials"]["finished"] == 200
    assert again["trials"]["skipped"] == len(before)
    assert before < {run.run_id for run in trials(folder) if run.status == "FINISHED"}
    assert_same(numbers(folder), one_by_one)


def _worker_at_work(child: subprocess.Popen, folder: Path) -> int:
    """A process of joblib that runs trials, as soon as the first one has ended."""
    while not any(path.stat().st_size for path in folder.glob("outputs/sweeps/*/journal.jsonl")):
        assert child.poll() is None, child.communicate()[1]
        time.sleep(0.01)
    listed = subprocess.run(["ps", "-ww", "--ppid", str(child.pid), "-o", "pid=,args="], capture_output=True, text=True)
    return next(int(line.split()[0]) for line in listed.stdout.splitlines() if "LokyProcess" in line)
