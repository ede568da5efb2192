"""Thousands of runs by many processes into an MLflow server over PostgreSQL and S3: rates, and whether one is lost.

    python scripts/benchmark_tracking_server.py rates     # 1, 2, 4 and 8 processes; the server and local SQLite
    python scripts/benchmark_tracking_server.py many      # 5,000 light and 200 full runs by 8 processes, then read
    python scripts/benchmark_tracking_server.py faults    # a process, the server and PostgreSQL killed meanwhile
    python scripts/benchmark_tracking_server.py sweeps    # the same to `harness sweep` with joblib and 8 workers
    python scripts/benchmark_tracking_server.py many --runs 500 --full 20 --where server    # less

A run is made once with `harness run` on the sample. Its record and files are then logged again and again through the
project's own tracker, as a sweep logs a trial, each time with another value and another trial key. At the end every
run must be there once, with the metrics and files that were sent: files are compared in the object store itself.
Servers are those of tracking_servers.py, on this machine: they share its cores with the processes that log.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark import parser
from benchmark_tracking import one_run
from tracking_servers import BUCKET, KEYS, Servers, tracking_servers

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from harness.commands.sweep.trials import PATIENCE  # noqa: E402
from harness.config.canonical import digest  # noqa: E402
from harness.tracking import recording  # noqa: E402
from harness.tracking.mlflow_tracker import MlflowTracker  # noqa: E402
from harness.tracking.tracker import LoggedRun, RunRecord  # noqa: E402

NUMBER = "bench.number"  # tag of a run: its place among those to be logged
CONFIG = "config.yaml"
EXPERIMENT = "bench"
WORKERS = 8
SPAWN = multiprocessing.get_context("spawn")
HARNESS = (sys.executable, "-c", "from harness.cli import main; main()")
TRIALS = 200  # of a sweep
SWEEP = (
    *("sweep", "tokenizer=whitespace,char_ngram", "gate=score", "gate.threshold=range(0,100)", "format=json"),
    *("hydra/launcher=joblib", f"hydra.launcher.n_jobs={WORKERS}", "trials_per_job=10"),
)
PAUSE = 30.0  # seconds that a killed server stays away: longer than a request is repeated
SYNCS = 3  # calls of `harness doctor sync`: the first may meet a database that is only just back


@dataclass(frozen=True)
class Work:
    """Runs to log. template: a run's record. files: its folder. outputs: where processes write. uri: of the server."""

    template: RunRecord
    files: Path
    outputs: Path
    uri: str
    detail: str
    count: int
    workers: int
    experiment: str = EXPERIMENT

    @property
    def node(self) -> dict[str, Any]:
        """The config that opens the tracker."""
        target = "harness.tracking.mlflow_tracker.MlflowTracker"
        return {
            "tracking": {"_target_": target, "uri": self.uri, "detail": self.detail},
            "outputs": str(self.outputs),
        }

    def record(self, number: int) -> RunRecord:
        """A record of its own for each number."""
        value = number / self.count
        objective = dataclasses.replace(self.template.objective, value=value, low=value, high=value)  # type: ignore[type-var]
        tags = self.template.tags | {"trial_key": digest([self.detail, number]), NUMBER: str(number)}
        return dataclasses.replace(
            self.template,
            experiment=self.experiment,
            tags=tags,
            params=self.template.params | {"bench": number},
            metrics=self.template.metrics | {objective.name: value},
            objective=objective,
            folder=None,
        )

    def write(self, number: int, folder: Path) -> None:
        """The files of a run, of which one is its own."""
        shutil.copytree(self.files, folder, dirs_exist_ok=True)
        with (folder / CONFIG).open("a") as file:
            file.write(f"# {number}\n")

    def journal(self, worker: int) -> Path:
        return self.outputs / f"journal-{worker}.jsonl"

    def entries(self) -> list[dict[str, Any]]:
        """What the workers have finished."""
        files = [self.journal(worker) for worker in range(self.workers)]
        return [json.loads(line) for file in files if file.exists() for line in file.read_text().splitlines()]


