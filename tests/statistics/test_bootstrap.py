"""Bootstrap intervals, against scipy's."""

import warnings

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.statistics.bootstrap import _intervals, _quantiles, _resampled_means, bootstrap_means


def interval(values, seed=0, resamples=2000):
    low, high, notes = bootstrap_means(np.array([values], float), seed, resamples=resamples)
    return float(low[0]), float(high[0]), notes[0]


def test_same_resampled_means_same_interval_as_scipy():
    # Handing scipy our own resampled means leaves nothing to chance: the intervals must be equal.
    from scipy import stats

    values = np.random.default_rng(5).random((1, 60)) ** 4
    means = _resampled_means(values, 0, 999)
    first = stats.bootstrap((values[0],), np.mean, n_resamples=2, method="percentile", rng=np.random.default_rng(0))
    first.bootstrap_distribution = means[0]
    theirs = stats.bootstrap((values[0],), np.mean, n_resamples=0, bootstrap_result=first, method="BCa")
    low, high, _ = _intervals(values, means)
    assert (low[0], high[0]) == pytest.approx(tuple(theirs.confidence_interval), abs=1e-12)


def test_nan_is_left_out():
    values = np.random.default_rng(7).random(50)
    with_holes = np.full(80, np.nan)
    with_holes[np.sort(np.random.default_rng(8).permutation(80)[:50])] = values
    assert interval(with_holes) == interval(values)


def test_in_parts_as_at_once(monkeypatch):
    values = np.random.default_rng(1).random((2, 50))
    whole = bootstrap_means(values, 0)
    monkeypatch.setattr("harness.statistics.bootstrap._CELLS", 50 * 7)
    parts = bootstrap_means(values, 0)
    np.testing.assert_allclose(whole[0], parts[0], atol=1e-12)
    np.testing.assert_allclose(whole[1], parts[1], atol=1e-12)


@pytest.mark.parametrize("n", [2, 110, 300])  # counts up to 255 are held in one byte, larger ones in two
def test_resampled_means_are_means_of_the_queries_drawn(n):
    values = np.random.default_rng(2).random((3, n))
    drawn = np.random.default_rng(7).integers(0, n, (500, n))
    for _ in range(2):  # the second time the draws are remembered
        np.testing.assert_allclose(_resampled_means(values, 7, 500), values[:, drawn].mean(axis=2), atol=1e-12)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=20), st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_quantiles_are_numpys_to_the_last_bit(values, shares):
    rows = np.array([values, values[::-1], [0.0] * len(values)])
    found = _quantiles(rows, np.array([shares, shares, shares]).T)
    assert found.tolist() == [[float(np.quantile(row, share)) for row in rows] for share in shares]


def test_an_interval_does_not_depend_on_the_other_measures_or_on_which_are_wanted():
    values = np.random.default_rng(12).random((5, 60))
    values[1:3, :9] = np.nan
    values[4] = 0.5
    low, high, notes = bootstrap_means(values, 3)
    for row in range(5):
        alone = bootstrap_means(values[row : row + 1], 3)
        assert (alone[0][0], alone[1][0]) == pytest.approx((low[row], high[row]), abs=1e-12)
    for wanted in ([1, 0, 0, 0, 0], [0, 1, 0, 1, 0], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]):
        chosen = np.array(wanted, bool)
        some = bootstrap_means(values, 3, wanted=chosen)
        np.testing.assert_array_equal(some[0], np.where(chosen, low, np.nan))
        np.testing.assert_array_equal(some[1], np.where(chosen, high, np.nan))
        assert some[2] == [note if one else "" for note, one in zip(notes, wanted, strict=True)]


def test_notes_for_too_few_queries():
    nan = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_equal(interval([nan, nan]), (nan, nan, "no query: no interval"))
        np.testing.assert_equal(interval([0.5, nan]), (nan, nan, "one query: no interval"))
        assert interval([1.0] * 50) == interval([1.0, 1.0]) == (1.0, 1.0, "all queries have the same value")
        assert interval([0.0, 1.0, 1.0]) == (0.0, 1.0, "percentile interval: fewer than 10 queries")
        assert bootstrap_means(np.empty((0, 5)), 0)[2] == []


def test_percentile_where_bca_is_undefined():
    # With 2 resamples of these values both means can lie on the same side: no finite bias correction.
    values = np.random.default_rng(0).random(30)
    notes = {interval(values, seed, resamples=2)[2] for seed in range(20)}
    assert notes == {"", "percentile interval: BCa is undefined"}


@settings(deadline=None)
@example([0.0, 5e-324])
@example([0.0, 0.0, 1e-120])
@example([0.1] * 12)
@given(st.lists(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0])), max_size=30))
def test_never_fails_and_never_warns(values):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        low, high, note = interval(values, resamples=100)
    if len(values) >= 2:
        assert min(values) - 1e-12 <= low <= high <= max(values) + 1e-12
    else:
        assert note
