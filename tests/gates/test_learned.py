"""Gates that learn: what they find, what they do not see, and what is left where there is little to learn."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from fakes import FakeInputs

from harness.errors import BadInput
from harness.gates import calibration
from harness.gates.learned import AutoGate, ClassifierGate, DepthGate
from harness.gates.payoff import Payoff
from harness.gates.rule import FittedGate, Rule
from retrievers.base import Ranking

FEW = {"signals": ["top_score", "margin"], "folds": 5, "repeats": 2}


@pytest.fixture(params=[AutoGate, DepthGate, ClassifierGate])
def gate(request):
    return request.param


def corpus(seed: int = 0, n: int = 60, none: float = 0.3, noise: float = 1.0):
    """(evidence, payoff): `good` has high scores where retrieval is needed, `noise` has none of its own."""
    generator = np.random.default_rng(seed)
    needs = generator.random(n) >= none
    good = np.where(needs, 8.0, 4.0) + noise * generator.normal(size=n)
    rows = [f"q{i:02}" for i in range(n)]
    rankings = {}
    for name, scores in (("noise", 5 + generator.random(n)), ("good", good)):
        margins = 1 + generator.random(n)
        rankings[name] = Ranking.from_scores(
            {query: {"a": one, "b": one - margin} for query, one, margin in zip(rows, scores, margins, strict=True)}
        )
    values = np.zeros((n, 4))
    values[~needs, 0] = 1.0
    values[needs, 1:] = generator.choice([0.0, 0.5, 1.0], (needs.sum(), 1), p=[0.2, 0.2, 0.6])
    return FakeInputs(rankings), Payoff(values, np.arange(n), needs, "modified_map@3")


def mean(payoff, shown):
    rows = payoff.rows
    return payoff.values[rows, np.minimum(shown[rows], 3)].mean()


def test_auto_finds_the_source_and_a_threshold_between_the_kinds():
    known, payoff = corpus()
    decision = AutoGate(**FEW).decide(known, payoff)
    rule = decision.fitted["rule"]
    assert rule["features"] == [["good", "top_score"]]
    assert 4 < rule["thresholds"][0] < 8
    assert rule["levels"] == [3, 0]
    assert set(decision.shown.tolist()) == {0, 3}
    np.testing.assert_array_equal(decision.signal, [row[0] for row in known.rankings["good"].scores])
    assert decision.fitted["in_sample"] == pytest.approx(mean(payoff, decision.shown))
    assert decision.fitted["in_sample"] > max(payoff.values[:, 0].mean(), payoff.values[:, 3].mean()) + 0.1
    assert decision.fitted["learnt_from"] == {"queries": 60, "needs_no_retrieval": int((~payoff.needs).sum())}
    # The curve is the objective by the threshold: at the fitted one it is what was found.
    kept = (decision.curve.edges >= rule["thresholds"][0]).sum()
    assert decision.curve.values[kept] == pytest.approx(decision.fitted["in_sample"])
    low, high = decision.fitted["plateau"]
    assert low < rule["thresholds"][0] <= high


@pytest.mark.slow
def test_a_querys_own_label_has_no_part_in_what_is_held_out(gate):
    """The label of one query is turned around: its own decisions out of fold stay, in every repetition."""
    known, payoff = corpus()
    seen, plain = gate(**FEW).decide(known, payoff), calibration.folds
    assert seen.out_of_fold.shape == (2, 60)
    for row in (7, 31):
        values, needs = payoff.values.copy(), payoff.needs.copy()
        values[row], needs[row] = (1, 0, 0, 0) if needs[row] else (0, 1, 1, 1), not needs[row]
        # Which fold a query is in depends on how many there are of each kind: the folds are held as they were.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(calibration, "folds", lambda _, *rest: plain(payoff.needs, *rest))
            turned = gate(**FEW).decide(known, replace(payoff, values=values, needs=needs))
        np.testing.assert_array_equal(turned.out_of_fold[:, row], seen.out_of_fold[:, row])


@pytest.mark.slow
def test_it_learns_from_its_rows_alone(gate):
    known, payoff = corpus()
    some = replace(payoff, rows=np.arange(0, 60, 2))
    values, needs = payoff.values.copy(), payoff.needs.copy()
    values[1::2], needs[1::2] = np.nan, False
    found, again = (gate(**FEW).decide(known, one) for one in (some, replace(some, values=values, needs=needs)))
    np.testing.assert_array_equal(found.shown, again.shown)
    np.testing.assert_array_equal(found.out_of_fold, again.out_of_fold)
    assert found.fitted == again.fitted
    # What has not been seen at all is decided by the whole rule, in and out of fold.
    np.testing.assert_array_equal(found.out_of_fold[:, 1::2], np.tile(found.shown[1::2], (2, 1)))


@pytest.mark.slow
def test_noise_is_not_learnt(gate):
    """Labels that the signals know nothing of: in sample it beats doing nothing, out of fold it does not."""
    gains = []
    for seed in range(3):
        known, payoff = corpus(seed, noise=100.0)
        decision = gate(**FEW).decide(known, payoff)
        scores = [mean(payoff, shown) for shown in (decision.shown, *decision.out_of_fold)]
        gains.append(np.array([scores[0], np.mean(scores[1:])]) - payoff.values[:, [0, 3]].mean(axis=0).max())
    inside, outside = np.mean(gains, axis=0)
    assert outside <= inside + 1e-9
    assert outside < 0.02


def test_depth_shows_fewer_documents_where_that_scores_higher():
    known, payoff = corpus(noise=0.1)
    sure = payoff.needs & (known.rankings["good"].scores[:, 0] > 8)
    payoff.values[sure] = (0, 1, 0.5, 0.5)  # a hit, then misses before the next one
    payoff.values[payoff.needs & ~sure] = (0, 0, 0, 0.5)
    decision = DepthGate(signals=["top_score"], repeats=1).decide(known, payoff)
    assert set(decision.shown[sure].tolist()) == {1}
    assert set(decision.shown[payoff.needs & ~sure].tolist()) == {3}
    assert set(decision.shown[~payoff.needs].tolist()) == {0}
    assert decision.fitted["rule"]["levels"] == [1, 2, 3, 0]


def test_the_classifier_joins_signals_that_say_little_alone():
    one, other = np.random.default_rng(0).normal(size=(2, 200))
    needs = one + other > 0
    rankings = {
        name: Ranking.from_scores({f"q{i:03}": {"a": 10 + score} for i, score in enumerate(scores)})
        for name, scores in (("x", one), ("y", other))
    }
    values = np.where(needs[:, None], [0, 1, 1, 1], [1, 0, 0, 0]).astype(float)
    payoff = Payoff(values, np.arange(200), needs, "modified_map@3")
    joined, alone = (
        mean(payoff, gate(signals=["top_score"], repeats=1).decide(FakeInputs(rankings), payoff).out_of_fold[0])
        for gate in (ClassifierGate, AutoGate)
    )
    assert joined > 0.95 > 0.85 > alone


def test_the_classifier_is_sklearns():
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    known, payoff = corpus()
    gate = ClassifierGate(**FEW)
    decision = gate.decide(known, payoff)
    rule = Rule.from_json(json.loads(json.dumps(decision.fitted["rule"])))
    raw = np.stack([known.rankings[s].scores[:, 0] - (known.rankings[s].scores[:, 1] if name == "margin" else 0)
                    for s, name in rule.features], axis=1)  # fmt: skip
    models = [make_pipeline(StandardScaler(), LogisticRegression(C=c, max_iter=1000)).fit(raw, payoff.needs)
              for c in (0.01, 0.1, 1.0)]  # fmt: skip
    assert any(np.allclose(model.decision_function(raw), decision.signal, atol=1e-3) for model in models)


def test_an_embedding_weighs_as_much_as_one_signal():
    known, payoff = corpus(noise=100.0)
    vectors = np.random.default_rng(0).normal(size=(60, 16))
    vectors[:, 0] = np.where(payoff.needs, 3.0, -3.0)
    known.embeddings = lambda: vectors
    decision = ClassifierGate(**FEW, embedding=True).decide(known, payoff)
    rule = decision.fitted["rule"]
    assert len(rule["embedding"]) == 16
    np.testing.assert_allclose(rule["embedding_scale"], vectors.std(axis=0) * 4)  # sqrt(16)
    assert ClassifierGate(embedding=True).parts == ("encoder",)
    assert mean(payoff, decision.out_of_fold[0]) > 0.7


@pytest.mark.parametrize("kind", [True, False])
def test_where_all_queries_are_of_one_kind(gate, kind):
    known, payoff = corpus()
    values = np.where(kind, [[0.0, 1, 1, 1]], [[1.0, 0, 0, 0]]).repeat(60, axis=0)
    decision = gate(**FEW).decide(known, replace(payoff, values=values, needs=np.full(60, kind)))
    assert decision.keep.all() == decision.keep.any() == kind
    assert (decision.out_of_fold > 0).all() == (decision.out_of_fold > 0).any() == kind
    assert decision.fitted["notes"][0] == ("every query needs retrieval" if kind else "no query needs retrieval")
    json.dumps(decision.fitted, allow_nan=False)


def test_a_fold_without_a_class(gate):
    """One query of 30 needs no retrieval: the fold that holds it is judged by gates that have seen none such."""
    known, payoff = corpus(n=30, none=0.0)
    payoff.values[4], payoff.needs[4] = (1, 0, 0, 0), False
    decision = gate(**FEW).decide(known, payoff)
    assert (decision.out_of_fold[:, 4] > 0).all()
    assert decision.fitted["learnt_from"]["needs_no_retrieval"] == 1


@pytest.mark.parametrize("needing", [0, 1])
def test_one_labelled_query(gate, needing):
    known, payoff = corpus(n=8)
    row = np.flatnonzero(payoff.needs == bool(needing))[:1]
    payoff.values[row] = (0, 1, 1, 1) if needing else (1, 0, 0, 0)
    decision = gate(**FEW).decide(known, replace(payoff, rows=row))
    assert decision.keep.tolist() == [bool(needing)] * 8
    assert decision.out_of_fold is None
    assert "only one labelled query: none can be held out" in decision.fitted["notes"]


def test_constant_signals(gate):
    known, payoff = corpus()
    flat = Ranking.from_scores({q: {"a": 2.0, "b": 1.0} for q in known.rankings["good"].query_ids})
    decision = gate(**FEW).decide(FakeInputs({"flat": flat}), payoff)
    assert len(set(decision.shown.tolist())) == 1
    assert mean(payoff, decision.shown) == pytest.approx(max(payoff.values[:, [0, 3]].mean(axis=0)))
    assert any("the signal is the same for all queries" in note for note in decision.fitted["notes"])


def test_no_query_to_learn_from():
    known, payoff = corpus(n=8)
    with pytest.raises(BadInput, match=r"no query to learn from.*select_on"):
        AutoGate().decide(known, replace(payoff, rows=np.array([], int)))


@pytest.mark.slow
def test_what_was_learnt_decides_alike_without_labels(tmp_path, gate):
    known, payoff = corpus()
    decision = gate(**FEW).decide(known, payoff)
    file = tmp_path / "gate.json"
    file.write_text(json.dumps(decision.fitted, allow_nan=False))
    fitted = FittedGate(str(file))
    found = fitted.decide(known)
    np.testing.assert_array_equal(found.shown, decision.shown)
    np.testing.assert_array_equal(found.signal, decision.signal)
    fitted.check(["good", "noise"])
    with pytest.raises(BadInput, match=r"gate\.source='(good|noise)' is not a component ranking"):
        fitted.check(["bm25"])
    # Its identity is what it says, not where it lies.
    moved = tmp_path / "other.json"
    file.rename(moved)
    assert FittedGate.identify(str(moved)) == {"rule": fitted.rule.to_json()}


def test_a_threshold_may_be_infinite():
    rule = Rule(((None, "query_words"),), 10, (3, 0), (-math.inf,))
    text = json.dumps(rule.to_json(), allow_nan=False)
    assert Rule.from_json(json.loads(text)) == Rule.from_json(rule.to_json()) == rule


RULE = {"features": [["a", "top_score"]], "k": 2, "levels": [3, 0], "thresholds": [1]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"levels": ["three", 0]}, r"rule: levels\[0\] is 'three', but must be a whole number"),
        ({"levels": [3, -1]}, r"rule: levels has -1, but must have whole numbers from 0"),
        ({"levels": [3, 2, 0]}, r"rule: levels must have one value more than thresholds"),
        ({"levels": [10**20, 0]}, r"rule: levels\[0\] is 1000"),
        ({"thresholds": ["x"]}, r"rule: thresholds\[0\] is 'x', but must be a number"),
        ({"thresholds": [True]}, r"rule: thresholds\[0\] is True"),
        ({"levels": [3, 2, 0], "thresholds": [1, 2]}, r"rule: thresholds must be descending"),
        ({"thresholds": 1}, r"rule: thresholds is 1, but must be a list"),
        ({"features": []}, r"rule: features is \(\), but must list pairs of source and signal"),
        ({"features": [["a"]]}, r"rule: features is \(\('a',\),\), but must list pairs"),
        ({"features": [[1, "top_score"]]}, r"rule: features\[0\]\[0\] is 1, but must be text or null"),
        ({"features": [["a", None]]}, r"rule: features is .* but must list pairs"),
        ({"features": [["a", "b"], ["a", "c"]]}, r"rule: centre must be as long as features, which has 2 values"),
        ({"k": 1}, r"rule: k is 1, but must be a whole number from 2"),
        ({"k": 2.5}, r"rule: k is 2\.5"),
        ({"scale": [0]}, r"rule: scale and embedding_scale must be greater than 0"),
        ({"weights": ["1"]}, r"rule: weights\[0\] is '1', but must be a number"),
        ({"weights": [10**400]}, r"rule: weights\[0\] is 1000"),
        ({"intercept": None}, r"rule: intercept is None"),
        ({"embedding": [1, 2]}, r"rule: embedding_centre must be as long as embedding, which has 2"),
        (
            {"treshold": 1},
            r"rule: treshold is not a field here\. Did you mean .thresholds.\? The fields are features, k",
        ),
    ],
)
def test_a_damaged_rule_is_refused_by_the_name_of_its_key(tmp_path, changes, message):
    (tmp_path / "gate.json").write_text(json.dumps({"rule": RULE | changes}))
    with pytest.raises(BadInput, match=rf"gate\.json: {message}.*gate\.file needs the gate\.json of a run"):
        FittedGate(str(tmp_path / "gate.json"))


def test_other_files_are_refused(tmp_path):
    for content, message in (
        ("", r"gate\.json:1: broken JSON"),
        ("[]", r"gate\.json: the file must be one JSON object"),
        ("{}", r"gate\.json: rule is missing"),
        ('{"rule": 3}', r"gate\.json: rule: the row is 3, but must be an object"),
        ('{"rule": {"features": []}}', r"gate\.json: rule: k is missing"),
    ):
        (tmp_path / "gate.json").write_text(content)
        with pytest.raises(BadInput, match=message):
            FittedGate(str(tmp_path / "gate.json"))
    with pytest.raises(BadInput, match=r"no\.json: there is no such file"):
        FittedGate(str(tmp_path / "no.json"))


def test_bad_arguments():
    for arguments, message in (
        ({"signals": ["top_scor"]}, "Did you mean 'top_score'"),
        ({"signals": []}, "signals is empty"),
        ({"signals": ["agreement"]}, "compares component rankings"),
        ({"sources": ["b"]}, r"gate\.sources='b' is not a component ranking"),
        ({"folds": 1}, "folds=1: at least 2"),
        ({"repeats": 0}, "repeats=0: at least 1"),
        ({"k": 1}, "k=1 is too small"),
    ):
        with pytest.raises(BadInput, match=message):
            AutoGate(**arguments).check(["a"])
