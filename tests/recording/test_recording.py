"""The life of a run: where its files are while it runs and afterwards, and that an outage loses nothing."""

import itertools
import json
import os
import time
from types import SimpleNamespace

import pytest

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
from harness.tracking.mlflow_client import NoAnswer, Unreachable
from harness.tracking.tracker import Input, LoggedRun, RunRecord, Tracker


class Server(Tracker):
    """A tracker that can be down. ended: [(run id, status, whether the record has a folder), ...]."""

    uri = "http://me:s3cret@server"

    def __init__(self, down=False, stored=None):
        super().__init__()
        self.down, self.stored, self.ended = down, stored, []

    def begin(self, record, adopted=None):
        if self.down:
            raise Unreachable("server: no answer")
        return "r1"

    def place(self, run_id):
        return self.stored

    def finish(self, run_id, record, status):
        if self.down:
            raise Unreachable("server: no answer")
        self.ended.append((run_id, status, record.folder is not None))


def test_a_finished_run_has_the_final_folder(tmp_path):
    server, record = Server(), RunRecord("e", "n")
    with live_run(server, record, tmp_path / "run") as live:
        assert (live.run_id, live.folder) == ("r1", tmp_path / "run.unfinished")
        (live.folder / "a.txt").write_text("a")
    assert live.folder == tmp_path / "run"
    assert [file.name for file in live.folder.iterdir()] == ["a.txt"]
    assert server.ended == [("r1", "FINISHED", True)]
    assert not record.unsent


@pytest.mark.parametrize(("error", "status"), [(ValueError("no"), "FAILED"), (KeyboardInterrupt(), "KILLED")])
def test_a_run_that_raises_keeps_its_files_and_the_traceback(tmp_path, error, status):
    server = Server()
    with pytest.raises(type(error)), live_run(server, RunRecord("e", "n"), tmp_path / "run") as live:
        raise error
    assert live.folder == tmp_path / f"run.{status.lower()}"
    assert type(error).__name__ in (live.folder / "traceback.txt").read_text("utf-8")
    assert server.ended == [("r1", status, True)]


@pytest.mark.parametrize(
    ("error", "given", "seconds"),
    [(ValueError("no"), "", ""), (KeyboardInterrupt(), "60", "5"), (KeyboardInterrupt(), "2", "2")],
)
def test_who_interrupts_does_not_wait_for_a_server_that_does_not_answer(tmp_path, monkeypatch, error, given, seconds):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", given)
    asked = []

    class Slow(Server):
        def finish(self, *arguments):
            asked.append(os.environ.get("MLFLOW_HTTP_REQUEST_TIMEOUT"))
            raise Unreachable("server: no answer")

    record = RunRecord("e", "n")
    with pytest.raises(type(error)), live_run(Slow(), record, tmp_path / "run"):
        raise error
    assert asked == [seconds]
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == given
    assert record.unsent.is_dir()


def test_a_traceback_shows_no_secret(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "token-0123456789")
    error = RuntimeError("the end")
    error.__cause__ = ValueError("Authorization: Bearer token-0123456789")
    with pytest.raises(RuntimeError), live_run(Server(), RunRecord("e", "n"), tmp_path / "run"):
        raise error
    shown = (tmp_path / "run.failed" / "traceback.txt").read_text("utf-8")
    assert "ValueError: Authorization: Bearer [key]" in shown
    assert "0123456789" not in shown


def test_files_in_the_tracking_store_stay_there(tmp_path):
    server = Server(stored=tmp_path / "artifacts")
    with live_run(server, RunRecord("e", "n"), tmp_path / "run", direct=True) as live:
        assert live.folder == tmp_path / "artifacts"
    assert server.ended == [("r1", "FINISHED", False)]
    with pytest.raises(ValueError, match="no"), live_run(server, RunRecord("e", "n"), tmp_path / "run", direct=True):
        raise ValueError("no")
    assert (tmp_path / "artifacts" / "traceback.txt").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["artifacts"]


