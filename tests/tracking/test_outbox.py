"""Runs whose tracking store is down are saved whole, and uploaded when it is back."""

import json
import os
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
from harness.tracking import mlflow_client, outbox
from harness.tracking.mlflow_tracker import MlflowTracker
from harness.tracking.outbox import hold
from harness.tracking.tracker import RunRecord, Tracker

SWEEP = ("sweep", *RUN[1:], "gate=score", "gate.threshold=0.1,1,2")


@pytest.fixture
def store(monkeypatch):
    """A store that can be taken down: store("log_batch") makes these calls fail, store() lets all through again."""
    down = set()

    def wrapped(name):
        plain = getattr(MlflowClient, name)

        def call(self, *args, **kwargs):
            if name in down:
                raise MlflowException("API request to http://... failed", TEMPORARILY_UNAVAILABLE)
            return plain(self, *args, **kwargs)

        return call

    for name in ("create_run", "log_batch", "search_runs", "set_terminated", "update_run", "set_experiment_tag"):
        monkeypatch.setattr(MlflowClient, name, wrapped(name))
    monkeypatch.setattr(mlflow_client, "AGAIN_SECONDS", 0.0)

    def take(*names):
        down.clear()
        down.update(names)

    return take


def runs(tmp_path, verb="run"):
    tracker = MlflowTracker()
    tracker.connect(tmp_path / "outputs")
    return tracker.runs("e", {"harness.verb": verb}), tracker


@pytest.mark.slow
@pytest.mark.parametrize("call", ["create_run", "log_batch", "set_terminated"])
def test_a_run_is_saved_and_uploaded_whole(harness, toy, tmp_path, store, call):
    """Whichever call the store fails at: at the beginning, while logging, at the end."""
    store(call)
    kept = harness(*RUN, "gate=score", "gate.threshold=1")
    assert kept.code == 1
    found = json.loads(kept.out)
    assert found["metrics"]["modified_map@3"] == 1.0  # the numbers are printed all the same
    [place] = (tmp_path / "outputs" / "runs").glob("*.unsent")
    assert (place / "files" / "predictions.jsonl").read_text("utf-8")
    assert found["files"]["folder"] == str(place / "files")

    still = harness("doctor sync", "format=json")
    assert (still.code, json.loads(still.out)["left"][0]["folder"]) == (1, str(place))
    store()
    sent = harness("doctor sync", "format=json").json["sent"]
    assert [(one["status"], one["name"]) for one in sent] == [("FINISHED", "bm25-char_ngram-score gate.threshold=1")]
    plain = harness(*RUN, "gate=score", "gate.threshold=1").json["run_id"]
    logged, tracker = runs(tmp_path)
    by_id = {run.run_id: run for run in logged}
    late, whole = by_id[sent[0]["run_id"]], by_id[plain]
    assert (late.status, late.params) == ("FINISHED", whole.params)
    of_time = ("seconds/", "peak_memory_mb", "ms_per_query")
    assert {k: v for k, v in late.metrics.items() if not k.startswith(of_time)} == {
        k: v for k, v in whole.metrics.items() if not k.startswith(of_time)
    }
    assert set(late.tags) == set(whole.tags)
    names = [{file.path for file in tracker.client.list_artifacts(run_id)} for run_id in by_id]
    assert names[0] == names[1]
    inputs = [tracker.client.get_run(run_id).inputs.dataset_inputs for run_id in by_id]
    assert len(inputs[0]) == len(inputs[1]) == 3
    info = tracker.client.get_run(late.run_id).info
    assert info.start_time <= info.end_time < tracker.client.get_run(plain).info.start_time  # when it ran
    assert tracker.count_private_view("e", 0) == 2  # the private scores of both have been seen
    assert harness("doctor sync", "format=json").json == {"sent": [], "left": []}
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
    [sent] = harness("doctor sync", "format=json").json["sent"]
    found = {run.run_id: run.status for run in runs(tmp_path)[0]}
    assert found.pop(sent["run_id"]) == "FINISHED"
    assert [*found.values()] == ["KILLED"]


def test_a_run_that_fails_while_its_store_is_down_is_sent_as_failed(harness, toy, tmp_path, store, monkeypatch):
    def broken(*_):
        store("log_batch")
        raise RuntimeError("no more memory")

    with monkeypatch.context() as patch:
        patch.setattr(steps, "run_steps", broken)
        assert harness(*RUN).code == 1
    store()
    [sent] = harness("doctor sync", "format=json").json["sent"]
    assert sent["status"] == "FAILED"
    [run], tracker = runs(tmp_path)
    assert run.status == "FAILED"
    assert "traceback.txt" in {file.path for file in tracker.client.list_artifacts(run.run_id)}


