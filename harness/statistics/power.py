"""How many queries it takes to tell two runs apart, and which differences today's queries can find.

Power is the chance that the test finds an existing difference. Formulas for Student's test assume normal differences.
Differences of rankings are not normal: most queries tie, and the rest take a few values. So the test itself is repeated
on samples of the observed differences. REPEATS samples of queries are drawn with replacement, and the signs of
their differences are flipped as in `significance`. If more than FLIPPED differences of a sample are not 0, the flipped
sums are treated as normal. If more than SAMPLED are not 0, the answer is the power of Student's test, by the noncentral
t distribution. `scripts/benchmark.py power` compares these shortcuts with the test itself.

To assume another true difference, the observed differences d are weighted by exp(θd), where θ makes their weighted
mean the assumed difference (exponential tilting; Efron 1981). Ties remain ties, no difference lies outside the observed
range, and a normal distribution is only shifted.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from harness.statistics.significance import FEW, RESAMPLES, SEED, Difference, differences

REPEATS = 3000  # number of samples; power then has a standard error of 0.007
FLIPS = 1000  # number of random flips of the signs of a sample
EXACT = 11  # up to this many differing queries in a sample, all possible flips are tried
FLIPPED = 150  # beyond this many differing queries in a sample, flipped sums are treated as normal
SAMPLED = 3000  # beyond this many differing queries, Student's test gives the answer
MOST = 10_000_000  # maximum number of queries to give as an answer
_ENOUGH = 0.004  # a search ends if power is this close to the wanted power
_CLOSE = 0.003  # a search also ends if the relative width of its bracket is at most this
_CELLS = 1 << 21  # maximum number of sums in memory at once
_TIE = 1e-12
_FLOAT32_ROUNDING = 1e-5  # float32 sums are equal if they differ by less than this share of the sum of |differences|


@dataclass(frozen=True, eq=False)
class Population:
    """The distribution of the differences of two runs on queries.

    values: float64 [V], the differences other than 0, ascending.
    shares: float64 [V], the share of queries with each difference; all other queries tie.
    """

    values: np.ndarray
    shares: np.ndarray

    @classmethod
    def of(cls, differences: np.ndarray) -> Population:
        """Make a population of the observed differences, float64 [n] without NaN."""
        values, counts = np.unique(differences.round(12), return_counts=True)
        differ = values != 0
        return cls(values[differ], counts[differ] / len(differences))

    @property
    def differ(self) -> float:
        return float(self.shares.sum())

    @property
    def mean(self) -> float:
        return float(self.shares @ self.values)

    @property
    def sd(self) -> float:
        return math.sqrt(max(float(self.shares @ self.values**2) - self.mean**2, 0.0))

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the greatest difference."""
        occur = [*self.values[[0, -1]].tolist(), *([0.0] if self.differ < 1 - _TIE else [])]
        return min(occur), max(occur)

    def with_mean(self, mean: float) -> Population:
        """Return the population, weighted to have this mean. Raise ValueError unless the mean is between the `ends`."""
        from scipy.optimize import brentq

        low, high = self.ends
        if not low < mean < high:
            raise ValueError(f"{mean} is not between {low} and {high}")
        values, shares = np.append(self.values, 0.0), np.append(self.shares, max(1 - self.differ, 0.0))

        def weights(tilt: float) -> np.ndarray:
            weighed: np.ndarray = shares * np.exp(tilt * values - np.max(tilt * values))
            return weighed / weighed.sum()

        reach = 1.0
        while weights(reach) @ values < mean or weights(-reach) @ values > mean:
            reach *= 2
        tilt = brentq(lambda tilt: float(weights(tilt) @ values) - mean, -reach, reach, xtol=1e-12)
        return Population(self.values, weights(tilt)[:-1])


