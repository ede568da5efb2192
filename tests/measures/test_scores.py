"""Which queries count and which list a measure reads, on tables small enough to check by eye."""

import dataclasses
import math

import numpy as np
import pytest
from fakes import predictions
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.data.predictions import Predictions
from harness.data.qrels import Qrels
from harness.data.spans import Evidence, Span
from harness.data.tables import csv_text
from harness.errors import BadInput
from harness.gates.payoff import payoffs
from harness.measures.measures import MEASURES, of_spans
from harness.measures.objective import objective_of
from harness.measures.score_table import read_score_table, score_lines, table_columns
from harness.measures.scores import ShownLists, averaged_scores, score_lists
from harness.recording import retrieval_run
from harness.statistics.bootstrap import bootstrap_means
from harness.statistics.split import Split, draw_public
from retrievers.base import Ranking


def ranking(lists):
    return Ranking.from_scores({q: {doc: -float(rank) for rank, doc in enumerate(row)} for q, row in lists.items()})


A = {"a": 1.0}


def means(scores):
    return {name: summary.mean for name, summary in scores.summary.items()}


def test_only_labelled_queries_with_a_row_are_scored():
    final = predictions({"u": ["a"], "q1": ["a"], "none": []})
    scores = score_lists(ShownLists(final), Qrels({"q1": A, "q2": A, "none": {}}), ["modified_map@3", "hit@3"])
    assert scores.query_ids == ("q1", "none")
    assert means(scores) == {"modified_map@3": 1, "hit@3": 1}
    assert (scores.summary["modified_map@3"].n, scores.summary["hit@3"].n) == (2, 1)
    assert scores.counts == {
        "predicted": 3, "labelled": 3, "scored": 2, "needs_no_retrieval": 1, "unlabelled": 1, "missing": 1,
        "duplicates": 0,
    }  # fmt: skip
    assert scores.missing == ["q2"]
    assert math.isnan(scores.values["hit@3"][1])


def test_missing_queries_as_wrong():
    final = predictions({"q1": ["a"], "none": []})
    qrels = Qrels({"q1": A, "gone": A, "none": {}, "gone_none": {}})
    # f1: right on `none`, wrong on `gone` (left empty) and on `gone_none` -> 2 / (2 + 1 + 1).
    # auroc: the pairs (q1, none) right; `gone` below and `gone_none` above everything -> 1 of 4.
    expected = {
        "modified_map@3": 0.5, "map": 0.5, "abstention_accuracy": 0.5, "abstention_f1": 0.5, "abstention_auroc": 0.25,
    }  # fmt: skip
    lists = ShownLists(final, signal=np.array([2.0, 1.0]), keep=np.array([True, False]))
    scores = score_lists(lists, qrels, [*expected], missing="zero")
    assert scores.query_ids == ("q1", "none", "gone", "gone_none")
    assert scores.values["modified_map@3"].tolist() == [1, 1, 0, 0]
    assert means(scores) == expected
    assert scores.losses == {"wrongly_returned": 0.25, "wrongly_withheld": 0.25, "not_found": 0, "misranked": 0}


def test_measures_beyond_the_cut_read_the_list_before_it():
    raw = ranking({"q": "xyzab", "withheld": "a"})
    gated = raw.where(np.array([True, False]))
    final = gated.top(3)
    names = ["hit@3", "hit@4", "hit", "modified_mrr@5", "modified_map@3", "abstention_accuracy"]
    qrels = Qrels({"q": {"a": 1, "b": 1}, "withheld": A})
    keep = np.array([True, False])
    scores = score_lists(
        ShownLists(final, deep=gated, candidates=raw, keep=keep, rankings={"bm25": raw}, top_k=3), qrels, names
    )
    assert {name: values.tolist() for name, values in scores.values.items()} == {
        "hit@3": [0, 0],
        "hit@4": [1, 0],
        "hit": [1, 0],
        "modified_mrr@5": [0, 0],  # a modified measure scores what is exported
        "modified_map@3": [0, 0],
        "abstention_accuracy": [1, 0],
    }
    assert scores.losses == {"wrongly_returned": 0, "wrongly_withheld": 0.5, "not_found": 0, "misranked": 0.5}
    assert scores.first_hit.tolist() == [4, 1]
    assert scores.ceilings == {"oracle_gate": 0.5, "oracle_rerank": 0.5, "oracle_fusion": 0}


