"""Fusions that learn from labels: their gain, the labels that they must not see, and the file of their rule."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from harness.data.qrels import Qrels
from harness.errors import BadInput
from harness.fusion.learned import FIXED, NORMALISATIONS, POINTS, WEIGHTS, LearnedFusion, WeightGrid, regress, simplex
from harness.fusion.pool import CandidatePool, FusionLabels
from harness.fusion.rule import FEATURES, FittedFusion, FusionRule
from harness.gates.payoff import payoffs
from harness.measures.judged import judge_lists
from harness.measures.measures import parse_measure
from harness.statistics.split import Split
from harness.storage.typed import encoded, row_as
from retrievers.base import Ranking
from retrievers.combine.fusion import RRF, WeightedSum
from retrievers.testing import same

DOCS = [f"d{i:02}" for i in range(12)]


def corpus(seed=0, n=40, skill=(2.0, 0.0), none=0.1):
    """(rankings a and b, qrels): one relevant document per query, which a ranking scores higher by its skill."""
    generator = np.random.default_rng(seed)
    right = generator.integers(len(DOCS), size=n)
    needs = np.arange(n) >= none * n
    rankings = {}
    for name, more in zip("ab", skill, strict=True):
        scores = generator.normal(size=(n, len(DOCS)))
        scores[np.arange(n), right] += more
        rows = {f"q{i:02}": dict(zip(DOCS, row.tolist(), strict=True)) for i, row in enumerate(scores)}
        rankings[name] = Ranking.from_scores(rows, 8)
    return rankings, Qrels({f"q{i:02}": {DOCS[right[i]]: 1.0} if needs[i] else {} for i in range(n)})


def learning(rankings, qrels, fusion=None, depth=8, **given):
    labels = FusionLabels(qrels, given.pop("objective", "modified_map@3"), 3, **given)
    return (fusion or LearnedFusion()).learn(rankings, depth, labels)


def mean(ranking, qrels, name="modified_map@3"):
    return float(np.nanmean(parse_measure(name).values(judge_lists(ranking.top(3), qrels))))


def test_a_ranking_that_knows_nothing_loses_its_weight():
    rankings, qrels = corpus()
    found = learning(rankings, qrels)
    fixed, fused = WeightedSum().fuse(rankings, 8), found.fused()
    assert mean(fused, qrels) > mean(fixed, qrels) + 0.1
    said = found.to_json()
    assert said["chosen"] != FIXED
    assert said["learnt_from"] == {"queries": 40, "needs_no_retrieval": 4}
    assert said["in_sample"] == pytest.approx({FIXED: mean(fixed, qrels), "chosen": mean(fused, qrels)})
    assert said["held_out"][WEIGHTS] > said["held_out"][FIXED] == pytest.approx(mean(fixed, qrels))
    # Held-out lists gain too, from rules that have not seen the queries' labels.
    assert mean(found.crossed(found.split(5, 1)), qrels) > mean(fixed, qrels) + 0.05
    other = learning(dict(reversed(rankings.items())), qrels)
    assert other.to_json() == said, "the order of the rankings changes nothing"
    assert other.unseen(other.every).to_dict() == found.unseen(found.every).to_dict()


@pytest.mark.parametrize("weights", [None, {"a": 0.5, "b": 2}])
def test_without_a_gain_the_fixed_fusion_stays(weights):
    """The fixed fusion ranks every relevant document first."""
    rankings, _ = corpus(seed=3, skill=(1.0, 1.0))
    fusion = LearnedFusion(weights)
    best = WeightedSum(weights=weights).fuse(rankings, 1)
    qrels = Qrels({query: {best.row(i)[0][0]: 1.0} for i, query in enumerate(best.query_ids)})
    found = learning(rankings, qrels, fusion)
    assert found.to_json()["chosen"] == FIXED
    assert same(found.fused(), WeightedSum(weights=weights).fuse(rankings, 8))


def test_no_list_knows_the_label_of_its_query():
    """If other documents become relevant to one query, its lists stay, and others change."""
    rankings, qrels = corpus(skill=(1.0, 0.5))
    plain = learning(rankings, qrels)
    fold = plain.split(4, 1)
    used = fold != 0
    seen, inner = plain.crossed(fold), plain.unseen(used)
    assert inner.lengths[used].min() > inner.lengths[~used].max() == 0
    outside, moved = plain.learnt(used), 0
    for row in np.flatnonzero(plain.pool.needs)[::9].tolist():
        query = seen.query_ids[row]
        turned = Qrels({**qrels.grades, query: dict.fromkeys(DOCS[:6], 1.0)})
        other = learning(rankings, turned)
        assert other.crossed(fold).row(row) == seen.row(row)
        assert other.unseen(used).row(row) == inner.row(row)
        if not used[row]:
            assert other.learnt(used) == outside
            assert other.unseen(used).to_dict() == inner.to_dict()
        else:
            moved += other.learnt(used) != outside
    assert moved  # labels do matter


def test_unlabelled_and_private_queries_take_no_part_and_have_lists():
    rankings, qrels = corpus()
    labelled = dict(list(qrels.grades.items())[:30])
    found = learning(rankings, Qrels(labelled), split=Split(public=0.5, select_on="public"))
    assert len(found.pool.rows) == 15
    others = np.setdiff1d(np.arange(40), found.pool.rows)
    lists, last = found.crossed(found.split(5, 1)), found.fused()
    assert all(lists.row(row) == last.row(row) for row in others)
    # Labels of the private part change nothing.
    private = [f"q{row:02}" for row in others if row < 30]
    turned = {query: {DOCS[0]: 1.0} if grades and query in private else grades for query, grades in labelled.items()}
    again = learning(rankings, Qrels(turned), split=Split(public=0.5, select_on="public"))
    assert again.fused().to_dict() == last.to_dict()


@pytest.mark.parametrize("objective", ["modified_map@3", "ndcg@10", "map", "mrr@2", "bpref", "ndcg_condensed@3"])
def test_the_pools_objective_is_the_gates(objective):
    """It equals the payoff of the fused ranking with all documents shown."""
    rankings, qrels = corpus(n=15)
    judged = {query: frozenset(DOCS[::2]) - grades.keys() for query, grades in qrels.grades.items()}
    qrels = Qrels(qrels.grades, not_relevant=judged)
    pool = CandidatePool(rankings, 8, FusionLabels(qrels, objective, 3))
    every = np.arange(len(pool.rows))
    for fused, feature in ((WeightedSum(), "z_score"), (RRF(60), "reciprocal_rank_60")):
        found = pool.earned(pool.scores({("a", feature): 1.0, ("b", feature): 1.0}, every), every)
        expected = payoffs(fused.fuse(rankings, 8), qrels, objective, 3)
        np.testing.assert_array_equal(pool.rows, expected.rows)
        np.testing.assert_allclose(found, expected.values[expected.rows, 3])
        np.testing.assert_allclose(pool.earned(pool.scores({("b", feature): 1.0}, every[3:5]), every[3:5]).shape, 2)


def test_few_queries_or_none_or_no_relevant_candidate():
    for n in (1, 2, 3):
        found = learning(*corpus(n=n, none=0))
        said = found.to_json()
        assert said["learnt_from"]["queries"] == n
        assert (said["chosen"] == FIXED and said["notes"] != []) if n == 1 else said["held_out"]
        assert found.unseen(found.every).lengths.min() == 8
    rankings, qrels = corpus()
    with pytest.raises(BadInput, match="no query to learn from"):
        learning(rankings, qrels, split=Split(public=0, select_on="public"))
    nowhere = Qrels({query: {"elsewhere": 1.0} if grades else {} for query, grades in qrels.grades.items()})
    said = learning(rankings, nowhere).to_json()
    assert said["chosen"] == FIXED
    assert said["notes"] == ["no relevant document is among the candidates: all fusions are equally good"]
    empty = {name: Ranking.from_scores({query: {} for query in qrels.grades}) for name in "ab"}
    assert learning(empty, qrels).to_json()["chosen"] == FIXED


def test_random_labels_give_no_gain():
    """In sample, fusions of rankings without skill seem to gain; out of fold they do not."""
    inside, outside = [], []
    for seed in range(16):
        rankings, qrels = corpus(seed, n=30, skill=(0.0, 0.0))
        found = learning(rankings, qrels)
        fixed = mean(WeightedSum().fuse(rankings, 8), qrels)
        values = found._grid.values
        inside.append(values.mean(axis=1).max() - fixed)
        outside.append(mean(found.crossed(found.split(5, 1)), qrels) - fixed)
    error = np.std(outside, ddof=1) / math.sqrt(len(outside))
    assert np.mean(inside) > 0.05
    assert np.mean(outside) < 2 * error + 0.005


def test_the_nearest_point_within_a_standard_error_of_the_best_is_picked():
    """With values of the grid's points made by hand, for three queries in use and an unused one."""
    rankings, qrels = corpus(n=4, none=0)
    grid = WeightGrid(CandidatePool(rankings, 8, FusionLabels(qrels, "modified_map@3", 3)), {"a": 1.0, "b": 1.0})
    grid.values = np.zeros_like(grid.values)
    best = grid.points.index({("a", "z_score"): 1.0})
    near = grid.points.index({("a", "z_score"): 0.75, ("b", "z_score"): 0.25})
    used = np.array([True, True, True, False])
    # The best earns 1 more than the start for each query, without any spread: it is picked.
    grid.values[best] = [1, 1, 1, 0]
    grid._squares = grid.values**2
    assert grid.pick(used) == best
    # A nearer point loses 1 on one of three queries: mean 1/3, standard error sqrt(2/9 / 2) = 1/3. It is within.
    grid.values[near] = [1, 1, 0, 0]
    grid._squares = grid.values**2
    assert grid.pick(used) == near
    # The unused query does not matter, and a single query decides nothing.
    grid.values[0, 3] = 100
    grid._squares = grid.values**2
    assert grid.pick(used) == near
    assert grid.pick(np.array([True, False, False, False])) == 0


