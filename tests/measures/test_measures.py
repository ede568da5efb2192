"""Measures against tables worked by hand, trec_eval, ir_measures, scikit-learn and plain loops."""

import math
import re

import numpy as np
import pytest
from fakes import predictions
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.data.labels import Label, qrels_of
from harness.data.qrels import Qrels
from harness.errors import BadInput
from harness.measures.judged import judge_lists
from harness.measures.measures import (
    MEASURES,
    MeasureFamily,
    ceilings,
    check_labels,
    losses,
    of_holes,
    of_spans,
    parse_measure,
    requested,
)
from harness.measures.scores import ShownLists, score_lists
from harness.tracking.tracker import mlflow_name
from retrievers.base import Ranking

OF_HOLES = list(filter(of_holes, MEASURES))
PLAIN = {name: one.family for name, one in MEASURES.items() if name not in OF_HOLES}
STANDARD = [name for name, family in PLAIN.items() if family is MeasureFamily.STANDARD and not of_spans(name)]


def trec(pairs):
    """Labels as TREC has them: grade 0 is judged and not relevant, -1 pooled and unjudged."""
    graded = {query: {doc: float(grade) for doc, grade in row.items() if grade > 0} for query, row in pairs.items()}
    zero, pooled = (
        {query: frozenset(doc for doc, grade in row.items() if grade == wanted) for query, row in pairs.items()}
        for wanted in (0, -1)
    )
    return Qrels(graded, abstention=False, not_relevant=zero, pooled=pooled)


def judged(lists, grades, abstention=True):
    return judge_lists(predictions(lists), Qrels(grades, abstention))


def values(name, of):
    return parse_measure(name).values(of).tolist()


# One query, worked by hand ------------------------------------------------------------------------

# Returned a x b y, with grades a 2, b 1, c 3: hits at ranks 1 and 3, 3 relevant documents.
#   map@3  = (1/1 + 2/3) / 3 = 5/9;  modified_map@3 = (1/1 + 2/3) / 2 = 5/6
#   DCG@3  = 2 + 1/log2(4) = 2.5;    ideal 3 + 2/log2(3) + 1/2 = 4.761859507
#   exp    : 3 + 1/2 = 3.5;          ideal 7 + 3/log2(3) + 1/2 = 9.392789261
#   f1@4   : P 2/4, R 2/3 -> 2 * (1/3) / (7/6) = 4/7;  f1@10 the same, since 4 are returned
LOG3 = math.log2(3)
TABLE = {
    "hit@1": 1, "hit": 1, "recall@1": 1 / 3, "recall@3": 2 / 3, "recall": 2 / 3,
    "precision@1": 1, "precision@3": 2 / 3, "precision@10": 0.2, "precision": 0.5,
    "precision_retrieved@3": 2 / 3, "precision_retrieved@10": 0.5, "precision_retrieved": 0.5,
    "f1@4": 4 / 7, "f1@10": 4 / 7, "f1": 4 / 7, "mrr@1": 1, "mrr": 1,
    "map@1": 1 / 3, "map@3": 5 / 9, "map": 5 / 9, "modified_map@1": 1, "modified_map@3": 5 / 6,
    "ndcg@1": 2 / 3, "ndcg@3": 2.5 / (3.5 + 2 / LOG3), "ndcg@10": 2.5 / (3.5 + 2 / LOG3),
    "ndcg_exp@3": 3.5 / (7.5 + 3 / LOG3), "modified_mrr@3": 1, "modified_ndcg@3": 2.5 / (3.5 + 2 / LOG3),
}  # fmt: skip

