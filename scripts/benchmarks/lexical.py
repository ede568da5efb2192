"""BM25 against other engines; a corpus in shards, on one machine and on the nodes of a Ray cluster."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np
from generated_corpus import corpus, texts
from measuring import RATIO, ROOT, Peak, Table, apart, compared, in_turns, one_ranking, resident, rows_of, seconds

from retrievers.base import Document, Query
from retrievers.lexical.bm25 import BM25
from retrievers.lexical.tokenize import Whitespace

DOCUMENT_WORDS, QUERY_WORDS, QUERIES, DEPTH = 60, 8, 1000, 100
PASSES, PAIRS, WARM_UP = 5, 11, 200  # searches of an engine; of two in turns; documents to compile with


class Ours:
    def __init__(self, folder: Path) -> None:
        import retrievers.lexical._bm25_kernels  # noqa: F401  (imports numba before timing starts)

        self.folder = folder
        self.bm25 = BM25(lambda texts, progress=None: self.tokens, variant="okapi")  # tokens are timed separately

    def tokenise(self, documents: list[str]) -> None:
        self.documents = [Document(f"{number:09d}", text) for number, text in enumerate(documents)]
        self.tokens = Whitespace()(documents)

    def index(self) -> None:
        self.bm25.index(self.documents, self.folder)
        del self.tokens, self.documents

    def queries(self, queries: list[str]) -> Sequence[Any]:
        self.tokens = Whitespace()(queries)
        return [Query.of(str(number), text) for number, text in enumerate(queries)]

    def search(self, queries: Sequence[Any]) -> None:
        self.bm25.search(queries, DEPTH)


class RankBM25:
    def __init__(self, _: Path) -> None:
        import rank_bm25

        self.make = rank_bm25.BM25Okapi

    def tokenise(self, documents: list[str]) -> None:
        self.tokens = [text.split() for text in documents]

    def index(self) -> None:
        self.bm25 = self.make(self.tokens)
        del self.tokens

    def queries(self, queries: list[str]) -> Sequence[Any]:
        return [text.split() for text in queries[:20]]  # it is slow

    def search(self, queries: Sequence[Any]) -> None:
        for query in queries:
            scores = self.bm25.get_scores(query)
            best = np.argpartition(-scores, DEPTH)[:DEPTH]
            best[np.argsort(-scores[best])]


class BM25S:
    def __init__(self, folder: Path, backend: str) -> None:
        import bm25s

        self.library, self.folder = bm25s, folder
        self.bm25 = bm25s.BM25(method="lucene", backend=backend)
        self.threads = os.cpu_count() if backend == "numba" else 0

    def _split(self, texts: list[str]) -> Any:
        return self.library.tokenize(texts, lower=False, token_pattern=r"\S+", stopwords=[], show_progress=False)

    def tokenise(self, documents: list[str]) -> None:
        self.tokens = self._split(documents)

    def index(self) -> None:
        self.bm25.index(self.tokens, show_progress=False)
        del self.tokens
        self.bm25.save(str(self.folder))

    def queries(self, queries: list[str]) -> Any:
        return self._split(queries)

    def search(self, queries: Any) -> None:
        self.bm25.retrieve(queries, k=DEPTH, n_threads=self.threads, show_progress=False)


ENGINES: dict[str, Callable[[Path], Any]] = {
    "retrieval-harness": Ours,
    "rank_bm25": RankBM25,
    "bm25s-numpy": lambda folder: BM25S(folder, "numpy"),
    "bm25s-numba": lambda folder: BM25S(folder, "numba"),
}


def bm25(*sizes: int, engines: tuple[str, ...] = tuple(ENGINES)) -> None:
    """Compare BM25 with rank_bm25 and bm25s on generated corpora: speed, index size, memory.

    SIZES are numbers of documents (default: 5000 50000). The best 100 documents are retrieved, on all cores where the
    engine can use them. Each engine runs in its own process on the same texts, with its libraries imported before:

    - warm-up: seconds of the same work on 200 documents, done first to load or compile code
    - tokenise, index: seconds from texts to tokens, and from tokens to a searchable index
    - queries/s: the fastest of five passes, from tokens; ours includes checking the ranking
    - index MB: size on disk of the arrays that a search reads (rank_bm25 has none)
    - resident, peak MB: growth of resident memory since the warm-up, file maps included

    A second table compares ours with bm25s-numba, the fastest of the others, in alternating passes. Quote this ratio.
    """
    names = ("warm-up s", "tokenise s", "index s", "queries/s", "index MB", "resident MB", "peak MB")
    table = Table("documents", "engine", *names)
    for size in sizes or (5000, 50000):
        for name in engines:
            table.row(size, name, *apart(measured_engine, name, size))
    print()
    table = Table("documents", *(one.format("queries") for one in RATIO))
    for size in sizes or (5000, 50000):
        documents, queries = _texts(size)
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            searches = []
            for engine in (Ours(Path(one)), BM25S(Path(other), "numba")):
                engine.tokenise(documents)
                engine.index()
                tokens = engine.queries(queries)
                searches.append(lambda engine=engine, tokens=tokens: engine.search(tokens))
            table.row(size, *compared(in_turns(searches, PAIRS), QUERIES))


def _texts(size: int) -> tuple[list[str], list[str]]:
    return texts(size, DOCUMENT_WORDS, seed=1), texts(QUERIES, QUERY_WORDS, seed=2)


def measured_engine(name: str, size: int) -> list[float]:
    """Return the cells of one engine on one corpus."""
    documents, queries = _texts(size)
    with tempfile.TemporaryDirectory() as small, tempfile.TemporaryDirectory() as folder:
        warm_up = seconds(lambda: _work(ENGINES[name](Path(small)), documents[:WARM_UP], queries[:WARM_UP]))
        engine = ENGINES[name](Path(folder))
        gc.collect()
        with Peak(resident) as peak:
            spent = _work(engine, documents, queries)
        gc.collect()
        files = [file.stat().st_size for file in Path(folder).rglob("*.npy") if not file.name.startswith("doc_id")]
        return [warm_up, *spent, sum(files) / 1e6, (resident() - peak.before) / 1e6, peak.grown_mb]


def _work(engine: Any, documents: list[str], query_texts: list[str]) -> list[float]:
    """Tokenise, index and search; return the seconds of the first two, and queries/s."""
    spent = [seconds(lambda: engine.tokenise(documents)), seconds(engine.index)]
    queries = engine.queries(query_texts)
    answered = len(queries) if isinstance(queries, list) else len(query_texts)
    return [*spent, answered / min(seconds(lambda: engine.search(queries)) for _ in range(PASSES))]


def shards(*, documents: int = 1_000_000, shard: int = 50_000, turns: int = 2, queries: int = 200) -> None:
    """Compare a corpus in shards with the same corpus whole, by BM25 on the same cores, in turns.

    Each turn reads, indexes and searches generated documents both ways, each in a process of its own with an empty
    cache. The columns are seconds of reading (fingerprints included), of indexing (tokenizing included), of searching
    (the best of five), of what merging takes of that, and resident MB at the end. `whole / shards` of 0.8 means that
    shards take 1.25 times as long. Documents and scores must be equal.
    """
    table, rounds = Table("way", "read", "index", "search", "merge", "memory MB"), []
    with tempfile.TemporaryDirectory() as name:
        corpus(Path(name) / "data", documents=documents, queries=queries)
        for _ in range(turns):
            rounds.append([apart(searched_in_shards, f"{name}/data", size) for size in (None, shard)])
            for way, (cells, _) in zip(("whole", f"shards of {shard:,}"), rounds[-1], strict=True):
                table.row(way, *cells)
    for step, columns in {"read": [0], "index": [1], "search": [2], "in all": [0, 1, 2]}.items():
        ratios = [sum(whole[0][c] for c in columns) / sum(cut[0][c] for c in columns) for whole, cut in rounds]
        print(f"{step}: whole / shards {', '.join(f'{ratio:.2f}' for ratio in ratios)}")
    equal = all(found == rounds[0][0][1] for pair in rounds for _, found in pair)
    print(f"{documents:,} documents, {queries} queries; rankings equal: {equal}")


def searched_in_shards(source: str, shard: int | None) -> tuple[list[float], list[list[Any]]]:
    """Return the cells of one way, and the rows of its ranking."""
    from dataclasses import replace

    from harness.cluster.cluster import Local
    from harness.experiment import sharded, steps
    from harness.experiment.session import Clock, Session, read_dataset
    from harness.storage.cache import Cache

    tokenizer = {"_target_": "retrievers.lexical.tokenize.Whitespace"}
    node = {"_target_": "retrievers.lexical.bm25.BM25", "tokenizer": tokenizer}
    merges, plain, passes, indexing = list[float](), sharded.merge_rankings, list[float](), 0.0

    def merged(*arguments: Any) -> Any:
        merges.append(seconds(lambda: found.append(plain(*arguments))))
        return found.pop()

    found = list[Any]()
    sharded.merge_rankings = merged  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        cluster = {"_target_": "harness.cluster.cluster.Local", "shard": shard}
        data = read_dataset({"_target_": "harness.data.trec.Beir", "path": source}, cluster, folder, "generated")
        assert data.fingerprints
        reading = time.perf_counter() - began
        for number in range(PASSES + 1):
            asked = tuple(replace(query, query_id=f"{query.query_id}-{number}") for query in data.queries)
            session = Session(data, asked, Cache(Path(folder)), Clock(), timed="never", cluster=Local(shard))
            ranking = steps.retrieve({"bm25": node}, session, DEPTH)["bm25"]
            if number:
                passes.append(session.clock.seconds["index"] + session.clock.seconds["search"])
            else:  # its search compiles, too
                indexing = session.clock.seconds["index"]
        cells = [reading, indexing, min(passes), median(merges) if merges else 0.0, resident() / 1e6]
        return cells, rows_of(ranking)


def _of_workers(nodes: Any, line: str) -> int:
    """Return the largest memory of any worker of a cluster in bytes, by a line of its status."""
    found = [0]
    for pid in [pid for number in range(nodes.count) for pid in nodes.pids(number)]:
        with suppress(OSError, ValueError):  # it has ended
            if b"ray::" in Path(f"/proc/{pid}/cmdline").read_bytes():
                status = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
                found += [int(one.split()[1]) * 1024 for one in status if one.startswith(f"{line}:")]
    return max(found)


def cluster(
    retriever: Literal["bm25", "dense"] = "bm25",
    *,
    documents: int = 1_000_000,
    shard: int = 125_000,
    queries: int = 200,
    words: int = 60,
    ways: tuple[str, ...] = ("whole", "local", "1", "2", "4"),
    gigabytes: float | None = None,
) -> None:
    """Compare shards on the nodes of a Ray cluster with one index on this machine, on generated documents.

    Ways: `whole` (cluster=local), `local` (cluster=local in shards), and numbers of nodes of one core each, simulated
    on this machine: they share its cores, disk and memory, so times say what sharing costs, not what more machines
    bring. Each way has its own store. Printed: seconds to start the cluster and its workers, to read, index and search;
    the largest memory of a worker in MB, with the pages of files that it maps (peak) and without (own, sampled);
    whether every document and score equals the first way's.

    dense: vectors are made of a hash of each text (scripts/hash_vectors), so encoding costs nothing. --gigabytes
    limits what each process of a node may allocate.
    """
    chosen = {
        "bm25": ["retriever=bm25", "tokenizer=whitespace"],
        "dense": ["retriever=dense", "encoder=hash_vectors", "index=flat"],
    }[retriever]
    first = None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _install_plugin(folder / "site")
        corpus(folder / "data", documents=documents, words=words, queries=queries)
        given = ["dataset=beir", f"dataset.path={folder / 'data'}", "tracking=none", f"outputs={folder}", *chosen]
        table = Table("way", "start s", "read s", "index s", "search s", "peak MB", "own MB", "equal")
        for way in ways:
            cells, found = _one_way(way, given, shard, folder / "store", gigabytes)
            first = first or found
            table.row(way, *cells, found == first)


def _one_way(way: str, words: list[str], shard: int, store: Path, gigabytes: float | None) -> tuple[list[Any], Any]:
    from faulting.ray_nodes import Nodes

    from harness.cluster.cluster import ShardWork
    from harness.cluster.ray_cluster import RayCluster

    words, start, peaks = [*words, f"store.path={store}"], 0.0, list[Peak]()
    with ExitStack() as stack:
        if way.isdigit():
            nodes = stack.enter_context(Nodes(int(way), memory=int(gigabytes * 1e9) if gigabytes else None))
            jobs = list(range(int(way)))
            start = seconds(lambda: RayCluster(shard, nodes.address).run(ShardWork(abs, jobs, jobs, store=str(store))))
            words += ["cluster=ray", f"cluster.runtime.address={nodes.address}"]
            peaks = [Peak(partial(_of_workers, nodes, line), every=0.2) for line in ("VmHWM", "RssAnon")]
            for peak in peaks:
                stack.enter_context(peak)
        ranking, spent = one_ranking(words if way == "whole" else [*words, f"cluster.shard={shard}"])
    found = rows_of(ranking)
    shutil.rmtree(store)
    used = [peak.bytes / 1e6 for peak in peaks] or [0.0, 0.0]
    return [start, *(spent.get(one, 0.0) for one in ("read", "index", "search")), *used], found


def _install_plugin(folder: Path) -> None:
    """Make scripts/hash_vectors an installed plug-in of this process and of those that it starts."""
    about = folder / "hash_vectors-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: hash-vectors\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[retrieval_harness.components]\nhash_vectors = hash_vectors\n")
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), str(ROOT / "scripts"), os.environ.get("PYTHONPATH", "")])
