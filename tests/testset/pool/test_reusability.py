"""What a pool's judgements miss, worked out by hand."""

import math

import pytest
from documents_folders import folder_of_testset, query

from harness.data.testset import read_queries
from harness.testset.judge.judgements import Judgement, text_digest
from harness.testset.pool.pool import About, Pool, PooledPair, PooledRun
from harness.testset.pool.pooling import missed, reusability
from harness.testset.review.resolution import resolve

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


@pytest.fixture(scope="module")
def queries(tmp_path_factory):
    evidence = [{"text": "0" * 20, "start": 0, "end": 1, "exact": "x"}]
    rows = [query(name, name, evidence) for name in ("q1", "q2", "q5")]
    rows += [query("q3", "hello"), query("q4", "who?", kind="unanswerable")]
    return read_queries(folder_of_testset(tmp_path_factory.mktemp("x") / "ts", rows))


def resolved(queries, pairs=PAIRS, without=()):
    by_id = {one.query.query_id: one.query for one in queries}
    return resolve(
        [
            Judgement(
                one.query_id, text_digest(by_id[one.query_id]), one.doc_id,
                GRADES.get((one.query_id, one.doc_id), 0), "human:kim", "now",
            )
            for one in pairs if (one.query_id, one.doc_id) not in without
        ],
        queries,
        pairs,
    )  # fmt: skip


def pool(pairs=PAIRS, runs=RUNS):
    return Pool(pairs, About("docs", "ab", runs, queries=dict.fromkeys(["q1", "q2", "q3", "q4", "q5"], "")))


def test_runs_are_scored_without_what_they_alone_brought(queries):
    """q3 needs no retrieval, q4 has no answer, and nothing is pooled for q5: q1 and q2 count.

    Relevant to q1 are a, b and y, with the grade 2 each, so that the ideal of two documents is 2 + 2/log2(3). bm25 has
    b and a: 1. Without b, it has a at rank 2 alone: (2/log2(3)) / (2 + 2/log2(3)). For q2 it finds nothing.
    dense has a first and x: 2 / (2 + 2/log2(3)), and c first: 1. Without x and c, which it alone brought, q2 has no
    relevant document: 0.
    """
    found = reusability(pool(), resolved(queries), queries)
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
        "Reusability: without the documents that it alone brought, a run's ndcg@2 changes by at most 0.500 (dense: "
        "0.807 becomes 0.307), and 1 of 2 come to another place; on 2 queries whose pairs are all judged."
    )


def test_what_was_drawn_stands_for_what_was_not(queries):
    """Of the three drawn documents y is relevant to q1; drawn with 1/4, it stands for 4, 3 of which nobody has seen."""
    found = missed(pool(), resolved(queries), queries)
    assert (found.queries, found.judged, found.found, found.labelled) == (2, 3, 1, 4)
    assert found.estimated == pytest.approx(4 + 3)
    assert found.below == pytest.approx(4 + 4 + 2)
    assert found.error == pytest.approx(math.sqrt(0.75 / 0.25**2))  # the one relevant: (1 - pi) / pi^2
    assert found.text() == (
        "Judgements miss an estimated 3 of 7 relevant documents that the runs retrieved (standard error 3): 1 of 3 "
        "documents drawn below the depth are relevant; on 2 queries whose pairs are all judged."
    )


def test_where_no_drawn_document_is_relevant(queries):
    pairs = [one for one in PAIRS if (one.query_id, one.doc_id) != ("q1", "y")]
    found = missed(pool(tuple(pairs)), resolved(queries, pairs), queries)
    assert (found.found, found.below, found.estimated, found.labelled) == (0, 6, 3, 3)
    assert found.text() == (  # 3 / 2 of 6
        "None of 2 documents drawn below the depth is relevant: with 95 % confidence, judgements miss fewer than 9; "
        "on 2 queries whose pairs are all judged."
    )


def test_queries_count_once_all_of_their_pairs_are_judged(queries):
    partly = resolved(queries, without=[("q1", "z")])
    assert reusability(pool(), partly, queries).queries == 1
    assert missed(pool(), partly, queries).judged == 1
    nobody = resolved(queries, without=[(one.query_id, one.doc_id) for one in PAIRS])
    assert reusability(pool(), nobody, queries) is None
    assert missed(pool(), nobody, queries) is None


def test_seeds_and_near_duplicates_are_brought_without_any_run(queries):
    pairs = tuple(
        PooledPair(one.query_id, one.doc_id, one.ranks, one.doc_id == "b", one.doc_id == "c", one.pi) for one in PAIRS
    )
    bm25, dense = reusability(pool(pairs), resolved(queries, pairs), queries).runs
    assert (bm25.alone, bm25.change) == (1, 0)
    assert (dense.alone, dense.change) == (1, 0)


def test_one_run_says_nothing(queries):
    assert reusability(pool(runs={"r1": RUNS["r1"]}), resolved(queries), queries) is None
