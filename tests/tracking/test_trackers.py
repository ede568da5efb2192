"""The contract of a tracker that keeps runs, on a database and on a server: what is logged is found again."""

import functools
import json
from pathlib import Path

import pytest

from harness.analysis.ranking import Wanted, best_run
from harness.errors import BadInput
from harness.measures.objective import Objective
from harness.recording.recording import connected
from harness.tracking.file_hashes import seal
from harness.tracking.mlflow_tracker import MlflowTracker
from harness.tracking.tracker import Input, NoFile, RunRecord

RUN = {"harness.verb": "run"}


def opened_again(tmp_path):
    return connected(MlflowTracker(), tmp_path / "outputs")


def log(tracker, name="n", experiment="e", **values):
    record = RunRecord(experiment, name, tags=RUN, **values)
    run_id = tracker.begin(record)
    tracker.finish(run_id, record, "FINISHED")
    return run_id


@pytest.mark.slow
@pytest.mark.stored
def test_what_is_logged_is_found_again(tracker, tmp_path):
    (folder := tmp_path / "made").mkdir()
    (folder / "a.txt").write_text("달")
    record = RunRecord(
        "e", "이름", {"k1": 1.5, "long": "x" * 9000} | {f"p{i}": i for i in range(150)}, RUN | {"trial_key": "k"},
        {"mlflow.note.content": "[page](report.html)"}, {"ndcg@10": 0.25}, Objective("mrr", 0.5, 0.25, 0.75),
        inputs={"queries": Input("q", "5ha", "folder", 3)}, tables={"t.json": {"a": ["x", 1.5]}}, folder=folder,
    )  # fmt: skip
    run_id = tracker.begin(record)
    [running] = tracker.runs("e", RUN)
    assert (running.run_id, running.status, running.params) == (run_id, "RUNNING", {})
    seal(record, folder)
    tracker.finish(run_id, record, "FAILED")
    tracker.tag(run_id, {"reproduced": "equal"})
    [found] = tracker.runs("e", {"trial_key": "k", "reproduced": "equal"}, "FAILED")
    assert (found.run_id, found.name, found.experiment, found.status) == (run_id, "이름", "e", "FAILED")
    assert (found.params["k1"], len(found.params["long"]), len(found.params)) == ("1.5", 6000, 152)
    assert found.metrics == {"ndcg_at_10": 0.25, "objective": 0.5, "objective_low": 0.25, "objective_high": 0.75}
    assert found.objective == record.objective
    assert f"/runs/{run_id}/artifacts/report.html" in found.tags["mlflow.note.content"]
    [read] = tracker.client.get_run(run_id).inputs.dataset_inputs
    assert (read.dataset.name, read.tags[0].value) == ("q", "queries")
    (fetched := tmp_path / "fetched").mkdir()
    assert tracker.download(found, "a.txt", fetched).read_text() == "달"
    table = json.loads(tracker.download(found, "t.json", fetched).read_text())
    assert table == {"columns": ["a"], "data": [["x"], [1.5]]}
    with pytest.raises(NoFile, match=r"has no file 'b\.txt'"):
        tracker.download(found, "b.txt", fetched)
    assert (tracker.runs("e", {"trial_key": "other"}), tracker.runs("e", {}, "FINISHED"), tracker.runs("f", {})) == (
        [], [], [],
    )  # fmt: skip


@pytest.mark.stored
def test_the_two_best_runs_lead_and_the_earlier_of_equal_ones_comes_first(tracker):
    values = {"low": 0.1, "first": 0.5, "second": 0.5, "other": 0.9}
    ids = {
        name: log(tracker, name, params={"seed": int(name == "other")}, objective=Objective("mrr", value))
        for name, value in values.items()
    }
    assert [run.run_id for run in tracker.leaders("e", RUN, {"seed": 0})] == [ids["first"], ids["second"]]
    assert [run.name for run in tracker.leaders("e", RUN, {})] == ["other", "first"]
    assert tracker.leaders("e", {"harness.verb": "score"}, {}) == []


@pytest.mark.stored
def test_a_run_is_named_by_its_id_or_the_first_digits(tracker):
    log(tracker)
    run_id = log(tracker, experiment="f")
    assert (tracker.has(run_id), tracker.has("0" * 32)) == (True, False)
    assert sorted(tracker.experiments()) == ["e", "f"]
    for digits in (4, 8, 31, 32):
        assert tracker.run(run_id[:digits]).experiment == "f"
    for unknown in (run_id[:3], run_id.upper()[:8] + "x", "%", "' OR 1=1", "0123456789"):
        with pytest.raises(BadInput, match="no such run"):
            tracker.run(unknown)


@pytest.mark.stored
def test_runs_of_many_pages_are_all_read(tracker, monkeypatch):
    ids = [log(tracker) for _ in range(3)]
    plain = tracker.client.search_runs

    @functools.wraps(plain)
    def by_two(*arguments, **named):
        return plain(*arguments, **named | {"max_results": min(2, named.get("max_results", 2))})

    monkeypatch.setattr(tracker.client, "search_runs", by_two)
    assert sorted(run.run_id for run in tracker.runs("e", RUN)) == sorted(ids)


@pytest.mark.stored
def test_a_look_at_the_private_part_is_counted_for_each_experiment(tracker, tmp_path):
    looks = [("e", 1), ("e", 5), ("f", 1), ("e", 0)]
    assert [tracker.count_private_view(*one) for one in looks] == [1, 6, 1, 6]
    later = opened_again(tmp_path)
    assert later.count_private_view("e") == 7


def test_a_deleted_experiment_is_said(tracker, tmp_path):
    record = RunRecord("gone", "n")
    tracker.begin(record)
    tracker.client.delete_experiment(tracker.client.get_experiment_by_name("gone").experiment_id)
    with pytest.raises(BadInput, match="is deleted"):
        opened_again(tmp_path).begin(record)


def test_the_experiment_that_mlflow_makes_counts_once_it_has_runs(tracker):
    assert "Default" not in tracker.experiments()
    with pytest.raises(BadInput, match=r"experiment_name='e': no such experiment in .* There are no experiments yet\."):
        best_run(tracker, Wanted("e", "mrr"))
    log(tracker, experiment="Default")
    assert tracker.experiments() == ["Default"]


@pytest.mark.local
def test_files_lie_where_the_store_keeps_them_and_are_not_copied(tracker, tmp_path):
    (made := tmp_path / "made").mkdir()
    (made / "a.txt").write_text("달")
    record = RunRecord("e", "n", folder=made)
    seal(record, made)
    run_id = tracker.begin(record)
    assert tmp_path / "outputs" / "artifacts" in tracker.place(run_id).parents
    tracker.finish(run_id, record, "FINISHED")
    later = opened_again(tmp_path)
    assert later.place(run_id) is None, "it has not been read here"
    [run] = later.runs("e", {})
    assert tmp_path / "outputs" / "artifacts" in later.download(run, "a.txt", Path()).parents


def test_the_objective_is_logged_as_metrics_and_tags():
    record = RunRecord("e", "n", metrics={"mrr": 0.5}, objective=Objective("mrr", 0.5, kind="public"))
    assert record.all_metrics == {"mrr": 0.5, "objective": 0.5}  # without an interval, which it lacks
    assert record.all_end_tags == {"objective.name": "mrr", "objective.kind": "public"}
    bare = RunRecord("e", "n", metrics={"mrr": 0.5})
    assert (bare.all_metrics, bare.all_end_tags) == ({"mrr": 0.5}, {})
