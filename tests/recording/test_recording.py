"""The life of a run: where its files are while it runs and afterwards, and that an outage loses nothing."""

import itertools
import json
import os
from types import SimpleNamespace

import pytest
from mlflow.exceptions import MlflowException

from harness import interruption
from harness.errors import BadInput
from harness.recording import recording
from harness.recording.recording import (
    ProcessWork,
    abandoned_work,
    begin,
    claim_work,
    end_abandoned,
    live_run,
    new_folder,
    scratch_folder,
)
from harness.tracking import outbox
from harness.tracking.mlflow_client import NoAnswer, Unreachable, reaching
from harness.tracking.tracker import Input, LoggedRun, RunRecord, Tracker


class Store(Tracker):
    """A tracker of one run, which is found by the claim in its tags. down: whether calls fail. stored: its folder.

    status: of the run. errors: to raise when runs end. ended: [(run id, status, whether the record has a folder), ...].
    """

    def __init__(self, uri="http://me:s3cret@server", stored=None, errors=()):
        super().__init__()
        self.uri, self.stored, self.errors = uri, stored, list(errors)
        self.down, self.status, self.tags, self.ended = False, "RUNNING", {}, []

    def require_up(self):
        if self.down:
            raise Unreachable("server: no answer")

    def begin(self, record, adopted=None):
        self.require_up()
        self.tags = dict(record.tags)
        return "r1"

    def place(self, run_id):
        return self.stored

    def finish(self, run_id, record, status):
        self.require_up()
        if self.errors:
            raise self.errors.pop()
        self.ended.append((run_id, status, record.folder is not None))

    def runs(self, experiment, tags, status=None):
        self.require_up()
        found = LoggedRun("r1", "n", experiment, self.status, {}, {}, self.tags)
        return [found] if tags.items() <= self.tags.items() else []


@pytest.fixture
def kept(tmp_path):
    store = Store("sqlite:///kept")
    store.connect(tmp_path)
    return store


def live(store, target, **named):
    return live_run(store, RunRecord("e", "n"), target, **named)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def claims(tmp_path):
    return list((tmp_path / ".claims").iterdir())


def test_a_finished_run_has_the_final_folder_and_no_claim(kept, tmp_path):
    with live(kept, tmp_path / "run") as run:
        assert (run.run_id, run.folder, len(claims(tmp_path))) == ("r1", tmp_path / "run.unfinished", 1)
        (run.folder / "a.txt").write_text("a")
    assert (run.folder, names(run.folder)) == (tmp_path / "run", ["a.txt"])
    assert kept.ended == [("r1", "FINISHED", True)]
    assert (run.record.unsent, claims(tmp_path)) == (None, [])


@pytest.mark.parametrize(("kind", "status"), [(ValueError, "FAILED"), (KeyboardInterrupt, "KILLED")])
def test_a_run_that_raises_keeps_its_files_and_the_traceback_without_secrets(kept, tmp_path, monkeypatch, kind, status):
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "token-0123456789")
    error = kind("the end")
    error.__cause__ = RuntimeError("Authorization: Bearer token-0123456789")
    with pytest.raises(kind), live(kept, tmp_path / "run") as run:
        raise error
    assert run.folder == tmp_path / f"run.{status.lower()}"
    shown = (run.folder / "traceback.txt").read_text("utf-8")
    assert f"{kind.__name__}: the end" in shown
    assert "RuntimeError: Authorization: Bearer [key]" in shown
    assert "0123456789" not in shown
    assert (kept.ended, claims(tmp_path)) == ([("r1", status, True)], [])


@pytest.mark.parametrize(
    ("error", "given", "seconds"),
    [(ValueError("no"), "", ""), (KeyboardInterrupt(), "60", "5"), (KeyboardInterrupt(), "2", "2")],
)
def test_who_interrupts_does_not_wait_for_a_server_that_does_not_answer(tmp_path, monkeypatch, error, given, seconds):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", given)
    asked = []

    class Slow(Store):
        def finish(self, *arguments):
            asked.append(os.environ.get("MLFLOW_HTTP_REQUEST_TIMEOUT"))
            raise Unreachable("server: no answer")

    with pytest.raises(type(error)), live(Slow(), tmp_path / "run") as run:
        raise error
    assert asked == [seconds]
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == given
    assert run.record.unsent.is_dir()


def test_files_in_the_tracking_store_stay_there(tmp_path):
    store = Store(stored=tmp_path / "artifacts")
    with live(store, tmp_path / "run", direct=True) as run:
        assert run.folder == tmp_path / "artifacts"
    assert store.ended == [("r1", "FINISHED", False)]
    with pytest.raises(ValueError, match="no"), live(store, tmp_path / "run", direct=True):
        raise ValueError("no")
    assert (tmp_path / "artifacts" / "traceback.txt").exists()
    assert names(tmp_path) == ["artifacts"]


