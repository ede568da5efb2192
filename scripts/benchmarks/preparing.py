"""Preparing documents: speed and memory."""

from __future__ import annotations

import random
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from measuring import Table, apart

SYLLABLES = (
    "가나다라마바사아자차카타파하거너더러머버서어저처고노도로모보소오조초구누두루무부수우주추기니디리미비시이지치"
)
PARTICLES = ["은", "는", "이", "가", "을", "를", "에서", "의", "와", "으로", "도", "만", "까지"]
SENTENCE_ENDS = ("한다.", "하였다.", "있다.", "이다.", "밝혔다.", "된다.", "보았는가?", "늘었다!")
FILE, KIWI = 10_000_000, 300_000  # bytes of a generated file, and of what kiwi is timed on


def prepare(mb: float = 100, folder: Path | None = None) -> None:
    """Time `harness prepare` on generated Korean and English text, beside plain reading, and measure its memory.

    MB of text lie in files of 10 MB in FOLDER (default: a temporary one): sentences of random words from a vocabulary
    of 40,000, six in ten Korean. Each measurement is a process of its own; the kinds take turns, and the best counts.
    Plain reading decodes the files and counts their characters; `chunks` is everything but the search for
    near-duplicates; `prepare` is all of it. kiwi is timed on 0.3 MB, once its model is loaded. A processor's time
    counts all threads: on a busy machine, it says more than the clock.
    """
    table = Table("work", "MB", "MB/s", "MB per second of processor", "memory, MB")
    with tempfile.TemporaryDirectory(dir=folder) as name:
        size = _write_texts(Path(name) / "text", int(mb * 1e6))
        small = _write_texts(Path(name) / "small", min(KIWI, size))
        found: dict[str, list[list[float]]] = {}
        for _ in range(2 if mb <= 200 else 1):
            for kind in ("read", "chunks", "prepare"):
                found.setdefault(kind, []).append(apart(prepared, kind, f"{name}/text", f"{name}/out"))
        for kind in ("kiwi sentences", "kiwi morphemes"):
            found[kind] = [apart(prepared, kind, f"{name}/small", f"{name}/out")]
        for kind, measured in found.items():
            clock, processor = (min(one[at] for one in measured) for at in (0, 1))
            written = small if kind.startswith("kiwi") else size
            rates = (written / clock / 1e6, written / processor / 1e6)
            table.row(kind, f"{written / 1e6:.1f}", *rates, max(one[2] for one in measured))


def prepared(kind: str, folder: str, out: str) -> list[float]:
    """Return seconds of the clock and of the processor, and the peak of memory in MB, of one kind of work."""
    from harness.corpus import near_duplicates, preparation
    from harness.corpus.chunking import Chunking
    from harness.corpus.files import find_files

    shutil.rmtree(out, ignore_errors=True)
    files = find_files(f"{folder}/*.txt")
    options: dict[str, Any] = {
        "kiwi sentences": {"splitter": "kiwi"},
        "kiwi morphemes": {"unit": "morphemes", "size": 100, "overlap": 20},
    }.get(kind, {})
    if options:
        Chunking(**options).spans("한 문장이다.")  # loads kiwi
    began, used = time.perf_counter(), time.process_time()
    if kind == "read":
        sum(len(one.path.read_text("utf-8")) for one in files)
    elif kind == "prepare":
        preparation.prepare_documents(files, Chunking(), Path(out))
    else:
        with mock.patch.object(near_duplicates, "find_near_duplicates", return_value=[]):
            preparation.prepare_documents(files, Chunking(**options), Path(out))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    return [time.perf_counter() - began, time.process_time() - used, peak]


def _write_texts(folder: Path, size: int) -> int:
    """Write files of about `size` bytes in all; return their number of bytes."""
    written = 0
    folder.mkdir()
    while written < size:
        generator, parts, left = random.Random(written), list[str](), min(FILE, size - written)
        for sentence in _sentences(generator):
            parts.append(sentence + ("\n\n" if generator.random() < 0.15 else " "))
            left -= len(parts[-1].encode())
            if left <= 0:
                break
        file = folder / f"{written // FILE:05}.txt"
        file.write_text("".join(parts), "utf-8")
        written += file.stat().st_size
    return written


def _sentences(rng: random.Random) -> Iterator[str]:
    """Yield sentences of new random words without end."""
    korean = ["".join(rng.choices(SYLLABLES, k=rng.randint(2, 4))) + rng.choice(PARTICLES) for _ in range(20_000)]
    english = ["".join(rng.choices("etaoinshrdlucmfw", k=rng.randint(2, 9))) for _ in range(20_000)]
    while True:
        if rng.random() < 0.6:
            words = [
                *rng.choices(korean, k=rng.randint(4, 14)),
                f"{rng.randint(1, 9999):,}개",
                rng.choice(SENTENCE_ENDS),
            ]
        else:
            words = [*rng.choices(english, k=rng.randint(6, 20)), f"{rng.choice(english)}."]
        yield " ".join(words)
