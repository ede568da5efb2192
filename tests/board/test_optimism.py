"""How much of the best of many trials is luck: by hand, by plain loops, and in simulations with a known truth."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.board import optimism as module
from harness.board.optimism import FOLDS, REPEATS, Optimism, optimism
from harness.gates.calibration import folds

NEEDS = np.array([True, True, False, True, True, False, True, True, True, False, True, True])


def judged(rows, chooses=None, needs=None, seed=0):
    """The optimism of trials numbered from 0; by default, all queries choose."""
    values = np.array(rows, float)
    everywhere = np.ones(values.shape[1], bool)
    return optimism(
        "map@3",
        dict(enumerate(values)),
        everywhere if needs is None else np.array(needs),
        everywhere if chooses is None else np.array(chooses),
        seed,
    )


@pytest.fixture
def enumerated(monkeypatch):
    """The four ways to draw two queries out of two, once each, in place of random ones."""
    four = np.array([[2, 0], [1, 1], [1, 1], [0, 2]], np.uint8)
    monkeypatch.setattr(module, "draws", lambda seed, n, resamples: [four])


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # Means .5 and .5, off them +-.5 and -+.5. Drawn twice the first query, the first trial is .5 above its mean;
        # twice the second, the other is; one of each, neither is: (.5 + 0 + 0 + .5) / 4.
        ([[1, 0], [0, 1]], 0.25),
        # Means .75 and .1, off them (.25, -.25) and (-.1, .1): the greater is .25, 0, 0 and .1.
        ([[1, 0.5], [0, 0.2]], 0.0875),
        # Both differ from their means by (.5, -.5): choosing gains nothing.
        ([[1, 0], [0.5, -0.5]], 0),
    ],
)
def test_luck_by_hand(enumerated, rows, expected):
    assert judged(rows).luck == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("rows", [[[1, 0], [0, 1]], [[1, 0.5], [0, 0.2]]])
def test_random_draws_come_near_all_draws(rows):
    """2,000 draws of a number in [0, .25]: a standard error of at most .003."""
    exact = sum(max(np.subtract(row, np.mean(row))[list(drawn)].mean() for row in rows)
                for drawn in ((0, 0), (0, 1), (1, 0), (1, 1))) / 4  # fmt: skip
    assert judged(rows).luck == pytest.approx(exact, abs=0.012)


def test_trials_that_are_the_same_have_no_luck():
    """Exactly: however many there are, whichever is chosen is as good as it seems."""
    row = np.random.default_rng(0).random(30)
    found = judged([row] * 7)
    assert found.luck == pytest.approx(0, abs=1e-15)
    assert (found.best, found.unseen) == (pytest.approx(row.mean()), pytest.approx(row.mean()))
    assert judged([row, row + 0.25]).luck == pytest.approx(0, abs=1e-15)  # each off its own mean alike


def test_one_trial_or_one_query_is_not_enough():
    assert judged([[1, 0, 1]]) is None
    assert judged([[1], [0]]) is None
    assert judged([[1, 0, 1], [0, 1, 0]], chooses=[False, True, False]) is None
    assert judged([[1, 0, 1], [0, 1, 0]], chooses=[False] * 3) is None
    assert judged([[1, math.nan, math.nan], [0, 1, 0]]) is None
    assert optimism("map@3", {}, np.ones(3, bool), np.ones(3, bool), 0) is None


def test_queries_that_do_not_count_are_left_out():
    rows = np.array([[1, 0, 1, 0.5, 0], [0, 1, 1, 0, 0.5]])
    needs, chooses = np.array([1, 1, 0, 1, 1], bool), np.array([1, 0, 1, 1, 1], bool)
    spoilt = np.insert(rows, [1, 3], math.nan, axis=1)
    spoilt[0, 1], spoilt[1, 4] = 0.7, 0.9  # NaN in one trial is enough
    more = {"needs": np.insert(needs, [1, 3], True), "chooses": np.insert(chooses, [1, 3], [True, False])}
    assert judged(spoilt, **more) == judged(rows, needs=needs, chooses=chooses)


def test_the_best_is_the_first_of_equals():
    # Trials 1 and 2 both have 2 of 3 on the public queries; on the private one they have 0.25 and 1.
    found = judged([[0, 1, 0, 0.5], [1, 1, 0, 0.25], [0, 1, 1, 1]], chooses=[True, True, True, False])
    assert (found.trials, found.queries, found.private) == (3, 3, 1)
    assert found.best == pytest.approx(2 / 3)
    assert found.unseen == 0.25


def test_where_the_public_queries_choose_the_private_ones_judge():
    generator = np.random.default_rng(1)
    rows, public = generator.random((9, 40)), generator.random(40) < 0.4
    found = judged(rows, chooses=public)
    best = max(range(9), key=lambda trial: rows[trial, public].mean())
    assert found.best == pytest.approx(rows[best, public].mean())
    assert found.unseen == pytest.approx(rows[best, ~public].mean())
    assert (found.queries, found.private) == (public.sum(), 40 - public.sum())
    # What the private queries say has no part in the choice and in the luck.
    other = judged(np.where(public, rows, 0.125), chooses=public)
    assert (other.best, other.luck, other.unseen) == (found.best, found.luck, 0.125)


def by_loops(rows, needs, seed):
    """Plain Python: the best of the other folds, for every fold of every dealing. rows: whole numbers, so that sums
    are exact and equals are equal."""
    n = len(rows[0])
    totals = []
    for repeat in range(REPEATS):
        fold = folds(np.array(needs), min(FOLDS, n), 1000 * seed + repeat).tolist()
        total = 0
        for number in set(fold):
            learnt = [sum(value for value, f in zip(row, fold, strict=True) if f != number) for row in rows]
            chosen = rows[learnt.index(max(learnt))]
            total += sum(value for value, f in zip(chosen, fold, strict=True) if f == number)
        totals.append(total / n)
    return sum(totals) / len(totals)


drawn_rows = st.integers(2, 25).flatmap(
    lambda n: st.tuples(
        st.lists(st.lists(st.integers(0, 3), min_size=n, max_size=n), min_size=2, max_size=6),
        st.lists(st.booleans(), min_size=n, max_size=n),
    )
)


@settings(deadline=None)
@given(drawn=drawn_rows, seed=st.integers(0, 5))
def test_unseen_equals_plain_loops(drawn, seed):
    rows, needs = drawn
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "RESAMPLES", 5)
        found = judged(rows, needs=needs, seed=seed)
    assert found.unseen == pytest.approx(by_loops(rows, needs, seed), abs=1e-12)


@settings(deadline=None, max_examples=40)
@given(drawn=drawn_rows, shift=st.floats(-3, 3), scale=st.floats(0.1, 10))
def test_what_holds_for_all_trials(drawn, shift, scale):
    """Luck and unseen scale with the objective; luck is never below 0, and unseen never above the best."""
    rows = np.array(drawn[0], float)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "RESAMPLES", 50)
        found, moved = judged(rows), judged(rows * scale + shift)
        raised = judged(rows + np.arange(len(rows))[:, None])  # each trial by a number of its own
    assert found.luck >= -1e-12
    assert found.unseen <= found.best + 1e-9
    assert found.best == pytest.approx(rows.mean(axis=1).max())
    assert moved.luck == pytest.approx(found.luck * scale, abs=1e-9)
    assert moved.unseen == pytest.approx(found.unseen * scale + shift, abs=1e-9)
    assert raised.luck == pytest.approx(found.luck, abs=1e-9)


def test_draws_in_several_blocks_are_the_same_draws(monkeypatch):
    rows = np.random.default_rng(2).random((4, 12))
    whole = judged(rows, needs=NEEDS)
    monkeypatch.setattr(module, "_CELLS", 100)
    blocks = judged(rows, needs=NEEDS)
    assert blocks.luck == pytest.approx(whole.luck, abs=1e-12)
    assert blocks.unseen == whole.unseen


def test_the_same_seed_gives_the_same_numbers():
    rows = np.random.default_rng(3).random((4, 12))
    assert judged(rows, needs=NEEDS) == judged(rows, needs=NEEDS)
    assert judged(rows, needs=NEEDS, seed=1).luck != judged(rows, needs=NEEDS).luck


# In simulations


@pytest.mark.parametrize(("trials", "expected"), [(2, 0.56419), (10, 1.53875), (50, 2.24907)])
@pytest.mark.parametrize("shared", [0.0, 1.0])
def test_luck_is_the_bias_of_the_best_of_equals(trials, expected, shared):
    """T trials of mean 0 that differ by independent standard normals on n queries: the best seems better by
    E[max of T normals] / sqrt(n) (Harter 1961's table), whatever hardness of the queries they have in common (shared).
    The bootstrap's variance is (n - 1) / n of it. Averaged over 40 experiments; standard errors of 1 % and less.
    """
    generator, n, lucks, bests = np.random.default_rng(trials), 60, [], []
    for seed in range(40):
        hard = shared * generator.standard_normal(n)
        rows = hard + generator.standard_normal((trials, n))
        found = judged(rows, seed=seed)
        lucks.append(found.luck)
        bests.append(found.best - hard.mean())
    theory = expected / math.sqrt(n)
    assert np.mean(lucks) == pytest.approx(theory * math.sqrt((n - 1) / n), rel=0.03 if trials > 2 else 0.06)
    assert np.mean(bests) == pytest.approx(theory, abs=4 * np.std(bests) / math.sqrt(40))  # as it is seen to be


def test_unseen_is_unbiased_where_the_best_is_not(monkeypatch):
    """Trials that are right with probability .6 on each of 40 queries, independently: that is how good all of them
    are, and how good a choice among them is on other queries."""
    monkeypatch.setattr(module, "RESAMPLES", 50)
    generator, unseen, best, lucky = np.random.default_rng(0), [], [], []
    for seed in range(300):
        found = judged(generator.random((12, 40)) < 0.6, seed=seed)
        unseen.append(found.unseen)
        best.append(found.best)
        lucky.append(found.best - found.luck)
    assert np.mean(unseen) == pytest.approx(0.6, abs=3 * np.std(unseen) / math.sqrt(300))
    assert np.mean(best) > 0.7
    assert np.mean(lucky) == pytest.approx(0.6, abs=0.01)  # luck is what the best has too much


def test_a_trial_that_is_better_everywhere_is_as_good_as_it_seems():
    rows = np.random.default_rng(4).random((5, 30))
    rows[3] += 2
    found = judged(rows)
    assert found.unseen == pytest.approx(found.best) == pytest.approx(rows[3].mean())


# The report


def test_the_sentence_has_the_numbers():
    found = Optimism("map@3", 40, 220, 0.71234, 0.01266, 0.70111, 0)
    said = found.sentence()
    for part in ("best of 40 trials", "map@3 0.7123", "220 queries", "by 0.0127", "scores 0.7011", "nine tenths"):
        assert part in said
    assert "private" not in said
    private = Optimism("map@3", 40, 88, 0.71234, 0.01266, 0.68111, 132).sentence()
    for part in ("88 public queries", "132 private queries", "no part in the choice", "0.6811"):
        assert part in private
    assert "nine tenths" not in private


def test_to_json():
    found = judged([[1, 0, 1], [0, 1, 0]])
    plain = found.to_json()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert set(plain) == {"objective", "trials", "queries", "best", "luck", "unseen", "private", "sentence"}
    assert plain["sentence"] == found.sentence()