def test_without_deep_everything_reads_the_file():
    final, names = predictions({"q": list("xyza"), "r": ["x"]}), ["hit@3", "hit@4", "hit"]
    scores = score_lists(ShownLists(final), Qrels({"q": A, "r": A}), names)
    assert means(scores) == {"hit@3": 0, "hit@4": 0.5, "hit": 0.5}
    assert scores.first_hit.tolist() == [4, 0]


def test_duplicates_are_listed_and_counted_as_the_contest_does():
    final = predictions({"q1": list("xaaxb"), "q2": ["a"]})
    scores = score_lists(ShownLists(final), Qrels({"q1": A, "q2": A}), ["modified_map@3", "map"])
    assert scores.duplicates == {"q1": ["a", "x"]}
    assert scores.counts["duplicates"] == 1
    assert scores.values["modified_map@3"].tolist() == pytest.approx([(1 / 2 + 2 / 3) / 2, 1])
    assert scores.values["map"].tolist() == [1 / 2, 1]


@pytest.mark.parametrize("longest", [2, 3, 4])
def test_losses_of_a_file_that_ends_where_the_score_does_do_not_tell_found_from_misranked(longest):
    lists = {"none": list("xyzv")[:longest], "low": list("xaz")[:longest]}
    labels = Qrels(dict.fromkeys(lists, A))
    whole, found = (
        score_lists(ShownLists(predictions(lists), complete=known), labels, ["map@2"]) for known in (True, False)
    )
    assert whole.losses == {"wrongly_returned": 0, "wrongly_withheld": 0, "not_found": 0.5, "misranked": 0.25}
    merged = {"wrongly_returned": 0, "wrongly_withheld": 0, "not_found_or_misranked": 0.75}
    assert found.losses == (merged if longest <= 3 else whole.losses)
    assert ("oracle_rerank" in found.ceilings) == (longest > 3)


def test_ratios_without_a_denominator_are_0_and_say_so():
    notes = {
        "abstention_precision": "no list is empty",
        "abstention_recall": "every query needs retrieval",
        "abstention_f1": "no list is empty and every query needs retrieval",
        "abstention_auroc": "no gate signal",
    }
    names = [*notes]
    scores = score_lists(ShownLists(predictions({"q": ["a"]})), Qrels({"q": A}), names)
    assert [scores.summary[name].mean for name in names] == pytest.approx([0, 0, 0, math.nan], nan_ok=True)
    assert all(math.isnan(scores.summary[name].known) for name in names)
    assert {name: one.note for name, one in scores.summary.items()} == notes
    assert not retrieval_run.scores_by_name(scores).keys() & {*names, *(f"public/{name}" for name in names)}
    assert objective_of(names[0], scores, None, "all") is None
    with_signal = score_lists(ShownLists(predictions({"q": ["a"]}), signal=np.array([1.0])), Qrels({"q": A}), names)
    assert with_signal.summary["abstention_auroc"].note == "all queries are of one kind"
    none = score_lists(ShownLists(predictions({"q": []})), Qrels({"q": {}}), ["map", "modified_map@3"]).summary
    assert (math.isnan(none["map"].mean), none["map"].note) == (True, "no query needs retrieval")
    assert none["modified_map@3"].mean == 1


def many(n=60):
    generator = np.random.default_rng(0)
    lists = {f"q{i}": list(generator.permutation(list("abcdef"))[:3]) for i in range(n)}
    qrels = {query: {} if i % 10 == 0 else {"a": 1.0, "b": 2.0} for i, query in enumerate(lists)}
    return predictions(lists), Qrels(qrels), {query: i % 7 == 0 for i, query in enumerate(lists)}


