"""The ledger of submissions: nothing is lost, doubled or merged, wherever a process dies."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest

from harness.commands.export import ledger as export_ledger
from harness.commands.export.ledger import Export, LeaderboardAnswer, Ledger, now, provenance_of
from harness.errors import BadInput
from harness.storage.append_log import AppendLog
from harness.tracking.mlflow_client import Unreachable
from harness.tracking.tracker import LoggedRun


class Store:
    """A tracking store: the tags and metrics of its runs, by run id."""

    def __init__(self, *run_ids):
        self.tags = {run_id: {} for run_id in run_ids}
        self.metrics = {run_id: {} for run_id in run_ids}
        self.calls = 0
        self.down = False

    def run(self, run_id):
        if self.down:
            raise Unreachable("http://127.0.0.1:1 does not answer")
        if run_id not in self.tags:
            raise BadInput(f"run={run_id}: no such run")
        return LoggedRun(run_id, "name", "e", "FINISHED", self.metrics[run_id], {}, self.tags[run_id])

    def log(self, run_id, record):
        self.calls += 1
        self.tags[run_id] |= record.end_tags
        self.metrics[run_id] |= record.metrics


class Crash(BaseException):
    """What no handler catches, as if the process had been killed."""


def export_line(file, text, run="r1"):
    digest = sha256(text.encode()).hexdigest()
    return Export(now(), digest, str(file), run, f"name of {run}", "e", "mrr")


def exported(ledger, store, file, text, run="r1"):
    """The steps of `harness export`."""
    line = export_line(file, text, run)
    with ledger.locked():
        ledger.settle(store)
        ledger.require_free(line)
        ledger.export(line, text, '{"sha256": "' + line.sha256 + '"}\n')
        ledger.settle(store)
    return line.sha256


def answered(ledger, store, digest, **scores):
    with ledger.locked():
        ledger.settle(store)
        ledger.answer(LeaderboardAnswer(now(), digest, "", **scores))
        ledger.settle(store)


def settled(ledger, store):
    with ledger.locked():
        ledger.settle(store)
    assert not list(ledger.pending.iterdir())
    return ledger.submissions()


def lines(ledger):
    """The steps in the ledger's file."""
    text = ledger.file.read_text("utf-8") if ledger.file.exists() else ""
    return [row["export"] or row["answer"] for row in map(json.loads, text.splitlines())]


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "submissions")


def test_the_same_content_is_one_submission(ledger, tmp_path):
    """The same file again adds no line; a copy and another run that predicts the same add one, but no submission."""
    store = Store("r1", "r2")
    for name, run in (("a.csv", "r1"), ("a.csv", "r1"), ("b.csv", "r1"), ("c.csv", "r2")):
        digest = exported(ledger, store, tmp_path / name, "same", run)
    exported(ledger, store, tmp_path / "d.csv", "other", "r1")
    assert [(line["file"][-5:], line["run_id"]) for line in lines(ledger)] == [
        ("a.csv", "r1"), ("b.csv", "r1"), ("c.csv", "r2"), ("d.csv", "r1"),
    ]  # fmt: skip
    assert [one.number for one in ledger.submissions().values()] == [1, 2]
    assert json.loads(provenance_of(tmp_path / "a.csv").read_text())["sha256"] == digest
    answered(ledger, store, digest, public=0.5)
    answered(ledger, store, digest, private=0.4)
    answered(ledger, store, digest, public=0.6)
    assert ledger.submissions()[digest].answers == {"public": 0.6, "private": 0.4}
    scores = {"leaderboard/public": 0.6, "leaderboard/private": 0.4}
    assert store.metrics == {"r1": scores, "r2": scores}


def dies(*_):
    raise Crash


def tears(log, file, text):
    os.write(file, text[:50])
    raise Crash


def dies_at(n):
    """A create_text that dies before the n-th file that it is asked for."""
    asked = iter(range(1, n + 1))

    def write(path, text):
        if next(asked) == n:
            raise Crash
        path.write_text(text, "utf-8")
        return True

    return write


def dies_in_pending(path, missing_ok=False):
    if path.parent.name == "pending" and path.suffix == ".json":
        raise Crash
    if path.exists() or not missing_ok:
        os.unlink(path)  # noqa: PTH108


# Where a process dies -> what is patched, and whether what it was doing counts afterwards. An export writes the pending
# step and creates two files, the submission and its provenance; an answer writes the first alone.
STEPS = {
    "before anything": (export_ledger, "write_text", dies, False),
    "before the file": (export_ledger, "create_text", 1, False),
    "before the provenance": (export_ledger, "create_text", 2, True),
    "before the line": (AppendLog, "_line", dies, True),
    "in the line": (AppendLog, "_write", tears, True),
    "before the tags": (Store, "run", dies, True),
    "before the metrics": (Store, "log", dies, True),
    "before the step is closed": (Path, "unlink", dies_in_pending, True),
}


