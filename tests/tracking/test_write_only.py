"""tracking=csv and tracking=wandb: what they keep of a run, what they refuse, and that no other command finds it."""

import csv
import socket
import sys
import threading
from pathlib import Path

import pytest

from harness.errors import BadInput
from harness.tracking.tracker import RunRecord
from harness.tracking.write_only import CsvTracker
from retrievers.lexical.bm25 import BM25

DATA = ("dataset=contest", "dataset.path=toy", "tokenizer=char_ngram")
CSV, WANDB = ((*DATA, f"tracking={name}") for name in ("csv", "wandb"))


def rows(file="outputs/runs.csv"):
    with Path(file).open(encoding="utf-8", newline="") as table:
        return list(csv.DictReader(table))


def require_refused(harness, *words, said):
    done = harness(*words)
    assert (done.code, said in done.err, Path("outputs/runs").exists()) == (2, True, False), done.err


def test_runs_are_rows_and_new_keys_new_columns(harness, toy):
    named = ("gate=score", "gate.threshold=99", 'run_name=가,"나"', "experiment_name=e")
    first, second = (harness("run", *CSV, *words, "format=json").json for words in ((), named))
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


@pytest.mark.slow
def test_trials_and_runs_that_fail_are_rows(harness, toy, monkeypatch):
    assert harness("sweep", *CSV, "top_k=1,2").code == 0
    assert sorted(row["params.top_k"] for row in rows() if row["tags.harness.verb"] == "run") == ["1", "2"]
    monkeypatch.setattr(BM25, "search", lambda *_: (_ for _ in ()).throw(RuntimeError("out of luck")))
    assert harness("run", *CSV, "retriever.bm25.k1=1.238", "tracking.path=mine/table.csv").code == 1
    [row] = rows("mine/table.csv")
    assert (row["status"], row["folder"].rpartition(".")[2]) == ("FAILED", "failed")


def test_a_damaged_table_is_refused_before_anything_is_computed(harness, toy):
    Path("outputs/runs.csv").write_text('a,b\n"1,2\n')
    require_refused(harness, "run", *CSV, said="outputs/runs.csv:2: ")


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
    ("words", "said"),
    [
        (("runs",), "tracking=csv keeps no runs to choose from. Leave tracking out, or use tracking=mlflow."),
        (("compare",), "tracking=csv keeps no runs to compare."),
        (("doctor sync",), "tracking=csv cannot store runs."),
        (("run", *DATA[:2], "trace=all"), "leave out tracking=csv or trace."),
    ],
)
def test_commands_that_need_runs_are_refused(harness, toy, words, said):
    require_refused(harness, *words, "tracking=csv", said=said)
    for call in (CsvTracker().trace, CsvTracker().download):
        with pytest.raises(BadInput, match="tracking=csv"):
            call("", "", Path())


@pytest.mark.slow
def test_an_offline_run_has_its_config_and_summary_and_nothing_of_the_machine(harness, toy, monkeypatch):
    import wandb

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setattr(socket, "gethostname", lambda: "machine-of-mine")
    assert harness("run", *WANDB, "experiment_name=e", "run_name=first", "format=json").json["run_id"] is None
    wandb.teardown()  # as at the end of a process: W&B's own process has written all
    [stored] = Path("outputs/wandb").glob("offline-run-*/run-*.wandb")
    content = stored.read_bytes()
    for expected in (b"first", b"trial_key", b"retriever", b"modified_map@3", b"FINISHED"):
        assert expected in content
    assert b"machine-of-mine" not in content


def test_without_a_key_or_the_package_nothing_is_computed(harness, toy, tmp_path, monkeypatch):
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setattr("wandb.login", lambda **_: False)
    said = "Set the environment variable WANDB_API_KEY; or set WANDB_MODE=offline"
    require_refused(harness, "run", *WANDB, said=said)
    monkeypatch.setitem(sys.modules, "wandb", None)
    require_refused(harness, "run", *WANDB, said="tracking=wandb needs a package: pip install wandb")


@pytest.mark.parametrize("folder", ["wandb", ".wandb"])
def test_a_folder_does_not_say_where_the_key_is_sent(harness, toy, tmp_path, folder):
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "settings").write_text("[default]\nbase_url = http://theirs.example\n")
    said = f"{folder}/settings: W&B takes settings from this file, such as where it sends runs and the key"
    require_refused(harness, "run", *WANDB, said=said)
