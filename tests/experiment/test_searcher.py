"""New queries get the same documents, scores and decisions as in a run, query by query."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from chat_server import ChatServer

from harness.config import components, composing
from harness.config.components import build
from harness.data.dataset import checked_dataset, search_queries
from harness.errors import BadInput
from harness.experiment import steps
from harness.experiment.plan import Plan
from harness.experiment.searcher import Searcher
from harness.experiment.session import open_session
from harness.gates.signals import random_queries
from harness.storage.cache import Cache
from retrievers.base import Query, Turn


def composed(*words):
    """The config of a run, as its command composes it."""
    return composing.compose("run", ["tokenizer=word", *words], silent=True)[0]


def run(config, dataset, own_cache):
    config = Plan.of(config)
    return steps.run_steps(config, replace(open_session(config, dataset), cache=own_cache))


@pytest.fixture
def own_cache(tmp_path):
    return Cache(tmp_path / "cache")


@pytest.fixture
def sample():
    return checked_dataset(build(composed()["dataset"]), "sample")


def searcher_of(config, dataset, own_cache, tmp_path, fitted=None):
    """The searcher of a run whose gate learned `fitted`."""
    if fitted:
        (tmp_path / "gate.json").write_text(json.dumps(fitted), "utf-8")
        rule = {"_target_": "harness.gates.rule.FittedGate", "file": str(tmp_path / "gate.json")}
        config = {**config, "gate": rule}
    queries = search_queries(dataset, config["query"]["text"])
    texts = [document.indexed_text for document in dataset.documents]
    return Searcher(Plan.of(config), dataset, own_cache, lambda: random_queries(texts, queries))


def same(found, outcome, rows):
    """Assert that the results of some queries equal those of the run in these rows, to the last digit."""
    for row, ours in enumerate(rows):
        assert found.candidates.row(row) == outcome.candidates.row(ours)
        assert found.final.row(row) == outcome.final.row(ours)
    np.testing.assert_array_equal(found.decision.shown, outcome.decision.shown[rows])
    np.testing.assert_array_equal(found.decision.signal, outcome.decision.signal[rows])


class Overlap:
    """A reranker: the share of the query's characters that occur in the document."""

    version, packages = 1, ()
    __module__ = "retrievers.combine.rerank"  # a config may name this module

    def __init__(self, depth: int) -> None:
        self.depth = depth

    def score(self, pairs):
        shares = [len({*query} & {*text}) / len({*query}) for query, text in pairs]
        for start in range(0, len(pairs), 7):
            yield np.arange(len(pairs))[start : start + 7], np.array(shares[start : start + 7])


LSA = ("retriever=dense", "encoder=lsa", "encoder.dimensions=32")
FEW = ("gate.folds=2", "gate.repeats=1")
RUNS = {
    "bm25": (),
    "character-bigrams": ("tokenizer=char_ngram", "retriever.bm25.variant=okapi", "depth=7"),
    "last-turn": ("query.text=last",),
    "score": ("gate=score", "gate.threshold=4"),
    "coverage": ("gate=score", "gate.signal=coverage", "gate.threshold=0.5"),
    "background": ("gate=score", "gate.signal=background", "gate.threshold=1"),
    "hybrid-auto": ("retriever=hybrid_lexical", "gate=auto", *FEW),
    "hybrid-depth": ("retriever=hybrid_lexical", "fusion=rrf", "gate=depth", *FEW),
    "hybrid-classifier": ("retriever=hybrid_lexical", "fusion.normalise=min_max", "gate=classifier", *FEW),
    "lsa-auto": (*LSA, "gate=auto", *FEW),
    "lsa-classifier": (*LSA, "gate=classifier", "gate.embedding=true", "gate.signals=[top_score,margin]", *FEW),
    "bm25-and-lsa": ("retriever=hybrid", *LSA[1:], "gate=score", "gate.source=dense", "gate.signal=agreement"),
}


