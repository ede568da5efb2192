"""Agreement of raters on grades, and Wilson's interval of proportions.

People check whole queries, drawn from strata. If they have checked n_s of the N_s queries of stratum s, each pair of
a checked query in s and a document counts N_s / n_s times. So the share of pairs with grades a and b is proportional to
the sum over strata of N_s m_s / n_s, where m_s is the number of pairs with these grades in the stratum. Intervals
resample queries, not pairs, since the grades of a query depend on each other.

Tables are float64 [..., C, C]; cell (a, b): how often the first rater gives grade a and the second gives grade b.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from harness.statistics.bootstrap import draws

RESAMPLES = 2000
CONFIDENCE = 0.95
FEWEST = 5  # an interval needs this many queries; resamples of fewer queries have too few different outcomes
_SLACK = 1e-12  # values of a statistic that differ by no more than this are taken as equal


@dataclass(frozen=True)
class Statistic:
    """A statistic. of: tables float64 [..., C, C] -> its values, NaN if undefined. undefined: the reason for NaN."""

    of: Callable[[np.ndarray], np.ndarray]
    undefined: str


@dataclass(frozen=True)
class DesignEstimate:
    """A statistic of all queries, estimated from the checked queries.

    value: NaN if undefined.
    low, high: 95 % interval; NaN without one.
    pairs: the number of (query, document) pairs. For Krippendorff's alpha, it is the number of grades of all pairs
        that at least two people have graded.
    note: why there is no value or no interval, or "".
    """

    value: float
    low: float
    high: float
    queries: int
    pairs: int
    note: str = ""


@dataclass(frozen=True)
class Drawn:
    """The checked queries, and how many queries each of them stands for.

    strata: the stratum of each of the Q checked queries.
    sizes: stratum -> the number of its queries. In a stratum without an entry, all queries are checked.
    """

    strata: tuple[str, ...]
    sizes: Mapping[str, int]

    @cached_property
    def weights(self) -> np.ndarray:
        """The weight N_s / n_s of each query, float64 [Q]."""
        checked = Counter(self.strata)
        return np.array([self.sizes.get(one, checked[one]) / checked[one] for one in self.strata])

    def resampled(self, values: np.ndarray, seed: int, resamples: int = RESAMPLES) -> np.ndarray:
        """Return weighted totals float64 [resamples, V] of values [Q, V], with queries drawn anew in each stratum.

        In a stratum of n queries, draw n - 1 with replacement; each counts n / (n - 1) times (Rao and Wu 1988).
        Drawing n would make intervals too narrow by the factor sqrt((n - 1) / n). Strata with a single checked query
        are joined with other strata, since one query says nothing about the spread within its stratum.
        """
        weighted = self.weights[:, None] * values
        generator = np.random.default_rng(seed)
        totals = np.zeros((resamples, values.shape[1]))
        for members in self._groups():
            n = len(members)
            parts = [drawn @ weighted[members] for drawn in draws(generator, n, resamples, n - 1)]
            totals += np.vstack(parts) * (n / (n - 1))
        return totals

    def _groups(self) -> list[np.ndarray]:
        names = np.array(self.strata)
        groups = [np.flatnonzero(names == one) for one in sorted(set(self.strata))]
        whole = sorted((one for one in groups if len(one) > 1), key=len)
        if single := [one for one in groups if len(one) == 1]:
            rest = np.concatenate(single)
            whole = [np.concatenate([rest, *whole[:1]]), *whole[1:]] if len(rest) == 1 else [rest, *whole]
        return whole


def at_threshold(tables: np.ndarray, relevant_from: int) -> np.ndarray:
    """Return tables of two classes, [..., 2, 2]: grades below `relevant_from`, and all other grades."""
    low, high = slice(None, relevant_from), slice(relevant_from, None)
    parts = [[tables[..., a, b].sum(axis=(-2, -1)) for b in (low, high)] for a in (low, high)]
    return np.moveaxis(np.array(parts), (0, 1), (-2, -1))


def kappa(tables: np.ndarray) -> np.ndarray:
    """Return Cohen's kappa, [...]: the agreement of two raters beyond chance, weighted by squared distances of grades.

    For two classes this is plain kappa (Cohen 1960), for more classes quadratically weighted kappa (Cohen 1968). NaN if
    a rater gives only one grade.
    """
    classes = np.arange(tables.shape[-1])
    distance = np.square(classes[:, None] - classes)
    first, second = tables.sum(axis=-1), tables.sum(axis=-2)
    total = first.sum(axis=-1)
    observed = (tables * distance).sum(axis=(-2, -1)) * total
    expected = (first[..., :, None] * second[..., None, :] * distance).sum(axis=(-2, -1))
    varied = ((first > 0).sum(axis=-1) > 1) & ((second > 0).sum(axis=-1) > 1)
    return _ratio(expected - observed, expected, varied)


def agreed(tables: np.ndarray) -> np.ndarray:
    """Return the share of pairs with the same grade, [...]; NaN without pairs."""
    return _ratio(np.trace(tables, axis1=-2, axis2=-1), tables.sum(axis=(-2, -1)))


def sensitivity(tables: np.ndarray) -> np.ndarray:
    """Return the share of the first rater's relevant pairs that the second finds relevant, from tables [..., 2, 2]."""
    return _ratio(tables[..., 1, 1], tables[..., 1, :].sum(axis=-1))


