"""Estimates from labels that a model wrote and people checked in part: prediction-powered inference (PPI++).

The mean by a model's labels is precise but wrong; the mean by people's labels of n queries is right but imprecise. The
model's mean, corrected by its mean error on the checked queries, is right however wrong the model is, and more precise
with a better model (Angelopoulos, Duchi & Zrnic 2023, "PPI++"; for strata: Fisch et al. 2024, "Stratified
Prediction-Powered Inference").

Y is a query's value by people's labels, Ŷ its value by the model's. n queries are checked, N queries are not:

    estimate  λ mean_N(Ŷ) + mean_n(Y − λŶ)
    variance  λ² var_N(Ŷ) / N + var_n(Y − λŶ) / n
    λ         cov_n(Y, Ŷ) / ((1 + n/N) var(Ŷ)), at least 0 and at most 1

With strata, each stratum has the weight W, its share of the queries, and all strata have the same λ:

    λ         Σ W² cov(Y, Ŷ) / n  /  Σ W² var(Ŷ) (1/n + 1/N)

λ fits the checked queries better than other queries, so each residual Y − λŶ is divided by 1 − l, where l is the
query's leverage on λ (HC3, MacKinnon & White 1985). Without this, 95 % intervals contain the truth in 91 % of
simulations at n = 30. The interval is Student's, with Satterthwaite's degrees of freedom for the residuals' variances:
n − 1 for a single stratum. Small strata share a variance with their neighbours. The interval holds for the queries from
which the test set was drawn.

If a measure applies to some queries only, its score is a ratio: the mean of its values (0 where it does not
apply) divided by the share of queries to which it applies. The mean and the share are estimated with the same λ. To
compute λ and the variances, each value is replaced by value − ratio, or by 0 where the measure does not apply.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

NO_ESTIMATE = "no estimate: "  # beginning of the note of an estimate without a value
NO_INTERVAL = "no interval: "  # beginning of the note of an estimate without an interval
LEAST = 20  # an interval needs this many checked queries
FEW = 30  # with fewer checked queries, a note warns of worse coverage (scripts/benchmark.py checked_labels)
CONFIDENCE = 0.95
LEAST_FREEDOM = 4  # a variance needs this many degrees of freedom; with fewer, neighbouring strata share a variance
SPARSE = 5  # an interval needs this many checked queries whose value is not the commonest one (rule: n·p >= 5)
MOST_LEVERAGE = 0.5  # greater leverages are cut to this, since residuals are divided by 1 - leverage
_ROUNDING = 1e-12  # smaller values are rounding errors


@dataclass(frozen=True)
class Estimate:
    """A mean over queries, estimated as if people had labelled all queries.

    value: NaN if there is no estimate.
    low, high: 95 % interval, NaN without one.
    checked: the number of checked queries to which the measure applies by people's labels.
    others: the number of other queries to which the measure applies by the model's labels.
    weight: λ, how much the model's labels count, 0 to 1; NaN without a value.
    p: the p of Student's two-sided test of a difference against 0; NaN without an interval.
    note: why there is no value or no interval, or what limits the interval; or "".
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    checked: int = 0
    others: int = 0
    weight: float = math.nan
    p: float = math.nan
    note: str = ""

    @property
    def share(self) -> float:
        """Of the queries to which the measure applies, the share that only the model has labelled."""
        return self.others / (self.checked + self.others) if self.others else 0.0


@dataclass(frozen=True)
class EstimatedDifference:
    """The difference of two runs. p_holm: p after Holm's correction over pairs of runs; NaN without p."""

    found: Estimate
    p_holm: float


@dataclass(frozen=True, eq=False)
class CheckedSample:
    """A measure's values for Q queries, by people's labels and by the model's.

    people, model: float64 [Q]; NaN where the measure does not apply by these labels, and in `people` for unchecked
        queries.
    checked: bool [Q], whether people have checked the query.
    strata: int [Q]; None: a single stratum.
    """

    people: np.ndarray
    model: np.ndarray
    checked: np.ndarray
    strata: np.ndarray | None = None

    def without_value(self, note: str) -> Estimate:
        """Return an estimate that has only the counts and a note."""
        checked = int((self.checked & ~np.isnan(self.people)).sum())
        others = int((~self.checked & ~np.isnan(self.model)).sum())
        return Estimate(math.nan, checked=checked, others=others, note=note)


