"""Agreement of raters: against scikit-learn and the krippendorff package, by hand, and what weights are for."""

import math

import krippendorff
import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import cohen_kappa_score

from harness.statistics.agreement import (
    Drawn,
    Proportion,
    Statistic,
    agreed,
    alpha,
    at_threshold,
    coincidences,
    estimates,
    kappa,
    sensitivity,
    specificity,
    tables_of,
)


def estimate(tables, sample, of, undefined="", seed=0):
    return estimates(tables, sample, {"it": Statistic(of, undefined)}, seed)["it"]


def rated(seed, pairs=200, queries=12):
    """(query, first grade, second grade) of random pairs whose raters agree now and then."""
    generator = np.random.default_rng(seed)
    first = generator.integers(0, 4, pairs)
    second = np.where(generator.random(pairs) < 0.5, first, generator.integers(0, 4, pairs))
    return generator.integers(0, queries, pairs), first, second


@pytest.mark.parametrize("seed", range(3))
def test_kappa_is_scikit_learns_with_weights_of_pairs(seed):
    queries, first, second = rated(seed)
    weights = np.random.default_rng(seed + 100).uniform(0.5, 4, 12)
    table = (tables_of(queries, first, second, (12, 4)) * weights[:, None, None]).sum(axis=0)
    by_pair = weights[queries]
    assert kappa(table) == pytest.approx(
        cohen_kappa_score(first, second, weights="quadratic", sample_weight=by_pair), abs=1e-12
    )
    for threshold in (1, 2, 3):
        theirs = cohen_kappa_score(first >= threshold, second >= threshold, sample_weight=by_pair)
        assert kappa(at_threshold(table, threshold)) == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize("raters", [2, 3, 5])
def test_alpha_is_the_krippendorff_packages_with_gaps(raters):
    generator = np.random.default_rng(raters)
    truth = generator.integers(0, 4, 60)
    grades = np.clip(truth + generator.integers(-1, 2, (raters, 60)), 0, 3).astype(float)
    grades[generator.random(grades.shape) < 0.3] = np.nan  # some units are left with one rater, some with none
    counts = np.array([[(unit == grade).sum() for grade in range(4)] for unit in grades.T])
    theirs = krippendorff.alpha(grades, level_of_measurement="ordinal", value_domain=[0, 1, 2, 3])
    assert alpha(coincidences(counts).sum(axis=0)) == pytest.approx(theirs, abs=1e-12)


def test_a_table_by_hand():
    # Both relevant 20, only the first 5, only the second 10, neither 15: agreed 35/50 = .7, by chance
    # .5 * .6 + .5 * .4 = .5, so that kappa is (.7 - .5) / (1 - .5) = .4.
    table = np.array([[15.0, 10.0], [5.0, 20.0]])
    assert kappa(table) == pytest.approx(0.4)
    assert agreed(table) == pytest.approx(0.7)
    assert sensitivity(table) == pytest.approx(20 / 25)
    assert specificity(table) == pytest.approx(15 / 25)


def test_the_threshold_divides_grades():
    table = np.arange(16.0).reshape(4, 4)
    # Rows and columns 0 and 1 lie below grade 2: 0+1+4+5, 2+3+6+7, 8+9+12+13, 10+11+14+15.
    assert at_threshold(np.stack([table, 2 * table]), 2).tolist() == [[[10, 18], [42, 50]], [[20, 36], [84, 100]]]


def test_every_pair_counts_as_often_as_its_query_stands_for_others():
    # One of 9 queries of stratum a was checked, where both agree on both pairs, and two of 2 of stratum b, where they
    # never do: 18 pairs in agreement, 4 not.
    tables = np.zeros((3, 2, 2))
    tables[0] = np.eye(2)
    tables[1:] = 1 - np.eye(2)
    sample = Drawn(("a", "b", "b"), {"a": 9, "b": 2})
    assert sample.weights.tolist() == [9, 1, 1]
    found = estimate(tables, sample, agreed)
    assert found.value == pytest.approx(18 / 22)
    assert (found.queries, found.pairs) == (3, 6)
    assert estimate(tables, Drawn(("a", "b", "b"), {}), agreed).value == pytest.approx(1 / 3)


