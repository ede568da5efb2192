"""Thousands of runs by many processes into an MLflow server over PostgreSQL and S3: rates, and whether one is lost."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from faulting.tracking_servers import tracking_servers
from measuring import HARNESS, Table, timed

from benchmarks.tracking import one_run
from harness.config.canonical import digest
from harness.recording import recording
from harness.sweeps.trials import PATIENCE
from harness.tracking.mlflow_tracker import MlflowTracker
from harness.tracking.tracker import LoggedRun, RunRecord

NUMBER = "bench.number"  # tag of a run: its place among those to be logged
CONFIG, WORKERS = "config.yaml", 8
SPAWN = multiprocessing.get_context("spawn")
COLUMNS = ("runs", "runs/s", "ms of a run, median", "95 %")


@dataclass(frozen=True)
class Runs:
    """Runs to log again and again. template: a run's record, with its folder. outputs: where processes write."""

    template: RunRecord
    outputs: Path
    uri: str
    detail: str
    count: int
    workers: int = WORKERS
    experiment: str = "bench"

    @property
    def node(self) -> dict[str, Any]:
        """Return the config that opens the tracker."""
        target = "harness.tracking.mlflow_tracker.MlflowTracker"
        tracker = {"_target_": target, "uri": self.uri, "detail": self.detail}
        return {"tracking": tracker, "outputs": str(self.outputs)}

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

    def journal(self, worker: int) -> Path:
        return self.outputs / f"journal-{worker}.jsonl"

    def entries(self) -> list[dict[str, Any]]:
        """Return what the workers have finished."""
        files = [self.journal(worker) for worker in range(self.workers)]
        return [json.loads(line) for file in files if file.exists() for line in file.read_text().splitlines()]

    def start(self, worker: int, together: Any = None) -> Any:
        """Start a process that logs. together: a barrier, so that all of them begin to log at once."""
        process = SPAWN.Process(target=log_runs, args=(self, worker, together))
        process.start()
        return process

    def log_all(self) -> list[Any]:
        """Log all runs with as many processes as there are workers; return the cells of a row."""
        self.outputs.mkdir(parents=True)
        together = SPAWN.Barrier(self.workers)
        processes = [self.start(worker, together) for worker in range(self.workers)]
        for process in processes:
            process.join()
            if process.exitcode:
                sys.exit(f"A process that logs ended with {process.exitcode}.")
        entries = self.entries()
        spent = sorted(1000 * entry["seconds"] for entry in entries)
        ends = [entry["began"] + entry["seconds"] for entry in entries]
        rate = len(entries) / (max(ends) - min(entry["began"] for entry in entries))
        return [len(entries), rate, statistics.median(spent), spent[int(0.95 * (len(spent) - 1))]]


def log_runs(runs: Runs, worker: int, together: Any) -> None:
    """Log every run of one worker that it has not finished; started again after a kill, it goes on."""
    done = {entry["number"] for entry in runs.entries()}
    tracker = recording.connected(runs.node, PATIENCE)  # as a job of a sweep does
    recording.end_abandoned(tracker)
    logged = tracker.runs(runs.experiment, {}, "FINISHED") if done else []  # a kill may come just before the journal
    done |= {int(run.tags[NUMBER]) for run in logged}
    if together:
        together.wait()
    assert runs.template.folder is not None
    for number in sorted(set(range(worker, runs.count, runs.workers)) - done):
        began, clock = time.time(), time.perf_counter()
        record, folder = runs.record(number), runs.outputs / "trials" / str(number)
        with recording.live_run(tracker, record, folder, direct=True) as live:
            shutil.copytree(runs.template.folder, live.folder, dirs_exist_ok=True)
            with (live.folder / CONFIG).open("a") as file:  # one file is the run's own
                file.write(f"# {number}\n")
        shutil.rmtree(folder, ignore_errors=True)
        entry = {"number": number, "began": began, "seconds": time.perf_counter() - clock, "sent": not record.unsent}
        with runs.journal(worker).open("a") as file:
            file.write(json.dumps(entry) + "\n")