def specificity(tables: np.ndarray) -> np.ndarray:
    """Return the share of the first rater's irrelevant pairs that the second finds irrelevant; NaN if none."""
    return _ratio(tables[..., 0, 0], tables[..., 0, :].sum(axis=-1))


def coincidences(counts: np.ndarray) -> np.ndarray:
    """Return how often two raters of a unit give each pair of grades, float64 [U, C, C]; 0 for units with one rater.

    A unit is what raters grade, such as a query with a document. Every ordered pair of its m raters counts 1 / (m - 1),
    so the pairs of a unit add up to m (Krippendorff 2011).
    counts: [U, C], the number of raters that give a unit each grade.
    """
    raters = counts.sum(axis=1)
    pairs = counts[:, :, None] * counts[:, None, :].astype(np.float64)
    classes = np.arange(counts.shape[1])
    pairs[:, classes, classes] -= counts
    return pairs / np.maximum(raters - 1, 1)[:, None, None] * (raters > 1)[:, None, None]


def alpha(tables: np.ndarray) -> np.ndarray:
    """Return Krippendorff's alpha for ordered grades, [...], from sums of `coincidences`.

    Alpha is 1 - observed / expected disagreement. Both disagreements are means of squared distances of two grades. The
    distance of two grades is the number of ratings between them in sorted order. Ratings with one of the two grades
    count half. NaN if all ratings are the same.
    """
    values = tables.sum(axis=-1)
    total = values.sum(axis=-1)
    up_to = np.cumsum(values, axis=-1) - values / 2
    distance = np.square(up_to[..., :, None] - up_to[..., None, :])
    observed = (tables * distance).sum(axis=(-2, -1)) * (total - 1)
    expected = (values[..., :, None] * values[..., None, :] * distance).sum(axis=(-2, -1))
    return _ratio(expected - observed, expected, (values > 0).sum(axis=-1) > 1)


