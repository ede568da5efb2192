"""BM25 (Robertson & Zaragoza 2009, The Probabilistic Relevance Framework)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, cast

from harness.errors import BadInput
from retrievers.base import (
    AtMost,
    DocIds,
    Document,
    IndexedTexts,
    Progress,
    Query,
    Ranking,
    Threads,
    check_choice,
    check_whole,
    opened,
    require_identity,
)
from retrievers.lexical.bm25_index import ENGINES, VARIANTS, Parameters, SparseEngine, write_summary
from retrievers.lexical.tokenize import Tokenizer, Tokens

LARGEST = 1e6  # limit of k1, delta and epsilon: far above useful values, far below overflow
Parameter = Annotated[float, AtMost(LARGEST, "beyond it, scores no longer change")]


@dataclass(eq=False)
class BM25:
    """Ranks documents by the sum of the scores of the query's terms.

    A term that occurs twice in the query counts twice. Documents that share no term with the query are never returned.
    All other documents are candidates, even with a score of 0 or less (possible with `okapi`). Longer queries reach
    higher scores, so scores are only roughly comparable across queries.

    N is the number of documents, n the number of documents with the term, tf the term's count in the document, and norm
    = 1 - b + b * length / mean length. A term's score is:

    - `lucene`: ln(1 + (N - n + .5) / (n + .5)) * tf / (tf + k1 * norm), always > 0. As in Lucene since version 8, there
      is no factor (k1 + 1): the order is the same, and the scores are 2.5 times smaller at k1 = 1.5.
    - `okapi`: ln((N - n + .5) / (n + .5)) * tf * (k1 + 1) / (tf + k1 * norm). If a term is in more than half of the
      documents, `epsilon` times the mean idf of all terms replaces its negative idf.
    - `l`: ln((N + 1) / (n + .5)) * tf * (k1 + 1) * c / (k1 + c) with c = tf / norm + delta.
    - `plus`: ln((N + 1) / n) * (delta + tf * (k1 + 1) / (tf + k1 * norm)). A query term that occurs in the corpus but
      not in the document also adds its idf * delta.

    The scores of `okapi`, `l` and `plus` equal those of the library rank_bm25. The library departs from Lv & Zhai
    (2011) in two places: `l` multiplies by tf once more, and `plus` counts absent terms.

    variant: lucene, okapi, l or plus.
    k1: how slowly repeated terms saturate, at least 0. b: how much long documents are penalised, 0 to 1.
    delta: for `l` (None: 0.5) and `plus` (None: 1), at least 0. epsilon: for `okapi`, at least 0.
    engine: `sparse`, or `rank_bm25` for the library itself, a slow reference without the variant `lucene`.
    threads: number of search threads, at least 1; None: one per core.
    """

    tokenizer: Tokenizer
    variant: str = "lucene"
    k1: Parameter = 1.5
    b: Annotated[float, AtMost(1, "it is a share")] = 0.75
    delta: Parameter | None = None
    epsilon: Parameter = 0.25
    engine: str = "sparse"
    threads: Threads | None = None
    progress: Progress | None = field(default=None, init=False, repr=False)  # called while texts are tokenized

    recorded_as = "retriever/bm25"
    version = 1
    packages = ("rank_bm25",)
    sharding = "summed"
    surveyed_by = ("tokenizer",)

    def __post_init__(self) -> None:
        check_choice("variant", self.variant, VARIANTS)
        check_choice("engine", self.engine, ENGINES)
        variant, threads = VARIANTS[self.variant], self.threads
        for name, largest in (("k1", LARGEST), ("b", 1), ("epsilon", LARGEST), ("delta", LARGEST)):
            value = 0 if name == "delta" and self.delta is None else getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= largest:
                raise BadInput(f"{name} is {value!r}: give a number from 0 to {largest:,.0f}.")
        if self.delta is not None and variant.delta is None:
            raise BadInput(f"variant={self.variant} has no delta: remove delta, or use variant=l or variant=plus.")
        if self.engine == "rank_bm25" and variant.library is None:
            raise BadInput(
                f"engine=rank_bm25 has no variant={self.variant}: use okapi, l or plus, or set engine=sparse."
            )
        if self.engine == "rank_bm25" and self.k1 == 0:
            raise BadInput("engine=rank_bm25 divides 0 by 0 at k1=0: use engine=sparse, or k1 above 0.")
        if threads is not None:
            check_whole("threads", threads, "a number of threads, at least 1, or null for all cores", 1)
        delta = (variant.delta or 0.0) if self.delta is None else self.delta
        parameters = Parameters(self.variant, self.k1, self.b, delta, self.epsilon)
        self._identity = {"version": self.version, "engine": self.engine, **parameters._asdict()}
        self._engine = ENGINES[self.engine](parameters, threads)
        self._doc_ids: DocIds | None = None

    def index(self, documents: Sequence[Document], folder: Path) -> None:
        DocIds.save(folder, documents)
        self._engine.build(self._tokens(documents), folder)
        (folder / "bm25.json").write_text(json.dumps(self._identity), encoding="ascii")
        self.load(folder)

    def load(self, folder: Path) -> None:
        require_identity(folder / "bm25.json", self._identity)
        self._engine.load(folder)
        self._doc_ids = DocIds(folder)

    def search(self, queries: Sequence[Query], k: int) -> Ranking:
        doc_ids = opened(self._doc_ids, k)
        width = min(k, len(doc_ids))
        tokens = self.tokenizer([query.text for query in queries], self.progress)
        return doc_ids.ranking(queries, *self._engine.search(tokens, width))

    def check_sharding(self) -> None:
        if not isinstance(self._engine, SparseEngine):
            raise BadInput(
                f"engine={self.engine} keeps one index of the whole corpus: use cluster.shard=null, or engine=sparse."
            )

    def survey(self, documents: Sequence[Document], folder: Path) -> None:
        self._shards.survey(self._tokens(documents), folder)

    def summarise(self, surveys: Sequence[Path], folder: Path) -> None:
        write_summary(surveys, folder)

    def index_shard(self, documents: Sequence[Document], survey: Path, summary: Path, folder: Path) -> None:
        DocIds.save(folder, documents)
        self._shards.build_shard(self._tokens(documents), survey, summary, folder)
        (folder / "bm25.json").write_text(json.dumps(self._identity | {"shard": True}), encoding="ascii")

    def load_shard(self, folder: Path, summary: Path) -> None:
        require_identity(folder / "bm25.json", self._identity | {"shard": True})
        self._shards.load_shard(folder, summary)
        self._doc_ids = DocIds(folder)

    @property
    def _shards(self) -> SparseEngine:
        self.check_sharding()
        return cast(SparseEngine, self._engine)

    def _tokens(self, documents: Sequence[Document]) -> Tokens:
        return self.tokenizer(IndexedTexts(documents), self.progress)
