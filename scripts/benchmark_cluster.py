"""Shards on the nodes of a Ray cluster against one index on this machine, on generated documents.

    python scripts/benchmark_cluster.py                                   # BM25: 1,000,000 documents, 125,000 a shard
    python scripts/benchmark_cluster.py --documents 100000 --shard 12500  # from how many documents does it pay?
    python scripts/benchmark_cluster.py dense --documents 5000000 --shard 100000 --ways 4 --gigabytes 1.5

Ways: `whole` (cluster=local), `local` (cluster=local in shards), and 1, 2, 4 nodes of one core each, all of them
simulated on this machine: they share its cores, its disk and its memory, so that times say what sharing costs, and not
what more machines bring. Each way has a store of its own, which is removed afterwards.

Printed of each: seconds to read (documents into the store), index and search; `start`: of the cluster and its workers,
before that; the largest memory of a worker in MB, with the pages of files that it maps (`peak`) and its own (`anon`,
sampled); and whether every document and score is equal to the first way's. benchmark_shards.py says what merging costs.

dense: vectors are made of a hash of each text (the plug-in scripts/hash_vectors), 384 numbers each: encoding costs
nothing here, all else is as with any encoder. --gigabytes limits what each process of a node may have of its own.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from one_ranking import one_ranking, rows
from simulated_nodes import Nodes

from harness.cluster import ray_cluster
from harness.cluster.cluster import Work
from harness.cluster.ray_cluster import RayCluster

HERE = Path(__file__).resolve().parent
WORDS = {
    "bm25": ["retriever=bm25", "tokenizer=whitespace"],
    "dense": ["retriever=dense", "encoder=hash_vectors", "index=flat"],
}
COLUMNS = ("way", "start", "read", "index", "search", "peak MB", "anon MB", "equal")


def install_plugin(folder: Path) -> None:
    """Make scripts/hash_vectors an installed plug-in of this process and of those that it starts."""
    about = folder / "hash_vectors-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: hash-vectors\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[retrieval_harness.components]\nhash_vectors = hash_vectors\n")
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), str(HERE), os.environ.get("PYTHONPATH", "")])


class Memory(threading.Thread):
    """The largest memory of any worker while it is watched, in bytes. anonymous: without the pages of files."""

    def __init__(self, nodes: Nodes) -> None:
        super().__init__(daemon=True)
        self.nodes, self.peak, self.anonymous, self.over = nodes, 0, 0, False

    def run(self) -> None:
        while not self.over:
            for pid in [pid for number in range(self.nodes.count) for pid in self.nodes.pids(number)]:
                self._look(pid)
            time.sleep(0.2)

    def _look(self, pid: int) -> None:
        try:
            if b"ray::" in Path(f"/proc/{pid}/cmdline").read_bytes():
                lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
                sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.endswith(" kB")}
                self.peak = max(self.peak, sizes.get("VmHWM", 0))
                self.anonymous = max(self.anonymous, sizes.get("RssAnon", 0))
        except (OSError, ValueError):  # it has ended
            return


def one_way(way: str, words: list[str], shard: int, folder: Path, gigabytes: float | None) -> tuple[list[Any], Any]:
    """The values of a table's row, and the ranking."""
    store, start, memory = folder / "store", 0.0, None
    words = [*words, f"store.path={store}"]
    with ExitStack() as stack:
        if way.isdigit():
            limit = int(gigabytes * 1e9) if gigabytes else None
            nodes = stack.enter_context(Nodes(int(way), memory=limit))
            began = time.perf_counter()
            jobs = list(range(int(way)))
            RayCluster(shard, nodes.address).run(Work(abs, jobs, jobs, store=str(store)))
            ray_cluster.dismiss()
            start = time.perf_counter() - began
            words += ["cluster=ray", f"cluster.runtime.address={nodes.address}"]
            memory = Memory(nodes)
            memory.start()
        if way != "whole":
            words += [f"cluster.shard={shard}"]
        timed = one_ranking(words)
        if memory:
            memory.over = True
    found = rows(timed.ranking)
    shutil.rmtree(store)
    used = (memory.peak / 1e6, memory.anonymous / 1e6) if memory else (0.0, 0.0)
    return [way, start, *(timed.seconds.get(one, 0.0) for one in ("read", "index", "search")), *used], found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("retriever", nargs="?", choices=[*WORDS], default="bm25")
    options.add_argument("--documents", type=int, default=1_000_000)
    options.add_argument("--shard", type=int, default=125_000)
    options.add_argument("--queries", type=int, default=200)
    options.add_argument("--words", type=int, default=60, help="of a document")
    options.add_argument("--ways", nargs="+", default=["whole", "local", "1", "2", "4"])
    options.add_argument("--gigabytes", type=float, help="of memory of its own for each process of a node")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        install_plugin(folder / "site")
        make = [sys.executable, str(HERE / "generate_corpus.py"), str(folder / "data"), f"--words={given.words}"]
        subprocess.run([*make, f"--documents={given.documents}", f"--queries={given.queries}"], check=True)
        words = ["dataset=beir", f"dataset.path={folder / 'data'}", "tracking=none", f"outputs={folder}"]
        print(f"{given.retriever}, {given.documents:,} documents in shards of {given.shard:,}")
        print(" ".join(f"{one:>8}" for one in COLUMNS), flush=True)
        first = None
        for way in given.ways:
            row, found = one_way(way, [*words, *WORDS[given.retriever]], given.shard, folder, given.gigabytes)
            first = first if first is not None else found
            values = [f"{one:8.1f}" if isinstance(one, float) else f"{one:>8}" for one in [*row, str(found == first)]]
            print(" ".join(values), flush=True)


if __name__ == "__main__":
    main()
