"""Signals by hand, and what the gates decide."""

import numpy as np
import pytest

from harness.gate import NoGate, ScoreGate, signal_of
from retrievers.base import BadInput, Ranking

# q1: 5, 3, 1.  q2: one document, 2.  q3: nothing.  q4: three equal scores.
RANKING = Ranking.from_scores(
    {"q1": {"a": 5.0, "b": 3.0, "c": 1.0}, "q2": {"a": 2.0}, "q3": {}, "q4": {"a": 4.0, "b": 4.0, "c": 4.0}}
)


@pytest.mark.parametrize(
    ("name", "k", "expected"),
    [
        ("top_score", 3, [5, 2, 0, 4]),
        # q2: no second document, whose score counts 0
        ("margin", 3, [2, 2, 0, 0]),
        # q1: 9/3. q2: (2 + 0 + 0)/3. q4: 12/3
        ("mean_top_k", 3, [3, 2 / 3, 0, 4]),
        # k = 4 is deeper than any row: q1 9/4, q4 12/4
        ("mean_top_k", 4, [9 / 4, 1 / 2, 0, 3]),
        # q1: mean 3, variance (4 + 0 + 4)/3, so (5 - 3)/sqrt(8/3). q2: 2, 0, 0 has mean 2/3 and variance
        # (16/9 + 4/9 + 4/9)/3 = 8/9, so (4/3)/sqrt(8/9) = sqrt(2). q3, q4: all equal, 0
        ("zscore", 3, [2 / np.sqrt(8 / 3), np.sqrt(2), 0, 0]),
    ],
)
def test_signals_by_hand(name, k, expected):
    np.testing.assert_allclose(signal_of(RANKING, name, k), expected, atol=1e-12)


def test_threshold_is_inclusive_and_an_empty_row_is_never_kept():
    decision = ScoreGate(threshold=2.0).decide({"bm25": RANKING})
    assert decision.keep.tolist() == [True, True, False, True]
    assert ScoreGate(threshold=-9.0).decide({"bm25": RANKING}).keep.tolist() == [True, True, False, True]


def test_no_gate_keeps_all_and_still_shows_a_signal():
    decision = NoGate().decide({"bm25": RANKING})
    assert decision.keep.all()
    assert decision.signal.tolist() == [5, 2, 0, 4]


def test_source_names_a_raw_ranking():
    other = Ranking.from_scores({query: {"a": 1.0} for query in RANKING.query_ids})
    both = {"bm25": RANKING, "dense": other}
    assert ScoreGate(threshold=2.0, source="dense").decide(both).keep.tolist() == [False] * 4
    with pytest.raises(BadInput, match=r"gate\.source is missing.*bm25, dense"):
        ScoreGate().decide(both)
    with pytest.raises(BadInput, match="Did you mean 'dense'"):
        ScoreGate(source="dens").decide(both)


def test_a_ranking_without_columns():
    empty = Ranking(("q",), (), np.zeros((1, 0), np.int32), np.zeros((1, 0)))
    for name in ("top_score", "margin", "mean_top_k", "zscore"):
        assert signal_of(empty, name, 10).tolist() == [0.0]


def test_k_below_two_is_refused():
    with pytest.raises(BadInput, match="k=1"):
        ScoreGate(k=1)
