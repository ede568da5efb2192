"""The log of replies: what it keeps through kills, damage and several processes."""

import json
import multiprocessing
import resource

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.llm.reply_log import FILE, Completion, ReplyLog

KEYS = ["a" * 64, "b" * 64, "c" * 64]
REPLIES = [Completion("네\n", "stop", 3, 4, 5), Completion("", "", None, None), Completion("\ud800", "length", 0, 1)]


def write(folder, rows=None):
    """A log with these replies."""
    log = ReplyLog(folder)
    with log.adding():
        for key, one in rows or zip(KEYS, REPLIES, strict=True):
            log.add(key, one)
    return log


def read(folder):
    log = ReplyLog(folder)
    log.refresh()
    return log


def test_what_is_added_is_there(tmp_path):
    written, found = write(tmp_path), read(tmp_path)
    for log in (written, found):
        assert [log[key] for key in KEYS] == [(one,) for one in REPLIES]
        assert sorted(map(repr, log.completions())) == sorted(map(repr, REPLIES))
    assert found["d"] == ()


def test_several_replies_to_a_request_keep_their_order(tmp_path):
    write(tmp_path, [(KEYS[0], one) for one in REPLIES])
    write(tmp_path, [(KEYS[0], REPLIES[0])])
    assert read(tmp_path)[KEYS[0]] == (*REPLIES, REPLIES[0])


def test_a_log_of_this_process_alone():
    log = write(None)
    assert log[KEYS[0]] == (REPLIES[0],)


def test_a_log_finds_what_others_add(tmp_path):
    first = read(tmp_path)
    write(tmp_path)
    assert first[KEYS[1]] == ()
    with first.adding():
        assert first[KEYS[1]] == (REPLIES[1],)
        first.add(KEYS[1], REPLIES[0])
    first.refresh()
    assert first[KEYS[1]] == read(tmp_path)[KEYS[1]] == (REPLIES[1], REPLIES[0])


@settings(deadline=None, max_examples=60)
@given(cut=st.integers(0, 10_000))
def test_a_torn_line_is_dropped_and_the_next_one_is_whole(cut, tmp_path_factory):
    """A killed process leaves a file that ends anywhere: whole lines survive, and what comes next is intact."""
    folder = tmp_path_factory.mktemp("log")
    write(folder)
    content = (folder / FILE).read_bytes()
    kept = content[: cut % (len(content) + 1)]
    (folder / FILE).write_bytes(kept)
    whole = kept.count(b"\n")
    log = read(folder)
    assert [log[key] for key in KEYS] == [(one,) if n < whole else () for n, one in enumerate(REPLIES)]
    write(folder, [("d" * 64, REPLIES[0])])
    log = read(folder)
    assert [log[key] for key in KEYS] == [(one,) if n < whole else () for n, one in enumerate(REPLIES)]
    assert log["d" * 64] == (REPLIES[0],)


@settings(deadline=None, max_examples=60)
@given(place=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_a_damaged_line_costs_no_other(place, byte, tmp_path_factory):
    folder = tmp_path_factory.mktemp("log")
    write(folder)
    content = bytearray((folder / FILE).read_bytes())
    place %= len(content)
    line = bytes(content[:place]).count(b"\n")
    changed = content[place] != byte
    content[place] = byte
    (folder / FILE).write_bytes(content)
    log = read(folder)
    for n, (key, one) in enumerate(zip(KEYS, REPLIES, strict=True)):
        spared = not changed or n not in (line, line + 1)  # a lost line end joins two lines
        assert log[key] in ([(one,)] if spared else [(), (one,)])


@pytest.mark.parametrize(
    "row",
    ["5", "[]", "{}", '{"key":"x"}', '{"key":"x","text":1,"finish":"","input_tokens":1,"output_tokens":1}'],
)
def test_a_row_that_is_no_reply_is_left_out_with_a_warning(tmp_path, caplog, row):
    from harness.llm.reply_log import _checksum

    write(tmp_path)
    with (tmp_path / FILE).open("ab") as file:
        file.write(_checksum(row.encode()) + b" " + row.encode() + b"\n")
    assert read(tmp_path)[KEYS[2]] == (REPLIES[2],)
    assert "1 damaged lines are left out" in caplog.text


def test_a_full_disk_ends_the_asking_and_leaves_whole_lines(tmp_path):
    """A limit on the size of files stands for the full disk: of the second line, only a part fits."""
    write(tmp_path, [(KEYS[0], REPLIES[0])])
    limits, size = resource.getrlimit(resource.RLIMIT_FSIZE), (tmp_path / FILE).stat().st_size
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50, limits[1]))
        with pytest.raises(OSError, match="File too large") as raised:
            write(tmp_path, [(KEYS[1], REPLIES[0])])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert raised.value.filename == str(tmp_path / FILE)
    assert (tmp_path / FILE).stat().st_size == size
    write(tmp_path, [(KEYS[1], REPLIES[0])])
    assert read(tmp_path)[KEYS[1]] == (REPLIES[0],)


def test_a_log_that_was_removed_begins_anew(tmp_path):
    log = write(tmp_path)
    (tmp_path / FILE).unlink()
    write(tmp_path, [(KEYS[1], REPLIES[0])])
    with log.adding():
        assert log[KEYS[0]] == ()
        assert log[KEYS[1]] == (REPLIES[0],)


def test_lines_are_readable(tmp_path):
    """One line per reply: a checksum, and JSON without the prompt."""
    write(tmp_path)
    lines = (tmp_path / FILE).read_text("ascii").splitlines()
    assert len(lines) == 3
    assert json.loads(lines[0].partition(" ")[2]) == {
        "key": KEYS[0], "text": "네\n", "finish": "stop", "input_tokens": 3, "output_tokens": 4, "expected_input": 5,
    }  # fmt: skip


def _add(folder, name):
    log = ReplyLog(folder)
    for n in range(8):
        with log.adding():
            log.add(f"{name}{n}", Completion("x" * 5000))


def test_processes_take_turns(tmp_path):
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_add, args=(tmp_path, name)) for name in "ab"]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    assert len(list(read(tmp_path).completions())) == 16
