"""What MLflow holds of a run, and that the store survives many processes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from logged_runs import RUN
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE, TEMPORARILY_UNAVAILABLE

from harness.errors import BadInput
from harness.tracking.mlflow_client import shown_address
from harness.tracking.mlflow_tracker import MlflowTracker, begin_once
from harness.tracking.tracker import CLAIM


@pytest.fixture
def one(logged, request):
    """(a run as MLflow has it, the client, the run's JSON document)."""
    found = logged((*RUN, "gate=score", "gate.threshold=1"))[0].json
    client = request.getfixturevalue("tracker").client
    return client.get_run(found["run_id"]), client, found


def test_tags_of_a_run_are_set_in_a_batch():
    """Which MLflow tries again where two processes set a tag at once; for a single one it fails."""
    tracker, batches = MlflowTracker(), []
    tracker._client = SimpleNamespace(log_batch=lambda run_id, **found: batches.append((run_id, found["tags"])))
    tracker.tag("r1", {"reproduced": "equal", "submission": "1"})
    [(run_id, tags)] = batches
    assert (run_id, {one.key: one.value for one in tags}) == ("r1", {"reproduced": "equal", "submission": "1"})


@pytest.mark.slow
def test_params_tags_metrics_and_inputs(one):
    run, _, found = one
    params, tags, metrics = run.data.params, run.data.tags, run.data.metrics
    assert (params["retriever"], params["tokenizer"], params["gate"]) == ("bm25", "char_ngram", "score")
    assert (params["gate.threshold"], params["retriever.bm25.k1"], params["tokenizer.low"]) == ("1", "1.5", "2")
    assert not [name for name in params if "_target_" in name or "tracking" in name or "outputs" in name]
    assert tags["harness.verb"] == "run"
    assert run.info.run_name == "bm25-char_ngram-score gate.threshold=1"
    assert len(tags["trial_key"]) == len(tags["data.documents"]) == 64
    assert {"version.retrieval-harness", "version.numpy", "git.commit"} <= set(tags)
    assert metrics["modified_map_at_3"] == found["metrics"]["modified_map@3"]
    assert metrics["objective"] == found["objective"]["value"] == found["metrics"]["modified_map@3"]
    assert (tags["objective.name"], tags["objective.kind"]) == ("modified_map@3", "in sample")
    assert {"objective_low", "objective_high", "loss/misranked", "ceiling/oracle_gate", "seconds/retrieve",
            "peak_memory_mb", "index_mb", "queries/scored"} <= set(metrics)  # fmt: skip
    assert len(metrics) < 60
    assert not [name for name in metrics if "private/" in name or "interval_" in name]
    inputs = {read.tags[0].value: read for read in run.inputs.dataset_inputs}
    assert set(inputs) == {"documents", "queries", "qrels"}
    assert {tag.key: tag.value for tag in inputs["documents"].tags}["sha256"] == tags["data.documents"]


@pytest.mark.local
def test_files_and_the_table_of_queries(one, tmp_path):
    run, client, _ = one
    assert run.info.artifact_uri.startswith((tmp_path / "outputs" / "artifacts").as_uri())
    names = {file.path for file in client.list_artifacts(run.info.run_id)}
    assert names == {
        "config.yaml", "gate.png", "metrics.json", "overview.png", "predictions.jsonl", "queries.json", "report.html",
        "requirements.txt", "run.trec", "scores.csv",
    }  # fmt: skip
    table = json.loads(Path(client.download_artifacts(run.info.run_id, "queries.json")).read_text("utf-8"))
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    assert [row["query_id"] for row in rows] == ["7", "3", "5"]
    assert [row["kept"] for row in rows] == [True, True, False]
    assert [row["first_hit"] for row in rows] == [1, 1, None]
    assert json.loads(run.data.tags["mlflow.loggedArtifacts"]) == [{"path": "queries.json", "type": "table"}]


@pytest.mark.slow
def test_the_same_trial_has_the_same_key_wherever_it_writes(harness, toy, tracker):
    def key(*words):
        return tracker.run(harness(*RUN, *words).json["run_id"]).tags["trial_key"]

    assert key() == key("run_name=other", "experiment_name=f") == key(f"dataset.path={toy}")
    assert key() != key("gate=score", "gate.threshold=2")


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("http://user:secret%3A@127.0.0.1:9", "tracking.uri=http://127.0.0.1:9 cannot be used"),
        ("http://127.0.0.1:9/secret/x?key=hidden", "tracking.uri=http://127.0.0.1:9/… cannot be used"),
        ("http://user:secret@host:port", "tracking: uri is not an address"),
        ("sqlite:////proc/x", "/proc/x is in a virtual file system"),
    ],
)
def test_an_address_that_cannot_be_used_is_named_without_secrets(harness, toy, monkeypatch, uri, message):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.setenv(name, "before")  # restored afterwards
    done = harness(*RUN, f"tracking.uri={uri}")
    assert (done.code, message in done.err) == (2, True)
    assert not [secret for secret in ("secret", "hidden") if secret in done.err]
    assert os.environ["MLFLOW_TRACKING_PASSWORD"] == ("secret:" if "%3A" in uri else "before")


