"""Lists compared with labels, worked by hand."""

import math
import random

import numpy as np
import pytest
from fakes import predictions

from harness.data.qrels import Qrels
from harness.measures.judged import at, judge_lists
from harness.measures.measures import MEASURES, MeasureFamily, parse_measure
from retrievers.base import Ranking


def judged(lists, grades):
    return judge_lists(predictions(lists), Qrels(grades))


def test_judged_arrays_and_running_totals_worked_by_hand():
    # q1 returns b (grade 1), x, a (grade 2), a again; c (grade 3) is not returned. q2 needs nothing.
    got = judged({"q1": list("bxaa"), "q2": []}, {"q1": {"a": 2, "b": 1, "c": 3}, "q2": {}})
    assert got.gains.tolist() == [[1, 0, 2, 0], [0, 0, 0, 0]]
    assert got.repeats.tolist() == [[False, False, False, True], [False] * 4]
    assert got.returned.tolist() == [4, 0]
    assert got.ideal.tolist() == [[3, 2, 1], [0, 0, 0]]
    assert got.needs.tolist() == [True, False]
    # Hits at ranks 1 and 3; with the repeat, at rank 4 too.
    totals = (got.hits, got.precisions, got.hits_with_repeats, got.precisions_with_repeats, got.dcg)
    assert [one[0].tolist() for one in totals] == [
        [0, 1, 1, 2, 2],
        [0, 1, 1, 1 + 2 / 3, 1 + 2 / 3],
        [0, 1, 1, 2, 3],
        [0, 1, 1, 1 + 2 / 3, 1 + 2 / 3 + 3 / 4],
        [0, 1, 1, 2, 2],  # 1 / log2(2) + 2 / log2(4)
    ]
    assert got.ideal_dcg[0].tolist() == pytest.approx([0, 3, 3 + 2 / math.log2(3), 3.5 + 2 / math.log2(3)])
    assert (got.relevant.tolist(), got.first.tolist()) == ([3, 0], [1, math.inf])
    assert [at(got.hits, k).tolist() for k in (1, 3, 99, None)] == [[1, 0], [2, 0], [2, 0], [2, 0]]


def test_the_first_hit():
    got = judged({"q1": list("xya"), "q2": ["x"], "q3": []}, {"q1": {"a": 1}, "q2": {"a": 1}, "q3": {"a": 1}})
    assert got.first.tolist() == [3, math.inf, math.inf]
    assert judged({"q": []}, {"q": {"a": 1}}).first.tolist() == [math.inf]


def test_only_the_given_queries_are_judged_in_the_given_order():
    lists, qrels = predictions({"u": ["a"], "q1": ["a"], "q2": ["b"]}), Qrels({"q1": {"a": 1}, "q2": {"a": 1}})
    assert judge_lists(lists, qrels).gains.tolist() == [[1], [0]]
    assert judge_lists(lists, qrels, ["q2", "q1"]).gains.tolist() == [[0], [1]]


def test_judging_in_parts_is_judging_at_once(monkeypatch):
    rng = random.Random(1)
    lists = predictions({f"q{i}": rng.choices("abcdefgh", k=6) for i in range(20)})
    qrels = Qrels({f"q{i}": {doc: rng.randint(1, 3) for doc in rng.sample("abcdefghxyz", 5)} for i in range(20)})
    whole = judge_lists(lists, qrels)
    monkeypatch.setattr("harness.measures.judged._CELLS", 1)
    parts = judge_lists(lists, qrels)
    assert (whole.gains == parts.gains).all()
    assert (whole.repeats == parts.repeats).all()


def test_a_signal_is_checked():
    for signal in (np.array([math.nan]), np.array([1.0, 2.0])):
        with pytest.raises(ValueError, match="one number"):
            judge_lists(predictions({"q": ["a"]}), Qrels({"q": {}}), signal=signal)


def test_a_ranking_is_judged_like_a_list():
    # b scores higher than a; z is in the ranking but not in the labels, c only in the labels.
    ranking = Ranking.from_scores({"q1": {"a": 1.0, "b": 2.0, "z": 1.5}, "q2": {}})
    got = judge_lists(ranking, Qrels({"q1": {"a": 2.0, "b": 1.0, "c": 3.0}, "q2": {}}))
    assert got.gains.tolist() == [[1, 0, 2], [0, 0, 0]]
    assert got.returned.tolist() == [3, 0]


def test_measures_of_some_queries_are_those_of_all():
    lists = predictions({"q1": list("xa"), "q2": list("uxa"), "q3": []})
    qrels = Qrels({"q1": {"a": 1}, "q2": {"a": 2}, "q3": {}}, not_relevant={"q1": frozenset("x")})
    got = judge_lists(lists, qrels, signal=np.array([3.0, 1.0, 2.0]))
    for rows in (np.array([True, False, True]), np.array([2, 0]), np.array([1])):
        some = got.take(rows)
        assert some.signal.tolist() == got.signal[rows].tolist()
        for name in MEASURES:
            if MEASURES[name].family is not MeasureFamily.POOLED:
                measure = parse_measure(name)
                np.testing.assert_array_equal(measure.values(some), measure.values(got)[rows], name)
    assert judge_lists(lists, qrels).take(got.needs).signal is None
