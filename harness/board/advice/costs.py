"""What trying something costs in seconds on this machine, from what it has measured; unknown where it has not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from harness.config.canonical import digest, digest_texts
from harness.config.components import identity, recorded_name, target_class
from harness.config.text import counted
from harness.data.dataset import Dataset
from harness.pipeline import ordering, steps, timing
from harness.pipeline.run_config import Node, RunConfig
from harness.pipeline.session import cache_for
from harness.storage.cache import Cache


@dataclass(frozen=True)
class Cost:
    """seconds: None where nothing was measured. reason: what takes the time, or what is unknown, in words."""

    seconds: float | None
    reason: str


@dataclass(frozen=True, eq=False)
class Costs:
    """What is known of times.

    dataset: the data. queries: digest of the queries as they are searched. arithmetic: seconds of fusing, gating and
    scoring a run, without what its gate takes to learn.
    """

    dataset: Dataset
    queries: str
    cache: Cache
    arithmetic: float

    def of(self, trials: Sequence[RunConfig]) -> Cost:
        """The cost of several runs; what they share is computed once. What a gate or a fusion takes to learn is not
        known before."""
        found = self._without_learning(trials)
        if found.seconds is not None and any(map(_learns, trials)):
            return replace(found, reason=f"{found.reason}; and the time to learn, which is not known")
        return found

    def _without_learning(self, trials: Sequence[RunConfig]) -> Cost:
        if any("rerank" in config.active for config in trials):
            return Cost(None, "pairs of a query and a document to score")
        missing = {digest(self._ranking(node)): (name, node) for one in trials for name, node in self._missing(one)}
        arithmetic = self.arithmetic * len(trials)
        if not missing:
            return Cost(arithmetic, "all rankings are cached")
        work = f"{counted(len(missing), 'ranking')} to compute"
        parts = {digest(identity(part)): part for _, node in missing.values() for part in _parts(node)}
        unread = [part for part in parts.values() if not self._is_read(part)]
        slow = ", ".join(dict.fromkeys(recorded_name(target_class(part, "retriever")) for part in unread))
        seconds = [timing.seconds_to_read(self.cache, part, self._letters) for part in unread]
        if any(not list(_parts(node)) for _, node in missing.values()) or None in seconds:
            return Cost(None, f"{work}{f'; {slow} has' if slow else ', which has'} not been timed on this machine yet")
        return Cost(arithmetic + sum(filter(None, seconds)), f"{work}{f', by {slow}' if slow else ''}")

    def _missing(self, config: RunConfig) -> Iterator[tuple[str, Node]]:
        for name, node in config.retriever.items():
            if not cache_for(node, self.cache).holds_ranking(self._ranking(node), config.depth):
                yield name, node

    def _ranking(self, node: Node) -> dict[str, Any]:
        return steps.ranking_identity(steps.index_identity(node, self.dataset), self.queries)

    def _is_read(self, part: Node) -> bool:
        """Whether the tokens or the vectors of the documents are cached."""
        kinds = {"tokens": "tokenizer", "embeddings": "encoder"}
        texts = self._texts
        return any(
            self.cache.size(kind, {name: identity(part), "texts": texts}) is not None for kind, name in kinds.items()
        )

    @cached_property
    def _texts(self) -> str:
        return digest_texts(document.indexed_text for document in self.dataset.documents)

    @cached_property
    def _letters(self) -> int:
        return sum(len(document.indexed_text) for document in self.dataset.documents)


def _parts(node: Node) -> Iterator[Node]:
    """The tokenizer and the encoder inside a retriever, which take most of its time."""
    for name in ("tokenizer", "encoder"):
        if isinstance(part := node.get(name), Mapping):
            yield part


def _learns(config: RunConfig) -> bool:
    gate = getattr(target_class(config.gate, "gate"), "learns", False)
    return gate or ordering.learns(config)