@dataclass(frozen=True, eq=False)
class _Stratum:
    """The queries of a stratum. Row 0 of each array has values; row 1 is 1 if the measure applies to the query, else 0.

    share: the stratum's share of all queries.
    people, seen: float64 [2, n], the checked queries: by people's labels, and by the model's labels.
    other: float64 [2, N], all other queries, by the model's labels.
    """

    share: float
    people: np.ndarray
    seen: np.ndarray
    other: np.ndarray

    def mean(self, weight: float) -> np.ndarray:
        people: np.ndarray = self.people.mean(axis=1)
        return people + weight * (self.other.mean(axis=1) - self.seen.mean(axis=1)) if self.other.size else people

    def residuals(self, ratio: float) -> Iterator[np.ndarray]:
        """Yield value − ratio, or 0 where the measure does not apply, for `people` [n], `seen` [n] and `other` [N]."""
        return (values - ratio * applies for values, applies in (self.people, self.seen, self.other))


def estimate(sample: CheckedSample, least: float = 0.0, most: float = 1.0) -> Estimate:
    """Estimate the mean of a measure with its interval. The order of the queries does not matter.

    A stratum with fewer than two checked queries is joined with the next, or with the previous if it is the last.
    There is no interval if the measure applies to fewer than LEAST checked queries, or if fewer than SPARSE of these
    queries have a value other than the most frequent one. There is no value for fewer than two checked queries.

    least, most: bounds of the measure, to which the value and the interval are cut.
    """
    found = sample.without_value("")
    if (counted := found.checked) < 2:
        known = f"people have checked {counted} of the queries to which the measure applies"
        return replace(found, note=NO_ESTIMATE + known)
    strata = list(_strata(sample))
    weight = _weight(strata, _ratio(strata, 1.0))
    ratio = _ratio(strata, weight)
    if math.isnan(ratio):
        return replace(found, note=f"{NO_ESTIMATE}by these labels the measure applies to no query")
    found = replace(found, value=min(max(ratio, least), most), weight=weight)
    if counted < LEAST:
        return replace(found, note=f"{NO_INTERVAL}people have checked fewer than {LEAST} queries ({counted})")
    values = sample.people[sample.checked & ~np.isnan(sample.people)].round(9)
    alike = int(np.unique(values, return_counts=True)[1].max())
    if counted - alike < SPARSE:
        return replace(found, note=f"{NO_INTERVAL}{alike} of {counted} checked queries have the same value")
    error, freedom = _error(strata, weight, ratio, tuned=True)
    if not freedom < math.inf:
        return replace(found, note=f"{NO_INTERVAL}on all checked queries, people and model differ by the same amount")
    from scipy.special import stdtr, stdtrit

    margin = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * error
    p = float(2 * stdtr(freedom, -abs(ratio) / error))
    note = f"fewer than {FEW} checked queries ({counted}): the interval itself is uncertain" if counted < FEW else ""
    return replace(found, low=float(max(ratio - margin, least)), high=float(min(ratio + margin, most)), p=p, note=note)


def difference(first: CheckedSample, second: CheckedSample) -> Estimate:
    """Estimate the mean difference of two runs; no value unless the measure applies to the same queries in both."""
    same = all(
        (np.isnan(one) == np.isnan(other)).all()
        for one, other in ((first.people, second.people), (first.model, second.model))
    )
    if not same:
        return first.without_value(f"{NO_ESTIMATE}the measure applies to different queries in the two runs")
    gaps = replace(first, people=first.people - second.people, model=first.model - second.model)
    return estimate(gaps, least=-1.0)


def joined(strata: np.ndarray, checked: np.ndarray) -> np.ndarray:
    """Join neighbouring strata, int [Q], until each has at least two checked queries or only one stratum is left."""
    names, found = np.unique(strata, return_inverse=True)
    groups = _neighbours(np.bincount(found[checked], minlength=len(names)).tolist(), 2)
    place = np.repeat(np.arange(len(groups)), [len(members) for members in groups])
    return place[found]


def _neighbours(sizes: Sequence[int], least: int) -> list[list[int]]:
    """Divide the indices of `sizes` into groups of neighbours whose sizes add up to at least `least`, if possible."""
    groups: list[list[int]] = [[]]
    for number in range(len(sizes)):
        if sum(sizes[one] for one in groups[-1]) >= least:
            groups.append([])
        groups[-1].append(number)
    if len(groups) > 1 and sum(sizes[one] for one in groups[-1]) < least:
        last = groups.pop()
        groups[-1] += last
    return groups


