"""What gates read beyond the rankings: computed when a gate asks for it, cached, and with a correct identity."""

import json
from collections import Counter
from pathlib import Path

import pytest
import tiny_models
from fakes import FakeInputs
from talks import rows

import retrievers.lexical.bm25
import retrievers.lexical.tokenize
from harness.gates.signals import random_queries, signal_of
from harness.storage.cache import Cache
from retrievers.base import Document, Query

TOY = ("dataset=contest", "dataset.path=toy", "tracking=none", "format=json")
WORD = (*TOY, "tokenizer=word")
DENSE = (*TOY, "retriever=dense", "encoder=lsa")
AUTO = ("gate=auto", "objective=modified_map@3")

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def cached(tmp_path):
    """The number of cached results of each kind."""
    return lambda: Counter(entry.kind for entry in Cache(tmp_path / "cache").entries())


@pytest.fixture
def nothing_more(monkeypatch):
    """Call it, and from then on nothing may be tokenized, indexed, searched or encoded."""

    def forbid():
        for call in ("tokenize.Word.__call__", "bm25.BM25.index", "bm25.BM25.load", "bm25.BM25.search"):
            monkeypatch.setattr(f"retrievers.lexical.{call}", None)
        for call in ("LSA.encode_documents", "LSA.encode_queries"):
            monkeypatch.setattr(f"retrievers.dense.lsa.{call}", None)

    return forbid


def lists(done):
    """query_id -> the documents it gets."""
    return {query_id: row["topk"] for query_id, row in rows(done).items()}


def signal(harness, *words):
    """query_id -> signal, as a run logs it."""
    done = harness("run", *words, "tracking=mlflow", "experiment_name=signals").json
    table = next((Path("outputs") / "artifacts").rglob(f"{done['run_id']}/artifacts/queries.json"))
    content = json.loads(table.read_text("utf-8"))
    columns = dict(zip(content["columns"], zip(*content["data"], strict=True), strict=True))
    return dict(zip(columns["query_id"], columns["signal"], strict=True))


@pytest.mark.slow
def test_coverage_from_the_command_line(harness, toy):
    # 7: 달의 모양은 왜 변해 against d3, 달의 모양은 한 달 동안 변한다: 2 of 4 words. 3: 물은 몇 도에서 끓어 against
    # d2, 물은 섭씨 100도에서 끓는다: 1 of 4. 5: 안녕 finds nothing.
    found = signal(harness, *WORD, "gate=score", "gate.signal=coverage", "gate.threshold=0.4")
    assert found == {"7": 0.5, "3": 0.25, "5": 0.0}
    assert lists(harness("run", *WORD, "gate=score", "gate.signal=coverage", "gate.threshold=0.4")) == {
        7: ["d3"], 3: [], 5: []
    }  # fmt: skip


