"""Whether a run holds against a baseline: hand-worked cases, and the two error rates by simulation."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from harness.statistics.guard import decided, judged_changes, least_mean, least_queries, worst
from harness.statistics.significance import paired_differences

SIZES = np.array([1, 1 / 2, 1 / 3, 2 / 3, 1 / 6])  # differences of the contest's measure


def one_change(gaps, margin=0.02, **how):
    gaps = np.asarray(gaps, float)
    before = np.full(len(gaps), 0.5)
    [found] = judged_changes(["m"], before[None], (before + gaps)[None], margin, **how)
    return found


def test_the_bound_without_differences_is_that_of_the_largest_unseen_share():
    # Of 50 queries none lost. A share q of losing queries goes unseen with probability (1 - q)^50, which is 2.5 % for
    # q = 1 - 0.025^(1/50) = 0.0711: the upper end by Clopper and Pearson. If each of them lost 1, the mean is -0.0711.
    exact = stats.binomtest(0, 50).proportion_ci(0.95).high
    assert exact == pytest.approx(1 - 0.025 ** (1 / 50))
    assert least_mean(np.zeros(50), -1.0) == pytest.approx(-exact, rel=0.03)
    # So 183 queries without any change rule out a drop of 0.02, and 182 do not: 0.98^183 = 0.0248, 0.98^182 = 0.0253.
    assert least_queries(0.02) == 183


def test_the_bound_grows_with_losses_and_shrinks_with_gains():
    def bound(losses, gains):
        return least_mean(np.repeat([-1.0, 0.5, 0.0], [losses, gains, 100 - losses - gains]), -1.0)

    assert bound(3, 0) < bound(1, 0) < bound(0, 0) < bound(0, 5)
    # With losses of 1 alone, the bound is that of Clopper and Pearson for their share, but for the draws.
    assert bound(3, 0) == pytest.approx(-stats.binomtest(3, 100).proportion_ci(0.95).high, rel=0.03)


@pytest.mark.parametrize(
    ("gaps", "how", "outcome"),
    [
        (np.zeros(400), {}, "holds"),  # 400 queries without a change: at most 0.0092 is lost
        (np.zeros(100), {}, "cannot tell"),  # up to 0.036 may be lost
        (np.zeros(100), {"same": True}, "holds"),  # nothing can be lost: the lists are the same
        (np.repeat([-1.0, 0.0], [4, 96]), {}, "cannot tell"),  # p is 2 / 2^4 = 0.125
        (np.repeat([-1.0, 0.0], [8, 92]), {}, "regressed"),  # p is 2 / 2^8
        (np.repeat([1.0, 0.0], [8, 92]), {}, "holds"),  # what 100 queries may leave unseen is less than these gains
        (np.repeat([1.0, 0.0], [40, 60]), {}, "holds"),
        (np.repeat([-0.01, 0.0], [60, 340]), {}, "holds"),  # certainly worse, but by far less than the margin
        (np.repeat([-1.0, 1.0, 0.0], [30, 20, 50]), {}, "cannot tell"),
        ([math.nan, math.nan], {}, "cannot tell"),
    ],
)
def test_outcomes(gaps, how, outcome):
    assert one_change(gaps, **how).outcome == outcome


def test_what_the_queries_show_and_how_many_are_needed():
    found = one_change(np.repeat([-1.0, 1.0, 0.0], [30, 26, 144]), margin=0.05)
    assert found.outcome == "cannot tell"
    # Student's test: the drop of 0.8 power is (1.96 + 0.84) sd / sqrt(n); flips find nearly the same.
    sd = math.sqrt(56 / 200)
    assert found.shows == pytest.approx(2.8 * sd / math.sqrt(200), rel=0.1)
    assert found.needed == pytest.approx((2.8 * sd / 0.05) ** 2, rel=0.1)
    assert one_change(np.zeros(100)).needed == least_queries(0.02)
    same = one_change(np.zeros(100), same=True)
    assert (same.shows, same.needed, same.difference.p) == (None, None, 1.0)


def test_p_is_corrected_over_the_measures_and_queries_without_a_value_do_not_count():
    gaps = np.repeat([-1.0, 0.0, math.nan], [6, 60, 4])
    [alone] = judged_changes(["a"], np.zeros((1, 70)), gaps[None], 0.02)
    assert (alone.outcome, alone.difference.p, alone.difference.n) == ("regressed", 2 / 2**6, 66)
    twice = judged_changes(["a", "b"], np.zeros((2, 70)), np.stack([gaps, gaps]), 0.02)
    assert [one.difference.p_holm for one in twice] == [2 * 2 / 2**6] * 2  # 0.0625: no longer below 0.05
    assert [one.outcome for one in twice] == ["cannot tell"] * 2


def test_the_worst_outcome():
    assert worst([]) == worst(["holds"]) == "holds"
    assert worst(["holds", "cannot tell"]) == "cannot tell"
    assert worst(["cannot tell", "holds", "regressed"]) == "regressed"


@pytest.mark.slow
@pytest.mark.parametrize(("queries", "differ"), [(220, 0.02), (220, 0.1), (960, 0.1)])
def test_error_rates(queries, differ):
    """Of 1,000 equally good pairs, at most 5 % regress; of 1,000 that are worse by the margin, at most 5 % hold."""
    rng, margin = np.random.default_rng(7), 0.02 if differ > 0.02 else 0.01

    def outcomes(mean):
        better = (mean / (differ * SIZES.mean()) + 1) / 2  # the share of gains among differences that gives this mean
        sizes = rng.choice(SIZES, (1000, queries)) * np.where(rng.random((1000, queries)) < better, 1, -1)
        rows = np.where(rng.random((1000, queries)) < differ, sizes, 0.0)
        found = [replace(one, p_holm=one.p) for one in paired_differences(rows, resamples=1000)]
        return [decided(row, one, margin)[0] for row, one in zip(rows, found, strict=True)]

    assert outcomes(0).count("regressed") <= 50
    assert outcomes(-margin).count("holds") <= 50
