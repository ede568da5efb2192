"""Thousands of runs by many processes into an MLflow server: rates, and whether one is lost."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faulting.kills import synchronised
from faulting.proxy import proxied
from measuring import Table, harness, opened_tracker

from benchmarks.tracking import one_run
from harness.config.canonical import digest
from harness.recording import recording
from harness.sweeps.trials import PATIENCE
from harness.tracking.mlflow_tracker import MlflowTracker
from harness.tracking.tracker import LoggedRun, RunRecord

NUMBER = "bench.number"  # tag of a run: its place among those to be logged
CONFIG, WORKERS = "config.yaml", 8
SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Runs:
    """Runs to log again and again. template: a run's record, with its folder. outputs: where processes write."""

    template: RunRecord
    outputs: Path
    uri: str
    detail: str
    count: int
    experiment: str

    def record(self, number: int) -> RunRecord:
        """Return a record of its own for each number."""
        value = number / self.count
        objective = dataclasses.replace(self.template.objective, value=value, low=value, high=value)  # type: ignore[type-var]
        return dataclasses.replace(
            self.template,
            experiment=self.experiment,
            tags=self.template.tags | {"trial_key": digest([self.detail, number]), NUMBER: str(number)},
            params=self.template.params | {"bench": number},
            metrics=self.template.metrics | {objective.name: value},
            objective=objective,
            folder=None,
        )

    def entries(self) -> list[dict[str, Any]]:
        """Return what the workers have finished."""
        return [json.loads(line) for file in self.outputs.glob("journal-*") for line in file.read_text().splitlines()]

    def start(self, worker: int) -> Any:
        """Start a process that logs."""
        process = SPAWN.Process(target=log_runs, args=(self, worker))
        process.start()
        return process

    def log_all(self) -> list[Any]:
        """Log all runs with WORKERS processes; return the cells of a row."""
        self.outputs.mkdir(parents=True)
        processes = [self.start(worker) for worker in range(WORKERS)]
        for process in processes:
            process.join()
            if process.exitcode:
                sys.exit(f"A process that logs ended with {process.exitcode}.")
        entries = self.entries()
        spent = sorted(1000 * entry["seconds"] for entry in entries)
        ends = [entry["began"] + entry["seconds"] for entry in entries]
        rate = len(entries) / (max(ends) - min(entry["began"] for entry in entries))
        return [len(entries), rate, statistics.median(spent), spent[int(0.95 * (len(spent) - 1))]]


def log_runs(runs: Runs, worker: int) -> None:
    """Log every run of one worker that it has not finished; started again after a kill, it goes on."""
    done = {entry["number"] for entry in runs.entries()}
    node = {"_target_": "harness.tracking.mlflow_tracker.MlflowTracker", "uri": runs.uri, "detail": runs.detail}
    tracker = recording.connected(node, runs.outputs, PATIENCE)  # as a job of a sweep does
    recording.end_abandoned(tracker)
    logged = tracker.runs(runs.experiment, {}, "FINISHED") if done else []  # a kill may come just before the journal
    done |= {int(run.tags[NUMBER]) for run in logged}
    assert runs.template.folder is not None
    for number in sorted(set(range(worker, runs.count, WORKERS)) - done):
        began, clock = time.time(), time.perf_counter()
        record, folder = runs.record(number), runs.outputs / "trials" / str(number)
        with recording.live_run(tracker, record, folder, direct=True) as live:
            shutil.copytree(runs.template.folder, live.folder, dirs_exist_ok=True)
            with (live.folder / CONFIG).open("a") as file:  # one file is the run's own
                file.write(f"# {number}\n")
        shutil.rmtree(folder, ignore_errors=True)
        entry = {"number": number, "began": began, "seconds": time.perf_counter() - clock, "sent": not record.unsent}
        with (runs.outputs / f"journal-{worker}").open("a") as file:
            file.write(json.dumps(entry) + "\n")


def check(runs: Runs) -> list[str]:
    """Return what is lost, double or different in the store."""
    tracker = opened_tracker(runs.outputs, runs.uri)
    logged = tracker.runs(runs.experiment, {})
    by_status = Counter(run.status for run in logged)
    finished = Counter(int(run.tags[NUMBER]) for run in logged if run.status == "FINISHED")
    ended = ("FINISHED", "KILLED")
    wrong = [f"{count} runs are {status}" for status, count in by_status.items() if status not in ended]
    wrong += [f"run {one} is there {finished[one]} times" for one in range(runs.count) if finished[one] != 1]
    for run in logged:
        if run.status == "FINISHED":
            wrong += _differences(runs, run, tracker)
    counts = ", ".join(f"{count:,} {status}" for status, count in by_status.items())
    print(f"{len(logged):,} runs in the store: {counts}; {len(wrong)} things wrong")
    return wrong


