"""BM25 against rank_bm25 and bm25s."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from generated_corpus import texts
from measuring import RATIO, Peak, Table, apart, compared, in_turns, resident, seconds

from retrievers.base import Document, Query
from retrievers.lexical.bm25 import BM25
from retrievers.lexical.tokenize import Whitespace

DOCUMENT_WORDS, QUERY_WORDS, QUERIES, DEPTH = 60, 8, 1000, 100
PASSES, PAIRS, WARM_UP = 5, 11, 200  # searches of an engine; of two in turns; documents to compile with


class Ours:
    def __init__(self, folder: Path) -> None:
        import retrievers.lexical._bm25_pruned  # noqa: F401  (imports numba before timing starts)

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

    def queries(self, queries: list[str]) -> Any:
        return self.library.tokenize(queries, lower=False, token_pattern=r"\S+", stopwords=[], show_progress=False)

    def tokenise(self, documents: list[str]) -> None:
        self.tokens = self.queries(documents)

    def index(self) -> None:
        self.bm25.index(self.tokens, show_progress=False)
        del self.tokens
        self.bm25.save(str(self.folder))

    def search(self, queries: Any) -> None:
        self.bm25.retrieve(queries, k=DEPTH, n_threads=self.threads, show_progress=False)


ENGINES: dict[str, Callable[[Path], Any]] = {
    "retrieval-harness": Ours,
    "rank_bm25": RankBM25,
    "bm25s-numpy": lambda folder: BM25S(folder, "numpy"),
    "bm25s-numba": lambda folder: BM25S(folder, "numba"),
}


def bm25(*sizes: int) -> None:
    """Compare BM25 with rank_bm25 and bm25s on generated corpora: speed, index size, memory.

    SIZES are numbers of documents (default: 5000 50000). The best 100 documents are retrieved, on all cores if the
    engine can use them. Each engine runs in a separate process on the same texts, with its libraries imported before:

    - warm-up: seconds of the same work on 200 documents, done first to load or compile code
    - tokenise, index: seconds from texts to tokens, and from tokens to a searchable index
    - queries/s: the fastest of five passes, from tokens; ours includes checking the ranking
    - index MB: disk size of the arrays that a search reads (rank_bm25 has none)
    - resident, peak MB: growth of resident memory since the warm-up, file maps included

    A second table compares ours with bm25s-numba, the fastest of the others, in alternating passes. Quote this ratio.
    """
    names = ("warm-up s", "tokenise s", "index s", "queries/s", "index MB", "resident MB", "peak MB")
    table = Table("documents", "engine", *names)
    for size in sizes or (5000, 50000):
        for name in ENGINES:
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
    spent = [seconds(lambda: engine.tokenise(documents)), seconds(engine.index)]
    queries = engine.queries(query_texts)
    answered = len(queries) if isinstance(queries, list) else len(query_texts)
    return [*spent, answered / min(seconds(lambda: engine.search(queries)) for _ in range(PASSES))]
