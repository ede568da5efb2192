"""The pool of a test set: which pairs of a query and a document are worth a judgement.

pool.jsonl: {query, doc, ranks: {run: rank}, seed, near_duplicate, pi}, one line per pair, in order of query and doc.
pool.json:  what was pooled: runs, depth, sample, fingerprint of the documents; written last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

POOL, MANIFEST = "pool.jsonl", "pool.json"


@dataclass(frozen=True)
class PooledPair:
    """A pair to judge.

    ranks: run id -> rank of the document in its list, from 1, where it is among the first `pool.depth`.
    seed: whether the document has evidence for the query. near_duplicate: whether it nearly repeats one that has.
    pi: the probability with which the pair entered the pool: 1 if a run, the seed or a near-duplicate brought it, below
        1 if it was drawn from the documents below the depth.
    """

    query_id: str
    doc_id: str
    ranks: Mapping[str, int] = field(default_factory=dict)
    seed: bool = False
    near_duplicate: bool = False
    pi: float = 1.0
