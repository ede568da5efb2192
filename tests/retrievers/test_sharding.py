"""Rankings of shards become the ranking of the whole; BM25's to the last bit."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from korean_texts import documents, queries

from harness.errors import BadInput
from retrievers.base import Ranking
from retrievers.lexical.bm25 import BM25
from retrievers.lexical.bm25_index import VARIANTS
from retrievers.lexical.tokenize import Whitespace
from retrievers.sharding import merge_rankings
from retrievers.testing import same


def test_merging_by_hand():
    one = Ranking.from_scores({"q": {"b": 2.0, "d": 1.0}, "r": {}})
    two = Ranking.from_scores({"q": {"a": 2.0, "c": 1.0}, "r": {"a": -1.0}})
    assert merge_rankings([one, two], 3).to_dict() == {"q": {"a": 2.0, "b": 2.0, "c": 1.0}, "r": {"a": -1.0}}
    parts = [Ranking((), (), np.zeros((0, 0), np.int32), np.zeros((0, 0)), {"index_recall": x}) for x in (1.0, 0.5)]
    assert merge_rankings(parts, 3).measured == {"index_recall": 0.75}
    with pytest.raises(ValueError, match="same queries"):
        merge_rankings([Ranking.from_scores({"q": {}}), Ranking.from_scores({"r": {}})], 1)


@given(st.lists(st.tuples(*[st.integers(-3, 3)] * 3), max_size=12), st.integers(1, 20), st.integers(0, 14))
def test_merging_shards_is_ranking_the_whole(rows, parts, k):
    scores = {f"q{i}": {f"d{n}": float(row[i]) for n, row in enumerate(rows)} for i in range(3)}

    def shard(part):
        return {query: dict(list(row.items())[part::parts]) for query, row in scores.items()}

    shards = [Ranking.from_scores(shard(part), k) for part in range(parts)]
    assert merge_rankings(shards, k).to_dict() == Ranking.from_scores(scores, k).to_dict()


# BM25


def in_shards(texts, borders, asked, k, folder, **options):
    """The merged ranking of shards that begin at the borders, each indexed and searched by a separate instance."""
    made = documents(texts)
    ends = sorted([0, len(made), *(min(one, len(made)) for one in borders)])
    shards = [made[start:end] for start, end in pairwise(ends)]
    surveys = [folder / f"survey-{i}" for i in range(len(shards))]
    for shard, survey in zip(shards, surveys, strict=True):
        survey.mkdir()
        BM25(Whitespace(), **options).survey(shard, survey)
    (summary := folder / "summary").mkdir()
    BM25(Whitespace(), **options).summarise(surveys, summary)
    rankings = []
    for i, (shard, survey) in enumerate(zip(shards, surveys, strict=True)):
        (index := folder / f"index-{i}").mkdir()
        BM25(Whitespace(), **options).index_shard(shard, survey, summary, index)
        reader = BM25(Whitespace(), **options)
        reader.load_shard(index, summary)
        rankings.append(reader.search(queries(asked), k))
    return merge_rankings(rankings, k)


def assert_the_whole(texts, borders, asked, k, folder, **options):
    found = in_shards(texts, borders, asked, k, folder, **options)
    (whole := folder / "whole").mkdir()
    retriever = BM25(Whitespace(), **options)
    retriever.index(documents(texts), whole)
    assert same(found, retriever.search(queries(asked), k))


words = st.sampled_from(["물", "불", "흙", "바람", "a", "b", "c", "\U0001f315"])


@pytest.mark.slow
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    corpus=st.lists(st.lists(words, max_size=6), max_size=14),
    borders=st.lists(st.integers(0, 13), max_size=5),
    asked=st.lists(st.lists(words | st.just("unknown"), max_size=5), min_size=1, max_size=4),
    k=st.integers(0, 16),
    variant=st.sampled_from(list(VARIANTS)),
    k1=st.sampled_from([0.0, 0.9, 1.5]),
    b=st.sampled_from([0.0, 0.4, 1.0]),
)
# Ties over borders; terms that only other shards have; a negative idf; empty shards.
@example(corpus=[["물"]] * 8, borders=[1, 2, 5], asked=[["물"]], k=5, variant="lucene", k1=1.5, b=0.4)
@example(corpus=[["물"], [], ["불"]], borders=[1, 2], asked=[["불", "물"]], k=9, variant="plus", k1=0.9, b=0.4)
@example(corpus=[["물"]] * 3 + [["불"]], borders=[2], asked=[["물", "불"]], k=9, variant="okapi", k1=1.5, b=0.4)
@example(corpus=[[]] * 3, borders=[0, 1, 3], asked=[["물"], []], k=3, variant="l", k1=1.5, b=0.4)
def test_any_cut_gives_the_documents_and_scores_of_the_whole(corpus, borders, asked, k, tmp_path_factory, **options):
    texts, asked = [" ".join(terms) for terms in corpus], [" ".join(terms) for terms in asked]
    assert_the_whole(texts, borders, asked, k, tmp_path_factory.mktemp("cut"), **options)


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_large_shards_over_a_large_vocabulary(variant, tmp_path):
    """Several blocks of the kernel in a shard; with thousands of terms, a sum of idf in another order would differ."""
    drawn = np.random.default_rng(3).zipf(1.2, (12_000, 6))
    texts = [" ".join(f"w{word % 9973}" for word in row) for row in drawn]
    asked = ["w1 w2 w3", "w1", "w17 w9000 w1 w1", "w512 w77 w13 w2", *(f"w{i} w{i + 40} w{i + 400}" for i in range(30))]
    assert_the_whole(texts, [5000, 5001, 9100], asked, 120, tmp_path, variant=variant)


def test_a_shard_of_other_parameters_is_not_opened_and_the_library_cannot_be_cut(tmp_path):
    in_shards(["물"], [], ["물"], 1, tmp_path)
    with pytest.raises(ValueError, match="was made with"):
        BM25(Whitespace(), k1=0.9).load_shard(tmp_path / "index-0", tmp_path / "summary")
    with pytest.raises(ValueError, match="was made with"):
        BM25(Whitespace()).load(tmp_path / "index-0")
    with pytest.raises(BadInput, match=r"cluster.shard=null, or engine=sparse"):
        BM25(Whitespace(), variant="okapi", engine="rank_bm25").check_sharding()
