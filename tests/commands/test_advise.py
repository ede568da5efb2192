"""`harness advise`: what to try after a run."""

import shlex
import shutil

import pytest


def test_the_sample_gets_a_gate_and_a_retriever(harness, fresh_database, tmp_path):
    shutil.copyfile(fresh_database, tmp_path / "runs.db")
    words = (f"tracking.uri=sqlite:///{tmp_path}/runs.db", "experiment_name=first")
    assert harness("run", *words).code == 0
    found = harness("advise", *words, "format=json").json
    assert found["value"] == pytest.approx(0.575)
    kinds = {one["kind"]: one for one in found["advice"]}
    assert {"gate", "retriever"} <= set(kinds)
    assert kinds["gate"]["bound"] == pytest.approx(0.2)  # twelve of 60 queries need no documents, and get some
    command = shlex.split(kinds["gate"]["command"])
    assert command[:2] == ["harness", "run"]
    assert "gate=auto" in command
    done = harness(*command[1:], "format=json").json
    assert done["best_before"]["run_id"] == found["run_id"]
    after = harness("advise", *words, "format=json").json
    assert not any("gate=auto" in one["words"] and one["kind"] == "gate" for one in after["advice"])