def test_intervals_and_public_and_private():
    final, qrels, multi_turn = many()
    names = ["modified_map@3", "ndcg@3", "abstention_accuracy", "abstention_f1"]
    scores = score_lists(ShownLists(final), qrels, names, split=Split(seed=3), multi_turn=multi_turn)
    for name in names[:3]:
        one = scores.summary[name]
        assert one.low < one.mean < one.high
        assert one.note == ""
    assert scores.summary["abstention_f1"].note == "no interval: not a mean of queries"
    needs = np.array([bool(row) for row in qrels.grades.values()])
    public = draw_public(list(qrels.grades), 2 * needs + np.array(list(multi_turn.values())), 3)
    for part, rows in ((scores.public, public), (scores.private, ~public)):
        assert part["modified_map@3"].n == rows.sum()
        for name in names[:3]:
            assert part[name].mean == pytest.approx(np.nanmean(scores.values[name][rows]))
    whole = scores.summary["ndcg@3"]
    halves = [scores.public["ndcg@3"], scores.private["ndcg@3"]]
    assert sum(half.mean * half.n for half in halves) == pytest.approx(whole.mean * whole.n)
    of_one = averaged_scores([scores], Split(seed=3))
    assert (of_one.summary, of_one.losses) == (scores.summary, scores.losses)


def test_only_what_is_asked_for_is_detailed():
    final, qrels, _ = many()
    names = ["modified_map@3", "ndcg@3", "abstention_f1", "abstention_auroc"]
    whole, some, none = (
        score_lists(ShownLists(final), qrels, names, detailed=wanted) for wanted in (None, names[1:3], [])
    )
    assert means(some) == pytest.approx(means(whole), nan_ok=True)
    assert some.summary["ndcg@3"] == whole.summary["ndcg@3"]
    assert (set(some.public), some.private["ndcg@3"]) == ({"ndcg@3", "abstention_f1"}, whole.private["ndcg@3"])
    left_out = some.summary["modified_map@3"]
    assert (math.isnan(left_out.low), math.isnan(left_out.high), left_out.note) == (True, True, "")
    assert some.summary["abstention_f1"].note == "no interval: not a mean of queries"
    assert some.summary["abstention_auroc"].note == "no gate signal"
    assert none.summary["abstention_f1"].note == ""
    with pytest.raises(BadInput, match="metrics: 'ndgc@3'"):
        score_lists(ShownLists(final), qrels, names, detailed=["ndgc@3"])


def test_raw_rankings_are_judged_anew_for_other_labels_and_queries():
    raw = ranking({"q1": "abc", "q2": "bca"})
    final = ranking({"q1": "c", "q2": "c"})

    def ceiling(grades):
        return score_lists(ShownLists(final, rankings={"raw": raw}), Qrels(grades), ["map"]).ceilings["oracle_fusion"]

    assert ceiling({"q1": A, "q2": A}) == (1 + 1 / 3) / 2
    assert ceiling({"q1": A}) == 1
    assert ceiling({"q1": {"b": 1.0}, "q2": {"b": 1.0}}) == (1 / 2 + 1) / 2
    assert ceiling({"q1": A, "q2": A}) == (1 + 1 / 3) / 2


def test_neither_the_order_of_the_file_nor_missing_queries_change_the_split():
    final, qrels, _ = many()
    back = Predictions(final.query_ids[::-1], final.doc_ids, final.docs[::-1])
    some = Predictions(final.query_ids[:40], final.doc_ids, final.docs[:40])
    one, other, part = (
        score_lists(ShownLists(lists), qrels, ["ndcg@3", "modified_map@3"]) for lists in (final, back, some)
    )
    assert means(one) == pytest.approx(means(other))
    assert one.public["ndcg@3"].mean == pytest.approx(other.public["ndcg@3"].mean)
    assert one.losses == pytest.approx(other.losses)
    public = draw_public(list(qrels.grades), np.array([bool(g) for g in qrels.grades.values()]), 0)
    assert one.public["modified_map@3"].n == public.sum()
    assert part.public["modified_map@3"].n == public[:40].sum()


