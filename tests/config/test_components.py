"""Recorded names: what identities, trial keys and logged configs call a class, wherever its module moves."""

import re
import sys
import types

import pytest
import yaml

from harness.config import components
from harness.config.canonical import digest
from harness.config.components import component_identity, conf_folder, recorded, recorded_name, target_class
from harness.errors import BadInput
from harness.experiment.plan import Plan
from harness.experiment.steps import ranking_identity
from harness.recording import retrieval_run

TARGETS = sorted({
    target
    for path in conf_folder().rglob("*.yaml")
    for target in re.findall(r"_target_: *(\S+)", path.read_text("utf-8"))
    if not target.startswith("hydra_plugins.")
})  # fmt: skip

BM25 = {
    "_target_": "retrievers.lexical.bm25.BM25",
    "tokenizer": {"_target_": "retrievers.lexical.tokenize.CharNgram", "low": 2, "high": 2},
    "variant": "lucene", "k1": 1.5, "b": 0.75, "delta": None, "epsilon": 0.25, "engine": "sparse",
    "runtime": {"threads": None},
}  # fmt: skip
RUN = {
    "dataset": {},
    "retriever": {"bigram": BM25},
    "gate": {"_target_": "harness.gates.gate.ScoreGate", "threshold": 4.5, "source": None, "k": 10},
    "rerank": {"_target_": "retrievers.combine.rerank.NoRerank"},
    "fusion": {"_target_": "retrievers.combine.fusion.RRF", "k": 60, "weights": {}},
    "tokenizer": {}, "encoder": {}, "index": {},
    "metrics": ["modified_map@3", "mrr@10"], "objective": "modified_map@3",
    "top_k": 3, "depth": 100, "public": 0.4, "select_on": "all", "seed": 0,
}  # fmt: skip
DATA = {"documents": "d" * 64, "queries": "e" * 64, "qrels": "f" * 64}


@pytest.fixture
def versions(monkeypatch):
    """Every package has version 1, and so have the measures: literals below do not follow upgrades."""
    monkeypatch.setattr(components, "_installed", lambda package, target: "1")
    monkeypatch.setattr(retrieval_run.measures, "VERSION", 1)


@pytest.mark.parametrize("target", TARGETS)
def test_a_shipped_component_has_a_recorded_name_that_leads_back_to_it(target):
    cls = target_class({"_target_": target}, "conf")
    name = recorded_name(cls)
    assert components.RECORDED.fullmatch(name), f"{target}: declare recorded_as = 'group/name' in the class"
    assert target_class({"_target_": name}, "conf") is cls


def test_recorded_names_are_unique():
    assert len(components._recorded_classes()) == len({target_class({"_target_": one}, "conf") for one in TARGETS})


def test_an_unknown_recorded_name_is_refused_with_a_near_miss():
    with pytest.raises(BadInput, match=r"no component is recorded as 'gate/scor'\. Did you mean 'gate/score'\?"):
        target_class({"_target_": "gate/scor"}, "gate")


def test_a_logged_config_names_no_module():
    text = yaml.safe_dump(recorded({"retriever": {"a": BM25}, "list": [BM25, 1], "top_k": 3}))
    assert re.findall(r"_target_: (.*)", text) == ["retriever/bm25", "tokenizer/char_ngram"] * 2
    assert yaml.safe_load(text)["top_k"] == 3


def test_the_identity_of_a_ranking_is_a_literal(versions):
    """If this changes, every cached ranking is computed again: raise it on purpose or not at all."""
    index = {"retriever": component_identity(BM25), "documents": DATA["documents"]}
    assert (
        digest(ranking_identity(index, "a" * 64)) == "2966f98e75e650aba3443eaebcd3af54c53548d91a4291080b464fb0075c6f84"
    )


def test_the_identity_of_dense_retrieval_is_a_literal(versions):
    """The same with and without the arguments that came later, at the values that change nothing."""
    lsa = {"_target_": "retrievers.dense.lsa.LSA", "low": 2, "high": 4, "dimensions": 512, "seed": 0}
    node = {"_target_": "retrievers.dense.dense.Dense", "encoder": lsa, "index": {"_target_": "index/flat"}}
    later = {"passages": "none", "window": 5, "overlap": 2}
    assert (
        digest(component_identity(node))
        == digest(component_identity(node | later))
        == "06f98da1305a9e1a5a9c29002d44d07583dc1ba88a150d600f8bc665ce66ee45"
    )


