"""A damaged database is found at once, and named; a sound one is opened."""

import contextlib
import shutil
import sqlite3
import time
from pathlib import Path

import pytest
import sqlalchemy

from harness.errors import BadInput
from harness.tracking import mlflow_client
from harness.tracking.mlflow_client import Damaged, Unreachable, fault
from harness.tracking.mlflow_tracker import MlflowTracker
from harness.tracking.tracker import RunRecord

pytestmark = pytest.mark.local


LOCATIONS = [
    ("UPDATE experiments SET artifact_location = ?", "http://far.example:8080/a"),
    ("UPDATE runs SET artifact_uri = ?", "mlflow-artifacts://far.example/a"),
    ("UPDATE experiments SET artifact_location = ?", "ht\ntp://far.example/a"),
]


@pytest.mark.parametrize(("statement", "address"), LOCATIONS)
def test_a_database_of_a_folder_sends_files_nowhere(tracker, capsys, monkeypatch, statement, address):
    monkeypatch.setenv("HARNESS_HOSTS_NAMED", "")
    record = RunRecord("e", "first")
    tracker.finish(tracker.begin(record), record, "FINISHED")
    assert mlflow_client.addresses(tracker.database) == []
    with contextlib.closing(sqlite3.connect(tracker.database)) as connection:
        connection.execute(statement, [address])
        connection.commit()
    with pytest.raises(BadInput, match=r"keeps files of runs at far\.example.* tracking\.uri=sqlite:///"):
        MlflowTracker().connect(tracker.outputs)
    MlflowTracker(tracker.uri).connect(tracker.outputs)
    assert "Talks to far.example" in capsys.readouterr().err


def _other_program(path):
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE notes (text)")


def _folder(path):
    path.unlink()
    path.mkdir()


def _flipped(path):
    content = bytearray(path.read_bytes())
    content[100:4000] = bytes(byte ^ 0xFF for byte in content[100:4000])
    path.write_bytes(content)


HARMS = {
    "empty": (lambda path: path.write_bytes(b""), "is empty"),
    "text": (lambda path: path.write_text("hello, this is no database"), "is not a database"),
    "cut": (lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]), "is damaged"),
    "without its end": (lambda path: path.write_bytes(path.read_bytes()[:-4096]), "is damaged"),
    "flipped": (_flipped, "is damaged"),
    "folder": (_folder, "is not a file"),
    "other": (_other_program, "is not a database of MLflow"),
}


@pytest.fixture
def made(tmp_path, fresh_database):
    return shutil.copyfile(fresh_database, tmp_path / "mlflow.db")


