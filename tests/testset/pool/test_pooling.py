"""What goes into a pool and what it misses: worked out by hand, and rules that hold for any lists."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.data.testset import EvidencedQuery
from harness.testset.judge.judgements import Judgement, text_digest
from harness.testset.pool.pool import About, DocumentsPlace, Pool, PooledPair, PooledRun
from harness.testset.pool.pooling import Draw, Sources, missed, pooled, reusability
from harness.testset.review.resolution import resolve
from retrievers.base import Query

LISTS = {"bm25": {"q1": ["a", "b", "c", "d", "e"], "q2": ["a"]}, "dense": {"q1": ["b", "f", "g"]}}


def test_by_hand():
    """The first two of bm25 (a, b) and of dense (b, f); c has evidence, and h nearly repeats it. Below the depth stand
    c, d, e of bm25 and g of dense, of which c is there already: of d, e and g one is drawn, with pi = 1/3."""
    sources = Sources(LISTS, {"q1": ["c"]}, {"c": ("c", "h"), "a": ("a", "z")})
    found = pooled(["q2", "q1", "q3"], (), sources, Draw(depth=2, sample=1, seed=0))
    drawn = [pair for pair in found if pair.pi < 1]
    assert [pair for pair in found if pair.pi == 1] == [
        PooledPair("q1", "a", {"bm25": 1}),
        PooledPair("q1", "b", {"bm25": 2, "dense": 1}),
        PooledPair("q1", "c", seed=True),
        PooledPair("q1", "f", {"dense": 2}),
        PooledPair("q1", "h", near_duplicate=True),
        PooledPair("q2", "a", {"bm25": 1}),
    ]
    assert [(pair.query_id, pair.pi) for pair in drawn] == [("q1", 1 / 3)]
    assert drawn[0].doc_id in "deg"
    assert list(found) == sorted(found, key=lambda pair: (pair.query_id, pair.doc_id))


def test_another_run_adds_and_draws_no_second_time_and_changed_labels_keep_the_pair():
    first = pooled(["q1", "q2"], (), Sources(LISTS), Draw(2, 1, 0))
    [drawn] = [pair for pair in first if pair.pi < 1]
    new = {"other": {"q1": ["x", drawn.doc_id, "y", "a"]}}
    second = pooled(["q1", "q2"], first, Sources(new), Draw(3, 0, 0))
    had = {(pair.query_id, pair.doc_id): pair for pair in second}
    assert had["q1", drawn.doc_id] == PooledPair("q1", drawn.doc_id, {"other": 2}), "what a run brings is certain"
    assert had["q1", "a"].ranks == {"bm25": 1}, "a stands at rank 4 of the other run, below its depth"
    assert {pair.doc_id for pair in second if pair.query_id == "q1"} == {"a", "b", "f", drawn.doc_id, "x", "y"}
    elsewhere = pooled(["q1"], first, Sources({"other": {"q1": ["x", "y", "z", "u", "v"]}}), Draw(2, 2, 0))
    assert [pair.doc_id for pair in elsewhere if pair.pi < 1] == [drawn.doc_id], "there is a draw already"
    first = pooled(["q1"], (), Sources({}, {"q1": ["a"]}, {"a": ("a", "b")}), Draw(2, 0, 0))
    second = pooled(["q1"], first, Sources({}, {"q1": ["b"]}), Draw(2, 0, 0))  # a has evidence no more
    assert second == (PooledPair("q1", "a"), PooledPair("q1", "b", seed=True))


names = st.sampled_from([f"d{n}" for n in range(12)])
lists = st.dictionaries(
    st.sampled_from(["r1", "r2", "r3"]),
    st.dictionaries(st.sampled_from(["q1", "q2"]), st.lists(names, unique=True)),
)
draws = st.builds(Draw, depth=st.integers(1, 4), sample=st.integers(0, 4), seed=st.integers(0, 3))
seeds = st.dictionaries(st.sampled_from(["q1", "q2"]), st.lists(names, max_size=2, unique=True))


@given(lists, lists, seeds, draws, draws)
def test_whatever_is_pooled(first, second, evidence, draw, again):
    groups = {"d1": ("d1", "d2"), "d2": ("d1", "d2")}
    queries = ["q1", "q2"]
    pool = pooled(queries, (), Sources(first, evidence, groups), draw)
    assert pooled(queries, pool, Sources(first, evidence, groups), draw) == pool, "the same command changes nothing"
    more = pooled(queries, pool, Sources(second, evidence, groups), again)
    former, latter = ({(pair.query_id, pair.doc_id): pair for pair in pairs} for pairs in (pool, more))
    assert former.keys() <= latter.keys(), "no pair leaves"
    for key, pair in former.items():
        assert pair.ranks.keys() <= latter[key].ranks.keys(), "no rank is lost"
        assert latter[key].pi in (pair.pi, 1.0)
    for pairs in (pool, more):
        for pair in pairs:
            assert pair.pi == 1 or not (pair.ranks or pair.seed or pair.near_duplicate)
    for query_id in queries:  # the first draw, counted anew
        brought = {doc for lists in first.values() for doc in lists.get(query_id, ())[: draw.depth]}
        below = {doc for lists in first.values() for doc in lists.get(query_id, ())[draw.depth :]}
        certain = {pair.doc_id for pair in pool if pair.query_id == query_id and (pair.seed or pair.near_duplicate)}
        rest = below - brought - certain
        drawn = [pair for pair in pool if pair.query_id == query_id and pair.doc_id in rest]
        assert len(drawn) == min(draw.sample, len(rest))
        assert all(math.isclose(pair.pi, len(drawn) / len(rest)) for pair in drawn)
        assert brought <= {pair.doc_id for pair in pool if pair.query_id == query_id}


def test_the_sample_estimates_what_is_below_without_bias():
    """8 of 26 documents below the depth are relevant. A second run, whose first documents are some of these, makes
    drawn ones certain; both estimates, sums of 1 / pi over relevant documents, have the right mean over 2,000 draws."""
    first = Sources({"r": {"q": ["top", *"abcdefghijklmnopqrstuvwxyz"]}})
    second = Sources({"s": {"q": ["e", "f", "g", "top"]}})
    found = []
    for seed in range(2000):
        pool = pooled(["q"], (), first, Draw(1, 6, seed))
        later = pooled(["q"], pool, second, Draw(3, 6, seed))
        found.append([sum(1 / pair.pi for pair in pairs if pair.doc_id in "aeimquyz") for pairs in (pool, later)])
    # the standard deviation of one estimate is about 3.1, that of the mean .07
    assert np.mean(found, axis=0) == pytest.approx([8, 8], abs=0.3)


RUNS = {"r1": PooledRun("bm25", 2), "r2": PooledRun("dense", 2)}
# q1: a is relevant and both runs have it, b is relevant and r1 alone has it. q2: c is relevant and r2 alone has it.
PAIRS = (
    PooledPair("q1", "a", {"r1": 2, "r2": 1}),
    PooledPair("q1", "b", {"r1": 1}),
    PooledPair("q1", "x", {"r2": 2}),
    PooledPair("q1", "y", pi=0.25),
    PooledPair("q1", "z", pi=0.25),
    PooledPair("q2", "c", {"r2": 1}),
    PooledPair("q2", "u", {"r1": 1}),
    PooledPair("q2", "y", pi=0.5),
    PooledPair("q3", "y", {"r1": 1, "r2": 1}),
    PooledPair("q4", "y", {"r1": 1, "r2": 1}),
)
GRADES = {("q1", "a"): 2, ("q1", "b"): 2, ("q1", "y"): 2, ("q2", "c"): 3}
SECOND = 1 / math.log2(3)


KINDS = {"q1": "fact", "q2": "fact", "q3": "none", "q4": "unanswerable", "q5": "fact"}
QUERIES = [EvidencedQuery(Query.of(name, name), kind, (), "") for name, kind in KINDS.items()]


def resolved(pairs=PAIRS, without=()):
    by_id = {one.query.query_id: one.query for one in QUERIES}
    keys = [(one.query_id, one.doc_id) for one in pairs if (one.query_id, one.doc_id) not in without]
    said = [
        Judgement(query_id, text_digest(by_id[query_id]), doc_id, GRADES.get((query_id, doc_id), 0), "human:kim", "now")
        for query_id, doc_id in keys
    ]
    return resolve(said, QUERIES, pairs)


def pool(pairs=PAIRS, runs=RUNS):
    queries = dict.fromkeys(["q1", "q2", "q3", "q4", "q5"], "")
    return Pool(pairs, About(DocumentsPlace("docs", "ab"), runs, queries=queries))


def test_runs_are_scored_without_what_they_alone_brought():
    """q3 needs no retrieval, q4 has no answer, and nothing is pooled for q5: q1 and q2 count.

    Relevant to q1 are a, b and y, with the grade 2 each, so that the ideal of two documents is 2 + 2/log2(3). bm25 has
    b and a: 1. Without b, it has a at rank 2 alone: (2/log2(3)) / (2 + 2/log2(3)). For q2 it finds nothing.
    dense has a first and x: 2 / (2 + 2/log2(3)), and c first: 1. Without x and c, which it alone brought, q2 has no
    relevant document: 0.
    """
    found = reusability(pool(), resolved(), QUERIES)
    assert (found.measure, found.queries) == ("ndcg@2", 2)
    bm25, dense = found.runs
    assert (bm25.run_id, bm25.name, bm25.alone) == ("r1", "bm25", 2)  # b and u
    assert bm25.score == pytest.approx((1 + 0) / 2)
    assert bm25.without == pytest.approx((SECOND / (1 + SECOND)) / 2)
    assert (dense.name, dense.alone) == ("dense", 2)  # x and c
    assert dense.score == pytest.approx((1 / (1 + SECOND) + 1) / 2)
    assert dense.without == pytest.approx((1 / (1 + SECOND)) / 2)
    assert (bm25.place, dense.place) == (2, 1)
    # without c: bm25 has .5, dense .307, so that dense comes to place 2; without b, bm25 stays behind
    assert (bm25.place_without, dense.place_without) == (2, 2)
    assert found.worst is dense
    assert found.moved == 1
    assert found.text() == (
        "Reusability: without the documents that no other run pooled, a run's ndcg@2 would change by at most 0.500 "
        "(dense: 0.807 becomes 0.307), and 1 of 2 runs would change places. This is based on 2 queries whose pairs are "
        "all judged."
    )


def test_what_was_drawn_stands_for_what_was_not():
    """Of the three drawn documents y is relevant to q1; drawn with 1/4, it stands for 4, 3 of which nobody has seen."""
    found = missed(pool(), resolved(), QUERIES)
    assert (found.queries, found.judged, found.found, found.labelled) == (2, 3, 1, 4)
    assert found.estimated == pytest.approx(4 + 3)
    assert found.below == pytest.approx(4 + 4 + 2)
    assert found.error == pytest.approx(math.sqrt(0.75 / 0.25**2))  # the one relevant: (1 - pi) / pi^2
    assert found.text() == (
        "Judgements miss an estimated 3 of 7 relevant documents that the runs retrieved (standard error 3): 1 of 3 "
        "documents drawn from below pool.depth are relevant. This is based on 2 queries whose pairs are all judged."
    )


def test_where_no_drawn_document_is_relevant():
    pairs = [one for one in PAIRS if (one.query_id, one.doc_id) != ("q1", "y")]
    found = missed(pool(tuple(pairs)), resolved(pairs), QUERIES)
    assert (found.found, found.below, found.estimated, found.labelled) == (0, 6, 3, 3)
    assert found.text() == (  # 3 / 2 of 6
        "None of 2 documents drawn from below pool.depth is relevant: with 95 % confidence, "
        "fewer than 9 are missing. This is based on 2 queries whose pairs are all judged."
    )


def test_queries_count_once_all_pairs_are_judged_and_seeds_are_brought_without_any_run():
    partly = resolved(without=[("q1", "z")])
    assert reusability(pool(), partly, QUERIES).queries == 1
    assert missed(pool(), partly, QUERIES).judged == 1
    nobody = resolved(without=[(one.query_id, one.doc_id) for one in PAIRS])
    assert reusability(pool(), nobody, QUERIES) is missed(pool(), nobody, QUERIES) is None
    assert reusability(pool(runs={"r1": RUNS["r1"]}), resolved(), QUERIES) is None, "one run says nothing"
    pairs = tuple(
        PooledPair(one.query_id, one.doc_id, one.ranks, one.doc_id == "b", one.doc_id == "c", one.pi) for one in PAIRS
    )
    bm25, dense = reusability(pool(pairs), resolved(pairs), QUERIES).runs
    assert (bm25.alone, bm25.change) == (1, 0)
    assert (dense.alone, dense.change) == (1, 0)
