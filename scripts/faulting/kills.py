"""Kills of nodes, workers, servers and commands while something works: it ends as if nothing had happened."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from generated_corpus import corpus
from measuring import HARNESS, apart, one_ranking, rows_of

from faulting import slurm as slurms
from faulting.tracking_servers import Servers, tracking_servers

LOOK = 0.02  # seconds between two looks at a store
ONE_CORE = dict.fromkeys(("HARNESS_CORES", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
BM25 = ("retriever=bm25", "tokenizer=whitespace")
STAGES = {  # stage -> kind of entries that it writes, documents, of how many documents a shard, retriever
    "encode": ("embeddings", 1_000, 100, ("retriever=dense", "encoder=use_multilingual")),
    "index": ("indexes", 40_000, 4_000, BM25),
    "search": ("rankings", 40_000, 4_000, BM25),
}


def ranked(words: list[str]) -> list[list[Any]]:
    """Return the rows of one ranking: `one_ranking` in a process of its own."""
    return rows_of(one_ranking(words)[0])


def ray(
    *stages: str,
    victim: Literal["node", "worker", "command"] = "node",
    kills: int = 10,
    seed: int = 0,
    size: float = 1.0,
) -> None:
    """Kill nodes, workers or the command itself while a Ray cluster encodes, indexes and searches; compare rankings.

    STAGES: encode, index, search (default: all). The cluster has four nodes of one core, simulated on this machine; the
    documents are generated (--size times the usual numbers). Each time the store is new, and the victim dies when as
    many shards as are drawn are finished in the stage, and others are being worked on. A command that dies is run
    again.

    - same: whether every document and every bit of every score is as in one process without a cluster, which has one
      core as each worker has: libraries that multiply matrices round otherwise with another number of threads
    - twice: entries that were finished when the victim died and were written again; none may be
    - next: seconds until the next entry was finished in the store; end: until the command had ended
    """
    from faulting.ray_nodes import Nodes

    dice = random.Random(seed)
    os.environ.update(ONE_CORE)
    with tempfile.TemporaryDirectory() as name, Nodes(4) as nodes:
        for stage in stages or STAGES:
            kind, documents, shard, retriever = STAGES[stage]
            documents, shard, data = int(size * documents), int(size * shard), Path(name) / stage
            corpus(data, documents=documents, queries=100)
            words = ["dataset=beir", f"dataset.path={data}", "tracking=none", f"outputs={name}", *retriever]
            words += [f"cluster.shard={shard}"]
            expected = apart(ranked, [*words, f"store.path={name}/local"])
            print(f"{stage}: {documents:,} documents in shards of {shard:,}", flush=True)
            for _ in range(kills):
                shutil.rmtree(Path(name) / "store", ignore_errors=True)
                strike = Strike(Path(name) / "store", kind, dice.randint(1, max(1, documents // shard // 2)))
                ways = [f"store.path={name}/store", "cluster=ray", f"cluster.runtime.address={nodes.address}"]
                _struck(strike, [*words, *ways], expected, lambda pid: _kill(nodes, victim, pid, dice))
                nodes.repair()


@dataclass
class Strike:
    """A kill when a stage has finished some entries. before: what was finished then; killed, next: moments."""

    store: Path
    kind: str
    after: int
    before: dict[str, tuple[int, int]] = field(default_factory=dict)
    killed: float = 0.0
    next: float = 0.0
    over: bool = False

    def finished(self) -> dict[str, tuple[int, int]]:
        """Entry -> (number of its folder on the disk, time of its oldest file), of all that are finished."""
        found = {}
        for manifest in self.store.glob("*/*/manifest.json"):
            with contextlib.suppress(OSError):  # just now renamed
                files = [one for one in manifest.parent.iterdir() if one.name != manifest.name]
                if not manifest.parent.name.endswith(".unfinished"):
                    oldest = min((one.stat().st_mtime_ns for one in files), default=0)
                    found[str(manifest.parent)] = (manifest.parent.stat().st_ino, oldest)
        return found

    def watch(self, kill: Callable[[], None]) -> None:
        while not self.over and sum(f"/{self.kind}/" in one for one in self.finished()) < self.after:
            time.sleep(LOOK)
        if not self.over:
            self.before = self.finished()
            kill()
            self.killed = time.monotonic()
            while not self.over and not self.finished().keys() - self.before.keys():
                time.sleep(LOOK)
            self.next = time.monotonic()


def _struck(strike: Strike, words: list[str], expected: object, kill: Callable[[int], None]) -> None:
    """Run a command with one kill, and print a line about it."""
    pid, output, found = list[int](), strike.store.with_name("rows.json"), None
    watcher = threading.Thread(target=strike.watch, args=(lambda: kill(pid[0]),), daemon=True)
    script = (
        "import json, sys; from faulting.kills import ranked; json.dump(ranked(sys.argv[2:]), open(sys.argv[1], 'w'))"
    )
    path = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    while found is None:
        command = [sys.executable, "-c", script, str(output), *words]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL, env=path) as process:
            pid[:] = [process.pid]
            if not watcher.is_alive() and not strike.killed:
                watcher.start()
        if process.returncode not in (0, -signal.SIGKILL):
            sys.exit(f"the command ended with {process.returncode}: {' '.join(command)}")
        found = json.loads(output.read_text()) if process.returncode == 0 else None
    strike.over, ended = True, time.monotonic()
    watcher.join()
    now = strike.finished()
    twice = [entry for entry, about in strike.before.items() if now.get(entry) != about]
    line = f"after {strike.after:2} {strike.kind}: same {found == expected}, finished before {len(strike.before)}"
    seconds = [f"{moment - strike.killed:.1f} s" for moment in (strike.next, ended)]
    print(f"{line}, twice {len(twice)}, next {seconds[0]}, end {seconds[1]}", flush=True)
    if found != expected or twice or not strike.killed:
        sys.exit(f"not the same, written twice, or nothing killed: {twice}")


def _kill(nodes: Any, victim: str, pid: int, dice: random.Random) -> None:
    number = dice.randrange(nodes.count)
    if victim == "command":
        os.kill(pid, signal.SIGKILL)
    elif victim == "node":
        nodes.kill(number)
    else:
        workers = [one for one in nodes.pids(number) if b"ray::Worker" in Path(f"/proc/{one}/cmdline").read_bytes()]
        for one in workers[:1]:
            os.kill(one, signal.SIGKILL)


# Sweeps, whose trials must be there once


def _trials(outputs: Path, experiment: str, uri: str | None = None) -> Counter[str]:
    """Status -> runs of trials with it; `twice`: trials that have FINISHED more than once."""
    from harness.tracking.mlflow_tracker import MlflowTracker

    tracker = MlflowTracker(uri)
    tracker.connect(outputs)
    runs = tracker.runs(experiment, {"harness.verb": "run"})
    finished = Counter(run.tags["trial_key"] for run in runs if run.status == "FINISHED")
    return Counter(run.status for run in runs) + Counter(twice=sum(count > 1 for count in finished.values()))


def _journal_lines(outputs: Path) -> int:
    return sum(file.read_bytes().count(b'"number"') for file in outputs.glob("sweeps/*/journal.jsonl"))


@dataclass
class SlurmCampaign:
    """A sweep on a SLURM of this machine. folder: of its outputs. dice: decides what is killed, and when."""

    folder: Path
    place: slurms.Place
    trials: int
    dice: random.Random

    def start(self) -> subprocess.Popen[str]:
        """Start the sweep, always by the same command."""
        axis = f"gate.threshold=range(0,{self.trials})"
        words = ["sweep", "tokenizer=whitespace", "gate=score", axis, "experiment_name=kills"]
        launcher = ["hydra/launcher=submitit_slurm", "hydra.launcher.timeout_min=20", "hydra.launcher.signal_delay_s=5"]
        with (self.folder / "sweep.log").open("a") as log:
            return subprocess.Popen(
                [*HARNESS, *words, *launcher, "trials_per_job=25"],
                cwd=self.folder, env=self.place.environment, stdout=log, stderr=log, text=True, start_new_session=True,
            )  # fmt: skip

    def log(self) -> str:
        return "".join((self.folder / "sweep.log").read_text().splitlines(keepends=True)[-60:])

    def workers(self) -> list[int]:
        """Return the processes that run trials."""
        pythons = [pid for pid in slurms.processes() if slurms.content(pid, "comm").startswith("python")]
        jobs = [pid for pid in pythons if "submitit.core._submit" in slurms.content(pid, "cmdline")]
        return [pid for pid in jobs if slurms.belongs(pid, self.place.folder)]

    def elements(self) -> list[str]:
        """Return the elements of arrays that wait or run, such as 12_3."""
        return self.place.ask("squeue", "-h", "-r", "-o", "%i").stdout.split()

    def kill_worker(self) -> str:
        slurms.kill(worker := self.dice.choice(self.workers()))
        return f"kill -9 of worker {worker}"

    def cancel_element(self) -> str:
        self.place.ask("scancel", element := self.dice.choice(self.elements()))
        return f"scancel {element}"

    def kill_node(self) -> str:
        """Kill a node, which comes back two seconds later."""
        number = self.dice.randint(1, self.place.nodes)
        self.place.stop(f"slurmd{number}", signal.SIGKILL)
        for pid in (*slurms.steps(self.place), *self.workers()):
            if f"SLURMD_NODENAME=n{number}" in slurms.content(pid, "environ").split("\0"):
                slurms.kill(pid)
        time.sleep(2)
        self.place.start_node(number)
        return f"node n{number} killed and started again"

    def one_start(self, kills: int, kinds: list[str]) -> int:
        """Run the command once, with kills of these kinds in turn; return its exit code."""
        child, began = self.start(), time.monotonic()
        for _ in range(kills):
            slurms.with_patience(lambda: bool(self.workers()) or child.poll() is not None, 60)
            before = _journal_lines(self.folder / "outputs")
            if self.dice.random() < 0.3:  # somewhere in imports and retrieval, or when a trial has just ended
                time.sleep(self.dice.uniform(0, 7))
            else:
                moved = lambda before=before: _journal_lines(self.folder / "outputs") > before  # noqa: E731
                slurms.with_patience(lambda moved=moved: moved() or child.poll() is not None, 30)  # type: ignore[misc]
                time.sleep(self.dice.uniform(0, 0.5))
            if child.poll() is not None or not (self.workers() and self.elements()):
                break
            print(f"  {time.monotonic() - began:5.1f} s: {getattr(self, kinds[0])()}")
            kinds.append(kinds.pop(0))
        return self.ended(child)

    def ended(self, child: subprocess.Popen[str]) -> int:
        """Return the exit code. The sweep must end within a minute after its last job."""
        emptied = time.monotonic()
        while child.poll() is None:
            if self.elements():
                emptied = time.monotonic()
            elif time.monotonic() - emptied > 60:
                os.killpg(child.pid, signal.SIGKILL)
                sys.exit(f"{self.log()}The sweep still waits a minute after its last job.")
            time.sleep(0.5)
        print(f"  exit {child.returncode}, {time.monotonic() - emptied:.0f} s after its last job; "
              f"{dict(_trials(self.folder / 'outputs', 'kills'))}")  # fmt: skip
        return child.returncode

    def interrupt(self) -> None:
        """Ctrl-C while jobs run."""
        child = self.start()
        slurms.with_patience(lambda: len(self.workers()) > 1, 60)
        time.sleep(self.dice.uniform(1, 6))
        began = time.monotonic()
        child.send_signal(signal.SIGINT)
        slurms.with_patience(lambda: not self.elements(), 60)
        print(f"  no job left after {time.monotonic() - began:.1f} s")
        if self.ended(child) != 130 or self.workers():
            sys.exit("The interrupted sweep left workers, or ended with another code than 130.")

    def restart_controller(self) -> None:
        """The controller goes away for 20 seconds while jobs run."""
        child = self.start()
        slurms.with_patience(lambda: bool(self.workers()), 60)
        self.place.stop("slurmctld")
        time.sleep(20)
        self.place.start_controller()
        self.ended(child)


def slurm(*, accounting: bool = False, trials: int = 200, kills: int = 3, starts: int = 3, seed: int = 0) -> None:
    """Kill workers, jobs and nodes at random while a sweep runs on a SLURM of this machine.

    Each of --starts starts of the sweep suffers up to --kills kills of three kinds, in turn: `kill -9` of a worker,
    `scancel` of an element of the array, and a node whose `slurmd` and workers are killed and started again later. The
    same command follows until it ends with 0, the last time without kills. Then every trial must have FINISHED once,
    none twice, and none be left RUNNING. Before that, one start is interrupted by SIGINT, and one outlives a restart of
    SLURM's controller. Needs what `slurm_here` needs, and the extra `slurm`.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        place = slurms.Place(folder / "slurm")
        try:
            slurms.up(place, accounting)
        except slurms.NotPossible as error:
            sys.exit(str(error))
        try:
            campaign, kinds = (
                SlurmCampaign(folder, place, trials, random.Random(seed)),
                ["kill_worker", "cancel_element"],
            )
            kinds.append("kill_node")
            print("interrupted by SIGINT:")
            campaign.interrupt()
            for number in range(1, starts + 1):
                print(f"start {number}, with kills:")
                if campaign.one_start(kills, kinds) == 0:
                    break
            print("while the controller restarts:")
            campaign.restart_controller()
            print("the same command, without kills:")
            code, found = campaign.one_start(0, kinds), _trials(folder / "outputs", "kills")
            if code or found["FINISHED"] != trials or found["twice"] or found["RUNNING"]:
                sys.exit(f"{campaign.log()}Expected exit 0 and {trials} FINISHED once.")
            print(f"{trials} trials FINISHED once.")
        finally:
            slurms.down(place)


