"""Estimates of the seconds that a configuration takes, from times measured on this machine or from typical rates."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from harness.config.canonical import digest
from harness.config.components import component_identity, recorded_name, target_class
from harness.config.schema import Node
from harness.config.text import counted
from harness.data.dataset import Dataset
from harness.experiment import steps, timing
from harness.experiment.plan import Plan
from harness.experiment.preflight import DataFacts
from harness.experiment.session import cache_for
from harness.storage.cache import Cache
from retrievers.base import cores
from retrievers.dense.models import WEIGHTS, ModelSource, device_for, here

# Seconds that a component takes for a million characters on two cores, used until this machine has timed the component.
RATES = {
    "tokenizer/kiwi": 8.0,
    "tokenizer/char_ngram": 2.0,
    "tokenizer/word": 0.5,
    "tokenizer/whitespace": 0.3,
    "tokenizer/snowball": 1.0,
    "encoder/use_multilingual": 40.0,
    "encoder/lsa": 15.0,
}
UNKNOWN = 10.0  # the rate of a component that is not in RATES, such as one from a plug-in
START = 0.5  # seconds to index and search, without reading the texts
TRIAL = 0.3  # seconds to fuse, gate, score and log
CHARACTERS = 2.5  # characters per token of a neural model
BYTES = 4  # bytes per parameter in most models
SPEED = {"cpu": 3e10, "gpu": 3e13}  # operations per second of one core and of a GPU
PAIR = 400  # tokens that a reranker reads for one pair of a query and a document
# The seconds to learn from 100 labelled queries, including cross-validation.
LEARNING = {"gate/auto": 0.3, "gate/depth": 0.5, "gate/classifier": 3.0, "fusion/learned": 3.0}


@dataclass(frozen=True)
class Cost:
    """A cost. seconds: None if unknown. reason: a phrase that says what takes the time, or what is unknown."""

    seconds: float | None
    reason: str


@dataclass(frozen=True, eq=False)
class Workload:
    """The work of a configuration. rankings: the identity of each ranking, in the config's order."""

    plan: Plan
    rankings: Sequence[Mapping[str, Any]]

    @classmethod
    def of(cls, plan: Plan, facts: DataFacts) -> Workload:
        indexes = [facts.index(node, component_identity) for node in plan.retriever.values()]
        return cls(plan, [steps.ranking_identity(index, facts.queries_digest) for index in indexes])

    @property
    def parts(self) -> Iterator[tuple[Node, Mapping[str, Any]]]:
        """Pairs (retriever, identity of its ranking)."""
        return zip(self.plan.retriever.values(), self.rankings, strict=True)

    @property
    def makes(self) -> set[str]:
        """The names of the workload's cache entries: rankings, indexes and texts that were read."""
        return set().union(*(_entries(node, ranking) for node, ranking in self.parts))


