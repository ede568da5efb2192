"""Fusion combines several rankings of the same queries into one.

Each ranking gives points to documents, by rank (RRF) or by normalised score (WeightedSum, CombMNZ). A document's score
is the weighted sum of its points. Row i of every array belongs to query i.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple, get_args

import numpy as np

from harness.errors import BadInput, did_you_mean
from retrievers.base import AtMost, Ranking, check_choice, check_whole, one_table, remembered

LARGEST = 1e9  # limit of weights, floors and RRF's k: far above useful values, far below overflow
Constant = Annotated[int, AtMost(LARGEST, "beyond it, ranks no longer matter")]

Normalise = Literal["min_max", "z_score", "theoretical_min_max", "rank", "distribution"]


class PooledCandidates(NamedTuple):
    """The documents that any ranking returned for a query, each once.

    docs: int32 [Q, C], indices into `doc_ids`, ascending; rows are padded with len(doc_ids).
    slots: for each ranking, the positions of its documents in the flattened `docs`, int64 [Q, K]. Pads of
        the ranking point to pads of `docs`.
    """

    doc_ids: tuple[str, ...]
    docs: np.ndarray
    slots: list[np.ndarray]


class RankPoints(NamedTuple):
    """Points that a ranking gives: float64 [Q, K] for documents that it returned, [Q, 1] or a number for others."""

    returned: np.ndarray
    absent: np.ndarray | float = 0.0


class SumOfPoints(ABC):
    """Base class of fusions that add up weighted points. Subclasses define the points."""

    version = 1
    packages: tuple[str, ...] = ()
    _weights: Mapping[str, float] = MappingProxyType({})

    def check(self, names: Collection[str]) -> None:
        """Raise BadInput if a weight is for a ranking that is not among `names`, or if all weights are 0."""
        _check_names("weights", self._weights, names)
        if not any(self._weight(name) for name in names):
            raise BadInput(
                f"fusion.weights: all rankings have weight 0. Raise one of them above 0: {', '.join(names)}."
            )

    def fuse(self, rankings: Mapping[str, Ranking], k: int) -> Ranking:
        """Return the k best documents per query; k is at least 0. The order of `rankings` does not matter.

        Raise ValueError if there is no ranking or if the rankings' queries differ, and BadInput as in `check`.
        """
        if not rankings:
            raise ValueError("there is no ranking to fuse")
        (first, query_ids), *others = ((name, ranking.query_ids) for name, ranking in rankings.items())
        for name, other in others:
            if other != query_ids:
                raise ValueError(f"the rankings {first} and {name} have different queries, or order them differently")
        if k < 0:
            raise BadInput(f"k is {k}: give the number of documents to return, at least 0.")
        self.check(rankings)
        candidates = pool_candidates(*rankings.values())
        docs, scores = _best(candidates, self._scores(rankings, candidates), k)
        return Ranking(query_ids, candidates.doc_ids, docs, scores)

    def _weight(self, name: str) -> float:
        return self._weights.get(name, 1.0)

    def _scores(self, rankings: Mapping[str, Ranking], candidates: PooledCandidates) -> np.ndarray:
        parts = np.empty((len(rankings), *candidates.docs.shape))
        for part, (name, ranking), slots in zip(parts, rankings.items(), candidates.slots, strict=True):
            points, weight = self.points(name, ranking), self._weight(name)
            part[:] = weight * points.absent
            part.ravel()[slots] = weight * points.returned
        # Points are added in ascending order, so that rounding does not depend on the order of the rankings. Otherwise,
        # the sums for the points a, b, c and c, b, a might differ. A sum of two points needs no sorting.
        if len(parts) > 2:
            parts.sort(axis=0)
        return np.add.reduce(parts, axis=0)

    @abstractmethod
    def points(self, name: str, ranking: Ranking) -> RankPoints:
        """Return the points that a ranking gives. name: the ranking's name."""


@dataclass(eq=False)
class RRF(SumOfPoints):
    """Reciprocal rank fusion (Cormack, Clarke & Buettcher 2009): the sum of weight / (k + rank), ranks from 1.

    A ranking that did not return the document adds 0.

    k: 0 to 1e9; larger values reduce the advantage of the first ranks.
    weights: ranking name -> weight, 0 to 1e9, by default 1. Documents of a ranking with weight 0 stay candidates, so a
        sweep over weights always ranks the same documents.
    """

    recorded_as = "fusion/rrf"
    k: Constant = 60
    weights: dict[str, float] | None = None

    def __post_init__(self) -> None:
        self._weights = _by_name("weights", self.weights, least=0)
        check_whole("k", self.k, f"a whole number from 0 to {LARGEST:,.0f}", 0, LARGEST)

    def points(self, name: str, ranking: Ranking) -> RankPoints:
        return reciprocal_ranks(self.k, ranking)


