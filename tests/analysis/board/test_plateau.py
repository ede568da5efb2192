"""Plateau or spike around the best value of a number."""

import numpy as np
import pytest

from harness.analysis.board.plateau import plateau_of
from harness.analysis.board.settings import varied

NOISE = np.array([0.1, -0.1] * 10)  # by query: a difference of standard deviation .1 has the standard error .0229


def shape(scores, others=None, averages=None):
    """scores: value -> mean."""
    rows = sorted(scores, key=lambda value: -scores[value])
    keys = varied([{"top_k": str(value), **(others or {}).get(value, {})} for value in rows])
    values = np.array([scores[value] + (NOISE if value % 2 else -NOISE) / 2 for value in rows])
    return plateau_of(keys[0], keys, values, averages)


def test_a_plateau_ends_where_a_value_is_more_than_a_standard_error_below():
    # 5 is the best; 4 and 6 are .01 below, 7 .02: within the error of .0229 of odd against even values, 0 of alike ones
    found = shape({3: 0.5, 4: 0.79, 5: 0.8, 6: 0.79, 8: 0.6})
    assert (found.values[found.low], found.values[found.high], found.values[found.best]) == ("4", "6", "5")
    assert found.shape == "plateau"
    assert found.error[1] == pytest.approx(0.1 / np.sqrt(19))
    assert found.sentence("top_k") == "top_k: plateau from 4 to 6, best at 5; 8 is 0.2000 below."


@pytest.mark.parametrize(
    ("scores", "kind", "end", "sentence"),
    [
        ({4: 0.7, 5: 0.8, 6: 0.6}, "spike", "", "spike, only 5 reaches it; 4 is 0.1000 below."),
        ({4: 0.5, 5: 0.8, 6: 0.5, 7: 0.8}, "spike", "", "spike, only 5 reaches it; 4 is 0.3000 below."),
        ({4: 0.79, 5: 0.8, 6: 0.79}, "flat", "", "4 to 6 differ no more than by chance, all else as in the best run."),
        ({4: 0.8, 5: 0.7, 6: 0.6}, "spike", "least",
         "spike, only 4 reaches it; 5 is 0.1000 below. 4 is the least value tried: go beyond it."),
        ({4: 0.6, 5: 0.7, 6: 0.8}, "spike", "greatest",
         "spike, only 6 reaches it; 5 is 0.1000 below. 6 is the greatest value tried: go beyond it."),
    ],
)  # fmt: skip
def test_the_shape_in_words(scores, kind, end, sentence):
    found = shape(scores)
    assert (found.shape, found.at_end, found.sentence("top_k")) == (kind, end, f"top_k: {sentence}")


def test_a_best_value_within_chance_is_no_spike():
    found = shape({4: 0.76, 5: 0.8, 6: 0.76})  # .04 below, 1.7 standard errors
    assert (found.shape, found.clear, found.at_end) == ("spike", False, "")
    assert found.sentence("top_k") == "top_k: 4 to 6 differ no more than by chance, all else as in the best run."
    assert shape({4: 0.75, 5: 0.8, 6: 0.75}).clear


def test_only_runs_that_differ_in_nothing_else_are_compared():
    others = {value: {"gate": "none" if value < 7 else "auto"} for value in (4, 5, 6, 7)}
    assert shape({4: 0.5, 5: 0.8, 6: 0.7, 7: 0.2}, others).values == ("4", "5", "6")


def test_without_such_runs_the_averages_over_other_keys_are():
    others = {value: {"gate": f"kind{value}"} for value in (4, 5, 6)}
    averages = np.array([[0.5], [0.8], [0.6]]) + np.zeros((1, 20))
    found = shape({4: 0.5, 5: 0.8, 6: 0.6}, others, averages)
    assert found.along == "average"
    assert found.sentence("top_k").endswith("5 reaches it; 6 is 0.2000 below, on average over the other keys.")
    assert shape({4: 0.5, 5: 0.8, 6: 0.6}, others) is None


def test_names_and_two_values_have_no_shape():
    assert shape({4: 0.5, 5: 0.8}) is None
    keys = varied([{"gate": name} for name in "abc"])
    assert plateau_of(keys[0], keys, np.ones((3, 5)), None) is None