@dataclass(frozen=True, eq=False)
class CostModel:
    """Estimates for one dataset.

    cache: has results and measured times; None to use rates alone, so that repeated estimates are equal.
    documents, queries: their total lengths in characters. asked, labelled: the number of all and of labelled queries.
    texts: the digest of the documents' texts.
    arithmetic: seconds to fuse, gate and score a configuration.
    """

    cache: Cache | None
    documents: int
    queries: int
    asked: int
    labelled: int
    texts: str = ""
    arithmetic: float = TRIAL

    @classmethod
    def of(cls, cache: Cache, dataset: Dataset, texts: str = "", arithmetic: float = TRIAL) -> CostModel:
        labels = dataset.qrels.grades if dataset.qrels else {}
        return cls(
            cache,
            sum(len(document.indexed_text) for document in dataset.documents),
            sum(len(query.text) for query in dataset.queries),
            len(dataset.queries),
            sum(query.query_id in labels for query in dataset.queries),
            texts,
            arithmetic,
        )

    def cost(self, works: Sequence[Workload], made: Collection[str] = (), pace: float = 1.0) -> Cost:
        """Return the cost of several configurations together, with shared work counted once.

        made: names of existing cache entries, see `Workload.makes`. pace: a factor by which rates are multiplied.
        """
        known, missing, guessed = set(made), 0, dict[str, None]()
        total = sum(self.arithmetic + self._learning(work.plan) for work in works)
        for work in works:
            for node, ranking in work.parts:
                store = self.cache and cache_for(node, self.cache)
                if digest(ranking) in known or (store and store.holds_ranking(ranking, work.plan.depth)):
                    continue
                missing += 1
                total += START
                if not (parts := readers(node)):
                    return Cost(None, f"{recorded_name(target_class(node, 'retriever'))} cannot be timed here")
                indexed = digest(ranking["index"]) in known or self._has("indexes", ranking["index"])
                for part in parts:
                    is_read = indexed or digest(_reads(node, part)) in known or self._is_read(node, part)
                    seconds, measured = self._reading(part, self.queries + (0 if is_read else self.documents), pace)
                    total += seconds
                    guessed |= {} if measured or is_read else {recorded_name(target_class(part, "part")): None}
                known |= _entries(node, ranking)
            if pairs := self.asked * int(work.plan.rerank.get("depth") or 0):
                total += pace * _operations(work.plan.rerank) * pairs * PAIR
        reranked = any("rerank" in work.plan.active for work in works)
        doing = [f"{counted(missing, 'ranking')} to compute"] if missing else ["all rankings are cached"]
        doing += ["pairs of a query and a document to score"] if reranked else []
        verb = "has" if len(guessed) == 1 else "have"
        doing += [f"a guess, since {', '.join(guessed)} {verb} not been timed on this machine yet"] if guessed else []
        return Cost(total, "; ".join(doing))

    def learning(self, name: str) -> float:
        """Return the seconds that a gate or a fusion needs to learn, with cross-validation. name: its recorded name."""
        return LEARNING.get(name, 0.0) * max(self.labelled, 20) / 100

    def _learning(self, plan: Plan) -> float:
        nodes = [plan.gate, *([plan.fusion] if "fusion" in plan.active else [])]
        return sum(self.learning(recorded_name(target_class(node, "part"))) for node in nodes)

    def _has(self, kind: str, of: Mapping[str, Any]) -> bool:
        return self.cache is not None and self.cache.size(kind, of) is not None

    def _is_read(self, node: Node, part: Node) -> bool:
        kinds = {"tokens": "tokenizer", "embeddings": "encoder"}
        whole = node.get("passages") in (None, "none")
        return whole and any(
            self._has(kind, {name: component_identity(part), "texts": self.texts}) for kind, name in kinds.items()
        )

    def _reading(self, part: Node, characters: int, pace: float) -> tuple[float, bool]:
        """Return (the seconds that a tokenizer or an encoder needs for the texts, whether they were measured)."""
        if self.cache and (found := timing.seconds_to_read(self.cache, part, characters)) is not None:
            return found, True
        if "model" in part or "path" in part:
            return pace * _operations(part) * characters / CHARACTERS, False
        return pace * RATES.get(recorded_name(target_class(part, "part")), UNKNOWN) * characters / 1e6, False


def readers(node: Node) -> list[Node]:
    """Return the parts of a retriever that read texts: a tokenizer, an encoder, or the retriever's own model."""
    found = [node[key] for key in ("tokenizer", "encoder") if isinstance(node.get(key), Mapping)]
    return found or ([node] if "model" in node else [])


def _entries(node: Node, ranking: Mapping[str, Any]) -> set[str]:
    return {digest(one) for one in (ranking, ranking["index"], *(_reads(node, part) for part in readers(node)))}


def _reads(node: Node, part: Node) -> list[Any]:
    return [component_identity(part), node.get("passages")]


def _operations(node: Node) -> float:
    """Return the seconds that a neural model takes per token, at two operations per parameter.

    Return 0 if the model is not on this machine.
    """
    folder = here(ModelSource(node.get("model"), node.get("revision"), node.get("path")))
    if folder is None:  # the model cannot run here, so its results come from the cache
        return 0.0
    on_cpu = device_for((node.get("runtime") or {}).get("device")) == "cpu"
    speed = SPEED["cpu"] * cores() if on_cpu else SPEED["gpu"]
    return 2 * _parameters(folder) / speed


@lru_cache
def _parameters(folder: Path) -> float:
    """Return a model's approximate number of parameters, from the size of the first weight files found."""
    sizes = [sum(file.stat().st_size for file in folder.rglob(pattern)) for pattern in WEIGHTS]
    return next((size for size in sizes if size), 0) / BYTES