# Returned x a u b p, of which x is judged and not relevant, a and b are relevant (grades 2 and 1), u is unknown and p
# was pooled alone; c is relevant, y and z are not, and none of them was returned. R = 3, N = 3.
#   judged     x a b of x a u b p: 3/5; of x a u: 2/3; of the first 10 the same as of all
#   bpref      x is above a and b: 2 * (1 - 1/3) / 3 = 4/9
#   infap      a, rank 2: 1/2 + 1/2 * 1/1 * e / (1 + 2e); b, rank 4: 1/4 + 3/4 * 2/3 * (1 + e) / (2 + 2e)
#   condensed  x a b: ranks 2 and 3. map (1/2 + 2/3) / 3 = 7/18; DCG 2/log2(3) + 1/2
#   at best    x a u b p with u and p relevant: 4 of 5
PAIRS = {"x": 0, "y": 0, "z": 0, "a": 2, "b": 1, "c": 1, "p": -1}
E = 0.00001
WITH_HOLES = {
    "judged": 3 / 5, "judged@3": 2 / 3, "judged@1": 1, "judged@10": 3 / 5,
    "bpref": 4 / 9,
    "infap": (1 / 2 + E / (1 + 2 * E) / 2 + 1 / 4 + 1 / 2 * (1 + E) / (2 + 2 * E)) / 3,
    "hit_condensed@1": 0, "hit_condensed@2": 1, "recall_condensed@2": 1 / 3, "recall_condensed@3": 2 / 3,
    "precision_condensed@3": 2 / 3, "precision_condensed@5": 2 / 5, "precision_condensed": 2 / 3,
    "mrr_condensed@3": 1 / 2, "map_condensed@2": 1 / 6, "map_condensed@3": 7 / 18, "map_condensed": 7 / 18,
    "ndcg_condensed@3": (2 / LOG3 + 1 / 2) / (2 + 1 / LOG3 + 1 / 2),
    "hit_upper@1": 0, "hit_upper@3": 1, "mrr_upper@3": 1 / 2, "precision_upper@3": 2 / 3, "precision_upper@5": 4 / 5,
    "precision_upper@10": 4 / 10, "precision_upper": 4 / 5,
}  # fmt: skip
A, AB, ABC = (dict.fromkeys(docs, 1) for docs in ("a", "ab", "abc"))
WORKED = [
    ("axby", {"a": 2, "b": 1, "c": 3}, TABLE),
    ("xaubp", PAIRS, WITH_HOLES),
    # the examples of the docstrings
    ("xa", A, {"hit@1": 0, "hit@2": 1}),
    ("axb", AB | {"c": 1, "d": 1}, {"recall@3": 2 / 4}),
    ("ax", A, {"precision@4": 1 / 4, "precision": 1 / 2, "precision_retrieved@4": 1 / 2}),
    ("ax", ABC, {"f1@2": 2 / 5}),
    ("xab", AB, {"mrr@3": 1 / 2, "mrr@1": 0}),
    ("axb", ABC, {"map@3": (1 + 2 / 3) / 3}),
    ("ca", {"a": 3, "b": 2, "c": 1}, {"ndcg@3": (1 + 3 / LOG3) / (3 + 2 / LOG3 + 1 / 2)}),
    ("ba", {"a": 2, "b": 1}, {"ndcg_exp@2": (1 + 3 / LOG3) / (3 + 1 / LOG3)}),
    ("au", A, {"judged@1": 1, "judged@4": 1 / 2}),
    ("xaub", AB | {"x": 0, "y": 0, "z": 0}, {"bpref": 1 / 2}),
    ("aub", AB, {"infap": (1 + 1 / 3 + (1 + E) / (1 + 2 * E) / 3) / 2}),
    ("uax", A | {"x": 0}, {"mrr_condensed@3": 1, "precision_condensed@3": 1 / 3}),
    ("xua", A | {"x": 0}, {"mrr_upper@3": 1 / 2, "precision_upper@3": 2 / 3}),
    # returning less can score more in the contest, but does not hide a relevant document elsewhere
    ("a", AB, {"modified_map@3": 1, "ndcg@4": 1 / (1 + 1 / LOG3)}),
    ("axb", AB, {"modified_map@3": (1 + 2 / 3) / 2}),
    # a repeat takes up a rank and counts once, but in the contest each time
    ("aax", AB, {"modified_map@3": 1}),
    ("xaa", AB, {"modified_map@3": (1 / 2 + 2 / 3) / 2}),
    ("aab", AB, {"map@3": (1 + 2 / 3) / 2, "recall@2": 1 / 2, "precision_retrieved": 2 / 3}),
    ("aab", AB, {"ndcg@3": 1.5 / (1 + 1 / LOG3)}),
    ("xxaauu", A | {"x": 0}, {"judged": 4 / 6, "mrr_condensed": 1 / 3, "precision_upper@6": 2 / 6}),
    ("xxa", AB | {"x": 0, "y": 0}, {"bpref": (1 - 1 / 2) / 2}),
    ("xxa", A | {"x": 0}, {"infap": 1 / 3 + E / (1 + 2 * E) / 3}),  # one x above
    # empty lists, lists of unknown documents, and labels without a relevant document
    ("", PAIRS, dict.fromkeys((*STANDARD, *OF_HOLES), 0) | {"judged": math.nan, "judged@3": math.nan}),
    ("uv", PAIRS, dict.fromkeys(("judged", "bpref", "infap", "map_condensed"), 0)),
    ("xup", {"x": 0, "p": -1}, {"bpref": 0, "infap": 0, "judged": 1 / 3, "precision_upper": 2 / 3}),
    ("a", {}, dict.fromkeys(("map", "ndcg@3", "recall", "f1@2", "modified_map@3"), 0)),
    ("ua", A, {"bpref": 1}),  # no document is judged not relevant
    ("ba", {"a": 5000, "b": 4999}, {"ndcg_exp": (0.5 + 1 / LOG3) / (1 + 0.5 / LOG3)}),  # no overflow
]  # fmt: skip


