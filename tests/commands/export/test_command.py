"""The best run becomes a submission: chosen, validated, byte-stable, with provenance."""

import hashlib
import json
import re
from pathlib import Path

import pytest
from logged_runs import RUN, WITHHELD

from harness.commands.export.ledger import now


@pytest.fixture
def runs(logged):
    """Two runs: the first withholds everything and scores 1/3, the second is right everywhere."""
    return [done.json for done in logged(WITHHELD, RUN)]


@pytest.fixture
def run(logged):
    """The second of these alone."""
    return logged(RUN)[0].json["run_id"]


def test_the_best_run_is_exported_with_provenance(harness, runs, tmp_path):
    """Predictions that were scored later are no run, however good they are."""
    better = runs[1]
    harness("score", f"predictions={better['files']['predictions']}", *RUN[1:3], "experiment_name=e")
    found = harness("export", "experiment_name=e", "submission=best.csv", "format=json").json
    assert (found["run_id"], found["queries"]) == (better["run_id"], 3)
    assert found["value"] == better["metrics"]["modified_map@3"] == 1.0
    content = (tmp_path / "best.csv").read_bytes()
    assert content == Path(better["files"]["predictions"]).read_bytes()
    provenance = json.loads((tmp_path / "best.csv.provenance.json").read_text("utf-8"))
    assert provenance["sha256"] == found["sha256"] == hashlib.sha256(content).hexdigest()
    assert provenance["run_id"] == better["run_id"]
    assert len(provenance["made_with"]["data.documents"]) == 64


@pytest.mark.slow
def test_an_export_is_entered_in_the_ledger(harness, runs, tmp_path):
    """The same file again is no new submission, nor is it under another name; another run's predictions are."""
    worse, better = runs
    export = ("export", "experiment_name=e", "format=json")
    first = harness(*export, "submission=a.csv").json
    assert (first["number"], first["new"]) == (1, True)
    ledger = tmp_path / "outputs/submissions/ledger.jsonl"
    [line] = [json.loads(text)["export"] for text in ledger.read_text("utf-8").splitlines()]
    names = ("sha256", "run_id", "metric", "kind", "value", "low", "high")
    assert {name: line[name] for name in names} == {name: first[name] for name in names}
    assert (line["file"], line["experiment"], line["time"][-6:]) == (str(tmp_path / "a.csv"), "e", "+00:00")
    assert line["metrics"]["modified_map_at_3"] == 1.0

    assert first["written"]
    again = harness(*export, "submission=a.csv").json
    assert (again["number"], again["new"], again["written"]) == (1, False, False)
    assert len(ledger.read_text("utf-8").splitlines()) == 1
    copied = harness("export", "experiment_name=e", "submission=b.csv")
    assert f"not a new submission: the same content is submission 1 ({line['time'][:10]}" in copied.out
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    other = harness(*export, f"run={worse['run_id']}").json
    assert (other["run_id"], other["number"], other["new"]) == (worse["run_id"], 2, True)
    name = f"submission-{now()[:10]}-{worse['run_id'][:8]}.jsonl"
    assert other["submission"] == str(tmp_path / "outputs" / "submissions" / name)
    assert "(already there)" in harness("export", f"run={worse['run_id']}").out

    rows = harness("export history", "format=json").json["submissions"]
    assert [(row["run_id"], row["file"], row["state"]) for row in rows] == [
        (better["run_id"], str(tmp_path / "b.csv"), "unchanged"),
        (worse["run_id"], other["submission"], "unchanged"),
    ]


def everything(folder):
    """The files of a folder with their content, but for locks and what databases keep open."""
    files = [path for path in folder.rglob("*") if path.is_file() and "mlflow.db" not in path.name]
    return {path: path.read_bytes() for path in files if path.suffix != ".lock"}


@pytest.mark.local
def test_nothing_is_ever_overwritten(harness, runs, tmp_path, request):
    """Not what was exported, where it lay before it was moved or lies, nor a file or a provenance of anybody else."""
    worse, run = (one["run_id"] for one in runs)
    for name in ("best", "moved"):
        assert harness("export", f"run={run}", f"submission={name}.csv").code == 0
    (tmp_path / "moved.csv").rename(tmp_path / "elsewhere.csv")
    (tmp_path / "mine.csv").write_text("mine")
    (tmp_path / "alone.csv.provenance.json").write_text("{}")
    (tmp_path / "nowhere.csv").symlink_to(tmp_path / "nothing")
    before = everything(tmp_path)
    for name, why in {
        "best": "is the file of submission 1",
        "moved": "is the file of submission 1",
        "mine": "exists and has other content",
        "alone": "has a provenance file that describes another file: alone.csv.provenance.json",
        "nowhere": "exists and has other content",
    }.items():
        refused = harness("export", f"run={worse}", f"submission={name}.csv", "model=true").refusal
        assert f"{name}.csv {why}" in refused
        assert f"such as submission={name}-{worse[:8]}.csv, or leave `submission` out" in refused
    assert everything(tmp_path) == before
    tracker = request.getfixturevalue("tracker")
    assert not tracker.client.search_registered_models()
    assert "submission.file" not in tracker.run(worse).tags


@pytest.mark.local
def test_a_deleted_run_is_not_exported(harness, run, tmp_path, tracker):
    tracker.client.delete_run(run)
    before = everything(tmp_path)
    refused = harness("export", f"run={run}", "submission=a.csv").refusal
    assert re.search(f"run={run} was deleted.*mlflow runs restore --run-id {run}", refused)
    assert everything(tmp_path) == before


def test_a_crash_between_writing_and_recording(harness, run, tmp_path, monkeypatch, request):
    """The file is there, the ledger does not know it: the next command enters it, and tells its run."""

    class Crash(BaseException):
        pass

    def dies(*_):
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr("harness.storage.append_log.AppendLog._opened", dies)
        with pytest.raises(Crash):
            harness("export", "experiment_name=e", "submission=a.csv")
    assert (tmp_path / "a.csv").exists()
    assert not (tmp_path / "outputs/submissions/ledger.jsonl").exists()
    [row] = harness("export history", "format=json").json["submissions"]
    assert (row["file"], row["state"]) == (str(tmp_path / "a.csv"), "unchanged")
    assert hashlib.sha256((tmp_path / "a.csv").read_bytes()).hexdigest() == row["sha256"]
    tags = request.getfixturevalue("tracker").run(row["run_id"]).tags
    assert all(tags[f"submission.{name}"] == row[name] for name in ("sha256", "file", "time"))


def test_against_a_sample_submission(harness, run, tmp_path):
    def export(name, *ids):
        (tmp_path / "sample.csv").write_text("".join(json.dumps({"eval_id": i, "topk": []}) + "\n" for i in ids))
        return harness("export", "experiment_name=e", f"submission={name}", "against=sample.csv")

    assert export("s.csv", 7, 3, 5).code == 0
    assert "order" in export("t.csv", 3, 7, 5).refusal
    assert not (tmp_path / "t.csv").exists()


REFUSED = {
    "experiment_name=f": "no such experiment.*Known: .*e",
    "metric=ndcg@7": "no finished run of experiment 'e' has it",
    "metric=mapp": "mapp",
    "run=0123456789": "no such run",
    "submission=toy": "is a folder",
    "submission=outputs/submissions/ledger.jsonl": "is the ledger",
    "tracking=none": "keeps no runs",
}


@pytest.mark.slow
def test_what_cannot_be_exported_is_refused(harness, run):
    for word, expected in REFUSED.items():
        assert re.search(expected, harness("export", "experiment_name=e", word).refusal, re.S), word