@dataclass(eq=False)
class WeightedSum(SumOfPoints):
    """The sum of weight * normalised score.

    The scores s of the n documents that a ranking returned for a query are normalised by one of these formulas.
    Documents that the ranking did not return get 0, except with `z_score`.

    - `min_max`: (s - min) / (max - min); 1 if all scores are equal.
    - `z_score`: (s - mean) / sd, where sd is the standard deviation (dividing by n); 0 if all scores are equal. Absent
      documents get the ranking's lowest normalised score for the query, or 0 if it returned no document.
    - `theoretical_min_max` (Bruch, Gai & Ingber 2023, An Analysis of Fusion Functions for Hybrid Retrieval): (s -
      floor) / (max - floor), where floor is the lowest possible score: 0 for BM25, -1 for cosines. A score at the floor
      becomes 0, even if it is the best. `fuse` raises BadInput for a score below its floor.
    - `rank`: 1 - (rank - 1) / n, ranks from 1.
    - `distribution` (Mazzeschi 2023, Distribution-Based Score Fusion): (s - low) / (high - low), where low = mean - 3
      sd and high = mean + 3 sd; .5 if all scores are equal. As in the source, outliers are not clipped to 0 and 1.

    weights: ranking name -> weight, as in RRF.
    floors: ranking name -> lowest possible score, -1e9 to 1e9. `theoretical_min_max` needs one for each ranking.
    """

    recorded_as = "fusion/weighted_sum"
    normalise: Normalise = "z_score"
    weights: dict[str, float] | None = None
    floors: dict[str, float] | None = None

    def __post_init__(self) -> None:
        self._weights = _by_name("weights", self.weights, least=0)
        check_choice("normalise", self.normalise, get_args(Normalise))
        self._floors = _by_name("floors", self.floors, least=-LARGEST)

    def check(self, names: Collection[str]) -> None:
        super().check(names)
        _check_names("floors", self._floors, names)
        lacking = [name for name in names if name not in self._floors]
        if self.normalise == "theoretical_min_max" and lacking:
            raise BadInput(
                f"fusion.floors lacks {', '.join(lacking)}: theoretical_min_max needs the lowest possible score of "
                "each ranking, 0 for BM25, -1 for cosine. "
                f"Set fusion.floors.{lacking[0]}=..., or choose another fusion.normalise."
            )

    def points(self, name: str, ranking: Ranking) -> RankPoints:
        if self.normalise != "theoretical_min_max":
            return normalised(self.normalise, ranking)
        floor = self._floors[name]
        for row, column in np.argwhere((ranking.docs >= 0) & (ranking.scores < floor)):
            raise BadInput(
                f"fusion.floors.{name} is {floor}, but the ranking {name} has the score "
                f"{float(ranking.scores[row, column])} for query {ranking.query_ids[row]!r}: set the lowest score that "
                "this ranking can give."
            )
        return RankPoints(_shares(ranking, floor))


@dataclass(eq=False)
class CombMNZ(WeightedSum):
    """The sum of weight * normalised score, times the number of rankings that returned the document (Fox & Shaw 1994,
    Combination of Multiple Searches).

    A ranking that did not return the document adds 0. A ranking with weight 0 is also counted. With `z_score` and
    `distribution`, sums can be negative; a negative sum falls as the number of rankings grows.
    """

    recorded_as = "fusion/combmnz"
    normalise: Normalise = "min_max"

    def _scores(self, rankings: Mapping[str, Ranking], candidates: PooledCandidates) -> np.ndarray:
        counts = np.zeros(candidates.docs.shape)
        for slots in candidates.slots:
            counts.ravel()[slots] += 1
        return counts * super()._scores(rankings, candidates)

    def points(self, name: str, ranking: Ranking) -> RankPoints:
        return RankPoints(super().points(name, ranking).returned)


def _shares(ranking: Ranking, least: float | None = None) -> np.ndarray:
    """Return (score - least) / (best - least), or 0 at pads and if best = least. least: None for each row's lowest
    score."""
    present = ranking.docs >= 0
    if least is None:
        least = np.min(ranking.scores, axis=1, keepdims=True, where=present, initial=np.inf)
    span = np.max(ranking.scores, axis=1, keepdims=True, where=present, initial=-np.inf) - least
    return np.where(present, ranking.scores - least, 0.0) / np.where(span > 0, span, 1.0)


