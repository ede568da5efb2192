"""The cache in a bucket: machines share it, one of them computes, and what is damaged or half sent is not believed."""

import json
import logging
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from buckets import SECRET, Place

from harness.config.canonical import digest
from harness.config.places import bucket_place
from harness.errors import BadInput, Failed
from harness.llm.usage import Completion, ReplyLog
from harness.storage import locks
from harness.storage.bucket import Bucket, _file_system
from harness.storage.bucket_entries import BucketEntries
from harness.storage.cache import Cache, open_cache
from harness.storage.entries import CacheEntry
from harness.storage.locks import Lease
from retrievers.base import Ranking

RANKING = Ranking.from_scores({"q1": {"b": 2.0, "a": 1.0}, "질의": {}})
DAY = 86_400
KEY = digest({})


def cache_of(url, copy):
    return Cache(copy, BucketEntries(Bucket(bucket_place(url)), copy))


@pytest.fixture
def machine(place, tmp_path):
    """Opens the cache on a machine of its own name."""
    return lambda name: cache_of(place.url, tmp_path / name)


@pytest.fixture
def requests(monkeypatch, place):
    """The requests that are sent, as (operation, name)."""
    from s3fs import S3FileSystem

    sent, plain = [], S3FileSystem._call_s3

    async def noted(self, method, *args, **kwargs):
        sent.append((method, kwargs.get("Key", kwargs.get("Prefix", "")).removeprefix(f"{place.prefix}/")))
        return await plain(self, method, *args, **kwargs)

    monkeypatch.setattr(S3FileSystem, "_call_s3", noted)
    return sent


def build(folder):
    (folder / "data.txt").write_text("내용")
    (folder / "deep").mkdir()
    np.save(folder / "deep" / "array.npy", np.arange(5))


def never(*_):
    raise AssertionError("computed twice")


def scorer(*scores):
    return lambda rows: [(np.arange(len(rows)), np.array(scores))]


def test_another_machine_computes_nothing_and_logs_no_secret(machine, caplog):
    caplog.set_level(logging.DEBUG)
    keys = [bytes([n]) * 32 for n in (5, 3, 9)]
    first, second = machine("first"), machine("second")
    made = first.folder("things", {"a": 1}, build)
    first.ranking({"r": 1}, 4, lambda depth: [RANKING])
    first.pairs({"m": 1}, keys[:2], scorer(5.0, 3.0))

    assert second.size("things", {"a": 1}) == first.size("things", {"a": 1})
    assert (second.size("things", {"a": 2}), second.found("things", {"a": 2})) == (None, None)
    found = second.folder("things", {"a": 1}, never)
    assert found != made
    assert (found / "data.txt").read_text() == "내용"
    assert isinstance(np.load(found / "deep" / "array.npy", mmap_mode="r"), np.memmap)
    assert second.holds_ranking({"r": 1}, 3)
    assert not second.holds_ranking({"r": 1}, 5)
    assert second.ranking({"r": 1}, 4, never).to_dict() == RANKING.to_dict()
    assert second.holds_pairs({"m": 1})
    assert second.pairs({"m": 1}, keys[:2], never).tolist() == [5.0, 3.0]
    assert [entry.state for entry in second.entries()] == ["finished"] * 3
    assert second.pairs({"m": 1}, keys, scorer(9.0)).tolist() == [5.0, 3.0, 9.0]
    assert SECRET not in caplog.text
    assert "x-amz" not in caplog.text.lower()


def test_few_requests_make_and_fetch_an_entry_and_none_use_it_again(machine, requests):
    machine("first").folder("things", {}, build)
    assert [method for method, _ in requests] == [
        "get_object",  # is it there?
        "put_object", "put_object", "put_object",  # does the server mind conditions? Once for a process
        "put_object",  # the lock
        "get_object",  # has another machine made it meanwhile?
        "put_object", "put_object",  # the files
        "put_object",  # the manifest
        "delete_objects",  # the lock
    ]  # fmt: skip
    requests.clear()
    machine("second").folder("things", {}, never)
    assert sorted(requests)[-1] == ("get_object", f"things/{KEY}/manifest.json")
    assert [method for method, _ in requests] == ["get_object"] * 3
    cache = machine("second")
    cache.ranking({}, 4, lambda depth: [RANKING])
    cache.pairs({}, [b"k" * 32], scorer(1.0))
    requests.clear()
    cache.folder("things", {}, never)
    cache.found("things", {})
    cache.size("things", {})
    cache.ranking({}, 4, never)
    cache.pairs({}, [b"k" * 32], never)
    assert requests == []


