"""What ranks a run: its value and interval, and the name of its kind."""

import math

import numpy as np
import pytest

from harness.data.qrels import Qrels
from harness.measures.objective import Objective, logged_name, objective_of, score_kind
from harness.measures.scores import ShownLists, averaged_scores, score_lists
from harness.statistics.split import Split
from harness.storage.typed import encoded
from retrievers.base import Ranking

NAME = "modified_map@3"
IDS = tuple(f"q{n:02}" for n in range(40))
QRELS = Qrels({one: {"a": 1.0} for one in IDS}, abstention=True)


def scored(right, split, detailed=None):
    """The scores of lists of which the first `right` have their document."""
    docs = np.zeros((len(IDS), 1), np.int32)
    docs[right:] = 1
    ranking = Ranking(IDS, ("a", "b"), docs, np.ones(docs.shape))
    return score_lists(ShownLists(ranking), QRELS, [NAME, "hit@1", "abstention_auroc"], split=split, detailed=detailed)


@pytest.mark.parametrize("select_on", ["all", "public"])
@pytest.mark.parametrize("learnt", [False, True])
def test_value_and_interval_are_those_of_the_kind(select_on, learnt):
    split = Split(select_on=select_on)
    scores, folds = scored(30, split), averaged_scores([scored(20, split)], split) if learnt else None
    found = objective_of(NAME, scores, folds, select_on)
    read = folds or scores
    rows = scores.in_public if select_on == "public" else np.ones(len(IDS), bool)
    assert found.kind == score_kind(learnt, select_on)
    assert found.value == pytest.approx(read.values[NAME][rows].mean())
    assert found.low < found.value < found.high
    assert found.select_on == select_on


def test_the_public_part_has_intervals_only_where_it_chooses():
    assert math.isnan(scored(30, Split()).public[NAME].low)
    split = Split(select_on="public")
    whole, light = (scored(30, split, detailed) for detailed in (None, [NAME]))
    assert whole.public[NAME].low < whole.public[NAME].mean < whole.public[NAME].high
    assert objective_of(NAME, whole, None, "public") == objective_of(NAME, light, None, "public")


def test_nothing_ranks_without_labels_or_a_value():
    assert objective_of(NAME, None, None, "all") is None
    assert objective_of("abstention_auroc", scored(30, Split()), None, "all") is None


def test_names_among_the_metrics_in_json_and_in_words():
    kinds = ("in sample", "out of fold", "public", "public, out of fold")
    assert [logged_name("x", kind) for kind in kinds] == ["x", "oof/x", "public/x", "oof/public/x"]
    one = Objective("x", 0.5, kind="held out")
    assert encoded(one) == {"name": "x", "value": 0.5, "low": None, "high": None, "kind": "held out"}
    assert one.title == "x, held out"