@pytest.mark.parametrize("down_at", ["begin", "finish"])
def test_an_outage_saves_the_run(tmp_path, caplog, down_at):
    server, record = Server(down=down_at == "begin"), RunRecord("e", "n", inputs={"qrels": Input("q", "ab", "f", 3)})
    with live_run(server, record, tmp_path / "run") as live:
        (live.folder / "a.txt").write_text("a")
        server.down = True
    assert live.folder == tmp_path / "run.unsent" / "files"
    assert (live.folder / "a.txt").exists()
    assert "MLflow is unreachable (server: no answer). The run is saved in" in caplog.text
    about = json.loads((tmp_path / "run.unsent" / "record.json").read_text("utf-8"))
    assert about["run_id"] == (None if down_at == "begin" else "r1")
    assert (about["status"], about["store"]) == ("FINISHED", "http://server")
    assert outbox.read_saved(tmp_path / "run.unsent").record.inputs == record.inputs
    assert record.unsent


def test_an_error_at_the_end_does_not_hide_the_first_one(tmp_path, caplog):
    class Broken(Server):
        def finish(self, run_id, record, status):
            raise RuntimeError("second")

    with pytest.raises(ValueError, match="first"), live_run(Broken(), RunRecord("e", "n"), tmp_path / "run"):
        raise ValueError("first")
    assert "The run could not be ended as FAILED: second" in caplog.text


def test_every_run_has_a_folder_of_its_own(tmp_path):
    folders = [new_folder(tmp_path) for _ in range(3)]
    assert len(set(folders)) == 3
    assert all(folder.with_name(folder.name + ".unfinished").is_dir() for folder in folders)


class Kept(Server):
    """A tracker of one run, which is found by the claim in its tags. status: of the run."""

    uri = "sqlite:///kept"
    status = "RUNNING"

    def begin(self, record, adopted=None):
        self.tags = dict(record.tags)
        return super().begin(record, adopted)

    def runs(self, experiment, tags, status=None):
        if self.down:
            raise Unreachable("server: no answer")
        found = LoggedRun("r1", "n", experiment, self.status, {}, {}, self.tags)
        return [found] if tags.items() <= self.tags.items() else []


@pytest.fixture
def kept(tmp_path):
    server = Kept()
    server.connect(tmp_path)
    return server


def died(server, target, **named):
    """A run whose process died: it is not ended, and nobody holds its claim."""
    run = begin(server, RunRecord("e", "n"), target, **named)
    run.claim.unlock()
    return run


def claims(tmp_path):
    return list((tmp_path / ".claims").iterdir())


@pytest.mark.parametrize(("status", "ending"), [("RUNNING", ".killed"), ("FINISHED", "")])
def test_the_next_command_ends_what_a_process_that_died_has_left(kept, tmp_path, status, ending, caplog):
    run = died(kept, tmp_path / "run")
    (run.folder / "a.txt").write_text("a")
    (run.folder / ".0123.unfinished").write_text("half")
    kept.status = status
    end_abandoned(kept)
    assert kept.ended == ([("r1", "KILLED", False)] if status == "RUNNING" else [])
    assert sorted(path.name for path in tmp_path.iterdir()) == [".claims", f"run{ending}"]
    assert [path.name for path in (tmp_path / f"run{ending}").iterdir()] == ["a.txt"]
    assert claims(tmp_path) == []
    assert ("its process was stopped" in caplog.text) == (status == "RUNNING")


def test_an_empty_folder_and_one_of_a_trial_are_removed(kept, tmp_path):
    died(kept, tmp_path / "empty")
    trial = died(kept, tmp_path / "trial", direct=True)
    (trial.folder / "a.txt").write_text("a")
    end_abandoned(kept)
    assert [path.name for path in tmp_path.iterdir()] == [".claims"]


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


