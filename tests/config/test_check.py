"""The leash, the identities, and messages about keys and values."""

from collections.abc import Mapping

import pytest

from harness.config import canonical, components, schema
from harness.config.commands import CommonConfig
from harness.errors import BadInput

GATE = {"_target_": "harness.gates.gate.ScoreGate", "threshold": 1.0}


@pytest.mark.parametrize(
    "target",
    ["os.system", "subprocess.Popen", "builtins.eval", "harness", "retrieversx.Evil", "harness.cli.os.system",
     "harness.gates.gate._private", "harness._x.Y", 7, None, "harness.config.check.check_config",
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
    assert components.component_identity(short) == components.component_identity(full)
    assert components.component_identity(full | {"k": 5}) != components.component_identity(full)
    kiwi = {"_target_": "retrievers.lexical.tokenize.Kiwi", "tags": ["NNG"]}
    assert components.component_identity(kiwi | {"runtime": {"workers": 1}}) == components.component_identity(
        kiwi | {"runtime": {"workers": 2}}
    )
    assert "kiwipiepy" in components.component_identity(kiwi)["packages"]


@pytest.mark.parametrize(
    ("value", "key", "message"),
    [
        (0, schema.Key(int, least=1), "too small: the least is 1"),
        (9, schema.Key(int, most=5), "too large: the most is 5"),
        ("3", schema.Key(int), "is not a whole number"),
        (True, schema.Key(int), "is not a whole number"),
        (float("nan"), schema.Key(float), "not a finite number"),
        (float("inf"), schema.Key(float | None), "not a finite number"),
        ("jsn", schema.keys(CommonConfig)["format"], "one of text, json.*Did you mean 'json'"),
        ("???", schema.Key(str), "is missing"),
        ([1], schema.Key(list[str]), "a list of text"),
        (None, schema.Key(str), "is not text"),
        ({}, schema.Key(str | None), "is not text or null"),
        ("x", schema.Key(Mapping[str, str] | None), "is not a group of keys or null"),
    ],
)
def test_values_are_checked_with_words(value, key, message):
    with pytest.raises(BadInput, match=rf"(?s)name.*{message}"):
        schema.check_value(value, key, "name")


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
    assert repr(schema.one_spelling(value, hint)) == expected


def test_values_inside_components_have_one_spelling():
    spelled = components.spelled({"gate": GATE | {"threshold": 2, "runtime": {"parallel": 3}}}, {})["gate"]
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


def test_digest_is_of_canonical_json():
    assert canonical.digest({"a": 1, "b": "한"}) == canonical.digest({"b": "한", "a": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical.digest(float("nan"))