def test_an_upload_may_be_interrupted(harness, toy, tmp_path, store):
    """The run is made once: its id is noted before the rest is sent."""
    store("create_run")
    harness(*RUN)
    store("set_terminated")
    assert harness("doctor sync").code == 1
    store()
    assert "cannot store runs" in harness("doctor sync", "tracking=none").err
    assert harness("doctor sync").code == 0
    assert [run.status for run in runs(tmp_path)[0]] == ["FINISHED"]


def test_a_refused_call_is_no_outage(harness, toy, monkeypatch, store):
    def refuse(*_, **__):
        raise MlflowException("bad name", INVALID_PARAMETER_VALUE)

    monkeypatch.setattr(MlflowClient, "create_run", refuse)
    done = harness(*RUN)
    assert done.code == 1
    assert "bad name" in done.err
    assert not done.out


@pytest.mark.slow
def test_a_sweep_goes_on_while_its_store_is_down(harness, toy, tmp_path, store, monkeypatch):
    first = iter([True])
    plain = steps.conclude

    def conclude(*args, **named):
        if next(first, False):
            store("create_run", "log_batch", "set_terminated", "search_runs", "set_experiment_tag")
        return plain(*args, **named)

    monkeypatch.setattr(steps, "conclude", conclude)
    kept = harness(*SWEEP)
    assert kept.code == 1
    document = json.loads(kept.out)
    assert document["trials"]["finished"] == 3
    assert document["unsent"] == 4  # three trials and their parent
    assert "harness doctor sync" in kept.err
    store()
    assert len(harness("doctor sync", "format=json").json["sent"]) == 4
    trials, _ = runs(tmp_path)
    [parent], _ = runs(tmp_path, "sweep")
    assert [run.status for run in (*trials, parent)] == ["FINISHED"] * 4
    assert {run.tags["mlflow.parentRunId"] for run in trials} == {parent.run_id}
    again = harness(*SWEEP).json
    assert again["plan"]["finished_before"] == 3  # nothing is done twice


def test_a_server_that_is_still_down_is_waited_for_once_and_a_damaged_record_is_named(
    harness, toy, tmp_path, store, monkeypatch
):
    store("create_run")
    for _ in range(3):
        harness(*RUN)
    places = sorted((tmp_path / "outputs" / "runs").glob("*.unsent"))
    assert len(places) == 3
    store()
    opened = []

    def refuse(self, outputs):
        opened.append(self.uri)
        raise BadInput("cannot be used")

    with monkeypatch.context() as patch:
        patch.setattr(MlflowTracker, "connect", refuse)
        down = harness("doctor sync", "format=json")
    assert (down.code, len(opened)) == (1, 1)
    assert [one["folder"] for one in json.loads(down.out)["left"]] == [str(place) for place in places]
    (places[0] / "record.json").write_text("{")
    some = json.loads(harness("doctor sync", "format=json").out)
    assert len(some["sent"]) == 2
    assert [one["folder"] for one in some["left"]] == [str(places[0])]
    assert some["left"][0]["why"].startswith(f"{places[0] / 'record.json'} is not a saved run (JSONDecodeError: ")


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
def test_a_run_is_saved_for_a_server_that_dies_in_it(harness, toy, tmp_path, monkeypatch):
    """A real one, killed while the run is at work; user and password are saved nowhere."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    plain = steps.run_steps
    with serving(tmp_path) as (address, process):

        def run(*args):
            found = plain(*args)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return found

        monkeypatch.setattr(steps, "run_steps", run)
        kept = harness(*RUN, f"tracking.uri={address.replace('//', '//me:s3cret@')}")
    assert kept.code == 1
    assert not [path for path in (tmp_path / "outputs").rglob("*") if path.is_file() and b"s3cret" in path.read_bytes()]
    assert "s3cret" not in kept.out + kept.err
    elsewhere = harness("doctor sync")
    assert elsewhere.code == 1
    assert f"it was meant for {address}, which only the command line can name" in " ".join(elsewhere.out.split())
    down = harness("doctor sync", f"tracking.uri={address}")
    assert down.code == 1
    assert "Still unsent" in down.out


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
    assert "remove its folder to give the run up" in str(raised.value)


def test_a_saved_run_comes_back(tmp_path):
    record = RunRecord("e", "n", {"k": [1, None]}, metrics={"mrr": float("nan")}, tables={"t.json": {"a": ["x", 1.5]}})
    place = hold(Tracker(), record, run_id="r", status="KILLED", folder=tmp_path / "run")
    held = outbox.read_saved(place)
    assert (held.run_id, held.status, held.store, held.detail) == ("r", "KILLED", "", "full")
    assert repr(replace(held.record, ended=0)) == repr(record)