def _min_max(ranking: Ranking) -> np.ndarray:
    shares = _shares(ranking)
    return np.where(shares[:, :1] > 0, shares, 1.0)  # all shares are 0 where all scores are equal


def _z_score(ranking: Ranking) -> np.ndarray:
    # Shares are scores scaled to 0..1. The scaling does not change the z-scores, and it keeps the squares from overflow
    # and underflow. Equal shares have an exact mean, so their deviation is exactly 0.
    present, shares = ranking.docs >= 0, _shares(ranking)
    count = np.maximum(ranking.lengths, 1)[:, None]
    deviations = np.where(present, shares - _sums(shares) / count, 0.0)
    spread = np.sqrt(_sums(deviations**2) / count)
    return deviations / np.where(spread > 0, spread, 1.0)


def _sums(values: np.ndarray) -> np.ndarray:
    """Return each row's sum, added from left to right. The rounding of np.sum would depend on the row's padding."""
    return np.cumsum(values, axis=1)[:, -1:]


_NORMALISERS: dict[str, Callable[[Ranking], np.ndarray]] = {
    "min_max": _min_max,
    "z_score": _z_score,
    "rank": lambda ranking: 1.0 - np.arange(ranking.docs.shape[1]) / np.maximum(ranking.lengths, 1)[:, None],
    "distribution": lambda ranking: 0.5 + _z_score(ranking) / 6.0,  # (s - (mean - 3 sd)) / (6 sd)
}


def normalised(name: str, ranking: Ranking) -> RankPoints:
    """Return normalised scores as in WeightedSum. name: `min_max`, `z_score`, `rank` or `distribution`."""
    points = _NORMALISERS[name](ranking)
    if name != "z_score":
        return RankPoints(points)
    # The lowest z-score is never above 0, so 0 is a safe initial value.
    return RankPoints(points, np.min(points, axis=1, keepdims=True, where=ranking.docs >= 0, initial=0.0))


def reciprocal_ranks(k: int, ranking: Ranking) -> RankPoints:
    queries, depth = ranking.docs.shape
    points = 1.0 / (k + np.arange(1, depth + 1))
    return RankPoints(np.broadcast_to(points, (queries, depth)))


@remembered
def pool_candidates(*rankings: Ranking) -> PooledCandidates:
    """Return the candidates of some rankings. The result is cached: trials that differ only in weights share it."""
    doc_ids, places = one_table([ranking.doc_ids for ranking in rankings])
    pad = np.int32(len(doc_ids))
    docs = [np.append(place, pad)[one.docs] for place, one in zip(places, rankings, strict=True)]
    joined = np.hstack(docs)
    order = np.argsort(joined, axis=1)
    ascending = np.take_along_axis(joined, order, axis=1)
    columns = np.zeros(joined.shape, np.int64)
    columns[:, 1:] = np.cumsum(ascending[:, 1:] != ascending[:, :-1], axis=1)  # a row's equal documents share a column
    candidates = np.full(joined.shape, len(doc_ids), np.int32)
    np.put_along_axis(candidates, columns, ascending, axis=1)
    slots = np.empty_like(columns)
    np.put_along_axis(slots, order, columns, axis=1)
    slots += np.arange(len(slots))[:, None] * joined.shape[1]
    return PooledCandidates(
        doc_ids, candidates, np.split(slots, np.cumsum([one.shape[1] for one in docs])[:-1], axis=1)
    )


def _best(candidates: PooledCandidates, scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    present = candidates.docs < len(candidates.doc_ids)
    lengths = present.sum(axis=1)
    # Columns are in document order, and a stable sort keeps ties in this order.
    order = np.argsort(np.where(present, -scores, np.inf), axis=1, kind="stable")[:, : min(k, lengths.max(initial=0))]
    filled = np.arange(order.shape[1]) < lengths[:, None]
    ranked = np.where(filled, np.take_along_axis(candidates.docs, order, axis=1), np.int32(-1))
    return ranked, np.where(filled, np.take_along_axis(scores, order, axis=1), 0.0)


def _by_name(what: str, values: object, least: float) -> dict[str, float]:
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise BadInput(f"{what} is {values!r}: map the rankings' names to numbers, such as {{bm25: 1}}.")
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= LARGEST:
            raise BadInput(f"{what}.{name} is {value!r}: give a number from {least:,.0f} to {LARGEST:,.0f}.")
    return dict(values)


def _check_names(what: str, given: Iterable[str], names: Collection[str]) -> None:
    for name in given:
        if name not in names:
            hint = did_you_mean(str(name), names)
            raise BadInput(f"fusion.{what}.{name} names no ranking.{hint} Rankings: {', '.join(names)}.")
