"""The types that flow: what a Ranking accepts, and what its methods give."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrievers.base import Document, Query, Ranking, Turn, did_you_mean


def ranking(docs, scores, query_ids=("q1",), doc_ids=("a", "b", "c")):
    return Ranking(query_ids, doc_ids, np.array(docs, np.int32), np.array(scores, np.float64))


def test_indexed_text_is_title_space_text():
    assert Document("d", "본문", title="제목").indexed_text == "제목 본문"
    assert Document("d", "본문").indexed_text == "본문"


def test_query_text_joins_user_turns_only():
    query = Query("q", (Turn("user", "달은?"), Turn("assistant", "위성입니다"), Turn("user", "왜 변해?")))
    assert query.text == "달은? 왜 변해?"
    assert Query.of("q", "물").text == "물"


@pytest.mark.parametrize(
    ("docs", "scores", "message"),
    [
        ([[0, 1]], [[1.0, 2.0]], "ordered by score"),
        ([[1, 0]], [[1.0, 1.0]], "then doc_id ascending"),  # a tie must stand a, b
        ([[0, 0]], [[2.0, 1.0]], "each document once"),
        ([[-1, 0]], [[0.0, -1.0]], "pads only the end"),
        ([[0, 3]], [[2.0, 1.0]], "indices into its doc_ids"),
        ([[0, -1]], [[2.0, 1.0]], "0 where a row is padded"),
        ([[0, 1]], [[np.inf, 1.0]], "finite"),
        ([[0, 1]], [[np.nan, 1.0]], "finite"),
        ([[0], [1]], [[1.0], [1.0]], "do not match"),  # two rows, one query
    ],
)
def test_a_ranking_refuses_disorder(docs, scores, message):
    with pytest.raises(ValueError, match=message):
        ranking(docs, scores)


def test_a_ranking_refuses_bad_tables():
    with pytest.raises(ValueError, match="unique and ascending"):
        ranking([[0]], [[1.0]], doc_ids=("b", "a"))
    with pytest.raises(ValueError, match="each query once"):
        ranking([[0], [0]], [[1.0], [1.0]], query_ids=("q", "q"))
    with pytest.raises(ValueError, match="int32"):
        Ranking(("q",), ("a",), np.array([[0]]), np.array([[1.0]]))


def test_top_where_and_trec():
    full = ranking([[2, 0, 1], [1, -1, -1]], [[3.0, 2.0, 2.0], [0.5, 0.0, 0.0]], query_ids=("q1", "q2"))
    assert full.top(1).to_dict() == {"q1": {"c": 3.0}, "q2": {"b": 0.5}}
    assert full.where(np.array([False, True])).to_dict() == {"q1": {}, "q2": {"b": 0.5}}
    assert full.lengths.tolist() == [3, 1]
    assert list(full.to_trec("tag"))[1] == "q1 Q0 a 2 2.0 tag"
    assert list(Ranking.from_scores({"q 1": {"a\tb": 1.0}}).to_trec("tag")) == ["q%201 Q0 a%09b 1 1.0 tag"]


def test_negative_scores_and_empty_rankings_are_legal():
    assert ranking([[0, 1]], [[-1.0, -2.0]]).row(0) == [("a", -1.0), ("b", -2.0)]
    assert ranking(np.zeros((0, 0)), np.zeros((0, 0)), query_ids=(), doc_ids=()).to_dict() == {}
    assert ranking(np.zeros((1, 0)), np.zeros((1, 0))).top(3).to_dict() == {"q1": {}}


@given(
    st.dictionaries(
        st.text(max_size=3),
        st.dictionaries(st.text(max_size=3), st.integers(-3, 3).map(float), max_size=6),
        max_size=5,
    ),
    st.integers(1, 7),
)
def test_from_scores_orders_by_score_then_id(scores, k):
    found = Ranking.from_scores(scores, k)
    for i, (query_id, row) in enumerate(scores.items()):
        assert found.query_ids[i] == query_id
        assert found.row(i) == sorted(row.items(), key=lambda item: (-item[1], item[0]))[:k]


def test_did_you_mean():
    assert did_you_mean("okapy", ["okapi", "lucene"]) == " Did you mean 'okapi'?"
    assert did_you_mean("xyz", ["okapi", "lucene"]) == ""