OUTSIDE = json.dumps({"identity": {}, "files": {"../../../stray": [2, "x"]}}).encode()


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["truncated", "changed", "gone", "no manifest", "manifest", "outside"])
def test_a_damaged_entry_of_the_bucket_is_made_again(machine, place, tmp_path, harm, caplog):
    machine("first").folder("things", {}, build)
    data, manifest = place.named("data.txt"), place.named("manifest")
    before = {name: place[name] for name in place}
    if harm in ("gone", "no manifest"):
        del place[data if harm == "gone" else manifest]
    elif harm in ("manifest", "outside"):
        place[manifest] = OUTSIDE if harm == "outside" else b"{"
    else:
        place[data] = place[data][:-1] + (b"" if harm == "truncated" else b"x")
    states = [entry.state for entry in machine("second").entries()]
    assert states == ["unfinished" if harm == "no manifest" else "finished" if harm == "changed" else "damaged"]
    assert machine("second").found("things", {}) is None
    assert (machine("second").folder("things", {}, build) / "data.txt").read_text() == "내용"
    assert ("damaged" in caplog.text) == (harm != "no manifest")
    assert {name: place[name] for name in place} == before
    assert not list(tmp_path.rglob("stray"))


def test_one_of_two_that_race_wins(machine, monkeypatch):
    """Without the lock, as after a machine that slept was taken for dead: each builds something else."""
    monkeypatch.setattr(Lease, "acquire", lambda self: True)
    ready = threading.Barrier(2)

    def make(name):
        def build(folder):
            (folder / "data.txt").write_text(name)
            ready.wait()

        return (machine(name).folder("things", {}, build) / "data.txt").read_text()

    with ThreadPoolExecutor(2) as pool:
        [result] = set(pool.map(make, ("first", "second")))
    assert (machine("third").folder("things", {}, never) / "data.txt").read_text() == result