def check(runs: Runs, stored: Mapping[str, str] | None) -> list[str]:
    """Return what is lost, double or different. stored: key -> MD5 of the object store's files; None: do not look."""
    tracker = MlflowTracker(runs.uri)
    tracker.connect(runs.outputs)
    logged = tracker.runs(runs.experiment, {})
    by_status = Counter(run.status for run in logged)
    finished = Counter(int(run.tags[NUMBER]) for run in logged if run.status == "FINISHED")
    ended = ("FINISHED", "KILLED")
    wrong = [f"{count} runs are {status}" for status, count in by_status.items() if status not in ended]
    wrong += [
        f"run {number} is there {finished[number]} times" for number in range(runs.count) if finished[number] != 1
    ]
    for run in logged:
        if run.status == "FINISHED":
            wrong += _differences(runs, run, stored)
    counts = ", ".join(f"{count:,} {status}" for status, count in by_status.items())
    print(f"{len(logged):,} runs in the store: {counts}; {len(wrong)} things wrong")
    return wrong


def _differences(runs: Runs, run: LoggedRun, stored: Mapping[str, str] | None) -> Iterator[str]:
    number = int(run.tags[NUMBER])
    record, files = runs.record(number), runs.template.folder
    assert files is not None
    for name, value in record.all_metrics.items():
        if (found := run.metrics.get(name.replace("@", "_at_"))) != value:
            yield f"run {number}: {name} is {found}, not {value}"
    if len(run.params) < len(record.params):
        yield f"run {number}: {len(run.params)} params of {len(record.params)}"
    for path in files.rglob("*") if stored is not None else ():
        content = path.read_bytes() + (f"# {number}\n".encode() if path.name == CONFIG else b"")
        if (stored or {}).get(f"{run.run_id}/artifacts/{path.name}") != hashlib.md5(content).hexdigest():
            yield f"run {number}: {path.name} is missing, or another"


def tracking_server(
    what: Literal["rates", "many"],
    *,
    runs: int | None = None,
    full: int = 200,
    where: Literal["server", "SQLite", "both"] = "both",
    workers: tuple[int, ...] = (1, 2, 4, WORKERS),
) -> int:
    """Log thousands of runs by many processes into an MLflow server over PostgreSQL and S3; check that none is lost.

    rates: light runs (--runs, 300) with 1, 2, 4 and 8 --workers, into the server and into SQLite
    many: light runs (--runs, 5000) and --full runs by 8 processes, then the commands that read them

    A run is made once with `harness run` on the sample. Its record and files are then logged again and again through
    the project's own tracker, as a sweep logs a trial, each time with another value and another trial key. At the end
    every run must be there once, with the metrics and files that were sent: files are compared in the object store
    itself. `faults.py tracking_server` kills processes and servers meanwhile. The servers are on this machine
    (PostgreSQL's programs, psycopg2-binary and moto[server] are needed), and share its cores with the processes that
    log.
    """
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="benchmark-tracking-") as name:
        folder = Path(name)
        light = one_run(folder / "light", ["tracking.detail=light"])[0]
        details = {"light": light} | ({"full": one_run(folder / "full", [])[0]} if what == "many" and full else {})
        for label in ("server", "SQLite") if where == "both" else (where,):
            with ExitStack() as stack:
                servers = stack.enter_context(tracking_servers()) if label == "server" else None
                uri = servers.mlflow.address if servers else f"sqlite:///{folder / 'many.db'}"
                print(f"\n{label}\n")
                if what == "rates":
                    table = Table("processes", *COLUMNS)
                    for count in workers:
                        some = Runs(
                            light, folder / f"{label}-{count}", uri, "light", runs or 300, count, f"rates-{count}"
                        )
                        table.row(count, *some.log_all())
                    continue
                table, made = Table("detail", *COLUMNS), []
                for detail, record in details.items():
                    count = full if detail == "full" else runs or 5000
                    made.append(Runs(record, folder / f"{label}-{detail}", uri, detail, count, experiment=detail))
                    table.row(detail, *made[-1].log_all())
                for some in made:
                    wrong += check(some, servers.files() if servers else None)
                _read(made[0])
    print("\n".join(wrong[:20]))
    return int(bool(wrong))


def _read(runs: Runs) -> None:
    """Print the seconds of the commands that read the runs."""
    place = [f"experiment_name={runs.experiment}", f"tracking.uri={runs.uri}", f"outputs={runs.outputs / 'reading'}"]
    for verb in ("runs", "board", "export"):
        command = [*HARNESS, verb, *place, "format=json"]
        spent, done = timed(lambda command=command: subprocess.run(command, capture_output=True, cwd=runs.outputs))
        said = done.stderr[-1000:].decode() if done.returncode else ""
        print(f"harness {verb}: {spent:.1f} s, exit code {done.returncode} {said}".rstrip(), flush=True)
