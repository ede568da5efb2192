"""Which of equal trials is recommended, and when the best value lies at an edge."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.sweeps.axes import Interval
from harness.sweeps.recommendation import Points, edges, recommend


def points(rows, numeric, ms=None):
    """rows: (value, {key: text}) of each trial."""
    numbered = dict(enumerate(rows))
    values = {n: value for n, (value, _) in numbered.items()}
    return Points(values, {n: texts for n, (_, texts) in numbered.items()}, numeric, ms or {})


def by_query(given, noise=0.0):
    """Values by query of trials: the trial's own, and noise that differs from trial to trial."""

    def of(trials):
        noises = [np.random.default_rng(trial).normal(0, noise, 40) if noise else np.zeros(40) for trial in trials]
        return np.array([given.values[trial] + one - one.mean() for trial, one in zip(trials, noises, strict=True)])

    return of


def noted(given, best, intervals=None, noise=0.0, grows=False):
    """(what lies beyond, note) of each edge at which the best trial is."""
    found = edges(given, best, intervals or {}, by_query(given, noise), lambda key: grows)
    return [(edge.beyond, edge.note) for edge in found]


def line(*values, key="k", start=1):
    return points([(value, {key: str(n)}) for n, value in enumerate(values, start=start)], [key])


def test_the_only_best_needs_no_reason_and_of_a_plateau_the_middle_is_recommended():
    found = recommend(line(0.1, 0.3, 0.2))
    assert (found.trial, found.tied, found.reason) == (1, (1,), "")
    assert recommend(points([], [])) is None
    found = recommend(line(0.1, 0.7, 0.7 - 1e-12, 0.7, 0.2))  # equal up to rounding errors
    assert (found.trial, found.tied) == (2, (1, 2, 3))
    assert found.reason == "3 trials tie at 0.7000: k 2 to 4. Recommended: k=3, in the middle."

    two = recommend(line(0.1, 0.7, 0.7, 0.2))  # which have no middle
    assert (two.trial, two.reason) == (1, "2 trials tie at 0.7000: k 2, 3. Recommended: k=2, the first of them.")
    # Of several plateaus the widest: k = 1 alone, then 2 is worse, then 3 to 5.
    found = recommend(line(0.7, 0.1, 0.7, 0.7, 0.7, 0.1))
    assert found.trial == 3
    assert "k 1, 3, 4, 5." in found.reason  # not "1 to 5": 2 is worse


def test_the_middle_of_a_plateau_of_two_keys():
    # The plateau is a square of 3 × 3 in a grid of 5 × 5.
    rows = [
        (0.5 if 1 <= x <= 3 and 1 <= y <= 3 else 0.1, {"x": str(x), "y": f"{y}e0"}) for x in range(5) for y in range(5)
    ]
    found = recommend(points(rows, ["x", "y"]))
    assert rows[found.trial][1] == {"x": "2", "y": "2e0"}
    assert found.reason.endswith("Recommended: x=2 y=2e0, in the middle.")
    # Points drawn at random have the middle of all that tie.
    places = [(1.0, 9.0), (2.0, 2.0), (5.0, 5.5), (9.0, 1.0)]
    found = recommend(points([(0.5, {"x": str(x), "y": str(y)}) for x, y in places], ["x", "y"]))
    assert found.trial == 2


def test_of_other_keys_the_quickest_wins():
    rows = [(0.5, {"retriever": name, "k": k}) for name in ("hybrid", "bm25") for k in ("1", "2", "3")]
    found = recommend(points(rows, ["k"], {n: 9.0 if n < 3 else 1.0 for n in range(6)}))
    assert rows[found.trial][1] == {"retriever": "bm25", "k": "2"}
    assert found.reason == (
        "6 trials tie at 0.5000: retriever hybrid, bm25; k 1 to 3. "
        "Recommended: retriever=bm25, which takes the least time per query, and k=2, in the middle."
    )
    for ms in ({}, {0: 1.0, 1: 1.0}, {1: 1.0}):  # equal or unknown
        first = recommend(points([(0.5, {"gate": "none"}), (0.5, {"gate": "auto"})], [], ms))
        assert first.trial == 0
        assert "gate=none, the first of them" in first.reason


def test_of_other_keys_one_that_asks_no_language_model_wins():
    """However quick the others are: the time of a query leaves out what the model takes."""
    rows = [(0.5, {"query.text": name, "k": k}) for name in ("rewrite", "last", "user_turns") for k in ("1", "2", "3")]
    asking, ms = [0, 1, 2], {n: float(n < 6) for n in range(9)}
    found = recommend(replace(points(rows[:6], ["k"], ms), asking=asking))
    assert rows[found.trial][1] == {"query.text": "last", "k": "2"}
    assert "Recommended: query.text=last, which asks no language model, and k=2, in the middle." in found.reason
    found = recommend(replace(points(rows, ["k"], ms), asking=asking))
    assert rows[found.trial][1] == {"query.text": "user_turns", "k": "2"}
    assert "query.text=user_turns, which takes the least time per query" in found.reason
    found = recommend(replace(points(rows[:6], ["k"], {n: float(n > 2) for n in range(6)}), asking=range(6)))
    assert rows[found.trial][1] == {"query.text": "rewrite", "k": "2"}