def test_a_trial_key_is_a_literal(versions):
    """If this changes, no sweep goes on where it stopped: raise it on purpose or not at all."""
    assert (
        retrieval_run.retrieval_trial_key(Plan.of(RUN), DATA, "b" * 64)
        == "e32e667411ea03cb343119ddce3c7b8c149d2dc5725a7078edcd9f261856c4c1"
    )


def test_a_language_model_enters_a_trial_key_where_it_writes_something(versions, tmp_path):
    """Literals, as above. A model that is named and not asked changes nothing, nor do price and what is `runtime`."""
    (prompt := tmp_path / "prompt.txt").write_text("{conversation} {references}")
    (ask := tmp_path / "ask.txt").write_text("{conversation}")

    def key(text="user_turns", answer=None, **llm):
        node = {"_target_": "harness.llm.chat.ChatModel", "model": "tiny", **llm}
        query = {"text": text, "file": None, "prompt": None if text == "user_turns" else str(ask)}
        answers = {"llm": node, "prompt": str(answer)} if answer else {}
        target = {"_target_": f"harness.experiment.writing.{'Llm' if answer else 'No'}Answers"}
        config = RUN | {"llm": node, "query": query, "answer": target | answers}
        return retrieval_run.retrieval_trial_key(Plan.of(config), DATA, "b" * 64)

    assert key() == key(model="other") == retrieval_run.retrieval_trial_key(Plan.of(RUN), DATA, "b" * 64)
    literal = "02f3651b734a928aa4734b33fee1a6296fc487f5ac0fa9d292319252d5d05d17"
    assert key("rewrite") == key("rewrite", price={"input": 1}, runtime={"parallel": 9}) == literal
    assert key(answer=prompt) == "de7a455d4155119698c341fdcf87525dd6899a57183b75b3a2439a00d90e8af8"
    own = [key("rewrite", model="other"), key("rewrite", base_url="http://localhost:1/v1"), key("expand")]
    own += [key("rewrite", request={"temperature": 1}), key("rewrite", prompt), key(answer=prompt, model="other")]
    ask.write_text("Rewrite {conversation}")
    own += [key("rewrite"), key("expand")]
    assert len({*own, literal, key(), key(answer=prompt)}) == len(own) + 3


def test_nothing_changes_when_a_class_moves(versions, monkeypatch):
    elsewhere = types.ModuleType("retrievers.elsewhere")
    elsewhere.BM25 = target_class(BM25, "conf")
    monkeypatch.setitem(sys.modules, "retrievers.elsewhere", elsewhere)
    monkeypatch.setattr(elsewhere.BM25, "__module__", "retrievers.elsewhere")
    moved = BM25 | {"_target_": "retrievers.elsewhere.BM25"}
    assert component_identity(moved) == component_identity(BM25)
    assert recorded(moved) == recorded(BM25)
    of_moved = retrieval_run.retrieval_trial_key(Plan.of(RUN | {"retriever": {"bigram": moved}}), DATA, "b" * 64)
    assert of_moved == retrieval_run.retrieval_trial_key(Plan.of(RUN), DATA, "b" * 64)


def test_a_class_without_a_recorded_name_goes_by_its_path_and_inherits_none():
    bm25 = target_class(BM25, "conf")
    assert recorded_name(type("Mine", (bm25,), {"__module__": "mine"})) == "mine.Mine"


def test_what_may_not_be_used_again_has_a_name_of_its_own(versions, tmp_path):
    """`cache: false` beside a retriever's other arguments: an identity, a cache and, in each process, a trial key."""
    from harness.experiment.session import cache_for
    from harness.storage.cache import Cache

    fresh = BM25 | {"runtime": {"threads": None, "cache": False}}
    assert not components.reusable(fresh)
    assert components.reusable(BM25 | {"cache": True})
    shared = Cache(tmp_path)
    assert cache_for(BM25, shared) is shared
    assert cache_for(fresh, shared).root != tmp_path
    assert cache_for(fresh, shared).root == cache_for(fresh, Cache(tmp_path)).root