def log_runs(work: Work, worker: int, together: Any) -> None:
    """Log every run of one worker that it has not finished; started again after a kill, it goes on."""
    done = {entry["number"] for entry in work.entries()}
    tracker = recording.connected(work.node, PATIENCE)  # as a job of a sweep does
    recording.end_abandoned(tracker)
    logged = tracker.runs(work.experiment, {}, "FINISHED") if done else []  # a kill may come just before the journal
    done |= {int(run.tags[NUMBER]) for run in logged}
    if together:
        together.wait()
    for number in sorted(set(range(worker, work.count, work.workers)) - done):
        began, clock = time.time(), time.perf_counter()
        record, folder = work.record(number), work.outputs / "trials" / str(number)
        with recording.live_run(tracker, record, folder, direct=True) as live:
            work.write(number, live.folder)
        shutil.rmtree(folder, ignore_errors=True)
        entry = {"number": number, "began": began, "seconds": time.perf_counter() - clock, "sent": not record.unsent}
        with work.journal(worker).open("a") as file:
            file.write(json.dumps(entry) + "\n")


def start(work: Work, worker: int, together: Any = None) -> Any:
    """A process that logs. together: a barrier, so that all of them begin to log at once."""
    process = SPAWN.Process(target=log_runs, args=(work, worker, together))
    process.start()
    return process


def run_all(work: Work) -> None:
    """Log all runs with as many processes as the work says."""
    together = SPAWN.Barrier(work.workers)
    processes = [start(work, worker, together) for worker in range(work.workers)]
    for process in processes:
        process.join()
        if process.exitcode:
            sys.exit(f"A process that logs ended with {process.exitcode}.")


def rate(work: Work) -> str:
    """Cells of a table: runs/s between the first run's beginning and the last one's end, and seconds of a run."""
    entries = work.entries()
    seconds = sorted(entry["seconds"] for entry in entries)
    span = max(entry["began"] + entry["seconds"] for entry in entries) - min(entry["began"] for entry in entries)
    p95 = seconds[int(0.95 * (len(seconds) - 1))]
    return f"{len(entries):,} | {len(entries) / span:.1f} | {1000 * statistics.median(seconds):.0f} | {1000 * p95:.0f}"


def check(work: Work, stored: Mapping[str, str] | None) -> list[str]:
    """What is lost, double or different. stored: key -> MD5 of the object store's files; None: do not look at files."""
    tracker = MlflowTracker(work.uri)
    tracker.connect(work.outputs)
    runs = tracker.runs(work.experiment, {})
    by_status = Counter(run.status for run in runs)
    finished = Counter(int(run.tags[NUMBER]) for run in runs if run.status == "FINISHED")
    ended = ("FINISHED", "KILLED")
    wrong = [f"{count} runs are {status}" for status, count in by_status.items() if status not in ended]
    wrong += [f"run {number} is lost" for number in range(work.count) if not finished[number]]
    wrong += [f"run {number} is there {count} times" for number, count in finished.items() if count > 1]
    expected = {path.name: path.read_bytes() for path in work.files.rglob("*") if path.is_file()}
    for run in runs:
        if run.status == "FINISHED":
            wrong += _differences(work, run, expected, stored)
    print(f"{len(runs):,} runs in the store: {', '.join(f'{n:,} {status}' for status, n in by_status.items())}; "
          f"{len(wrong)} things wrong")  # fmt: skip
    return wrong


def _differences(
    work: Work, run: LoggedRun, expected: Mapping[str, bytes], stored: Mapping[str, str] | None
) -> Iterator[str]:
    number = int(run.tags[NUMBER])
    record = work.record(number)
    for name, value in record.all_metrics.items():
        if run.metrics.get(name.replace("@", "_at_")) != value:
            yield f"run {number}: {name} is {run.metrics.get(name.replace('@', '_at_'))}, not {value}"
    if len(run.params) < len(record.params):
        yield f"run {number}: {len(run.params)} params of {len(record.params)}"
    for name, content in expected.items() if stored is not None else ():
        content += f"# {number}\n".encode() if name == CONFIG else b""
        key = next((key for key in (f"{run.run_id}/artifacts/{name}",) if key in (stored or {})), None)
        if key is None or stored is None or stored[key] != hashlib.md5(content).hexdigest():
            yield f"run {number}: {name} is {'other' if key else 'missing'}"


def in_object_store(servers: Servers) -> dict[str, str]:
    """RUN/artifacts/FILE -> MD5 of every file of a run."""
    import boto3

    keys = {"aws_access_key_id": KEYS["AWS_ACCESS_KEY_ID"], "aws_secret_access_key": KEYS["AWS_SECRET_ACCESS_KEY"]}
    client = boto3.client("s3", endpoint_url=servers.store, region_name=KEYS["AWS_DEFAULT_REGION"], **keys)
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    found = [one for page in pages for one in page.get("Contents", [])]
    return {one["Key"].split("/", 2)[2]: one["ETag"].strip('"') for one in found}


