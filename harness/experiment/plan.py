"""The plan of a retrieval run: its checked config as typed values, and its components, each built once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from harness.config.components import active_groups, build
from harness.config.schema import Node
from harness.statistics.split import Split


@dataclass(frozen=True, eq=False)
class Plan:
    """The plan of a run, of a trial, or of a search, which scores nothing.

    Its attributes named after config groups are configs of components; `made` returns the components themselves.

    retriever: name -> retriever. query_text, query_file, query_prompt: the keys of `query`.
    top_k: documents returned for a query. depth: documents retrieved before fusing, reranking, gating and cutting.
    cache: where it is, as `open_cache` takes it.
    document: the config as it was checked; trial keys, params and `config.yaml` are made of it.
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
    trace: str = "none"
    tracking: Node = field(default_factory=dict)
    experiment_name: str = ""
    run_name: str | None = None
    cache: str = "."

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Plan:
        """document: a config that `config.check` accepts; what it lacks takes its default."""
        plain = {name: document[name] for name in cls.__dataclass_fields__ if name in document}
        query, store = document.get("query"), document.get("store")
        if isinstance(query, Mapping):
            plain |= {f"query_{name}": value for name, value in query.items()}
        if store:
            plain["cache"] = str(store["path"])
        split = {name: document[name] for name in ("public", "seed", "select_on") if name in document}
        metrics = tuple(document.get("metrics") or ())
        return cls(**plain | {"document": document, "split": Split(**split), "metrics": metrics})

    def made(self, group: str) -> Any:
        """Return the component of a group, such as "gate", which is built once."""
        if group not in self._made:
            self._made[group] = build(getattr(self, group), where=group)
        return self._made[group]

    @cached_property
    def _made(self) -> dict[str, Any]:
        return {}

    @cached_property
    def active(self) -> tuple[str, ...]:
        """The groups beside `retriever` and `gate` that have a say in the run."""
        return tuple(active_groups(self.document))

    @property
    def components(self) -> list[Node]:
        """The components that have a say in the run, without those inside them."""
        return [*self.retriever.values(), self.gate, *(self.document[group] for group in self.active)]

    def tokenizer_of(self, choices: Mapping[str, str | None]) -> str | None:
        """The choice of the tokenizer; None where the run uses none. choices: config group -> choice."""
        return choices.get("tokenizer") if "tokenizer" in self.active else None

    @property
    def light(self) -> bool:
        """Whether the run logs means, params, predictions and config alone."""
        return bool(self.tracking["detail"] == "light")
