"""Shares of variance: unbiased estimates, intervals that hold the truth, what no query can tell."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulations import importance as simulation

from harness.statistics.factors import effects, importance, share


def grid(*sizes):
    return np.array(list(np.ndindex(*sizes)))


def of(levels, values):
    return importance(effects(levels, values))


def test_by_hand_without_noise():
    # As in test_factorial: effects -2, +2; -1, +1; together -1, +1. Variances 4, 1, 1 of 6.
    found = of(grid(2, 2), np.repeat([[1.0], [1.0], [3.0], [7.0]], 20, axis=1))
    assert [found.alone[key].value for key in (0, 1)] == pytest.approx([4 / 6, 1 / 6])
    assert [found.total[key].value for key in (0, 1)] == pytest.approx([5 / 6, 2 / 6])
    assert found.pairs[0, 1].value == pytest.approx(1 / 6)
    assert found.spread == pytest.approx(6**0.5)
    assert found.alone[0].high - found.alone[0].low < 0.002


def test_a_variance_is_the_mean_over_pairs_of_queries():
    values = np.random.default_rng(0).random((4, 7))
    centred = values - values.mean(axis=0)
    pairs = [centred[:, i] @ centred[:, j] / 4 for i, j in itertools.permutations(range(7), 2)]
    assert of(grid(2, 2), values).spread ** 2 == pytest.approx(max(np.mean(pairs), 0))


def test_trials_that_differ_by_chance_alone():
    rng = np.random.default_rng(2)
    found = [of(grid(3, 3), rng.random((9, 60))) for _ in range(60)]
    assert np.mean([one.beyond_chance for one in found]) < 0.15
    assert np.median([one.alone[0].high - one.alone[0].low for one in found]) > 0.9


def test_equal_trials_have_no_shares():
    found = of(grid(2, 2), np.tile([0.0, 1.0, 0.5] * 5, (4, 1)))
    assert np.isnan(found.alone[0].value)
    assert not found.beyond_chance


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_shares_are_the_same_for_other_units_and_orders(seed):
    rng = np.random.default_rng(seed)
    levels, values = grid(3, 2), rng.random((6, 30)) + rng.random((6, 1))
    found, order = of(levels, values), rng.permutation(6)
    for again in (of(levels[order], values[order]), of(levels, 100 * values + rng.random(30))):
        for key in (0, 1):
            assert again.alone[key].value == pytest.approx(found.alone[key].value)
            assert [again.alone[key].low, again.alone[key].high] == pytest.approx(
                [found.alone[key].low, found.alone[key].high], abs=0.0011
            )
    assert 0 <= found.alone[0].low <= found.alone[0].value <= found.alone[0].high <= 1


def test_many_queries_are_averaged_in_blocks():
    values = np.random.default_rng(3).random((6, 1501)) + 0.3 * grid(3, 2)[:, [0]]
    found = of(grid(3, 2), values)
    exact = (values - values.mean(axis=0)).mean(axis=1)
    by_key = np.array([exact[:2].mean(), exact[2:4].mean(), exact[4:].mean()])
    assert found.alone[0].value == pytest.approx(np.var(by_key) / np.var(exact), abs=0.02)


def test_a_part_that_varies_less_than_noise_has_the_share_0():
    rows = np.eye(4)  # each query's score is in a direction of its own: pairs have no product
    assert share(-np.ones((4, 4)) + 2 * np.eye(4), np.ones((4, 4))).value == 0
    assert share(rows, rows + 1).value == 0


@pytest.mark.parametrize("number", [0, 4])
def test_intervals_hold_the_truth(number):
    # simulate.py importance has larger numbers; this limit is 3.5 standard errors below 95 %
    drawn = simulation.population(simulation.SWEEPS[number], queries=2000)
    found = simulation.simulate(drawn, 110, 80)
    assert (found.covered > 0.865).all()
    assert found.value == pytest.approx(drawn.truth, abs=0.05)
    assert found.ordered > 0.97  # of the first key


def test_order_agrees_with_a_random_forest():
    """optuna's fANOVA reads the shares off a random forest that is fitted to the trials' means."""
    import optuna

    drawn = simulation.population(simulation.Sweep("", (4, 3, 3), (0.1, 0.05, 0.02)), queries=1000)
    names = ["a", "b", "c"]
    space = {name: optuna.distributions.CategoricalDistribution([*range(4)]) for name in names}
    study = optuna.create_study()
    study.add_trials(
        [
            optuna.trial.create_trial(
                params=dict(zip(names, map(int, row), strict=True)), distributions=space, value=float(mean)
            )
            for row, mean in zip(drawn.levels, drawn.values.mean(axis=1), strict=True)
        ]
    )
    forest = optuna.importance.FanovaImportanceEvaluator(seed=0).evaluate(study)
    ours = of(drawn.levels, drawn.values).alone
    assert [*forest] == sorted(names, key=lambda name: -ours[names.index(name)].value)
    for key, name in enumerate(names):
        assert forest[name] == pytest.approx(ours[key].value, abs=0.12)
