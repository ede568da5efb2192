"""What goes into a pool: the first documents of runs, documents with evidence and what repeats them, and a sample.

K. Sparck Jones and C. van Rijsbergen 1975; the sample of what no run ranked high shows what such a pool misses.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from harness.data.files import some
from harness.errors import BadInput
from harness.testset.pool import PooledPair

COPIES = 20  # near-duplicates of a document that are pooled, at most: a notice may stand in thousands of documents


@dataclass(frozen=True)
class Sources:
    """Where the documents of a pool come from.

    lists: run id -> query_id -> documents, best first.
    seeds: query_id -> documents that have evidence for it.
    groups: doc_id -> the documents that nearly repeat it, itself among them.
    """

    lists: Mapping[str, Mapping[str, Sequence[str]]]
    seeds: Mapping[str, Collection[str]] = field(default_factory=dict)
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Draw:
    """How documents below the first `depth` of the lists are drawn: `sample` for each query, by a hash of `seed`."""

    depth: int
    sample: int
    seed: int


def pooled(
    query_ids: Iterable[str], before: Iterable[PooledPair], sources: Sources, draw: Draw
) -> tuple[PooledPair, ...]:
    """The pairs of a pool, in order of query and doc: those that it had before, and what the sources add.

    A pair that was drawn and that a run, the evidence or a near-duplicate brings now has pi = 1. A query that still has
    drawn documents is not drawn for again: they stand for the documents below the depth of the runs that there were.

    query_ids: of the test set; pairs of others are left out.
    """
    had: dict[str, list[PooledPair]] = {query_id: [] for query_id in sorted(query_ids)}
    for pair in before:
        if pair.query_id in had:
            had[pair.query_id].append(pair)
    return tuple(pair for query_id, pairs in had.items() for pair in _of_query(query_id, pairs, sources, draw))


def require_documents(pairs: Iterable[PooledPair], known: Collection[str]) -> None:
    """BadInput unless all pooled documents are there."""
    gone = list(dict.fromkeys(pair.doc_id for pair in pairs if pair.doc_id not in known))
    if gone:
        raise BadInput(
            f"These documents were pooled, and the documents folder does not have them: {some(gone)}. Were the files "
            "prepared anew? Name the folder that was pooled (documents=FOLDER), or move pool.jsonl and pool.json away "
            "to begin a new pool."
        )


def _of_query(query_id: str, had: Sequence[PooledPair], sources: Sources, draw: Draw) -> list[PooledPair]:
    """The pairs of one query, by doc."""
    ranks: dict[str, dict[str, int]] = {pair.doc_id: dict(pair.ranks) for pair in had}
    below: dict[str, None] = {}
    for run_id, lists in sources.lists.items():
        documents = lists.get(query_id, ())
        for rank, doc_id in enumerate(documents[: draw.depth], start=1):
            ranks.setdefault(doc_id, {})[run_id] = rank
        below |= dict.fromkeys(documents[draw.depth :])
    seeds = sources.seeds.get(query_id, ())
    near = {copy for seed in seeds for copy in _copies(seed, sources.groups)} - set(seeds)
    certain = {doc_id for doc_id, found in ranks.items() if found} | near | set(seeds)
    drawn = {pair.doc_id: pair.pi for pair in had if pair.doc_id not in certain}
    if not drawn:
        rest = [doc_id for doc_id in below if doc_id not in certain]
        chosen = _drawn(query_id, rest, draw)
        drawn = {doc_id: len(chosen) / len(rest) for doc_id in chosen}
    return [
        PooledPair(query_id, doc_id, ranks.get(doc_id, {}), doc_id in seeds, doc_id in near, drawn.get(doc_id, 1.0))
        for doc_id in sorted(certain | drawn.keys())
    ]


def _copies(doc_id: str, groups: Mapping[str, Sequence[str]]) -> list[str]:
    return [other for other in groups.get(doc_id, ()) if other != doc_id][:COPIES]


def _drawn(query_id: str, documents: Sequence[str], draw: Draw) -> list[str]:
    """`draw.sample` of the documents, or all if there are fewer, each set of them equally likely."""
    begun = hashlib.sha256(f"{draw.seed}\0{query_id}\0".encode("utf-8", "surrogatepass"))

    def place(doc_id: str) -> bytes:
        hashed = begun.copy()
        hashed.update(doc_id.encode("utf-8", "surrogatepass"))
        return hashed.digest()

    return heapq.nsmallest(draw.sample, documents, key=place)
