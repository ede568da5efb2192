"""Power: closed formulas where differences are normal, the test itself where they are not, tables worked by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from harness.statistics.power import FlipTest, Population, effect_interval, telling_apart
from harness.statistics.significance import sign_flip_test

TEST = FlipTest()
CONTEST = np.repeat([1, 0.5, 1 / 3, 0, -1 / 3, -0.5], [4, 5, 6, 91, 2, 2])  # as rankings differ: most queries tie
POPULATIONS = {
    "ties": CONTEST,
    "sparse": np.repeat([1.0, -1.0, 0.0], [30, 5, 965]),
    "few queries": np.repeat([1.0, 0.5, 0.0, -0.5], [3, 3, 3, 1]),
    "one-sided": np.repeat([1.0, 0.5, 0.0], [10, 5, 85]),
    "skewed": stats.expon.ppf(np.arange(0.5, 400) / 400) - 0.6,
}


def rejected(population, queries, samples=600):
    """How often the test of `harness compare` finds a difference in samples of a population."""
    zeros = max(1 - population.differ, 0.0)
    values, shares = np.append(population.values, 0.0), np.append(population.shares, zeros)
    drawn = np.random.default_rng(8).choice(values, (samples, queries), p=shares / shares.sum())
    p = np.concatenate([sign_flip_test(drawn[i : i + 50], 3, 2000)[0] for i in range(0, samples, 50)])
    return (p <= 0.05).mean()


def normal(mean, n=400):
    """Differences that are as normal as n numbers can be, with standard deviation 1."""
    values = stats.norm.ppf(np.arange(0.5, n) / n)
    return Population.of(mean + values / values.std())


def students_power(effect, n, alpha=0.05):
    """From the textbook, by scipy's own noncentral t distribution."""
    limit, centre = stats.t.ppf(1 - alpha / 2, n - 1), effect * math.sqrt(n)
    return stats.nct.sf(limit, n - 1, centre) + stats.nct.cdf(-limit, n - 1, centre)


@pytest.mark.parametrize(
    ("effect", "n", "alpha", "power"),
    # G*Power 3.1, "Means: difference between two dependent means": dz, n, alpha -> power.
    [(0.5, 34, 0.05, 0.8078), (0.2, 199, 0.05, 0.8017), (0.8, 15, 0.05, 0.8213), (0.5, 52, 0.01, 0.8274)],
)
def test_normal_differences_have_the_power_of_the_textbook(effect, n, alpha, power):
    assert FlipTest(alpha).students(effect, n) == pytest.approx(students_power(effect, n, alpha), abs=1e-9)
    assert FlipTest(alpha).power(normal(effect), n) == pytest.approx(students_power(effect, n, alpha), abs=0.025)


def test_six_queries_that_all_differ_are_the_least():
    """All 2^n ways to flip n equal differences: 2 of 32 are as far from 0 for five, 2 of 64 for six."""
    same = Population.of(np.full(9, 0.25))
    assert [TEST.power(same, n) for n in (5, 6, 7)] == [0, 1, 1]
    assert TEST.queries_needed(same, 0.8) == 6
    # Half of the queries tie: of n, at least six must differ. 1 - binom.cdf(5, 14, .5) = .788, of 15 = .849.
    half = Population.of(np.array([0.25, 0.0]))
    assert TEST.power(half, 15) == pytest.approx(stats.binom.sf(5, 15, 0.5), abs=0.02)
    assert TEST.queries_needed(half, 0.8) == 15


@pytest.mark.parametrize("name", POPULATIONS)
def test_the_test_finds_the_difference_in_four_of_five_samples(name):
    """600 samples: a standard error of 0.016."""
    population = Population.of(POPULATIONS[name])
    needed = TEST.queries_needed(population, 0.8)
    assert rejected(population, needed) == pytest.approx(0.8, abs=0.045)


def test_the_smallest_difference_is_found_in_four_of_five_samples_and_none_where_none_is():
    population = Population.of(CONTEST)
    smallest = TEST.smallest_difference(population, 110, 0.8)
    assert rejected(population.with_mean(smallest), 110) == pytest.approx(0.8, abs=0.045)
    assert TEST.smallest_difference(Population.of(-CONTEST), 110, 0.8) == pytest.approx(-smallest, rel=0.03)
    assert TEST.power(population.with_mean(0), 110) <= 0.06