def test_arguments_that_do_not_fit_together():
    final, qrels = ranking({"q": "ab"}), Qrels({"q": A})
    with pytest.raises(BadInput, match=r"'q'.*'0001'"):
        score_lists(ShownLists(final), Qrels({"0001": A}), ["map"])
    with pytest.raises(BadInput, match="0 queries"):
        score_lists(ShownLists(predictions({})), qrels, ["map"])
    with pytest.raises(BadInput, match="metrics: 'mpa'"):
        score_lists(ShownLists(final), qrels, ["mpa"])
    with pytest.raises(ValueError, match="same queries"):
        score_lists(ShownLists(final, candidates=ranking({"other": "ab"})), qrels, ["map"])
    with pytest.raises(ValueError, match="top_k"):
        score_lists(ShownLists(final, deep=final), qrels, ["map"])


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.text("abcde", max_size=4), st.sets(st.sampled_from("abc")), st.booleans()), min_size=1),
    st.booleans(),
)
def test_losses_add_up_whoever_is_missing(rows, zero):
    lists = {str(i): list(row[0]) for i, row in enumerate(rows) if row[2] or i == 0}
    qrels = Qrels({str(i): dict.fromkeys(row[1], 1.0) for i, row in enumerate(rows)})
    scores = score_lists(ShownLists(predictions(lists)), qrels, ["modified_map@3"], missing="zero" if zero else "skip")
    assert sum(scores.losses.values()) == pytest.approx(1 - scores.summary["modified_map@3"].mean, abs=1e-12)
    assert len(scores.query_ids) == (len(rows) if zero else len(lists))


def test_the_table_of_scores_is_read_back_to_the_last_bit(tmp_path):
    qrels = Qrels({"a,1": {"d1": 1}, 'b"2': {}, "다": {"d2": 1, "d3": 1}}, abstention=True)
    final = Ranking.from_scores({'b"2': {}, "a,1": {"d2": 2.0, "d1": 1.0}, "다": {"d1": 3.0, "d4": 2.0, "d3": 1.0}})
    names = ["modified_map@3", "recall@3", "abstention_f1"]
    scores = score_lists(ShownLists(final), qrels, names, multi_turn={"다": True})
    file = tmp_path / "scores.csv"
    text = csv_text(table_columns(scores, scores))
    for _ in range(2):  # the second time from memory
        assert "".join(score_lines(scores, scores)) == text
    file.write_text(text, "utf-8")
    table = read_score_table(file)
    assert table.query_ids == scores.query_ids
    for found, expected in zip(
        (table.needs, table.multi_turn, table.public), (scores.needs, scores.multi_turn, scores.in_public), strict=True
    ):
        assert found.tolist() == expected.tolist()
    assert list(table.values) == list(table.oof) == ["modified_map@3", "recall@3"]
    for name, values in table.values.items():
        np.testing.assert_array_equal(values, scores.values[name])
        np.testing.assert_array_equal(values, table.oof[name])


# Averages of several scores


def two():
    """The scores of the same four queries, twice: withheld in the first are w and none, in the second q."""
    raw = ranking({"q": "xab", "r": "a", "w": "a", "none": "a"})
    qrels = Qrels({"q": {"a": 1, "b": 1}, "r": A, "w": A, "none": {}})
    names = ["modified_map@3", "hit@1", "hit", "abstention_accuracy", "abstention_recall", "abstention_f1"]
    for keep in np.array([[True, True, False, False], [False, True, True, True]]):
        gated = raw.where(keep)
        lists = ShownLists(gated.top(2), deep=gated, candidates=raw, keep=keep, top_k=2)
        yield score_lists(lists, qrels, names)


