"""Today's queries: signals against scipy, words against sets, and the rule that chooses what to label next."""

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from harness.analysis.guard.todays_queries import QueriesToday, SignalShift, _shifts, _to_label
from retrievers.base import Query


def chosen(queries, fresh, scores, known=("달의 모양은 왜 변하나요?",), labelled=(1.0, 2.0, 3.0)):
    made = [Query.of(str(place), text) for place, text in enumerate(queries)]
    return _to_label([*known], made, fresh, np.array(labelled), np.array(scores))


def test_new_words_come_first_and_then_extreme_scores():
    """The middle 90 % of 1, 2, 3 is 1.1 to 2.9: 0 lies 1.1 below it, 9 lies 6.1 above it, and 2 lies inside."""
    texts = ["물은 왜 끓나요", "바다는 왜 짠가요", "하늘은 왜 파란가요", "구름은 왜 하얀가요"]
    found = chosen(texts, [[], ["바다", "짠"], [], []], [0.0, 2.0, 9.0, 2.0])
    assert [one.query_id for one in found] == ["1", "2", "0"]
    assert found[0].reason == "new words: 바다, 짠"
    assert found[1].reason == "top score 9; the middle 90 % of labelled queries: 1.1 to 2.9"


def test_near_duplicates_are_left_out():
    texts = ["달의  모양은 왜 변하나요?", "바다는 왜 짠가요", "바다는 왜 짠가요"]
    assert [one.query_id for one in chosen(texts, [["달"], ["바다"], ["바다"]], [2.0] * 3)] == ["1"]


def test_at_most_ten_of_which_five_for_their_words():
    texts = [f"{place:03} {chr(0xAC00 + 97 * place) * 9}" for place in range(30)]
    fresh = [["낱말"]] * 15 + [[]] * 15
    assert [one.query_id for one in chosen(texts, fresh, [2.0] * 15 + [9.0] * 15)] == [
        *map(str, range(5)),
        *map(str, range(15, 20)),
    ]


def test_shifts_agree_with_scipy_and_are_corrected():
    """Holm's correction doubles the smaller of two p values; equal values have p = 1."""
    before, now = np.arange(21.0), np.arange(5.0, 27.0)
    one, other = _shifts({"top_score": (before, now), "margin": (np.ones(21), np.ones(22))})
    assert one == SignalShift("top_score", 10.0, 15.5, pytest.approx(2 * mannwhitneyu(before, now).pvalue))
    assert other == SignalShift("margin", 1.0, 1.0, 1.0)
    [few] = _shifts({"top_score": (before, now[:19])})  # with equal values, the p of so few would be wrong
    assert np.isnan(few.p_holm)


def test_queries_that_do_not_differ_are_no_verdict():
    shift = SignalShift("top_score", 3.0, 8.5, 0.5)
    assert QueriesToday(2, 3, "bm25", [shift], 0, 0, [], []).verdict == []
    told = QueriesToday(2, 3, "bm25", [SignalShift("top_score", 3.0, 8.5, 0.001)], 0, 0, [], []).verdict
    assert told == ["Today's queries differ from the labelled ones: top_score has the median 8.5, not 3 (p = 0.001)."]
