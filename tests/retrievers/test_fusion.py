"""Fusion against tables worked by hand, against plain Python on dicts, and against the library ranx."""

import math
import statistics
from collections import Counter

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.config.components import build, check_component
from harness.config.places import conf_folder
from harness.errors import BadInput
from retrievers.base import Ranking
from retrievers.combine.fusion import RRF, CombMNZ, WeightedSum
from retrievers.testing import check_fusion, same

NORMALISERS = ["min_max", "z_score", "theoretical_min_max", "rank", "distribution"]
FLOORS = {"a": -10, "b": -10, "c": -10}
EVERY = [
    ("rrf", RRF()),
    *((normalise, WeightedSum(normalise, floors=FLOORS)) for normalise in NORMALISERS),
    *((f"mnz-{normalise}", CombMNZ(normalise, floors=FLOORS)) for normalise in NORMALISERS),
]
every_fusion = pytest.mark.parametrize("fusion", [made for _, made in EVERY], ids=[name for name, _ in EVERY])


def ranked(**scores):
    """name={query: {doc: score}} -> {name: Ranking}, read-only as from a memory map."""
    made = {name: Ranking.from_scores(rows) for name, rows in scores.items()}
    for ranking in made.values():
        ranking.docs.flags.writeable = ranking.scores.flags.writeable = False
    return made


def fused(fusion, rankings, k=100):
    return fusion.fuse(rankings, k).to_dict()


# One query: `a` returned d1, d2, d3 and `b` returned d3, d4.
A = {"q": {"d1": 10.0, "d2": 6.0, "d3": 2.0}}
B = {"q": {"d3": 0.9, "d4": 0.5}}
R = math.sqrt(1.5)

BY_HAND = [
    # Ranks: a gives 1/61, 1/62, 1/63; b gives 1/61, 1/62.
    (RRF(), {"d1": 1 / 61, "d2": 1 / 62, "d3": 1 / 63 + 1 / 61, "d4": 1 / 62}),
    (RRF(k=0), {"d1": 1, "d2": 1 / 2, "d3": 1 / 3 + 1, "d4": 1 / 2}),
    (RRF(k=1, weights={"a": 2}), {"d1": 2 / 2, "d2": 2 / 3, "d3": 2 / 4 + 1 / 2, "d4": 1 / 3}),
    # a: (s - 2) / 8 is 1, .5, 0; b: 1, 0.
    (WeightedSum("min_max"), {"d1": 1, "d2": 0.5, "d3": 0 + 1, "d4": 0}),
    (WeightedSum("min_max", {"a": 0.3, "b": 0.7}), {"d1": 0.3, "d2": 0.15, "d3": 0.7, "d4": 0}),
    # a: mean 6, variance (16 + 0 + 16) / 3, so 4 / sqrt(32 / 3) = sqrt(1.5), 0, -sqrt(1.5). b: mean .7, sd .2: 1, -1.
    # Documents that b did not return get its lowest, -1; documents that a did not return get -sqrt(1.5).
    (WeightedSum(), {"d1": R - 1, "d2": 0 - 1, "d3": -R + 1, "d4": -R - 1}),
    (WeightedSum("z_score", {"a": 2}), {"d1": 2 * R - 1, "d2": -1, "d3": -2 * R + 1, "d4": -2 * R - 1}),
    # a: s / 10 is 1, .6, .2; b: (s + 1) / 1.9 is 1, 1.5 / 1.9.
    (WeightedSum("theoretical_min_max", floors={"a": 0, "b": -1}), {"d1": 1, "d2": 0.6, "d3": 1.2, "d4": 1.5 / 1.9}),
    # a: 1, 2/3, 1/3; b: 1, 1/2.
    (WeightedSum("rank"), {"d1": 1, "d2": 2 / 3, "d3": 1 / 3 + 1, "d4": 1 / 2}),
    # a: (10 - (6 - 3 sd)) / (6 sd) = .5 + (4 / sd) / 6, .5, .5 - (4 / sd) / 6; b: .5 + 1/6, .5 - 1/6.
    (WeightedSum("distribution"), {"d1": 0.5 + R / 6, "d2": 0.5, "d3": (0.5 - R / 6) + (0.5 + 1 / 6), "d4": 1 / 3}),
    # The sums of min_max, d3's twice.
    (CombMNZ(), {"d1": 1, "d2": 0.5, "d3": 2 * 1, "d4": 0}),
    # A ranking of weight 0 gives candidates, and CombMNZ counts it: d3's points in `a` double.
    (RRF(weights={"b": 0}), {"d1": 1 / 61, "d2": 1 / 62, "d3": 1 / 63, "d4": 0}),
    (CombMNZ("rank", {"b": 0}), {"d1": 1, "d2": 2 / 3, "d3": 2 / 3, "d4": 0}),
    # Only d3 is in both; the others get one z-score and 0 for their absence.
    (CombMNZ("z_score"), {"d1": R, "d2": 0, "d3": 2 * (-R + 1), "d4": -1}),
    (CombMNZ("rank", {"b": 0.5}), {"d1": 1, "d2": 2 / 3, "d3": 2 * (1 / 3 + 0.5), "d4": 1 / 4}),
]