def test_an_average_by_hand():
    # q is [x, a] of {a, b}: 1/2 by modified_map@3 (the hits' precision over their number), then 0, withheld.
    # r is right in both; w is 0, then 1; none is 1, then 0.
    found = averaged_scores([*two()], Split(seed=0))
    nan = math.nan
    np.testing.assert_equal(
        {name: values.tolist() for name, values in found.values.items()},
        {
            "modified_map@3": [0.25, 1, 0.5, 0.5],
            "hit@1": [0, 1, 0.5, nan],
            "hit": [0.5, 1, 0.5, nan],
            "abstention_accuracy": [0.5, 1, 0.5, 0.5],
            "abstention_recall": [nan, nan, nan, 0.5],
        },
    )
    # abstention_recall counts `none` alone: 1, then 0. f1: (none right, w wrong) 2 / 3; (q wrong, none missed) 0.
    expected = {
        "modified_map@3": 2.25 / 4, "hit@1": 1.5 / 3, "hit": 2 / 3, "abstention_accuracy": 2.5 / 4,
        "abstention_recall": 1 / 2, "abstention_f1": 1 / 3,
    }  # fmt: skip
    assert means(found) == pytest.approx(expected)
    # q misses a half by its order, then all by being withheld; none is wrongly returned once.
    assert found.losses == pytest.approx(
        {"wrongly_returned": 0.5 / 4, "wrongly_withheld": 1 / 4, "not_found": 0, "misranked": 0.25 / 4}
    )
    assert found.summary["modified_map@3"].n == 4


def test_the_interval_of_an_average_is_that_of_the_averaged_queries():
    several = [*two()]
    found = averaged_scores(several, Split(seed=3))
    low, high, [note] = bootstrap_means(found.values["modified_map@3"][None], 3)
    one = found.summary["modified_map@3"]
    assert (one.low, one.high, one.note) == (low[0], high[0], note)
    for name in ("abstention_recall", "abstention_f1"):  # no mean of the same queries in both
        assert math.isnan(found.summary[name].low)
        assert "no interval" in found.summary[name].note
    for part in ("public", "private"):
        for name, summary in getattr(found, part).items():
            each = [getattr(one, part)[name] for one in several]
            assert summary.mean == pytest.approx(np.mean([one.mean for one in each]), nan_ok=True)
            assert (summary.n, math.isnan(summary.low)) == (each[0].n, True)
    some = averaged_scores(several, Split(seed=3), detailed=["hit@1"])
    assert math.isnan(some.summary["modified_map@3"].low)
    assert not math.isnan(some.summary["hit@1"].low)


# What showing documents is worth


@pytest.mark.parametrize("objective", ["modified_map@3", "modified_mrr@5", "map@2", "ndcg@10", "recall"])
@pytest.mark.parametrize("select_on", ["all", "public"])
def test_payoffs_are_the_scores_of_cut_rankings(objective, select_on):
    """Each column by `score`, as a run with a gate that shows so many of everyone's documents; measures beyond top_k
    read the whole list of whoever is shown anything."""
    generator = np.random.default_rng(5)
    lists = {f"q{i}": "".join(generator.permutation(list("abcdefgh"))[: i % 9]) for i in range(40)}
    grades = {q: {} if i % 5 == 0 else {"a": 1.0, "c": 2.0, "z": 1.0} for i, q in enumerate(lists) if i % 7}
    grades |= {"elsewhere": A}
    turns = {q: i % 3 == 0 for i, q in enumerate(lists)}
    raw, qrels = ranking(lists), Qrels(grades)
    found = payoffs(raw, qrels, objective, 3, split=Split(select_on=select_on, seed=4), multi_turn=turns)
    assert (found.values.shape, found.name) == ((40, 4), objective)
    place = {query_id: row for row, query_id in enumerate(raw.query_ids)}
    for shown in range(4):
        keep = np.full(40, shown > 0)
        cut = raw.cut(np.full(40, shown))
        lists = ShownLists(cut, deep=raw.where(keep), candidates=raw, keep=keep, top_k=3)
        scores = score_lists(lists, qrels, [objective], split=Split(seed=4), multi_turn=turns)
        rows = [place[query_id] for query_id in scores.query_ids]
        np.testing.assert_array_equal(found.values[rows, shown], scores.values[objective])
    assert np.isnan(np.delete(found.values, rows, axis=0)).all()  # what is not labelled
    counted = ~np.isnan(scores.values[objective]) & (scores.in_public if select_on == "public" else True)
    assert sorted(found.rows.tolist()) == sorted(np.array(rows)[counted].tolist())
    np.testing.assert_array_equal(found.needs[rows], scores.needs)
    if not objective.startswith("modified"):
        assert found.needs[found.rows].all(), "who needs nothing is not in the mean"


