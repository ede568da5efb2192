"""Runs whose tracking store is down are saved whole, and uploaded when it is back."""

import json
import os
import shutil
import signal
from dataclasses import replace

import pytest
from logged_runs import RUN
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE, TEMPORARILY_UNAVAILABLE
from mlflow.tracking import MlflowClient
from mlflow_server import serving

from harness.errors import BadInput
from harness.experiment import steps
from harness.recording.recording import connected
from harness.tracking import mlflow_client, mlflow_rows, outbox
from harness.tracking.mlflow_tracker import MlflowTracker
from harness.tracking.outbox import hold
from harness.tracking.tracker import RunRecord, Tracker

SWEEP = ("sweep", *RUN[1:], "gate=score", "gate.threshold=0.1,1,2")


@pytest.fixture
def store(monkeypatch):
    """A store that can be taken down: store("log_batch") makes these calls fail, store() lets all through again."""
    down = set()

    def wrap(place, name):
        plain = getattr(place, name)

        def call(*args, **kwargs):
            if name in down:
                raise MlflowException("API request to http://... failed", TEMPORARILY_UNAVAILABLE)
            return plain(*args, **kwargs)

        monkeypatch.setattr(place, name, call)

    for name in ("create_run", "log_batch", "search_runs", "set_terminated", "update_run", "set_experiment_tag"):
        wrap(MlflowClient, name)
    wrap(mlflow_rows, "write_rows")
    monkeypatch.setattr(mlflow_client, "AGAIN_SECONDS", 0.0)

    def take(*names):
        down.clear()
        down.update(names)

    return take


def runs(tmp_path, verb="run"):
    tracker = connected(MlflowTracker(), tmp_path / "outputs")
    return tracker.runs("e", {"harness.verb": verb}), tracker


SYNC = ("doctor sync", "format=json")
GATED = (*RUN, "gate=score", "gate.threshold=1")
OF_TIME = ("seconds/", "peak_memory_mb", "ms_per_query")


@pytest.mark.slow
@pytest.mark.parametrize("call", ["create_run", "log_batch", "set_terminated"])
def test_a_run_is_saved_and_uploaded_whole(harness, toy, tmp_path, store, call):
    """Whichever call the store fails at: at the beginning, while logging, at the end."""
    store(call)
    kept = harness(*GATED)
    found = json.loads(kept.out)
    assert (kept.code, found["metrics"]["modified_map@3"]) == (1, 1.0), "the numbers are printed all the same"
    [place] = (tmp_path / "outputs" / "runs").glob("*.unsent")
    assert (place / "files" / "predictions.jsonl").read_text("utf-8")
    assert found["files"]["folder"] == str(place / "files")

    still = harness(*SYNC)
    assert (still.code, json.loads(still.out)["left"][0]["folder"]) == (1, str(place))
    store()
    [sent] = harness(*SYNC).json["sent"]
    assert (sent["status"], sent["name"]) == ("FINISHED", "bm25-char_ngram-score gate.threshold=1")
    assert harness(*GATED).code == 0
    (whole, late), tracker = runs(tmp_path)
    assert (late.run_id, late.status, late.params) == (sent["run_id"], "FINISHED", whole.params)
    metrics = [{k: v for k, v in run.metrics.items() if not k.startswith(OF_TIME)} for run in (whole, late)]
    assert metrics[0] == metrics[1]
    assert set(late.tags) == set(whole.tags)
    names = [{file.path for file in tracker.client.list_artifacts(run.run_id)} for run in (whole, late)]
    assert names[0] == names[1]
    first, second = (tracker.client.get_run(run.run_id) for run in (late, whole))
    assert len(first.inputs.dataset_inputs) == len(second.inputs.dataset_inputs) == 3
    assert first.info.start_time <= first.info.end_time < second.info.start_time  # when it ran
    assert tracker.count_private_view("e", 0) == 2  # the private scores of both have been seen
    assert harness(*SYNC).json == {"sent": [], "left": []}
    assert not list((tmp_path / "outputs").rglob("*.unsent"))
    assert len(list((tmp_path / "outputs" / "runs").iterdir())) == 2


