"""The shared types, and the report of the retrievers' contract."""

import gc
import os
import threading
import time
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrievers import base
from retrievers.base import DocIds, Document, Query, Ranking, Turn, in_parts, occurring, remembered
from retrievers.testing import contract


def ranking(docs, scores, query_ids=("q1",), doc_ids=("a", "b", "c")):
    return Ranking(query_ids, doc_ids, np.array(docs, np.int32), np.array(scores, np.float64))


def test_titles_are_indexed_and_only_user_turns_are_searched_for():
    assert Document("d", "본문", title="제목").indexed_text == "제목 본문"
    assert Document("d", "본문").indexed_text == "본문"
    query = Query("q", (Turn("user", "달은?"), Turn("assistant", "위성입니다"), Turn("user", "왜 변해?")))
    assert query.text == "달은? 왜 변해?"
    assert Query.of("q", "물").text == "물"


@pytest.mark.parametrize(
    ("docs", "scores", "message"),
    [
        ([[0, 1]], [[1.0, 2.0]], "ordered by score"),
        ([[1, 0]], [[1.0, 1.0]], "then doc_id ascending"),  # a tie must be in the order a, b
        ([[0, 0]], [[2.0, 1.0]], "each document once"),
        ([[-1, 0]], [[0.0, -1.0]], "pads only the end"),
        ([[0, 3]], [[2.0, 1.0]], "indices into its doc_ids"),
        ([[0, -1]], [[2.0, 1.0]], "0 where a row is padded"),
        ([[0, 1]], [[np.inf, 1.0]], "finite"),
        ([[0, 1]], [[np.nan, 1.0]], "finite"),
        ([[0], [1]], [[1.0], [1.0]], "do not match"),  # two rows, one query
    ],
)
def test_a_ranking_rejects_wrong_order_and_values(docs, scores, message):
    with pytest.raises(ValueError, match=message):
        ranking(docs, scores)


def test_a_ranking_rejects_bad_tables():
    with pytest.raises(ValueError, match="unique and ascending"):
        ranking([[0]], [[1.0]], doc_ids=("b", "a"))
    with pytest.raises(ValueError, match="each query once"):
        ranking([[0], [0]], [[1.0], [1.0]], query_ids=("q", "q"))
    with pytest.raises(ValueError, match="int32"):
        Ranking(("q",), ("a",), np.array([[0]]), np.array([[1.0]]))
    with pytest.raises(IndexError):
        ranking([[0]], [[1.0]]).where(np.array([True, False]))


def test_trec_and_other_views():
    full = ranking([[2, 0, 1], [1, -1, -1]], [[3.0, 2.0, 2.0], [0.5, 0.0, 0.0]], query_ids=("q1", "q2"))
    assert full.top(1).to_dict() == {"q1": {"c": 3.0}, "q2": {"b": 0.5}}
    assert full.where(np.array([False, True])).to_dict() == {"q1": {}, "q2": {"b": 0.5}}
    assert full.lengths.tolist() == [3, 1]
    assert next(iter(full.to_trec("tag"))).splitlines()[1] == "q1 Q0 a 2 2.0 tag"
    assert list(Ranking.from_scores({"q 1": {"a\tb": 1.0}}).to_trec("tag")) == ["q%201 Q0 a%09b 1 1.0 tag\n"]
    assert ranking([[0, 1]], [[-1.0, -2.0]]).row(0) == [("a", -1.0), ("b", -2.0)]
    assert ranking(np.zeros((0, 0)), np.zeros((0, 0)), query_ids=(), doc_ids=()).to_dict() == {}
    assert ranking(np.zeros((1, 0)), np.zeros((1, 0))).top(3).to_dict() == {"q1": {}}


ROWS = st.dictionaries(st.text(max_size=3), st.integers(-3, 3).map(float), max_size=6)


@given(st.dictionaries(st.text(max_size=3), ROWS, max_size=5), st.integers(1, 7))
def test_from_scores_orders_by_score_then_id(scores, k):
    found = Ranking.from_scores(scores, k)
    for i, (query_id, row) in enumerate(scores.items()):
        assert found.query_ids[i] == query_id
        assert found.row(i) == sorted(row.items(), key=lambda item: (-item[1], item[0]))[:k]


@given(st.lists(ROWS, max_size=5), st.integers(0, 7), st.data())
def test_derived_rankings_pass_the_checks_they_skip(rows, k, data):
    full = Ranking.from_scores({str(i): row for i, row in enumerate(rows)})
    keep = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))), bool)
    lengths = data.draw(st.lists(st.integers(0, 2**31 - 1) | st.integers(0, 7), min_size=len(rows), max_size=len(rows)))
    cut = full.cut(np.array(lengths, np.int64))
    for derived in (full.top(k), full.where(keep), full.where(keep).top(k), full.top(k).where(keep), cut):
        again = Ranking(derived.query_ids, derived.doc_ids, derived.docs, derived.scores)
        assert again.to_dict() == derived.to_dict()
    for i, row in enumerate(rows):
        assert full.top(k).row(i) == full.row(i)[:k]
        assert full.where(keep).row(i) == (full.row(i) if keep[i] else [])
        assert cut.row(i) == full.row(i)[: lengths[i]]
        assert dict(full.row(i)) == row  # the original is unchanged


