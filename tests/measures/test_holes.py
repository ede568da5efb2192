"""Measures for labels with holes: worked by hand, and against trec_eval and ir_measures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from fakes import predictions
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.data.labels import Label, qrels_of
from harness.data.qrels import Qrels
from harness.errors import BadInput
from harness.measures.judged import Judged, judge_lists
from harness.measures.measures import MEASURES, check_labels, of_holes, parse_measure, requested
from harness.measures.scores import ShownLists, score_lists
from retrievers.base import Ranking

Pairs = Mapping[str, Mapping[str, int]]
OF_HOLES = list(filter(of_holes, MEASURES))


def trec(pairs: Pairs) -> Qrels:
    """Labels as TREC has them: grade 0 is judged and not relevant, -1 pooled and unjudged."""
    graded = {query: {doc: float(grade) for doc, grade in row.items() if grade > 0} for query, row in pairs.items()}
    zero, pooled = (
        {query: frozenset(doc for doc, grade in row.items() if grade == wanted) for query, row in pairs.items()}
        for wanted in (0, -1)
    )
    return Qrels(graded, abstention=False, not_relevant=zero, pooled=pooled)


def judged(returned: str, pairs: Mapping[str, int]) -> Judged:
    return judge_lists(predictions({"q": list(returned)}), trec({"q": pairs}))


def one(name: str, returned: str, pairs: Mapping[str, int]) -> float:
    return float(parse_measure(name).values(judged(returned, pairs))[0])


# Returned x a u b p, of which x is judged and not relevant, a and b are relevant (grades 2 and 1), u is unknown and p
# was pooled alone; c is relevant, y and z are not, and none of them was returned. R = 3, N = 3.
#   judged     x a b of x a u b p: 3/5; of x a u: 2/3; of the first 10 the same as of all
#   bpref      x is above a and b: 2 * (1 - 1/3) / 3 = 4/9
#   infap      a, rank 2: 1/2 + 1/2 * 1/1 * e / (1 + 2e); b, rank 4: 1/4 + 3/4 * 2/3 * (1 + e) / (2 + 2e)
#   condensed  x a b: ranks 2 and 3. map (1/2 + 2/3) / 3 = 7/18; DCG 2/log2(3) + 1/2
#   at best    x a u b p with u and p relevant: 4 of 5
PAIRS = {"x": 0, "y": 0, "z": 0, "a": 2, "b": 1, "c": 1, "p": -1}
E = 0.00001
TABLE = {
    "judged": 3 / 5, "judged@3": 2 / 3, "judged@1": 1, "judged@10": 3 / 5,
    "bpref": 4 / 9,
    "infap": (1 / 2 + E / (1 + 2 * E) / 2 + 1 / 4 + 1 / 2 * (1 + E) / (2 + 2 * E)) / 3,
    "hit_condensed@1": 0, "hit_condensed@2": 1, "recall_condensed@2": 1 / 3, "recall_condensed@3": 2 / 3,
    "precision_condensed@3": 2 / 3, "precision_condensed@5": 2 / 5, "precision_condensed": 2 / 3,
    "mrr_condensed@3": 1 / 2, "map_condensed@2": 1 / 6, "map_condensed@3": 7 / 18, "map_condensed": 7 / 18,
    "ndcg_condensed@3": (2 / math.log2(3) + 1 / 2) / (2 + 1 / math.log2(3) + 1 / 2),
    "hit_upper@1": 0, "hit_upper@3": 1, "mrr_upper@3": 1 / 2, "precision_upper@3": 2 / 3, "precision_upper@5": 4 / 5,
    "precision_upper@10": 4 / 10, "precision_upper": 4 / 5,
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), TABLE.items())
def test_one_list_worked_by_hand(name: str, value: float) -> None:
    assert one(name, "xaubp", PAIRS) == pytest.approx(value, abs=1e-12)


def test_examples_of_the_docstrings() -> None:
    assert (one("judged@1", "au", {"a": 1}), one("judged@4", "au", {"a": 1})) == (1, 1 / 2)
    assert one("bpref", "xaub", {"a": 1, "b": 1, "x": 0, "y": 0, "z": 0}) == 0.5
    assert one("infap", "aub", {"a": 1, "b": 1}) == pytest.approx(0.8333, abs=5e-5)
    pairs = {"a": 1, "x": 0}
    assert (one("mrr_condensed@3", "uax", pairs), one("precision_condensed@3", "uax", pairs)) == (1, 1 / 3)
    assert (one("mrr_upper@3", "xua", pairs), one("precision_upper@3", "xua", pairs)) == (1 / 2, 2 / 3)


def test_an_empty_list_shows_nothing_unjudged_and_finds_nothing() -> None:
    assert math.isnan(one("judged", "", PAIRS))
    assert math.isnan(one("judged@3", "", PAIRS))
    assert [one(name, "", PAIRS) for name in OF_HOLES if name != "judged"] == [0] * (len(OF_HOLES) - 1)
    assert [one(name, "uv", PAIRS) for name in ("judged", "bpref", "infap", "map_condensed")] == [0] * 4


def test_without_relevant_documents_nothing_can_be_found() -> None:
    # 0, as in trec_eval; but what was judged is known, and unjudged documents may be relevant
    pairs = {"x": 0, "p": -1}
    assert [one(name, "xup", pairs) for name in ("bpref", "infap", "ndcg_condensed")] == [0] * 3
    assert (one("judged", "xup", pairs), one("precision_upper", "xup", pairs)) == (1 / 3, 2 / 3)
    assert one("bpref", "ua", {"a": 1}) == 1  # no document was judged and is not relevant


def test_a_repeat_takes_up_a_rank_and_counts_once() -> None:
    # x x a a u u: 4 of 6 judged; only one x is above a: bpref 1 - 1/1 = 0 with N = 1. Condensed x x a a: rank 3.
    pairs = {"x": 0, "a": 1}
    assert one("judged", "xxaauu", pairs) == 4 / 6
    assert one("bpref", "xxa", pairs | {"y": 0, "b": 1}) == (1 - 1 / 2) / 2
    assert one("mrr_condensed", "xxaauu", pairs) == 1 / 3
    assert one("recall_condensed", "xxaauu", pairs) == 1
    assert one("precision_upper@6", "xxaauu", pairs) == 2 / 6  # a and u, each once
    # the hit at rank 3 has one x above it: 1/3 + 2/3 * 1/2 * e / (1 + 2e)
    assert one("infap", "xxa", pairs) == pytest.approx(1 / 3 + E / (1 + 2 * E) / 3, abs=1e-12)


def test_queries_that_need_no_retrieval_do_not_count() -> None:
    qrels = qrels_of(
        [
            Label("needs", True, {"a": 1.0}, frozenset("x")),
            Label("none", False, {}, frozenset("x")),
            Label("unmet", True, {}, frozenset("x")),
        ]
    )
    got = judge_lists(predictions({"needs": ["a"], "none": ["x"], "unmet": ["x"]}), qrels)
    assert got.needs.tolist() == [True, False, True]
    for name in OF_HOLES:
        values = parse_measure(name).values(got)
        assert np.isnan(values).tolist() == [False, True, False]
        assert values[0] == 1
        assert values[2] == (1 if name == "judged" else 0)


def test_some_of_the_queries() -> None:
    lists = predictions({"q1": list("xa"), "q2": list("uxa"), "q3": []})
    got = judge_lists(lists, trec({"q1": {"x": 0, "a": 1}, "q2": {"a": 1, "x": -1}, "q3": {"a": 1, "x": 0, "y": 0}}))
    for rows in (np.array([True, False, True]), np.array([2, 0]), np.array([1])):
        for name in OF_HOLES:
            np.testing.assert_array_equal(
                parse_measure(name).values(got.take(rows)), parse_measure(name).values(got)[rows], name
            )


# Names and labels ---------------------------------------------------------------------------------


def test_labels_that_do_not_say_what_was_judged_have_no_such_measure() -> None:
    without = Qrels({"q": {"a": 1.0}})
    for name in OF_HOLES:
        assert np.isnan(parse_measure(name).values(judge_lists(predictions({"q": ["a"]}), without))).all()  # never 0
        with pytest.raises(BadInput, match=rf"metrics: '{name}' asks which documents were judged, and these labels do"):
            check_labels(["hit", name], without)
    check_labels(OF_HOLES, trec({"q": {"a": 1}}))
    check_labels(["hit@3", "ndcg"], without)


@pytest.mark.parametrize("name", ["bpref@3", "infap@10"])
def test_measures_of_whole_lists_take_no_cutoff(name: str) -> None:
    with pytest.raises(BadInput, match=r"reads whole lists and takes no cut-off"):
        parse_measure(name)


def test_a_run_counts_what_was_judged_where_the_labels_have_zeros() -> None:
    assert requested(["hit@1"], trec({"q": {"a": 1, "b": 0}}), 5) == ["hit@1", "judged@5"]
    assert requested(["hit@1"], trec({"q": {"a": 1, "b": 0}})) == ["hit@1", "judged@3"]
    assert requested(["judged@5"], trec({"q": {"a": 1, "b": 0}}), 5) == ["judged@5"]
    # Where all judged documents are relevant, it would be the precision by another name.
    assert requested(["hit@1"], trec({"q": {"a": 1, "b": -1}}), 5) == requested(["hit@1"], None, 5) == ["hit@1"]


def test_condensed_lists_are_made_of_whole_lists() -> None:
    # Shown u v w, below them a: the first judged document of the whole list is relevant, of the shown ones none is.
    deep = Ranking.from_scores({"q": {"u": 4.0, "v": 3.0, "w": 2.0, "a": 1.0}})
    lists = ShownLists(deep.top(3), deep=deep, top_k=3)
    found = score_lists(
        lists, trec({"q": {"a": 1, "x": 0}}), ["mrr@3", "mrr_condensed@3", "mrr_upper@3", "judged@3", "bpref"]
    )
    means = {name: summary.mean for name, summary in found.summary.items()}
    assert means == {"mrr@3": 0, "mrr_condensed@3": 1, "mrr_upper@3": 1, "judged@3": 0, "bpref": 1}


def test_lists_that_may_be_cut_have_no_measures_of_whole_lists() -> None:
    cut = ShownLists(predictions({"q": list("uax")}), complete=False)
    found = score_lists(cut, trec({"q": {"a": 1, "x": 0}}), ["judged@3", "mrr_upper@3", "mrr_condensed@3", "bpref"])
    assert {name: summary.n for name, summary in found.summary.items()} == {
        "judged@3": 1, "mrr_upper@3": 1, "mrr_condensed@3": 0, "bpref": 0,
    }  # fmt: skip
    assert found.summary["bpref"].note == "the longest list has 3 documents"


# Independent implementations ----------------------------------------------------------------------

DOCS = [f"d{i}" for i in range(9)]
grades = st.sampled_from([-1, 0, 0, 1, 2])
cases = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(DOCS), st.integers(0, 3).map(float), max_size=9),  # scores, with ties
        st.dictionaries(st.sampled_from(DOCS), grades, min_size=1, max_size=7),
    ),
    min_size=1,
    max_size=6,
)


def trec_order(row: Mapping[str, float]) -> list[str]:
    """Best first; ties by document id, descending."""
    return sorted(sorted(row, reverse=True), key=row.__getitem__, reverse=True)


def evaluated(lists: Mapping[str, list[str]], pairs: Pairs, wanted: set[str]) -> dict[str, dict[str, float]]:
    """What pytrec_eval says of lists of distinct documents."""
    pytrec_eval = pytest.importorskip("pytrec_eval")
    run = {query: {doc: float(-rank) for rank, doc in enumerate(docs)} for query, docs in lists.items()}
    found: dict[str, dict[str, float]] = pytrec_eval.RelevanceEvaluator(pairs, wanted).evaluate(run)
    return found


@settings(deadline=None)
@given(cases)
def test_bpref_and_infap_are_those_of_trec_eval(rows: list[Any]) -> None:
    lists = {f"q{i}": trec_order(row) for i, (row, _) in enumerate(rows)}
    pairs = {f"q{i}": row for i, (_, row) in enumerate(rows)}
    theirs = evaluated(lists, pairs, {"bpref", "infAP"})
    got = judge_lists(predictions(lists), trec(pairs))
    for name, trec_name in (("bpref", "bpref"), ("infap", "infAP")):
        expected = [theirs[query][trec_name] if lists[query] else 0 for query in lists]
        np.testing.assert_allclose(parse_measure(name).values(got), expected, atol=1e-9, err_msg=name)


CONDENSED = {
    "ndcg_condensed": "ndcg", "ndcg_condensed@3": "ndcg_cut_3", "map_condensed": "map", "map_condensed@3": "map_cut_3",
    "mrr_condensed": "recip_rank", "precision_condensed@3": "P_3", "recall_condensed@3": "recall_3",
    "hit_condensed@3": "success_3", "precision_condensed": "set_P",
}  # fmt: skip


@settings(deadline=None)
@given(cases)
def test_condensed_measures_are_those_of_lists_without_unjudged_documents(rows: list[Any]) -> None:
    lists = {f"q{i}": trec_order(row) for i, (row, _) in enumerate(rows)}
    pairs = {f"q{i}": row for i, (_, row) in enumerate(rows)}
    known = {query: {doc: grade for doc, grade in row.items() if grade >= 0} for query, row in pairs.items()}
    left = {query: [doc for doc in docs if doc in known[query]] for query, docs in lists.items()}
    cuts = {f"{name}.3" for name in ("ndcg_cut", "map_cut", "P", "recall", "success")}
    known = {query: row for query, row in known.items() if row}  # queries that have judged pairs
    theirs = evaluated({query: left[query] for query in known}, known, {"ndcg", "map", "recip_rank", "set_P"} | cuts)
    got = judge_lists(predictions(lists), trec(pairs))
    for name, trec_name in CONDENSED.items():
        expected = [theirs[query][trec_name] if left[query] else 0 for query in lists]
        np.testing.assert_allclose(parse_measure(name).values(got), expected, atol=1e-9, err_msg=name)


@settings(deadline=None)
@given(cases)
def test_judged_and_bpref_are_those_of_ir_measures(rows: list[Any]) -> None:
    ir_measures = pytest.importorskip("ir_measures")
    lists = {f"q{i}": trec_order(row) for i, (row, _) in enumerate(rows) if row}  # it cannot take empty lists
    # It counts every pair as judged, also one with grade -1, which trec_eval does not.
    pairs = {f"q{i}": {doc: grade for doc, grade in row.items() if grade >= 0} for i, (_, row) in enumerate(rows)}
    pairs = {query: row for query, row in pairs.items() if query in lists and row}
    run = {query: {doc: float(-rank) for rank, doc in enumerate(lists[query])} for query in pairs}
    if not pairs:
        return
    got = judge_lists(predictions({query: lists[query] for query in pairs}), trec(pairs))
    for theirs, name in (("Judged@3", "judged@3"), ("Judged@10", "judged@10"), ("Bpref", "bpref")):
        calculated = ir_measures.iter_calc([ir_measures.parse_measure(theirs)], pairs, run)
        found = {one.query_id: one.value for one in calculated}
        np.testing.assert_allclose(
            parse_measure(name).values(got), [found[q] for q in pairs], atol=1e-9, err_msg=theirs
        )


@settings(deadline=None)
@given(cases, st.randoms())
def test_bounds_hold_whatever_the_unjudged_documents_are(rows: list[Any], rng: Any) -> None:
    lists = {f"q{i}": trec_order(row) for i, (row, _) in enumerate(rows)}
    pairs = {f"q{i}": row for i, (_, row) in enumerate(rows)}
    settled = {
        query: {doc: grade if (grade := pairs[query].get(doc, -1)) >= 0 else rng.randint(0, 1) for doc in DOCS}
        for query in pairs
    }
    known, true = judge_lists(predictions(lists), trec(pairs)), judge_lists(predictions(lists), trec(settled))
    for name in ("hit", "precision", "mrr"):
        for cut in ("", "@1", "@3"):
            least, most = parse_measure(name + cut).values(known), parse_measure(f"{name}_upper{cut}").values(known)
            value = parse_measure(name + cut).values(true)
            assert (least <= value).all()
            assert (value <= most).all()
