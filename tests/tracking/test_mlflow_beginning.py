"""A run begins once, whatever becomes of the server's answer."""

import os
from types import SimpleNamespace

import pytest
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE, TEMPORARILY_UNAVAILABLE

from harness.tracking.mlflow_tracker import begin_once
from harness.tracking.tracker import CLAIM as TAG

CLAIM = {TAG: "host~1"}
RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"


class Server:
    """answers: what each request to make a run gets: "" for the run, or "lost", "refused", "dead"."""

    def __init__(self, *answers):
        self.answers, self.runs, self.retries = list(answers), [], []

    def create_run(self, experiment_id, start_time, run_name, tags):
        self.retries.append(os.environ.get(RETRIES))
        answer = self.answers.pop(0)
        if answer == "refused":
            raise MlflowException("a tag is too long", INVALID_PARAMETER_VALUE)
        if answer != "dead":
            self.runs.append(SimpleNamespace(info=SimpleNamespace(run_id=f"r{len(self.runs)}"), tags=tags))
        if answer:
            raise MlflowException("read timed out", TEMPORARILY_UNAVAILABLE)
        return self.runs[-1]

    def search_runs(self, experiments, wanted):
        assert wanted == f"tags.`{TAG}` = 'host~1' AND attributes.status = 'RUNNING'"
        return self.runs


@pytest.mark.parametrize(
    ("answers", "made", "doubtful"),
    [
        ([""], 1, False),
        (["lost"], 1, True),  # the run is there, and is found
        (["dead", ""], 1, True),  # the request may still be on its way to the server
    ],
)
def test_a_request_is_not_repeated_before_the_run_was_looked_for(answers, made, doubtful, monkeypatch):
    monkeypatch.setenv(RETRIES, "3")
    server = Server(*answers)
    run, found = begin_once(server, "1", "n", 5, CLAIM)
    assert (run.info.run_id, found, len(server.runs)) == ("r0", doubtful, made)
    assert server.retries == ["0", "3"][: len(answers)]
    assert os.environ[RETRIES] == "3"


def test_a_refusal_is_final_and_without_a_claim_nothing_can_be_looked_for(monkeypatch):
    monkeypatch.delenv(RETRIES, raising=False)
    with pytest.raises(MlflowException, match="too long"):
        begin_once(Server("refused"), "1", "n", 5, CLAIM)
    with pytest.raises(MlflowException, match="timed out"):
        begin_once(Server("lost"), "1", "n", 5, {})
    assert RETRIES not in os.environ