@pytest.mark.slow
def test_the_last_results_are_remembered_as_long_as_their_objects_live():
    calls = []

    @remembered
    def widths(one, other, *, k):
        calls.append(k)
        return np.array([one.docs.shape[1], other.docs.shape[1], k])

    one, other, twin = (ranking([[0, 1]], [[2.0, 1.0]]) for _ in range(3))
    found = widths(one, other, k=3)
    assert widths(one, other, k=3) is found
    assert widths(other, one, k=3) is not found  # another order, value or equal object is another call
    assert widths(one, other, k=4)[2] == 4
    assert widths(one, twin, k=3) is not found
    assert calls == [3, 3, 4, 3]
    result = weakref.ref(found)
    del found
    assert result() is not None
    del other
    gc.collect()
    assert result() is None
    made = remembered(lambda _, *, k: np.array([k]))
    results = [weakref.ref(made(one, k=k)) for k in range(100)]
    assert sum(result() is not None for result in results) <= 16
    assert results[-1]() is made(one, k=99)


@pytest.mark.parametrize("count", [5, 400, 5000])  # of many documents, few are looked up by a sort
@pytest.mark.parametrize("docs", [[[3, 0, 3], [4, -1, -1]], [[2]], [[-1, -1]], [[]]])
def test_the_occurring_documents(docs, count):
    docs = np.array(docs, np.int32)
    used, places = occurring(docs, count)
    assert used.tolist() == sorted({*docs.ravel().tolist()} - {-1})
    assert places.dtype == np.int32
    assert np.append(used, -1)[places].tolist() == docs.tolist()


def test_doc_ids_are_the_same_from_a_list_and_from_a_text(tmp_path, monkeypatch):
    DocIds.save(tmp_path, [Document(one, "") for one in ("", "a", "물리", "\ud800", "😀")])
    for listed in (0, 5):
        monkeypatch.setattr(base, "LISTED", listed)
        assert DocIds(tmp_path)[np.array([2, 0, 4, 3])] == ("물리", "", "😀", "\ud800")


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("parts", [1, 3, 40])
def test_parts_cover_a_range_once(parts, threads):
    calls = []
    in_parts(20, parts, threads, lambda first, last: calls.append((first, last)))
    calls.sort()
    assert len(calls) == min(parts, 20)
    assert [place for first, last in calls for place in range(first, last)] == list(range(20))


@pytest.mark.parametrize("where", ["here", "in a helper"])
def test_after_an_error_no_further_part_begins(where):
    begun, here, meeting = [], threading.get_ident(), threading.Barrier(2, timeout=20)

    def work(first, last):
        begun.append(first)
        if first < 2:
            meeting.wait()  # now both threads have a part
        if (threading.get_ident() == here) == (where == "here"):
            raise OSError("disk full")
        time.sleep(0.01)

    with pytest.raises(OSError, match="disk full"):
        in_parts(50, 50, 2, work)
    assert len(begun) < 50


def test_busy_helpers_are_not_waited_for():
    free, begun = threading.Event(), threading.Event()
    helper = base._helpers(1).submit(lambda: (begun.set(), free.wait(20)))
    begun.wait(20)
    calls = []
    in_parts(4, 4, 2, lambda first, last: calls.append(first))
    assert (calls, helper.done()) == ([0, 1, 2, 3], False)
    free.set()


def test_a_fork_starts_its_own_threads():
    in_parts(2, 2, 2, lambda first, last: None)
    if not (child := os.fork()):
        meeting = threading.Barrier(2, timeout=20)
        try:
            in_parts(2, 2, 2, lambda first, last: meeting.wait())
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


CORPUS = [Document(f"d{i:02}", f"text {i}") for i in range(30)]


class Fake:
    """Returns rows(k) for each query."""

    def __init__(self, rows):
        self._rows = rows

    def index(self, documents, folder):
        DocIds.save(folder, documents)

    def load(self, folder):
        pass

    def search(self, queries, k):
        return Ranking.from_scores({query.query_id: dict(self._rows(k)[:k]) for query in queries}, k)


def falling(count):
    return [(f"d{i:02}", 50.0 - i) for i in range(count)]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (
            lambda k: [("d01", 9.0), *((f"d{i}", 7.0) for i in range(10 if k > 3 else 20, 30))],
            "the first 3 hits with k=10 differ for query q1, first at place 2: 'd20' with 7.0 and 'd10' with 7.0",
        ),
        (lambda k: [("d01", 9.0 + (k == 1)), ("d02", 3.0)], "at place 1: 'd01' with 10.0 and 'd01' with 9.0"),
        (lambda k: falling(30 if k < 40 else 8), "k=40 and k=10 differ for query q1, first at place 9: nothing and"),
        (lambda k: falling(30), ""),
    ],
    ids=["ties", "scores", "cut off", "right"],
)
def test_the_first_difference(rows, expected, tmp_path):
    found = dict(contract(lambda: Fake(rows), CORPUS, [Query.of("q1", "text")], tmp_path))
    said = found["a row has at most k documents, and a smaller k gives the first of them"]
    assert expected in said
    assert bool(said) == bool(expected)