@pytest.mark.parametrize(("size", "steps"), [(2, 20), (3, 12), (4, 6), (5, 4), (30, 1)])
def test_the_grid_of_weights(size, steps):
    found = np.array(list(simplex(size)))
    assert len(found) == len(np.unique(found, axis=0)) == math.comb(steps + size - 1, size - 1) <= POINTS
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert np.isclose(found * steps, np.round(found * steps)).all()
    assert found.min() == 0
    assert found.max() == 1
    assert len(NORMALISATIONS) == 4


@pytest.mark.parametrize("seed", range(3))
def test_the_regression_equals_scikit_learns(seed):
    generator = np.random.default_rng(seed)
    columns = generator.normal(size=(80, 4)) * [1, 10, 0.1, 0]
    labels = (columns[:, 0] + generator.normal(size=80) > (0, 1, 20)[seed] * 0.1).astype(float)
    share = generator.random(80) * 3
    model = LogisticRegression(C=1.0, tol=1e-12, max_iter=10_000, solver="newton-cholesky")
    model.fit(columns, labels, sample_weight=share)
    np.testing.assert_allclose(regress(columns, labels, share), model.coef_[0], atol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "names", "message"),
    [
        ({"folds": 1}, "ab", "folds=1: at least 2"),
        ({"repeats": 0}, "ab", "repeats=0: at least 1"),
        ({}, "a", "learns how to fuse several rankings, but the retriever has only a"),
        ({"weights": {"c": 1}}, "ab", r"fusion\.weights\.c names no ranking"),
        ({"weights": {"a": 0, "b": 0}}, "ab", "all rankings have weight 0"),
        ({"weights": {"a": -1}}, "ab", r"weights\.a is -1"),
    ],
)
def test_bad_arguments_are_refused(arguments, names, message):
    with pytest.raises(BadInput, match=message):
        LearnedFusion(**arguments).check(list(names))