def test_trials_that_lack_a_key_are_no_points_of_its_line():
    rows = [
        (0.5, {"gate": "none"}),
        *((value, {"gate": "score", "k": str(k)}) for k, value in enumerate((0.1, 0.5, 0.5, 0.5, 0.2))),
    ]
    found = recommend(points(rows, ["k"], {0: 2.0, 2: 1.0, 3: 1.0, 4: 1.0}))
    assert rows[found.trial][1] == {"gate": "score", "k": "2"}
    assert found.reason == (
        "4 trials tie at 0.5000: gate none, score; k 1 to 3. "
        "Recommended: gate=score, which takes the least time per query, and k=2, in the middle."
    )
    assert recommend(points(rows, ["k"])).trial == 0  # the first of those that differ in texts
    climbing = [(0.3, {"gate": "none"}), *((k / 10, {"gate": "score", "k": str(k)}) for k in (1, 2, 4))]
    assert noted(points(climbing, ["k"]), 3)[0][1].startswith("k=4 is the greatest value tried")
    assert noted(points([(0.9, {"gate": "none"}), *climbing[1:]], ["k"]), 0) == []


@given(st.lists(st.tuples(st.sampled_from([0.1, 0.5]), st.integers(0, 5), st.sampled_from("ab")), min_size=1))
def test_it_is_always_one_of_the_best(drawn):
    rows = [(value, {"k": str(k), "name": name}) for value, k, name in drawn]
    found = recommend(points(rows, ["k"]))
    assert rows[found.trial][0] == max(value for value, _ in rows)
    assert found.trial in found.tied


def test_the_greatest_and_the_least_value():
    assert noted(line(0.1, 0.2, 0.3), 2) == [
        ("4", "k=3 is the greatest value tried, and scores best (0.3000 against 0.2000 at 2): go beyond it.")
    ]
    assert noted(line(0.3, 0.2, 0.1), 0)[0][0] == "0"
    assert noted(line(0.1, 0.3, 0.2), 1) == []  # not at an edge
    assert noted(line(0.1, 0.3), 1) == []  # two values have nothing but edges
    assert noted(line(0.1, 0.3, 0.3), 2) == []  # no better than its neighbour
    assert noted(line(np.nan, np.nan, 0.3), 2) == []  # its neighbours have failed
    assert noted(line(0.1, 0.2, 0.3), 2, grows=True) == []  # by construction
    assert noted(line(0.3, 0.2, 0.1), 0, grows=True) != []


def test_beyond_a_fraction_is_a_small_step_and_neighbours_differ_in_one_key():
    rows = [(value, {"b": text}) for value, text in ((0.1, "0.5"), (0.2, "0.75"), (0.3, "1"))]
    [(beyond, _)] = noted(points(rows, ["b"]), 2)
    assert float(beyond) == pytest.approx(1.0025)
    # a=3 is better than a=2 for b=1 alone; the best trial has b=2, where it is not.
    grid = {(1, 1): 0.1, (2, 1): 0.2, (3, 1): 0.3, (1, 2): 0.1, (2, 2): 0.5, (3, 2): 0.5}
    given = points([(value, {"a": str(a), "b": str(b)}) for (a, b), value in grid.items()], ["a", "b"])
    assert noted(given, 5) == []


def test_the_end_of_a_searched_interval():
    given = points([(0.5, {"w": "2.97"}), (0.4, {"w": "1.5"}), (0.3, {"w": "30"})], ["w"])
    linear = {"w": Interval(0, 3.0, log=False)}
    [(beyond, note)] = noted(given, 0, linear)
    assert note == "w=2.97 lies at the upper end of what was searched, interval(0,3.0): go beyond it."
    assert float(beyond) == pytest.approx(3.03)
    assert noted(given, 1, linear) == []
    assert noted(given, 0, {"w": Interval(0.01, 10.0, log=True)}) == []
    assert noted(given, 0, {"w": Interval(2.9, 1000.0, log=True)})[0][1].startswith("w=2.97 lies at the lower end")
    assert float(noted(given, 1, {"w": Interval(1, 100, log=False)})[0][0]) == 0
    # As on boards: 40 queries with a standard deviation of 1 tell no two values apart that differ by .1.
    for noise, certain in ((0.1, True), (1.0, False)):
        assert bool(noted(given, 0, linear, noise=noise)) == bool(noted(line(0.1, 0.2, 0.3), 2, noise=noise)) == certain
