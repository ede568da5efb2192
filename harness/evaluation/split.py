"""The public and the private part of the labelled items: which items each has, by ids and seed alone."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from retrievers.base import Qrels, remembered


@dataclass(frozen=True)
class Split:
    """How labelled queries are divided, and which of them choose.

    public: share of the public part, 0 to 1.
    seed: of the draw, and of the bootstrap.
    select_on: the queries that gates are fitted to and runs are ranked by, all of them or the public part.
    """

    public: float = 0.4
    seed: int = 0
    select_on: Literal["all", "public"] = "all"


def split(item_ids: Sequence[str], strata: np.ndarray, seed: int, public: float = 0.4) -> np.ndarray:
    """bool [Q], true for the public part; round(public * Q) items, drawn from each stratum alike.

    strata: int [Q]. Which items are public depends on their ids and the seed, not on their order: within a stratum
    those whose hash comes first. A stratum's share is rounded so that the whole is right (largest remainders).
    """
    draw = np.array([hashlib.sha256(f"{seed}:{item_id}".encode()).hexdigest() for item_id in item_ids], dtype="U64")
    chosen = np.zeros(len(item_ids), bool)
    for which, quota in quotas(strata, public).items():
        rows = np.flatnonzero(strata == which)
        chosen[rows[np.argsort(draw[rows])][:quota]] = True
    return chosen


def quotas(strata: np.ndarray, public: float) -> dict[int, int]:
    """stratum -> how many of its items are public: largest remainders, the first of equal strata."""
    names, sizes = np.unique(strata, return_counts=True)
    whole = np.floor(public * sizes).astype(np.intp)
    left_over = round(public * len(strata)) - whole.sum()
    whole[np.argsort(whole - public * sizes, kind="stable")[:left_over]] += 1
    return dict(zip(names.tolist(), whole.tolist(), strict=True))


@remembered
def public_part(qrels: Qrels, *, scored: tuple[str, ...], multi_turn: frozenset[str], part: Split) -> np.ndarray:
    """bool [Q], which scored queries are public. It does not depend on which of the labelled queries were predicted."""
    labelled = list(qrels.grades)
    needs = np.array([qrels.needs_retrieval(query_id) for query_id in labelled])
    turns = np.array([query_id in multi_turn for query_id in labelled])
    chosen = dict(zip(labelled, split(labelled, 2 * needs + turns, part.seed, part.public), strict=True))
    return np.array([chosen[query_id] for query_id in scored])
