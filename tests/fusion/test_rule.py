"""The rule of a learned fusion: by hand, against fixed fusions of the same weights, and refused if damaged."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import BadInput
from harness.fusion.rule import FEATURES, FittedFusion, FusionRule
from harness.storage.typed import encoded, row_as
from retrievers.base import Ranking
from retrievers.combine.fusion import RRF, WeightedSum
from retrievers.testing import same

A = Ranking.from_scores({"q1": {"d1": 4.0, "d2": 3.0, "d3": 2.0}, "q2": {}})
B = Ranking.from_scores({"q1": {"d3": 9.0, "d4": 7.0}, "q2": {"d1": 1.0}})
THREE = [
    {"ranking": "a", "feature": "min_max", "weight": 1.0},
    {"ranking": "b", "feature": "min_max", "weight": 0.25},
    {"ranking": "b", "feature": "returned", "weight": 0.5},
]
PLAIN = {"version": 1, "rule": {"rankings": ["a", "b"], "features": THREE}}


ONE = THREE[0]


def changed(**rule):
    return PLAIN | {"rule": PLAIN["rule"] | rule}


@pytest.fixture
def written(tmp_path):
    def write(content):
        file = tmp_path / "fusion.json"
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(file)

    return write


def test_by_hand(written):
    found = FittedFusion(written(PLAIN)).fuse({"a": A, "b": B}, 10)
    # min_max of a: d1 1, d2 .5, d3 0. Of b: d3 1, d4 0, weighted .25; b gives .5 to each that it returned.
    assert found.to_dict() == {
        "q1": {"d1": 1.0, "d3": 0.75, "d2": 0.5, "d4": 0.5},
        "q2": {"d1": 0.75},  # all scores of b are equal: min_max 1
    }
    assert FittedFusion(written(PLAIN)).fuse({"b": B, "a": A}, 2).to_dict()["q1"] == {"d1": 1.0, "d3": 0.75}


SCORES = st.dictionaries(st.sampled_from("abcdef"), st.floats(-5, 5, allow_subnormal=False), max_size=6)
WEIGHTS = st.floats(0.125, 4)


@given(st.lists(st.tuples(SCORES, WEIGHTS), min_size=2, max_size=3))
def test_a_rule_of_one_feature_is_the_fixed_fusion_of_the_same_weights(drawn):
    rankings = {f"r{i}": Ranking.from_scores({"q": scores}) for i, (scores, _) in enumerate(drawn)}
    weights = {name: weight for name, (_, weight) in zip(rankings, drawn, strict=True)}
    for feature, fixed in {
        "z_score": WeightedSum("z_score", weights),
        "min_max": WeightedSum("min_max", weights),
        "reciprocal_rank_60": RRF(60, weights),
        "reciprocal_rank_10": RRF(10, weights),
    }.items():
        rule = FusionRule.of(rankings, {(name, feature): weight for name, weight in weights.items()})
        assert same(rule.fuse(rankings, 4), fixed.fuse(rankings, 4))


FOUND = st.tuples(st.sampled_from("ab"), st.sampled_from(list(FEATURES)))


@given(st.dictionaries(FOUND, st.floats(-1e9, 1e9).filter(bool), min_size=1))
def test_a_written_rule_is_read(weights):
    rule = FusionRule.of("ba", weights)
    assert row_as(FusionRule, json.loads(json.dumps(encoded(rule), allow_nan=False)), "rule") == rule


def test_the_identity_is_the_rule(written):
    plain = FittedFusion.identify(written(PLAIN))
    assert FittedFusion.identify(written(PLAIN | {"notes": ["other"]}), {"a": 1}) == plain
    assert FittedFusion.identify(written(changed(features=[ONE]))) != plain


def test_other_rankings_and_other_weights_are_refused(written):
    for names, message in (
        ("a", "learnt for the component rankings a, b, but the retriever lacks b"),
        ("abc", "but the retriever has also c"),
        ("ac", "lacks b and has also c"),
    ):
        with pytest.raises(BadInput, match=message):
            FittedFusion(written(PLAIN), {"a": 1.0, "b": 1}).check(names)  # hybrid retrievers give weights of 1
    with pytest.raises(BadInput, match=r"weights\.b=2: the weights are those of .*fusion\.json"):
        FittedFusion(written(PLAIN), {"b": 2})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"fusion\.json:1: broken JSON"),
        ("[]", "must be one JSON object"),
        ({"rule": {}}, r"version is missing"),
        (PLAIN | {"version": 2}, r"version is 2, but this program reads version 1"),
        (PLAIN | {"version": True}, r"version is True"),
        ({"version": 1}, r"rule is missing"),
        (PLAIN | {"rule": 3}, r"rule: the row is 3, but must be an object"),
        (changed(feature=[]), r"rule: feature is not a field here\. Did you mean .features.\? The fields are rank"),
        (changed(rankings=["a", "a"]), r"rule: rankings must name two or more component rankings, each once"),
        (changed(rankings=["a", 1]), r"rule: rankings\[1\] is 1, but must be text"),
        (changed(rankings=["a"]), r"rule: rankings must name two or more"),
        (changed(features=3), r"rule: features is 3, but must be a list"),
        (changed(features=[]), r"rule: the greatest weight of features is 0, but must be above 0"),
        (changed(features=[ONE | {"weight": 0}]), r"rule: the greatest weight of features is 0"),
        (changed(features=[ONE | {"weight": 2e9}]), r"the greatest weight of features is 2e\+09.* 1,000,000,000"),
        (changed(features=[3]), r"rule: features\[0\] is 3, but must be an object"),
        (changed(features=[ONE, ONE]), r"rule: features lists a feature of a ranking twice"),
        (changed(features=[ONE | {"ranking": "c"}]), r"features: ranking is 'c': choose one of a, b"),
        (changed(features=[ONE | {"feature": "z_scor"}]), r"feature is 'z_scor'.*'z_score'"),
        (changed(features=[ONE | {"weight": "1"}]), r"features\[0\]\.weight is '1', but must be a number"),
        (changed(features=[{"ranking": "a", "feature": "min_max"}]), r"features\[0\]\.weight is missing"),
    ],
)
def test_damaged_files_are_refused(written, content, message):
    with pytest.raises(BadInput, match=rf"{message}.*fusion\.file needs the fusion\.json of a run"):
        FittedFusion(written(content))
    with pytest.raises(BadInput, match=r"there is no such file.*fusion\.file needs"):
        FittedFusion(written(content) + ".missing")
