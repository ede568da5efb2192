"""What lists score by people's and by a model's labels: values worked by hand, what is unjudged, the table of a run."""

import math

import numpy as np
import pytest

from harness.data.qrels import Checked, Qrels
from harness.errors import BadInput
from harness.measures import checked_values
from harness.measures.checked_values import averaged_checked, checked_table_text, read_checked_table
from harness.measures.objective import objective_of
from harness.measures.scores import ShownLists, averaged_scores, score_lists
from harness.statistics.split import Split
from harness.storage.typed import encoded
from retrievers.base import Ranking

MEASURES = ["modified_map@3", "hit@1", "mrr", "recall@2", "abstention_accuracy", "abstention_f1"]


def ranking(lists):
    """A ranking of lists by query, best first."""
    return Ranking.from_scores({query: {doc: -float(n) for n, doc in enumerate(row)} for query, row in lists.items()})


def labels(grades, none, **more):
    """Labels that say what was judged. none: query_id -> documents that are not relevant."""
    return Qrels(grades, not_relevant={one: frozenset(docs) for one, docs in none.items()}, **more)


# Four queries, of which people have checked q1 and q3. By the drafts, which the model's labels follow, q3 needs
# retrieval; by people it needs none. q9 is scored, but could not be drawn.
LISTS = {"q1": ["a", "b", "c"], "q2": ["a", "c"], "q3": ["a"], "q4": [], "q9": ["a"]}
MODEL = labels({"q1": {"a": 2.0}, "q2": {"c": 3.0}, "q3": {"a": 2.0}, "q4": {}, "q9": {"a": 2.0}}, {"q2": ["a"]})
PEOPLE = labels({"q1": {"b": 3.0}, "q3": {}}, {"q1": ["a"]})
STRATA = {"q1": "fact", "q2": "fact", "q3": "fact", "q4": "none"}
FINAL = {"q1": {"b": 3.0}, "q2": {"c": 3.0}, "q3": {}, "q4": {}, "q9": {"a": 2.0}}


def frozen(model=MODEL, people=PEOPLE, strata=STRATA, final=FINAL):
    return Qrels(final, not_relevant={}, evidence={}, places={}, checked=Checked(model, people, strata))


def scored(qrels=None, lists=LISTS, **more):
    return score_lists(ShownLists(ranking(lists)), frozen() if qrels is None else qrels, MEASURES, **more)


def test_values_by_both_sets_of_labels():
    found = scored().checked
    assert found.query_ids == ("q1", "q2", "q3", "q4")
    assert found.strata == ("fact", "fact", "fact", "none")
    assert found.checked.tolist() == [True, False, True, False]
    assert found.undrawn == 1
    # by people, b of q1 is relevant, at rank 2; q3 needs none and is shown a document. By the model, a of q1 is.
    nan = math.nan
    expected = {
        "modified_map@3": ([0.5, nan, 0.0, nan], [1.0, 0.5, 1.0, 1.0]),
        "hit@1": ([0.0, nan, nan, nan], [1.0, 0.0, 1.0, nan]),
        "mrr": ([0.5, nan, nan, nan], [1.0, 0.5, 1.0, nan]),
        "recall@2": ([1.0, nan, nan, nan], [1.0, 1.0, 1.0, nan]),
        "abstention_accuracy": ([1.0, nan, 0.0, nan], [1.0, 1.0, 1.0, 1.0]),
    }
    assert found.people.keys() == expected.keys(), "F1 is no mean of queries"
    for name, (people, model) in expected.items():
        np.testing.assert_array_equal(found.people[name], people)
        np.testing.assert_array_equal(found.model[name], model)


def unjudged(found):
    return {name: float(np.nansum(counts)) for name, counts in found.unjudged.items()}


def test_documents_that_a_measure_reads_and_nobody_has_judged():
    """c of q1 is unjudged: modified_map@3 reads it, recall@2 does not, and mrr ends at b."""
    found = scored()
    assert unjudged(found.checked) == dict.fromkeys(found.checked.people, 0) | {"modified_map@3": 1}
    assert found.checked.outside
    one = found.estimates["modified_map@3"]
    assert one.note == "no estimate: people have not judged 1 document that the measure reads for 1 checked query"
    assert (math.isnan(one.value), one.checked, one.others) == (True, 2, 2)
    # abstention_accuracy: people 1, 0; model 1, 1 in both; others 1, 1 by the model: λ = 0, so the checked mean.
    one = found.estimates["abstention_accuracy"]
    assert (one.value, one.weight, one.checked, one.others) == (0.5, 0.0, 2, 2)
    assert one.note == "no interval: people have checked fewer than 20 queries (2)"
    # Measures that skip what is unjudged, or read whole lists
    of_holes = ["ndcg_condensed@3", "bpref", "judged@3", "hit_upper@3", "precision_upper@3"]
    found = score_lists(ShownLists(ranking(LISTS)), frozen(), of_holes)
    assert unjudged(found.checked) == {"ndcg_condensed@3": 0, "bpref": 0, "hit_upper@3": 1, "precision_upper@3": 1}