@pytest.mark.parametrize("make", [RRF, WeightedSum, CombMNZ])
def test_it_keeps_the_contract(make):
    check_fusion(make)


@pytest.mark.parametrize(("fusion", "expected"), BY_HAND)
def test_by_hand(fusion, expected):
    assert fused(fusion, ranked(a=A, b=B)) == {"q": pytest.approx(expected, rel=1e-12, abs=1e-12)}


# Query flat: three equal scores, whose mean is not .1 in floating point. one: a single document. none: nothing at all.
ODD_A = {"flat": {"d1": 0.1, "d2": 0.1, "d3": 0.1}, "one": {"d1": 7.0}, "none": {}}
ODD_B = {"flat": {}, "one": {}, "none": {}}


@pytest.mark.parametrize(
    ("fusion", "flat", "one"),
    [
        (RRF(), [1 / 61, 1 / 62, 1 / 63], 1 / 61),
        (WeightedSum("min_max"), [1, 1, 1], 1),  # all of them are the best
        (WeightedSum("z_score"), [0, 0, 0], 0),  # and b, which returned nothing, adds 0
        (WeightedSum("theoretical_min_max", floors={"a": 0, "b": 0}), [1, 1, 1], 1),
        (WeightedSum("theoretical_min_max", floors={"a": 0.1, "b": 0}), [0, 0, 0], 1),  # none is above the floor
        (WeightedSum("rank"), [1, 1 - 1 / 3, 1 - 2 / 3], 1),
        (WeightedSum("distribution"), [0.5, 0.5, 0.5], 0.5),
        (CombMNZ("min_max"), [1, 1, 1], 1),
    ],
)
def test_flat_and_empty_rows(fusion, flat, one):
    found = fusion.fuse(ranked(a=ODD_A, b=ODD_B), 9)
    assert found.row(0) == list(zip(["d1", "d2", "d3"], flat, strict=True))
    assert found.row(1) == [("d1", one)]
    assert found.row(2) == []


def test_outliers_are_not_clipped_and_scores_of_any_size_are_normalised():
    # Nineteen scores of 0 and one of 1: mean .05, variance .05 * .95, so that the outlier lies .95 / sd = sqrt(19) sds
    # above the mean, beyond 3, and the others .05 / sd = 1 / sqrt(19) below.
    scores = {f"d{i:02}": 0.0 for i in range(19)} | {"top": 1.0}
    found = fused(WeightedSum("distribution"), ranked(a={"q": scores}))["q"]
    assert found["top"] == pytest.approx(0.5 + math.sqrt(19) / 6, rel=1e-12)
    assert found["top"] > 1
    assert found["d00"] == pytest.approx(0.5 - 1 / math.sqrt(19) / 6, rel=1e-12)
    for scale in (1e-200, 1e200):  # squares would underflow or overflow
        found = fused(WeightedSum(), ranked(a={"q": {"d1": 3 * scale, "d2": 2 * scale, "d3": 1 * scale}}))
        assert found["q"] == pytest.approx({"d1": R, "d2": 0, "d3": -R}, abs=1e-12)


