"""Paired statistics: tables worked by hand, comparisons with scipy and ranx, and properties for any numbers."""

import math
import warnings

import numpy as np
import pytest
from boards import made_runs
from hypothesis import given, settings
from hypothesis import strategies as st
from simulations import intervals

from harness.statistics.significance import (
    against_first,
    differences,
    holm,
    pairs_of,
    sign_flip_test,
    sliced_differences,
)

NAN = math.nan
LEVELS = [0.0, 1 / 3, 0.5, 7 / 12, 5 / 6, 1.0]


def p_of(*row, resamples=10_000, seed=0):
    p, exact = sign_flip_test(np.array([row], float), seed, resamples)
    return p[0], exact[0]


def one(ours, theirs, resamples=10_000):
    return differences(np.array([[ours], [theirs]], float), 0, resamples)[0, 1][0]


@pytest.mark.parametrize(
    ("row", "p"),
    [
        # |sum| = .5. The flips of (.5, .25, .25) have the sums 1, .5, .5, 0 and the same below 0:
        # six of eight are at least .5 from 0.
        ((0.5, 0.25, -0.25), 6 / 8),
        # The farthest of all: only itself and its mirror image, of 2^3; the 0 has no sign.
        ((0.5, 0.25, 0.25, 0), 2 / 8),
        ((0.5, NAN, 0.25, 0.25), 2 / 8),
        # Sums of (1, 1, 1, 1): 4, 2 x4, 0 x6, -2 x4, -4. |sum| = 2: ten of sixteen.
        ((1, 1, 1, -1), 10 / 16),
        # Sums of (.6, .3, .1): 1, .8, .4, .2 and the same below 0; |sum| = .4 ties with (+.6 -.3 +.1) but for rounding.
        ((0.6, -0.3, 0.1), 6 / 8),
        ((0, 0, 0), 1),
        ((NAN, NAN), 1),
        ((0.5,), 1),
    ],
)
def test_sign_flips_by_hand(row, p):
    assert p_of(*row) == (p, True)


def test_the_test_is_exact_up_to_as_many_flips_as_resamples():
    assert p_of(*[0.5] * 4, resamples=16) == (2 / 16, True)
    assert not p_of(*[0.5] * 4, resamples=15)[1]
    # 2^-59 of the flips are as far from 0: none is drawn, and the one seen is counted (Phipson and Smyth 2010).
    assert p_of(*[0.5] * 60, resamples=999) == (1 / 1000, False)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=2, max_size=9))
def test_p_is_that_of_scipys_permutation_test(pairs):
    from scipy.stats import permutation_test

    ours, theirs = np.array(pairs, float).T  # scipy compares sums exactly: whole numbers have none that round apart
    expected = permutation_test(
        (ours, theirs), lambda x, y, axis: np.mean(x - y, axis=axis), permutation_type="samples", vectorized=True,
        n_resamples=math.inf,
    )  # fmt: skip
    assert p_of(*(ours - theirs))[0] == pytest.approx(expected.pvalue, abs=1e-12)
    assert p_of(*(ours / 12 - theirs / 12))[0] == pytest.approx(expected.pvalue, abs=1e-12)  # nor do ours by rounding


def test_drawn_flips_come_near_to_all_of_them():
    row = np.random.default_rng(1).choice([-1, -0.5, 0.5, 1], 16, p=[0.1, 0.2, 0.3, 0.4])
    whole, exact = p_of(*row, resamples=1 << 16)
    drawn, sampled = p_of(*row, resamples=20_000)
    assert exact
    assert not sampled
    assert drawn == pytest.approx(whole, abs=5 * math.sqrt(whole * (1 - whole) / 20_000))  # five standard errors


@given(st.lists(st.tuples(st.sampled_from(LEVELS), st.sampled_from(LEVELS)), min_size=2, max_size=40))
@settings(max_examples=50, deadline=None)
def test_the_t_test_and_the_effect_are_those_of_scipy(pairs):
    from scipy.stats import ttest_rel

    ours, theirs = np.array(pairs).T
    gaps = ours - theirs
    found = one(ours, theirs, resamples=10)
    if np.ptp(gaps) < 1e-9:
        assert (found.effect, found.p_t) == (0, 1) if not gaps.any() else math.isnan(found.effect + found.p_t)
    else:
        assert found.p_t == pytest.approx(ttest_rel(ours, theirs).pvalue, rel=1e-9)
        assert found.effect == pytest.approx(gaps.mean() / gaps.std(ddof=1), rel=1e-9)