def test_intervals_are_of_queries_not_of_pairs():
    """Forty pairs that are all alike within their query say no more than one pair does."""
    _queries, first, second = rated(3, pairs=12)
    tables = tables_of(np.arange(12), first, second, (12, 4))
    sample = Drawn(("all",) * 12, {"all": 100})
    few, many = (estimate(times * tables, sample, agreed) for times in (1, 40))
    assert (few.low, few.high) == pytest.approx((many.low, many.high))
    assert few == estimate(tables, sample, agreed)  # the draws are those of the seed


def test_strata_of_one_query_do_not_lower_the_spread_to_nothing():
    values = np.array([[1.0], [0.0], [5.0], [5.0]])
    sample = Drawn(("a", "b", "c", "c"), {"a": 5, "b": 5, "c": 2})
    # Strata a and b are drawn together: twice one of their queries, for which five others stand.
    assert {tuple(one) for one in sample.resampled(values, seed=0)} == {(10.0 + 10.0,), (0.0 + 10.0,)}
    alone = Drawn(("a", "c", "c"), {"a": 9, "c": 2})  # a is drawn together with the smallest other stratum
    assert len({tuple(one) for one in alone.resampled(values[[0, 2, 3]], seed=0)}) > 1


def test_resampled_totals_have_the_variance_of_a_stratified_mean():
    # By hand: the sum over strata of N_s^2 s_s^2 / n_s, with a variance of (n - 1), not n, degrees of freedom.
    values = np.array([[0.0], [4.0], [1.0], [2.0], [6.0]])
    sample = Drawn(("a", "a", "b", "b", "b"), {"a": 10, "b": 30})
    variance = 10**2 * np.var([0, 4], ddof=1) / 2 + 30**2 * np.var([1, 2, 6], ddof=1) / 3
    totals = sample.resampled(values, seed=1, resamples=50_000)
    assert totals.mean() == pytest.approx(10 * 2 + 30 * 3, rel=0.01)
    assert totals.var() == pytest.approx(variance, rel=0.03)


ALIKE, ONE_SIDED, NONE = np.array([[3.0, 0], [0, 0]]), np.array([[3.0, 1], [0, 0]]), np.array([[0, 0], [1.0, 2]])
RARE = [np.diag([5.0, 1]), *[np.diag([5.0, 0])] * 5]
FEWER, SAME, OFTEN = (
    "fewer than 5 queries: no interval",
    "every draw of queries gives the same value: no interval",
    "undefined if a few queries are left out: no interval",
)


@pytest.mark.parametrize(
    ("tables", "statistic", "value", "queries", "note"),
    [
        ([ALIKE] * 4, kappa, math.nan, 4, "all the same"),  # both find nothing relevant
        ([ONE_SIDED] * 4, kappa, math.nan, 4, "all the same"),  # the first finds nothing relevant
        ([ONE_SIDED] * 4, sensitivity, math.nan, 4, "all the same"),
        ([NONE] * 4, specificity, math.nan, 4, "all the same"),
        ([ALIKE] * 4, alpha, math.nan, 4, "all the same"),
        ([np.zeros((2, 2))] * 4, kappa, math.nan, 0, "no pair judged by both raters"),
        ([np.zeros((2, 2)), *[np.eye(2)] * 3], kappa, 1, 3, FEWER),
        ([np.eye(2)] * 6, agreed, 1, 6, SAME),  # not an interval of width 0
        (RARE, kappa, 1, 6, OFTEN),  # many draws lack the rare class
    ],
)
def test_what_cannot_be_told_has_a_reason(tables, statistic, value, queries, note):
    found = estimate(np.array(tables), Drawn(("a",) * len(tables), {"a": 9}), statistic, "all the same")
    assert (found.value, found.queries, found.note) == (pytest.approx(value, nan_ok=True), queries, note)
    assert math.isnan(found.low)
    assert math.isnan(found.high)


@pytest.mark.parametrize(("count", "of"), [(0, 1), (1, 1), (0, 20), (20, 20), (7, 20), (999, 1000), (500, 1000)])
def test_the_interval_of_a_proportion_is_scipys(count, of):
    one = Proportion(count, of)
    wanted = binomtest(count, of).proportion_ci(method="wilson")
    assert (one.share, one.low, one.high) == pytest.approx((count / of, wanted.low, wanted.high), abs=1e-12)
    assert Proportion(18, 20).text() == "18 of 20 (90 %, 95 % interval 70 to 97 %)"
