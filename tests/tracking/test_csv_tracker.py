"""tracking=csv: a row for each run, and no other command that finds it."""

import csv
import threading
from pathlib import Path

import pytest

from harness.errors import BadInput
from harness.tracking.tracker import RunRecord
from harness.tracking.write_only import CsvTracker
from retrievers.lexical.bm25 import BM25

TOY = ("dataset=contest", "dataset.path=toy", "tokenizer=char_ngram", "tracking=csv")


def rows(file="outputs/runs.csv"):
    with Path(file).open(encoding="utf-8", newline="") as table:
        return list(csv.DictReader(table))


def test_runs_are_rows_and_new_keys_new_columns(harness, toy):
    first = harness("run", *TOY, "format=json").json
    second = harness(
        "run", *TOY, "gate=score", "gate.threshold=99", 'run_name=가,"나"', "experiment_name=e", "format=json"
    ).json
    assert (first["run_id"], second["run_id"]) == (None, None)
    one, other = rows()
    for row, found in ((one, first), (other, second)):
        assert row["status"] == "FINISHED"
        assert Path(row["folder"]) == Path(found["files"]["folder"])
        assert float(row["metrics.modified_map@3"]) == float(row["metrics.objective"]) == found["objective"]["value"]
        assert row["tags.objective.kind"] == "in sample"
        assert len(row["tags.trial_key"]) == 64
    assert (one["params.gate"], one["params.gate.threshold"]) == ("none", "")
    assert (other["params.gate"], other["params.gate.threshold"]) == ("score", "99")
    assert (other["name"], other["experiment"]) == ('가,"나"', "e")
    assert not {"tags.mlflow.note.content", "tags.harness.claim"} & {*one}


def test_a_run_that_fails_is_a_row(harness, toy, monkeypatch):
    def crash(self, queries, k):
        raise RuntimeError("out of luck")

    monkeypatch.setattr(BM25, "search", crash)
    assert harness("run", *TOY, "retriever.bm25.k1=1.238", "tracking.path=mine/table.csv").code == 1
    [row] = rows("mine/table.csv")
    assert (row["status"], row["folder"].rpartition(".")[2]) == ("FAILED", "failed")
    assert not Path("outputs/runs.csv").exists()


@pytest.mark.slow
def test_a_sweep_has_a_row_for_each_trial(harness, toy):
    assert harness("sweep", *TOY, "top_k=1,2").code == 0
    assert sorted(row["params.top_k"] for row in rows() if row["tags.harness.verb"] == "run") == ["1", "2"]


def test_a_damaged_table_is_refused_before_anything_is_computed(harness, toy):
    Path("outputs/runs.csv").write_text('a,b\n"1,2\n')
    done = harness("run", *TOY)
    assert done.code == 2
    assert "outputs/runs.csv:2: " in done.err
    assert not Path("outputs/runs").exists()


def test_many_write_at_once_and_no_row_is_lost(tmp_path):
    def write(n):
        tracker = CsvTracker()
        tracker.connect(tmp_path)
        tracker.finish(None, RunRecord("e", f"run {n}", params={f"p{n % 3}": n}), "FINISHED")

    threads = [threading.Thread(target=write, args=[n]) for n in range(20)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    found = {row["name"]: row for row in rows(tmp_path / "runs.csv")}
    assert {*found} == {f"run {n}" for n in range(20)}
    assert all(found[f"run {n}"][f"params.p{n % 3}"] == str(n) for n in range(20))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("runs",), "tracking=csv keeps no runs to choose from. Leave tracking out, or use tracking=mlflow."),
        (("compare",), "tracking=csv keeps no runs to compare."),
        (("doctor sync",), "tracking=csv cannot store runs."),
        (("run", "dataset=contest", "dataset.path=toy", "trace=all"), "leave out tracking=csv, or trace."),
    ],
)
def test_commands_that_need_runs_are_refused(harness, toy, words, message):
    done = harness(*words, "tracking=csv")
    assert done.code == 2
    assert message in done.err


def test_what_it_does_not_keep_is_refused():
    for call in (CsvTracker().trace, CsvTracker().download):
        with pytest.raises(BadInput, match="tracking=csv"):
            call("", "", Path())