def test_payoffs_where_nothing_can_be_learnt_from():
    for name in ("abstention_accuracy", "abstention_auroc"):
        with pytest.raises(BadInput, match=f"objective={name}: a gate needs an objective that is a mean"):
            payoffs(ranking({"q": "a"}), Qrels({"q": A}), name, 3)
    assert payoffs(ranking({"none": "a"}), Qrels({"none": {}}), "map@3", 3).rows.tolist() == []
    found = payoffs(ranking({"u": "a"}), Qrels({"q": A}), "modified_map@3", 1)
    assert found.rows.tolist() == []
    assert np.isnan(found.values).all()


def test_scores_do_not_depend_on_how_many_queries_are_judged_at_a_time(monkeypatch):
    lists = ranking({f"q{n}": [f"d{(n + k) % 7}" for k in range(n % 5)] for n in range(40)})
    grades = {f"q{n}": {"d1": 1.0, f"d{n % 7}": 2.0} if n % 3 else {} for n in range(45)}
    keep = np.arange(40) % 4 > 0
    shown = ShownLists(
        lists.where(keep).top(2), lists.where(keep), lists, keep, np.arange(40.0), {"one": lists}, top_k=2
    )
    names = ["ndcg@10", "recall", "modified_map@3", "abstention_f1", "abstention_auroc", "precision_retrieved"]
    at_once, one_by_one = (
        score_lists(shown, Qrels(grades), names, missing="zero")
        for cells in (1 << 22, 1)
        if monkeypatch.setattr("harness.measures.scores.JUDGED", cells) is None
    )
    for name in vars(at_once):
        np.testing.assert_equal(getattr(one_by_one, name), getattr(at_once, name))


@pytest.mark.parametrize("places", [None, {f"d{n}": (Span("A", 10 * n, 10 * n + 15),) for n in range(6)}])
def test_scores_by_length_are_those_of_the_lists_to_the_bit(places):
    """Gates that cut the same candidates in other ways, one after the other, as the trials of a sweep do."""
    draw = np.random.default_rng(3)
    ids = [f"q{n}" for n in range(40)]
    lists = ranking({q: draw.permutation([f"d{n}" for n in range(9)])[: n % 10].tolist() for n, q in enumerate(ids)})
    grades = {q: {f"d{k}": 1.0 + k % 2 for k in range(n % 4)} for n, q in enumerate(ids) if n % 6}
    judged = {q: frozenset({"d5", "d8"}) for q in ids[::3]}
    evidence = {q: (Evidence(Span("A", n, n + 20), "x" * 20),) for n, q in enumerate(ids) if grades.get(q)}
    evidence = {} if places is None else evidence
    qrels = Qrels(grades, not_relevant=judged, pooled={"q1": frozenset({"d7"})}, places=places, evidence=evidence)
    names = [name for name in MEASURES if places or not of_spans(name)]
    names += [f"{name}@3" for name in ("ndcg", "modified_map", "precision", "ndcg_exp", "hit_upper", "map_condensed")]
    thresholds = [np.where(np.arange(40) % 7 >= threshold, 4, 0) for threshold in (0, 3, 3, 9)]
    for lengths in [*thresholds, np.arange(40) % 3, draw.integers(0, 5, 40)]:
        gated = lists.where(keep := lengths > 0)
        plain = ShownLists(lists.cut(lengths), gated, lists, keep, np.sin(np.arange(40.0)), {"one": lists}, top_k=4)
        split = Split(select_on="public")
        expected, found = (
            score_lists(one, qrels, names, split=split, detailed=["ndcg@3"])
            for one in (plain, dataclasses.replace(plain, lengths=lengths))
        )
        for name, value in vars(expected).items():
            if name in ("summary", "public", "private"):
                assert repr(getattr(found, name)) == repr(value)  # NaN is not itself
            else:
                np.testing.assert_equal(getattr(found, name), value, name)