def rates(folder: Path, template: Template, runs: int) -> None:
    """Logging light runs with 1, 2, 4 and 8 processes."""
    print("| where | processes | runs | runs/s | ms of a run, median | 95 % |\n|---|---:|---:|---:|---:|---:|")
    with tracking_servers() as servers:
        for workers in (1, 2, 4, WORKERS):
            for label, uri in (("server", servers.mlflow.address), ("SQLite", f"sqlite:///{folder / 'rates.db'}")):
                work = template.work(folder / f"{label}-{workers}", uri, runs, workers, f"rates-{workers}")
                run_all(work)
                print(f"| {label} | {workers} | {rate(work)} |", flush=True)


def many(folder: Path, light: Template, full: Template, chosen: argparse.Namespace, runs: int) -> list[str]:
    """Thousands of runs by 8 processes, into the server and into SQLite; the commands that read them."""
    wrong: list[str] = []
    for label in ("server", "SQLite") if chosen.where == "both" else (chosen.where,):
        with ExitStack() as stack:
            servers = stack.enter_context(tracking_servers()) if label == "server" else None
            uri = servers.mlflow.address if servers else f"sqlite:///{folder / 'many.db'}"
            print(f"\n{label}\n\n| detail | runs | runs/s | ms of a run, median | 95 % |\n|---|---:|---:|---:|---:|")
            works = [light.work(folder / f"{label}-light", uri, runs, WORKERS)]
            works += [full.work(folder / f"{label}-full", uri, chosen.full, WORKERS, "full")] if chosen.full else []
            for work in works:
                run_all(work)
                print(f"| {work.detail} | {rate(work)} |", flush=True)
            for work in works:
                wrong += check(work, in_object_store(servers) if servers else None)
            read(works[0])
    return wrong


def read(work: Work) -> None:
    """Seconds of the commands that read the runs."""
    for words in (["runs"], ["board"], ["export"]):
        outputs = work.outputs / "reading"
        where = [f"experiment_name={EXPERIMENT}", f"tracking.uri={work.uri}", f"outputs={outputs}", "format=json"]
        command = [*HARNESS, *words, *where]
        began = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, cwd=work.outputs)
        seconds = time.perf_counter() - began
        said = done.stderr[-1000:] if done.returncode else ""
        print(f"harness {words[0]}: {seconds:.1f} s, exit code {done.returncode} {said}".rstrip(), flush=True)


def faults(folder: Path, template: Template, runs: int) -> list[str]:
    """The same with a process killed, then the server killed for a while, then PostgreSQL ended as by a crash."""
    with tracking_servers() as servers:
        work = template.work(folder / "faults", servers.mlflow.address, runs, WORKERS)
        processes = {worker: start(work, worker) for worker in range(WORKERS)}
        for number, share in enumerate((0.15, 0.3, 0.45)):
            _wait_until(work, int(share * runs))
            processes[number].kill()
            processes[number].join()
            processes[number] = start(work, number)
        print(f"3 processes killed and started again; {len(work.entries()):,} runs logged so far", flush=True)
        _wait_until(work, int(0.6 * runs))
        servers.mlflow.kill()
        time.sleep(PAUSE)
        servers.mlflow.start()
        print(f"the server killed, back after {PAUSE:.0f} s; {len(work.entries()):,} runs so far", flush=True)
        _wait_until(work, int(0.8 * runs))
        servers.postgres.stop("immediate")
        time.sleep(PAUSE)
        servers.postgres.start()
        print(f"PostgreSQL ended, back after {PAUSE:.0f} s; {len(work.entries()):,} runs so far", flush=True)
        for process in processes.values():
            process.join()
        codes = [process.exitcode for process in processes.values()]
        unsent = sum(not entry["sent"] for entry in work.entries())
        print(f"exit codes {codes}; {unsent} runs in the outbox")
        synced = [_sync(work.outputs) for _ in range(SYNCS)]
        print(f"harness doctor sync: {'; '.join(synced)}")
        return check(work, in_object_store(servers)) + [f"a process ended with {code}" for code in codes if code]