@pytest.mark.parametrize(("returned", "pairs", "expected"), WORKED)
def test_one_list_worked_by_hand(returned, pairs, expected):
    of = judge_lists(predictions({"q": list(returned)}), trec({"q": pairs}))
    found = {name: values(name, of)[0] for name in expected}
    assert found == pytest.approx(expected, abs=1e-12, nan_ok=True)


# Queries that need no retrieval, and queries without a row ----------------------------------------


def test_abstention_worked_by_hand():
    # Empty for q1 and q2; q1 and q3 need no retrieval.
    got = judged({"q1": [], "q2": [], "q3": ["a"], "q4": ["a"]}, {"q1": {}, "q2": A, "q3": {}, "q4": A})
    nan = math.nan
    np.testing.assert_array_equal(values("abstention_precision", got), [1, 0, nan, nan])
    np.testing.assert_array_equal(values("abstention_recall", got), [1, nan, 0, nan])
    assert values("abstention_accuracy", got) == [1, 0, 0, 1]
    assert parse_measure("abstention_f1").pooled(got) == (0.5, 3)
    assert parse_measure("abstention_f1").pooled(judged({"q2": ["a"]}, {"q2": A})) == (0, 0)
    two = judged({"q1": list("xa"), "q2": []}, {"q1": A, "q2": {}})
    assert values("modified_mrr", two) == [1 / 2, 1]
    assert values("modified_ndcg", two) == pytest.approx([1 / LOG3, 1])


def auroc(signal, needs):
    grades = {str(i): A if need else {} for i, need in enumerate(needs)}
    lists = predictions({query: [] for query in grades})
    return parse_measure("abstention_auroc").pooled(
        judge_lists(lists, Qrels(grades), signal=None if signal is None else np.array(signal))
    )


def test_auroc_worked_by_hand():
    assert auroc([3, 1, 2], [True, True, False]) == (0.5, 3)
    assert auroc([2, 2], [True, False]) == (0.5, 2)  # a tie counts half
    assert auroc([3, 1], [True, False]) == (1.0, 2)
    assert np.isnan(auroc([3, 1], [True, True])[0])
    assert np.isnan(auroc(None, [True, False])[0])


