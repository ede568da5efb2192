"""Kill nodes, workers or the command itself while a Ray cluster encodes, indexes and searches, and compare rankings.

    python scripts/kill_nodes.py                                  # ten nodes in each of encode, index and search
    python scripts/kill_nodes.py --victim worker --kills 3        # kill -9 of one worker process
    python scripts/kill_nodes.py --victim command --kills 3       # kill -9 of the command, then the same command again

The cluster has four nodes of one core, simulated on this machine; the documents are generated. Each time the store is
new, and the victim dies when as many shards as are drawn have been finished in the stage, and others are being worked
on. Then, for each kill:

- same: whether every document and every bit of every score is as in one process without a cluster, which has one core
  as each worker has: libraries that multiply matrices round otherwise with another number of threads;
- twice: entries that were finished when the victim died and were written again; none may be;
- next: seconds until the next entry was finished in the store; end: until the command had ended.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

os.environ.update(dict.fromkeys(("HARNESS_CORES", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

from one_ranking import one_ranking, rows, saved
from simulated_nodes import Nodes

HERE = Path(__file__).resolve().parent
NODES, LOOK = 4, 0.02  # nodes; seconds between two looks at the store


@dataclass(frozen=True)
class Stage:
    """A stage: which entries it writes, of how many documents a shard, and the retriever that is asked for."""

    kind: str
    documents: int
    shard: int
    words: tuple[str, ...]


BM25 = ("retriever=bm25", "tokenizer=whitespace")
STAGES = {
    "encode": Stage("embeddings", 1_000, 100, ("retriever=dense", "encoder=use_multilingual")),
    "index": Stage("indexes", 40_000, 4_000, BM25),
    "search": Stage("rankings", 40_000, 4_000, BM25),
}


def finished(store: Path) -> dict[str, tuple[int, int]]:
    """Entry -> (number of its folder on the disk, time of its oldest file), of all that are finished."""
    found = {}
    for manifest in store.glob("*/*/manifest.json"):
        with contextlib.suppress(OSError):  # just now renamed
            files = [one for one in manifest.parent.iterdir() if one.name != manifest.name]
            if not manifest.parent.name.endswith(".unfinished"):
                written = min((one.stat().st_mtime_ns for one in files), default=0)
                found[str(manifest.parent)] = (manifest.parent.stat().st_ino, written)
    return found


class Killer(threading.Thread):
    """Kills once a stage has finished some entries.

    after: how many, beside those of the corpus as a whole. kill: does it.
    """

    def __init__(self, store: Path, kind: str, after: int, kill: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self.store, self.kind, self.after, self.kill = store, kind, after, kill
        self.before: dict[str, tuple[int, int]] = {}
        self.killed = self.next = 0.0
        self.over = False

    def run(self) -> None:
        while not self.over and sum(f"/{self.kind}/" in one for one in finished(self.store)) < self.after:
            time.sleep(LOOK)
        if self.over:
            return
        self.before = finished(self.store)
        self.kill()
        self.killed = time.monotonic()
        while not self.over and not finished(self.store).keys() - self.before.keys():
            time.sleep(LOOK)
        self.next = time.monotonic()


def corpus(folder: Path, documents: int) -> list[str]:
    """Overrides for a generated data set."""
    place = folder / str(documents)
    if not place.exists():
        make = [sys.executable, str(HERE / "generate_corpus.py"), str(place), f"--documents={documents}"]
        subprocess.run([*make, "--queries=100"], check=True, stdout=subprocess.DEVNULL)
    return ["dataset=beir", f"dataset.path={place}", "tracking=none", f"outputs={folder}"]


def in_a_process(words: list[str], output: Path, killer: Killer, pid: list[int]) -> None:
    """The command in a process of its own, and again if it dies."""
    while not output.exists():
        command = [sys.executable, str(HERE / "one_ranking.py"), str(output), *words]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            pid[:] = [process.pid]
        if process.returncode not in (0, -signal.SIGKILL):
            raise SystemExit(f"the command ended with {process.returncode}: {' '.join(command)}")
    killer.over = True


def strike(nodes: Nodes, victim: str, pid: list[int]) -> None:
    """Kill one of the nodes, workers or the command."""
    if victim == "command":
        os.kill(pid[0], signal.SIGKILL)
        return
    number = random.randrange(nodes.count)
    if victim == "node":
        nodes.kill(number)
        return
    workers = [one for one in nodes.pids(number) if b"ray::Worker" in Path(f"/proc/{one}/cmdline").read_bytes()]
    for one in workers[:1]:
        os.kill(one, signal.SIGKILL)


def once(folder: Path, stage: Stage, nodes: Nodes, victim: str, expected: object) -> None:
    """One kill, and a line about it."""
    store, pid, output = folder / "store", list[int](), folder / "rows.json"
    shutil.rmtree(store, ignore_errors=True)
    output.unlink(missing_ok=True)
    words = [*corpus(folder, stage.documents), *stage.words, "cluster=ray", f"cluster.shard={stage.shard}"]
    words += [f"store.path={store}", f"cluster.runtime.address={nodes.address}"]
    after = random.randint(1, max(1, stage.documents // stage.shard // 2))
    killer = Killer(store, stage.kind, after, lambda: strike(nodes, victim, pid))
    killer.start()
    if victim == "command":
        in_a_process(words, output, killer, pid)
        found = saved(output)
    else:
        found = rows(one_ranking(words).ranking)
        killer.over = True
    ended = time.monotonic()
    killer.join()
    now = finished(store)
    twice = [entry for entry, about in killer.before.items() if now.get(entry) != about]
    line = f"after {after:2} {stage.kind}: same {found == expected}, finished before {len(killer.before)}, twice"
    print(
        f"{line} {len(twice)}, next {killer.next - killer.killed:.1f} s, end {ended - killer.killed:.1f} s", flush=True
    )
    if found != expected or twice or not killer.killed:
        raise SystemExit(f"not the same, written twice, or nothing killed: {twice}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("stages", nargs="*", default=list(STAGES), help="encode, index, search; default: all")
    options.add_argument("--victim", choices=("node", "worker", "command"), default="node")
    options.add_argument("--kills", type=int, default=10, help="in each stage")
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    random.seed(given.seed)
    with tempfile.TemporaryDirectory() as name, Nodes(NODES) as nodes:
        folder = Path(name)
        for stage in [STAGES[one] for one in given.stages]:
            local = [*corpus(folder, stage.documents), *stage.words, f"cluster.shard={stage.shard}"]
            expected = rows(one_ranking([*local, f"store.path={folder / 'local'}"]).ranking)
            print(f"{stage.kind}: {stage.documents:,} documents in shards of {stage.shard:,}", flush=True)
            for _ in range(given.kills):
                once(folder, stage, nodes, given.victim, expected)
                nodes.repair()


if __name__ == "__main__":
    main()