# The rule and its file

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


@given(st.lists(st.tuples(SCORES, st.floats(0.125, 4)), min_size=2, max_size=3))
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


def test_the_identity_is_the_rule_and_other_rankings_and_weights_are_refused(written):
    plain = FittedFusion.identify(written(PLAIN))
    assert FittedFusion.identify(written(PLAIN | {"notes": ["other"]}), {"a": 1}) == plain
    assert FittedFusion.identify(written(changed(features=[ONE]))) != plain
    for names, message in (
        ("a", "learnt for the component rankings a, b, but the retriever lacks b"),
        ("abc", "but the retriever also has c"),
        ("ac", "lacks b and also has c"),
    ):
        with pytest.raises(BadInput, match=message):
            FittedFusion(written(PLAIN), {"a": 1.0, "b": 1}).check(names)  # hybrid retrievers give weights of 1
    with pytest.raises(BadInput, match=r"weights\.b=2: .*fusion\.json already has weights"):
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
        (changed(features=[]), r"rule: the greatest absolute weight is 0, but must be above 0"),
        (changed(features=[ONE | {"weight": 0}]), r"rule: the greatest absolute weight is 0"),
        (changed(features=[ONE | {"weight": 2e9}]), r"the greatest absolute weight is 2e\+09.* 1,000,000,000"),
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
