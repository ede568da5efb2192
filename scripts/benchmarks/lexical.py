"""BM25 against rank_bm25 and bm25s."""

from __future__ import annotations

import functools
import gc
import math
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from generated_corpus import texts
from measuring import RATIO, Peak, Table, apart, compared, in_turns, resident, seconds

from retrievers.base import Document, Query, cores
from retrievers.lexical import tokenize
from retrievers.lexical.bm25 import BM25
from retrievers.lexical.tokenize import CharNgram, Snowball, Tokens, Whitespace, Word

DOCUMENT_WORDS, QUERY_WORDS, QUERIES = 60, 8, 1000
PASSES, PAIRS, WARM_UP = 5, 11, 200  # searches of an engine; of two in turns; documents to compile with


@dataclass(frozen=True)
class Texts:
    """Generated texts, or those in two files. depth: number of documents to retrieve."""

    size: int
    depth: int
    documents: str = ""
    queries: str = ""

    def read(self) -> tuple[list[str], list[str]]:
        if not self.documents:
            return texts(self.size, DOCUMENT_WORDS, seed=1), texts(QUERIES, QUERY_WORDS, seed=2)
        documents, queries = (Path(name).read_text("utf-8").splitlines() for name in (self.documents, self.queries))
        return documents, queries


class Ours:
    def __init__(self, folder: Path, depth: int) -> None:
        import retrievers.lexical._bm25_bounded  # noqa: F401  (imports numba before timing starts)

        self.folder, self.depth = folder, depth
        self.bm25 = BM25(lambda texts, progress=None: self.tokens, variant="lucene")  # tokens are timed separately

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
        self.bm25.search(queries, self.depth)


class RankBM25:
    def __init__(self, _: Path, depth: int) -> None:
        import rank_bm25

        self.make, self.depth = rank_bm25.BM25Okapi, depth

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
            best = np.argpartition(-scores, self.depth)[: self.depth]
            best[np.argsort(-scores[best])]


class BM25S:
    def __init__(self, folder: Path, depth: int, backend: str) -> None:
        import bm25s

        self.library, self.folder, self.depth = bm25s, folder, depth
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
        self.bm25.retrieve(queries, k=self.depth, n_threads=self.threads, show_progress=False)


ENGINES: dict[str, Callable[[Path, int], Any]] = {
    "retrieval-harness": Ours,
    "rank_bm25": RankBM25,
    "bm25s-numpy": lambda folder, depth: BM25S(folder, depth, "numpy"),
    "bm25s-numba": lambda folder, depth: BM25S(folder, depth, "numba"),
}


def bm25(*sizes: int, depth: int = 100, texts: str = "", queries: str = "", ratio: bool = False) -> None:
    """Compare BM25 with rank_bm25 and bm25s on generated corpora: speed, index size, memory.

    SIZES are numbers of documents (default: 5000 50000). The best --depth documents are retrieved, on all cores if the
    engine can use them. --texts and --queries: files to use instead, with a text per line. Each engine runs in a
    separate process on the same texts, with its libraries imported before:

    - warm-up: seconds of the same work on 200 documents, done first to load or compile code
    - tokenise, index: seconds from texts to tokens, and from tokens to a searchable index
    - queries/s: the fastest of five passes, from tokens; ours includes checking the ranking
    - index MB: disk size of the arrays that a search reads (rank_bm25 has none)
    - resident, peak MB: growth of resident memory since the warm-up, file maps included

    A second table compares ours with bm25s-numba, the fastest of the others, in alternating passes. Quote this ratio.
    --ratio: only this table.
    """
    corpora = [Texts(size, depth) for size in sizes or (() if texts else (5000, 50000))]
    corpora += [Texts(len(Path(texts).read_text("utf-8").splitlines()), depth, texts, queries)] if texts else []
    names = ("warm-up s", "tokenise s", "index s", "queries/s", "index MB", "resident MB", "peak MB")
    if not ratio:
        table = Table("documents", "engine", *names)
        for one in corpora:
            for name in ENGINES:
                table.row(one.size, name, *apart(measured_engine, name, one))
        print()
    table = Table("documents", *(column.format("queries") for column in RATIO))
    for one in corpora:
        table.row(one.size, *apart(ours_and_bm25s, one))


def ours_and_bm25s(corpus: Texts) -> tuple[Any, ...]:
    documents, queries = corpus.read()
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        searches = []
        for engine in (Ours(Path(one), corpus.depth), BM25S(Path(other), corpus.depth, "numba")):
            engine.tokenise(documents)
            engine.index()
            tokens = engine.queries(queries)
            searches.append(lambda engine=engine, tokens=tokens: engine.search(tokens))
        return compared(in_turns(searches, PAIRS, again=True), len(queries))


def measured_engine(name: str, corpus: Texts) -> list[float]:
    documents, queries = corpus.read()
    with tempfile.TemporaryDirectory() as small, tempfile.TemporaryDirectory() as folder:
        engine = ENGINES[name](Path(small), corpus.depth)
        warm_up = seconds(lambda: _work(engine, documents[:WARM_UP], queries[:WARM_UP]))
        engine = ENGINES[name](Path(folder), corpus.depth)
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


def words(size: int = 100_000, *, passes: int = 5) -> None:
    """Compare splitting texts into words and indexing them on one core and on all cores, in alternating passes.

    SIZE is the number of generated documents. Python alone splits texts in the first column; compiled kernels do so in
    the others. Seconds are medians. The ratios compare the first and the second column with the last one.
    """
    from retrievers.lexical import _bm25_kernels, _word_kernels

    for kernels in (_bm25_kernels, _word_kernels):
        kernels._warm()
    documents, everything = texts(size, DOCUMENT_WORDS, seed=1), cores()
    table = Table("step", "Python s", "one core s", f"{everything} cores s", "Python / cores", "one core / cores")
    for tokenizer in (CharNgram(), Snowball(), Word(), Whitespace()):  # the last one's terms are indexed

        def split(threads: int, large: float = 0, tokenizer: tokenize.Tokenizer = tokenizer) -> Tokens:
            tokenize.LARGE, os.environ["HARNESS_CORES"] = large, str(threads)
            return tokenizer(documents)

        spent = in_turns([lambda: split(1, math.inf), lambda: split(1), lambda: split(everything)], passes)
        table.row(type(tokenizer).__name__, *_ratios(spent))
    tokens = split(everything)
    with tempfile.TemporaryDirectory() as folder:
        engines = [BM25(Whitespace(), threads=threads)._engine for threads in (1, everything)]
        new = functools.partial(tempfile.mkdtemp, dir=folder)  # as a run does: to replace files takes longer
        spent = in_turns([lambda one=one: one.build(tokens, Path(new())) for one in engines], passes)
    one, all_cores = map(float, np.median(spent, axis=0))
    table.row("index", "", one, all_cores, "", float(np.median(spent[:, 0] / spent[:, 1])))


def _ratios(spent: np.ndarray) -> list[float]:
    return [*map(float, np.median(spent, axis=0)), *map(float, np.median(spent[:, :2] / spent[:, 2:], axis=0))]