@pytest.mark.parametrize("down_at", ["begin", "finish"])
def test_an_outage_saves_the_run(tmp_path, caplog, down_at):
    store, record = Store(), RunRecord("e", "n", inputs={"qrels": Input("q", "ab", "f", 3)})
    store.down = down_at == "begin"
    with live_run(store, record, tmp_path / "run") as run:
        (run.folder / "a.txt").write_text("a")
        store.down = True
    assert run.folder == tmp_path / "run.unsent" / "files"
    assert (run.folder / "a.txt").exists()
    assert "MLflow is unreachable (server: no answer). The run is saved in" in caplog.text
    saved = outbox.read_saved(record.unsent)
    assert (saved.run_id, saved.status) == (None if down_at == "begin" else "r1", "FINISHED")
    assert (saved.store, saved.record.inputs) == ("http://server", record.inputs)


def test_an_error_at_the_end_does_not_hide_the_first_one(tmp_path, caplog):
    store = Store(errors=[RuntimeError("second")])
    with pytest.raises(ValueError, match="first"), live(store, tmp_path / "run"):
        raise ValueError("first")
    assert "The run could not be ended as FAILED: second" in caplog.text


def test_every_run_has_a_folder_of_its_own(tmp_path):
    folders = [new_folder(tmp_path) for _ in range(3)]
    assert len(set(folders)) == 3
    assert all(folder.with_name(folder.name + ".unfinished").is_dir() for folder in folders)


def died(store, target, **named):
    run = begin(store, RunRecord("e", "n"), target, **named)
    run.claim.unlock()
    return run


@pytest.mark.parametrize(("status", "ending"), [("RUNNING", ".killed"), ("FINISHED", "")])
def test_the_next_command_ends_what_a_process_that_died_has_left(kept, tmp_path, status, ending, caplog):
    run = died(kept, tmp_path / "run")
    (run.folder / "a.txt").write_text("a")
    (run.folder / ".0123.unfinished").write_text("half")
    kept.status = status
    end_abandoned(kept)
    assert kept.ended == ([("r1", "KILLED", False)] if status == "RUNNING" else [])
    assert names(tmp_path) == [".claims", f"run{ending}"]
    assert names(tmp_path / f"run{ending}") == ["a.txt"]
    assert claims(tmp_path) == []
    assert ("its process was stopped" in caplog.text) == (status == "RUNNING")


def test_an_empty_folder_and_one_of_a_trial_are_removed(kept, tmp_path):
    died(kept, tmp_path / "empty")
    trial = died(kept, tmp_path / "trial", direct=True)
    (trial.folder / "a.txt").write_text("a")
    end_abandoned(kept)
    assert names(tmp_path) == [".claims"]


def test_runs_that_live_or_belong_to_another_or_an_absent_store_wait(kept, tmp_path):
    living = begin(kept, RunRecord("e", "living"), tmp_path / "living")
    kept.uri = "sqlite:///other"
    died(kept, tmp_path / "other")
    kept.uri = "sqlite:///kept"
    end_abandoned(kept)
    assert (kept.ended, living.folder.is_dir(), len(claims(tmp_path))) == ([], True, 2)
    died(kept, tmp_path / "run")
    kept.down = True
    end_abandoned(kept)
    assert len(claims(tmp_path)) == 3
    kept.down = False
    end_abandoned(kept)
    assert kept.ended == [("r1", "KILLED", False)]


@pytest.mark.parametrize("begun", [True, False])
def test_an_interruption_while_the_run_begins_leaves_nothing(kept, tmp_path, monkeypatch, begun):
    """begun: whether the store has the run already."""
    plain, folder = kept.begin, new_folder(tmp_path)

    def begin(record, adopted=None):
        plain(record, adopted)
        kept.status = "RUNNING" if begun else "absent"
        raise KeyboardInterrupt

    monkeypatch.setattr(kept, "begin", begin)
    with pytest.raises(KeyboardInterrupt), live(kept, folder):
        pass
    assert kept.ended == ([("r1", "KILLED", False)] if begun else [])
    assert (claims(tmp_path), names(tmp_path)) == ([], [".claims"])


def test_an_interruption_while_the_run_ends_ends_it_as_killed(kept, tmp_path):
    kept.errors = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt), live(kept, tmp_path / "run"):
        pass
    assert kept.ended == [("r1", "KILLED", True)]
    assert (tmp_path / "run.killed").is_dir()


