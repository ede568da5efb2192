"""The public part, by counting; how ranks shift to the private one, by hand and over every possible draw."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.statistics import split
from harness.statistics.split import ShakeUp, draw_public, ranks, shake_up


def items(n, seed=0):
    generator = np.random.default_rng(seed)
    return [f"q{i}" for i in range(n)], 2 * (generator.random(n) < 0.9) + (generator.random(n) < 0.1)


@settings(deadline=None)
@given(st.integers(0, 120), st.floats(0, 1), st.integers(0, 5))
def test_the_share_is_right_in_the_whole_and_in_each_stratum(n, share, seed):
    item_ids, strata = items(n, seed)
    public = draw_public(item_ids, strata, seed, share)
    assert public.sum() == round(share * n)
    for stratum in range(4):
        inside = strata == stratum
        assert abs(public[inside].sum() - share * inside.sum()) < 1


def test_the_order_of_the_file_does_not_matter_and_the_seed_does():
    item_ids, strata = items(100)
    public = draw_public(item_ids, strata, 0)
    order = random.Random(0).sample(range(100), 100)
    mixed = draw_public([item_ids[i] for i in order], strata[order], 0)
    assert (mixed == public[order]).all()
    assert (draw_public(item_ids, strata, 1) != public).any()


def test_ranks_count_those_who_are_better():
    # Two that are equal but for rounding share the better rank, and the next one is third.
    scores = np.array([[0.3, 0.5, 0.5], [0.1 + 0.2, 0.9, 0.5], [0.1, 0.7, 0.5]])
    assert ranks(scores).tolist() == [[1, 3, 1], [1, 1, 1], [3, 2, 1]]


def test_shifts_and_the_winner_by_hand():
    # Four draws of three submissions. Public ranks: 123, 123, 113, 321. Private ranks: 123, 213, 213, 132.
    public = np.array([[0.9, 0.9, 0.8, 0.1], [0.8, 0.8, 0.8, 0.2], [0.7, 0.7, 0.7, 0.3]])
    private = np.array([[0.9, 0.5, 0.5, 0.9], [0.8, 0.6, 0.6, 0.7], [0.7, 0.4, 0.4, 0.8]])
    found = ShakeUp(public, private)
    assert found.shifts.tolist() == [[0, 1, 1, -2], [0, -1, 0, 1], [0, 0, 0, 1]]
    # The public winner loses in the second draw and in the fourth; in the third one of the two winners wins.
    assert found.winner_loses == 0.5
    # The largest shifts of the draws are 0, 1, 1, 2.
    assert found.sentence("correction_recall", 0.4) == (
        "By correction_recall, with 40 % public: in 50 % of 4 draws the public winner is not the private winner; the "
        "largest rank shift is 1 in the median draw and 2 at most."
    )


def watched(strata, public, seed=0, draws=400):
    """(the public parts that were drawn, the private ones): 0 or 1 [draws, N]."""
    seen = []

    def score(rows):
        seen.append(rows)
        return rows[:, :1].T

    found = shake_up(score, np.array(strata), public, seed, draws)
    assert found.public.shape == found.private.shape == (1, draws)
    return np.vstack(seen[::2]), np.vstack(seen[1::2])


def test_each_stratum_gives_its_share_to_every_draw():
    """10 items of one kind, 5 of another, 1 of a third, 40 % public: 4, 2 and none of them."""
    strata = [0] * 10 + [1] * 5 + [2]
    public, private = watched(strata, 0.4)
    assert set(np.unique(public)) == {0, 1}
    assert (public + private == 1).all()
    assert (public[:, :10].sum(axis=1) == 4).all()
    assert (public[:, 10:15].sum(axis=1) == 2).all()
    assert not public[:, 15].any()
    # Within its stratum every item has the same chance: 160 of 400 draws, +- 4 standard deviations of 10.
    assert (np.abs(public[:, :15].sum(axis=0) - 160) < 40).all()
    assert len(np.unique(public, axis=0)) > 300  # of C(10, 4) C(5, 2) = 2,100


def test_seeded_and_in_parts_with_the_same_quotas(monkeypatch):
    strata = [0] * 6 + [1] * 3
    for share, count in ((0.0, 0), (1.0, 9)):
        assert (watched(strata, share)[0].sum(axis=1) == count).all()
    public, _ = watched(strata, 0.4, draws=100)
    assert (watched(strata, 0.4, draws=100)[0] == public).all()
    assert (watched(strata, 0.4, seed=1, draws=100)[0] != public).any()
    monkeypatch.setattr(split, "_CELLS", 9 * 7)
    parts, _ = watched(strata, 0.4, draws=100)
    assert (parts[:, :6].sum(axis=1) == public[:, :6].sum(axis=1)).all()
    assert (parts.sum(axis=1) == public.sum(axis=1)).all()


def test_how_often_the_winner_loses_is_the_share_among_all_draws():
    """6 items, half of them public: 20 public parts. The first is right on half of them, the second never quite."""
    values = np.array([[1, 1, 1, 0, 0, 0], [0.6, 0.1, 0.2, 0.4, 0.3, 0.35]])

    def score(rows):
        return values @ rows.T / rows.sum(axis=1)

    parts = np.array([[i in chosen for i in range(6)] for chosen in itertools.combinations(range(6), 3)], float)
    public, private = score(parts), score(1 - parts)
    loses = np.mean(public.argmax(axis=0) != private.argmax(axis=0))  # no two scores are equal
    assert 0.1 < loses < 0.95
    found = shake_up(score, np.zeros(6, int), 0.5, 0, draws=4000)
    assert found.winner_loses == pytest.approx(loses, abs=4 * np.sqrt(loses * (1 - loses) / 4000))
