"""Kill who fills Milvus, or Milvus itself, at random moments; run the same command again, and check what it finds.

    python scripts/kill_milvus.py clients --times 20     # kill -9 of `harness run index=milvus`; half a minute each
    python scripts/kill_milvus.py servers --times 10     # kill -9 of the server under a run, which is started again
    python scripts/kill_milvus.py races --times 5        # two runs at once, which build the same collection

A run indexes and searches generated documents, on a cache that has their vectors. It is disturbed at a random moment
after its collection appears. Then: a collection with a finished name has all rows; what is half-filled has an
unfinished name; a run whose server died says so and ends with code 1, without a traceback; the same command finishes,
with the scores of `index=flat`. Each case is drawn from --seed and its number. The exit code is 1 if one went wrong.
The server is started as by milvus_server.py, in a network namespace.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milvus_server import PLACE, URI, Server, bring_up_loopback, isolated, serving

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from retrievers.engines.milvus import Milvus, connect, is_finished, is_unfinished

HERE = Path(__file__).resolve().parent
HARNESS = [sys.executable, "-c", "import sys; from harness.cli import main; sys.exit(main())"]
DIMENSIONS = 64
WITHIN = 900  # seconds in which a run must end


@dataclass
class Campaign:
    """Runs on one data set and one server. rows: documents. length: seconds from the first row to the result."""

    folder: Path
    server: Server
    rows: int
    length: float = 0.0
    expected: Any = None

    def prepare(self) -> None:
        """Generate the documents, encode them, and see what an undisturbed run finds and how long it takes."""
        words = ["--documents", str(self.rows), "--queries", "400"]
        subprocess.run(
            [sys.executable, HERE / "generate_corpus.py", self.folder / "data", *words], check=True, capture_output=True
        )
        self.expected = self.result(self.start("flat", self.folder / "encoded"))
        run = self.start("milvus", self.fresh("first"))
        self.wait_for_collection(run)
        began = time.monotonic()
        assert self.result(run) == self.expected, "index=milvus and index=flat differ"
        self.length = time.monotonic() - began
        self.clear()

    def fresh(self, name: str) -> Path:
        """A cache that has the vectors, and no index of Milvus."""
        store = self.folder / name
        shutil.rmtree(store, ignore_errors=True)
        shutil.copytree(self.folder / "encoded", store)
        return store

    def start(self, index: str, store: Path) -> subprocess.Popen[str]:
        words = [
            "run", "dataset=beir", f"dataset.path={self.folder / 'data'}", "retriever=dense", "encoder=lsa",
            f"encoder.dimensions={DIMENSIONS}", f"index={index}", "tokenizer=whitespace", f"store.path={store}",
            f"outputs={self.folder / 'outputs'}", "tracking=none", "format=json",
        ]  # fmt: skip
        return subprocess.Popen(
            [*HARNESS, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def result(self, run: subprocess.Popen[str]) -> Any:
        """The scores of a run that must succeed."""
        out, err = run.communicate(timeout=WITHIN)
        if run.returncode:
            raise AssertionError(f"exit code {run.returncode}: {err[-2000:]}")
        return json.loads(out)["metrics"]

    def wait_for_collection(self, run: subprocess.Popen[str]) -> None:
        while run.poll() is None and not connect().collections():
            time.sleep(0.02)

    def clear(self) -> None:
        for name in connect().collections():
            connect().drop(name)

    def check_collections(self) -> str:
        """Counts of finished and unfinished collections; AssertionError for a finished one that lacks rows."""
        engine, names = connect(), connect().collections()
        for name in filter(is_finished, names):
            assert _count(engine, name) == self.rows, f"{name} is finished and has {_count(engine, name)} rows"
        return f"{sum(map(is_finished, names))} finished, {sum(map(is_unfinished, names))} unfinished"


def _count(engine: Milvus, name: str) -> int:
    with engine.doing("loading"):
        engine.client.load_collection(name, timeout=300)
    return engine.count(name)


def kill_client(campaign: Campaign, draw: random.Random) -> str:
    store, delay = campaign.fresh("case"), draw.uniform(0, campaign.length)
    run = campaign.start("milvus", store)
    campaign.wait_for_collection(run)
    time.sleep(delay)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    left = campaign.check_collections()
    assert campaign.result(campaign.start("milvus", store)) == campaign.expected, "other scores afterwards"
    return f"killed after {delay:.1f} s: {left}; then {campaign.check_collections()}"


def kill_server(campaign: Campaign, draw: random.Random) -> str:
    store, delay = campaign.fresh("case"), draw.uniform(0, campaign.length)
    run = campaign.start("milvus", store)
    campaign.wait_for_collection(run)
    time.sleep(delay)
    campaign.server.kill()
    _, err = run.communicate(timeout=WITHIN)
    assert "Traceback" not in err, err[-2000:]
    assert run.returncode == 0 or (run.returncode == 1 and "Milvus" in err), f"{run.returncode}: {err[-2000:]}"
    said = "finished before" if run.returncode == 0 else err.strip().splitlines()[-1][:110]
    took = campaign.server.start()
    left = campaign.check_collections()
    assert campaign.result(campaign.start("milvus", store)) == campaign.expected, "other scores afterwards"
    return f"killed after {delay:.1f} s ({said}), back in {took:.0f} s: {left}; then {campaign.check_collections()}"


def race(campaign: Campaign, draw: random.Random) -> str:
    runs = []
    for name in ("one", "other"):
        runs.append(campaign.start("milvus", campaign.fresh(name)))
        time.sleep(draw.uniform(0, 2))
    for run in runs:
        assert campaign.result(run) == campaign.expected, "other scores"
    counts = campaign.check_collections()
    assert counts == "1 finished, 0 unfinished", counts
    return counts


CASES: dict[str, Callable[[Campaign, random.Random], str]] = {
    "clients": kill_client,
    "servers": kill_server,
    "races": race,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=CASES)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--rows", type=int, default=20_000, help="documents")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--place", type=Path, default=PLACE, help="virtual environment of the server")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.inside:
        return isolated(Path(__file__), sys.argv[1:], args.place)
    bring_up_loopback()
    os.environ["HARNESS_MILVUS_URI"] = URI
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="kill-milvus-") as folder, serving(None, args.place) as server:
        campaign = Campaign(Path(folder), server, args.rows)
        campaign.prepare()
        print(f"undisturbed: {campaign.length:.1f} s from the first row to the result", flush=True)
        for number in range(args.first, args.first + args.times):
            try:
                said = CASES[args.what](campaign, random.Random(f"{args.seed} {args.what} {number}"))
            except AssertionError as error:
                wrong, said = wrong + 1, f"WRONG: {error}"
            print(f"{args.what} {number}: {said}", flush=True)
            campaign.clear()
    print(f"{args.times - wrong} of {args.times} went right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
