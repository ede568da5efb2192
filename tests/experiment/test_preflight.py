"""What is refused before a run begins: nothing of it is left, in the outputs or in MLflow."""

import json

import pytest

from harness.errors import BadInput
from retrievers.dense.lsa import LSA

TOY = ("dataset=contest", "dataset.path=toy", "tokenizer=char_ngram", "experiment_name=e")
DENSE = ("retriever=dense", "encoder=lsa")
REFUSED = [
    (("gate=auto", "public=0", "select_on=public"), "no query to learn from"),
    ((*DENSE, "index=ivf_pq"), "needs 256 documents or more, not 3"),
    ((*DENSE, "index=ivf_flat", "index.nlist=7", "index.nprobe=1"), "index.nlist is 7, more than the 3 documents"),
    ((*DENSE, "index=hnsw", "index.ef_search=2"), "raise it to at least depth=3"),
    ((*DENSE, "index=milvus"), "HARNESS_MILVUS_URI is not set"),
    (("rerank=cross_encoder",), "bge-reranker-v2-m3"),
    (("retriever=dense",), "bge-m3"),
    (("retriever=bge_m3_sparse",), "bge-m3"),
    (("rerank=bge_m3_colbert",), "bge-m3"),
]


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """No hub, and no models that it sent before."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.mark.parametrize("verb", ["run", "sweep"])
def test_a_refused_run_leaves_nothing(harness, tracker, toy, tmp_path, offline, verb):
    pytest.importorskip("faiss")
    for words, expected in REFUSED:
        done = harness(verb, *TOY, *words, f"store.path={tmp_path / 'cache'}")  # where no other test has been
        assert done.code == 2, (words, done.err)
        assert expected in done.err, words
    assert tracker.runs("e", {}) == []
    assert [path for name in ("runs", "sweeps") for path in (tmp_path / "outputs" / name).glob("**/*")] == []


def test_a_trial_that_cannot_run_is_told_and_not_logged(harness, tracker, toy, tmp_path):
    done = harness("sweep", *TOY, *DENSE, "index=flat,ivf_pq", "format=json")
    assert done.code == 1
    found = json.loads(done.out)
    assert [row["overrides"] for row in found["failed"]] == [["index=ivf_pq"]]
    assert "needs 256 documents" in found["failed"][0]["error"]
    assert [run.status for run in tracker.runs("e", {"harness.verb": "run"})] == ["FINISHED"]


def test_a_model_whose_results_are_cached_need_not_be_there(harness, toy, monkeypatch):
    """A cached ranking is taken without looking for the model that made it."""

    def missing(self):
        raise BadInput("looked for")

    assert harness("run", *TOY, *DENSE, "tracking=none").code == 0
    monkeypatch.setattr(LSA, "require_model", missing, raising=False)
    assert harness("run", *TOY, *DENSE, "tracking=none", "top_k=1").code == 0
    assert "looked for" in harness("run", *TOY, *DENSE, "tracking=none", "encoder.dimensions=2").err


def test_vectors_of_documents_do_not_stand_for_those_of_passages(harness, toy, monkeypatch, tmp_path):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(LSA, "learns", False)  # the vectors of the queries are the same for both
    assert harness("run", *TOY, *DENSE, "tracking=none").code == 0

    def missing(self):
        raise BadInput("looked for")

    monkeypatch.setattr(LSA, "require_model", missing, raising=False)
    assert harness("run", *TOY, *DENSE, "index=hnsw", "tracking=none").code == 0
    assert "looked for" in harness("run", *TOY, *DENSE, "retriever.dense.passages=sentences", "tracking=none").err
