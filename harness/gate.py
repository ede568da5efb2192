"""The no-retrieval gate: a signal for each query, read from a raw ranking, and a threshold on it.

A signal costs nothing once the ranking is there, and a threshold costs nothing at all, so both are swept freely.
A position past the end of a row counts as a document of score 0: one that shares nothing with the query.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from retrievers.base import BadInput, Ranking, did_you_mean

Signal = Literal["top_score", "margin", "mean_top_k", "zscore"]


@dataclass(frozen=True, eq=False)
class Decision:
    """keep: bool [Q], whether a query gets its documents. signal: float64 [Q], or None where nothing was read."""

    keep: np.ndarray
    signal: np.ndarray | None


class NoGate:
    """Every query gets its documents. It decides on nothing, yet has the top score as a signal to look at."""

    def source_of(self, names: Collection[str]) -> str:
        return next(iter(names))

    def decide(self, rankings: Mapping[str, Ranking]) -> Decision:
        ranking = rankings[self.source_of(rankings)]
        return Decision(np.ones(len(ranking.query_ids), bool), signal_of(ranking, "top_score", 1))


class ScoreGate:
    """A query is kept when its signal is at least the threshold; one without any document is not kept.

    source: name of the raw ranking that is read; None = the only one.
    k:      documents that `mean_top_k` and `zscore` look at.
    """

    def __init__(
        self, threshold: float = 0.0, source: str | None = None, signal: Signal = "top_score", k: int = 10
    ) -> None:
        if k < 2:
            raise BadInput(f"k={k} is too small: a mean or a z-score needs at least 2 documents.")
        self.threshold, self.source, self.signal, self.k = threshold, source, signal, k

    def source_of(self, names: Collection[str]) -> str:
        """The name of the raw ranking that is read; BadInput if it is not clear or not there."""
        if self.source is None and len(names) > 1:
            raise BadInput(f"gate.source is missing: choose one of the raw rankings {', '.join(names)}.")
        source = next(iter(names)) if self.source is None else self.source
        if source == "fused" and len(names) > 1:
            first = next(iter(names))
            raise BadInput(
                "gate.source=fused is no raw ranking. Fused scores are normalised for each query (by min_max the best "
                "is always 1), so that no threshold tells a good query from a bad one. Write the name of a raw "
                f"ranking, such as gate.source={first}: {', '.join(names)}."
            )
        if source not in names:
            raise BadInput(
                f"gate.source={source!r} is no raw ranking of this retriever: choose one of {', '.join(names)}."
                f"{did_you_mean(source, names)}"
            )
        return source

    def decide(self, rankings: Mapping[str, Ranking]) -> Decision:
        ranking = rankings[self.source_of(rankings)]
        signal = signal_of(ranking, self.signal, self.k)
        return Decision((signal >= self.threshold) & (ranking.lengths > 0), signal)


def signal_of(ranking: Ranking, name: Signal, k: int) -> np.ndarray:
    """float64 [Q] of one signal.

    top_score:  score of the first document.
    margin:     score of the first document minus that of the second.
    mean_top_k: mean score of the first k places.
    zscore:     (first score - mean of the first k) / their standard deviation; 0 where they are all equal.
    """
    places = np.zeros((len(ranking.query_ids), max(k, 2)))
    seen = ranking.scores[:, : places.shape[1]]
    places[:, : seen.shape[1]] = seen
    top, head = places[:, 0], places[:, :k]
    if name == "top_score":
        return top
    if name == "margin":
        return top - places[:, 1]
    mean = head.mean(axis=1)
    if name == "mean_top_k":
        return mean
    spread = head.std(axis=1)
    flat = spread <= 1e-12 * np.abs(top)
    return np.where(flat, 0.0, (top - mean) / np.where(flat, 1.0, spread))
