"""The store: a result exists when its manifest does, and nothing is computed twice."""

import errno
import multiprocessing
import os
import signal
import time

import numpy as np
import pytest

from harness.store import Store, load_ranking, save_ranking
from retrievers.base import BadInput, Ranking

RANKING = Ranking.from_scores({"q1": {"b": 2.0, "a": 1.0}, "질의": {}})


class Counter:
    """A builder that counts its calls."""

    def __init__(self):
        self.calls = 0

    def __call__(self, folder):
        self.calls += 1
        (folder / "data.txt").write_text("내용")


def test_built_once_and_found_again(tmp_path):
    build = Counter()
    first = Store(tmp_path).folder("things", {"a": 1}, build)
    again = Store(tmp_path).folder("things", {"a": 1}, build)
    assert first == again
    assert build.calls == 1
    assert Store(tmp_path).folder("things", {"a": 2}, build) != first
    assert build.calls == 2


def test_order_of_keys_is_no_difference(tmp_path):
    build = Counter()
    Store(tmp_path).folder("things", {"a": 1, "b": 2}, build)
    Store(tmp_path).folder("things", {"b": 2, "a": 1}, build)
    assert build.calls == 1


@pytest.mark.parametrize("harm", ["truncate", "flip", "delete", "manifest"])
def test_a_damaged_entry_is_built_again(tmp_path, harm, caplog):
    build = Counter()
    folder = Store(tmp_path).folder("things", {}, build)
    data = folder / "data.txt"
    if harm == "truncate":
        data.write_text("내")
    elif harm == "flip":
        data.write_bytes(bytes([data.read_bytes()[0] ^ 1]) + data.read_bytes()[1:])
    elif harm == "delete":
        data.unlink()
    else:
        (folder / "manifest.json").write_text("{")
    Store(tmp_path).folder("things", {}, build)
    assert build.calls == 2
    assert data.read_text() == "내용"
    assert "damaged" in caplog.text


def test_a_failing_builder_leaves_nothing(tmp_path):
    def fail(folder):
        (folder / "half.txt").write_text("half")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        Store(tmp_path).folder("things", {}, fail)
    assert not [path for path in (tmp_path / "things").iterdir() if path.is_dir()]


def test_a_full_disk_is_said_in_words(tmp_path):
    def fill(folder):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(BadInput, match=r"No space left.*store\.path"):
        Store(tmp_path).folder("things", {}, fill)
    assert not [path for path in (tmp_path / "things").iterdir() if path.is_dir()]


def _slow_build(root, counts):
    def build(folder):
        with counts.get_lock():
            counts.value += 1
        time.sleep(0.3)
        (folder / "data.txt").write_text("x")

    Store(root).folder("things", {}, build)


def test_two_processes_build_once(tmp_path):
    counts = multiprocessing.Value("i", 0)
    both = [multiprocessing.Process(target=_slow_build, args=(tmp_path, counts)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(20)
    assert [process.exitcode for process in both] == [0, 0]
    assert counts.value == 1


def _killed_build(root):
    def build(folder):
        (folder / "data.txt").write_text("half")
        os.kill(os.getpid(), signal.SIGKILL)

    Store(root).folder("things", {}, build)


def test_a_killed_builder_is_not_believed(tmp_path):
    process = multiprocessing.Process(target=_killed_build, args=(tmp_path,))
    process.start()
    process.join(20)
    assert process.exitcode == -signal.SIGKILL
    build = Counter()
    assert (Store(tmp_path).folder("things", {}, build) / "data.txt").read_text() == "내용"
    assert build.calls == 1


def test_a_ranking_survives_the_store(tmp_path):
    save_ranking(RANKING, tmp_path)
    back = load_ranking(tmp_path)
    assert back.to_dict() == RANKING.to_dict()
    assert isinstance(back.docs, np.memmap)


def test_only_documents_that_occur_are_kept(tmp_path):
    wide = Ranking(("q",), ("a", "b", "c", "d"), np.array([[2, 1]], np.int32), np.array([[2.0, 1.0]]))
    save_ranking(wide, tmp_path)
    assert load_ranking(tmp_path).doc_ids == ("b", "c")
    assert load_ranking(tmp_path).to_dict() == wide.to_dict()
