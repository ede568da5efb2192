"""The leash, the identities, and messages about keys and values."""

from collections.abc import Mapping

import pytest

from harness.config import canonical, check, components, keys
from retrievers.base import BadInput

GATE = {"_target_": "harness.gates.gate.ScoreGate", "threshold": 1.0}


@pytest.mark.parametrize(
    "target",
    ["os.system", "subprocess.Popen", "builtins.eval", "harness", "retrieversx.Evil", "harness.cli.os.system",
     "harness.gates.gate._private", "harness._x.Y", 7, None, "harness.config.check.check",
     "harness.storage.cache.Path"],
)  # fmt: skip
def test_the_leash(target):
    with pytest.raises(BadInput, match="_target_"):
        components.target_class({"_target_": target}, "gate")


def test_near_misses_of_a_target():
    with pytest.raises(BadInput, match="Did you mean 'ScoreGate'"):
        components.target_class({"_target_": "harness.gates.gate.ScoreGat"}, "gate")
    with pytest.raises(BadInput, match="no module"):
        components.target_class({"_target_": "harness.gates.gat.ScoreGate"}, "gate")


def test_build_makes_inner_parts_first_and_splices_runtime():
    node = {
        "_target_": "retrievers.lexical.bm25.BM25",
        "tokenizer": {"_target_": "retrievers.lexical.tokenize.Kiwi", "tags": ["NNG"], "runtime": {"workers": 1}},
    }
    seen = []
    built = components.build(node, lambda key, part, make: seen.append((key, part["_target_"])) or make())
    assert seen == [("tokenizer", "retrievers.lexical.tokenize.Kiwi")]
    assert type(built.tokenizer).__name__ == "Kiwi"


def test_identity_fills_defaults_and_leaves_runtime_out():
    short = {"_target_": "harness.gates.gate.ScoreGate"}
    full = {**short, "threshold": 0.0, "source": None, "signal": "top_score", "k": 10}
    assert components.identity(short) == components.identity(full)
    assert components.identity(full | {"k": 5}) != components.identity(full)
    kiwi = {"_target_": "retrievers.lexical.tokenize.Kiwi", "tags": ["NNG"]}
    assert components.identity(kiwi | {"runtime": {"workers": 1}}) == components.identity(
        kiwi | {"runtime": {"workers": 2}}
    )
    assert "kiwipiepy" in components.identity(kiwi)["packages"]


@pytest.mark.parametrize(
    ("value", "key", "message"),
    [
        (0, keys.Key(int, least=1), "too small: the least is 1"),
        (9, keys.Key(int, most=5), "too large: the most is 5"),
        ("3", keys.Key(int), "is not a whole number"),
        (True, keys.Key(int), "is not a whole number"),
        (float("nan"), keys.Key(float), "not a finite number"),
        (float("inf"), keys.Key(float | None), "not a finite number"),
        ("jsn", keys.KEYS["format"], "one of text, json.*Did you mean 'json'"),
        ("???", keys.Key(str), "is missing"),
        ([1], keys.Key(list[str]), "a list of text"),
        (None, keys.Key(str), "is not text"),
        ({}, keys.Key(str | None), "is not text or null"),
        ("x", keys.Key(Mapping[str, str] | None), "is not a group of keys or null"),
    ],
)
def test_values_are_checked_with_words(value, key, message):
    with pytest.raises(BadInput, match=rf"(?s)name.*{message}"):
        keys.check_value(value, key, "name")


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        (1, float, "1.0"),
        (-0.0, float | None, "0.0"),
        (None, float | None, "None"),
        (1, int, "1"),
        (True, float, "True"),
        ("1", str | None, "'1'"),
        ([1, 0.5], list[float], "[1.0, 0.5]"),
        ({"bm25": 1}, dict[str, float] | None, "{'bm25': 1.0}"),
        ({"max_tokens": 16}, Mapping[str, object], "{'max_tokens': 16}"),
    ],
)
def test_a_value_has_one_spelling(value, hint, expected):
    assert repr(keys.one_spelling(value, hint)) == expected


def test_values_inside_components_have_one_spelling():
    spelled = components.spelled(GATE | {"threshold": 2, "runtime": {"parallel": 3}})
    assert repr(spelled["threshold"]) == "2.0"
    assert spelled["runtime"] == {"parallel": 3}


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (GATE | {"threshhold": 2}, "gate.threshhold is unknown.*Did you mean 'threshold'"),
        (GATE | {"threshold": "high"}, "gate.threshold='high' is not a finite number"),
        (GATE | {"signal": "top"}, "'top' is not a gate signal.*Choose one of top_score, margin"),
        ({"threshold": 1.0}, "must name a component"),
        (None, "must name a component"),
        ({"_target_": "harness.gates.rule.FittedGate"}, "lacks file"),
    ],
)
def test_parts_are_checked_against_their_constructor(node, message):
    with pytest.raises(BadInput, match=message):
        components.check_component(node, "gate")


def test_shipped_keys_follow_the_defaults(tmp_path, monkeypatch):
    files = {
        "zeroth.yaml": "outputs: here\nhydra:\n  run: {dir: .}\n",
        "task/retrieval.yaml": "# @package _global_\nmetrics: [map]\n",
        "first.yaml": "defaults:\n  - zeroth\n  - task: retrieval\n  - gate: none\n  - _self_\ntop_k: 3\n",
        "gate/none.yaml": "_target_: harness.gates.gate.NoGate\n",
        "second.yaml": "defaults:\n  - first\n  - override hydra/x: y\n  - sweep: null\n  - _self_\nx: {y: 1}",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    monkeypatch.setattr(check, "conf_folder", lambda: tmp_path)
    first = {"outputs": "here", "metrics": ["map"], "gate": None, "top_k": 3}
    assert check.shipped_keys("first") == first
    assert check.shipped_keys("second") == first | {"x": {"y": 1}}


def test_digest_is_of_canonical_json():
    assert canonical.digest({"a": 1, "b": "한"}) == canonical.digest({"b": "한", "a": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical.digest(float("nan"))
