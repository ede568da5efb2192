"""Effects of settings and their shares of the variance: by hand, invariances, designs with holes, what chance does."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulations import importance as simulation

from harness.statistics.factors import effects, importance, share


def grid(*sizes):
    return np.array(list(np.ndindex(*sizes)))


def column(*means):
    """Scores that are the same on three queries."""
    return np.repeat(np.array(means, float)[:, None], 3, axis=1)


def test_two_by_two_by_hand():
    #        b=0  b=1 | mean        effects of a: -2, +2; of b: -1, +1; together: what is left, +-1
    # a=0      1    1 |  1          grand mean 3
    # a=1      3    7 |  5
    # mean     2    4 |  3
    found = effects(grid(2, 2), column(1, 1, 3, 7))
    assert found.whole
    assert found.mean == pytest.approx([3, 3, 3])
    assert found.parts[0,][:, 0] == pytest.approx([-2, 2])
    assert found.parts[1,][:, 0] == pytest.approx([-1, 1])
    assert found.parts[0, 1][:, 0] == pytest.approx([1, -1, -1, 1])
    assert found.rest == pytest.approx(0)


def exact_variances(sizes, scores):
    """The variance of each key's effect, of each pair's, and of the rest, in exact fractions: means of means."""
    cells = dict(zip(np.ndindex(*sizes), scores, strict=True))

    def mean(fixed):
        some = [score for cell, score in cells.items() if all(cell[key] == value for key, value in fixed.items())]
        return sum(some) / len(some)

    def effect(fixed):
        keys = [*fixed]
        inner = [()] if len(keys) == 1 else [(), (keys[0],), (keys[1],)]
        return mean(fixed) - sum(effect({key: fixed[key] for key in some}) if some else mean({}) for some in inner)

    def variance(keys):
        places = [dict(zip(keys, value, strict=True)) for value in np.ndindex(*(sizes[key] for key in keys))]
        return sum(effect(one) ** 2 for one in places) / len(places)

    names = [*((key,) for key in range(len(sizes)))]
    names += [(a, b) for a in range(len(sizes)) for b in range(a + 1, len(sizes))]
    found = {keys: variance(keys) for keys in names}
    whole = sum((score - mean({})) ** 2 for score in cells.values()) / len(cells)
    return found, whole - sum(found.values())


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_parts_of_a_grid_are_exact(data):
    sizes = data.draw(st.lists(st.integers(2, 3), min_size=1, max_size=3))
    scores = data.draw(st.lists(st.integers(-9, 9), min_size=int(np.prod(sizes)), max_size=int(np.prod(sizes))))
    found = effects(grid(*sizes), column(*scores))
    parts, rest = exact_variances(sizes, [Fraction(score) for score in scores])
    assert {keys: (part[:, 0] ** 2).mean() for keys, part in found.parts.items()} == pytest.approx(
        {keys: float(value) for keys, value in parts.items()}, abs=1e-9
    )
    assert (found.rest[:, 0] ** 2).sum() == pytest.approx(float(rest), abs=1e-9)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_neither_the_order_of_trials_nor_the_names_of_values_matter(seed):
    rng = np.random.default_rng(seed)
    levels, values = grid(3, 2, 2), rng.random((12, 5))
    if seed % 2:
        levels, values = levels[1:], values[1:]  # a hole
    found = effects(levels, values)
    order, names = rng.permutation(len(levels)), rng.permutation(3)
    again = effects(np.column_stack([names[levels[:, 0]], levels[:, 1:]])[order], values[order])
    assert again.parts[0,][names] == pytest.approx(found.parts[0,])
    assert {keys: (part**2).sum() for keys, part in again.parts.items()} == pytest.approx(
        {keys: (part**2).sum() for keys, part in found.parts.items()}
    )
    assert again.share_of_rest == pytest.approx(found.share_of_rest)


def test_trials_with_the_same_values_count_as_their_mean():
    levels = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [1, 1]])
    once, twice = effects(grid(2, 2), column(1, 1, 3, 7)), effects(levels, column(1, 1, 3, 6, 8))
    assert twice.whole
    assert twice.parts[0,] == pytest.approx(once.parts[0,])
    # The two differ by 1 from their mean: a variance of 1 in one cell of four.
    assert (twice.rest[:, 0] ** 2).sum() == pytest.approx(1 / 4)


def test_effects_of_an_additive_score_survive_holes():
    levels = grid(3, 2, 2)[[0, 1, 3, 4, 6, 7, 8, 10, 11]]
    scores = np.array([0.0, 3.0, 6.0])[levels[:, 0]] + np.array([0.0, 1.0])[levels[:, 1]]
    found = effects(levels, column(*scores))
    assert not found.whole
    assert {*found.parts} == {(0,), (1,), (2,)}  # nine trials do not tell pairs apart
    assert found.parts[0,][:, 0] == pytest.approx([-3, 0, 3])
    assert found.parts[2,][:, 0] == pytest.approx([0, 0])
    assert (found.rest**2).sum() == pytest.approx(0)


def test_chance_of_a_design_with_holes():
    # What a part gets of noise of variance 1 on each trial, from many draws
    rng = np.random.default_rng(0)
    levels = rng.integers(0, 3, (20, 3))
    found = effects(levels, rng.normal(size=(20, 4000)))
    for keys, chance in found.share_of_rest.items():
        assert (found.parts[keys] ** 2).mean() == pytest.approx(chance, rel=0.1)
    assert (found.rest**2).sum() / 4000 == pytest.approx(1, rel=0.1)


def test_keys_that_change_together_are_not_told_apart():
    levels = np.array([[0, 0, 0], [0, 0, 1], [1, 1, 0], [1, 1, 1], [0, 0, 0], [1, 1, 1]])
    found = effects(levels, column(1, 2, 5, 6, 1, 6))
    assert {*found.parts} == {(2,)}
    assert found.parts[2,][:, 0] == pytest.approx([-0.5, 0.5])
    assert (found.rest[:, 0] ** 2).sum() == pytest.approx(4)  # what the two do together, -2 and +2


def test_too_few_trials_have_no_effects():
    assert effects(np.array([[0, 0, 0], [1, 1, 0], [0, 1, 1]]), column(1, 2, 3)) is None


# Importance -----------------------------------------------------------------------------------------


def of(levels, values):
    return importance(effects(levels, values))


def test_by_hand_without_noise():
    # As in test_two_by_two_by_hand: effects -2, +2; -1, +1; together -1, +1. Variances 4, 1, 1 of 6.
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


def test_shares_at_the_ends():
    equal = of(grid(2, 2), np.tile([0.0, 1.0, 0.5] * 5, (4, 1)))
    assert np.isnan(equal.alone[0].value)
    assert not equal.beyond_chance
    # A part that varies less than noise: its variance over pairs of queries is below 0, or 0
    assert share(-np.ones((4, 4)) + 2 * np.eye(4), np.ones((4, 4))).value == 0
    assert share(np.eye(4), np.eye(4) + 1).value == 0


@pytest.mark.parametrize("number", [0, 4])
def test_intervals_hold_the_truth(number):
    # benchmark.py importance has larger numbers; this limit is 3.5 standard errors below 95 %
    drawn = simulation.population(simulation.SWEEPS[number], queries=2000)
    value, _, covered, first_is_first = simulation.simulate(drawn, 110, 80)
    assert (covered > 0.865).all()
    assert value == pytest.approx(drawn.truth, abs=0.05)
    assert first_is_first > 0.97


def test_order_agrees_with_a_random_forest():
    """optuna's fANOVA reads the shares off a random forest that is fitted to the trials' means."""
    import optuna

    drawn = simulation.population(simulation.Sweep("", (4, 3, 3), (0.1, 0.05, 0.02)), queries=1000)
    space = {name: optuna.distributions.CategoricalDistribution([*range(4)]) for name in "abc"}
    study = optuna.create_study()
    for row, mean in zip(drawn.levels.tolist(), drawn.values.mean(axis=1), strict=True):
        values = dict(zip(space, row, strict=True))
        study.add_trial(optuna.trial.create_trial(params=values, distributions=space, value=float(mean)))
    forest = optuna.importance.FanovaImportanceEvaluator(seed=0).evaluate(study)
    ours = dict(zip(space, of(drawn.levels, drawn.values).alone.values(), strict=True))
    assert [*forest] == sorted(space, key=lambda name: -ours[name].value)
    assert forest == pytest.approx({name: one.value for name, one in ours.items()}, abs=0.12)
