"""The leash, the identities, and messages about keys and values."""

import pytest

from harness import config
from retrievers.base import BadInput

GATE = {"_target_": "harness.gate.ScoreGate", "threshold": 1.0}


@pytest.mark.parametrize(
    "target",
    ["os.system", "subprocess.Popen", "builtins.eval", "harness", "retrieversx.Evil", "harness.cli.os.system",
     "harness.gate._private", "harness._x.Y", 7, None, "harness.config.check", "harness.store.Path"],
)  # fmt: skip
def test_the_leash(target):
    with pytest.raises(BadInput, match="_target_"):
        config.target_class({"_target_": target}, "gate")


def test_near_misses_of_a_target():
    with pytest.raises(BadInput, match="Did you mean 'ScoreGate'"):
        config.target_class({"_target_": "harness.gate.ScoreGat"}, "gate")
    with pytest.raises(BadInput, match="no module"):
        config.target_class({"_target_": "harness.gates.ScoreGate"}, "gate")


def test_build_makes_inner_parts_first_and_splices_runtime():
    node = {
        "_target_": "retrievers.bm25.BM25",
        "tokenizer": {"_target_": "retrievers.tokenize.Kiwi", "tags": ["NNG"], "runtime": {"workers": 1}},
    }
    seen = []
    built = config.build(node, lambda key, part, make: seen.append((key, part["_target_"])) or make())
    assert seen == [("tokenizer", "retrievers.tokenize.Kiwi")]
    assert type(built.tokenizer).__name__ == "Kiwi"


def test_identity_fills_defaults_and_leaves_runtime_out():
    short = {"_target_": "harness.gate.ScoreGate"}
    full = {**short, "threshold": 0.0, "source": None, "signal": "top_score", "k": 10}
    assert config.identity(short) == config.identity(full)
    assert config.identity(full | {"k": 5}) != config.identity(full)
    kiwi = {"_target_": "retrievers.tokenize.Kiwi", "tags": ["NNG"]}
    assert config.identity(kiwi | {"runtime": {"workers": 1}}) == config.identity(kiwi | {"runtime": {"workers": 2}})
    assert "kiwipiepy" in config.identity(kiwi)["packages"]


@pytest.mark.parametrize(
    ("value", "key", "message"),
    [
        (0, config.Key(int, least=1), "too small: the least is 1"),
        (9, config.Key(int, most=5), "too large: the most is 5"),
        ("3", config.Key(int), "is not a whole number"),
        (True, config.Key(int), "is not a whole number"),
        (float("nan"), config.Key(float), "not a finite number"),
        (float("inf"), config.Key(float | None), "not a finite number"),
        ("jsn", config.KEYS["format"], "one of text, json.*Did you mean 'json'"),
        ("???", config.Key(str), "is missing"),
        ([1], config.Key(list[str]), "a list of text"),
        (None, config.Key(str), "is not text"),
        ({}, config.Key(str | None), "is not text or null"),
    ],
)
def test_values_are_checked_with_words(value, key, message):
    with pytest.raises(BadInput, match=rf"(?s)name.*{message}"):
        config.check_value(value, key, "name")


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (GATE | {"threshhold": 2}, "gate.threshhold is unknown.*Did you mean 'threshold'"),
        (GATE | {"threshold": "high"}, "gate.threshold='high' is not a finite number"),
        (GATE | {"signal": "top"}, "'top' is no signal.*choose from top_score, margin"),
        ({"threshold": 1.0}, "needs a `_target_`"),
        (None, "needs a `_target_`"),
        ({"_target_": "harness.readers.Squad"}, "lacks path"),
    ],
)
def test_parts_are_checked_against_their_constructor(node, message):
    with pytest.raises(BadInput, match=message):
        config.check_part(node, "gate")


def test_shipped_keys_follow_the_defaults(tmp_path, monkeypatch):
    files = {
        "zeroth.yaml": "outputs: here\nhydra:\n  run: {dir: .}\n",
        "task/retrieval.yaml": "# @package _global_\nmetrics: [map]\n",
        "first.yaml": "defaults:\n  - zeroth\n  - task: retrieval\n  - gate: none\n  - _self_\ntop_k: 3\n",
        "gate/none.yaml": "_target_: harness.gate.NoGate\n",
        "second.yaml": "defaults:\n  - first\n  - override hydra/x: y\n  - sweep: null\n  - _self_\nx: {y: 1}",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    monkeypatch.setattr(config, "folder", lambda: tmp_path)
    first = {"outputs": "here", "metrics": ["map"], "gate": None, "top_k": 3}
    assert config.shipped_keys("first") == first
    assert config.shipped_keys("second") == first | {"x": {"y": 1}}


def test_digest_is_of_canonical_json():
    assert config.digest({"a": 1, "b": "한"}) == config.digest({"b": "한", "a": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        config.digest(float("nan"))