def test_a_full_disk_names_the_folder_and_does_not_hide_the_run(kept, tmp_path, monkeypatch):
    monkeypatch.setattr("harness.recording.recording.write_text", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full") as raised, live(kept, tmp_path / "run"):
        raise OSError(28, "full")
    assert raised.value.filename == str(tmp_path / "run.unfinished")
    assert kept.ended == [("r1", "FAILED", True)]


def test_a_run_that_could_not_be_ended_is_left_to_the_next_command(kept, tmp_path):
    kept.errors = [OSError(28, "full"), OSError(28, "full")]
    with pytest.raises(OSError, match="full"), live(kept, tmp_path / "run"):
        pass
    end_abandoned(kept)
    assert kept.ended == [("r1", "KILLED", False)]


def test_a_scratch_folder_goes_also_if_its_process_died(kept, tmp_path):
    with scratch_folder(tmp_path) as folder:
        (folder / "deep").mkdir()
    assert not folder.exists()
    scratch = scratch_folder(tmp_path)
    folder = scratch.__enter__()
    assert list(abandoned_work(tmp_path)) == [], "it is in use"
    (folder / "deep").mkdir()
    scratch.gen.gi_frame.f_locals["claim"].unlock()
    end_abandoned(kept)
    assert not folder.exists()
    assert claims(tmp_path) == []


@pytest.mark.parametrize(
    ("folder", "known"),
    [("outputs/runs/1", True), ("..", False), ("/", False), ("outputs", False), ("a\0", False), ("\ud800", False)],
)
def test_no_folder_outside_outputs_is_taken_for_one_that_a_dead_process_left(tmp_path, monkeypatch, folder, known):
    monkeypatch.chdir(tmp_path)
    made = claim_work(tmp_path / "outputs", ProcessWork())
    made.unlock()
    made.file.write_text(json.dumps({"folder": folder, "scratch": True}))
    found = [one.work for one in abandoned_work(tmp_path / "outputs")]
    assert found == [ProcessWork(folder, scratch=True) if known else None]


def test_a_run_that_was_being_saved_when_its_process_died_is_killed_whole(kept, tmp_path):
    run = died(kept, tmp_path / "run")
    (tmp_path / "run.unsent.unfinished").mkdir()
    (tmp_path / "run.unsent.unfinished" / "record.json").write_text("{}")
    run.folder.rename(tmp_path / "run.unsent.unfinished" / "files")
    end_abandoned(kept)
    assert names(tmp_path) == [".claims", "run.killed"]


def test_an_interruption_that_sqlalchemy_wraps_is_no_outage(monkeypatch):
    received = []
    monkeypatch.setattr(interruption, "_received", received)
    tracker = SimpleNamespace(down_until=0.0, uri="sqlite:///runs.db", database=None)

    @reaching
    def log(tracker, number):
        received.extend([number] if number else [])
        raise MlflowException("raised as a result of Query-invoked autoflush")

    with pytest.raises(KeyboardInterrupt):
        log(tracker, 15)
    assert tracker.down_until == 0, "the store is asked again, to end the run"
    with pytest.raises(Unreachable):
        log(tracker, 0)


def test_a_server_that_is_started_again_is_waited_for(tmp_path, monkeypatch):
    slept = []

    class Restarting(Tracker):
        def connect(self, outputs):
            if len(slept) < 2:
                raise NoAnswer("server: no answer")

    clock = SimpleNamespace(sleep=slept.append, monotonic=itertools.count().__next__)  # a second at each look
    monkeypatch.setattr(recording, "time", clock)
    with pytest.raises(BadInput, match="no answer"):
        recording.connected(Restarting(), tmp_path)
    assert slept == []
    assert isinstance(recording.connected(Restarting(), tmp_path, patience=10.0), Restarting)
    assert len(slept) == 2


@pytest.mark.parametrize(
    ("uri", "outputs", "words"),
    [
        (None, "outputs", ""),
        ("sqlite:///{}/outputs/mlflow.db", "outputs", ""),
        ("http://here:5000", "outputs", ""),  # as the environment has it
        ("http://there:5000", "there", " tracking.uri=http://there:5000 outputs={}/there"),
        ("http://there:5000/secret", "outputs", " tracking.uri=ADDRESS"),
    ],
)
def test_the_command_that_uploads_names_the_place(tmp_path, monkeypatch, uri, outputs, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://user:word@here:5000")
    tracker = Tracker()
    tracker.uri, tracker.outputs = uri and uri.format(tmp_path), tmp_path / outputs
    assert recording._sync_command(tracker) == f"harness doctor sync{words.format(tmp_path)}"
