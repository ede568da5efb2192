"""What a run record logs."""

from harness.measures.objective import Objective
from harness.tracking.tracker import RunRecord


def test_the_objective_is_logged_as_metrics_and_tags():
    record = RunRecord("e", "n", metrics={"mrr": 0.5}, objective=Objective("mrr", 0.5, kind="public"))
    assert record.all_metrics == {"mrr": 0.5, "objective": 0.5}  # without an interval, which it lacks
    assert record.all_end_tags == {"objective.name": "mrr", "objective.kind": "public"}
    bare = RunRecord("e", "n", metrics={"mrr": 0.5})
    assert (bare.all_metrics, bare.all_end_tags) == ({"mrr": 0.5}, {})