def test_a_look_at_a_sound_database_leaves_nothing_beside_it(made):
    assert (fault(made), fault(made, thorough=True)) == (None, None)
    with contextlib.closing(sqlite3.connect(made)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    assert fault(made, thorough=True) is None
    assert [path.name for path in made.parent.iterdir()] == [made.name]
    with contextlib.closing(sqlite3.connect(made)) as connection:  # in use: the log has a table that the file lacks
        connection.execute("CREATE TABLE added (text)")
        assert fault(made, thorough=True) is None


@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_database_is_named_with_the_way_on(made, tmp_path, harm, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("it is tried again"))
    harming, said = HARMS[harm]
    harming(made)
    with pytest.raises(BadInput) as raised:
        MlflowTracker().connect(tmp_path)
    for expected in (str(made), said, str(tmp_path / "runs"), "tracking.uri=sqlite:///FILE"):
        assert expected in str(raised.value)


@pytest.mark.slow
def test_every_command_ends_with_2_and_the_message(harness, tmp_path):
    HARMS["cut"][0](tmp_path / "outputs" / "mlflow.db")
    for command in ("run", "compare", "export", "reproduce", "ui"):
        done = harness(command)
        assert (done.code, "is damaged" in done.err) == (2, True), done.err
        assert "Traceback" not in done.err
    assert not (tmp_path / "outputs" / "runs").exists()
    assert harness("doctor").code == 1


def test_a_database_that_is_damaged_during_a_run_does_not_lose_it(tracker, tmp_path):
    """Damage is BadInput for commands that read; a run that has begun takes it as an outage, and is saved."""
    record = RunRecord("e", "n")
    run_id = tracker.begin(record)
    content = bytearray((tmp_path / "outputs" / "mlflow.db").read_bytes())
    content[4096:] = bytes(len(content) - 4096)
    tracker.client._tracking_client.store.engine.dispose()
    for ending in ("-wal", "-shm"):
        (tmp_path / "outputs" / f"mlflow.db{ending}").unlink(missing_ok=True)
    (tmp_path / "outputs" / "mlflow.db").write_bytes(content)
    with pytest.raises(Unreachable, match="is damaged") as raised:
        tracker.finish(run_id, record, "FINISHED")
    assert isinstance(raised.value, Damaged)


def test_damage_that_a_look_does_not_see_is_found_by_a_check_which_has_a_limit(made, monkeypatch):
    with contextlib.closing(sqlite3.connect(made)) as connection:
        [page] = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'metrics'").fetchone()
    content = bytearray(made.read_bytes())
    content[4096 * (page - 1) : 4096 * page] = b"x" * 4096
    made.write_bytes(content)
    assert fault(made) is None
    assert "is damaged" in (fault(made, thorough=True) or "")
    monkeypatch.setattr(mlflow_client, "CHECK_SECONDS", -1.0)
    monkeypatch.setattr(mlflow_client, "STEPS", 1)
    assert fault(made, thorough=True) is None


def test_a_new_database_takes_nothing_of_one_that_was_moved_away_or_left_half_made(tmp_path, monkeypatch):
    """A leftover journal must not be applied to the next database."""
    for ending in ("-wal", ".unfinished", ".unfinished-journal"):
        (tmp_path / f"mlflow.db{ending}").write_bytes(b"of the old one")
    monkeypatch.setattr(
        mlflow_client, "open_client", lambda uri: sqlite3.connect(uri.removeprefix("sqlite:///")).close()
    )
    mlflow_client.make_database(tmp_path / "mlflow.db")
    assert [path.name for path in tmp_path.iterdir()] == ["mlflow.db"]


def test_an_interrupted_beginning_leaves_no_database(tmp_path, monkeypatch):
    def interrupted(uri):
        for ending in ("", "-journal"):
            Path(uri.removeprefix("sqlite:///") + ending).write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(mlflow_client, "open_client", interrupted)
    with pytest.raises(KeyboardInterrupt):
        mlflow_client.make_database(tmp_path / "mlflow.db")
    assert list(tmp_path.iterdir()) == []


def test_text_that_is_not_utf_8_is_damage(tmp_path):
    file = tmp_path / "mlflow.db"
    with contextlib.closing(sqlite3.connect(file)) as connection:
        for table in sorted(mlflow_client.TABLES):
            connection.execute(f"CREATE TABLE {table} (a TEXT)")
    assert fault(file) is None
    file.write_bytes(file.read_bytes().replace(b"CREATE TABLE experiments", b"CREATE TABL\xe5 experiments"))
    assert fault(file) == "is damaged (it holds text that is not UTF-8)"


@pytest.mark.parametrize("name", ["x.db", "a b/x.db", "a%20b/x.db", "a%2/x.db", "100%/x.db", "what?/x.db", "가#1/x.db"])
def test_a_file_has_a_uri_that_sqlalchemy_reads_as_the_same_file(tmp_path, name):
    uri = mlflow_client.uri_of(tmp_path / name)
    assert sqlalchemy.make_url(uri).database == str(tmp_path / name)
    assert mlflow_client.database_file(uri) == tmp_path / name


@pytest.mark.slow
def test_a_percent_encoded_uri_names_a_file_as_sqlalchemy_reads_it(tmp_path):
    uri = f"sqlite:///{tmp_path}/a%20b/x%2By.db"
    assert str(mlflow_client.database_file(uri)) == sqlalchemy.make_url(uri).database == f"{tmp_path}/a b/x+y.db"
    assert mlflow_client.database_file("http://host/sqlite:///x") is mlflow_client.database_file(None) is None
    tracker = MlflowTracker(uri)
    assert not tracker.exists(tmp_path)
    tracker.connect(tmp_path)
    assert tracker.exists(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a b"]


def test_new_databases_are_copies_of_the_first_one_that_mlflow_made(tmp_path, monkeypatch):
    def tables(database):
        with contextlib.closing(sqlite3.connect(database)) as connection:
            names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            rows = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in names}
            schema = connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
        return schema, rows

    monkeypatch.setattr(mlflow_client, "code_folder", lambda: tmp_path)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        mlflow_client.make_database(tmp_path / name / "mlflow.db")
    kept = next(tmp_path.glob("mlflow-*"))
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [kept.name]
    (schema, rows), (its_schema, its_rows) = (tables(tmp_path / name / "mlflow.db") for name in ("first", "second"))
    assert schema == its_schema
    assert [len(one.pop("experiments")) for one in (rows, its_rows, tables(kept)[1])] == [1, 1, 0]
    assert rows == its_rows