def slow_points(row, kind):
    """The points of one row of one ranking in plain Python, {doc: points}."""
    docs = sorted(row, key=lambda doc: (-row[doc], doc))
    values = [row[doc] for doc in docs]
    if kind == "rrf":
        return {doc: 1 / (60 + rank) for rank, doc in enumerate(docs, start=1)}
    if kind == "rank":
        return {doc: 1 - place / len(docs) for place, doc in enumerate(docs)}
    if not docs:
        return {}
    mean, sd = statistics.fmean(values), statistics.pstdev(values)
    low, high, flat = {
        "min_max": (min(values), max(values), 1.0),
        "theoretical_min_max": (-10, max(values), 0.0),
        "z_score": (mean, mean + sd, 0.0),
        "distribution": (mean - 3 * sd, mean + 3 * sd, 0.5),
    }[kind]
    level = max(values) == (low if kind == "theoretical_min_max" else min(values))
    return {doc: flat if level else (row[doc] - low) / (high - low) for doc in docs}


def slow_fuse(rows, weights, kind, counted):
    """The fused scores {doc: score} of one query, from {name: {doc: score}}. counted: as CombMNZ does."""
    total, counts = dict.fromkeys(sorted(set().union(*rows.values())), 0.0), Counter()
    for name, row in rows.items():
        points = slow_points(row, kind)
        absent = min(points.values(), default=0.0) if kind == "z_score" and not counted else 0.0
        for doc in total:
            total[doc] += weights.get(name, 1.0) * points.get(doc, absent)
        counts.update(list(points))
    return {doc: score * counts[doc] if counted else score for doc, score in total.items()}


def assert_equal_up_to_rounding(row, expected, k):
    """The same k best scores at each rank; where documents differ, their scores are equal up to rounding."""
    best = sorted(expected.values(), reverse=True)[:k]
    assert [score for _, score in row] == pytest.approx(best, rel=1e-9, abs=1e-9)
    for doc, score in row:
        assert score == pytest.approx(expected[doc], rel=1e-9, abs=1e-9)


# Few documents and few scores make many ties, flat rows and documents in several rankings.
scores = st.one_of(st.sampled_from([-1.0, 0.0, 0.1, 0.5, 3.0]), st.floats(-10, 10).map(lambda value: round(value, 3)))
rows = st.dictionaries(st.sampled_from(["b", "c", "가", "나", "a/1", "a 2", "z9", "é"]), scores, max_size=8)
QUERIES = ("q2", "q1", "q3")
tables = st.tuples(rows, rows, rows).map(lambda made: dict(zip(QUERIES, made, strict=True)))
weighings = st.dictionaries(st.sampled_from(["b", "c"]), st.sampled_from([0, 0.0, 0.3, 1, 2.5]))  # a weighs 1


@pytest.mark.slow
@settings(max_examples=120)
@given(
    rankings=st.fixed_dictionaries({"a": tables}, optional={"b": tables, "c": tables}),
    weights=weighings,
    kind=st.sampled_from(["rrf", *NORMALISERS]),
    counted=st.booleans(),
    k=st.integers(0, 30),
)
def test_plain_python_agrees(rankings, weights, kind, counted, k):
    weights = {name: weight for name, weight in weights.items() if name in rankings}
    floors, counted = {name: FLOORS[name] for name in rankings}, counted and kind != "rrf"
    made = RRF(weights=weights) if kind == "rrf" else (CombMNZ if counted else WeightedSum)(kind, weights, floors)
    found = made.fuse(ranked(**rankings), k)
    assert found.query_ids == QUERIES
    for i, query in enumerate(QUERIES):
        rows = {name: table[query] for name, table in rankings.items()}
        assert_equal_up_to_rounding(found.row(i), slow_fuse(rows, weights, kind, counted), k)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    rankings=st.fixed_dictionaries({"a": tables, "b": tables, "c": tables}),
    weights=weighings,
    fusion=st.sampled_from([made for _, made in EVERY]),
    order=st.permutations(["a", "b", "c"]),
    k=st.integers(0, 24),
)
def test_order_depth_and_other_queries_do_not_matter(rankings, weights, fusion, order, k):
    """None of them changes a single bit."""
    made = ranked(**rankings)
    whole = fusion.fuse(made, 100)
    assert whole.docs.shape[1] == whole.lengths.max()  # as wide as its longest row
    assert same(fusion.fuse({name: made[name] for name in order}, 100), whole)
    assert same(fusion.fuse(made, k), whole.top(k))
    for i, query in enumerate(QUERIES):
        alone = {name: Ranking.from_scores({query: table[query]}) for name, table in rankings.items()}
        assert fusion.fuse(alone, 100).row(0) == whole.row(i)