@dataclass(frozen=True)
class FlipTest:
    """The two-sided paired randomisation test. It finds a difference if p <= alpha. seed: of all random draws."""

    alpha: float = 0.05
    seed: int = 0

    @property
    def least(self) -> int:
        """The least number of differing queries that can give p <= alpha. With n of them, p is at least 2 / 2^n."""
        return math.ceil(1 - math.log2(self.alpha))

    def power(self, population: Population, queries: int) -> float:
        """Return the share of samples, of `queries` queries each, in which the test finds a difference."""
        if queries * population.differ > SAMPLED:
            return self.students(population.mean / population.sd, queries)
        samples = self._samples(population, queries)
        sums = np.abs(samples.sum(axis=1))
        if samples.shape[1] > FLIPPED:
            from scipy.special import ndtri

            found = sums >= -ndtri(self.alpha / 2) * np.sqrt((samples**2).sum(axis=1))
            return float((found & (sums > 0)).mean())
        few = (samples != 0).sum(axis=1) <= EXACT
        found = np.zeros(len(samples), bool)
        for rows, signs in ((few, self._all_signs), (~few, self._signs)):
            width = min(samples.shape[1], signs.shape[1])
            found[rows] = self._found(samples[rows][:, :width], sums[rows], signs[:, :width])
        return float(found.mean())

    def students(self, effect: float, queries: float) -> float:
        """Return the power of Student's paired test for normal differences. effect: mean / standard deviation."""
        from scipy.special import nctdtr, stdtrit

        if queries < 2:
            return 0.0
        limit, centre = float(stdtrit(queries - 1, 1 - self.alpha / 2)), abs(effect) * math.sqrt(queries)
        missed: float = nctdtr(queries - 1, centre, limit) - nctdtr(queries - 1, centre, -limit)
        return 1 - missed if missed == missed else 1.0

    def students_needed(self, effect: float, power: float) -> float:
        """Return the number of queries that Student's test needs for this power, unrounded; inf for an effect of 0."""
        from scipy.optimize import brentq

        if effect == 0:
            return math.inf
        if self.students(effect, 2) >= power:
            return 2.0
        most = 4.0
        while self.students(effect, most) < power:
            most *= 2
        needed: float = brentq(lambda queries: self.students(effect, queries) - power, 2, most)
        return needed

    def queries_needed(self, population: Population, power: float) -> int | None:
        """Return the number of queries that gives this power; None for a mean of 0, or if more than MOST are needed."""
        if abs(population.mean) <= _TIE:
            return None
        effect = abs(population.mean) / population.sd if population.sd else math.inf
        powers = functools.cache(functools.partial(self.power, population))
        start = min(max(2.0, self._distance(power) / effect), math.sqrt(MOST))  # Power depends on sqrt(queries).
        root = self._crossing(lambda root: powers(round(root**2)), power, start, math.sqrt(2), math.sqrt(MOST))
        return None if root is None else round(root**2)

    def smallest_difference(self, population: Population, queries: int, power: float) -> float | None:
        """Return the least mean difference, in the observed direction, that `queries` queries find with this power.

        Return None if `with_mean` cannot shift the observed differences that far.
        """
        side = 1 if population.mean >= 0 else -1
        mirrored = Population(side * population.values[::side], population.shares[::side])
        least, most = max(0.0, mirrored.ends[0]), (1 - 1e-6) * mirrored.ends[1]
        start = self._distance(power) * mirrored.sd / math.sqrt(queries)
        found = None
        if least < most:
            start = min(max(start, least + 0.01 * (most - least)), (least + most) / 2)
            found = self._crossing(
                lambda mean: self.power(mirrored.with_mean(mean), queries), power, start, least, most
            )
        return None if found is None else side * found

    def _distance(self, power: float) -> float:
        from scipy.special import ndtri

        return float(ndtri(min(max(power, 0.02), 0.98)) - ndtri(self.alpha / 2))

    def _crossing(
        self, power_at: Callable[[float], float], power: float, start: float, least: float, most: float
    ) -> float | None:
        """Return where `power_at` reaches this power between `least` and `most`, or None. start: a first guess."""
        low, high, place = least, most, start
        while high - low > _CLOSE * high:
            found = power_at(place)
            if abs(found - power) <= _ENOUGH:
                return place
            low, high = (low, place) if found > power else (place, high)
            guess = place * self._distance(power) / max(self._distance(found), 0.3)
            room = 0.1 * (high - low) if high < most else 0.0
            place = min(max(guess, low + room), high - room)
            if place in (low, high):
                place = (low + high) / 2
        return high if high < most or power_at(most) >= power else None

    def _samples(self, population: Population, queries: int) -> np.ndarray:
        """Return each sample's differences, float32 [REPEATS, K], padded with 0. More `queries` make them longer."""
        from scipy.stats import binom

        generator = np.random.default_rng(self.seed)
        shares = population.shares / population.differ
        counts = binom.ppf(generator.random(REPEATS), queries, min(population.differ, 1.0)).astype(np.intp)
        drawn = generator.random((max(int(counts.max()), 1), REPEATS)).T
        places = np.minimum(np.searchsorted(np.cumsum(shares), drawn, side="right"), len(shares) - 1)
        values = population.values.astype(np.float32)
        return np.where(np.arange(drawn.shape[1]) < counts[:, None], values[places], np.float32(0))

    def _found(self, samples: np.ndarray, sums: np.ndarray, signs: np.ndarray) -> np.ndarray:
        """Return whether p <= alpha for each of R samples, bool [R]. signs: float32 [F, K], all or random flips."""
        least = sums - _FLOAT32_ROUNDING * np.abs(samples).sum(axis=1)
        step = max(1, _CELLS // len(signs))
        as_far = np.zeros(len(samples))
        for start in range(0, len(samples), step):
            some = slice(start, start + step)
            flipped = samples[some] @ signs.T
            as_far[some] = (np.abs(flipped, out=flipped) >= least[some, None]).sum(axis=1)
        return as_far <= self.alpha * len(signs)

    @cached_property
    def _all_signs(self) -> np.ndarray:
        """All flips of EXACT signs, float32 [F, EXACT]. The first is always +: opposite signs give the same |sum|."""
        flips = np.arange(1 << (EXACT - 1))[:, None] >> np.arange(EXACT - 1) & 1
        return np.hstack([np.ones((len(flips), 1), np.float32), 1 - 2 * flips.astype(np.float32)])

    @cached_property
    def _signs(self) -> np.ndarray:
        generator = np.random.default_rng([self.seed, 1])
        return 1 - 2 * generator.integers(0, 2, (FLIPS, FLIPPED)).astype(np.float32)


TIMES = (0.5, 1, 2, 4)  # numbers of queries in `curve`, as multiples of today's number


@dataclass(frozen=True)
class Planned:
    """A number of queries, their power for the observed difference, and the smallest difference that they find."""

    queries: int
    power: float
    smallest: float | None


@dataclass(frozen=True)
class TellingApart:
    """The observed difference of two runs, and how many queries it takes to find such a difference.

    sd: the standard deviation of the differences (ddof 1).
    wanted: the wanted power, 0 to 1.
    queries_needed: number of queries that find the observed difference with the wanted power; None if above MOST.
    low, high: 95 % interval of `queries_needed`. None: the effect may be 0, or more than MOST queries are needed.
    smallest_difference: the smallest difference that today's queries find with the wanted power, or None.
    power_now: the power of today's queries for the observed difference.
    curve: the power of other numbers of queries.
    """

    found: Difference
    sd: float
    wanted: float
    alpha: float
    queries_needed: int | None
    low: int | None
    high: int | None
    smallest_difference: float | None
    power_now: float
    curve: tuple[Planned, ...]
    notes: tuple[str, ...]


def telling_apart(gaps: np.ndarray, wanted: float = 0.8, alpha: float = 0.05) -> TellingApart:
    """Return what it takes to tell two runs apart. Raise ValueError for fewer than two queries or no difference.

    gaps: float64 [Q], the first run's value minus the second's; NaN where the measure does not apply.
    """
    known = gaps[~np.isnan(gaps)]
    if len(known) < 2 or not known.any():
        raise ValueError("there are fewer than two queries, or the runs do not differ on any query")
    [found] = differences(np.stack([gaps, np.zeros(len(gaps))])[:, None], SEED, RESAMPLES)[0, 1]
    test, population = FlipTest(alpha), Population.of(known)
    needed = test.queries_needed(population, wanted)
    low, high = needed_between(test, known, needed, wanted)
    n = len(known)
    return TellingApart(
        found=found,
        sd=float(known.std(ddof=1)),
        wanted=wanted,
        alpha=alpha,
        queries_needed=needed,
        low=low,
        high=high,
        smallest_difference=test.smallest_difference(population, n, wanted),
        power_now=test.power(population, n),
        curve=tuple(_curve(test, population, n, needed, wanted)),
        notes=tuple(_notes(found, needed, high)),
    )


def effect_interval(known: np.ndarray) -> tuple[float, float]:
    """Return the 95 % interval of the effect (mean / standard deviation) of differences [n]; NaN if all are equal.

    By the delta method, with skewness g and kurtosis k, the variance of the effect e is (1 - g e + (k - 1) e² / 4) / n
    (Mertens 2002, for the Sharpe ratio).
    """
    from scipy.special import stdtrit

    n, spread = len(known), known.std()
    if spread <= _TIE * np.abs(known).max():
        return math.nan, math.nan
    scaled, effect = (known - known.mean()) / spread, float(known.mean() / known.std(ddof=1))
    skewness, kurtosis = float((scaled**3).mean()), float((scaled**4).mean())
    variance = max(1 - skewness * effect + (kurtosis - 1) * effect**2 / 4, 0.0) / n
    margin = float(stdtrit(n - 1, 0.975)) * math.sqrt(variance)
    return effect - margin, effect + margin


def needed_between(
    test: FlipTest, known: np.ndarray, needed: int | None, wanted: float
) -> tuple[int | None, int | None]:
    """Return the 95 % interval of the number of queries needed, the lower end first.

    Student's test gives a number of queries for each end of the effect's interval. Both numbers are multiplied by
    x / y: for the observed effect, `test` needs x queries and Student's test needs y. An end is None if no number is
    enough, or if more than MOST are needed.

    known: the observed differences [n]. needed: the number of queries that `test` needs to find the mean of `known`.
    """
    low, high = effect_interval(known)
    if math.isnan(low):
        return needed, needed
    effect = abs(float(known.mean() / known.std(ddof=1)))
    factor = needed / test.students_needed(effect, wanted) if needed else 1.0
    least = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
    fewer, more = (factor * test.students_needed(end, wanted) for end in (max(abs(low), abs(high)), least))
    return (
        None if fewer > MOST else max(round(fewer), test.least),
        None if more > MOST else max(round(more), test.least),
    )


def _curve(test: FlipTest, population: Population, n: int, needed: int | None, wanted: float) -> Iterator[Planned]:
    numbers = {max(2, round(times * n)) for times in TIMES} | ({needed} if needed and needed <= MOST else set())
    for queries in sorted(numbers):
        smallest = test.smallest_difference(population, queries, wanted)
        yield Planned(queries, test.power(population, queries), smallest)


def _notes(found: Difference, needed: int | None, high: int | None) -> Iterator[str]:
    differ = found.wins + found.losses
    if differ < FEW:
        yield f"Only {differ} of {found.n:,} queries differ: all of these numbers depend on them."
    if needed is None:
        yield f"The observed difference is 0 or so small that even {MOST:,} queries are too few to find it."
    elif high is None:
        yield (
            "These queries do not rule out that the runs are equally good. If they are, no number of queries tells "
            "them apart: the queries needed have no upper limit."
        )
    yield (
        "All of this assumes that further queries are like these: from the same source, and labelled in the same way. "
        "The power of today's queries for the observed difference says no more than p does: at p = 0.05, the power is "
        "about 50 %. A low power does not mean that there is no difference."
    )