def _strata(sample: CheckedSample) -> Iterator[_Stratum]:
    checked = sample.checked
    strata = np.zeros(len(checked), np.intp) if sample.strata is None else joined(sample.strata, checked)
    people, model = (np.stack([np.nan_to_num(one), ~np.isnan(one)]) for one in (sample.people, sample.model))
    for stratum in np.unique(strata).tolist():
        inside = strata == stratum
        parts = ((people, inside & checked), (model, inside & checked), (model, inside & ~checked))
        # NumPy adds up contiguous rows in the same order as one-dimensional arrays, so rounding is the same.
        yield _Stratum(float(inside.mean()), *(np.ascontiguousarray(of[:, rows]) for of, rows in parts))


def _ratio(strata: Sequence[_Stratum], weight: float) -> float:
    value, applies = np.sum([one.share * one.mean(weight) for one in strata], axis=0)
    return float(value / applies) if applies > _ROUNDING else math.nan


def _weight(strata: Sequence[_Stratum], ratio: float) -> float:
    """Return λ. As in ppi_py, cov(Y, Ŷ) has the divisor n, and var(Ŷ) is taken over checked and other queries."""
    above = below = 0.0
    for one in strata:
        n, more = one.people.shape[1], one.other.shape[1]
        if not more:
            continue
        people, seen, other = one.residuals(ratio)
        shared = float(((people - people.mean()) * (seen - seen.mean())).mean())
        above += one.share**2 * shared / n
        below += one.share**2 * _variance(np.concatenate([seen, other])) * (1 / n + 1 / more)
    found = min(max(above / below, 0.0), 1.0) if below > _ROUNDING else 0.0
    whole = float(round(found))  # 0 or 1: removes rounding errors, which depend on the order of the queries
    return whole if abs(found - whole) < _ROUNDING else found


def _error(strata: Sequence[_Stratum], weight: float, ratio: float, tuned: bool) -> tuple[float, float]:
    """Return the standard error and its degrees of freedom; the latter are infinite if the residuals do not vary.

    tuned: whether λ was fitted to the checked queries; ignored if λ is 0 or 1.
    """
    from_others, spreads = 0.0, []
    leverages = _leverages(strata, ratio)
    n = len(np.concatenate(leverages))
    for one, leverage in zip(strata, leverages, strict=True):
        people, seen, other = one.residuals(ratio)
        used = weight if len(other) else 0.0
        if len(other):
            all_seen = other if len(other) > 1 else np.concatenate([seen, other])
            from_others += one.share**2 * used**2 * _variance(all_seen) / len(other)
        residuals = people - used * seen
        spread = _variance(residuals)
        if spread and tuned and 0 < weight < 1:
            outside = (residuals - residuals.mean()) / (1 - 1 / n - np.minimum(leverage, MOST_LEVERAGE))
            spread = float((outside**2).sum()) / (len(people) - 1) * (1 - 1 / n)
        spreads.append(_Spread(one.share**2 / len(people), spread, len(people) - 1))
    from_checked = squares = 0.0
    for members in _neighbours([one.freedom for one in spreads], LEAST_FREEDOM):
        group = [spreads[one] for one in members]
        degrees = sum(one.freedom for one in group)
        variance = sum(one.variance * one.freedom for one in group) / degrees
        part = sum(one.weight for one in group) * variance
        from_checked += part
        squares += part**2 / degrees
    applies = sum(one.share * one.mean(weight)[1] for one in strata)
    freedom = from_checked**2 / squares if squares > 0 else math.inf
    return math.sqrt(from_others + from_checked) / applies, freedom


class _Spread(NamedTuple):
    """The spread of a stratum's residuals. weight: the factor of `variance` in the sum over the strata."""

    weight: float
    variance: float
    freedom: int


def _leverages(strata: Sequence[_Stratum], ratio: float) -> list[np.ndarray]:
    """Return each checked query's leverage on λ, float64 [n] by stratum; together they add up to 1, or all are 0."""
    pulls = []
    for one in strata:
        _, seen, _ = one.residuals(ratio)
        pulls.append((one.share / len(seen) * (seen - seen.mean())) ** 2 * bool(one.other.size))
    total = sum(float(one.sum()) for one in pulls)
    return [one / total if total > 0 else np.zeros(len(one)) for one in pulls]


def _variance(values: np.ndarray) -> float:
    found = float(values.var(ddof=1)) if len(values) > 1 else 0.0
    return found if found > _ROUNDING else 0.0
