"""Files of logged runs that were edited, removed or added: no command that reads them believes them."""

import contextlib
import shutil
from pathlib import Path

import pytest
from logged_runs import told, with_store
from text_tasks import BETTER_SCORED, CORRECTIONS, WORSE_SCORED, write_corrections

from harness import cli
from harness.analysis import full_lists
from harness.errors import BadInput
from harness.tracking.mlflow_tracker import MlflowTracker

PLAIN = ("tokenizer=whitespace", "format=json")
MADE = {
    "learnt": ("run", "gate=auto", *PLAIN),
    "fused": ("run", "retriever=hybrid_lexical", "fusion=learned", "gate=none", *PLAIN),
    "worse": WORSE_SCORED,
    "better": BETTER_SCORED,
}
UNCACHED = ("advise", "run={learnt}", "store.path=empty")  # else all is computed again from the cache
READERS = {  # what is read -> the commands that read it; {name}: the id of a run
    ("learnt", "scores.csv"): [("compare", "top=2"), ("board",), ("power", "runs=[{learnt},{fused}]"), UNCACHED],
    ("learnt", "predictions.jsonl"): [
        ("compare", "top=2"),
        ("board",),
        ("export", "run={learnt}"),
        ("reproduce", "run={learnt}", "verify_only=true"),
    ],
    ("learnt", "metrics.json"): [("export", "run={learnt}"), ("reproduce", "run={learnt}")],
    ("learnt", "config.yaml"): [
        ("compare", "top=2"),
        ("advise", "run={learnt}"),
        ("export", "run={learnt}"),
        ("reproduce", "run={learnt}"),
    ],
    ("learnt", "run.trec"): [("board",), UNCACHED],
    ("learnt", "queries.json"): [("board",)],
    ("learnt", "gate.json"): [("board",), ("export", "run={learnt}", "model=true")],
    ("fused", "fusion.json"): [("export", "run={fused}", "model=true")],
    ("better", "tallies.csv"): [("compare", *CORRECTIONS[:1], "experiment_name=e", "top=2")],
    ("better", "items.csv"): [("compare", *CORRECTIONS[:1], "experiment_name=e", "top=2")],
    ("better", "predictions.csv"): [("export", *CORRECTIONS[:1], "experiment_name=e", "run={better}")],
    ("better", "config.yaml"): [("export", *CORRECTIONS[:1], "experiment_name=e", "run={better}")],
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory, fresh_database):
    """name -> id of a run of `MADE`, in a folder that every test leaves as it was."""
    folder = with_store(tmp_path_factory.mktemp("edited"), fresh_database)
    write_corrections(folder)
    return folder, {name: done["run_id"] for name, done in zip(MADE, told(folder, *MADE.values()), strict=True)}


@pytest.fixture
def ids(made, monkeypatch):
    monkeypatch.chdir(made[0])
    return made[1]


@contextlib.contextmanager
def put_back(file):
    content = file.read_bytes()
    try:
        yield content
    finally:
        file.write_bytes(content)


def stored(run_id, name):
    [folder] = Path("outputs/artifacts").glob(f"*/{run_id}/artifacts")
    return folder / name


def said(capsys, command, *words):
    """What a command says that refuses its input."""
    capsys.readouterr()
    assert cli.call(command, [*words]) == 2
    return capsys.readouterr().err


@pytest.mark.local
@pytest.mark.parametrize(
    ("run", "name", "command"),
    [(run, name, command) for (run, name), commands in READERS.items() for command in commands],
    ids=lambda one: one if isinstance(one, str) else one[0],
)
def test_an_edited_file_is_refused_by_name(ids, capsys, run, name, command):
    words = [word.format(**ids) for word in command]
    with put_back(file := stored(ids[run], name)) as content:
        file.write_bytes(content + b" \n")
        message = said(capsys, *words)
    assert f"{name} of run {ids[run][:8]} (" in message
    assert "has changed since the run logged it" in message


@pytest.mark.local
def test_lists_that_were_reversed_are_not_pooled(ids, tmp_path):
    tracker = MlflowTracker()
    tracker.connect(Path("outputs"))
    run = tracker.run(ids["learnt"])
    with put_back(file := stored(run.run_id, "run.trec")) as content:
        file.write_bytes(b"".join(reversed(content.splitlines(keepends=True))))
        with pytest.raises(BadInput, match=r"run\.trec of run .* has changed since the run logged it"):
            full_lists._read(tracker, run, None, tmp_path)


@pytest.mark.local
@pytest.mark.parametrize("name", ["metrics.json", "run.trec", "gate.json"])
def test_a_file_that_was_removed_is_no_file_that_was_never_logged(ids, capsys, name):
    with put_back(file := stored(ids["learnt"], name)):
        file.unlink()
        command = ("export", f"run={ids['learnt']}") if name == "metrics.json" else ("board",)
        assert f"{name} of run {ids['learnt'][:8]} (bm25 · auto) is gone" in said(capsys, *command)


@pytest.mark.local
def test_a_file_that_was_added_is_not_believed(ids, capsys):
    file = stored(ids["fused"], "gate.json")
    shutil.copyfile(stored(ids["learnt"], "gate.json"), file)
    tracker = MlflowTracker()
    tracker.connect(Path("outputs"))
    with pytest.raises(BadInput, match=r"has not logged the hash of gate\.json"):
        tracker.download(tracker.run(ids["fused"]), "gate.json", Path())
    file.unlink()


@pytest.mark.slow
@pytest.mark.local
def test_a_trial_of_a_sweep_is_not_believed_either(harness, toy):
    """Its files are written where the store keeps them, and those of the best are replaced by the full ones."""
    words = (
        "dataset=contest",
        "dataset.path=toy",
        "tokenizer=whitespace",
        "gate=score",
        "gate.threshold=0,99",
        "format=json",
    )
    harness("sweep", *words)
    assert harness("board").code == 0
    for trial in Path("outputs/artifacts").glob("*/*/artifacts/scores.csv"):
        content = trial.read_bytes()
        trial.write_bytes(content.replace(b",1.0", b",0.0"))
        assert trial.read_bytes() != content
        done = harness("board")
        assert (done.code, "scores.csv of run" in done.err) == (2, True)
        trial.write_bytes(content)


@pytest.mark.local
def test_a_run_without_hashes_is_refused(ids, capsys):
    tracker = MlflowTracker()
    tracker.connect(Path("outputs"))
    tag = tracker.run(ids["learnt"]).tags["files.sha256"]
    tracker.client.delete_tag(ids["learnt"], "files.sha256")
    try:
        assert "an earlier version of the harness made the run. Make the run again." in said(capsys, "board")
        tracker.tag(ids["learnt"], {"files.sha256": "[]"})
        assert "The tag files.sha256 of run" in said(capsys, "board")
    finally:
        tracker.tag(ids["learnt"], {"files.sha256": tag})