def test_other_queries_do_not_matter_in_wide_rows():
    # numpy adds the numbers of a row in an order that depends on the row's width.
    random = np.random.default_rng(3)
    short = {f"d{i:03}": float(random.random()) for i in range(50)}
    wide = {f"d{i:03}": float(random.random()) for i in range(333)}
    alone = WeightedSum().fuse(ranked(a={"q": short}, b={"q": wide}), 999)
    beside = WeightedSum().fuse(ranked(a={"w": wide, "q": short}, b={"w": short, "q": wide}), 999)
    assert beside.row(1) == alone.row(0)


@every_fusion
def test_documents_with_the_same_points_tie(fusion):
    # Each document has ranks 1, 2 and 3 and the scores of these ranks, each in another ranking; added in the order of
    # the rankings, the sums would differ in their last bit.
    values = [0.7, 0.2, 0.1]
    rows = [{"x": values[i], "y": values[(i + 1) % 3], "z": values[(i + 2) % 3]} for i in range(3)]
    found = fusion.fuse(ranked(a={"q": rows[0]}, b={"q": rows[1]}, c={"q": rows[2]}), 3).row(0)
    assert [doc for doc, _ in found] == ["x", "y", "z"]
    assert len({score for _, score in found}) == 1


@every_fusion
def test_pads_of_cut_or_emptied_rows_are_ignored(fusion):
    # `where` leaves rows of pads only in an array of full width, and a table with unused documents.
    full = Ranking.from_scores({"q1": {"x": 2.0, "y": 1.0}, "q2": {"z": 1.0}})
    emptied = full.where(np.array([False, True]))
    rankings = {"a": full, "b": emptied, "c": emptied}
    found = fusion.fuse(rankings, 9)
    bare = Ranking.from_scores({"q1": {}, "q2": {"z": 1.0}})
    assert same(found, fusion.fuse({"a": full, "b": bare, "c": bare}, 9))
    assert [[doc for doc, _ in found.row(row)] for row in (0, 1)] == [["x", "y"], ["z"]]
    nothing = fusion.fuse(dict.fromkeys("abc", Ranking.from_scores({})), 5)
    assert nothing.query_ids == ()


@pytest.mark.slow  # loads ranx
@pytest.mark.parametrize(
    ("fusion", "complete", "options"),
    [
        (RRF(), False, {"method": "rrf", "params": {"k": 60}}),
        (RRF(k=3), True, {"method": "rrf", "params": {"k": 3}}),
        (WeightedSum("min_max", {"a": 0.3, "b": 2}), False, {"norm": "min-max", "method": "wsum"}),
        (WeightedSum("rank", {"a": 0.3, "b": 2}), False, {"norm": "rank", "method": "wsum"}),
        # ranx adds 0 for an absent document after every normalisation: the same where none is absent.
        (WeightedSum("z_score", {"a": 0.3, "b": 2}), True, {"norm": "zmuv", "method": "wsum"}),
        (CombMNZ(), False, {"norm": "min-max", "method": "mnz"}),
        (CombMNZ("z_score"), False, {"norm": "zmuv", "method": "mnz"}),
        (CombMNZ("rank"), False, {"norm": "rank", "method": "mnz"}),
    ],
)
def test_ranx_agrees(fusion, complete, options, ranx):
    """On two rankings of 20 queries without ties: of all 30 documents, or of 2 to 15 (ranx's min-max gives one 0)."""
    random, docs = np.random.default_rng(11), [f"d{i:02}" for i in range(30)]

    def row():
        chosen = docs if complete else random.choice(docs, random.integers(2, 16), replace=False)
        return {str(doc): float(random.normal()) for doc in chosen}

    raw = {name: {f"q{i}": row() for i in range(20)} for name in ("a", "b")}
    if options["method"] == "wsum":
        options = options | {"params": {"weights": [0.3, 2.0]}}
    expected = ranx.fuse(runs=[ranx.Run(rows) for rows in raw.values()], **({"norm": None} | options)).to_dict()
    found = fusion.fuse(ranked(**raw), 100)
    for i, query in enumerate(found.query_ids):
        assert_equal_up_to_rounding(found.row(i), expected[query], 100)
        assert {doc for doc, _ in found.row(i)} == set(expected[query])


