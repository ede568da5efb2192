"""BM25 cut into shards: the same documents and scores as of one index, bit by bit."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from korean_texts import documents, queries

from harness.errors import BadInput
from retrievers.base import Document
from retrievers.lexical.bm25 import BM25
from retrievers.lexical.bm25_index import VARIANTS, CorpusStatistics
from retrievers.lexical.tokenize import Whitespace
from retrievers.sharding import merge_rankings


def rows(ranking):
    """Documents and the bits of their scores, by query."""
    return [[(doc_id, score.hex()) for doc_id, score in ranking.row(i)] for i in range(len(ranking.query_ids))]


def cut(texts, borders):
    """The documents in shards that begin at the borders; some may be empty."""
    made = documents(texts)
    ends = sorted([0, len(made), *(min(one, len(made)) for one in borders)])
    return [made[start:end] for start, end in pairwise(ends)]


def in_shards(shards, asked, k, folder, make):
    """The merged ranking of shards, each indexed and searched by an instance of its own."""
    surveys = [folder / f"survey-{i}" for i in range(len(shards))]
    for shard, survey in zip(shards, surveys, strict=True):
        survey.mkdir()
        make().survey(shard, survey)
    (summary := folder / "summary").mkdir()
    make().summarise(surveys, summary)
    rankings = []
    for i, (shard, survey) in enumerate(zip(shards, surveys, strict=True)):
        (index := folder / f"index-{i}").mkdir()
        make().index_shard(shard, survey, summary, index)
        reader = make()
        reader.load_shard(index, summary)
        rankings.append(reader.search(queries(asked), k))
    return merge_rankings(rankings, k)


def in_one(texts, asked, k, folder, make):
    (whole := folder / "whole").mkdir()
    retriever = make()
    retriever.index(documents(texts), whole)
    return retriever.search(queries(asked), k)


words = st.sampled_from(["물", "불", "흙", "바람", "a", "b", "c", "\U0001f315"])


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
def test_any_cut_gives_the_documents_and_scores_of_the_whole(
    corpus, borders, asked, k, variant, k1, b, tmp_path_factory
):
    folder = tmp_path_factory.mktemp("cut")
    texts, asked = [" ".join(terms) for terms in corpus], [" ".join(terms) for terms in asked]

    def make():
        return BM25(Whitespace(), variant=variant, k1=k1, b=b)

    found = in_shards(cut(texts, borders), asked, k, folder, make)
    assert rows(found) == rows(in_one(texts, asked, k, folder, make))


@pytest.mark.parametrize("variant", VARIANTS)
def test_large_shards_over_a_large_vocabulary(variant, tmp_path):
    """Several blocks of the kernel in a shard; thousands of terms, so that a sum of idf in another order would show."""
    drawn = np.random.default_rng(3).zipf(1.2, (12_000, 6))
    texts = [" ".join(f"w{word % 9973}" for word in row) for row in drawn]
    asked = ["w1 w2 w3", "w1", "w17 w9000 w1 w1", "w512 w77 w13 w2", *(f"w{i} w{i + 40} w{i + 400}" for i in range(30))]

    def make():
        return BM25(Whitespace(), variant=variant)

    found = in_shards(cut(texts, [5000, 5001, 9100]), asked, 120, tmp_path, make)
    assert rows(found) == rows(in_one(texts, asked, 120, tmp_path, make))


def test_terms_are_numbered_in_the_order_of_their_first_use(tmp_path):
    for name, text in (("one", "b a"), ("two", "c a")):
        (tmp_path / name).mkdir()
        BM25(Whitespace()).survey([Document("1", text)], tmp_path / name)
    (summary := tmp_path / "summary").mkdir()
    BM25(Whitespace()).summarise([tmp_path / "one", tmp_path / "two"], summary)
    known = CorpusStatistics(summary)
    assert known.numbers(("b", "a", "c", "d", "")).tolist() == [0, 1, 2, -1, -1]
    assert known.counts.tolist() == [1, 2, 1]
    assert known.numbers_of(tmp_path / "two").tolist() == [2, 1]
    assert (known.documents, known.mean_length) == (2, 2.0)


def test_a_shard_made_with_other_parameters_is_not_opened(tmp_path):
    in_shards([documents(["물"])], ["물"], 1, tmp_path, lambda: BM25(Whitespace()))
    with pytest.raises(ValueError, match="was made with"):
        BM25(Whitespace(), k1=0.9).load_shard(tmp_path / "index-0", tmp_path / "summary")
    with pytest.raises(ValueError, match="was made with"):
        BM25(Whitespace()).load(tmp_path / "index-0")


def test_the_library_cannot_be_cut(tmp_path):
    with pytest.raises(BadInput, match=r"cluster.shard=null, or engine=sparse"):
        BM25(Whitespace(), variant="okapi", engine="rank_bm25").check_sharding()