def test_a_tilted_population_keeps_its_kinds_of_differences():
    population = Population.of(CONTEST)
    tilted = population.with_mean(0.2)
    assert tilted.mean == pytest.approx(0.2)
    assert tilted.values.tolist() == population.values.tolist()
    # exp(θd): the logarithms of the factors lie on a line.
    factors = np.log(tilted.shares / population.shares)
    slopes = np.diff(factors) / np.diff(population.values)
    assert slopes == pytest.approx(slopes[0])
    # Normal differences are only shifted, far from the ends of what occurs.
    assert normal(0.0, 4000).with_mean(0.3).sd == pytest.approx(1, abs=0.01)
    for mean in (-0.5, 1.0):
        with pytest.raises(ValueError, match="is not between"):
            population.with_mean(mean)


@given(st.lists(st.sampled_from([-1, -0.5, 0, 0, 0, 1 / 3, 0.5, 1]), min_size=2, max_size=30), st.floats(0.02, 0.98))
def test_any_mean_between_the_ends_is_met(values, share):
    population = Population.of(np.array(values, float))
    if len(population.values):
        low, high = population.ends
        if low < high:
            mean = low + share * (high - low)
            tilted = population.with_mean(mean)
            assert tilted.mean == pytest.approx(mean, abs=1e-9)
            assert tilted.differ <= 1 + 1e-9


def test_many_queries_go_by_the_normal_distribution_of_means():
    """Beyond SAMPLED queries that differ: Lehr's rule, 16 / effect² for two groups, is 7.85 / effect² for pairs."""
    tiny = normal(0.02)
    assert TEST.queries_needed(tiny, 0.8) == pytest.approx(7.85 / 0.02**2, rel=0.01)
    assert TEST.queries_needed(normal(1e-4), 0.8) is None  # 785 million


def test_the_observed_difference_and_what_it_takes():
    found = telling_apart(np.append(CONTEST, np.nan))
    assert (found.found.n, found.found.wins, found.found.losses) == (110, 15, 4)
    assert found.sd == pytest.approx(CONTEST.std(ddof=1))
    assert found.low < found.queries_needed < found.high
    assert found.power_now == pytest.approx(0.8, abs=0.06)  # about as many queries as there are
    assert found.smallest_difference == pytest.approx(CONTEST.mean(), rel=0.1)
    powers, smallest = zip(*((one.power, one.smallest) for one in found.curve), strict=True)
    assert [*powers] == sorted(powers)
    assert [*smallest] == sorted(smallest, reverse=True)
    assert any("Only 19 of 110 queries differ" in note for note in found.notes)


def test_an_interval_with_0_has_no_upper_limit():
    gaps = np.repeat([1, 0.5, 0, -0.5, -1], [7, 8, 70, 8, 6])
    found = telling_apart(gaps)
    assert found.found.low < 0 < found.found.high
    assert found.high is None
    assert found.low < found.queries_needed
    assert any("no upper limit" in note for note in found.notes)
    none = telling_apart(np.array([1.0, -1.0] * 15))
    assert (none.queries_needed, none.high) == (None, None)
    assert none.smallest_difference > 0


def test_the_interval_of_the_effect_is_that_of_the_noncentral_t():
    """For normal differences; the exact ends are the noncentralities with 2.5 % and 97.5 % below the observed t."""
    values = stats.norm.ppf(np.arange(0.5, 400) / 400)
    low, high = effect_interval(0.5 + values / values.std(ddof=1))
    observed = 0.5 * math.sqrt(400)
    ends = [optimize.brentq(lambda one, q=q: stats.nct.cdf(observed, 399, one) - q, 0, 30) for q in (0.975, 0.025)]
    assert (low, high) == pytest.approx([end / math.sqrt(400) for end in ends], abs=0.004)
    assert all(map(math.isnan, effect_interval(np.full(5, 0.5))))


def test_too_few_queries_show_nothing():
    found = telling_apart(np.array([1.0, 0.5, 0.0, 0.0]))  # of four queries none has p up to 0.05
    assert (found.smallest_difference, found.power_now, found.queries_needed > 4) == (None, 0, True)


@pytest.mark.parametrize("gaps", [[0.0, 0.0, 0.0], [0.5], [np.nan, 0.5], []])
def test_no_difference_cannot_be_planned_for(gaps):
    with pytest.raises(ValueError, match="fewer than two queries"):
        telling_apart(np.array(gaps))
