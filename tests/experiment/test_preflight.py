"""Runs that are refused before they begin leave nothing; queries that stand in documents are noted."""

import json
from dataclasses import replace

import pytest
from tiny_models import use_hub_cache

from harness.data.dataset import Dataset
from harness.data.qrels import Qrels
from harness.errors import BadInput
from harness.experiment import preflight
from retrievers.base import Document, Query, Ranking, Turn
from retrievers.dense.lsa import LSA

TOY = ("dataset=contest", "dataset.path=toy", "tokenizer=char_ngram", "experiment_name=e")
DENSE = ("retriever=dense", "encoder=lsa")
FAR = ("retriever=fastapi", "retriever.fastapi.url=http://127.0.0.1:9")
REFUSED = [
    (("gate=auto", "public=0", "select_on=public"), "no query to learn from"),
    ((*DENSE, "index=ivf_pq"), "needs 256 documents or more, not 3"),
    ((*DENSE, "index=ivf_flat", "index.nlist=7", "index.nprobe=1"), "index.nlist is 7, more than the 3 documents"),
    ((*DENSE, "index=hnsw", "index.ef_search=2"), "raise it to at least 3"),
    ((*DENSE, "index=milvus"), "HARNESS_MILVUS_URI is not set"),
    (("rerank=cross_encoder",), "bge-reranker-v2-m3"),
    (("retriever=dense",), "bge-m3"),
    (("retriever=bge_m3_sparse",), "bge-m3"),
    (("rerank=bge_m3_colbert",), "bge-m3"),
    ((*FAR, "+retriever.fastapi.runtime.headers_env.Authorization=ES_AUTH"), "variable ES_AUTH is not set"),
]


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["run", "sweep"])
def test_a_refused_run_leaves_nothing(harness, tracker, toy, tmp_path, monkeypatch, verb):
    use_hub_cache(monkeypatch, tmp_path / "empty")
    monkeypatch.delenv("ES_AUTH", raising=False)
    for words, expected in REFUSED:
        done = harness(verb, *TOY, *words, f"store.path={tmp_path / 'cache'}")  # where no other test has been
        assert done.code == 2, (words, done.err)
        assert expected in done.err, words
    assert tracker.runs("e", {}) == []
    assert [path for name in ("runs", "sweeps") for path in (tmp_path / "outputs" / name).glob("**/*")] == []


@pytest.mark.slow
def test_a_trial_that_cannot_run_is_told_and_not_logged(harness, tracker, toy, tmp_path):
    done = harness("sweep", *TOY, *DENSE, "index=flat,ivf_pq", "format=json")
    assert done.code == 1
    found = json.loads(done.out)
    assert [row["overrides"] for row in found["failed"]] == [["index=ivf_pq"]]
    assert "needs 256 documents" in found["failed"][0]["error"]
    assert [run.status for run in tracker.runs("e", {"harness.verb": "run"})] == ["FINISHED"]


@pytest.mark.slow
def test_a_model_is_looked_for_only_if_its_results_are_not_cached(harness, toy, monkeypatch, own_cache):
    def missing(self):
        raise BadInput("looked for")

    words = ("run", *TOY, *DENSE, "tracking=none")
    monkeypatch.setattr(LSA, "learns", False)  # the vectors of the queries are the same for documents and passages
    assert harness(*words).code == 0
    monkeypatch.setattr(LSA, "require_model", missing, raising=False)
    for cached in ("top_k=1", "index=hnsw"):
        assert harness(*words, cached).code == 0
    for other in ("encoder.dimensions=2", "retriever.dense.passages=sentences"):
        assert "looked for" in harness(*words, other).err


QUESTIONS = [f"왜 달의 모양은 {number}월에 변해?" for number in range(20)]


def dataset(held, questions=QUESTIONS):
    """One document for each question; the first `held` of them hold it, in other cases and spaces."""
    texts = [f"FAQ:  {one.replace(' ', '  ')} 답." if n < held else f"답 {n}" for n, one in enumerate(questions)]
    documents = tuple(Document(f"d{n:02d}", text) for n, text in enumerate(texts))
    return Dataset("d", documents, tuple(Query.of(f"q{n:02d}", one) for n, one in enumerate(questions)), None)


def ranking(of):
    """Each query finds its own document."""
    return Ranking.from_scores({one.query_id: {one.query_id.replace("q", "d"): 1.0} for one in of.queries})


@pytest.mark.parametrize(("held", "told"), [(0, False), (2, False), (3, True), (20, True)])
def test_some_of_them_are_said_and_one_or_two_are_chance(held, told):
    of = dataset(held)
    said = list(preflight.notes(of, ranking(of)))
    assert bool(said) == told
    if told:
        assert said[0].startswith(f"{held} of 20 queries appear word for word in a document (q00 in d00, q01 in d01")


def test_relevant_documents_are_read_short_queries_tell_nothing_and_of_a_conversation_the_last_turn_counts():
    of, short = dataset(20), dataset(20, [f"달 {number}" for number in range(20)])
    labelled = replace(of, qrels=Qrels({one.query_id: {"d00": 1.0} for one in of.queries}))
    nothing = Ranking.from_scores({one.query_id: {} for one in of.queries})
    assert preflight.copied(of, nothing)[0] == {}
    assert preflight.copied(labelled, nothing)[0] == {"q00": "d00"}
    assert preflight.copied(short, ranking(short)) == ({}, 0)
    talk = Query("q00", (Turn("user", "안녕"), Turn("assistant", "네"), Turn("user", QUESTIONS[0])))
    assert preflight.copied(replace(of, queries=(talk,)), ranking(of))[0] == {"q00": "d00"}


def test_of_many_queries_a_sample_is_checked(monkeypatch):
    of = dataset(20)
    monkeypatch.setattr(preflight, "CHECKED", 5)
    assert list(preflight.copied(of, ranking(of))[0]) == ["q00", "q04", "q08", "q12", "q16"]
    assert next(preflight.notes(of, ranking(of))).startswith("5 of 5 sampled queries appear word for word")
