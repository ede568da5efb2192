"""What a trial will cost, estimated before it starts: by what this machine has measured, else by rates of another."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from harness.commands.sweep.plan import Planner, Trial, cache_of
from harness.config.canonical import digest
from harness.config.components import identity, recorded_name, target_class
from harness.data.dataset import Dataset
from harness.pipeline import timing
from harness.storage.cache import Cache
from retrievers.base import BadInput, cores
from retrievers.dense.models import WEIGHTS, ModelSource, device_for, here

# Seconds for a million characters, measured on two cores: for what this machine has not timed yet.
RATES = {
    "tokenizer/kiwi": 8.0,
    "tokenizer/char_ngram": 2.0,
    "tokenizer/word": 0.5,
    "tokenizer/whitespace": 0.3,
    "tokenizer/snowball": 1.0,
    "encoder/use_multilingual": 40.0,
    "encoder/lsa": 15.0,
}
UNKNOWN = 10.0  # of a component of somebody else's
START = 0.5  # seconds to index and search, beside reading the texts
TRIAL = 0.3  # seconds to fuse, gate, score and log
CHARACTERS = 2.5  # of a token of a neural model
BYTES = 4  # of a parameter, as models are mostly stored
SPEED = {"cpu": 3e10, "gpu": 3e13}  # operations in a second: of one core, of a graphics processor
PAIR = 400  # tokens that a reranker reads for a query and a document
LEARNING = {"auto": 0.3, "depth": 0.5, "classifier": 3.0}  # seconds to learn a gate from 100 queries, out of fold


@dataclass(frozen=True)
class Costs:
    """Estimates for one dataset.

    documents, queries: their characters. asked: number of queries. labelled: number of labelled ones.
    timed: whose measured times are used; None: rates alone, which are the same however often a sweep is started.
    """

    planner: Planner
    documents: int
    queries: int
    asked: int
    labelled: int
    timed: Cache | None = None

    @classmethod
    def of(cls, planner: Planner, dataset: Dataset, timed: Cache | None = None) -> Costs:
        assert dataset.qrels is not None, "the planner refuses trials without labels"
        return cls(
            planner,
            sum(len(document.indexed_text) for document in dataset.documents),
            sum(len(query.text) for query in dataset.queries),
            len(dataset.queries),
            sum(query.query_id in dataset.qrels.grades for query in dataset.queries),
            timed,
        )

    def seconds(self, trial: Trial, there: Collection[str], pace: float = 1.0) -> float:
        """Seconds of a trial. there: as from `made`, what need not be computed. pace: by which rates are multiplied."""
        total, known = TRIAL, set(there)
        for node, key in self._rankings(trial):
            if key in known:
                continue
            known.add(key)
            indexed = self._index(key) in known
            total += START
            for part in _parts(node):
                read = self.queries + (0 if indexed or _part_key(node, part) in known else self.documents)
                known.add(_part_key(node, part))
                total += self._reading(part, read, pace)
        return total + self._reranking(trial.config["rerank"], pace)

    def made(self, trial: Trial) -> set[str]:
        """Names of what a trial leaves in the cache: rankings, indexes, texts that were read."""
        found = set(trial.ranking_keys)
        for node, key in self._rankings(trial):
            found |= {self._index(key), *(_part_key(node, part) for part in _parts(node))}
        return found

    def cached(self, trial: Trial) -> set[str]:
        """Of what a trial leaves in the cache, the rankings and the indexes that are there."""
        cache, depth = cache_of(trial), trial.config["depth"]
        found = {key for key in trial.ranking_keys if cache.holds_ranking(self.planner.rankings[key], depth)}
        indexes = {self._index(key): self.planner.rankings[key]["index"] for key in trial.ranking_keys}
        return found | {name for name, index in indexes.items() if cache.size("indexes", index) is not None}

    def learning(self, gate: str) -> float:
        """Seconds to learn a gate once, out of fold."""
        return LEARNING.get(gate, max(LEARNING.values())) * max(self.labelled, 20) / 100

    def _rankings(self, trial: Trial) -> Iterator[tuple[Mapping[str, Any], str]]:
        """(retriever, digest of its ranking)."""
        return zip(trial.config["retriever"].values(), trial.ranking_keys, strict=True)

    def _index(self, key: str) -> str:
        return f"index {digest(self.planner.rankings[key]['index'])}"

    def _reading(self, part: Mapping[str, Any], characters: int, pace: float) -> float:
        """Seconds in which a tokenizer or an encoder reads texts."""
        if self.timed and (found := timing.seconds_to_read(self.timed, part, characters)) is not None:
            return found
        if "model" in part or "path" in part:
            return pace * _operations(part) * characters / CHARACTERS
        return pace * RATES.get(recorded_name(target_class(part, "part")), UNKNOWN) * characters / 1e6

    def _reranking(self, node: Mapping[str, Any], pace: float) -> float:
        pairs = self.asked * int(node.get("depth") or 0)
        return pace * _operations(node) * pairs * PAIR if pairs else 0.0


def _parts(node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What reads the texts of a retriever: a tokenizer, an encoder, or its own model."""
    found = [node[key] for key in ("tokenizer", "encoder") if isinstance(node.get(key), Mapping)]
    return found or ([node] if "model" in node else [])


def _part_key(node: Mapping[str, Any], part: Mapping[str, Any]) -> str:
    """Names the documents as a part reads them: whole, or cut into passages."""
    return f"read {digest([identity(part), node.get('passages')])}"


def _operations(node: Mapping[str, Any]) -> float:
    """Seconds in which a neural model reads a token: two operations for each of its parameters."""
    source = ModelSource(node.get("model"), node.get("revision"), node.get("path"))
    folder = here(source)
    if folder is None:
        raise BadInput(f"{source.model or source.path} is not on this machine.")
    on_cpu = device_for((node.get("runtime") or {}).get("device")) == "cpu"
    speed = SPEED["cpu"] * cores() if on_cpu else SPEED["gpu"]
    return 2 * _parameters(folder) / speed


@lru_cache
def _parameters(folder: Path) -> float:
    """About how many parameters a model has, by the size of its weights; the first format that it has counts."""
    sizes = [sum(file.stat().st_size for file in folder.rglob(pattern)) for pattern in WEIGHTS]
    return next((size for size in sizes if size), 0) / BYTES
