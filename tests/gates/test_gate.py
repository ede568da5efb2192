"""What the gates decide that are told their threshold."""

import pytest
from fakes import FakeInputs

from harness.errors import BadInput
from harness.gates.gate import NoGate, ScoreGate
from retrievers.base import Ranking

# q1: 5, 3, 1.  q2: one document, 2.  q3: nothing.  q4: three equal scores.
RANKING = Ranking.from_scores(
    {"q1": {"a": 5.0, "b": 3.0, "c": 1.0}, "q2": {"a": 2.0}, "q3": {}, "q4": {"a": 4.0, "b": 4.0, "c": 4.0}}
)


def test_threshold_is_inclusive_and_an_empty_row_is_never_kept():
    decision = ScoreGate(threshold=2.0).decide(FakeInputs({"bm25": RANKING}))
    assert decision.keep.tolist() == [True, True, False, True]
    assert ScoreGate(threshold=-9.0).decide(FakeInputs({"bm25": RANKING})).keep.tolist() == [True, True, False, True]


def test_no_gate_keeps_all_and_still_shows_a_signal():
    decision = NoGate().decide(FakeInputs({"bm25": RANKING}))
    assert decision.keep.all()
    assert decision.signal.tolist() == [5, 2, 0, 4]


def test_source_names_a_raw_ranking():
    other = Ranking.from_scores({query: {"a": 1.0} for query in RANKING.query_ids})
    both = {"bm25": RANKING, "dense": other}
    assert ScoreGate(threshold=2.0, source="dense").decide(FakeInputs(both)).keep.tolist() == [False] * 4
    with pytest.raises(BadInput, match=r"gate\.source is missing.*bm25, dense"):
        ScoreGate().decide(FakeInputs(both))
    with pytest.raises(BadInput, match="Did you mean 'dense'"):
        ScoreGate(source="dens").decide(FakeInputs(both))


def test_a_signal_of_the_query_alone_needs_no_source():
    other = Ranking.from_scores({query: {"a": 1.0} for query in RANKING.query_ids})
    # Characters: 3, 1, 5, 2. q3 has no document in RANKING, but one in the other.
    gate = ScoreGate(threshold=2.0, signal="query_characters")
    texts = ["abc", "a", "abcde", "ab"]
    assert gate.decide(FakeInputs({"bm25": RANKING}, texts)).keep.tolist() == [True, False, False, True]
    both = FakeInputs({"bm25": RANKING, "dense": other}, texts)
    assert gate.decide(both).keep.tolist() == [True, False, True, True]


def test_agreement_needs_something_to_compare_with():
    with pytest.raises(BadInput, match=r"gate\.signal=agreement compares component rankings"):
        ScoreGate(signal="agreement", source="bm25").check(["bm25"])
    ScoreGate(signal="agreement", source="bm25").check(["bm25", "dense"])


def test_k_below_two_is_refused():
    with pytest.raises(BadInput, match="k=1"):
        ScoreGate(k=1)


def test_an_unknown_signal_is_refused():
    with pytest.raises(BadInput, match="Did you mean 'top_score'"):
        ScoreGate(signal="topscore")
