"""The pipeline: cached results are not computed again, and reranking, fusion and gate get the right inputs."""

import numpy as np
import pytest
from chat_server import ChatServer, Reply
from talks import rows

from retrievers.base import Ranking
from retrievers.lexical.bm25 import BM25

LOGGED = ("dataset=contest", "dataset.path=toy", "tokenizer=word", "format=json")
LEXICAL = (*LOGGED, "tracking=none")
HYBRID = (*LEXICAL, "retriever=hybrid_lexical")


@pytest.fixture
def work(monkeypatch, untimed):
    """The calls of BM25 by name, in order."""
    done = []

    def noting(name, method):
        return lambda self, *arguments: (done.append(name), method(self, *arguments))[1]

    for name in ("index", "load", "search"):
        monkeypatch.setattr(BM25, name, noting(name, getattr(BM25, name)))
    return done


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


@pytest.mark.slow
def test_nothing_is_indexed_or_searched_twice(harness, toy, work, own_cache):
    harness("run", *LEXICAL)
    assert {*work} == {"index", "load", "search"}
    work.clear()
    harness("run", *HYBRID)
    assert work.count("search") == 1, "only the bigrams; the words are cached"
    work.clear()
    for cheap in CHEAP:
        assert harness("run", *HYBRID, *cheap.split()).code == 0
        assert work == [], cheap
    harness("run", *LEXICAL, "depth=200")
    assert work == ["load", "search"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*HYBRID, "gate=score"), "Choose one of the component rankings bm25, bigram"),
        ((*HYBRID, "gate=score", "gate.source=fused"), "normalised for each query"),
        ((*HYBRID, "+fusion.weights.bigrm=1"), "Did you mean 'bigram'?"),
        ((*HYBRID, "fusion.weights.bm25=-1"), "fusion"),
        ((*LEXICAL, "fusion.weights.bm25=0.5"), "fusion.weights.bm25 is unknown here"),
        ((*HYBRID, "fusion.normalise=zscore"), "Did you mean 'z_score'?"),
    ],
)
def test_invalid_combinations_are_refused(harness, toy, words, message):
    done = harness("run", *words)
    assert done.code == 2
    assert message in done.err


def test_rescoring_orders_the_head_and_leaves_the_tail_below():
    ranking = Ranking.from_scores({"q": {"a": 9.0, "b": 8.0, "c": 7.0, "d": 6.0}, "r": {"b": 1.0}, "none": {}})
    rescored = ranking.rescored(np.array([[0.2, 0.9], [0.5, 0.0], [0.0, 0.0]]))
    assert rescored.row(0) == [("b", 0.9), ("a", 0.2), ("c", -0.8), ("d", -1.8)]
    assert (rescored.row(1), rescored.row(2)) == ([("b", 0.5)], [])
    tied = Ranking.from_scores({"q": {"b": 2.0, "a": 1.0}}).rescored(np.array([[0.5, 0.5]]))
    assert [doc for doc, _ in tied.row(0)] == ["a", "b"]


@pytest.mark.slow
def test_unused_components_do_not_change_the_trial(harness, toy, tracker):
    plain, more = (
        tracker.run(harness("run", *LOGGED, *words).json["run_id"])
        for words in ((), ("encoder=lsa", "index=hnsw", "fusion=rrf"))
    )
    assert plain.tags["trial_key"] == more.tags["trial_key"]
    assert plain.params == more.params
    assert not [name for name in plain.params if name.startswith(("encoder", "index", "fusion", "rerank"))]


KEY = "sk-secret-0123456789"


@pytest.mark.slow
def test_a_language_model_decides_and_its_key_is_written_nowhere(
    harness, toy, own_cache, monkeypatch, tmp_path, tracker
):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    broken = [True]

    def answer(asked, time):
        if broken[0] and "안녕" in asked:
            return Reply(500, {"error": {"message": f"no luck with {KEY}"}})  # it repeats the request
        return "yes" if "물" in asked else "no"

    with ChatServer(answer) as server:
        words = (*LOGGED, "gate=llm", "llm.model=tiny", f"llm.base_url={server.url}", "llm.runtime.parallel=1")
        done = harness("run", *words, "llm.runtime.retries=0")
        assert done.code == 1
        assert "query '5' has no reply from tiny" in done.err
        assert KEY not in done.err + done.out
        assert [run.status for run in tracker.runs("retrieval", {})] == ["FAILED"]
        broken[0], before = False, len(server.asked)
        found = (done := harness("run", *words)).json
        assert [asked.headers["Authorization"] for asked in server.asked[before:]] == [f"Bearer {KEY}"], (
            "two are cached"
        )
        assert {one: row["topk"] for one, row in rows(done).items()} == {7: [], 3: ["d2"], 5: []}
        # 7 is withheld wrongly, 5 rightly.
        assert found["metrics"]["modified_map@3"] == pytest.approx(2 / 3)
        assert found["losses"]["wrongly_withheld"] == pytest.approx(1 / 3)
        assert harness("run", *words, "top_k=1", "tokenizer=whitespace").code == 0
        assert len(server.asked) == before + 1, "answers are cached, whatever else changes"
        assert harness("run", *words, "gate.prompt=yes or no?").code == 0
        assert len(server.asked) == before + 4
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert not [path for path in files if KEY.encode() in path.read_bytes()]
