"""Logged runs read back: changed data are refused by name, and files are downloaded before they are asked for."""

import threading
from pathlib import Path

import pytest

from harness.errors import BadInput
from harness.recording import logged_run
from harness.recording.logged_run import AT_ONCE, Ahead, read_config, require_unchanged
from harness.tracking.tracker import LoggedRun, NoFile

RUN = LoggedRun("r1", "n", "e", "FINISHED", {}, {}, {"data.documents": "a" * 64, "data.qrels": "b" * 64})
PLACES = {"documents": "docs.jsonl", "queries": "eval.jsonl", "qrels": "qrels.jsonl"}


def test_everything_that_has_changed_is_named():
    require_unchanged(RUN, {"documents": "a" * 64, "queries": None}, PLACES, "Put them back.")
    with pytest.raises(BadInput) as refused:
        require_unchanged(RUN, {"documents": "c" * 64, "queries": None, "qrels": None}, PLACES, "Put them back.")
    assert str(refused.value) == (
        "Run r1 used other data: the documents have changed (docs.jsonl: sha256 aaaaaaaaaaaa… then, "
        "cccccccccccc… now); "
        "the labels have changed (qrels.jsonl: sha256 bbbbbbbbbbbb… then, none now). Put them back."
    )


@pytest.mark.parametrize("text", ["a: [", "- 5", "!!python/object/apply:os.system ['touch hacked']", "\xff\xfe"])
def test_a_damaged_config_is_refused(tmp_path, text):
    file = tmp_path / "config.yaml"
    file.write_text(text, "latin-1")
    with pytest.raises(BadInput, match=r"config\.yaml of the run is damaged"):
        read_config(file)
    assert not (tmp_path / "hacked").exists()


MISSING = "3"


class Store:
    """A server's tracker: says what was asked of it, and lacks the files of one run. local: a run that lies here."""

    def __init__(self, local=None):
        self.asked, self.local, self.together = [], local, threading.Semaphore(0)

    def place(self, run_id):
        return Path("here") if run_id == self.local else None

    def download(self, run, name, folder):
        self.asked.append(run.run_id)
        self.together.release()
        if run.run_id == MISSING:
            raise NoFile("no such file")
        return folder / name


def run(number):
    return LoggedRun(str(number), "n", "e", "FINISHED", {}, {}, {})


def wanted(count):
    return [(run(n), "a.txt") for n in range(count)]


def test_files_come_as_they_are_asked_for_each_downloaded_once(tmp_path):
    store = Store()
    with Ahead(store, wanted(200), tmp_path) as files:
        for n in range(200):
            if str(n) == MISSING:
                with pytest.raises(NoFile, match="no such file"):
                    files.download(run(n), "a.txt")
            else:
                assert files.download(run(n), "a.txt") == tmp_path / str(n) / "a.txt"
        assert sorted(store.asked) == sorted(str(n) for n in range(200))
        assert files.download(run(999), "b.txt") == tmp_path / "999" / "b.txt", "it was not announced"


def test_downloads_run_at_once_and_not_too_far_ahead(tmp_path, monkeypatch):
    monkeypatch.setattr(logged_run, "AHEAD", 10)
    store = Store()
    with Ahead(store, wanted(100), tmp_path) as files:
        files.download(run(0), "a.txt")
        for _ in range(AT_ONCE):  # others have begun, though nobody has asked for them
            assert store.together.acquire(timeout=10)
        assert len(store.asked) <= 10


def test_a_local_store_is_asked_for_each_file_when_it_is_read(tmp_path):
    store = Store(local="1")
    with Ahead(store, [(run(1), "a.txt")], tmp_path) as files:
        assert store.asked == []
        files.download(run(1), "a.txt")
    assert store.asked == ["1"]
