"""BM25 with engine=milvus: the documents and float64 scores of engine=sparse, in every row."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from korean_texts import KOREAN, KOREAN_QUERIES, documents, queries

from retrievers.base import BadInput, Failed
from retrievers.engines import proposing
from retrievers.engines.milvus import connect
from retrievers.lexical.bm25 import BM25
from retrievers.lexical.tokenize import Whitespace, Word
from retrievers.sharding import merged
from retrievers.testing import check_retriever

SAMPLE = Path(__file__).resolve().parents[2] / "harness" / "sample"
POSITIVE = ["lucene", "l", "plus"]


def rows(ranking):
    """Documents and the bits of their scores, by query."""
    return [[(doc_id, score.hex()) for doc_id, score in ranking.row(i)] for i in range(len(ranking.query_ids))]


def in_shards(texts, borders, asked, k, folder, make):
    """The merged ranking of shards that begin at the borders, weighed by the statistics of all."""
    made = documents(texts)
    shards = [made[start:end] for start, end in pairwise([0, *borders, len(made)])]
    (summary := folder / "summary").mkdir()
    surveys, rankings = [folder / f"survey-{i}" for i in range(len(shards))], []
    for shard, survey in zip(shards, surveys, strict=True):
        survey.mkdir()
        make().survey(shard, survey)
    make().summarise(surveys, summary)
    for shard, survey in zip(shards, surveys, strict=True):
        (index := folder / f"index-{survey.name}").mkdir()
        make().index_shard(shard, survey, summary, index)
        (reader := make()).load_shard(index, summary)
        rankings.append(reader.search(queries(asked), k))
    return merged(rankings, k)


@pytest.fixture
def both(tmp_path, fresh_lite):
    """Index texts with both engines: a function from texts and options to the two retrievers."""
    made = []

    def index(texts, tokenizer=None, **options):
        pair = []
        for engine in ("sparse", "milvus"):
            (folder := tmp_path / f"{engine}-{len(made)}").mkdir()
            retriever = BM25(tokenizer or Whitespace(), engine=engine, **options)
            retriever.index(documents(texts), folder)
            made.append(folder)
            pair.append(retriever)
        return pair

    return index


def assert_equal(pair, asked, k):
    here, proposed = (retriever.search(queries(asked), k) for retriever in pair)
    assert rows(proposed) == rows(here)
    assert proposed.measured in ({"certified": 1.0}, {})
    return proposed


@pytest.mark.parametrize("variant", POSITIVE)
def test_contract(variant, fresh_lite, tmp_path):
    check_retriever(lambda: BM25(Word(), variant=variant, engine="milvus"), tmp_path)


@pytest.mark.parametrize("variant", POSITIVE)
def test_korean(variant, both):
    pair = both(KOREAN, variant=variant)
    for k in (0, 1, 3, 100):
        assert_equal(pair, KOREAN_QUERIES, k)


def test_the_sample(both):
    texts = [json.loads(line)["content"] for line in (SAMPLE / "documents.jsonl").open(encoding="utf-8")]
    asked = [json.loads(line)["msg"][-1]["content"] for line in (SAMPLE / "eval.jsonl").open(encoding="utf-8")]
    assert_equal(both(texts, Word()), asked, 20)


def test_many_ties_and_long_queries_with_repeated_terms(both):
    # Documents of equal length over few words: hundreds of equal scores at the cut. Queries of up to 40 terms: a sum
    # of floors in another order than ours would differ in the last digit.
    random = np.random.default_rng(3)
    texts = [" ".join(f"w{word}" for word in row) for row in random.integers(0, 12, (600, 4))]
    asked = [" ".join(f"w{word}" for word in random.integers(0, 12, size)) for size in (1, 2, 3, 9, 17, 40)]
    for variant in ("lucene", "plus"):
        ranking = assert_equal(both(texts, variant=variant), asked, 30)
        assert ranking.measured == {"certified": 1.0}


def test_at_the_limit_of_the_engine_what_may_be_missing_is_measured(both, monkeypatch):
    monkeypatch.setattr(proposing, "LIMIT", 40)
    _, proposed = both(["물"] * 90 + ["불"])
    found = proposed.search(queries(["물", "불", "없는말"]), 10)
    assert found.lengths.tolist() == [10, 1, 0]
    assert found.measured == {"certified": 0.5}  # of the two queries that can find something


@pytest.mark.parametrize("variant", POSITIVE)
def test_shards_weighed_by_the_whole_corpus_have_collections_of_their_own(variant, fresh_lite, tmp_path):
    # The second shard has documents without terms alone, and the third lacks most terms: they add their floors.
    texts = [*KOREAN, "", " ", "물은", "빛나지 물은"]
    (tmp_path / "whole").mkdir()
    whole = BM25(Whitespace(), variant=variant)
    whole.index(documents(texts), tmp_path / "whole")
    make = lambda: BM25(Whitespace(), variant=variant, engine="milvus")  # noqa: E731
    found = in_shards(texts, [5, 7, 9], KOREAN_QUERIES, 6, tmp_path, make)
    assert rows(found) == rows(whole.search(queries(KOREAN_QUERIES), 6))
    assert len(connect().collections()) == 3


def test_a_collection_is_shared_by_equal_indexes_and_filled_again_when_it_is_lost(both, tmp_path):
    pair = both(KOREAN)
    [name] = connect().collections()
    _, again = both(KOREAN)
    assert connect().collections() == [name]
    again.search(queries(KOREAN_QUERIES), 3)
    connect().drop(name)
    with pytest.raises(Failed, match="searching"):
        again.search(queries(KOREAN_QUERIES), 3)  # it was there a moment ago
    reader = BM25(Whitespace(), engine="milvus")
    reader.load(tmp_path / "milvus-1")
    assert_equal((pair[0], reader), KOREAN_QUERIES, 3)
    assert connect().collections() == [name]


def test_only_documents_with_terms_are_sent(both):
    both(["", "물", " ", "물 불"])
    [name] = connect().collections()
    assert connect().count(name) == 2


def test_nothing_is_sent_where_no_document_has_a_term(both):
    _, proposed = both(["", " "])
    assert proposed.search(queries(["물"]), 3).lengths.tolist() == [0]
    assert connect().collections() == []


def test_weights_that_may_be_negative_are_refused():
    with pytest.raises(BadInput, match="engine=milvus takes no variant=okapi"):
        BM25(Whitespace(), variant="okapi", engine="milvus")


def test_more_documents_than_the_engine_returns_are_refused(both, monkeypatch):
    _, proposed = both(KOREAN)
    monkeypatch.setattr(proposing, "LIMIT", 3)
    with pytest.raises(BadInput, match="Lower depth"):
        proposed.search(queries(["물은"]), 4)