def test_a_query_without_a_row_is_as_wrong_as_can_be():
    qrels = Qrels({"q": A, "gone": A, "gone_none": {}, "none": {}})
    got = judge_lists(predictions({"q": ["a"], "none": []}), qrels, list(qrels.grades), np.array([2.0, 1.0]))
    for name in ("modified_map@3", "modified_mrr", "modified_ndcg@3", "abstention_accuracy"):
        assert values(name, got) == [1, 0, 0, 1]
    assert values("ndcg", got)[:2] == [1, 0]
    assert got.signal.tolist() == [2, -math.inf, math.inf, 1]


def test_measures_of_holes_are_of_queries_that_need_retrieval():
    rows = [("needs", True, {"a": 1.0}), ("none", False, {}), ("unmet", True, {})]
    qrels = qrels_of([Label(*row, frozenset("x")) for row in rows])
    got = judge_lists(predictions({"needs": ["a"], "none": ["x"], "unmet": ["x"]}), qrels)
    for name in OF_HOLES:
        np.testing.assert_array_equal(values(name, got), [1, math.nan, 1 if name == "judged" else 0])


def test_no_query_at_all():
    assert all(values(name, judge_lists(predictions({}), Qrels({}))) == [] for name in STANDARD)


# Names and labels ---------------------------------------------------------------------------------


def test_names():
    assert (parse_measure("ndcg@10").name, parse_measure("ndcg@10").k, parse_measure("map").k) == ("ndcg@10", 10, None)
    assert mlflow_name("ndcg@10") == "ndcg_at_10"
    assert mlflow_name("private/map@3") == "private/map_at_3"
    assert all(parse_measure(name).name == name for name in MEASURES)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("ngcd@10", "Did you mean 'ndcg@10'?"),
        ("NDCG@10", "Did you mean 'ndcg@10'?"),
        ("ndcg_at_10", "Did you mean 'ndcg@10'?"),
        ("recal", "Did you mean 'recall'?"),
        ("accuracy", "Known: "),
        (3, "'3' is unknown"),
        ("", "'' is unknown"),
        *((f"ndcg@{cut}", "integer from 1") for cut in ("", "0", "-1", "1.5", "ten", "٣")),
        *((f"{name}@3", "takes no cut-off") for name in ("abstention_f1", "abstention_recall", "bpref", "infap")),
    ],
)
def test_names_that_are_refused(name, part):
    with pytest.raises(BadInput, match=r"^metrics: ") as error:
        parse_measure(name)
    assert part in str(error.value)


def test_labels_that_do_not_say_what_was_judged_have_no_such_measure():
    without = Qrels({"q": A})
    for name in OF_HOLES:
        assert np.isnan(values(name, judge_lists(predictions({"q": ["a"]}), without))).all()  # never 0
        with pytest.raises(BadInput, match=rf"metrics: '{name}' asks which documents were judged, and these labels do"):
            check_labels(["hit", name], without)
    check_labels(OF_HOLES, trec({"q": A}))
    check_labels(["hit@3", "ndcg"], without)


def test_a_run_counts_what_was_judged_where_the_labels_have_zeros():
    zeros = trec({"q": {"a": 1, "b": 0}})
    assert requested(["hit@1"], zeros, 5) == ["hit@1", "judged@5"]
    assert requested(["hit@1"], zeros) == ["hit@1", "judged@3"]
    assert requested(["judged@5"], zeros, 5) == ["judged@5"]
    # Where all judged documents are relevant, it would be the precision by another name.
    assert requested(["hit@1"], trec({"q": {"a": 1, "b": -1}}), 5) == requested(["hit@1"], None, 5) == ["hit@1"]


