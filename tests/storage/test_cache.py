"""The cache: a result exists when its manifest does, and nothing is computed twice."""

import errno
import os
import shutil
import signal
import time
from dataclasses import replace
from unittest.mock import Mock, call

import numpy as np
import pytest
from interruptions import exit_codes, full_disk

from harness.config.canonical import digest
from harness.config.messages import failure
from harness.llm.usage import Completion, ReplyLog
from harness.storage.cache import Cache, open_cache
from harness.storage.rankings import load_ranking, save_ranking
from retrievers.base import Ranking

RANKING = Ranking.from_scores({"q1": {"b": 2.0, "a": 1.0}, "질의": {}})


def counted():
    """A builder that counts its calls."""
    return Mock(side_effect=lambda folder: (folder / "data.txt").write_text("내용"))


@pytest.fixture(params=["folder", "bucket"])
def opened(request, tmp_path):
    """Opens the same cache, again and again."""
    path = request.getfixturevalue("place").url if request.param == "bucket" else str(tmp_path)
    return lambda: open_cache(path)


def test_built_once_and_found_again(opened):
    build = counted()
    first = opened().folder("things", {"a": 1, "b": 2}, build)
    assert first == opened().folder("things", {"b": 2, "a": 1}, build)
    assert opened().folder("things", {"a": 2}, build) != first
    assert build.call_count == 2


def _manifest(content):
    return lambda folder: (folder / "manifest.json").write_bytes(content)


def _without_manifest(folder):
    (folder / "manifest.json").unlink()


def _manifest_that_is_a_folder(folder):
    _without_manifest(folder)
    (folder / "manifest.json").mkdir()


def _a_file_in_its_place(folder):
    shutil.rmtree(folder)
    folder.write_text("a file")


