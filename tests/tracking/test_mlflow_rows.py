"""Runs written straight into MLflow's tables: every row of every table is the one that MLflow's client writes."""

import dataclasses
import math
import os
import shutil
import uuid
from pathlib import Path

import mlflow
import pytest
from mlflow.exceptions import MlflowException
from sqlalchemy import create_engine, inspect, text

from harness.measures.objective import Objective
from harness.statistics.prediction_powered import Estimate
from harness.tracking import mlflow_rows
from harness.tracking.mlflow_tracker import MlflowTracker
from harness.tracking.tracker import NOTE, EndedRun, RunRecord

pytestmark = pytest.mark.local
TIMES = ("start_time", "end_time", "timestamp", "creation_time", "last_update_time")
OBJECTIVE = Objective("map@3", 0.5, 0.4, 0.6, estimate=Estimate(0.5, 0.4, 0.6, 30, 70, 0.9))
RECORDS = {
    "plain": RunRecord(
        "e",
        "gate.threshold=1 이름",
        params={
            "k": 1,
            "on": True,
            "none": None,
            "text": "가'나\"",
            "list": [1, "b"],
            "odd,name": 0.1,
            "long": "x" * 7000,
        },
        tags={"mlflow.user": "me", "sweep.id": "s", "mlflow.parentRunId": "p", "both": "first", "long": "y" * 9000},
        end_tags={"both": "second", NOTE: "See [report](report.html)", "files.sha256": "{}"},
        metrics={"ndcg@10": 0.25, "nan": math.nan, "inf": math.inf, "low": -math.inf, "whole": 3, "loss/한글": 1e-300},
        objective=OBJECTIVE,
    ),
    "nothing": RunRecord("e", "nothing"),
}


SERVER = os.environ.get("HARNESS_TEST_DATABASE")


@pytest.fixture(params=["sqlite", *(["server"] if SERVER else [])])
def tracker(tmp_path, fresh_database, request, monkeypatch):
    """tracker(bulk) -> a tracker of a database of its own, which has no experiment.

    If HARNESS_TEST_DATABASE names a database, its server makes another database for each tracker.
    """
    monkeypatch.chdir(tmp_path)  # for the files of runs, whose place a database does not know

    def connect(bulk):
        folder, uri = tmp_path / str(bulk), None
        folder.mkdir()
        if request.param == "server":
            name = f"rows{uuid.uuid4().hex}"
            with create_engine(SERVER, isolation_level="AUTOCOMMIT").connect() as connection:
                connection.execute(text(f"CREATE DATABASE {name}"))
            uri = f"{SERVER.rpartition('/')[0]}/{name}"
        else:
            shutil.copyfile(fresh_database, folder / "mlflow.db")
        made = MlflowTracker(uri, bulk=bulk)
        made.connect(folder)
        return made

    return connect


def ended(number, record, status, folder):
    (files := folder / f"files-{number}").mkdir()
    (files / "scores.csv").write_text(f"{number}\n", "utf-8")
    (files / "가 나.yaml").write_text("a: 1\n", "utf-8")
    copied = dataclasses.replace(record, folder=files, began=1000 + number, ended=2000 + number)
    return EndedRun(f"{number:032x}", status, copied)


def rows(tracker, ids):
    """Table -> its rows as text, without times, and with the names of runs in the place of their ids."""
    found, engine = {}, tracker.client._tracking_client.store.engine
    with engine.connect() as connection:
        if tracker.database:
            assert connection.execute(text("PRAGMA quick_check")).all() == [("ok",)]
            assert connection.execute(text("PRAGMA foreign_key_check")).all() == []
        for table in inspect(engine).get_table_names():
            shown = []
            for row in connection.execute(text(f"SELECT * FROM {table}")).mappings():
                line = repr({name: value for name, value in row.items() if name not in TIMES})
                for one, name in ids.items():
                    line = line.replace(one, name)
                shown.append(line)
            found[table] = sorted(shown)
    return found


def written(tracker, runs):
    ids = {}
    tracker.log_ended(runs, lambda run, run_id: ids.update({run_id: f"run {int(run.run_id, 16)}"}))
    place = tracker.client.get_experiment_by_name("e").artifact_location
    files = {
        (name, path.name): path.read_bytes()
        for run_id, name in ids.items()
        for path in Path(place.removeprefix("file://"), run_id, "artifacts").iterdir()
    }
    return rows(tracker, {place: "PLACE", **ids}), files