def _differences(runs: Runs, run: LoggedRun, tracker: MlflowTracker) -> Iterator[str]:
    number = int(run.tags[NUMBER])
    record, files = runs.record(number), runs.template.folder
    assert files is not None
    for name, value in record.all_metrics.items():
        if (found := run.metrics.get(name.replace("@", "_at_"))) != value:
            yield f"run {number}: {name} is {found}, not {value}"
    if len(run.params) < len(record.params):
        yield f"run {number}: {len(run.params)} params of {len(record.params)}"
    with tempfile.TemporaryDirectory() as folder:
        tracker.client.download_artifacts(run.run_id, "", folder)
        for path in files.rglob("*"):
            stored = Path(folder) / path.relative_to(files)
            content = path.read_bytes() + (f"# {number}\n".encode() if path.name == CONFIG else b"")
            if not stored.is_file() or stored.read_bytes() != content:
                yield f"run {number}: {path.name} is missing, or another"


def tracking_server(*, runs: int = 5000, full: int = 200, uri: str | None = None) -> int:
    """Log thousands of runs by 8 processes into an MLflow server; check that none is lost, and time what reads them.

    --uri: of the server, such as one over PostgreSQL and S3, or of another store, such as sqlite:///many.db; without
    it, a server over SQLite is started on this machine. A run is made once with `harness run` on the sample. Its record
    and files are then logged again and again through the project's own tracker, as a sweep logs a trial, each time with
    another value and another trial key: --runs light ones and --full full ones. At the end every run must be there
    once, with the metrics and files that were sent. `faults.py tracking_server` kills processes meanwhile, and takes
    the server away.
    """
    from mlflow_server import serving

    wrong: list[str] = []
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    with tempfile.TemporaryDirectory(prefix="benchmark-tracking-") as name, ExitStack() as stack:
        folder, uri = Path(name), uri or stack.enter_context(serving(Path(name)))[0]
        table, made = Table("detail", "runs", "runs/s", "ms of a run, median", "95 %"), []
        for detail, count in (("light", runs), ("full", full)):
            if count:
                record = one_run(folder / detail, ["tracking.detail=light"] if detail == "light" else [])[0]
                place = folder / f"of-{detail}"  # its experiment is none of an earlier call
                made.append(Runs(record, place, uri, detail, count, f"{time.time():.0f}-{detail}"))
                table.row(detail, *made[-1].log_all())
        for some in made:
            wrong += check(some)
        place = [f"experiment_name={made[0].experiment}", f"tracking.uri={uri}", f"outputs={folder / 'reading'}"]
        for verb in ("runs", "board", "export"):
            print(f"harness {verb}: {harness(verb, *place, folder=folder)[0]:.1f} s", flush=True)
    print("\n".join(wrong[:20]))
    return int(bool(wrong))


def killed(*, runs: int = 1000, pause: float = 30.0, uri: str | None = None) -> int:
    """Kill processes while 8 of them log runs, and take the server away; every run must be there once, as it was sent.

    Three processes are killed and started again, then the MLflow server is away for --pause seconds. `harness doctor
    sync` sends what waits in the outbox; the runs and their files are then compared. --uri: of another server than one
    over SQLite that is started here.
    """
    with tempfile.TemporaryDirectory() as name, proxied(Path(name) / "server", uri) as proxy:
        os.environ.pop("MLFLOW_TRACKING_URI", None)
        record, _ = one_run(Path(name) / "run", ["tracking.detail=light"])
        work = Runs(record, Path(name) / "faults", proxy.address, "light", runs, f"{time.time():.0f}")
        work.outputs.mkdir()
        processes = {worker: work.start(worker) for worker in range(WORKERS)}

        def reached(share: float) -> None:
            while len(work.entries()) < share * runs:
                time.sleep(0.05)

        for number, share in enumerate((0.15, 0.3, 0.45)):
            reached(share)
            processes[number].kill()
            processes[number].join()
            processes[number] = work.start(number)
        reached(0.6)
        proxy.be_away(pause)
        print(f"the server was away; {len(work.entries()):,} runs so far", flush=True)
        for worker, process in processes.items():
            process.join()
            if process.exitcode:  # it waited in vain for the server
                processes[worker] = work.start(worker)
                processes[worker].join()
        codes = [process.exitcode for process in processes.values()]
        print(f"exit codes {codes}; {sum(not entry['sent'] for entry in work.entries())} runs in the outbox")
        print(synchronised(work.outputs, proxy.address))
        wrong = check(work) + [f"a process ended with {code}" for code in codes if code]
    print("\n".join(wrong[:20]))
    return int(bool(wrong))