# The same with an MLflow server over PostgreSQL and S3


@contextlib.contextmanager
def _away(servers: Servers, pause: float) -> Iterator[None]:
    """Kill the MLflow server and start it again after a pause."""
    servers.mlflow.kill()
    time.sleep(pause)
    servers.mlflow.start()
    yield


def sweeps(*, trials: int = 200, pause: float = 30.0) -> int:
    """Kill a worker, then the server for a while, during `harness sweep` with joblib and 8 workers into that server.

    The same command then skips what is finished: every trial must be FINISHED once, and none RUNNING. The server is
    that of `tracking_server`; --pause seconds are longer than a request is repeated.
    """
    wrong, axis = [], f"gate.threshold=range(0,{trials // 2})"
    fixed = ["sweep", "tokenizer=whitespace,char_ngram", "gate=score", axis, "format=json"]
    fixed += ["hydra/launcher=joblib", "hydra.launcher.n_jobs=8", "trials_per_job=10"]
    with tempfile.TemporaryDirectory() as folder, tracking_servers() as servers:
        for name in ("undisturbed", "worker", "server"):
            outputs, began = Path(folder) / name, time.perf_counter()
            outputs.mkdir()
            where = [f"experiment_name={name}", f"outputs={outputs}", f"tracking.uri={servers.mlflow.address}"]
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            process = subprocess.Popen([*HARNESS, *fixed, *where], **quiet)  # type: ignore[call-overload]
            while process.poll() is None and _journal_lines(outputs) < trials // 4:
                time.sleep(0.05)
            if name == "worker":
                os.kill(_busiest_worker(process.pid), signal.SIGKILL)
            elif name == "server":
                with _away(servers, pause):
                    pass
            code, spent = process.wait(), time.perf_counter() - began
            print(f"{name}: exit code {code} after {spent:.0f} s, {_journal_lines(outputs)} trials; {_sync(outputs)}")
            again = subprocess.run([*HARNESS, *fixed, *where], capture_output=True, text=True)
            found = _trials(outputs, name, servers.mlflow.address)
            print(f"  the same command again: exit code {again.returncode}; then {dict(found)}", flush=True)
            if found["FINISHED"] != trials or found["twice"] or found["RUNNING"] or again.returncode:
                wrong.append(name)
    return int(bool(wrong))


