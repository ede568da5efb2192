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


BOTH = {"bm25": RANKING, "dense": Ranking.from_scores({query: {"a": 1.0} for query in RANKING.query_ids})}


def kept(gate, rankings, texts=None):
    return gate.decide(FakeInputs(rankings, texts)).keep.tolist()


def test_threshold_is_inclusive_and_an_empty_row_is_never_kept():
    for threshold in (2.0, -9.0):
        assert kept(ScoreGate(threshold=threshold), {"bm25": RANKING}) == [True, True, False, True]


def test_no_gate_keeps_all_and_still_shows_a_signal():
    decision = NoGate().decide(FakeInputs({"bm25": RANKING}))
    assert decision.keep.all()
    assert decision.signal.tolist() == [5, 2, 0, 4]


def test_source_names_a_raw_ranking():
    assert kept(ScoreGate(threshold=2.0, source="dense"), BOTH) == [False] * 4
    for gate, message in (
        (ScoreGate(), r"gate\.source is missing.*bm25, dense"),
        (ScoreGate(source="dens"), "Did you mean 'dense'"),
    ):
        with pytest.raises(BadInput, match=message):
            kept(gate, BOTH)


def test_a_signal_of_the_query_alone_needs_no_source():
    # Characters: 3, 1, 5, 2. q3 has no document in RANKING, but one in the other.
    gate, texts = ScoreGate(threshold=2.0, signal="query_characters"), ["abc", "a", "abcde", "ab"]
    assert kept(gate, {"bm25": RANKING}, texts) == [True, False, False, True]
    assert kept(gate, BOTH, texts) == [True, False, True, True]


def test_agreement_needs_something_to_compare_with():
    gate = ScoreGate(signal="agreement", source="bm25")
    with pytest.raises(BadInput, match=r"gate\.signal=agreement compares component rankings"):
        gate.check(["bm25"])
    gate.check(["bm25", "dense"])


@pytest.mark.parametrize(
    ("arguments", "message"), [({"k": 1}, "k=1"), ({"signal": "topscore"}, "Did you mean 'top_score'")]
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(BadInput, match=message):
        ScoreGate(**arguments)
