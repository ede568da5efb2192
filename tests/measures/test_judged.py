"""Lists compared with labels, worked by hand."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

import numpy as np
import pytest
from fakes import predictions

from harness.data.qrels import Qrels
from harness.measures.judged import Judged, at, judge_lists
from retrievers.base import Ranking


def judged(lists: Mapping[str, list[str]], grades: Mapping[str, Mapping[str, float]]) -> Judged:
    return judge_lists(predictions(lists), Qrels(grades))


def test_judged_arrays_worked_by_hand() -> None:
    # q1 returns b (grade 1), x, a (grade 2), a again; c (grade 3) is not returned. q2 needs nothing.
    got = judged({"q1": list("bxaa"), "q2": []}, {"q1": {"a": 2, "b": 1, "c": 3}, "q2": {}})
    assert got.gains.tolist() == [[1, 0, 2, 0], [0, 0, 0, 0]]
    assert got.repeats.tolist() == [[False, False, False, True], [False] * 4]
    assert got.returned.tolist() == [4, 0]
    assert got.ideal.tolist() == [[3, 2, 1], [0, 0, 0]]
    assert got.needs.tolist() == [True, False]


def test_only_the_given_queries_are_judged_in_the_given_order() -> None:
    lists, qrels = predictions({"u": ["a"], "q1": ["a"], "q2": ["b"]}), Qrels({"q1": {"a": 1}, "q2": {"a": 1}})
    assert judge_lists(lists, qrels).gains.tolist() == [[1], [0]]
    assert judge_lists(lists, qrels, ["q2", "q1"]).gains.tolist() == [[0], [1]]


def test_judging_in_parts_is_judging_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(1)
    lists = predictions({f"q{i}": rng.choices("abcdefgh", k=6) for i in range(20)})
    qrels = Qrels({f"q{i}": {doc: rng.randint(1, 3) for doc in rng.sample("abcdefghxyz", 5)} for i in range(20)})
    whole = judge_lists(lists, qrels)
    monkeypatch.setattr("harness.measures.judged._CELLS", 1)
    parts = judge_lists(lists, qrels)
    assert (whole.gains == parts.gains).all()
    assert (whole.repeats == parts.repeats).all()


def test_a_signal_is_checked() -> None:
    for signal in (np.array([math.nan]), np.array([1.0, 2.0])):
        with pytest.raises(ValueError, match="one number"):
            judge_lists(predictions({"q": ["a"]}), Qrels({"q": {}}), signal=signal)


def test_a_ranking_is_judged_like_a_list() -> None:
    # b scores higher than a; z is in the ranking but not in the labels, c only in the labels.
    ranking = Ranking.from_scores({"q1": {"a": 1.0, "b": 2.0, "z": 1.5}, "q2": {}})
    qrels = Qrels({"q1": {"a": 2.0, "b": 1.0, "c": 3.0}, "q2": {}})
    from_ranking, from_list = (
        judge_lists(ranking, qrels),
        judge_lists(predictions({"q1": list("bza"), "q2": []}), qrels),
    )
    assert from_ranking.gains.tolist() == from_list.gains.tolist() == [[1, 0, 2], [0, 0, 0]]
    assert from_ranking.returned.tolist() == from_list.returned.tolist() == [3, 0]


def test_running_totals_worked_by_hand() -> None:
    # b (grade 1), x, a (grade 2), a again: hits at ranks 1 and 3; with the repeat, at rank 4 too.
    got = judged({"q1": list("bxaa")}, {"q1": {"a": 2, "b": 1, "c": 3}})
    assert got.hits.tolist() == [[0, 1, 1, 2, 2]]
    assert got.precisions.tolist() == [[0, 1, 1, 1 + 2 / 3, 1 + 2 / 3]]
    assert got.hits_with_repeats.tolist() == [[0, 1, 1, 2, 3]]
    assert got.precisions_with_repeats.tolist() == [[0, 1, 1, 1 + 2 / 3, 1 + 2 / 3 + 3 / 4]]
    assert got.dcg.tolist() == [[0, 1, 1, 2, 2]]  # 1 / log2(2) + 2 / log2(4)
    assert got.ideal_dcg[0].tolist() == pytest.approx([0, 3, 3 + 2 / math.log2(3), 3.5 + 2 / math.log2(3)])
    assert (got.relevant.tolist(), got.first.tolist()) == ([3], [1])
    assert [at(got.hits, k).tolist() for k in (1, 3, 99, None)] == [[1], [2], [2], [2]]


def test_the_first_hit() -> None:
    got = judged({"q1": list("xya"), "q2": ["x"], "q3": []}, {"q1": {"a": 1}, "q2": {"a": 1}, "q3": {"a": 1}})
    assert got.first.tolist() == [3, math.inf, math.inf]
    assert judged({"q": []}, {"q": {"a": 1}}).first.tolist() == [math.inf]


def test_some_of_the_queries() -> None:
    qrels = Qrels({"q1": {"a": 1}, "q2": {}, "q3": {"b": 2}})
    lists = predictions({"q1": ["a"], "q2": [], "q3": ["x"]})
    got = judge_lists(lists, qrels, signal=np.array([3.0, 1.0, 2.0]))
    some = got.take(np.array([2, 0]))
    assert some.gains.tolist() == [[0], [1]]
    assert some.returned.tolist() == [1, 1]
    assert some.signal is not None
    assert some.signal.tolist() == [2, 3]
    assert got.take(got.needs).needs.tolist() == [True, True]
    assert judge_lists(lists, qrels).take(got.needs).signal is None
