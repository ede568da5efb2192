"""If a run cannot succeed, refuse it before it begins. Report queries that documents contain word for word."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from harness.config.canonical import digest_texts
from harness.config.components import build, component_identity
from harness.config.schema import Node
from harness.config.text import counted
from harness.data.dataset import Dataset
from harness.data.files import some
from harness.data.qrels import Qrels
from harness.data.shards import Shard, ShardedDocuments
from harness.errors import BadInput
from harness.experiment import sharded, steps
from harness.experiment.plan import Plan
from harness.experiment.session import queries_digest
from harness.gates.payoff import queries_to_learn_from
from harness.storage.cache import Cache
from retrievers.base import Query, Ranking

Identify = Callable[[Node], dict[str, Any]]


@dataclass(frozen=True, eq=False)
class DataFacts:
    """Facts about a dataset, without its documents.

    fingerprints: part of the data -> sha256. queries: the queries to search for; placeholders if a text is missing.
    unwritten: the number of queries that a language model must still write.
    turns: query_id -> whether the query has several user turns.
    indexed: digest of the indexed texts; "" if the documents are on disk. shards: () if one index covers all documents.
    """

    fingerprints: Mapping[str, str | None]
    queries: tuple[Query, ...]
    unwritten: int
    turns: Mapping[str, bool]
    qrels: Qrels | None
    doc_ids: Collection[str]
    indexed: str
    shards: tuple[Shard, ...] = ()

    @classmethod
    def of(cls, dataset: Dataset, queries: tuple[Query, ...], unwritten: int = 0) -> DataFacts:
        documents, on_disk = dataset.documents, isinstance(dataset.documents, ShardedDocuments)
        return cls(
            fingerprints=dataset.fingerprints,
            queries=queries,
            unwritten=unwritten,
            turns=dataset.conversations,
            qrels=dataset.qrels,
            doc_ids=dataset.by_id if on_disk else tuple(document.doc_id for document in documents),
            indexed="" if on_disk else digest_texts(document.indexed_text for document in documents),
            shards=sharded.shards_of(documents),
        )

    def index(self, node: Node, identify: Identify) -> dict[str, Any]:
        found = {"retriever": identify(node), "documents": self.fingerprints["documents"]}
        return found | sharded.cut_identity(node, self.shards)

    @cached_property
    def queries_digest(self) -> str:
        return queries_digest(self.queries)

    @cached_property
    def texts(self) -> str:
        """Digest of the texts of the queries, without their ids."""
        return digest_texts(query.text for query in self.queries)


def check_inputs(plan: Plan, facts: DataFacts, cache: Cache, identify: Identify = component_identity) -> None:
    """Raise BadInput if the run would fail because of its measures, labels, documents or models.

    identify: `component_identity`, or a variant that remembers its results.
    """
    plan.check(facts.qrels)
    if facts.unwritten or "answer" in plan.active:
        plan.made("llm").require()
    for node in plan.retriever.values():
        _check_retriever(node, plan.depth, facts, cache, identify)
    reranker = plan.made("rerank")
    if hasattr(reranker, "require_model") and not cache.holds_pairs(identify(plan.rerank)):
        reranker.require_model()
    if facts.qrels and (plan.made("gate").learns or plan.fusion_learns):
        ids = [query.query_id for query in facts.queries]
        queries_to_learn_from(ids, facts.qrels, plan.objective, plan.split, facts.turns)


def _check_retriever(node: Node, depth: int, facts: DataFacts, cache: Cache, identify: Identify) -> None:
    index = facts.index(node, identify)
    if cache.holds_ranking(steps.ranking_identity(index, facts.queries_digest), depth):
        return
    shards = sharded.shards_for(node, facts.shards)
    sizes = [shard.size for shard in shards] or [len(facts.doc_ids)]
    if shards:
        sharded.check_cut(node)
    indexes = sharded.indexes(node, shards, cache) if shards else [index]
    inner = {key: part for key, part in node.items() if isinstance(part, Mapping) and "_target_" in part}
    for key, part in {"retriever": node, **inner}.items():
        made = build(part, where=key)
        if hasattr(made, "require_model") and not (key in inner and _encoded(part, indexes, facts, cache, identify)):
            made.require_model()
        if hasattr(made, "check_data"):
            made.check_data(facts.doc_ids, facts.queries)
        if hasattr(made, "check_size"):
            _check_size(made, sizes, depth)


def _check_size(index: Any, sizes: Sequence[int], depth: int) -> None:
    for size in sorted(set(sizes)):
        try:
            index.check_size(size, depth)
        except BadInput as error:
            if len(sizes) == 1:
                raise
            raise BadInput(f"A shard has {size:,} documents. {error} Alternatively, raise cluster.shard.") from None


def _encoded(
    encoder: Node, indexes: Sequence[Mapping[str, Any]], facts: DataFacts, cache: Cache, identify: Identify
) -> bool:
    """Return whether all vectors of documents and queries are cached. indexes: the identity of each shard's index."""
    made_by = {"encoder": identify(encoder)}
    documents = all(cache.size("indexes", index) is not None for index in indexes)
    if not documents and facts.indexed and not steps.cut_of(indexes[0]):  # texts of passages are not known yet
        documents = cache.size("embeddings", made_by | {"texts": facts.indexed}) is not None
    return documents and cache.size("query_embeddings", made_by | {"queries": facts.texts}) is not None


LOOKED_AT = 5  # number of documents to read from each query's ranking, besides the relevant documents
WORDS, LETTERS = 3, 10  # a checked query has at least this many words and characters; shorter ones match by chance
CHECKED = 10_000  # the maximum number of queries to check, evenly spread
LEAST, SHARE = 3, 0.05  # minimum number and share of copied queries to report; fewer may be a coincidence


def copied(dataset: Dataset, ranking: Ranking) -> tuple[dict[str, str], int]:
    """Return query_id -> id of a document that contains the query's last user turn, and how many queries were checked.

    Short queries are not checked. Only relevant documents and the first documents of the ranking are read.
    """
    queries = dataset.queries[:: -(-len(dataset.queries) // CHECKED) or 1]
    chosen = {query.query_id for query in queries}
    rows = np.array([query_id in chosen for query_id in ranking.query_ids], bool)
    lists, found, told = ranking.take(rows).top(LOOKED_AT).to_dict(), dict[str, str](), 0
    grades = (dataset.qrels or Qrels({})).grades
    for query in queries:
        words = _plain(query.user_turns[-1])
        if len(words.split()) < WORDS or len(words) < LETTERS:
            continue
        told += 1
        for doc_id in dict.fromkeys([*grades.get(query.query_id, ()), *lists.get(query.query_id, ())]):
            if words in _plain(dataset.by_id[doc_id].indexed_text):
                found[query.query_id] = doc_id
                break
    return found, told


def notes(dataset: Dataset, ranking: Ranking) -> Iterator[str]:
    found, told = copied(dataset, ranking)
    if len(found) >= LEAST and len(found) >= SHARE * told:
        where = some([f"{query_id} in {doc_id}" for query_id, doc_id in found.items()], 3)
        asked = counted(told, "query") if len(dataset.queries) <= CHECKED else f"{told:,} sampled queries"
        yield (
            f"{len(found):,} of {asked} appear word for word in a document ({where}). If the "
            "documents contain the questions, a high score says little about other questions."
        )


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip("?!. ")