def _busiest_worker(pid: int) -> int:
    """Return the process of joblib that has worked longest for a sweep."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    workers = [one for one in children if b"loky" in Path(f"/proc/{one}/cmdline").read_bytes()]
    return max(workers, key=lambda one: int(Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()[11]))


def _sync(outputs: Path) -> str:
    words = ["doctor", "sync", f"outputs={outputs}", "format=json"]
    done = subprocess.run([*HARNESS, *words], capture_output=True, text=True, cwd=outputs)
    if not done.stdout:
        return f"doctor sync: exit code {done.returncode}: {done.stderr[-1000:]}"
    document = json.loads(done.stdout)
    return f"doctor sync: {len(document['sent'])} sent, {len(document['left'])} left"


def tracking_server(*, runs: int = 1000, pause: float = 30.0) -> int:
    """Kill processes, the server and PostgreSQL while 8 processes log runs; every run must be there once, as sent.

    Three processes are killed and started again, then the MLflow server is away for --pause seconds, then PostgreSQL is
    ended as by a crash. `harness doctor sync` sends what waits in the outbox; the runs, and their files in the object
    store, are then compared. Needs what `benchmark.py tracking_server` needs.
    """
    from benchmarks.tracking import one_run
    from benchmarks.tracking_server import Runs, check

    os.environ.pop("MLFLOW_TRACKING_URI", None)
    with tempfile.TemporaryDirectory() as name, tracking_servers() as servers:
        record, _ = one_run(Path(name) / "run", ["tracking.detail=light"])
        work = Runs(record, Path(name) / "faults", servers.mlflow.address, "light", runs)
        work.outputs.mkdir()
        processes = {worker: work.start(worker) for worker in range(work.workers)}

        def reached(share: float) -> None:
            while len(work.entries()) < share * runs:
                time.sleep(0.05)

        for number, share in enumerate((0.15, 0.3, 0.45)):
            reached(share)
            processes[number].kill()
            processes[number].join()
            processes[number] = work.start(number)
        reached(0.6)
        with _away(servers, pause):
            print(f"the server was away; {len(work.entries()):,} runs so far", flush=True)
        reached(0.8)
        servers.postgres.stop("immediate")
        time.sleep(pause)
        servers.postgres.start()
        for process in processes.values():
            process.join()
        codes = [process.exitcode for process in processes.values()]
        print(f"exit codes {codes}; {sum(not entry['sent'] for entry in work.entries())} runs in the outbox")
        for _ in range(3):  # the first may meet a database that is only just back
            print(_sync(work.outputs))
        wrong = check(work, servers.files()) + [f"a process ended with {code}" for code in codes if code]
    print("\n".join(wrong[:20]))
    return int(bool(wrong))