def estimates(
    tables: np.ndarray, sample: Drawn, statistics: Mapping[str, Statistic], seed: int = 0
) -> dict[str, DesignEstimate]:
    """Estimate statistics of all queries, with intervals, from tables float64 [Q, C, C] of the checked queries.

    Queries without a pair of grades are left out. The intervals are percentile intervals, widened for few queries by
    the t distribution (Hesterberg 2015). There is no interval for fewer than five queries.
    """
    used = tables.sum(axis=(1, 2)) > 0
    queries, pairs = int(used.sum()), round(float(tables.sum()))
    if not queries:
        nothing = DesignEstimate(math.nan, math.nan, math.nan, 0, 0, "no pair judged by both raters")
        return dict.fromkeys(statistics, nothing)
    flat, shape = tables[used].reshape(queries, -1), tables.shape[1:]
    part = Drawn(tuple(np.array(sample.strata)[used]), sample.sizes)
    # Alpha depends on the number of grades, so the weights are scaled to a mean of 1 over pairs.
    total = part.weights @ flat
    scale = flat.sum() / total.sum()
    drawn = part.resampled(flat, seed) if queries >= FEWEST else total[None]

    def estimate(one: Statistic) -> DesignEstimate:
        value = float(one.of((total * scale).reshape(shape)))
        if math.isnan(value):
            return DesignEstimate(value, math.nan, math.nan, queries, pairs, one.undefined)
        low, high, note = _interval(one.of((drawn * scale).reshape(-1, *shape)), queries)
        return DesignEstimate(value, low, high, queries, pairs, note)

    return {name: estimate(one) for name, one in statistics.items()}


def _interval(drawn: np.ndarray, queries: int) -> tuple[float, float, str]:
    from scipy.special import ndtr, stdtrit

    if queries < FEWEST:
        return math.nan, math.nan, f"fewer than {FEWEST} queries: no interval"
    if (known := drawn[~np.isnan(drawn)]).size < len(drawn) * CONFIDENCE:
        return math.nan, math.nan, "undefined if a few queries are left out: no interval"
    if np.ptp(known) <= _SLACK:
        return math.nan, math.nan, "every draw of queries gives the same value: no interval"
    tail = float(ndtr(stdtrit(queries - 1, (1 - CONFIDENCE) / 2)))
    low, high = np.quantile(known, [tail, 1 - tail])
    return float(low), float(high), ""


def tables_of(
    queries: Sequence[int], first: Sequence[int], second: Sequence[int], shape: tuple[int, int]
) -> np.ndarray:
    """Count each query's pairs of grades, float64 [Q, C, C]. queries: the row of each pair's query. shape: (Q, C)."""
    rows, classes = shape
    cells = (np.asarray(queries, np.intp) * classes + np.asarray(first, np.intp)) * classes
    found = np.bincount(cells + np.asarray(second, np.intp), minlength=rows * classes**2)
    return found.reshape(rows, classes, classes).astype(np.float64)


def _ratio(part: np.ndarray, whole: np.ndarray, where: np.ndarray | bool = True) -> np.ndarray:
    known = (whole > 0) & where
    return np.where(known, np.minimum(part / np.where(known, whole, 1), 1), np.nan)


Z = 1.959963984540054  # the normal quantile of a 95 % interval


@dataclass(frozen=True)
class Proportion:
    """A share of cases: `count` out of `of`, where `of` is above 0."""

    json_too: ClassVar = ("low", "high")

    count: int
    of: int

    def __post_init__(self) -> None:
        if not 0 <= self.count <= self.of > 0:
            raise ValueError(f"`count` ({self.count}) must be from 0 to `of` ({self.of}), and `of` must be above 0.")

    @property
    def share(self) -> float:
        return self.count / self.of

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval (1927), which stays in [0, 1] and is not a point even if all cases are the same."""
        centre = self.share + Z**2 / (2 * self.of)
        margin = Z * math.sqrt(self.share * (1 - self.share) / self.of + Z**2 / (4 * self.of**2))
        scale = 1 + Z**2 / self.of
        low, high = (centre - margin) / scale, (centre + margin) / scale
        return (0.0 if self.count == 0 else low), (1.0 if self.count == self.of else high)

    @property
    def low(self) -> float:
        return self.interval[0]

    @property
    def high(self) -> float:
        return self.interval[1]

    def text(self) -> str:
        """Return text such as `18 of 20 (90 %, 95 % interval 70 to 97 %)`."""
        low, high = (100 * end for end in self.interval)
        return f"{self.count:,} of {self.of:,} ({100 * self.share:.0f} %, 95 % interval {low:.0f} to {high:.0f} %)"
