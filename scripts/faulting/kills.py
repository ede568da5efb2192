"""Kill nodes, workers, servers and commands at work: the work must end as if nothing had happened."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from generated_corpus import corpus
from measuring import HARNESS, opened_tracker, watched

from faulting.proxy import proxied
from faulting.ray_nodes import family
from harness.errors import BadInput
from harness.tracking import file_hashes

LOOK = 0.02  # seconds between two looks at a store
ONE_CORE = dict.fromkeys(("HARNESS_CORES", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
BM25 = ("retriever=bm25", "tokenizer=whitespace")
STAGES = {  # stage -> kind of entries, documents, documents of a shard, retriever
    "encode": ("embeddings", 1_000, 100, ("retriever=dense", "encoder=use_multilingual")),
    "index": ("indexes", 40_000, 4_000, BM25),
    "search": ("queries", 40_000, 4_000, BM25),  # the one entry that is written just before the search
}


def ray(
    *stages: str,
    victim: Literal["node", "worker", "command"] = "node",
    kills: int = 10,
    seed: int = 0,
    size: float = 1.0,
) -> None:
    """Kill nodes, workers or the command while a Ray cluster encodes, indexes and searches; compare rankings.

    STAGES are encode, index, search (default: all). The cluster has four nodes of one core, simulated on this machine.
    Documents are generated, --size times the usual number. In each round the store is new, and the victim dies once a
    random number of shards is finished. A command that dies is run again.

    - same: whether every document and every bit of every score is as in one process with one core: with other numbers
      of threads, matrix products round differently
    - twice: entries that were finished when the victim died and were written again; there must be none
    - next: seconds until the next entry was finished in the store; end: until the command had ended
    """
    from faulting.ray_nodes import Nodes

    dice = random.Random(seed)
    os.environ.update(ONE_CORE)
    with tempfile.TemporaryDirectory() as name, Nodes(4) as nodes:
        store = Path(name) / "store"
        for stage in stages or STAGES:
            kind, documents, shard, retriever = STAGES[stage]
            documents, shard, data = int(size * documents), int(size * shard), Path(name) / stage
            corpus(data, documents=documents, queries=100)
            words = ["run", "dataset=beir", f"dataset.path={data}", "tracking=none", f"outputs={name}", *retriever]
            words += [f"cluster.shard={shard}", "format=json"]
            local = subprocess.run([*HARNESS, *words, f"store.path={name}/local"], capture_output=True, check=True)
            expected = _ranking(local.stdout)
            words += [f"store.path={store}", "cluster=ray", f"cluster.runtime.address={nodes.address}"]
            print(f"{stage}: {documents:,} documents in shards of {shard:,}", flush=True)
            for _ in range(kills):
                shutil.rmtree(store, ignore_errors=True)
                after = 1 if stage == "search" else dice.randint(1, max(1, documents // shard // 2))
                kill = partial(_kill, nodes, victim, dice)
                found, line = _struck(store, kind, after, words, kill)
                print(f"after {after:2} {kind}: same {found == expected}, {line}", flush=True)
                if found != expected:
                    sys.exit("not the same")
                nodes.repair()


def finished(store: Path) -> dict[str, tuple[int, int]]:
    """Return entry -> (inode of its folder, time of its oldest file) of all finished entries."""
    found = {}
    for manifest in store.glob("*/*/manifest.json"):
        with contextlib.suppress(OSError):  # just now renamed
            files = [one for one in manifest.parent.iterdir() if one.name != manifest.name]
            if not manifest.parent.name.endswith(".unfinished"):
                oldest = min((one.stat().st_mtime_ns for one in files), default=0)
                found[str(manifest.parent)] = (manifest.parent.stat().st_ino, oldest)
    return found


def _struck(store: Path, kind: str, after: int, words: list[str], kill: Callable[[int], None]) -> tuple[Any, str]:
    output, before, killed, further = store.with_name("said.json"), dict[str, tuple[int, int]](), 0.0, 0.0
    process = None
    while process is None or process.poll() != 0:
        if process is None or process.returncode == -signal.SIGKILL:  # a killed command is started again
            with output.open("wb") as said:
                process = subprocess.Popen([*HARNESS, *words], stdout=said, stderr=subprocess.DEVNULL)
        elif process.returncode:
            sys.exit(f"the command ended with {process.returncode}: harness {' '.join(words)}")
        time.sleep(LOOK)
        now = finished(store)
        if not killed and sum(f"/{kind}/" in one for one in now) >= after:
            kill(process.pid)
            before, killed = now, time.monotonic()
        elif killed and not further and now.keys() - before.keys():
            further = time.monotonic()
    seconds = [f"{moment - killed:.1f} s" if moment else "none" for moment in (further, time.monotonic())]
    twice = [entry for entry, about in before.items() if finished(store).get(entry) != about]
    if twice or not killed:
        sys.exit(f"written twice, or nothing killed: {twice}")
    line = f"finished before {len(before)}, twice {len(twice)}, next {seconds[0]}, end {seconds[1]}"
    return _ranking(output.read_bytes()), line


def _ranking(said: bytes) -> bytes:
    """Return the run file that a command has written. said: the JSON document that it printed."""
    return (Path(json.loads(said)["files"]["folder"]) / "run.trec").read_bytes()


def _kill(nodes: Any, victim: str, dice: random.Random, pid: int) -> None:
    number = dice.randrange(nodes.count)
    if victim == "command":
        os.kill(pid, signal.SIGKILL)
    elif victim == "node":
        nodes.kill(number)
    else:
        os.kill(next(one for some in range(nodes.count) for one in nodes.workers(some)), signal.SIGKILL)


# Sweeps: each trial must be there once


@dataclass
class Sweep:
    """A sweep that the same command starts again and again.

    uri: of the tracking store; None: SQLite in the outputs. victims: name -> function that kills it.
    """

    folder: Path
    words: list[str]
    trials: int
    dice: random.Random
    uri: str | None = None
    victims: dict[str, Callable[[], object]] = field(default_factory=dict)
    child: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        words = [*self.words, f"outputs={self.folder / 'outputs'}", "experiment_name=kills", "tokenizer=whitespace"]
        words += ["gate=score", f"gate.threshold=range(0,{self.trials})"]
        words += [f"tracking.uri={self.uri}"] if self.uri else []
        with (self.folder / "log").open("ab") as log:
            self.child = subprocess.Popen(
                [*HARNESS, "sweep", *words], cwd=self.folder, stdout=log, stderr=log, start_new_session=True
            )
        return self.child

    @property
    def lines(self) -> int:
        journals = (self.folder / "outputs").glob("sweeps/*/journal.jsonl")
        return sum(file.read_bytes().count(b'"number"') for file in journals)

    def suffer(self, names: list[str]) -> int:
        """Start the sweep, and kill these victims in turn while trials end; return the exit code."""
        child, began = self.start(), time.monotonic()
        for name in names:
            before = self.lines
            watched(lambda before=before: self.lines > before or child.poll() is not None, 120)  # type: ignore[misc]
            time.sleep(self.dice.uniform(0, 2))
            if child.poll() is not None:
                break
            said = self.victims[name]()
            print(f"  {time.monotonic() - began:5.1f} s: {name}: {said or 'done'}", flush=True)
        child.wait()
        print(f"  exit code {child.returncode} after {time.monotonic() - began:.0f} s", flush=True)
        return child.returncode

    def interrupt(self) -> None:
        if self.child:
            self.child.send_signal(signal.SIGINT)

    def wrong(self) -> list[str]:
        """Return the trials that are lost, RUNNING, there twice, or different from their log."""
        tracker = opened_tracker(self.folder / "outputs", self.uri)
        runs = tracker.runs("kills", {"harness.verb": "run"})
        counts = Counter(run.status for run in runs)
        print(f"{len(runs)} runs of trials: {', '.join(f'{count} {status}' for status, count in counts.items())}")
        done = [run for run in runs if run.status == "FINISHED"]
        keys = {run.tags["trial_key"] for run in done}
        found = [f"{counts['RUNNING']} RUNNING"] * bool(counts["RUNNING"])
        if not len(keys) == len(done) == self.trials:
            found.append(f"{len(done)} FINISHED, {len(keys)} of them different")
        with tempfile.TemporaryDirectory() as folder:
            for run in done:
                names = json.loads(run.tags.get(file_hashes.FILE_HASHES, "{}"))
                found += [] if names else [f"{run.name} has no files"]
                for name in names:
                    fetch = partial(tracker.download, run, name, Path(folder) / run.run_id)
                    try:
                        file_hashes.fetch_verified(run, name, fetch)
                    except BadInput as error:
                        found.append(str(error))
        return found

    def rounds(self, kills: int, starts: int) -> int:
        """Start the sweep with kills in turn, interrupt it once, let it finish undisturbed; check its trials."""
        names = [name for name in self.victims if name != "interrupt"]
        for number in range(starts):
            print(f"start {number + 1}:")
            turn = [names[(number * kills + place) % len(names)] for place in range(kills)]
            if self.suffer([*turn, *["interrupt"] * (number == 0)]) == 0:
                break
        if self.uri:
            words = ["doctor", "sync", f"outputs={self.folder / 'outputs'}", f"tracking.uri={self.uri}"]
            done = subprocess.run([*HARNESS, *words], capture_output=True, text=True, cwd=self.folder)
            print(f"doctor sync: exit code {done.returncode}: {done.stdout}{done.stderr}")
        print("the same command, undisturbed:")
        code = self.suffer([])
        wrong = [*[f"exit code {code}"] * bool(code), *self.wrong()]
        print("\n".join(wrong[:20]) if wrong else f"{self.trials} trials FINISHED once, their files as logged.")
        print((self.folder / "log").read_text()[-3000:] if wrong else "")
        return int(bool(wrong))


def sweeps(
    launcher: Literal["joblib", "slurm"] = "joblib",
    *,
    trials: int = 200,
    kills: int = 3,
    starts: int = 3,
    pause: float = 30.0,
    seed: int = 0,
    uri: str | None = None,
) -> int:
    """Kill workers, jobs and servers at random while a sweep runs; every trial must be FINISHED once, none RUNNING.

    Each of --starts starts suffers up to --kills kills, in turn; Ctrl-C also interrupts the first. The last start is
    undisturbed and must end with 0. The files of all trials must then be as they were logged.

    joblib: 8 workers log into an MLflow server. `kill -9` hits a worker, or the server is away for --pause seconds,
        longer than requests are repeated. --uri: of another server, such as one over PostgreSQL and S3 (default: one
        over SQLite is started)
    slurm: jobs of 25 trials on two nodes of an imitation of SLURM (see `slurm_here`). `kill -9` hits a worker,
        `scancel` an element of the array, a node dies with all that runs on it, or the controller is away
    """
    dice = random.Random(seed)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background commands ignore it
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        os.environ.pop("MLFLOW_TRACKING_URI", None)
        if launcher == "slurm":
            _slurm(folder / "slurm")
            os.environ["PATH"] = f"{folder / 'slurm' / 'bin'}:{os.environ['PATH']}"
            words = ["hydra/launcher=submitit_slurm", "hydra.launcher.timeout_min=20", "trials_per_job=25"]
            sweep = Sweep(folder, words, trials, dice)
            kinds = (_slurm_worker, _slurm_element, _slurm_node, _slurm_controller)
            sweep.victims = {kind.__name__[7:]: partial(kind, folder / "slurm", dice) for kind in kinds}
        else:
            proxy = stack.enter_context(proxied(folder / "server", uri))
            words = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=8", "trials_per_job=10"]
            sweep = Sweep(folder, words, trials, dice, proxy.address)
            sweep.victims = {"worker": lambda: _joblib_worker(sweep), "server": lambda: proxy.be_away(pause)}
        sweep.victims |= {"interrupt": sweep.interrupt}
        return sweep.rounds(kills, starts)


def _joblib_worker(sweep: Sweep) -> str:
    assert sweep.child
    workers = [one for one in family(sweep.child.pid) if b"loky" in Path(f"/proc/{one}/cmdline").read_bytes()]
    if not workers:
        return "there is none"
    os.kill(victim := sweep.dice.choice(workers), signal.SIGKILL)
    return f"kill -9 of {victim}"


# An imitation of SLURM: see slurm.sh

HERE = Path(tempfile.gettempdir()) / "slurm_here"


def _slurm(folder: Path) -> None:
    for name in ("bin", "scripts", "queue", "taken"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name in ("sbatch", "squeue", "sacct", "scancel", "srun"):
        shutil.copy(Path(__file__).with_name("slurm.sh"), folder / "bin" / name)


def slurm_here(folder: Path = HERE) -> None:
    """Imitate a SLURM of two nodes without accounts on this machine, to try sweeps on.

    eval "$(python scripts/faults.py slurm_here)"     # sbatch, squeue, sacct, scancel and srun, for `harness sweep`
    """
    _slurm(folder)
    print(f"export PATH={folder / 'bin'}:$PATH")


def _elements(folder: Path) -> dict[str, int]:
    running = [file.name for file in (folder / "queue").iterdir() if file.read_text().startswith("RUNNING")]
    return {one: int((folder / "taken" / one / "pid").read_text()) for one in running}


def _slurm_worker(folder: Path, dice: random.Random) -> str:
    elements = _elements(folder)
    if elements:
        os.killpg(elements[victim := dice.choice(sorted(elements))], signal.SIGKILL)
    return f"kill -9 of what runs {victim}" if elements else "there is none"


def _slurm_element(folder: Path, dice: random.Random) -> str:
    waiting = [file.name for file in (folder / "queue").iterdir() if "PENDING" in file.read_text()]
    subprocess.run(["scancel", element := dice.choice(sorted([*_elements(folder), *waiting]) or ["none"])])
    return f"scancel {element}"


def _slurm_node(folder: Path, dice: random.Random) -> str:
    node = dice.choice(["n1", "n2"])
    for element, pid in _elements(folder).items():
        if node in (file := folder / "queue" / element).read_text():
            file.write_text(f"NODE_FAIL|{node}|None\n")
            os.killpg(pid, signal.SIGKILL)
    return f"{node} died"


def _slurm_controller(folder: Path, _: random.Random) -> None:
    (folder / "down").touch()
    time.sleep(20)
    (folder / "down").unlink()


# The cache in a bucket

WORKERS, MACHINES = 8, 4


def store(*, times: int = 3) -> None:
    """Let 8 processes of 4 "machines" need the same entry of a cache in a bucket; then kill the one that builds.

    One process must build the entry, and all must get it. If the builder is killed, one of the others must build it.
    "Machines" are processes with local copies; the bucket is moto's on this machine.
    """
    import buckets

    spawn, url = multiprocessing.get_context("spawn"), f"s3://{buckets.BUCKET}/store"
    with tempfile.TemporaryDirectory() as name, buckets.serving() as address:
        os.environ |= buckets.ENVIRONMENT | {"AWS_ENDPOINT_URL": address}
        for number in range(2 * times):
            kill, log = bool(number % 2), Path(name) / f"log{number}"
            log.touch()
            jobs = [(url, Path(name) / f"machine{one % MACHINES}", log) for one in range(WORKERS)]
            processes = [spawn.Process(target=need, args=job) for job in jobs]
            for process in processes:
                process.start()
            if kill:
                watched(log.read_text, 600)
                os.kill(int(log.read_text()), signal.SIGKILL)
            began = time.monotonic()
            for process in processes:
                process.join()
            ended = sorted(process.exitcode or 0 for process in processes), len(log.read_text().split())
            expected = ([-signal.SIGKILL] + [0] * (WORKERS - 1), 2) if kill else ([0] * WORKERS, 1)
            assert ended == expected, ended
            about = "the builder killed, another one built" if kill else "one built"
            print(f"{about}: {time.monotonic() - began:.1f} s", flush=True)


def need(url: str, machine: Path, log: Path) -> None:
    """Need an entry that takes three seconds to build. Each builder adds a line to the log."""
    from harness.storage.cache import LOCAL, open_cache

    os.environ[LOCAL] = str(machine)

    def build(into: Path) -> None:
        with log.open("a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(3.0)
        np.save(into / "data.npy", np.arange(10))

    assert np.load(open_cache(url).folder("raced", {"log": str(log)}, build) / "data.npy").sum() == 45
