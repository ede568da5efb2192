"""The one place that orders the steps: retrieve (kept), fuse, gate, cut, score.

Only `retrieve` is slow, and what it gives is kept by content: a retriever is built on a miss alone. Everything
after it is array arithmetic.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config import build, digest, digest_texts, identity
from harness.datasets import Dataset, conversations, search_queries
from harness.gate import Decision
from harness.metrics import parse
from harness.progress import watch
from harness.scores import Scores, score
from harness.store import Store
from retrievers.base import BadInput, Query, Ranking

if TYPE_CHECKING:
    from retrievers.base import Progress, Retriever
    from retrievers.tokenize import Tokenizer, Tokens


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one experiment gives. All rankings have the rows of `queries`.

    rankings: name -> raw ranking at `depth`. candidates: fused, before the gate. final: gated and cut to top_k.
    scores:   None where the data set has no labels.
    """

    queries: tuple[Query, ...]
    rankings: dict[str, Ranking]
    candidates: Ranking
    decision: Decision
    final: Ranking
    scores: Scores | None


@dataclass
class Clock:
    """Seconds spent in each stage."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began


def check(config: Mapping[str, Any], dataset: Dataset) -> None:
    """Raise BadInput for what the config alone cannot show to be wrong, before any work is done or logged."""
    search_queries(dataset, config["query"]["text"], config["query"]["file"])
    build(config["gate"], where="gate").source_of(config["retriever"])
    for name in [*config["metrics"], config["objective"]]:
        parse(name)


def run(config: Mapping[str, Any], dataset: Dataset, store: Store, clock: Clock) -> Outcome:
    """The road, from a data set to scores. `config` is a checked run config."""
    queries = search_queries(dataset, config["query"]["text"], config["query"]["file"])
    rankings = retrieve(config["retriever"], dataset, queries, config["depth"], store, clock)
    candidates = fuse(rankings)
    with clock.stage("gate"):
        decision = build(config["gate"], where="gate").decide(rankings)
        gated = candidates.where(decision.keep)
        final = gated.top(config["top_k"])
    scores = None
    if dataset.qrels:
        with clock.stage("score"):
            scores = score(
                final,
                dataset.qrels,
                config["metrics"],
                deep=gated,
                candidates=candidates,
                keep=decision.keep,
                rankings=rankings,
                signal=decision.signal,
                top_k=config["top_k"],
                multi_turn=conversations(dataset.queries),
                public=config["public"],
                seed=config["seed"],
            )
    return Outcome(queries, rankings, candidates, decision, final, scores)


def retrieve(
    retrievers: Mapping[str, Any], dataset: Dataset, queries: Sequence[Query], depth: int, store: Store, clock: Clock
) -> dict[str, Ranking]:
    """name -> raw ranking of `queries` at `depth`. Nothing is built for a ranking that is kept already."""
    asked = digest([[query.query_id, query.text] for query in queries])
    rankings = {}
    for name, node in retrievers.items():
        index = index_identity(node, dataset)

        def search(name: str = name, node: Mapping[str, Any] = node, index: Mapping[str, Any] = index) -> Ranking:
            with watch(name) as progress:
                with clock.stage("index"):
                    retriever = _indexed(node, name, index, dataset, store, progress)
                with clock.stage("search"):
                    return retriever.search(queries, depth)

        with clock.stage("retrieve"):  # index and search are parts of it; both are absent where the ranking was kept
            rankings[name] = store.ranking({"index": index, "queries": asked, "depth": depth}, search)
    return rankings


def index_identity(node: Mapping[str, Any], dataset: Dataset) -> dict[str, Any]:
    """What decides a retriever's index."""
    return {"retriever": identity(node), "documents": dataset.fingerprints["documents"]}


def fuse(rankings: Mapping[str, Ranking]) -> Ranking:
    """The ranking that is gated and cut: the only raw one."""
    if len(rankings) != 1:
        raise BadInput(f"retriever holds {len(rankings)} retrievers ({', '.join(rankings)}): give exactly one.")
    return next(iter(rankings.values()))


def _indexed(
    node: Mapping[str, Any],
    name: str,
    index: Mapping[str, Any],
    dataset: Dataset,
    store: Store,
    progress: Progress,
) -> Retriever:
    """A retriever that is ready to search, its index built or taken from the store."""

    def keep(key: str, part: Mapping[str, Any], make: Callable[[], Any]) -> Any:
        return KeptTokenizer(store, identity(part), make, progress) if key == "tokenizer" else make()

    def build_index(folder: Path) -> None:
        build(node, keep, f"retriever.{name}").index(dataset.documents, folder)

    retriever = build(node, keep, f"retriever.{name}")
    retriever.load(store.folder("indexes", index, build_index))
    return retriever


class KeptTokenizer:
    """A tokenizer that keeps what it made in the store; the real one is made only on a miss."""

    def __init__(
        self, store: Store, identity: Mapping[str, Any], make: Callable[[], Tokenizer], progress: Progress
    ) -> None:
        self._store, self._identity, self._make, self._progress = store, identity, make, progress

    def __call__(self, texts: Sequence[str], progress: Progress | None = None) -> Tokens:
        from retrievers.tokenize import Tokens

        def tokenize(folder: Path) -> None:
            self._make()(texts, progress or self._progress).save(folder)

        asked = {"tokenizer": self._identity, "texts": digest_texts(texts)}
        return Tokens.load(self._store.folder("tokens", asked, tokenize))