def test_the_rows_of_all_tables_and_the_files_are_those_of_the_client(tracker, tmp_path):
    assert mlflow_rows.KNOWN.get(mlflow.__version__), "compare this version here, then add it"
    found = []
    for bulk in (False, True):
        (folder := tmp_path / f"made {bulk}").mkdir()
        made = tracker(bulk)
        assert mlflow_rows.open_tables(made.client)
        statuses = ("FINISHED", "FAILED", "KILLED")
        runs = [
            ended(3 * n + m, record, status, folder)
            for n, record in enumerate(RECORDS.values())
            for m, status in enumerate(statuses)
        ]
        found.append(written(made, runs))
    (by_client, its_files), (straight, files) = found
    assert straight.keys() == by_client.keys()
    for table in by_client:
        assert straight[table] == by_client[table], table
    assert len(straight["metrics"]) == 3 * 14
    assert len(straight["runs"]) == 6
    assert files == its_files
    assert len(files) == 12


def test_times_are_the_records(tracker, tmp_path):
    made = tracker(True)
    made.log_ended([ended(1, RECORDS["plain"], "FINISHED", tmp_path)], lambda *_: None)
    [run] = made.client.search_runs(["1"])
    assert (run.info.start_time, run.info.end_time) == (1001, 2001)


def in_order(run):
    """A run as text, since NaN is not itself, with sorted names."""
    values = dataclasses.asdict(run).values()
    return repr([sorted(value.items()) if isinstance(value, dict) else value for value in values])


def test_runs_are_read_as_the_client_reads_them(tracker, tmp_path):
    made = tracker(True)
    statuses = ("FINISHED", "FAILED", "KILLED")
    made.log_ended([ended(n, RECORDS["plain"], one, tmp_path) for n, one in enumerate(statuses)], lambda *_: None)
    made.log_ended([ended(n, RECORDS["nothing"], "FINISHED", tmp_path) for n in (3, 4)], lambda *_: None)
    made.client.delete_run(made.runs("e", {})[0].run_id)
    made.client.set_tag(made.runs("e", {})[1].run_id, "both", "SECOND")
    for tags, status, count in (
        ({}, None, 4), ({"both": "second"}, None, 2), ({"both": "second", "sweep.id": "s"}, "FINISHED", 1),
        ({"absent": "second"}, None, 0), ({}, "RUNNING", 0), ({}, "FINISHED", 2),
    ):  # fmt: skip
        found = {}
        for made.bulk in (True, False):
            found[made.bulk] = made.runs("e", tags, status)
            assert not made.database or all(made.files.place(run.run_id) for run in found[made.bulk])
        straight, by_client = ([in_order(run) for run in runs] for runs in found.values())
        assert straight == by_client
        assert len(found[True]) == count
    assert math.isnan(found[True][1].metrics["nan"])


def test_a_group_is_written_once_and_whole(tracker, tmp_path):
    """Also after a call that was killed when the files were there, and the rows were not."""
    made, seen = tracker(True), []
    runs = [ended(n, RECORDS["plain"], "FINISHED", tmp_path) for n in range(3)]
    bad = dataclasses.replace(runs[2], record=dataclasses.replace(runs[2].record, metrics={"a" * 300: 1.0}))
    with pytest.raises(MlflowException, match="exceeds the maximum length"):
        made.log_ended([*runs[:2], bad], lambda run, _: seen.append(run))
    assert made.runs("e", {}) == seen == []
    assert [made.moved(run).name for run in runs] == ["artifacts"] * 3
    assert not any(run.record.folder.exists() for run in runs)
    made.log_ended(runs[:2], lambda *_: None)
    made.log_ended(runs, lambda *_: None)
    assert len(made.runs("e", {})) == 3


@pytest.mark.parametrize("change", ["another version", "another schema"])
def test_unknown_tables_are_left_to_the_client(tracker, tmp_path, monkeypatch, change):
    made = tracker(True)
    monkeypatch.setattr(mlflow_rows, "write_rows", lambda *_: pytest.fail("written"))
    known = {} if change == "another version" else {mlflow.__version__: "0123"}
    monkeypatch.setattr(mlflow_rows, "KNOWN", known)
    ids = []
    made.log_ended([ended(0, RECORDS["plain"], "FINISHED", tmp_path)], lambda _, run_id: ids.append(run_id))
    assert [run.run_id for run in made.runs("e", {})] == ids