def test_condensed_lists_are_made_of_whole_lists():
    # Shown u v w, below them a: the first judged document of the whole list is relevant, of the shown ones none is.
    deep = Ranking.from_scores({"q": {"u": 4.0, "v": 3.0, "w": 2.0, "a": 1.0}})
    expected = {"mrr@3": 0, "mrr_condensed@3": 1, "mrr_upper@3": 1, "judged@3": 0, "bpref": 1}
    found = score_lists(ShownLists(deep.top(3), deep=deep, top_k=3), trec({"q": A | {"x": 0}}), [*expected])
    assert {name: summary.mean for name, summary in found.summary.items()} == expected
    # Lists that may be cut have no measures of whole lists.
    expected = {"judged@3": 1, "mrr_upper@3": 1, "mrr_condensed@3": 0, "bpref": 0}
    found = score_lists(
        ShownLists(predictions({"q": list("uax")}), complete=False), trec({"q": A | {"x": 0}}), [*expected]
    )
    assert {name: summary.n for name, summary in found.summary.items()} == expected
    assert found.summary["bpref"].note == "the longest list has 3 documents"


# Independent implementations ----------------------------------------------------------------------

DOCS = [f"d{i}" for i in range(12)]
with_holes = st.lists(
    st.tuples(
        st.lists(st.sampled_from(DOCS), unique=True),
        st.dictionaries(st.sampled_from(DOCS), st.sampled_from([-1, 0, 0, 1, 2, 3]), min_size=1, max_size=8),
    ),
    min_size=1,
    max_size=6,
)
TREC_EVAL = {
    "hit@1": "success_1", "hit@3": "success_3", "recall@3": "recall_3", "recall@10": "recall_10",
    "recall": "set_recall", "precision@1": "P_1", "precision@3": "P_3", "precision@10": "P_10",
    "precision": "set_P", "f1": "set_F", "mrr": "recip_rank", "map": "map", "map@3": "map_cut_3",
    "map@10": "map_cut_10", "ndcg": "ndcg", "ndcg@3": "ndcg_cut_3", "ndcg@10": "ndcg_cut_10",
    "bpref": "bpref", "infap": "infAP",
}  # fmt: skip


def by_query(rows):
    """(lists, pairs), both by query."""
    return tuple({f"q{i}": row[side] for i, row in enumerate(rows)} for side in (0, 1))


def run_of(lists):
    return {query: {doc: float(-rank) for rank, doc in enumerate(docs)} for query, docs in lists.items()}


@settings(deadline=None)
@given(with_holes)
def test_equal_to_trec_eval(rows):
    """Measures of whole lists, and condensed measures against lists without unjudged documents."""
    import pytrec_eval

    lists, pairs = by_query(rows)
    known = {query: {doc: grade for doc, grade in row.items() if grade >= 0} for query, row in pairs.items()}
    left = {query: [doc for doc in docs if doc in known[query]] for query, docs in lists.items()}
    got = judge_lists(predictions(lists), trec(pairs))
    of_holes = {"bpref", "infap"}  # others do not read that a document was pooled
    for end, returned, labels, names in (
        ("", lists, pairs, of_holes),
        ("", lists, known, TREC_EVAL.keys() - of_holes),
        ("_condensed", left, known, TREC_EVAL.keys() - of_holes),
    ):
        asked = {query: row for query, row in labels.items() if row and returned[query]}
        wanted = {re.sub(r"_(\d+)$", r".\1", TREC_EVAL[name]) for name in names}
        theirs = pytrec_eval.RelevanceEvaluator(asked, wanted).evaluate(run_of({one: returned[one] for one in asked}))
        for name in names:
            ours = name.replace("@", f"{end}@") if "@" in name else name + end
            if ours.partition("@")[0] in MEASURES:
                expected = [theirs[query][TREC_EVAL[name]] if query in asked else 0 for query in lists]
                np.testing.assert_allclose(values(ours, got), expected, atol=1e-9, err_msg=ours)


