"""The pipeline: cached results are not computed again, and reranking, fusion and gate get the right inputs."""

import json
from pathlib import Path

import numpy as np
import pytest
from chat_server import ChatServer, Reply

from retrievers.base import Ranking
from retrievers.lexical.bm25 import BM25

LEXICAL = ("dataset=contest", "dataset.path=toy", "tokenizer=word", "tracking=none", "format=json")


@pytest.fixture
def work(monkeypatch, untimed):
    """The calls of BM25 by name, in order."""
    done = []
    for name in ("index", "load", "search"):
        monkeypatch.setattr(BM25, name, counted(name, getattr(BM25, name), done))
    return done


def counted(name, method, done):
    def call(self, *arguments):
        done.append(name)
        return method(self, *arguments)

    return call


@pytest.fixture
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))


CHEAP = [
    "gate=score gate.source=bm25 gate.threshold=1",
    "gate=score gate.source=bigram gate.signal=zscore",
    "fusion.weights.bm25=0.3",
    "fusion.normalise=min_max",
    "fusion=rrf fusion.k=5",
    "fusion=combmnz",
    "fusion=distribution_based",
    "depth=3 top_k=3",
    "metrics=[mrr@3] objective=mrr@3 seed=3 public=0.5 top_k=1",
]


def test_cheap_changes_build_and_search_nothing(harness, toy, work, own_cache):
    harness("run", *LEXICAL, "retriever=hybrid_lexical")
    assert sorted(set(work)) == ["index", "load", "search"]
    work.clear()
    for cheap in CHEAP:
        assert harness("run", *LEXICAL, "retriever=hybrid_lexical", *cheap.split()).code == 0
        assert work == [], cheap


def test_retrievers_share_rankings(harness, toy, work, own_cache):
    harness("run", *LEXICAL, "retriever=bm25")
    work.clear()
    harness("run", *LEXICAL, "retriever=hybrid_lexical")
    assert work.count("search") == 1, "only the bigrams; the words are cached"


def test_another_depth_searches_the_cached_index(harness, toy, work, own_cache):
    harness("run", *LEXICAL, "depth=3")
    work.clear()
    harness("run", *LEXICAL, "depth=4")
    assert work == ["load", "search"]


def test_a_hybrid_finds_what_either_finds(harness, toy):
    def recall(*words):
        return harness("run", *LEXICAL, *words).json["metrics"]["recall@100"]

    words, bigrams, both = recall(), recall("tokenizer=char_ngram"), recall("retriever=hybrid_lexical")
    assert both >= max(words, bigrams) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("retriever=hybrid_lexical", "gate=score"), "Choose one of the component rankings bm25, bigram"),
        (("retriever=hybrid_lexical", "gate=score", "gate.source=fused"), "normalised for each query"),
        (("retriever=hybrid_lexical", "+fusion.weights.bigrm=1"), "Did you mean 'bigram'?"),
        (("retriever=hybrid_lexical", "fusion.weights.bm25=-1"), "fusion"),
        (("fusion.weights.bm25=0.5",), "fusion.weights.bm25 is unknown here"),
        (("retriever=hybrid_lexical", "fusion.normalise=zscore"), "Did you mean 'z_score'?"),
    ],
)  # fmt: skip
def test_invalid_combinations_are_refused(harness, toy, words, message):
    done = harness("run", *LEXICAL, *words)
    assert done.code == 2
    assert message in done.err


def test_rescoring_orders_the_head_and_leaves_the_tail_below():
    ranking = Ranking.from_scores({"q": {"a": 9.0, "b": 8.0, "c": 7.0, "d": 6.0}, "r": {"b": 1.0}, "none": {}})
    scores = np.array([[0.2, 0.9], [0.5, 0.0], [0.0, 0.0]])
    rescored = ranking.rescored(scores)
    assert rescored.row(0) == [("b", 0.9), ("a", 0.2), ("c", -0.8), ("d", -1.8)]
    assert rescored.row(1) == [("b", 0.5)]
    assert rescored.row(2) == []
    tied = Ranking.from_scores({"q": {"b": 2.0, "a": 1.0}}).rescored(np.array([[0.5, 0.5]]))
    assert [doc for doc, _ in tied.row(0)] == ["a", "b"]


def test_unused_components_do_not_change_the_trial(harness, toy):
    """An encoder that no retriever uses, or the fusion of a single ranking, does not belong to a trial."""
    from mlflow import MlflowClient

    words = [word for word in LEXICAL if word != "tracking=none"]
    ids = [harness("run", *words, *more).json["run_id"] for more in ((), ("encoder=lsa", "index=hnsw", "fusion=rrf"))]
    client = MlflowClient(f"sqlite:///{toy.parent}/outputs/mlflow.db")
    runs = [client.get_run(run_id) for run_id in ids]
    assert runs[0].data.tags["trial_key"] == runs[1].data.tags["trial_key"]
    assert runs[0].data.params == runs[1].data.params
    assert not [name for name in runs[0].data.params if name.startswith(("encoder", "index", "fusion", "rerank"))]


# A language model as the gate

KEY = "sk-secret-0123456789"
LLM = ("dataset=contest", "dataset.path=toy", "tokenizer=word", "gate=llm", "llm.model=tiny", "format=json")


@pytest.fixture
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def written(folder):
    """The files below a folder that contain the key."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 5
    return [path for path in files if KEY.encode() in path.read_bytes()]


@pytest.mark.slow
def test_a_model_decides(harness, toy, own_cache, key, tmp_path):
    with ChatServer(lambda asked, time: "yes" if "물" in asked else "no") as server:
        words = (*LLM, f"llm.base_url={server.url}")
        found = harness("run", *words).json
        assert [asked.headers["Authorization"] for asked in server.asked] == [f"Bearer {KEY}"] * 3
        rows = map(json.loads, Path(found["files"]["predictions"]).read_text("utf-8").splitlines())
        assert {row["eval_id"]: row["topk"] for row in rows} == {7: [], 3: ["d2"], 5: []}
        # 7 is withheld wrongly, 5 rightly.
        assert found["metrics"]["modified_map@3"] == pytest.approx(2 / 3)
        assert found["losses"]["wrongly_withheld"] == pytest.approx(1 / 3)
        assert harness("run", *words, "top_k=1", "llm.runtime.retries=0", "tokenizer=whitespace").code == 0
        assert len(server.asked) == 3, "answers are cached, whatever else changes"
        assert harness("run", *words, "gate.prompt=yes or no?").code == 0
        assert len(server.asked) == 6
    assert written(tmp_path) == []


def test_a_failing_endpoint_fails_the_run_and_its_answers_are_cached(harness, toy, own_cache, key, tmp_path):
    from mlflow import MlflowClient

    broken = [True]

    def answer(asked, time):
        if broken[0] and "안녕" in asked:
            return Reply(500, {"error": {"message": f"no luck with {KEY}"}})  # it repeats the request
        return "yes"

    with ChatServer(answer) as server:
        words = (*LLM, f"llm.base_url={server.url}", "llm.runtime.retries=0", "llm.runtime.parallel=1")
        done = harness("run", *words)
        assert done.code == 1
        assert "query '5' has no reply from tiny" in done.err
        assert KEY not in done.err + done.out
        client = MlflowClient(f"sqlite:///{tmp_path}/outputs/mlflow.db")
        [run] = client.search_runs([client.get_experiment_by_name("retrieval").experiment_id])
        assert run.info.status == "FAILED"
        assert written(tmp_path) == []
        broken[0] = False
        before = len(server.asked)
        assert harness("run", *words).code == 0
        assert len(server.asked) == before + 1
    assert written(tmp_path) == []
