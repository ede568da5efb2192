"""The life of a run: where its files are while it runs and afterwards, and that an outage loses nothing."""

import json

import pytest

from harness.tracking.mlflow_client import Unreachable
from harness.tracking.recording import exit_if_unsent, live_run, new_folder
from harness.tracking.tracker import Input, NoTracker, RunRecord


class Server(NoTracker):
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
    exit_if_unsent(record)


@pytest.mark.parametrize(("error", "status"), [(ValueError("no"), "FAILED"), (KeyboardInterrupt(), "KILLED")])
def test_a_run_that_raises_keeps_its_files_and_the_traceback(tmp_path, error, status):
    server = Server()
    with pytest.raises(type(error)), live_run(server, RunRecord("e", "n"), tmp_path / "run") as live:
        raise error
    assert live.folder == tmp_path / f"run.{status.lower()}"
    assert type(error).__name__ in (live.folder / "traceback.txt").read_text("utf-8")
    assert server.ended == [("r1", status, True)]


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
    server, record = (
        Server(down=down_at == "begin"),
        RunRecord("e", "n", inputs={"qrels": Input("q", "ab", "f", 3)}),
    )
    with live_run(server, record, tmp_path / "run") as live:
        (live.folder / "a.txt").write_text("a")
        server.down = True
    assert live.folder == tmp_path / "run.unsent" / "files"
    assert (live.folder / "a.txt").exists()
    assert "MLflow is unreachable (server: no answer). The run is saved in" in caplog.text
    about = json.loads((tmp_path / "run.unsent" / "record.json").read_text("utf-8"))
    assert about["run_id"] == (None if down_at == "begin" else "r1")
    assert (about["status"], about["store"]) == ("FINISHED", "http://server")
    assert RunRecord.from_json(about["record"]).inputs == record.inputs
    with pytest.raises(SystemExit):
        exit_if_unsent(record)


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