def test_a_run_that_began_without_an_answer_is_uploaded_as_that_run(harness, toy, tmp_path, store, monkeypatch):
    """A server that is killed after it has made the run, before its answer is sent. It may have made a second one."""
    plain = MlflowClient.create_run

    def unanswered(self, *args, **kwargs):
        plain(self, *args, **kwargs)
        store("search_runs")
        raise MlflowException("API request to http://... failed", TEMPORARILY_UNAVAILABLE)

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "create_run", unanswered)
        assert harness(*RUN).code == 1
    store()
    [begun], tracker = runs(tmp_path)
    assert begun.status == "RUNNING"
    plain(tracker.client, tracker.client.get_run(begun.run_id).info.experiment_id, tags=begun.tags)
    [sent] = harness(*SYNC).json["sent"]
    found = {run.run_id: run.status for run in runs(tmp_path)[0]}
    assert found.pop(sent["run_id"]) == "FINISHED"
    assert [*found.values()] == ["KILLED"]


def test_a_run_that_fails_while_its_store_is_down_is_sent_as_failed_and_once(
    harness, toy, tmp_path, store, monkeypatch
):
    """The run is made once also if its upload is interrupted: its id is noted before the rest is sent."""

    def broken(*_):
        store("log_batch")
        raise RuntimeError("no more memory")

    with monkeypatch.context() as patch:
        patch.setattr(steps, "run_steps", broken)
        assert harness(*RUN).code == 1
    store("set_terminated")
    assert harness(*SYNC).code == 1
    store()
    assert "cannot store runs" in harness(*SYNC, "tracking=none").err
    [sent] = harness(*SYNC).json["sent"]
    [run], tracker = runs(tmp_path)
    assert run.status == sent["status"] == "FAILED"
    assert "traceback.txt" in {file.path for file in tracker.client.list_artifacts(run.run_id)}


def test_a_refused_call_is_no_outage(harness, toy, monkeypatch, store):
    refused = MlflowException("bad name", INVALID_PARAMETER_VALUE)
    monkeypatch.setattr(MlflowClient, "create_run", lambda *_, **__: (_ for _ in ()).throw(refused))
    done = harness(*RUN)
    assert (done.code, "bad name" in done.err, done.out) == (1, True, "")


@pytest.mark.slow
def test_a_sweep_goes_on_while_its_store_is_down(harness, toy, tmp_path, store, monkeypatch):
    plain = steps.conclude

    def conclude(*args, **named):
        store("create_run", "log_batch", "set_terminated", "search_runs", "set_experiment_tag", "write_rows")
        return plain(*args, **named)

    with monkeypatch.context() as patch:
        patch.setattr(steps, "conclude", conclude)
        kept = harness(*SWEEP)
    document = json.loads(kept.out)
    assert (kept.code, document["trials"]["finished"], document["unsent"]) == (1, 3, 4)  # three trials and their parent
    assert "harness doctor sync" in kept.err
    store()
    assert len(harness(*SYNC).json["sent"]) == 4
    trials, _ = runs(tmp_path)
    [parent], _ = runs(tmp_path, "sweep")
    assert [run.status for run in (*trials, parent)] == ["FINISHED"] * 4
    assert {run.tags["mlflow.parentRunId"] for run in trials} == {parent.run_id}
    assert harness(*SWEEP).json["plan"]["finished_before"] == 3  # nothing is done twice


@pytest.mark.slow
def test_a_sweep_uploads_its_saved_trials_when_it_is_started_again(harness, toy, tmp_path, store, monkeypatch):
    plain = steps.conclude

    def conclude(*args, **named):
        store("create_run", "log_batch", "write_rows")
        return plain(*args, **named)

    with monkeypatch.context() as patch:
        patch.setattr(steps, "conclude", conclude)
        assert harness(*SWEEP).code == 1
    store()
    again = harness(*SWEEP).json
    assert (again["plan"]["finished_before"], again["trials"]["finished"]) == (3, 3)
    assert [run.status for run in runs(tmp_path)[0]] == ["FINISHED"] * 3
    assert not list((tmp_path / "outputs" / "sweeps").glob("*/trials/*"))


