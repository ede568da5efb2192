"""Measures against tables worked by hand, the reference file, trec_eval, ir_measures and plain loops."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from fakes import predictions
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.data.qrels import Qrels
from harness.errors import BadInput
from harness.measures.judged import Judged, judge_lists
from harness.measures.measures import MEASURES, MeasureFamily, ceilings, losses, of_holes, of_spans, parse_measure
from harness.tracking.tracker import mlflow_name
from retrievers.base import Ranking

SHARED = Path(__file__).resolve().parents[3] / "shared"
PLAIN = {name: family for name, (family, _) in MEASURES.items() if not of_holes(name)}
STANDARD = [name for name, family in PLAIN.items() if family is MeasureFamily.STANDARD and not of_spans(name)]


def judged(
    lists: Mapping[str, list[str]], grades: Mapping[str, Mapping[str, float]], abstention: bool = True
) -> Judged:
    return judge_lists(predictions(lists), Qrels(grades, abstention))


def one(name: str, returned: str, relevant: dict[str, float]) -> float:
    """A measure for one query; documents are letters."""
    return float(parse_measure(name).values(judged({"q": list(returned)}, {"q": relevant}))[0])


def mean(name: str, of: Judged) -> float:
    measure = parse_measure(name)
    if measure.family is MeasureFamily.POOLED:
        return measure.pooled(of)[0]
    values = measure.values(of)
    return float(np.nanmean(values)) if not np.isnan(values).all() else 0.0


# Judging ------------------------------------------------------------------------------------------


def test_a_query_without_relevant_documents_needs_retrieval_where_labels_cannot_say_otherwise() -> None:
    got = judged({"q": ["a"]}, {"q": {}}, abstention=False)
    assert got.needs.tolist() == [True]
    assert [mean(name, got) for name in ("map", "ndcg@3", "recall", "f1@2", "modified_map@3")] == [0] * 5


def test_a_query_without_a_row_is_as_wrong_as_can_be() -> None:
    qrels = Qrels({"q": {"a": 1}, "gone": {"a": 1}, "gone_none": {}, "none": {}})
    got = judge_lists(predictions({"q": ["a"], "none": []}), qrels, list(qrels.grades), np.array([2.0, 1.0]))
    for name in ("modified_map@3", "modified_mrr", "modified_ndcg@3", "abstention_accuracy"):
        assert parse_measure(name).values(got).tolist() == [1, 0, 0, 1]
    assert parse_measure("ndcg").values(got)[:2].tolist() == [1, 0]
    assert got.signal is not None
    assert got.signal.tolist() == [2, -math.inf, math.inf, 1]


def test_empty_lists_and_no_query_at_all() -> None:
    empty = judged({"q": []}, {"q": {"a": 1}})
    assert all(one(name, "", {"a": 1}) == 0 for name in STANDARD)
    assert all(len(parse_measure(name).values(judge_lists(predictions({}), Qrels({})))) == 0 for name in STANDARD)
    assert empty.gains.shape == (1, 0)


# One query, worked by hand ------------------------------------------------------------------------

# Returned a x b y, with grades a 2, b 1, c 3: hits at ranks 1 and 3, 3 relevant documents.
#   map@3  = (1/1 + 2/3) / 3 = 5/9;  modified_map@3 = (1/1 + 2/3) / 2 = 5/6
#   DCG@3  = 2 + 1/log2(4) = 2.5;    ideal 3 + 2/log2(3) + 1/2 = 4.761859507
#   exp    : 3 + 1/2 = 3.5;          ideal 7 + 3/log2(3) + 1/2 = 9.392789261
#   f1@4   : P 2/4, R 2/3 -> 2 * (1/3) / (7/6) = 4/7;  f1@10 the same, since 4 are returned
TABLE = {
    "hit@1": 1, "hit": 1, "recall@1": 1 / 3, "recall@3": 2 / 3, "recall": 2 / 3,
    "precision@1": 1, "precision@3": 2 / 3, "precision@10": 0.2, "precision": 0.5,
    "precision_retrieved@3": 2 / 3, "precision_retrieved@10": 0.5, "precision_retrieved": 0.5,
    "f1@4": 4 / 7, "f1@10": 4 / 7, "f1": 4 / 7, "mrr@1": 1, "mrr": 1,
    "map@1": 1 / 3, "map@3": 5 / 9, "map": 5 / 9, "modified_map@1": 1, "modified_map@3": 5 / 6,
    "ndcg@1": 2 / 3, "ndcg@3": 2.5 / (3.5 + 2 / math.log2(3)), "ndcg@10": 2.5 / (3.5 + 2 / math.log2(3)),
    "ndcg_exp@3": 3.5 / (7.5 + 3 / math.log2(3)), "modified_mrr@3": 1,
    "modified_ndcg@3": 2.5 / (3.5 + 2 / math.log2(3)),
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), TABLE.items())
def test_one_list_worked_by_hand(name: str, value: float) -> None:
    assert one(name, "axby", {"a": 2, "b": 1, "c": 3}) == pytest.approx(value, abs=1e-12)


def test_examples_of_the_docstrings() -> None:
    assert (one("hit@1", "xa", {"a": 1}), one("hit@2", "xa", {"a": 1})) == (0, 1)
    assert one("recall@3", "axb", dict.fromkeys("abcd", 1)) == 2 / 4
    assert (one("precision@4", "ax", {"a": 1}), one("precision", "ax", {"a": 1})) == (1 / 4, 1 / 2)
    assert one("precision_retrieved@4", "ax", {"a": 1}) == 1 / 2
    assert one("f1@2", "ax", dict.fromkeys("abc", 1)) == pytest.approx(2 / 5)
    assert (one("mrr@3", "xab", {"a": 1, "b": 1}), one("mrr@1", "xab", {"a": 1, "b": 1})) == (1 / 2, 0)
    assert one("map@3", "axb", dict.fromkeys("abc", 1)) == pytest.approx(0.5556, abs=5e-5)
    assert one("ndcg@3", "ca", {"a": 3, "b": 2, "c": 1}) == pytest.approx(0.6075, abs=5e-5)
    assert one("ndcg_exp@2", "ba", {"a": 2, "b": 1}) == pytest.approx(0.7967, abs=5e-5)
    two = judged({"q1": list("xa"), "q2": []}, {"q1": {"a": 1}, "q2": {}})
    assert mean("modified_mrr", two) == 0.75
    assert mean("modified_ndcg", two) == pytest.approx(0.8155, abs=5e-5)


def test_returning_less_can_score_more_in_the_contest() -> None:
    assert one("modified_map@3", "a", {"a": 1, "b": 1}) == 1.0
    assert one("modified_map@3", "axb", {"a": 1, "b": 1}) == pytest.approx(0.8333, abs=5e-5)


def test_the_ideal_ranking_holds_all_relevant_documents() -> None:
    # Grades 3, 1, 2 -> 3 + 2/log2(3) + 1/2; a list that finds one of two relevant documents is not perfect.
    ideal = judged({"q": []}, {"q": {"a": 3, "b": 1, "c": 2}}).ideal_dcg[0, -1]
    assert ideal == pytest.approx(4.7619, abs=5e-5)
    assert one("ndcg@4", "a", {"a": 1, "b": 1}) < 1


def test_a_course_sample_with_two_queries() -> None:
    # q1: a hit at rank 1 of 1. q2: hits at ranks 3 and 4 of 2. Hence mrr (1 + 1/3)/2 = 2/3,
    # map (1 + (1/3 + 2/4)/2)/2 = .708333, ndcg (1 + (1/2 + 1/log2 5)/(1 + 1/log2 3))/2 = .785321.
    got = judged(
        {"q1": ["doc1", "doc3"], "q2": ["doc4", "doc1", "doc5", "doc2"]},
        {"q1": {"doc1": 1}, "q2": {"doc2": 1, "doc5": 1}},
    )
    assert mean("hit@4", got) == 1.0
    assert mean("mrr@4", got) == pytest.approx(0.6667, abs=5e-5)
    assert mean("map@4", got) == pytest.approx(0.708333, abs=5e-7)
    assert mean("ndcg@4", got) == pytest.approx(0.785321, abs=5e-7)


def test_a_repeat_counts_again_in_the_contest_only() -> None:
    # a a b, both relevant: contest (1 + 2/2 + 3/3)/3; elsewhere the second a is a miss at rank 2.
    both = {"a": 1.0, "b": 1.0}
    assert one("modified_map@3", "aax", both) == 1.0
    assert one("modified_map@3", "xaa", both) == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert one("map@3", "aab", both) == pytest.approx((1 + 2 / 3) / 2)
    assert one("recall@2", "aab", both) == one("precision_retrieved@2", "aab", both) == 1 / 2
    assert one("precision_retrieved", "aab", both) == pytest.approx(2 / 3)
    assert one("ndcg@3", "aab", both) == pytest.approx(1.5 / (1 + 1 / math.log2(3)))


def test_large_grades_do_not_overflow() -> None:
    assert one("ndcg_exp", "ba", {"a": 5000, "b": 4999}) == pytest.approx(
        (0.5 + 1 / math.log2(3)) / (1 + 0.5 / math.log2(3))
    )


def test_abstention_worked_by_hand() -> None:
    # Empty for q1 and q2; q1 and q3 need no retrieval.
    grades: dict[str, dict[str, float]] = {"q1": {}, "q2": {"a": 1}, "q3": {}, "q4": {"a": 1}}
    got = judged({"q1": [], "q2": [], "q3": ["a"], "q4": ["a"]}, grades)
    assert parse_measure("abstention_precision").values(got).tolist()[:2] == [1, 0]
    assert np.isnan(parse_measure("abstention_precision").values(got)[2:]).all()
    assert parse_measure("abstention_accuracy").values(got).tolist() == [1, 0, 0, 1]
    assert (mean("abstention_precision", got), mean("abstention_recall", got)) == (0.5, 0.5)
    assert parse_measure("abstention_f1").pooled(got) == (0.5, 3)
    kept = judged({"q2": ["a"]}, {"q2": {"a": 1}})
    assert parse_measure("abstention_f1").pooled(kept) == (0.0, 0)


def auroc(signal: list[float], needs: list[bool]) -> tuple[float, int]:
    grades: dict[str, dict[str, float]] = {str(i): {"a": 1} if need else {} for i, need in enumerate(needs)}
    lists = predictions({query: [] for query in grades})
    return parse_measure("abstention_auroc").pooled(judge_lists(lists, Qrels(grades), signal=np.array(signal)))


def test_auroc_worked_by_hand() -> None:
    assert auroc([3, 1, 2], [True, True, False]) == (0.5, 3)
    assert auroc([2, 2], [True, False]) == (0.5, 2)  # a tie counts half
    assert auroc([3, 1], [True, False]) == (1.0, 2)
    assert np.isnan(auroc([3, 1], [True, True])[0])
    no_signal = judged({"q": []}, {"q": {}})
    assert np.isnan(parse_measure("abstention_auroc").pooled(no_signal)[0])


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=40))
def test_auroc_is_that_of_scikit_learn(rows: list[tuple[int, bool]]) -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    signal, needs = [float(s) for s, _ in rows], [n for _, n in rows]
    if len(set(needs)) == 2:
        assert auroc(signal, needs)[0] == pytest.approx(sklearn.roc_auc_score(needs, signal), abs=1e-12)


# Reference values and independent implementations -------------------------------------------------


def random_case(seed: int, queries: int = 40) -> tuple[Ranking, dict[str, dict[str, int]]]:
    """Distinct scores, lists of 0 to 15 documents, graded labels some of which say 'not relevant'."""
    rng = random.Random(seed)
    docs = [f"d{i:02}" for i in range(40)]
    run = {}
    for query in range(queries):
        returned = rng.sample(docs, rng.randint(0, 15))
        run[f"q{query}"] = {
            doc: float(s) for doc, s in zip(returned, rng.sample(range(999), len(returned)), strict=True)
        }
    qrels = {query: {doc: rng.randint(0, 3) for doc in rng.sample(docs, rng.randint(1, 8))} for query in run}
    return Ranking.from_scores(run), qrels


def positive(qrels: dict[str, dict[str, int]]) -> Qrels:
    graded = {query: {doc: float(g) for doc, g in row.items() if g > 0} for query, row in qrels.items()}
    return Qrels(graded, abstention=False)


TREC_EVAL = {
    "hit@1": "success_1", "hit@5": "success_5", "recall@5": "recall_5", "recall@10": "recall_10",
    "recall": "set_recall", "precision@1": "P_1", "precision@5": "P_5", "precision@10": "P_10",
    "precision": "set_P", "f1": "set_F", "mrr": "recip_rank", "map": "map", "map@5": "map_cut_5",
    "map@10": "map_cut_10", "ndcg": "ndcg", "ndcg@5": "ndcg_cut_5", "ndcg@10": "ndcg_cut_10",
}  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_equal_to_trec_eval(seed: int) -> None:
    pytrec_eval = pytest.importorskip("pytrec_eval")
    ranking, qrels = random_case(seed)
    qrels["q0"] = dict.fromkeys(ranking.doc_ids[:5], 0)  # no positive judgement: counts, as 0
    theirs = pytrec_eval.RelevanceEvaluator(
        qrels,
        {"success.1,5", "recall.5,10", "P.1,5,10", "recip_rank", "map", "map_cut.5,10", "ndcg", "ndcg_cut.5,10"}
        | {"set_P", "set_recall", "set_F"},
    ).evaluate(ranking.to_dict())
    got = judge_lists(ranking, positive(qrels))
    for name, trec_name in TREC_EVAL.items():
        expected = [theirs[query][trec_name] for query in ranking.query_ids]
        np.testing.assert_allclose(parse_measure(name).values(got), expected, atol=1e-9, err_msg=name)


lists_with_repeats = st.lists(st.sampled_from("abcdef"), max_size=6)
labels = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 3), max_size=4)
case = st.lists(st.tuples(lists_with_repeats, labels), min_size=1, max_size=12)


def contest(returned: list[str], relevant: dict[str, int]) -> float:
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
def test_the_contest_score_is_that_of_a_plain_loop(rows: list[tuple[list[str], dict[str, int]]]) -> None:
    got = judged({str(i): row[0] for i, row in enumerate(rows)}, {str(i): row[1] for i, row in enumerate(rows)})
    np.testing.assert_allclose(parse_measure("modified_map@3").values(got), [contest(*row) for row in rows], atol=1e-12)


# Properties ---------------------------------------------------------------------------------------


@settings(deadline=None)
@given(case, st.randoms())
def test_the_order_of_queries_and_labels_and_irrelevant_names_do_not_matter(rows, rng) -> None:  # type: ignore[no-untyped-def]
    lists, grades = {str(i): row[0] for i, row in enumerate(rows)}, {str(i): row[1] for i, row in enumerate(rows)}
    order = list(lists)
    rng.shuffle(order)
    mixed = {query: dict(rng.sample(list(grades[query].items()), len(grades[query]))) for query in order}
    renamed = {q: [doc if doc in grades[q] else f"other {doc}" for doc in lists[q]] for q in order}
    before, after = judged(lists, grades), judged(renamed, mixed)
    for name, (family, _) in MEASURES.items():
        if family is MeasureFamily.POOLED:
            assert parse_measure(name).pooled(before) == pytest.approx(parse_measure(name).pooled(after), nan_ok=True)
            continue
        values = dict(zip(lists, parse_measure(name).values(before), strict=True))
        np.testing.assert_allclose(parse_measure(name).values(after), [values[query] for query in order], err_msg=name)


@settings(deadline=None)
@given(case, st.sampled_from(["", "@1", "@2", "@3", "@10"]))
def test_every_measure_lies_between_0_and_1_and_applies_where_it_says(rows, cutoff) -> None:  # type: ignore[no-untyped-def]
    got = judged({str(i): row[0] for i, row in enumerate(rows)}, {str(i): row[1] for i, row in enumerate(rows)})
    for name, family in PLAIN.items():
        if family in (MeasureFamily.STANDARD, MeasureFamily.MODIFIED):
            values = parse_measure(name + cutoff).values(got)
            applies = np.ones(len(rows), bool) if family is MeasureFamily.MODIFIED else got.needs & (not of_spans(name))
            assert (np.isnan(values) == ~applies).all()
            assert (values[applies] >= 0).all()
            assert (values[applies] <= 1 + 1e-12).all()


# Names --------------------------------------------------------------------------------------------


def test_names() -> None:
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
        ("ndcg@", "integer from 1"),
        ("ndcg@0", "integer from 1"),
        ("ndcg@-1", "integer from 1"),
        ("ndcg@1.5", "integer from 1"),
        ("ndcg@ten", "integer from 1"),
        ("ndcg@٣", "integer from 1"),
        ("abstention_f1@3", "takes no cut-off"),
        ("abstention_recall@3", "takes no cut-off"),
    ],
)
def test_names_that_are_refused(name: object, part: str) -> None:
    with pytest.raises(BadInput, match=r"^metrics: ") as error:
        parse_measure(name)
    assert part in str(error.value)


# Losses and ceilings ------------------------------------------------------------------------------


def test_losses_and_ceilings_worked_by_hand() -> None:
    relevant = {"a": 1.0}
    grades = {"none": {}, "held": relevant, "lost": relevant, "low": relevant, "deep": relevant, "good": relevant}
    final = {"none": ["x"], "held": [], "lost": ["x"], "low": ["x", "a"], "deep": ["x", "y", "z"], "good": ["a"]}
    before = {**final, "held": ["x", "a"], "deep": list("xyza")}
    keep = np.array([True, False, True, True, True, True])
    raw = {"one": judged({**before, "lost": ["a"]}, grades), "two": judged({**before, "low": ["a"]}, grades)}
    shown, candidates = judged(final, grades), judged(before, grades)
    lost = {kind: part.tolist() for kind, part in losses(shown, candidates, keep).items()}
    assert lost == {
        "wrongly_returned": [1, 0, 0, 0, 0, 0],
        "wrongly_withheld": [0, 1, 0, 0, 0, 0],
        "not_found": [0, 0, 1, 0, 0, 0],
        "misranked": [0, 0, 0, 0.5, 1, 0],  # `low` scores 1/2; `deep` has its hit at rank 4
    }
    best = {name: part.tolist() for name, part in ceilings(shown, candidates, keep, raw).items()}
    assert best == {
        "oracle_gate": [1, 0.5, 0, 0.5, 0, 1],
        "oracle_rerank": [0, 0, 0, 1, 1, 1],
        "oracle_fusion": [0, 0, 1, 1, 0, 1],
    }
    assert ceilings(shown, candidates, keep, raw, top_k=1)["oracle_gate"].tolist() == [1, 0, 0, 0, 0, 1]


def test_losses_of_a_file_of_predictions() -> None:
    # Neither the candidates nor the gate are known: an empty list is withheld, no hit in a whole list is not found.
    relevant = {"a": 1.0}
    shown = judged({"q1": [], "q2": list("xyzx"), "q3": list("xyza")}, {"q1": relevant, "q2": relevant, "q3": relevant})
    lost = {kind: part.tolist() for kind, part in losses(shown).items()}
    assert lost["wrongly_withheld"] == [1, 0, 0]
    assert lost["not_found"] == [0, 1, 0]
    assert lost["misranked"] == [0, 0, 1]
    assert set(ceilings(shown)) == {"oracle_gate", "oracle_rerank"}


def test_where_nothing_was_found_the_gate_withheld_nothing() -> None:
    shown = judged({"q": []}, {"q": {"a": 1}})
    for keep in (True, False):
        assert losses(shown, shown, np.array([keep]))["not_found"].tolist() == [1]
    found = judged({"q": ["x"]}, {"q": {"a": 1}})
    assert losses(shown, found, np.array([False]))["wrongly_withheld"].tolist() == [1]


@settings(deadline=None)
@given(case, st.lists(st.booleans(), min_size=12, max_size=12), st.integers(1, 6), st.booleans(), st.booleans())
def test_losses_add_up_query_by_query(rows, gate, top_k, deep, gated) -> None:  # type: ignore[no-untyped-def]
    grades = {str(i): row[1] for i, row in enumerate(rows)}
    before = {str(i): row[0] for i, row in enumerate(rows)}
    final = {query: row[:top_k] if gate[int(query)] else [] for query, row in before.items()}
    keep = np.array(gate[: len(rows)])
    shown, candidates = judged(final, grades), judged(before, grades)
    known = (shown, candidates if deep else None, keep if gated else None)
    score = parse_measure("modified_map@3").values(shown)
    assert (np.sum(list(losses(*known).values()), axis=0) == 1 - score).all()
    assert all((part >= score).all() for part in ceilings(*known, top_k=top_k).values())
