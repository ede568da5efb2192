"""What a retrieval run is called and what it logs of its config."""

import os

from harness.config.check import Invocation
from harness.experiment.plan import Plan
from harness.recording import retrieval_run

TOKENIZER = {"_target_": "retrievers.lexical.tokenize.CharNgram", "low": 2, "high": 2}
DOCUMENT = {
    "dataset": {"_target_": "harness.data.contest.Contest", "path": "data"},
    "query": {"text": "file", "file": "rewritten.jsonl"},
    "tokenizer": TOKENIZER,
    "encoder": {}, "index": {}, "fusion": {"k": 60},
    "retriever": {"bm25": {"_target_": "retrievers.lexical.bm25.BM25", "tokenizer": TOKENIZER, "k1": 1.2,
                           "runtime": {"threads": 2}}},
    "gate": {"_target_": "harness.gates.gate.NoGate"},
    "rerank": {"_target_": "retrievers.combine.rerank.NoRerank"},
    "metrics": ["map@3"], "objective": "map@3", "top_k": 3, "depth": 50,
    "public": 0.5, "seed": 7, "select_on": "public",
    "store": {"path": "cache"}, "outputs": "outputs", "tracking": {"detail": "light"},
}  # fmt: skip
CHOICES = {"retriever": "bm25", "tokenizer": "char_ngram", "fusion": "rrf", "gate": "none", "tracking": "mlflow"}


def test_the_config_has_typed_values_and_files_are_named_from_the_root():
    plan = Plan.of(DOCUMENT)
    assert (plan.query_text, plan.store) == ("file", "cache")
    assert (plan.split.public, plan.split.seed, plan.split.select_on) == (0.5, 7, "public")
    assert (plan.metrics, plan.top_k, plan.depth, plan.light) == (("map@3",), 3, 50, True)
    assert plan.active == ("tokenizer",)  # nothing is fused, reranked or encoded
    assert plan.document["dataset"]["path"] == os.path.abspath("data")  # noqa: PTH100
    assert plan.document["query"] == {"text": "file", "file": os.path.abspath("rewritten.jsonl")}  # noqa: PTH100
    assert DOCUMENT["dataset"]["path"] == "data"


def test_a_run_is_named_by_its_components_and_other_overrides():
    words = ("retriever=bm25", "top_k=5", "dataset.path=data", "experiment_name=e", "gate.threshold=2.0")
    name = retrieval_run.run_name(Plan.of(DOCUMENT), Invocation(CHOICES, words))
    assert name == "bm25-char_ngram-none top_k=5 gate.threshold=2"


def test_params_say_each_value_once_and_leave_out_what_decides_nothing():
    params = retrieval_run.retrieval_params(Plan.of(DOCUMENT), CHOICES)
    assert params["retriever.bm25.k1"] == 1.2
    assert params["tokenizer.low"] == 2
    assert "retriever.bm25.tokenizer.low" not in params  # the run's tokenizer, which is there already
    assert not [name for name in params if "runtime" in name or "_target_" in name]
    assert not {"fusion", "fusion.k", "outputs", "tracking", "store.path"} & set(params)


def test_params_of_a_language_model_are_those_that_decide_its_replies():
    model = {"_target_": "harness.llm.chat.ChatModel", "model": "tiny", "base_url": "http://localhost/v1",
             "price": {"input": 1, "output": 2}, "runtime": {"parallel": 9}}  # fmt: skip
    gate = {"_target_": "harness.gates.llm.LlmGate", "llm": model, "request": {"max_tokens": 16}}
    asked = retrieval_run.retrieval_params(Plan.of(DOCUMENT | {"llm": model, "gate": gate}), CHOICES)
    found = {name: value for name, value in asked.items() if name.startswith(("llm", "gate."))}
    assert found == {"llm.model": "tiny", "llm.base_url": "http://localhost/v1", "gate.request.max_tokens": 16}
    silent = retrieval_run.retrieval_params(Plan.of(DOCUMENT | {"llm": model}), CHOICES)
    assert not [name for name in silent if name.startswith("llm")]  # nobody asks it