def test_a_run_that_ends_gives_its_claim_up(kept, tmp_path):
    with live_run(kept, RunRecord("e", "n"), tmp_path / "run"):
        assert len(claims(tmp_path)) == 1
    assert claims(tmp_path) == []
    with pytest.raises(KeyboardInterrupt), live_run(kept, RunRecord("e", "n"), tmp_path / "again"):
        raise KeyboardInterrupt
    assert claims(tmp_path) == []


@pytest.mark.parametrize("begun", [True, False])
def test_an_interruption_while_the_run_begins_leaves_nothing(kept, tmp_path, monkeypatch, begun):
    """begun: whether the store has the run already."""
    plain, folder = kept.begin, new_folder(tmp_path)

    def begin(record, adopted=None):
        plain(record, adopted)
        kept.status = "RUNNING" if begun else "absent"
        raise KeyboardInterrupt

    monkeypatch.setattr(kept, "begin", begin)
    with pytest.raises(KeyboardInterrupt), live_run(kept, RunRecord("e", "n"), folder):
        pass
    assert kept.ended == ([("r1", "KILLED", False)] if begun else [])
    assert claims(tmp_path) == []
    assert [path.name for path in tmp_path.iterdir()] == [".claims"]


def test_an_interruption_while_the_run_ends_ends_it_as_killed(kept, tmp_path, monkeypatch):
    plain, calls = kept.finish, []

    def finish(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise KeyboardInterrupt
        plain(*arguments)

    monkeypatch.setattr(kept, "finish", finish)
    with pytest.raises(KeyboardInterrupt), live_run(kept, RunRecord("e", "n"), tmp_path / "run"):
        pass
    assert kept.ended == [("r1", "KILLED", True)]
    assert (tmp_path / "run.killed").is_dir()


def test_a_full_disk_names_the_folder_and_does_not_hide_the_run(kept, tmp_path, monkeypatch):
    monkeypatch.setattr("harness.recording.recording.write_text", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full") as raised, live_run(kept, RunRecord("e", "n"), tmp_path / "run"):
        raise OSError(28, "full")
    assert raised.value.filename == str(tmp_path / "run.unfinished")
    assert kept.ended == [("r1", "FAILED", True)]


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


def test_a_run_that_could_not_be_ended_is_left_to_the_next_command(kept, tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "finish", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full"), live_run(kept, RunRecord("e", "n"), tmp_path / "run"):
        pass
    monkeypatch.undo()
    end_abandoned(kept)
    assert kept.ended == [("r1", "KILLED", False)]


def test_a_run_that_was_being_saved_when_its_process_died_is_killed_whole(kept, tmp_path):
    run = died(kept, tmp_path / "run")
    (tmp_path / "run.unsent.unfinished").mkdir()
    (tmp_path / "run.unsent.unfinished" / "record.json").write_text("{}")
    run.folder.rename(tmp_path / "run.unsent.unfinished" / "files")
    end_abandoned(kept)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".claims", "run.killed"]


def test_an_interruption_that_sqlalchemy_wraps_is_no_outage(monkeypatch):
    from mlflow.exceptions import MlflowException

    from harness import interruption
    from harness.tracking.mlflow_client import Unreachable, reaching

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


@pytest.mark.parametrize(("patience", "attempts"), [(10.0, 3), (0.0, 1)])
def test_a_server_that_is_started_again_is_waited_for(tmp_path, monkeypatch, patience, attempts):
    asked, slept = [], []

    class Restarting(Tracker):
        def connect(self, outputs):
            asked.append(outputs)
            if len(asked) < 3:
                raise NoAnswer("server: no answer")

    clock = itertools.count().__next__ if not patience else time.monotonic  # a second at each look
    monkeypatch.setattr(recording, "time", SimpleNamespace(sleep=slept.append, monotonic=clock))
    if patience:
        assert isinstance(recording.connected(Restarting(), tmp_path, patience), Restarting)
    else:
        with pytest.raises(BadInput, match="no answer"):
            recording.connected(Restarting(), tmp_path, patience)
    assert (len(asked), len(slept)) == (attempts, attempts - 1)


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