def test_machines_wait_for_the_one_that_computes(machine, monkeypatch):
    """It takes longer than the time after which a silent lock is free, and is heard of all the while."""
    monkeypatch.setattr(locks, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(locks, "DEAD_SECONDS", 0.3)
    begun = threading.Event()

    def slowly(folder):
        begun.set()
        time.sleep(0.6)
        build(folder)

    with ThreadPoolExecutor() as pool:
        pool.submit(machine("first").folder, "things", {}, slowly)
        begun.wait()
        assert not machine("second").remove(CacheEntry("things", KEY, 0, 0.0, "finished", {})), "it is in use"
        assert (machine("second").folder("things", {}, never) / "data.txt").read_text() == "내용"


@pytest.mark.parametrize("left_by", ["this machine", "another"])
def test_the_lock_of_a_dead_process_is_taken_over(machine, place, monkeypatch, left_by):
    monkeypatch.setattr(locks, "DEAD_SECONDS", 0.3 if left_by == "another" else 1000)
    cache = machine("one")
    entries = cache.backend
    dead = Lease(entries._bucket, f"things/{KEY}.lock", entries._machine if left_by == "this machine" else "other")
    assert dead.acquire()
    dead._over.set()  # it died: nobody renews the lock
    with pytest.raises(AssertionError):
        cache.folder("things", {}, never)
    assert list(place) == [".conditions"], "the lock is given back after a failure"


def test_a_lock_that_was_taken_over_is_left_alone(machine, place, monkeypatch, caplog):
    monkeypatch.setattr(locks, "BEAT_SECONDS", 0.05)
    lock = Lease(machine("one").backend._bucket, "lock", "one")
    assert lock.acquire()
    place["lock"] = b"another's"
    lock._renewal.join()
    assert "Another machine has taken over" in caplog.text
    lock.release()
    assert place["lock"] == b"another's"


@pytest.fixture
def refusing(monkeypatch, place):
    """Has the server refuse requests by their first letters and a part of the name, with a code; no letters end this.

    Without a code, it ignores conditions.
    """
    from botocore.exceptions import ClientError
    from s3fs import S3FileSystem
    from s3fs.errors import translate_boto_error

    plain = S3FileSystem._call_s3

    def refuse(methods, code="", part=""):
        async def call(self, method, *args, **kwargs):
            if code and method.startswith(methods) and part in kwargs.get("Key", ""):
                raise translate_boto_error(ClientError({"Error": {"Code": code, "Message": SECRET}}, method))
            if not code:
                kwargs = {key: value for key, value in kwargs.items() if key not in ("IfNoneMatch", "IfMatch")}
            return await plain(self, method, *args, **kwargs)

        monkeypatch.setattr(S3FileSystem, "_call_s3", plain if methods is None else call)

    return refuse


def test_what_could_not_be_sent_is_sent_once_the_server_is_back(machine, refusing):
    refusing("put", "SlowDown", "data.txt")
    with pytest.raises(Failed, match=r"cannot write .*does not answer"):
        machine("one").folder("things", {}, build)
    refusing(None)
    assert machine("two").found("things", {}) is None
    machine("one").folder("things", {}, never)
    machine("two").folder("things", {}, never)


def test_a_use_makes_an_entry_young_once_a_day(machine, place, requests):
    machine("first").folder("things", {}, build)
    place.age(f"things/{KEY}/manifest.json", 3 * DAY)
    assert time.time() - machine("first").entries()[0].used > 2 * DAY
    requests.clear()
    machine("second").folder("things", {}, never)  # its copy is as old as the entry
    assert ("copy_object", f"things/{KEY}/manifest.json") in requests
    assert time.time() - machine("first").entries()[0].used < DAY
    requests.clear()
    machine("second").folder("things", {}, never)
    assert requests == []


def test_entries_are_removed_here_and_in_the_bucket(machine, place):
    cache = machine("one")
    cache.folder("things", {}, build)
    cache.pairs({}, [b"k" * 32], scorer(1.0))
    assert all(map(cache.remove, cache.entries()))
    assert (cache.entries(), list(place)) == ([], [".conditions"])
    assert (cache.found("things", {}), cache.holds_pairs({})) == (None, False)


# Logs of replies


def logged(cache, text=None):
    """The replies that a machine knows, after it has added one."""
    folder = cache.log_folder("replies", {"model": "m"})
    log = ReplyLog(folder, lambda: cache.adding(folder))
    if text:
        with log.adding():
            log.add("key", Completion(text))
    log.refresh()
    return [one.text for one in log["key"]]


def test_machines_share_replies(machine, place):
    assert logged(machine("first"), "one") == ["one"]
    assert sorted(logged(machine("second"), "two")) == ["one", "two"]
    assert sorted(logged(machine("first"), "three")) == ["one", "three", "two"]
    assert sorted(logged(machine("third"))) == ["one", "three", "two"]
    assert len([name for name in place if name.endswith(".log")]) == 3
    [entry] = machine("third").entries()
    assert (entry.kind, entry.state, entry.identity) == ("replies", "finished", {"model": "m"})
    assert machine("fourth").found_log("replies", {"model": "m"})
    assert machine("fourth").found_log("replies", {"model": "n"}) is None


def test_replies_that_were_not_sent_are_sent_the_next_time(machine, refusing, caplog):
    refusing("put", "SlowDown", ".log")
    assert logged(machine("first"), "paid") == ["paid"]
    assert "will be sent the next time" in caplog.text
    refusing(None)
    assert logged(machine("second")) == []
    assert logged(machine("first")) == ["paid"], "it is not asked for twice"
    assert logged(machine("second")) == ["paid"]


def test_replies_are_sent_while_others_are_awaited(machine, monkeypatch):
    monkeypatch.setattr("harness.storage.append_log.SEND_SECONDS", 0.05)
    cache = machine("first")
    folder = cache.log_folder("replies", {"model": "m"})
    log = ReplyLog(folder, lambda: cache.adding(folder))
    with log.adding():
        log.add("key", Completion("one"))
        until = time.monotonic() + 10
        while logged(machine("second")) != ["one"]:
            assert time.monotonic() < until
            time.sleep(0.05)


def test_a_machine_that_lost_its_replies_gets_them_back(machine, tmp_path):
    logged(machine("first"), "one")
    next((tmp_path / "first").rglob("replies.log")).unlink()
    assert sorted(logged(machine("first"), "two")) == ["one", "two"]
    assert sorted(logged(machine("second"))) == ["one", "two"]


# Servers, credentials and addresses that will not do


def test_a_server_that_ignores_conditions_is_refused(machine, refusing):
    refusing("put")
    with pytest.raises(BadInput, match="does not support conditional writes"):
        machine("one").folder("things", {}, never)


def test_who_may_only_read_reads(machine, refusing):
    machine("first").folder("things", {}, build)
    machine("first").folder("replies", {}, lambda folder: None)
    refusing(("put", "delete", "copy"), "AccessDenied")
    cache = machine("second")
    assert (cache.folder("things", {}, never) / "data.txt").is_file()
    assert logged(cache) == []
    with pytest.raises(BadInput, match=r"may not write s3://.*AccessDenied.*can be read.*s3:PutObject"):
        cache.folder("things", {"a": 1}, never)
    assert not cache.backend.writable


REFUSALS = {
    "InvalidAccessKeyId": "does not accept these credentials",
    "ExpiredToken": "AWS_SESSION_TOKEN",
    "AccessDenied": r"may not read s3://.*s3:ListBucket",
    "SlowDown": "does not answer",
    "AuthorizationHeaderMalformed": "AWS_DEFAULT_REGION",
}


@pytest.mark.parametrize("code", REFUSALS)
def test_refusals_say_what_to_do(machine, refusing, code):
    refusing("", code)
    with pytest.raises((BadInput, Failed), match=REFUSALS[code]) as raised:
        machine("one").folder("things", {}, never)
    assert SECRET not in str(raised.value)
    assert "store.path=FOLDER" in str(raised.value)


SURROUNDINGS = {
    "no bucket": ({}, "has no bucket 'nowhere'"),
    "no server": ({"AWS_ENDPOINT_URL": f"http://me:{SECRET[:6]}@127.0.0.1:9"}, r"127\.0\.0\.1:9 does not answer"),
    "no address": ({"AWS_ENDPOINT_URL": f"minio:{SECRET}"}, "AWS_ENDPOINT_URL is not an address"),
    "half of the credentials": ({"AWS_SECRET_ACCESS_KEY": None}, "no credentials"),
    "an unknown profile": ({"AWS_PROFILE": "nobody"}, "ProfileNotFound"),
    "not the extra": ({}, r"needs the package s3fs: pip install -c constraints\.txt -e '\.\[s3\]'"),
}


@pytest.mark.parametrize("case", SURROUNDINGS)
def test_surroundings_that_will_not_do(place, monkeypatch, case):
    variables, message = SURROUNDINGS[case]
    for name, value in variables.items():
        monkeypatch.delenv(name) if value is None else monkeypatch.setenv(name, value)
    if case == "not the extra":
        monkeypatch.setitem(sys.modules, "s3fs", None)
    _file_system.cache_clear()
    try:
        url = "s3://nowhere/x" if case == "no bucket" else place.url
        with pytest.raises(BadInput, match=message) as raised:
            open_cache(url).entries()
    finally:
        _file_system.cache_clear()
    assert SECRET[:6] not in str(raised.value)


def test_prefixes_share_a_bucket(machine, tmp_path):
    machine("one").folder("things", {}, build)
    beside = cache_of(Place().url, tmp_path / "beside")
    assert (beside.found("things", {}), beside.entries()) == (None, [])
    whole = cache_of("s3://shared", tmp_path / "whole")
    assert {entry.state for entry in whole.entries()} == {"foreign"}