def test_misuse_is_rejected():
    rankings = ranked(a=A, b=B)
    with pytest.raises(ValueError, match="no ranking to fuse"):
        RRF().fuse({}, 3)
    with pytest.raises(BadInput, match="k is -1"):
        RRF().fuse(rankings, -1)
    for other in ({"q": {}, "r": {}}, {"r": {}}, {}):
        with pytest.raises(ValueError, match="rankings a and c have different queries"):
            RRF().fuse(rankings | ranked(c=other), 3)
    with pytest.raises(ValueError, match="order them differently"):
        RRF().fuse(ranked(a={"q": {}, "r": {}}, b={"r": {}, "q": {}}), 3)


@pytest.mark.parametrize(
    ("fusion", "message"),
    [
        (RRF(weights={"bm2": 1}), r"^fusion\.weights\.bm2 names no ranking\. Did you mean 'bm25'\? Rankings: bm25, d"),
        (CombMNZ(weights={"x": 0}), r"^fusion\.weights\.x names no ranking\. Rankings: bm25, dense\.$"),
        (WeightedSum(floors={"dens": 0}), r"fusion\.floors\.dens names no ranking\. Did you mean 'dense'"),
        (RRF(weights={"bm25": 0, "dense": 0.0}), r"all rankings have weight 0\. Raise one of them above 0: bm25, d"),
        (WeightedSum("theoretical_min_max"), r"fusion\.floors lacks bm25, dense: .*fusion\.floors\.bm25=\.\.\."),
        (CombMNZ("theoretical_min_max", floors={"bm25": 0}), r"fusion\.floors lacks dense"),
    ],
)
def test_names_are_checked(fusion, message):
    names = {"bm25": None, "dense": None}
    with pytest.raises(BadInput, match=message):
        fusion.check(names)
    with pytest.raises(BadInput, match=message):  # fuse checks too
        fusion.fuse(ranked(bm25={}, dense={}), 3)


def test_the_error_names_a_score_below_its_floor():
    rankings = ranked(a={"q1": {"x": 2.0}, "q2": {"x": 0.5, "y": -0.25}})
    message = r"fusion\.floors\.a is 0, but the ranking a has the score -0\.25 for query 'q2'"
    with pytest.raises(BadInput, match=message):
        WeightedSum("theoretical_min_max", floors={"a": 0}).fuse(rankings, 3)
    assert fused(WeightedSum("theoretical_min_max", floors={"a": -0.25}), rankings)["q2"] == {"x": 1.0, "y": 0.0}


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (RRF, {"k": -1}, "k is -1: give a whole number"),
        (RRF, {"k": 1.5}, "k is 1.5"),
        (RRF, {"k": 10**400}, "k is 1000"),
        (RRF, {"weights": {"a": -0.1}}, "weights.a is -0.1: give a number from 0 to"),
        (RRF, {"weights": {"a": math.nan}}, "weights.a is nan"),
        (RRF, {"weights": [1, 2]}, r"weights is \[1, 2\]: map the rankings' names to numbers"),
        (WeightedSum, {"normalise": "minmax"}, "normalise is 'minmax'.*Did you mean 'min_max'"),
        (CombMNZ, {"normalise": None}, "normalise is None: choose one of min_max, z_score"),
        (WeightedSum, {"floors": {"a": -math.inf}}, "floors.a is -inf: give a number from -1,000,000,000 to"),
    ],
)
def test_bad_options_are_named(make, options, message):
    with pytest.raises(BadInput, match=message):
        make(**options)


SHIPPED = {"rrf": RRF(), "weighted_sum": WeightedSum(), "combmnz": CombMNZ()}
SHIPPED["distribution_based"] = WeightedSum("distribution")


@pytest.mark.parametrize(("name", "plain"), SHIPPED.items())
def test_shipped_configs_state_the_defaults(name, plain):
    node = yaml.safe_load((conf_folder() / "fusion" / f"{name}.yaml").read_text("utf-8"))
    check_component(node, "fusion")
    made = build(node)
    assert type(made) is type(plain)
    stated, default = ({name: value or {} for name, value in vars(one).items()} for one in (made, plain))
    assert stated == default