@settings(deadline=None)
@given(with_holes)
def test_judged_is_that_of_ir_measures(rows):
    import ir_measures

    lists, pairs = by_query(rows)
    # It counts every pair as judged, also one with grade -1, and cannot take empty lists.
    pairs = {query: {doc: grade for doc, grade in row.items() if grade >= 0} for query, row in pairs.items()}
    pairs = {query: row for query, row in pairs.items() if row and lists[query]}
    lists = {query: lists[query] for query in pairs}
    for k in (3, 10) if pairs else ():
        theirs = ir_measures.iter_calc([ir_measures.Judged @ k], pairs, run_of(lists))
        found = {one.query_id: one.value for one in theirs}
        ours = values(f"judged@{k}", judge_lists(predictions(lists), trec(pairs)))
        np.testing.assert_allclose(ours, [found[query] for query in pairs], atol=1e-9)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=40))
def test_auroc_is_that_of_scikit_learn(rows):
    from sklearn import metrics as sklearn

    signal, needs = [float(s) for s, _ in rows], [n for _, n in rows]
    if len(set(needs)) == 2:
        assert auroc(signal, needs)[0] == pytest.approx(sklearn.roc_auc_score(needs, signal), abs=1e-12)


lists_with_repeats = st.lists(st.sampled_from("abcdef"), max_size=6)
case = st.lists(
    st.tuples(lists_with_repeats, st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 3), max_size=4)),
    min_size=1,
    max_size=12,
)


def contest(returned, relevant):
    """The contest's rule for one query, as a plain loop."""
    if not relevant:
        return 0.0 if returned else 1.0
    hits, total = 0, 0.0
    for rank, doc in enumerate(returned[:3], start=1):
        if doc in relevant:
            hits += 1
            total += hits / rank
    return total / hits if hits else 0.0


@settings(deadline=None)
@given(case)
def test_the_contest_score_is_that_of_a_plain_loop(rows):
    np.testing.assert_allclose(
        values("modified_map@3", judged(*by_query(rows))), [contest(*row) for row in rows], atol=1e-12
    )


# Properties ---------------------------------------------------------------------------------------


@settings(deadline=None)
@given(with_holes, st.randoms())
def test_bounds_hold_whatever_the_unjudged_documents_are(rows, rng):
    lists, pairs = by_query(rows)
    settled = {
        query: {doc: grade if (grade := row.get(doc, -1)) >= 0 else rng.randint(0, 1) for doc in DOCS}
        for query, row in pairs.items()
    }
    known, true = (judge_lists(predictions(lists), trec(labels)) for labels in (pairs, settled))
    for name in ("hit", "precision", "mrr"):
        for cut in ("", "@1", "@3"):
            least, most = parse_measure(name + cut).values(known), parse_measure(f"{name}_upper{cut}").values(known)
            value = parse_measure(name + cut).values(true)
            assert (least <= value).all()
            assert (value <= most).all()


@pytest.mark.slow
@settings(deadline=None)
@given(case, st.randoms())
def test_the_order_of_queries_and_labels_and_irrelevant_names_do_not_matter(rows, rng):
    lists, grades = by_query(rows)
    order = list(lists)
    rng.shuffle(order)
    mixed = {query: dict(rng.sample(list(grades[query].items()), len(grades[query]))) for query in order}
    renamed = {q: [doc if doc in grades[q] else f"other {doc}" for doc in lists[q]] for q in order}
    before, after = judged(lists, grades), judged(renamed, mixed)
    for name, one in MEASURES.items():
        if one.family is MeasureFamily.POOLED:
            assert parse_measure(name).pooled(before) == pytest.approx(parse_measure(name).pooled(after), nan_ok=True)
            continue
        found = dict(zip(lists, values(name, before), strict=True))
        np.testing.assert_allclose(values(name, after), [found[query] for query in order], err_msg=name)