def test_no_other_key_repeats_the_tracking_address(harness, toy, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://user:hunter2@127.0.0.1:9")
    done = harness(*RUN, "run_name=${tracking.uri}")
    assert (done.code, done.err.startswith("run_name repeats tracking.uri")) == (2, True)
    assert "hunter2" not in done.err


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("http://user:secret@host:5000/path?key=x#y", "http://host:5000/…"),
        ("http://host:5000", "http://host:5000"),
        ("postgresql://user:secret@host:5432/x", "postgresql://host:5432/x"),
        ("sqlite:///a/b.db", "sqlite:///a/b.db"),
    ],
)
def test_passwords_are_never_shown(uri, shown):
    assert shown_address(uri) == shown


@pytest.mark.local
@pytest.mark.slow
def test_many_processes_on_a_fresh_store(tmp_path):
    """Without the lock every one of them fails, and the store stays broken."""
    code = (
        "import mlflow.tracking, multiprocessing\n"  # once for all of them
        "from pathlib import Path\nfrom harness.tracking.mlflow_tracker import MlflowTracker\n"
        "from harness.tracking.tracker import NoFile, RunRecord\n"
        "def work():\n"
        f"    tracker = MlflowTracker(); tracker.connect(Path({str(tmp_path)!r}))\n"
        "    record = RunRecord('e', 'n', metrics={'m': 1.0})\n"
        "    tracker.finish(tracker.begin(record), record, 'FINISHED')\n"
        "started = [multiprocessing.get_context('fork').Process(target=work) for _ in range(2)]\n"
        "for one in started: one.start()\n"
        "for one in started: one.join(120)\n"
        "assert [one.exitcode for one in started] == [0] * 2"
    )
    quiet = os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true"}
    assert subprocess.run([sys.executable, "-c", code], env=quiet).returncode == 0
    tracker = MlflowTracker()
    tracker.connect(tmp_path)
    assert [run.status for run in tracker.runs("e", {})] == ["FINISHED"] * 2


@pytest.mark.local
def test_a_beginning_of_several_ids_lists_them(tracker, monkeypatch):
    ids = iter(["abcd1" + "0" * 27, "abcd2" + "0" * 27])
    monkeypatch.setattr("mlflow.store.tracking.sqlalchemy_store.uuid.uuid4", lambda: SimpleNamespace(hex=next(ids)))
    for name in ("달", "물"):
        tracker.client.create_run("0", run_name=name)
    with pytest.raises(BadInput, match=r"several ids begin with these digits.*\n  abcd[12]0+ \([달물]\)\n  abcd"):
        tracker.run("abcd")
    assert tracker.run("abcd2").name == "물"


CLAIMED = {CLAIM: "host~1"}
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
        assert wanted == f"tags.`{CLAIM}` = 'host~1' AND attributes.status = 'RUNNING'"
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
    run, found = begin_once(server, "1", "n", 5, CLAIMED)
    assert (run.info.run_id, found, len(server.runs)) == ("r0", doubtful, made)
    assert server.retries == ["0", "3"][: len(answers)]
    assert os.environ[RETRIES] == "3"


def test_a_refusal_is_final_and_without_a_claim_nothing_can_be_looked_for(monkeypatch):
    monkeypatch.delenv(RETRIES, raising=False)
    with pytest.raises(MlflowException, match="too long"):
        begin_once(Server("refused"), "1", "n", 5, CLAIMED)
    with pytest.raises(MlflowException, match="timed out"):
        begin_once(Server("lost"), "1", "n", 5, {})
    assert RETRIES not in os.environ