def crashed(monkeypatch, step, command, *words, **scores):
    where, name, instead, counts = STEPS[step]
    with monkeypatch.context() as patch:
        patch.setattr(where, name, dies_at(instead) if name == "create_text" else instead)
        with pytest.raises(Crash):
            command(*words, **scores)
    return counts


def test_another_process_takes_the_name_first(ledger, tmp_path, monkeypatch, caplog):
    """Between looking and writing: its file stays, and ours is refused and forgotten, unless the content is ours."""
    monkeypatch.setattr(Ledger, "require_free", lambda self, line: Path(line.file).write_text("theirs"))
    with pytest.raises(BadInput, match="now exists and has other content"):
        exported(ledger, Store("r1"), tmp_path / "a.csv", "ours")
    assert (tmp_path / "a.csv").read_text() == "theirs"
    assert not settled(ledger, Store("r1"))
    assert not caplog.text
    assert exported(ledger, Store("r1"), tmp_path / "a.csv", "theirs") in ledger.submissions()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("earlier", [0, 1], ids=["first", "second"])
def test_a_crash_at_any_step_of_an_export_is_put_in_order(ledger, tmp_path, monkeypatch, step, earlier):
    store = Store("r0", "r1")
    if earlier:
        exported(ledger, store, tmp_path / "earlier.csv", "earlier", "r0")
    before = lines(ledger)
    counts = crashed(monkeypatch, step, exported, ledger, store, tmp_path / "a.csv", "달", "r1")
    found = settled(ledger, store)
    assert lines(ledger)[:earlier] == before
    assert len(lines(ledger)) == len(found) == earlier + counts
    assert provenance_of(tmp_path / "a.csv").exists() == (tmp_path / "a.csv").exists() == counts
    assert bool(store.tags["r1"]) == counts
    exported(ledger, store, tmp_path / "a.csv", "달", "r1")  # again, as a person would
    assert len(lines(ledger)) == len(ledger.submissions()) == earlier + 1
    assert store.tags["r1"]["submission.file"] == str(tmp_path / "a.csv")


@pytest.mark.parametrize("step", [step for step in STEPS if step not in ("before the file", "before the provenance")])
def test_a_crash_at_any_step_of_an_answer_is_put_in_order(ledger, tmp_path, monkeypatch, step):
    store = Store("r1")
    digest = exported(ledger, store, tmp_path / "a.csv", "달")
    counts = crashed(monkeypatch, step, answered, ledger, store, digest, public=0.81)
    assert settled(ledger, store)[digest].answers == ({"public": 0.81} if counts else {})
    assert store.metrics["r1"] == ({"leaderboard/public": 0.81} if counts else {})
    assert len(lines(ledger)) == 1 + counts


def test_exports_at_the_same_time_wait_for_each_other(ledger, tmp_path):
    names = [f"{n}.csv" for n in range(8)]
    store = Store(*names)
    with ThreadPoolExecutor(8) as pool:
        done = [pool.submit(exported, Ledger(ledger.folder), store, tmp_path / name, name, name) for name in names]
    assert all(one.result() for one in done)
    assert sorted(line["run_id"] for line in lines(ledger)) == names
    assert [one.number for one in settled(ledger, store).values()] == list(range(1, 9))


def test_a_store_that_is_down_is_updated_by_the_next_command(ledger, tmp_path, caplog):
    store = Store("r1")
    digest = exported(ledger, store, tmp_path / "a.csv", "a")
    store.down = True
    answered(ledger, store, digest, public=0.7)
    answered(ledger, store, digest, public=0.8)
    assert ledger.submissions()[digest].answers == {"public": 0.8}
    assert "the next command will update the run" in caplog.text
    (tmp_path / "a.csv").unlink()  # what was entered stays, whatever happens to the file
    store.down = False
    assert settled(ledger, store)[digest].answers == {"public": 0.8}
    assert store.metrics["r1"] == {"leaderboard/public": 0.8}
    assert len(lines(ledger)) == 3
    calls = store.calls
    settled(ledger, store)
    assert store.calls == calls  # nothing new, nothing logged


def test_an_edited_ledger_is_refused_by_reading_and_by_exporting(ledger, tmp_path):
    digest = exported(ledger, Store("r1"), tmp_path / "a.csv", "a")
    answered(ledger, Store("r1"), digest, public=0.71234)
    ledger.file.write_text(ledger.file.read_text().replace("0.71234", "0.9"))
    for command in (ledger.submissions, lambda: exported(ledger, Store("r1"), tmp_path / "b.csv", "b")):
        with pytest.raises(BadInput, match=r"ledger\.jsonl:2: .*Put the ledger back as it was, or move"):
            command()


def test_a_damaged_pending_step_is_named(ledger):
    with ledger.locked():
        (ledger.pending / "2026.json").write_text('{"line": {}}')
        with pytest.raises(BadInput, match=r"2026\.json: a line must be either an export or an answer"):
            ledger.settle(Store())