def test_holm_by_hand():
    # Ascending: .005 x 4 = .02, .01 x 3 = .03, .03 x 2 = .06, .04 x 1 = .04 raised to the .06 before it.
    np.testing.assert_allclose(holm(np.array([0.01, 0.04, 0.03, 0.005])), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm(np.array([0.5, 0.4])), [0.8, 0.8])
    assert holm(np.array([0.9, 0.8, 0.7])).tolist() == [1, 1, 1]
    assert holm(np.array([0.2])).tolist() == [0.2]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 30).flatmap(
        lambda n: st.lists(st.lists(st.sampled_from([*LEVELS, NAN]), min_size=n, max_size=n), min_size=2, max_size=2)
    ),
    st.integers(0, 5),
)
def test_the_other_way_round_is_the_same_with_the_other_sign(rows, seed):
    values = np.array(rows)[:, None, :]
    there, back = (differences(one, seed, 200)[0, 1][0] for one in (values, values[::-1]))
    assert 0 < there.p <= 1
    assert (there.p, there.exact, there.n, there.ties) == (back.p, back.exact, back.n, back.ties)
    assert (there.wins, there.losses) == (back.losses, back.wins)
    assert there.wins + there.ties + there.losses == there.n
    np.testing.assert_allclose([there.mean, there.effect, there.p_t], [-back.mean, -back.effect, back.p_t], atol=1e-12)
    if there.n:
        # The bootstrap draws the same queries: its quantiles mirror each other.
        np.testing.assert_allclose([there.low, there.high], [-back.high, -back.low], atol=1e-9)


def test_a_pair_does_not_depend_on_other_runs_and_measures_but_for_holm():
    generator = np.random.default_rng(0)
    values = generator.choice(LEVELS, (3, 2, 50))
    values[:, 1, :20] = NAN
    three = differences(values, 7, 500)
    two = differences(values[[0, 2]], 7, 500)[0, 1]
    for found, alone in zip(three[0, 2], two, strict=True):
        assert {**vars(found), "p_holm": 0} == {**vars(alone), "p_holm": 0}
        assert alone.p_holm == alone.p
    single = differences(values[[0, 2]][:, :1], 7, 500)[0, 1][0]
    assert single.p == two[0].p
    for measure in range(2):
        np.testing.assert_array_equal(
            [three[pair][measure].p_holm for pair in three], holm(np.array([three[pair][measure].p for pair in three]))
        )


@pytest.mark.parametrize(
    ("ours", "theirs", "expected", "note"),
    [
        ([1, 1], [1, 1], {"n": 2, "mean": 0, "low": 0, "high": 0, "p": 1, "effect": 0, "p_t": 1}, "the same value"),
        ([1, 1, 1], [0, 0, 0], {"mean": 1, "low": 1, "high": 1, "p": 0.25, "effect": NAN, "p_t": NAN}, "are equal"),
        ([1] * 19 + [0], [0] * 19 + [0], {"wins": 19, "ties": 1}, "fewer than 20 queries differ: trust p"),
        ([1], [0], {"n": 1, "mean": 1, "low": NAN, "high": NAN, "p": 1, "effect": NAN}, "one query"),
        ([1, NAN], [NAN, 1], {"n": 0, "mean": NAN, "low": NAN, "p": 1, "wins": 0, "ties": 0}, "no query"),
    ],
)  # fmt: skip
def test_notes_for_almost_no_data(ours, theirs, expected, note):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = one(ours, theirs)
    np.testing.assert_equal({name: getattr(found, name) for name in expected}, expected)
    assert note in found.note


@pytest.mark.slow
def test_runs_are_compared_within_bounds_of_memory():
    import tracemalloc

    values = np.random.default_rng(0).choice(LEVELS, (6, 10, 220))
    tracemalloc.start()
    assert len(differences(values, 0, 10_000)) == 15
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 150e6


@pytest.mark.slow
def test_the_simulation_finds_what_it_should():
    # 300 experiments: a share of .95 or .05 has the standard error sqrt(.05 * .95 / 300) = .0126. A long
    # simulation has to find .93 to .97 and .03 to .07; here two and a half standard errors more are let pass.
    for shares in intervals.VALUES.values():
        assert 0.93 - 0.032 <= intervals.coverage(shares, 110, 300) <= 1
    for name in ("few ties", "many ties"):
        found = intervals.false_positives(intervals.DIFFERENCES[name], 110, 300, resamples=2000)
        assert 0 < found <= 0.07 + 0.032


