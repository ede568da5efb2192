"""Time `harness prepare` on generated Korean and English text, beside plain reading, and take its memory.

    python scripts/benchmark_prepare.py [MB] [FOLDER]     # default 100 MB, in a temporary folder

The text is in files of 10 MB: sentences of random words from a vocabulary of 40,000, so that hardly any repeat; six in
ten are Korean. Each measurement is a process of its own, whose time is that of the work alone and whose memory is its
peak, with interpreter and libraries; the three kinds take turns. Plain reading decodes the files and counts their
characters. `chunks` is everything but the search for near-duplicates; `prepare` is all of it. kiwi's sentences and
morphemes are timed on a small share of the text, once the model is loaded. Processor time counts all threads: on a busy
machine, it says more than the clock.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

FILE = 10_000_000  # bytes
TURNS = 2
KIWI = 300_000  # bytes
SYLLABLES = (
    "가나다라마바사아자차카타파하거너더러머버서어저처고노도로모보소오조초구누두루무부수우주추기니디리미비시이지치"
)
PARTICLES = ("은", "는", "이", "가", "을", "를", "에서", "의", "와", "으로", "도", "만", "까지")
ENDINGS = ("한다.", "하였다.", "있다.", "이다.", "밝혔다.", "된다.", "보았는가?", "늘었다!")

WORK = """
import json, resource, sys, time
from pathlib import Path
from unittest import mock
kind, folder, out = sys.argv[1], sys.argv[2], Path(sys.argv[3])
from harness.corpus import near_duplicates, preparation
from harness.corpus.chunking import Chunking
from harness.corpus.files import find_files
files = find_files(f"{folder}/*.txt")
options = {"kiwi sentences": {"splitter": "kiwi"}, "kiwi morphemes": {"unit": "morphemes", "size": 100, "overlap": 20}}
if kind in options:
    Chunking(**options[kind]).spans("한 문장이다.")  # loads kiwi
began, used = time.perf_counter(), time.process_time()
if kind == "read":
    sum(len(one.path.read_text("utf-8")) for one in files)
elif kind == "prepare":
    preparation.prepare(files, Chunking(), out)
else:
    with mock.patch.object(near_duplicates, "find", return_value=[]):
        preparation.prepare(files, Chunking(**options.get(kind, {})), out)
seconds = time.perf_counter() - began, time.process_time() - used
print(json.dumps([*seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6]))
"""


def sentences(rng: random.Random) -> list[str]:
    """100,000 of them, each of new random words."""
    korean = ["".join(rng.choices(SYLLABLES, k=rng.randint(2, 4))) + rng.choice(PARTICLES) for _ in range(20_000)]
    english = ["".join(rng.choices("etaoinshrdlucmfw", k=rng.randint(2, 9))) for _ in range(20_000)]
    found = []
    for _ in range(100_000):
        if rng.random() < 0.6:
            words = [*rng.choices(korean, k=rng.randint(4, 14)), f"{rng.randint(1, 9999):,}개", rng.choice(ENDINGS)]
        else:
            words = [*rng.choices(english, k=rng.randint(6, 20)), f"{rng.choice(english)}."]
        found.append(" ".join(words))
    return found


def make(folder: Path, size: int) -> int:
    """Write files of about `size` bytes in all; their number of bytes."""
    written = 0
    folder.mkdir()
    while written < size:
        rng = random.Random(written)
        left, parts = min(FILE, size - written), []
        while left > 0:
            for sentence in sentences(rng):
                parts.append(sentence + ("\n\n" if rng.random() < 0.15 else " "))
                left -= len(parts[-1].encode())
                if left <= 0:
                    break
        file = folder / f"{written // FILE:05}.txt"
        file.write_text("".join(parts), "utf-8")
        written += file.stat().st_size
    return written


@dataclass(frozen=True)
class Measured:
    """Seconds of the clock and of the processor, and the peak of memory in MB."""

    seconds: float
    processor: float
    memory: float

    def best(self, other: Measured) -> Measured:
        """The least times, and the greatest memory."""
        seconds, processor = min(self.seconds, other.seconds), min(self.processor, other.processor)
        return Measured(seconds, processor, max(self.memory, other.memory))

    def row(self, kind: str, size: int) -> str:
        """size: bytes of the text."""
        rates = f"{size / self.seconds / 1e6:8.2f} MB/s {size / self.processor / 1e6:8.2f} MB per second of processor"
        return f"{kind:<15} {rates} {self.memory:6,.0f} MB of memory"


def measured(kind: str, folder: Path, out: Path) -> Measured:
    """One kind of work in a process of its own."""
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-c", WORK, kind, str(folder), str(out)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Measured(*json.loads(done.stdout))


def main(size: int, folder: Path) -> None:
    began = time.perf_counter()
    written = make(folder / "text", size)
    print(f"{written / 1e6:,.0f} MB of text, made in {time.perf_counter() - began:.0f} s", flush=True)
    best: dict[str, Measured] = {}
    for _ in range(TURNS if size <= 200e6 else 1):
        for kind in ("read", "chunks", "prepare"):
            found = measured(kind, folder / "text", folder / "out")
            best[kind] = found.best(best.get(kind, found))
    for kind, found in best.items():
        print(found.row(kind, written))
    small = make(folder / "small", KIWI)
    for kind in ("kiwi sentences", "kiwi morphemes"):
        print(measured(kind, folder / "small", folder / "out").row(kind, small), f" (on {small / 1e6:.1f} MB)")


if __name__ == "__main__":
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as name:
        main(megabytes * 1_000_000, Path(name))