@pytest.mark.slow
def test_background_from_the_command_line(harness, toy, tmp_path):
    """Our own retriever searches the random queries."""
    words = (*WORD, "gate=score", "gate.signal=background", "gate.threshold=-2")
    found = signal(harness, *words)
    lines = [json.loads(line) for line in (toy / "documents.jsonl").read_text("utf-8").splitlines()]
    bm25 = retrievers.lexical.bm25.BM25(retrievers.lexical.tokenize.Word())
    (tmp_path / "index").mkdir()
    bm25.index([Document(line["docid"], line["content"]) for line in lines], tmp_path / "index")
    real = [Query.of("7", "달의 모양은 왜 변해?"), Query.of("3", "물은 몇 도에서 끓어?"), Query.of("5", "안녕")]
    drawn = random_queries([line["content"] for line in lines], real)
    ranking = bm25.search(real, 1)
    inputs = FakeInputs({"bm25": ranking}, [one.text for one in real], noise=(drawn, bm25.search(drawn, 1)))
    expected = signal_of(inputs, "background", "bm25", 1).tolist()
    assert [*found.values()] == pytest.approx(expected, abs=2e-6)
    shown = [bool(docs) for docs in lists(harness("run", *words)).values()]
    assert shown == [value >= -2 and length > 0 for value, length in zip(expected, ranking.lengths, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["coverage", "background"])
def test_a_slow_signal_is_computed_once(harness, toy, cached, nothing_more, name):
    assert harness("run", *WORD, *AUTO).code == 0
    assert (cached()["signals"], cached()["rankings"]) == (0, 1), "quick signals need nothing"
    words = (*WORD, "gate=score", f"gate.signal={name}")
    first = lists(harness("run", *words, "gate.threshold=-99"))
    before = cached()
    assert before["signals"] == 1
    assert before["rankings"] == (2 if name == "background" else 1)  # one of random queries
    nothing_more()
    assert lists(harness("run", *words, "gate.threshold=-98")) == first
    assert set(map(tuple, lists(harness("run", *words, "gate.threshold=99")).values())) == {()}
    assert harness("run", *WORD, *AUTO, f"gate.signals=[{name}]").code == 0  # another gate, the same signal
    assert harness("run", *words, "top_k=1", "gate.k=5").code == 0
    assert cached() == before


CHANGES = {"tokenizer=whitespace": 1, "retriever.bm25.k1=9": 1, "retriever.bm25.runtime.threads=1": 0, "depth=3": 0}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["coverage", "background"])
def test_what_identifies_a_cached_signal(harness, toy, cached, name):
    words, expected = (*WORD, "gate=score", f"gate.signal={name}"), 1
    assert harness("run", *words).code == 0
    for change, more in CHANGES.items():
        assert harness("run", *words, change, "seed=3").code == 0
        expected += more
        assert cached()["signals"] == expected, change
    for file, then, now in (("eval", "왜 변해?", "왜 그렇게 변해?"), ("documents", "한 달 동안", "한 달 내내")):
        text = (toy / f"{file}.jsonl").read_text("utf-8")
        (toy / f"{file}.jsonl").write_text(text.replace(then, now), "utf-8")
        assert harness("run", *words).code == 0
        expected += 1
        assert cached()["signals"] == expected, file


def rule(done):
    return done.json["gate"]["rule"]


EMBEDDING = ("gate=classifier", "gate.embedding=true", "gate.folds=2", "gate.repeats=1", "gate.signals=[top_score]")


@pytest.mark.slow
def test_embeddings_of_an_encoder_that_learns_from_the_documents(harness, toy, cached, nothing_more):
    words = (*WORD, *EMBEDDING, "encoder=lsa")
    one = harness("run", *words, "encoder.dimensions=1")
    done = harness("run", *words)
    learnt = rule(done)
    assert len(rule(one)["embedding"]) == 1
    assert len(learnt["embedding"]) == len(learnt["embedding_centre"]) == len(learnt["embedding_scale"]) == 3
    before = cached()
    assert (before["embeddings"], before["query_embeddings"]) == (2, 2)
    nothing_more()
    assert rule(harness("run", *words)) == learnt
    folder = Path(done.json["files"]["folder"])
    applied = harness("run", *WORD, "encoder=lsa", "gate=fitted", f"gate.file={folder / 'gate.json'}")
    assert lists(applied) == lists(done)


def test_embeddings_are_those_that_the_retriever_made(harness, toy, cached):
    assert harness("run", *DENSE).code == 0
    before = cached()
    assert harness("run", *DENSE, *EMBEDDING).code == 0
    assert cached() == before


@pytest.mark.slow  # loads the libraries
def test_embeddings_of_a_transformer(harness, toy, cached, tmp_path, monkeypatch):
    path = tiny_models.tiny_sentence_model(tmp_path / "model")
    words = (*WORD, *EMBEDDING, "encoder=local", f"encoder.path={path}", "encoder.runtime.device=cpu")
    learnt = rule(harness("run", *words))
    assert len(learnt["embedding"]) == tiny_models.HIDDEN["hidden_size"]
    assert (cached()["embeddings"], cached()["query_embeddings"]) == (0, 1)  # no document is encoded
    monkeypatch.setattr("retrievers.dense.encoders.SentenceEncoder.encode_queries", None)
    assert rule(harness("run", *words)) == learnt