@pytest.mark.parametrize(("queries", "runs"), [(12, 5), (60, 24)])
def test_tests_against_the_first_are_those_of_each_pair(monkeypatch, queries, runs):
    """Whether swaps are counted or drawn: p of two runs does not depend on the others."""
    values = made_runs(queries=queries, seed=3).values[:runs].copy()
    values[1, 2] = np.nan  # does not apply to a query
    p, corrected = against_first(values)
    pairs = differences(values[:, None], pairs=pairs_of(runs, 0))
    np.testing.assert_array_equal(p, [NAN, *(one.p for [one] in pairs.values())])
    np.testing.assert_array_equal(corrected, [NAN, *(one.p_holm for [one] in pairs.values())])
    assert differences(values[[0, 3]][:, None])[0, 1][0].p == p[3]
    monkeypatch.setattr("harness.statistics.significance.ROWS", 3)  # in blocks
    np.testing.assert_array_equal(against_first(values)[0], p)


def test_pairs_with_the_best_and_all_pairs():
    assert pairs_of(3) == [(0, 1), (0, 2), (1, 2)]
    assert pairs_of(4, 2) == [(2, 0), (2, 1), (2, 3)]
    assert pairs_of(2, 1) == [(0, 1)]  # as they were named


def test_slices_are_tested_together():
    """Gaps of four queries in the slices {1, 2, 3}, {3, 4} and {1, 2, 3, 4}, worked by hand.

    (1, 1, 1): 2 of 8 flips are as far from 0, so p = .25. (1, -1): every flip is, so p = 1. (1, 1, 1, -1): 10 of 16.
    Holm: 3 × .25, then 2 × .625, cut to 1. The NaN of the second pair leaves (1, 1), with p = .5, in the first slice.
    """
    inside = np.array([[1, 1, 1, 0], [0, 0, 1, 1], [1, 1, 1, 1]], bool)
    (found,) = sliced_differences(np.array([[1.0, 1, 1, -1]]), inside)
    assert [one.n for one in found] == [3, 2, 4]
    assert [one.mean for one in found] == [1, 0, 0.5]
    assert [one.p for one in found] == [0.25, 1, 0.625]
    assert [one.p_holm for one in found] == [0.75, 1, 1]
    both = sliced_differences(np.array([[1.0, 1, 1, -1], [1, 1, NAN, NAN]]), inside[:1])
    assert [[one.p for one in pair] for pair in both] == [[0.25], [0.5]]
    assert [[one.p_holm for one in pair] for pair in both] == [[0.5], [0.5]]


def simulated_slices(gains, trials=1000, queries=40, seed=0):
    """Return, for each trial, which slices are significantly better and worse: bool [trials, 2, slices].

    gains: the true mean difference in each of the slices, of `queries` queries each. The values of two runs share the
    ease of a query, and are often equal.
    """
    rng, found = np.random.default_rng(seed), []
    inside = np.kron(np.eye(len(gains), dtype=bool), np.ones(queries, bool))
    for _ in range(trials):
        ease = rng.beta(2, 1, inside.shape[1])
        first, second = (np.round(3 * (ease + rng.normal(0, 0.15, ease.size))).clip(0, 3) / 3 for _ in range(2))
        gaps = first - second + 2 * np.repeat(gains, queries) * (rng.random(ease.size) < 0.5)
        (row,) = sliced_differences(gaps[None], inside, resamples=199)
        found.append([[one.p_holm <= 0.05 and sign * one.mean > 0 for one in row] for sign in (1, -1)])
    return np.array(found)


@pytest.mark.slow
def test_slices_raise_few_false_alarms_and_tell_a_loss_behind_a_gain():
    """Of 1,000 pairs of equal runs, at most 5 % have a significant slice.

    Of 1,000 pairs in which the first run gains .15 per query in four slices and loses as much in the fifth, at least
    4 in 5 show the loss, and hardly any shows a loss elsewhere or a gain there.
    """
    equal = simulated_slices([0.0] * 5)
    assert equal.any(axis=(1, 2)).mean() <= 0.05
    better, worse = simulated_slices([0.15, 0.15, 0.15, 0.15, -0.15]).transpose(1, 0, 2)
    assert worse[:, 4].mean() >= 0.8
    assert better[:, :4].mean() >= 0.8
    assert (better[:, 4] | worse[:, :4].any(axis=1)).mean() <= 0.05