HARMS = {  # harm -> what is done to the folder of an entry
    "half a manifest": _manifest(b"{"),
    "a list": _manifest(b"[]"),
    "not UTF-8": _manifest(b"\xff{}"),
    "other types": _manifest(b'{"identity": {}, "files": {"data.txt": 5}}'),
    "too deep": _manifest(b"[" * 100_000),
    "a folder for a manifest": _manifest_that_is_a_folder,
    "no manifest": _without_manifest,
    "truncated": lambda folder: (folder / "data.txt").write_text("내"),
    "changed": lambda folder: (folder / "data.txt").write_text("네용"),
    "deleted": lambda folder: (folder / "data.txt").unlink(),
    "a file in its place": _a_file_in_its_place,
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_entry_is_listed_built_again_and_removed(tmp_path, harm, caplog):
    build, cache = counted(), Cache(tmp_path)
    folder = cache.folder("things", {}, build)
    HARMS[harm](folder)
    listed = {"changed": "finished"}.get(harm, "damaged")  # sums are not computed for a list
    assert [entry.state for entry in cache.entries()] == ([] if folder.is_file() else [listed])
    assert (cache.folder("things", {}, build) / "data.txt").read_text() == "내용"
    assert build.call_count == 2
    assert f"{folder} is damaged and will be built again" in caplog.text
    HARMS[harm](folder)
    assert all(map(cache.remove, cache.entries()))
    assert cache.size("things", {}) is None


def test_a_damaged_copy_is_fetched_again(place, caplog):
    cache = open_cache(place.url)
    folder = cache.folder("things", {}, counted())
    HARMS["changed"](folder)
    assert (cache.folder("things", {}, None) / "data.txt").read_text() == "내용"
    assert f"{folder} was damaged and has been fetched again" in caplog.text


def test_folders_that_the_cache_did_not_make_are_listed_and_stay(tmp_path):
    cache = Cache(tmp_path)
    cache.ranking({}, 10, lambda depth: [RANKING])
    for stray in ("things/mine", "mine/deeper", f"rankings/{digest({})}-9x9", "pairs/mine"):
        (tmp_path / stray).mkdir(parents=True)
    foreign = [entry for entry in cache.entries() if entry.state == "foreign"]
    assert {f"{entry.kind}/{entry.key}" for entry in foreign} == {
        "things/mine", "mine/deeper", f"rankings/{digest({})}-9x9", "pairs/mine",
    }  # fmt: skip
    assert not any(cache.remove(entry) for entry in foreign)
    assert cache.holds_ranking({}, 10)


@pytest.mark.parametrize("gone", ["manifest.json", "data.txt", "", ".."])
def test_what_vanishes_while_it_is_listed_is_left_out(tmp_path, monkeypatch, gone):
    place, walk = Cache(tmp_path).folder("things", {}, counted()) / gone, os.walk

    def remove_first(folder):
        shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
        return walk(folder)

    monkeypatch.setattr("harness.storage.entries.os.walk", remove_first)
    assert [entry.state for entry in Cache(tmp_path).entries()] in ([], ["damaged"])


@pytest.mark.parametrize("resume", [False, True])
def test_a_failing_builder_leaves_nothing_but_what_it_resumes(opened, resume):
    """And a full disk is said in words."""

    def fill(folder):
        (folder / "part").write_text("x")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left") as raised:
        opened().folder("things", {}, fill, resume=resume)
    assert raised.value.filename == str(opened().root / "things")
    left = [path.suffix for path in (opened().root / "things").iterdir() if path.is_dir()]
    assert left == [".unfinished"] * resume


def test_an_array_that_is_written_in_part_means_a_full_disk(tmp_path):
    """numpy's error has no errno then."""
    cache = Cache(tmp_path)
    with full_disk(100_000), pytest.raises(OSError) as raised:  # noqa: PT011 - the errno is compared below
        cache.folder("vectors", {"a": 1}, lambda folder: np.save(folder / "a.npy", np.zeros(1_000_000)))
    assert raised.value.errno == errno.ENOSPC
    assert (failure(raised.value) or "").startswith(f"{tmp_path / 'vectors'}: No space left on device. Free some space")


def test_two_processes_build_once(opened, tmp_path):
    def build(folder):
        with (tmp_path / "built").open("a") as file:
            file.write("x")
        time.sleep(0.1)

    assert exit_codes(*[lambda: opened().folder("things", {}, build)] * 2) == [0, 0]
    assert (tmp_path / "built").read_text() == "x"


def test_a_killed_builder_is_not_believed(tmp_path):
    def build(folder):
        (folder / "half.txt").write_text("half")
        os.kill(os.getpid(), signal.SIGKILL)

    assert exit_codes(lambda: Cache(tmp_path).folder("things", {}, build)) == [-signal.SIGKILL]
    assert [one.name for one in Cache(tmp_path).folder("things", {}, counted()).glob("*.txt")] == ["data.txt"]


def test_what_an_interrupted_builder_left_is_taken_up(tmp_path):
    def build(folder):
        done = len(list(folder.iterdir()))
        (folder / f"part{done}").write_text("x")
        if done < 2:
            raise RuntimeError("interrupted")

    for _ in range(2):
        with pytest.raises(RuntimeError):
            Cache(tmp_path).folder("things", {}, build, resume=True)
    entry = Cache(tmp_path).folder("things", {}, build, resume=True)
    assert sorted(path.name for path in entry.iterdir()) == ["manifest.json", "part0", "part1", "part2"]


def searches():
    """A search of ten documents that keeps the requested depths in its `mock_calls`."""
    whole = Ranking.from_scores({"q": {f"d{i}": float(10 - i) for i in range(10)}})
    measured = replace(whole, measured={"recall": 0.5})
    return Mock(side_effect=lambda depth: [measured.top(depth)])


def test_a_deeper_ranking_serves_a_smaller_depth(tmp_path):
    search, cache = searches(), Cache(tmp_path)
    assert len(cache.ranking({"a": 1}, 4, search).row(0)) == 4
    assert cache.ranking({"a": 1}, 8, search).measured == {"recall": 0.5}
    assert [doc for doc, _ in cache.ranking({"a": 1}, 2, search).row(0)] == ["d0", "d1"]
    assert len(cache.ranking({"a": 1}, 7, search).row(0)) == 7
    assert search.mock_calls == [call(4), call(8)]
    cache.ranking({"a": 2}, 2, search)
    assert search.mock_calls[2:] == [call(2)], "another identity is another ranking"


def test_a_damaged_deeper_ranking_is_searched_again_at_its_depth(tmp_path):
    search, cache = searches(), Cache(tmp_path)
    cache.ranking({}, 8, search)
    next((tmp_path / "rankings").glob("*-8")).joinpath("docs.npy").write_bytes(b"")
    assert len(cache.ranking({}, 2, search).row(0)) == 2
    assert len(cache.ranking({}, 8, search).row(0)) == 8
    assert search.mock_calls == [call(8), call(8)]


class Scorer:
    """Scores a place by its key's first byte; counts what it scores, and fails after `limit` keys."""

    def __init__(self, keys, limit=None):
        self.keys, self.limit, self.scored = keys, limit, []

    def __call__(self, places):
        for i, place in enumerate(places):
            if len(self.scored) == self.limit:
                raise RuntimeError("interrupted")
            self.scored.append(place)
            yield np.array([i]), np.array([float(self.keys[place][0])])


def keys(*numbers):
    return [bytes([n]) * 32 for n in numbers]


def test_pairs_are_scored_once(tmp_path):
    wanted = keys(5, 3, 5, 9)
    scorer = Scorer(wanted)
    assert Cache(tmp_path).pairs({"m": 1}, wanted, scorer).tolist() == [5, 3, 5, 9]
    assert len(scorer.scored) == 3, "equal keys once"
    more = keys(9, 7, 3)
    scorer = Scorer(more)
    assert Cache(tmp_path).pairs({"m": 1}, more, scorer).tolist() == [9, 7, 3]
    assert scorer.scored == [1]
    scorer = Scorer(more)
    Cache(tmp_path).pairs({"m": 2}, more, scorer)
    assert len(scorer.scored) == 3, "another model, other scores"
    assert Cache(tmp_path).pairs({"m": 1}, [], scorer).shape == (0,)


def test_pairs_scored_before_a_failure_are_cached(tmp_path):
    wanted, scorer = keys(1, 2, 3, 4), Scorer(keys(1, 2, 3, 4))
    with pytest.raises(RuntimeError, match="interrupted"):
        Cache(tmp_path).pairs({}, wanted, Scorer(wanted, limit=3))
    assert Cache(tmp_path).pairs({}, wanted, scorer).tolist() == [1, 2, 3, 4]
    assert len(scorer.scored) == 1


@pytest.mark.parametrize(
    "harm",
    [
        lambda scores: scores.parent.rename(f"{scores.parent}.unfinished"),  # its builder was killed before it could
        lambda scores: scores.write_bytes(b"x" * scores.stat().st_size),
    ],
)
def test_pairs_whose_segment_is_not_whole_are_scored_again(tmp_path, harm):
    wanted = keys(1, 2)
    Cache(tmp_path).pairs({}, wanted, Scorer(wanted))
    harm(next(tmp_path.rglob("scores.npy")))
    scorer = Scorer(wanted)
    assert Cache(tmp_path).pairs({}, wanted, scorer).tolist() == [1, 2]
    assert len(scorer.scored) == 2


def test_entries_are_listed_and_removed(tmp_path):
    cache = Cache(tmp_path)
    first = cache.folder("b_second", {"x": 1}, counted())
    cache.folder("a_first", {"x": 2}, lambda folder: os.link(first / "data.txt", folder / "linked"))
    wanted = keys(1)
    cache.pairs({"m": 1}, wanted, Scorer(wanted))
    with pytest.raises(ZeroDivisionError):
        cache.folder("things", {}, lambda folder: (folder / "half").write_text("x") / 0, resume=True)
    found = {entry.kind.partition("/")[0]: entry for entry in cache.entries()}
    assert set(found) == {"a_first", "b_second", "pairs", "things"}
    assert [entry.state for entry in found.values()] == ["finished"] * 3 + ["unfinished"]
    assert found["a_first"].identity == {"x": 2}
    data = (first / "data.txt").stat().st_size
    assert found["b_second"].bytes == (first / "manifest.json").stat().st_size, "the shared file counts once"
    assert found["a_first"].bytes > data
    assert all(map(cache.remove, found.values()))
    assert cache.entries() == []


def test_an_entry_under_work_is_not_removed_and_use_makes_it_young(tmp_path):
    cache, removed = Cache(tmp_path), []
    folder = cache.folder("things", {}, lambda folder: removed.extend(map(cache.remove, cache.entries())))
    assert removed == [False]
    os.utime(folder / "manifest.json", (0, 0))
    assert cache.entries()[0].used == 0
    cache.found("things", {})
    assert cache.entries()[0].used > time.time() - 60


def test_a_ranking_survives_the_cache_with_those_documents_that_occur(tmp_path):
    wide = Ranking(("q",), ("a", "b", "c", "d"), np.array([[2, 1]], np.int32), np.array([[2.0, 1.0]]))
    save_ranking([wide], tmp_path)
    back = load_ranking(tmp_path)
    assert (back.doc_ids, back.to_dict()) == (("b", "c"), wide.to_dict())
    assert isinstance(back.docs, np.memmap)


# Logs, which grow


def test_a_log_is_an_entry_that_grows(tmp_path):
    cache = Cache(tmp_path)
    folder = cache.log_folder("replies", {"model": "m"})
    assert (folder, cache.log_folder("replies", {"model": "m"})) == (cache.found("replies", {"model": "m"}), folder)
    assert cache.log_folder("replies", {"model": "n"}) != folder
    before = next(one for one in cache.entries() if one.identity == {"model": "m"})
    log = ReplyLog(folder)
    with log.adding():
        log.add("key", Completion("text" * 1000))
        assert cache.log_folder("replies", {"model": "m"}), "others may read it meanwhile"
        [entry] = [one for one in Cache(tmp_path).entries() if one.identity == {"model": "m"}]
        assert not cache.remove(entry)
    assert (entry.kind, entry.state, entry.bytes > before.bytes + 4000) == ("replies", "finished", True)
    assert cache.remove(entry)
    assert not folder.exists()


@pytest.mark.parametrize("harm", ["half a manifest", "a folder for a manifest", "no manifest"])
def test_a_log_outlives_its_manifest(tmp_path, harm):
    """What it holds may have been paid for."""
    cache = Cache(tmp_path)
    folder = cache.log_folder("replies", {"model": "m"})
    (folder / "replies.log").write_bytes(b"paid")
    HARMS[harm](folder)
    assert cache.log_folder("replies", {"model": "m"}) == folder
    assert (folder / "replies.log").read_bytes() == b"paid"
    assert [(one.state, one.identity) for one in cache.entries()] == [("finished", {"model": "m"})]