def test_a_server_that_is_still_down_is_waited_for_once_and_a_damaged_record_is_named(
    harness, toy, tmp_path, store, monkeypatch
):
    store("create_run")
    for _ in range(3):
        harness(*RUN)
    store()
    places = sorted((tmp_path / "outputs" / "runs").glob("*.unsent"))
    opened = []

    def refuse(self, outputs):
        opened.append(self.uri)
        raise BadInput("cannot be used")

    with monkeypatch.context() as patch:
        patch.setattr(MlflowTracker, "connect", refuse)
        down = harness(*SYNC)
    assert (down.code, len(opened), len(places)) == (1, 1, 3)
    assert [one["folder"] for one in json.loads(down.out)["left"]] == [str(place) for place in places]
    (places[0] / "record.json").write_text("{")
    some = json.loads(harness(*SYNC).out)
    [left] = some["left"]
    assert (len(some["sent"]), left["folder"]) == (2, str(places[0]))
    assert left["why"].startswith(f"{places[0] / 'record.json'} is not a saved run (JSONDecodeError: ")


@pytest.mark.slow
def test_a_run_goes_to_the_store_it_was_meant_for(harness, toy, tmp_path, store):
    store("create_run")
    harness(*RUN, "tracking.uri=sqlite:///other.db")
    store()
    [place] = (tmp_path / "outputs" / "runs").glob("*.unsent")
    assert json.loads((place / "record.json").read_text("utf-8"))["store"] == f"sqlite:///{tmp_path / 'other.db'}"
    assert "it was meant for sqlite:///" in harness("doctor sync").out
    harness("doctor sync", "tracking.uri=sqlite:///third.db")
    third = MlflowTracker("sqlite:///third.db")
    third.connect(tmp_path)
    assert len(third.runs("e", {})) == 1


@pytest.mark.slow
def test_a_run_is_saved_for_a_server_that_dies_in_it(harness, toy, tmp_path, monkeypatch, fresh_database):
    """A real one, killed while the run is at work; user and password are saved nowhere."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    plain = steps.run_steps
    shutil.copyfile(fresh_database, tmp_path / "server.db")
    with serving(tmp_path) as (address, process):

        def run(*args):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return plain(*args)

        monkeypatch.setattr(steps, "run_steps", run)
        kept = harness(*RUN, f"tracking.uri={address.replace('//', '//me:s3cret@')}")
    assert kept.code == 1
    assert not [path for path in (tmp_path / "outputs").rglob("*") if path.is_file() and b"s3cret" in path.read_bytes()]
    assert "s3cret" not in kept.out + kept.err
    elsewhere = harness("doctor sync")
    assert elsewhere.code == 1
    assert f"it was meant for {address}. Only the command line can name this address" in " ".join(elsewhere.out.split())
    down = harness("doctor sync", f"tracking.uri={address}")
    assert (down.code, "Still unsent" in down.out) == (1, True)


def test_a_full_disk_leaves_the_files_where_they_were(tmp_path, monkeypatch):
    (folder := tmp_path / "run.unfinished").mkdir()
    (folder / "a.txt").write_text("a")
    monkeypatch.setattr("harness.tracking.outbox.write_text", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full"):
        hold(Tracker(), RunRecord("e", "n", folder=folder), run_id="r", status="FINISHED", folder=tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["run.unfinished"]
    assert [path.name for path in folder.iterdir()] == ["a.txt"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"status": "DONE"}, "status is 'DONE', but must be FINISHED, FAILED or KILLED"),
        ({"record.folder": "/etc"}, "record.folder is '/etc', but must be left out or null"),
        ({"record.name": "\ud800"}, " is not a saved run (UnicodeEncodeError"),
    ],
)
def test_a_damaged_record_names_its_field(tmp_path, change, message):
    place = hold(Tracker(), RunRecord("e", "n"), run_id=None, status="FAILED", folder=tmp_path / "run")
    content = json.loads((place / outbox.RECORD).read_text("utf-8"))
    for key, value in change.items():
        (content["record"] if "." in key else content)[key.removeprefix("record.")] = value
    (place / outbox.RECORD).write_text(json.dumps(content), "utf-8")
    with pytest.raises(BadInput) as raised:
        outbox.read_saved(place)
    assert f"record.json{'' if message.startswith(' ') else ': '}{message}" in str(raised.value)
    assert "remove its folder to give up the run" in str(raised.value)


def test_a_saved_run_comes_back(tmp_path):
    record = RunRecord("e", "n", {"k": [1, None]}, metrics={"mrr": float("nan")}, tables={"t.json": {"a": ["x", 1.5]}})
    place = hold(Tracker(), record, run_id="r", status="KILLED", folder=tmp_path / "run")
    held = outbox.read_saved(place)
    assert (held.run_id, held.status, held.store, held.detail) == ("r", "KILLED", "", "full")
    assert repr(replace(held.record, ended=0)) == repr(record)
