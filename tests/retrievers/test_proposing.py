"""The documents that an engine proposes, against all documents scored by ourselves."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrievers.base import BadInput
from retrievers.engines import proposing
from retrievers.engines.forward import Forward, SparseQueries
from retrievers.engines.sparse import SparseProposer


class Engine:
    """Adds float32 products in an order of its own, and counts what it is asked for."""

    def __init__(self, rows, queries):
        self._rows, self._queries = rows, queries
        self.widths = []

    def search(self, numbers, width):
        self.widths.append(width)
        return [self._best(int(number), width) for number in numbers]

    def _best(self, number, width):
        found = defaultdict(np.float32)
        terms, weights = self._queries.merged(number)
        for term, weight in reversed(list(zip(terms.tolist(), weights.astype(np.float32), strict=True))):
            for doc, row in enumerate(self._rows):
                if term in row:
                    with np.errstate(over="ignore"):
                        found[doc] += weight * np.float32(row[term])
        ranked = sorted(found, key=lambda doc: (-found[doc], -doc))  # ties in the other order than ours
        return np.array(ranked[:width], np.int64)


def forward(rows, folder, dtype=np.float64):
    starts = np.cumsum([0, *map(len, rows)])
    terms = np.array([term for row in rows for term in sorted(row)], np.int32)
    weights = np.array([row[term] for row in rows for term in sorted(row)], dtype)
    Forward(starts, terms, weights).save(folder)
    return Forward.load(folder)


def asked(*rows):
    terms = np.array([term for row in rows for term, _ in row], np.int64)
    weights = np.array([weight for row in rows for _, weight in row], np.float64)
    return SparseQueries(terms, weights, np.cumsum([0, *map(len, rows)]))


def all_scored(rows, queries, k, floors):
    """Every document scored by plain additions: the reference."""
    found = []
    for number in range(len(queries)):
        scores = {}
        for doc, row in enumerate(rows):
            shared = [(t, w) for t, w in zip(*(one.tolist() for one in queries.row(number)), strict=True) if t in row]
            if shared:
                total = 0.0
                for term, weight in shared:
                    total += row[term] * weight
                scores[doc] = total + floors[number]
        found.append(sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[:k])
    return found


def searched(rows, queries, k, folder, floors=None):
    floors = np.zeros(len(queries)) if floors is None else np.array(floors, np.float64)
    engine = Engine(rows, queries)
    proposer = SparseProposer(forward(rows, folder), queries, floors, engine.search)
    some = np.flatnonzero(np.diff(queries.offsets))
    found = proposing.best(proposer, some, len(queries), k)
    lists = [
        [(doc, score) for doc, score in zip(docs, scores, strict=True) if doc >= 0]
        for docs, scores in zip(found.docs.tolist(), found.scores.tolist(), strict=True)
    ]
    return lists, found.certified.tolist(), engine.widths


def test_by_hand(tmp_path):
    # Document 1 shares terms 0 and 2 with the query: 1 * 2 + 4 * 0.5 = 4. Document 0 shares 0 alone: 3 * 2 = 6.
    rows = [{0: 3.0}, {0: 1.0, 2: 4.0}, {1: 9.0}, {}]
    lists, certified, widths = searched(rows, asked([(0, 2.0), (2, 0.5)], [], [(7, 1.0)]), 3, tmp_path)
    assert lists == [[(0, 6.0), (1, 4.0)], [], []]
    assert certified == [True, True, True]
    assert widths == [23]  # one request: fewer documents than asked for are all there are


def test_more_are_asked_for_until_no_tie_can_be_missing(tmp_path):
    # 200 equal documents: the engine prefers the last ones, we the first. Only all of them are certainly enough.
    rows = [{0: 1 / 3}] * 200
    lists, certified, widths = searched(rows, asked([(0, 1.0)]), 5, tmp_path)
    assert [doc for doc, _ in lists[0]] == [0, 1, 2, 3, 4]
    assert certified == [True]
    assert widths == [25, 50, 100, 200, 400]


def test_at_the_limit_it_is_said_that_documents_may_be_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(proposing, "LIMIT", 100)
    rows = [{0: 1 / 3}] * 200
    lists, certified, widths = searched(rows, asked([(0, 1.0)]), 5, tmp_path)
    assert len(lists[0]) == 5
    assert certified == [False]
    assert widths == [25, 50, 100]


def test_numbers_that_float32_cannot_tell_apart_are_ordered_in_float64(tmp_path):
    rows = [{0: 1 + i * 2.0**-40} for i in range(60)]
    lists, _, _ = searched(rows, asked([(0, 1.0)]), 3, tmp_path)
    assert [doc for doc, _ in lists[0]] == [59, 58, 57]


def test_floors_are_added_and_may_make_ties(tmp_path):
    # 1e17 swallows the difference: both documents score 1e17, and the smaller doc wins.
    lists, _, _ = searched([{0: 1.0}, {0: 2.0}], asked([(0, 1.0)]), 1, tmp_path, floors=[1e17])
    assert lists == [[(0, 1e17)]]


def test_scores_that_overflow_float32_are_never_certified(tmp_path):
    rows = [{0: 3e38, 1: 3e38}] * 40
    lists, certified, widths = searched(rows, asked([(0, 2.0), (1, 2.0)]), 1, tmp_path)
    assert certified == [True]  # once all 40 have been asked for
    assert widths == [21, 42]
    assert lists[0][0][0] == 0


def test_too_deep_is_refused(tmp_path):
    with pytest.raises(BadInput, match=r"at most 16,384 documents"):
        searched([{0: 1.0}], asked([(0, 1.0)]), 16_385, tmp_path)


weights = st.sampled_from([0.1, 0.2, 0.3, 1.0, 1 + 2**-30, 1 + 2**-29, 7.5])


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.dictionaries(st.integers(0, 5), weights, max_size=4), max_size=60),
    queries=st.lists(st.lists(st.tuples(st.integers(0, 6), weights), max_size=5), min_size=1, max_size=4),
    k=st.integers(0, 8),
    floor=st.sampled_from([0.0, 0.7]),
)
def test_the_same_as_all_documents_scored(rows, queries, k, floor, tmp_path_factory):
    queries = asked(*queries)
    floors = [floor] * len(queries)
    lists, certified, _ = searched(rows, queries, k, tmp_path_factory.mktemp("forward"), floors)
    assert lists == all_scored(rows, queries, k, floors)
    assert all(certified)


def test_an_inverted_index_becomes_a_forward_index(tmp_path):
    # Term 0 in documents 0 and 2, term 1 in none, term 2 in document 2.
    made = Forward.of(np.array([0, 2, 2, 3]), np.array([0, 2, 2], np.int32), np.array([0.5, 0.25, 4.0]), 4)
    made.save(tmp_path)
    loaded = Forward.load(tmp_path)
    assert [tuple(map(list, loaded.row(doc))) for doc in range(4)] == [
        ([0], [0.5]),
        ([], []),
        ([0, 2], [0.25, 4.0]),
        ([], []),
    ]
    assert loaded.sent.tolist() == [0, 2]
    assert loaded.digest() == made.digest()
    assert Forward(made.starts, made.terms, made.weights * 2).digest() != made.digest()


def test_a_forward_index_that_does_not_fit_together_is_rejected(tmp_path):
    Forward(np.array([0, 2]), np.array([1], np.int32), np.array([1.0])).save(tmp_path)
    with pytest.raises(ValueError, match="has 1 terms, not 2"):
        Forward.load(tmp_path)


def test_requests_grow_where_the_engine_is_fast_and_shrink_where_it_is_slow(monkeypatch):
    clock, sizes = [0.0], []
    monkeypatch.setattr(proposing.time, "monotonic", lambda: clock[0])
    for some, took in zip(proposing._requests(np.arange(200), 100), (1, 1, 30, 5, 5, 1), strict=True):
        sizes.append(len(some))
        clock[0] += took
    assert sizes == [16, 32, 64, 32, 32, 24]  # doubled twice, halved once, kept; the last are all that is left
    assert [len(some) for some in proposing._requests(np.arange(70), proposing.LIMIT)] == [16, 32, 22]  # 2^19 / 2^14