def sweeps(folder: Path) -> list[str]:
    """`harness sweep` with joblib and 8 workers: undisturbed, with a worker killed, with the server killed a while."""
    wrong = []
    with tracking_servers() as servers:
        for name in ("undisturbed", "worker", "server"):
            outputs = folder / name
            outputs.mkdir()
            words = [*SWEEP, f"experiment_name={name}", f"outputs={outputs}", f"tracking.uri={servers.mlflow.address}"]
            began = time.perf_counter()
            process = subprocess.Popen([*HARNESS, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while process.poll() is None and _in_journal(outputs) < TRIALS // 4:
                time.sleep(0.05)
            if name == "worker":
                os.kill(_worker_of(process.pid), signal.SIGKILL)
            elif name == "server":
                servers.mlflow.kill()
                time.sleep(PAUSE)
                servers.mlflow.start()
            code = process.wait()
            print(f"{name}: exit code {code} after {time.perf_counter() - began:.0f} s, "
                  f"{_in_journal(outputs)} trials; doctor sync: {_sync(outputs)}", flush=True)  # fmt: skip
            again = subprocess.run([*HARNESS, *words], capture_output=True, text=True)
            plan = json.loads(again.stdout)["trials"] if again.returncode == 0 else again.stderr[-500:]
            tracker = MlflowTracker(servers.mlflow.address)
            tracker.connect(outputs)
            trials = tracker.runs(name, {"harness.verb": "run"})
            finished = Counter(run.tags["trial_key"] for run in trials if run.status == "FINISHED")
            statuses = dict(Counter(run.status for run in trials))
            print(f"  the same command again: exit code {again.returncode}, {plan}; then {statuses}", flush=True)
            if len(finished) != TRIALS or max(finished.values()) > 1 or "RUNNING" in statuses or again.returncode:
                wrong.append(f"{name}: {len(finished)} different trials are FINISHED, {statuses}")
    return wrong


def _in_journal(outputs: Path) -> int:
    return sum(file.read_bytes().count(b'"number"') for file in outputs.glob("sweeps/*/journal.jsonl"))


def _worker_of(pid: int) -> int:
    """A process that joblib has started for a sweep, and that has worked longest."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    threads = [int(child) for task in Path(f"/proc/{pid}/task").iterdir()
               for child in (task / "children").read_text().split()]  # fmt: skip
    workers = {int(one) for one in (*children, *threads) if b"loky" in Path(f"/proc/{one}/cmdline").read_bytes()}
    busy = {one: int(Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()[11]) for one in workers}
    return max(busy, key=lambda one: busy[one])


def _wait_until(work: Work, count: int) -> None:
    while len(work.entries()) < count:
        time.sleep(0.05)


def _sync(outputs: Path) -> str:
    words = ["doctor", "sync", f"outputs={outputs}", "format=json"]
    done = subprocess.run([*HARNESS, *words], capture_output=True, text=True, cwd=outputs)
    if not done.stdout:
        return f"exit code {done.returncode}: {done.stderr[-1000:]}"
    document = json.loads(done.stdout)
    return f"{len(document['sent'])} sent, {len(document['left'])} left {document['left'][:2] or ''}".rstrip()


@dataclass(frozen=True)
class Template:
    """A run to log again and again. record: with its folder of files. detail: of the tracker."""

    record: RunRecord
    detail: str

    def work(self, outputs: Path, uri: str, count: int, workers: int, experiment: str = EXPERIMENT) -> Work:
        outputs.mkdir(parents=True)
        assert self.record.folder is not None
        return Work(self.record, self.record.folder, outputs, uri, self.detail, count, workers, experiment)


@contextmanager
def templates(details: Sequence[str]) -> Iterator[tuple[Path, list[Template]]]:
    """(an empty folder, a run of the sample for each detail)."""
    folder = Path(tempfile.mkdtemp(prefix="benchmark-tracking-"))
    try:
        made = [Template(one_run(folder / one, [f"tracking.detail={one}"])[0], one) for one in details]
        yield folder, made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    options = parser(__doc__)
    options.add_argument("what", choices=("rates", "many", "faults", "sweeps"))
    options.add_argument("--runs", type=int, help="light runs: rates 300 for each row, many 5000, faults 1000")
    options.add_argument("--full", type=int, default=200, help="many: full runs")
    options.add_argument("--where", choices=("server", "SQLite", "both"), default="both", help="many: the store")
    chosen = options.parse_args()
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    runs = chosen.runs or {"rates": 300, "many": 5000, "faults": 1000, "sweeps": TRIALS}[chosen.what]
    wrong: list[str] = []
    with templates(["light", "full"] if chosen.what == "many" else ["light"]) as (folder, made):
        if chosen.what == "rates":
            rates(folder, made[0], runs)
        elif chosen.what == "many":
            wrong = many(folder, made[0], made[1], chosen, runs)
        elif chosen.what == "faults":
            wrong = faults(folder, made[0], runs)
        else:
            wrong = sweeps(folder)
    print("\n".join(wrong[:20]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
