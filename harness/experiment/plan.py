"""The plan of a retrieval run: the checked config as typed values, and the components, each built once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from harness.cluster.cluster import Cluster, Local
from harness.config.canonical import digest
from harness.config.components import SHARED, build, component_identity, reusable, target_class, with_absolute_paths
from harness.config.schema import Node
from harness.data.dataset import Dataset, search_queries
from harness.data.qrels import Qrels
from harness.data.source import Source
from harness.errors import BadInput
from harness.experiment.writing import WRITTEN, QueryWriter
from harness.gates.payoff import fixed_mean
from harness.measures.measures import Measure, check_labels, parse_measure
from harness.statistics.split import Split
from harness.storage.cache import Cache, open_cache
from retrievers.base import Query


@dataclass(frozen=True, eq=False)
class Plan:
    """The plan of a run, a trial or a search. An attribute with the name of a config group is that group's config.

    document: the checked config with absolute paths, as recorded in trial keys, params and `config.yaml`.
    retriever: name -> config. query_text, query_file, query_prompt: `query.text` and so on. store: path of the cache.
    top_k: documents returned per query. depth: documents retrieved per query, before all later steps.
    slices: the attributes of queries by which the objective is also reported.
    """

    document: Mapping[str, Any]
    dataset: Node
    retriever: Mapping[str, Node]
    gate: Node
    top_k: int
    depth: int
    query_text: str = "user_turns"
    query_file: str | None = None
    query_prompt: str | None = None
    cluster: Node = field(default_factory=dict)
    tokenizer: Node = field(default_factory=dict)
    encoder: Node = field(default_factory=dict)
    index: Node = field(default_factory=dict)
    llm: Node = field(default_factory=dict)
    answer: Node = field(default_factory=dict)
    fusion: Node = field(default_factory=dict)
    rerank: Node = field(default_factory=dict)
    metrics: tuple[str, ...] = ()
    objective: str = ""
    split: Split = field(default_factory=Split)
    slices: tuple[str, ...] = ()
    trace: str = "none"
    tracking: Node = field(default_factory=dict)
    experiment_name: str = ""
    run_name: str | None = None
    store: str = "."

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Plan:
        """Return the plan of a checked config. Keys that the config lacks get their defaults."""
        return cls.of_full(with_absolute_paths(document))

    @classmethod
    def of_full(cls, document: Mapping[str, Any]) -> Plan:
        """Return the plan of a checked config with absolute paths."""
        plain = {name: document[name] for name in cls.__dataclass_fields__ if name in document}
        query = document.get("query")
        if isinstance(query, Mapping):
            plain |= {f"query_{name}": value for name, value in query.items()}
        if store := document.get("store"):
            plain["store"] = str(store["path"])
        split = {name: document[name] for name in ("public", "seed", "select_on") if name in document}
        lists = {name: tuple(document.get(name) or ()) for name in ("metrics", "slices")}
        return cls(**plain | {"document": document, "split": Split(**split)} | lists)

    def made(self, group: str) -> Any:
        """Return the component of a group, such as "gate". It is built at most once."""
        if group not in self._made:
            self._made[group] = build(getattr(self, group), where=group)
        return self._made[group]

    @cached_property
    def _made(self) -> dict[str, Any]:
        return {}

    def source(self) -> Source:
        """Return a new reader of the dataset. The reader may keep its data in memory."""
        made: Source = build(self.dataset, where="dataset")
        return made

    @cached_property
    def cache(self) -> Cache:
        return open_cache(self.store)

    @cached_property
    def workers(self) -> Cluster:
        """The cluster that works on shards; this process if the config names no cluster."""
        made: Cluster = self.made("cluster") if self.cluster else Local()
        return made

    @cached_property
    def writer(self) -> QueryWriter | None:
        """The writer of the queries; None if no language model writes them. Raise BadInput for a bad prompt."""
        return QueryWriter.of(self.query_text, self.query_file, self.query_prompt, self.llm)

    def given_queries(self, dataset: Dataset) -> tuple[Query, ...]:
        """Return the queries to search for when no model writes them. Raise BadInput for bad `query` keys."""
        return search_queries(dataset, self.query_text, self.query_file)

    @cached_property
    def active(self) -> tuple[str, ...]:
        """The config groups that the run uses besides `retriever` and `gate`."""
        nodes = [*self.retriever.values(), self.answer]
        parts = {*self.made("gate").parts, *(["llm"] if self.query_text in WRITTEN else [])}
        shared = {name: node for name in SHARED if (node := getattr(self, name))}
        found = [name for name, own in shared.items() if name in parts or any(node.get(name) == own for node in nodes)]
        found += ["fusion"] if len(self.retriever) > 1 else []
        found += ["rerank"] if self.made("rerank").depth else []
        return (*found, *(["answer"] if "llm" in self.answer else []))

    @property
    def components(self) -> list[Node]:
        """The components that affect the run, without their inner components."""
        return [*self.retriever.values(), self.gate, *(getattr(self, group) for group in self.active)]

    @cached_property
    def fusion_learns(self) -> bool:
        return "fusion" in self.active and bool(getattr(self.made("fusion"), "learns", False))

    @cached_property
    def order_key(self) -> str:
        """Digest of everything that decides the order of the candidates, except the component rankings."""
        fitting = [self.objective, self.top_k, asdict(self.split)] if self.fusion_learns else None
        return digest([self.fusion, self.rerank, self.depth, fitting])

    @cached_property
    def rerank_identity(self) -> dict[str, Any]:
        return component_identity(self.rerank)

    @cached_property
    def measure(self) -> Measure:
        return parse_measure(self.objective)

    @property
    def asks_model(self) -> bool:
        """Whether a language model writes the queries or is the gate."""
        return self.query_text in WRITTEN or "llm" in self.gate

    @property
    def deciding_shard(self) -> int | None:
        """`cluster.shard` if the scores depend on it, because a retriever has independent shards; else None."""
        independent = any(sharding(node) == "independent" and reusable(node) for node in self.retriever.values())
        return self.cluster.get("shard") if independent else None

    def tokenizer_of(self, choices: Mapping[str, str | None]) -> str | None:
        """Return the name of the tokenizer's config; None if the run uses none. choices: config group -> name."""
        return choices.get("tokenizer") if "tokenizer" in self.active else None

    @property
    def light(self) -> bool:
        """Whether the run logs only mean scores, params, predictions and its config."""
        return bool(self.tracking["detail"] == "light")

    def check(self, qrels: Qrels | None) -> None:
        """Raise BadInput for measures, fusions and gates that cannot work with this config and these labels."""
        for name in (names := [*self.metrics, self.objective]):
            parse_measure(name)
        if qrels is not None:
            check_labels(names, qrels)
        self.check_learning(labelled=qrels is not None)

    def check_learning(self, labelled: bool) -> None:
        learning = {"gate": self.made("gate").learns, "fusion": self.fusion_learns}
        for part in (part for part, learns in learning.items() if learns):
            if not labelled:
                raise BadInput(
                    f"This {part} learns from labels, and there are none. Give them with dataset.qrels=FILE, or apply "
                    f"a rule learnt elsewhere: {part}=fitted {part}.file=RUN/{part}.json"
                )
            fixed_mean(self.objective, part)


def sharding(node: Node) -> str | None:
    """Return how a retriever's index can be cut into shards: "independent" or "summed"; None if it cannot be cut."""
    found: str | None = getattr(target_class(node, "retriever"), "sharding", None)
    return found