@settings(deadline=None)
@given(case, st.sampled_from(["", "@1", "@2", "@3", "@10"]))
def test_every_measure_lies_between_0_and_1_and_applies_where_it_says(rows, cutoff):
    got = judged(*by_query(rows))
    for name, family in PLAIN.items():
        if family in (MeasureFamily.STANDARD, MeasureFamily.MODIFIED):
            found = parse_measure(name + cutoff).values(got)
            applies = np.ones(len(rows), bool) if family is MeasureFamily.MODIFIED else got.needs & (not of_spans(name))
            assert (np.isnan(found) == ~applies).all()
            assert (found[applies] >= 0).all()
            assert (found[applies] <= 1 + 1e-12).all()


# Losses and ceilings ------------------------------------------------------------------------------


def parts(found):
    return {name: part.tolist() for name, part in found.items()}


def test_losses_and_ceilings_worked_by_hand():
    grades = {"none": {}} | dict.fromkeys(("held", "lost", "low", "deep", "good"), A)
    final = {"none": ["x"], "held": [], "lost": ["x"], "low": ["x", "a"], "deep": ["x", "y", "z"], "good": ["a"]}
    before = {**final, "held": ["x", "a"], "deep": list("xyza")}
    keep = np.array([True, False, True, True, True, True])
    raw = {"one": judged({**before, "lost": ["a"]}, grades), "two": judged({**before, "low": ["a"]}, grades)}
    shown, candidates = judged(final, grades), judged(before, grades)
    assert parts(losses(shown, candidates, keep)) == {
        "wrongly_returned": [1, 0, 0, 0, 0, 0],
        "wrongly_withheld": [0, 1, 0, 0, 0, 0],
        "not_found": [0, 0, 1, 0, 0, 0],
        "misranked": [0, 0, 0, 0.5, 1, 0],  # `low` scores 1/2; `deep` has its hit at rank 4
    }
    assert parts(ceilings(shown, candidates, keep, raw)) == {
        "oracle_gate": [1, 0.5, 0, 0.5, 0, 1],
        "oracle_rerank": [0, 0, 0, 1, 1, 1],
        "oracle_fusion": [0, 0, 1, 1, 0, 1],
    }
    assert ceilings(shown, candidates, keep, raw, top_k=1)["oracle_gate"].tolist() == [1, 0, 0, 0, 0, 1]


def test_losses_of_a_file_of_predictions():
    # Neither the candidates nor the gate are known: an empty list is withheld, no hit in a whole list is not found.
    shown = judged({"q1": [], "q2": list("xyzx"), "q3": list("xyza")}, dict.fromkeys(("q1", "q2", "q3"), A))
    lost = parts(losses(shown))
    assert [lost[kind] for kind in ("wrongly_withheld", "not_found", "misranked")] == np.eye(3).tolist()
    assert set(ceilings(shown)) == {"oracle_gate", "oracle_rerank"}


def test_where_nothing_was_found_the_gate_withheld_nothing():
    shown = judged({"q": []}, {"q": A})
    for keep in (True, False):
        assert losses(shown, shown, np.array([keep]))["not_found"].tolist() == [1]
    found = judged({"q": ["x"]}, {"q": A})
    assert losses(shown, found, np.array([False]))["wrongly_withheld"].tolist() == [1]


@settings(deadline=None)
@given(case, st.lists(st.booleans(), min_size=12, max_size=12), st.integers(1, 6), st.booleans(), st.booleans())
def test_losses_add_up_query_by_query(rows, gate, top_k, deep, gated):
    before, grades = by_query(rows)
    final = {query: row[:top_k] if kept else [] for (query, row), kept in zip(before.items(), gate, strict=False)}
    shown, candidates = judged(final, grades), judged(before, grades)
    known = (shown, candidates if deep else None, np.array(gate[: len(rows)]) if gated else None)
    score = parse_measure("modified_map@3").values(shown)
    assert (np.sum(list(losses(*known).values()), axis=0) == 1 - score).all()
    assert all((part >= score).all() for part in ceilings(*known, top_k=top_k).values())
