"""What goes into a pool: worked out by hand, and rules that hold for any lists."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import BadInput
from harness.testset.pool.pool import PooledPair
from harness.testset.pool.pooling import COPIES, Draw, Sources, pooled, require_documents

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


def test_another_run_adds_and_draws_no_second_time():
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


def test_labels_that_change_keep_the_pair():
    first = pooled(["q1"], (), Sources({}, {"q1": ["a"]}, {"a": ("a", "b")}), Draw(2, 0, 0))
    second = pooled(["q1"], first, Sources({}, {"q1": ["b"]}), Draw(2, 0, 0))  # a has evidence no more
    assert second == (PooledPair("q1", "a"), PooledPair("q1", "b", seed=True))


def test_few_documents_are_all_taken():
    found = pooled(["q1"], (), Sources({"r": {"q1": list("abcd")}}), Draw(2, 5, 0))
    assert [(pair.doc_id, pair.pi) for pair in found] == [("a", 1), ("b", 1), ("c", 1), ("d", 1)]
    more = pooled(["q1"], found, Sources({"s": {"q1": list("abef")}}), Draw(2, 5, 0))
    assert [pair.doc_id for pair in more] == list("abcd"), "there was a draw, though of all"


def test_a_thousand_copies_are_not_all_pooled():
    copies = tuple(f"{n:04}" for n in range(1000))
    found = pooled(["q1"], (), Sources({}, {"q1": ["0500"]}, dict.fromkeys(copies, copies)), Draw(2, 5, 0))
    assert sum(pair.near_duplicate for pair in found) == COPIES
    assert [pair.doc_id for pair in found if pair.seed] == ["0500"]


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


def test_each_document_is_drawn_equally_often():
    """2 of 8, over 2,000 seeds: each about 500 times, with a standard deviation below 20."""
    below = [f"d{n}" for n in range(8)]
    counts: Counter[str] = Counter()
    for seed in range(2000):
        found = pooled(["q"], (), Sources({"r": {"q": ["top", *below]}}), Draw(1, 2, seed))
        counts.update(pair.doc_id for pair in found if pair.pi < 1)
    assert sum(counts.values()) == 4000
    assert all(400 < counts[doc_id] < 600 for doc_id in below)


def test_documents_that_are_gone_are_named():
    require_documents([PooledPair("q1", "a")], {"a": 1})
    with pytest.raises(BadInput, match=r"does not have them: b, c\. Were the files prepared anew"):
        require_documents([PooledPair("q1", one) for one in "abcb"], {"a": 1})


def test_the_sample_estimates_what_is_below_without_bias():
    """8 of 26 documents below the depth are relevant. A second run, whose first documents are some of these, makes
    drawn ones certain; both estimates, sums of 1 / pi over relevant documents, have the right mean over 2,000 draws."""
    below = [f"{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    relevant = set("aeimquyz")
    first, second = {"r": {"q": ["top", *below]}}, {"s": {"q": ["e", "f", "g", "top"]}}
    sums = {"first": 0.0, "second": 0.0}
    for seed in range(2000):
        draw = Draw(1, 6, seed)
        pool = pooled(["q"], (), Sources(first), draw)
        later = pooled(["q"], pool, Sources(second), Draw(3, 6, seed))
        for name, pairs in (("first", pool), ("second", later)):
            sums[name] += sum(1 / pair.pi for pair in pairs if pair.doc_id in relevant) / 2000
    # the standard deviation of one estimate is about 3.1, that of the mean .07
    assert sums["first"] == pytest.approx(8, abs=0.3)
    assert sums["second"] == pytest.approx(8, abs=0.3)
