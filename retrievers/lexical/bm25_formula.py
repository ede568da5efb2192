"""The formulas of BM25: what a term weighs in a document, by variant."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class Parameters(NamedTuple):
    """The arguments of the formula; `delta` is 0 where the variant has none."""

    variant: str
    k1: float
    b: float
    delta: float
    epsilon: float


def _okapi_idf(n: np.ndarray, total: int, epsilon: float) -> np.ndarray:
    idf = np.log(total - n + 0.5) - np.log(n + 0.5)
    return np.where(idf < 0, epsilon * idf.mean(), idf)


def _l_weight(tf: np.ndarray, norm: np.ndarray, p: Parameters) -> np.ndarray:
    boosted = tf / norm + p.delta
    return tf * (p.k1 + 1) * boosted / (p.k1 + boosted)


@dataclass(frozen=True)
class Variant:
    """A posting scores idf(n, N, epsilon) * weight(tf, norm, parameters).

    n: number of documents with the term (at least 1), of N documents.
    tf: number of times the term occurs in this document (at least 1).
    norm: 1 - b + b * length / mean length.
    """

    idf: Callable[[np.ndarray, int, float], np.ndarray]
    weight: Callable[[np.ndarray, np.ndarray, Parameters], np.ndarray]
    delta: float | None = None  # default value; None: the formula has no delta
    everywhere: bool = False  # whether idf * delta is added to every document, also where the term is absent
    negative: bool = False  # whether a posting may score 0 or less
    library: str | None = None  # class of rank_bm25 that computes the same scores


VARIANTS = {
    "lucene": Variant(
        idf=lambda n, total, _: np.log1p((total - n + 0.5) / (n + 0.5)),
        weight=lambda tf, norm, p: tf / (tf + p.k1 * norm),
    ),
    "okapi": Variant(
        idf=_okapi_idf,
        weight=lambda tf, norm, p: tf * (p.k1 + 1) / (tf + p.k1 * norm),
        negative=True,
        library="BM25Okapi",
    ),
    "l": Variant(
        idf=lambda n, total, _: math.log(total + 1) - np.log(n + 0.5),
        weight=_l_weight,
        delta=0.5,
        library="BM25L",
    ),
    "plus": Variant(
        idf=lambda n, total, _: np.log((total + 1) / n),
        weight=lambda tf, norm, p: tf * (p.k1 + 1) / (tf + p.k1 * norm),
        delta=1.0,
        everywhere=True,
        library="BM25Plus",
    ),
}


def idf_of(counts: np.ndarray, n_docs: int, parameters: Parameters) -> np.ndarray:
    """The idf of each term, float64 [V]; 0 for a term that occurs in no document. counts: documents per term."""
    found = np.zeros(len(counts))
    used = counts > 0
    if used.any():
        found[used] = VARIANTS[parameters.variant].idf(counts[used], n_docs, parameters.epsilon)
    return found