def test_means_over_labels_of_both_origins_have_no_interval():
    many = {f"q{n}": ["a"] for n in range(40)}
    final = {one: ({"a": 1.0} if n % 3 else {"b": 1.0}) for n, one in enumerate(many)}
    everything = {one: ["a", "b"] for one in many}
    checked = list(many)[:30]
    qrels = frozen(
        labels(final, everything),
        labels({one: final[one] for one in checked}, everything),
        dict.fromkeys(many, ""),
        final,
    )
    for split in (Split(), Split(select_on="public")):
        found = scored(qrels, many, split=split)
        folds = averaged_scores([found, found], split)
        for one in (found, folds):
            parts = [one.summary, one.private] + [one.public] * (split.select_on == "public")
            assert all(math.isnan(summary.low) for part in parts for summary in part.values())
            objective = objective_of("hit@1", one, None, split.select_on)
            assert math.isnan(objective.low)
            inside = found.in_public if split.select_on == "public" else np.ones(40, bool)
            assert objective.estimate.checked == int(inside[:30].sum())
        assert folds.estimates["hit@1"] == found.estimates["hit@1"]
    plain = score_lists(ShownLists(ranking(many)), Qrels(final), MEASURES)
    assert plain.checked is None
    assert plain.estimates == {}
    assert plain.summary["hit@1"].low < plain.summary["hit@1"].mean
    assert "estimate" not in encoded(objective_of("hit@1", plain, None, "all"))


def test_a_query_that_only_people_find_unanswerable_counts_as_checked():
    people = labels({"q1": {"b": 3.0}}, {"q1": ["a", "c"]}, unanswerable=("q3",))
    found = scored(frozen(people=people)).checked
    assert found.checked.tolist() == [True, False, True, False]
    assert np.isnan(found.people["modified_map@3"][2])


def test_a_query_without_a_row_is_as_wrong_as_can_be():
    lists = {one: row for one, row in LISTS.items() if one != "q1"}
    found = scored(lists=lists, missing="zero").checked
    row = found.query_ids.index("q1")
    assert (found.people["mrr"][row], found.model["mrr"][row], found.unjudged["mrr"][row]) == (0, 0, 0)
    assert "q1" not in scored(lists=lists).checked.query_ids
    lacking = labels({one: grades for one, grades in MODEL.grades.items() if one != "q2"}, {})
    with pytest.raises(BadInput, match=r"1 query that people may check got no label from the model, such as 'q2'\."):
        scored(frozen(model=lacking))


def test_the_table_is_read_as_it_was_written(tmp_path):
    found, file = scored().checked, tmp_path / checked_values.FILE
    file.write_text(checked_table_text(found))
    read = read_checked_table(file)
    assert (read.query_ids, read.strata, read.checked.tolist()) == (found.query_ids, found.strata, [True, False] * 2)
    for part in ("people", "model", "unjudged"):
        for name, values in getattr(found, part).items():
            np.testing.assert_array_equal(getattr(read, part)[name], values)
    file.write_text(checked_table_text(found).replace("model/mrr", "other/mrr"))
    with pytest.raises(BadInput, match=r"checked.csv:1: there is no column 'model/mrr'"):
        read_checked_table(file)


def test_folds_are_averaged_and_keep_what_is_unjudged():
    one, other = scored().checked, scored(lists=LISTS | {"q1": ["b"]}).checked
    both = averaged_checked([one, other])
    assert both.people["modified_map@3"][0] == (0.5 + 1.0) / 2
    assert [of.unjudged["modified_map@3"][0] for of in (one, other, both)] == [1, 0, 1]
    part = one.within(["q3", "q1", "q9"])
    assert (part.query_ids, part.people["mrr"].tolist()[0]) == (("q1", "q3"), 0.5)
