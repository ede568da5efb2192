"""Thresholds against brute force, by hand, and where there is little to fit."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.gates import calibration
from harness.gates.calibration import (
    bootstrap,
    cross_validated,
    curve,
    fit,
    folds,
    held_out,
    level_at,
    threshold_plateau,
)
from harness.statistics.bootstrap import draws


def weights(n: int) -> np.ndarray:
    return np.ones((1, n))


# Six queries by falling signal. Shown they earn 1, 1, 0, 1, 0, 0, withheld 0, 0, 1, 0, 1, 1: the third and the last
# two need no retrieval.
SIGNAL = np.array([9.0, 7.0, 6.0, 4.0, 2.0, 1.0])
EARNED = np.array([[1.0, 0], [1, 0], [0, 1], [1, 0], [0, 1], [0, 1]])


def test_the_curve_by_hand():
    # Showing the first i queries earns what they earn shown and the others withheld:
    # i = 0: 3 (the three that need none); 1: 4; 2: 5; 3: 4; 4: 5; 5: 4; 6: 3.
    found = curve(SIGNAL, EARNED)
    assert found.edges.tolist() == [9, 7, 6, 4, 2, 1]
    np.testing.assert_allclose(found.values * 6, [3, 4, 5, 4, 5, 4, 3])


def test_the_plateau_and_its_middle_by_hand():
    # Of the best borders, i = 2 and i = 4 (5 of 6), the last counts. Every query differs by 1, shown or withheld; for a
    # border that loses d and differs in m queries the standard error of the sum is sqrt((m - d^2/6) * 6/5):
    #   i = 0: d 2, m 4: 2.00, within    i = 1: d 1, m 3: 1.84, within    i = 2: d 0    i = 3: d 1, m 1: 1.00, within
    #   i = 5: d 1, m 1: 1.00, within    i = 6: d 2, m 2: 1.26, not within
    # So it is i = 0..5: thresholds above 1. The upper end is bounded by the highest signal, 9: the middle is 5.
    assert threshold_plateau(SIGNAL, EARNED) == (1.0, math.inf)
    assert fit(weights(6), SIGNAL, EARNED).tolist() == [[5.0]]


@pytest.mark.parametrize("signal", [[3.0, 1.0], [np.nextafter(1.0, 2.0), 1.0]])  # no number lies between the last two
def test_a_threshold_between_two_neighbours(signal):
    thresholds = fit(weights(2), np.array(signal), np.array([[1.0, 0.0], [0.0, 1.0]]))
    assert level_at(np.array(signal), thresholds[0]).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("earned", "expected"),
    [
        ([[1, 0], [1, 0], [0.5, 0]], -math.inf),  # every query needs retrieval: none is withheld
        ([[0, 1], [0, 1], [0, 1]], math.inf),  # none does: all are
        ([[0, 0], [0, 0], [0, 0]], -math.inf),  # it makes no difference: none is
        ([[1, 0]], -math.inf),
        ([[0, 1]], math.inf),
    ],
)
def test_where_all_queries_are_of_one_kind(earned, expected):
    signal = np.array([3.0, 2.0, 1.0])[: len(earned)]
    assert fit(weights(len(earned)), signal, np.array(earned, float)).tolist() == [[expected]]


@pytest.mark.parametrize(("needing", "expected"), [(2, -math.inf), (1, math.inf)])
def test_a_constant_signal_shows_all_or_none(needing, expected):
    earned = np.array([[1.0, 0]] * needing + [[0, 1.0]] * (3 - needing))
    assert fit(weights(3), np.full(3, 7.0), earned).tolist() == [[expected]]
    assert curve(np.full(3, 7.0), earned).values.tolist() == pytest.approx([1 - needing / 3, needing / 3])


def brute_force(signal, earned, weight):
    """The greatest total over all thresholds, or lists of them, by trying them."""
    between = [math.inf, *sorted(set(signal[weight > 0].tolist()), reverse=True)]
    best = -math.inf
    for thresholds in itertools.combinations_with_replacement([*between, -math.inf], earned.shape[1] - 1):
        total = 0.0
        for value, row, count in zip(signal, earned, weight, strict=True):
            level = sum(value < threshold for threshold in thresholds)
            total += count * row[level]
        best = max(best, total)
    return best


@st.composite
def cases(draw, levels):
    n = draw(st.integers(1, 8))
    signal = np.array(draw(st.lists(st.integers(0, 4), min_size=n, max_size=n)), float)  # with ties
    grid = st.sampled_from([0.0, 1 / 3, 0.5, 5 / 6, 1.0])
    earned = np.array(draw(st.lists(st.lists(grid, min_size=levels, max_size=levels), min_size=n, max_size=n)))
    weight = np.array(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)), float)
    return signal, earned, weight


@pytest.mark.parametrize("levels", [2, 3, 4])
@given(data=st.data())
def test_the_best_borders_are_those_of_brute_force(levels, data):
    signal, earned, weight = data.draw(cases(levels))
    order = np.argsort(-signal, kind="stable")
    borders = calibration._best_borders(weight[None, order], earned[order], calibration._cuts(signal[order]))[0]
    assert sorted(borders.tolist()) == borders.tolist()
    level = (np.arange(len(signal))[:, None] >= borders).sum(axis=1)
    total = (weight[order] * earned[order][np.arange(len(signal)), level]).sum()
    assert total == pytest.approx(brute_force(signal, earned, weight), abs=1e-9)


@given(data=st.data())
def test_the_curve_is_that_of_a_loop_over_thresholds(data):
    signal, earned, _ = data.draw(cases(2))
    found = curve(signal, earned)
    thresholds = [math.inf, *found.edges]
    looped = [np.mean([row[0] if value >= t else row[1] for value, row in zip(signal, earned, strict=True)])
              for t in thresholds]  # fmt: skip
    np.testing.assert_allclose(found.values, looped, atol=1e-12)
    assert len(set(found.edges.tolist())) == len(found.edges) == len(set(signal.tolist()))


@given(data=st.data())
def test_a_fitted_threshold_lies_on_its_plateau(data):
    """What it earns differs from the best by at most one standard error of the paired difference, by a plain loop."""
    signal, earned, _ = data.draw(cases(2))
    [[threshold]] = fit(weights(len(signal)), signal, earned)
    found = curve(signal, earned)
    best = np.flatnonzero(found.values > found.values.max() - 1e-9)[-1]  # of equals the last
    mine = signal >= threshold
    top = signal >= (found.edges[best - 1] if best else math.inf)
    gain = earned[:, 0] - earned[:, 1]
    differences = np.where(top, gain, 0) - np.where(mine, gain, 0)
    error = differences.std(ddof=1) / math.sqrt(len(signal)) if len(signal) > 1 else 0.0
    assert differences.mean() <= error + 1e-9


@given(data=st.data())
def test_weights_are_repetitions(data):
    """A query that counts three times is three queries; one that counts 0 times is not there."""
    signal, earned, weight = data.draw(cases(2))
    if weight.sum() == 0:
        return
    rows = np.repeat(np.arange(len(signal)), weight.astype(int))
    np.testing.assert_array_equal(
        fit(weight[None], signal, earned), fit(weights(len(rows)), signal[rows], earned[rows])
    )


def test_many_weightings_at_once_are_one_after_the_other(monkeypatch):
    generator = np.random.default_rng(0)
    signal, earned = generator.integers(0, 9, 30).astype(float), generator.random((30, 4))
    many = generator.integers(0, 3, (50, 30)).astype(float)
    together = fit(many, signal, earned)
    np.testing.assert_array_equal(together, np.vstack([fit(row[None], signal, earned) for row in many]))
    monkeypatch.setattr(calibration, "_CELLS", 100)  # in several blocks
    np.testing.assert_array_equal(together, fit(many, signal, earned))


def test_folds_are_dealt_evenly():
    needs = np.array([True] * 23 + [False] * 7)
    found = folds(needs, 5, seed=3)
    # 23 = 5 + 5 + 5 + 4 + 4; the dealing goes on with the others, so that all folds hold 6.
    assert sorted(np.bincount(found[needs]).tolist()) == [4, 4, 5, 5, 5]
    assert np.bincount(found).tolist() == [6] * 5
    assert found.tolist() == folds(needs, 5, seed=3).tolist() != folds(needs, 5, seed=4).tolist()


def test_held_out_is_by_a_plain_loop():
    generator = np.random.default_rng(1)
    signal, earned = generator.integers(0, 5, 20).astype(float), np.eye(2)[generator.integers(0, 2, 20)]
    fold, weight = folds(earned[:, 0] > 0, 4, 0), generator.integers(0, 2, (1, 20)).astype(float)
    total = 0.0
    for number in range(4):
        learn = (fold != number) & (weight[0] > 0)
        [threshold] = fit(np.ones((1, learn.sum())), signal[learn], earned[learn])
        for i in np.flatnonzero((fold == number) & (weight[0] > 0)):
            total += earned[i, 0] if signal[i] >= threshold[0] else earned[i, 1]
    assert cross_validated(weight, signal, earned, fold) == pytest.approx([total])
    for learn, judge in held_out(np.where(fold == 3, -1, fold)):
        assert (learn ^ judge).tolist() == (fold != 3).tolist()
        assert len(set(fold[judge])) == 1


@pytest.mark.slow
def test_the_bootstrap_is_a_loop_over_draws():
    found = bootstrap(SIGNAL, EARNED, seed=0)
    drawn = np.vstack(list(draws(0, 6, calibration.RESAMPLES)))
    thresholds, means = [], []
    for counts in drawn:
        rows = np.repeat(np.arange(6), counts)
        [[threshold]] = fit(weights(6), SIGNAL[rows], EARNED[rows])
        thresholds.append(threshold)
        means.append(np.where(SIGNAL[rows] >= threshold, EARNED[rows, 0], EARNED[rows, 1]).mean())
    for name, values in (("threshold", thresholds), ("objective", means)):
        ordered = sorted(values)
        # The smallest value with at least 2.5 % (97.5 %) of the 2,000 at or below it: the 50th and the 1,950th.
        assert found[name] == (ordered[49], ordered[1949])
    assert found == bootstrap(SIGNAL, EARNED, seed=0)


def test_a_level_that_earns_no_more_than_the_next_does_not_hide_one_that_does():
    # Of 100 queries, 0 to 19 need no retrieval, 20 to 59 have their hit in third place, 60 to 99 hits in the first and
    # the third: there one document, or two, score 1, and three 5/6. One is no better than two, which are shown.
    signal = np.arange(100.0)
    earned = np.array([[0, 0, 0, 1.0]] * 20 + [[0, 0, 1 / 3, 0]] * 40 + [[1, 1, 5 / 6, 0]] * 40)
    [thresholds] = fit(weights(100), signal, earned)
    assert thresholds[0] == math.inf
    # Above 59 and up to 60 two documents are shown, above 19 and up to 20 three.
    assert thresholds[1:].tolist() == pytest.approx([59.5, 19.5], abs=0.5)
    shown = np.array([1, 2, 3, 0])[level_at(signal, thresholds)]
    assert shown.tolist() == [0] * 20 + [3] * 40 + [2] * 40
