"""Run records that are saved and read back."""

import dataclasses
import json

from harness.evaluation.objective import Objective
from harness.tracking.tracker import Input, RunRecord


def test_a_saved_record_is_read_back():
    inputs = {"qrels": Input(name="toy", sha256="ab", source="labels.tsv", rows=3)}
    ranked_by = Objective("ndcg@10", 0.5, 0.25, 0.75, "out of fold")
    record = RunRecord("e", "name", metrics={"ndcg@10": 0.5}, inputs=inputs, objective=ranked_by, shows_private=True)
    assert RunRecord.from_json(json.loads(json.dumps(dataclasses.asdict(record)))) == record


def test_records_of_earlier_versions_are_read():
    plain = {"experiment": "e", "name": "n", "metrics": {"private/mrr": 0.5}}
    record = RunRecord.from_json(plain | {"inputs": {"qrels": ["toy", "ab", "labels.tsv", 3]}})
    assert record.inputs == {"qrels": Input(name="toy", sha256="ab", source="labels.tsv", rows=3)}
    assert record.shows_private
    assert record.objective is None


def test_the_objective_is_logged_as_metrics_and_tags():
    record = RunRecord("e", "n", metrics={"mrr": 0.5}, objective=Objective("mrr", 0.5, kind="public"))
    assert record.all_metrics == {"mrr": 0.5, "objective": 0.5}  # without an interval, which it lacks
    assert record.all_end_tags == {"objective.name": "mrr", "objective.kind": "public"}
    bare = RunRecord("e", "n", metrics={"mrr": 0.5})
    assert (bare.all_metrics, bare.all_end_tags) == ({"mrr": 0.5}, {})