@pytest.fixture
def both(sample, own_cache, tmp_path):
    """The outcome of a run of the sample with this config, and its searcher."""

    def made(config):
        outcome = run(config, sample, own_cache)
        return outcome, searcher_of(config, sample, own_cache, tmp_path, outcome.decision.fitted)

    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_query_is_answered_as_in_the_run_in_any_batch(name, sample, both):
    outcome, searcher = both(composed(*RUNS[name]))
    everyone = list(range(len(sample.queries)))
    same(searcher.search(sample.queries), outcome, everyone)
    for row in everyone[::7]:
        same(searcher.search(sample.queries[row : row + 1]), outcome, [row])
    backwards = everyone[-1:0:-2]
    same(searcher.search([sample.queries[row] for row in backwards]), outcome, backwards)


def test_a_reranker_sees_the_same_pairs(sample, both, monkeypatch):
    monkeypatch.setattr(Overlap, "recorded_as", "rerank/overlap", raising=False)
    rerank = {"_target_": "retrievers.combine.rerank.CrossEncoder", "depth": 5}
    monkeypatch.setitem(components._shipped, rerank["_target_"], Overlap)
    outcome, searcher = both(composed() | {"rerank": rerank})
    for row in (0, 9, 33):
        same(searcher.search(sample.queries[row : row + 1]), outcome, [row])


def test_a_language_model_sees_the_conversation(sample, both):
    """It answers no to prompts of odd length; conversations are sent with all their turns."""
    with ChatServer(lambda asked, time: "no" if len(asked) % 2 else "yes") as server:
        outcome, searcher = both(composed("gate=llm", "llm.model=tiny", f"llm.base_url={server.url}"))
        found = searcher.search(sample.queries[:20])
    same(found, outcome, list(range(20)))
    assert 0 < found.decision.keep.sum() < 20


def test_indexes_are_loaded_once_and_queries_are_not_cached(sample, own_cache, tmp_path, monkeypatch):
    from retrievers.lexical.bm25 import BM25

    loads = []
    plain = BM25.load
    monkeypatch.setattr(BM25, "load", lambda self, folder: (loads.append(folder), plain(self, folder)))
    config = composed("gate=score", "gate.signal=background", "gate.threshold=1")
    searcher = searcher_of(config, sample, own_cache, tmp_path)
    searcher.warm()
    before, loads[:] = files(own_cache.root), []
    searcher.search([Query.of("a", "달의 모양은 왜 변해?")])
    searcher.search([Query.of("a", "물은 몇 도에서 끓어?")])
    assert (files(own_cache.root), loads) == (before, [])


def files(root: Path):
    return {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}


def test_a_sealed_cache_serves_its_entries_and_builds_nothing(sample, own_cache, tmp_path):
    [folder] = searcher_of(composed(), sample, own_cache, tmp_path).folders
    sealed, before = Cache(own_cache.root, sealed=True), files(own_cache.root)
    assert searcher_of(composed(), sample, sealed, tmp_path).folders == [folder]
    with pytest.raises(BadInput, match=r"no entry in indexes that matches.*arguments.k1=1.5, now: 1.2"):
        searcher_of(composed("retriever.bm25.k1=1.2"), sample, sealed, tmp_path)
    assert files(own_cache.root) == before


def test_unsearchable_queries_and_gates_are_refused(sample, own_cache, tmp_path):
    with pytest.raises(BadInput, match="This gate learns from labels"):
        searcher_of(composed("gate=auto"), sample, own_cache, tmp_path)
    searcher = searcher_of(composed(), sample, own_cache, tmp_path)
    with pytest.raises(BadInput, match="x: the query is empty"):
        searcher.search([Query.of("y", "달"), Query.of("x", " \n")])
    config = composed() | {"query": {"text": "file", "file": "rewritten.jsonl"}}
    rewritten = Searcher(Plan.of(config), sample, own_cache, tuple)
    talk = (Turn("user", "달은?"), Turn("assistant", "위성입니다"), Turn("user", "왜 변해?"))
    with pytest.raises(BadInput, match="rewritten elsewhere"):
        rewritten.search([Query("x", talk)])
    assert rewritten.search([Query.of("x", "달은 왜 변해?")]).final.row(0)
