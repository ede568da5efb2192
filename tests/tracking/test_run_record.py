"""Run records that are saved and read back."""

import dataclasses
import json

from harness.tracking.tracker import Input, RunRecord


def test_a_saved_record_is_read_back():
    inputs = {"qrels": Input(name="toy", sha256="ab", source="labels.tsv", rows=3)}
    record = RunRecord("e", "name", metrics={"ndcg@10": 0.5}, inputs=inputs)
    assert RunRecord.from_json(json.loads(json.dumps(dataclasses.asdict(record)))) == record


def test_inputs_of_earlier_versions_are_read():
    record = RunRecord.from_json({"experiment": "e", "name": "n", "inputs": {"qrels": ["toy", "ab", "labels.tsv", 3]}})
    assert record.inputs == {"qrels": Input(name="toy", sha256="ab", source="labels.tsv", rows=3)}
