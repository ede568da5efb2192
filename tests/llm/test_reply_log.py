"""The log of replies: what it keeps, and what it finds that others add."""

from harness.llm.usage import Completion, ReplyLog
from harness.storage.append_log import FILE

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


def test_what_is_added_here_or_elsewhere_is_there(tmp_path):
    first, written = read(tmp_path), write(tmp_path)
    for log in (written, read(tmp_path), write(None)):
        assert [log[key] for key in KEYS] == [(one,) for one in REPLIES]
        assert sorted(map(repr, log.completions())) == sorted(map(repr, REPLIES))
    assert first[KEYS[1]] == written["d"] == ()
    with first.adding():
        assert first[KEYS[1]] == (REPLIES[1],)
        first.add(KEYS[1], REPLIES[0])
    first.refresh()
    assert first[KEYS[1]] == read(tmp_path)[KEYS[1]] == (REPLIES[1], REPLIES[0])


def test_replies_of_other_machines_are_read_and_damaged_ones_are_asked_for_again(tmp_path, caplog):
    write(tmp_path)
    content = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(content.replace(b'"stop"', b'"stap"'))
    assert read(tmp_path)[KEYS[0]] == ()
    assert "replies.log: 1 damaged lines, the first in line 1, are left out" in caplog.text
    (tmp_path / "another-000000000000000.log").write_bytes(content)
    assert read(tmp_path)[KEYS[0]] == (REPLIES[0],)
    assert read(tmp_path)[KEYS[1]] == (REPLIES[1],) * 2


def test_a_log_that_was_removed_begins_anew(tmp_path):
    log = write(tmp_path)
    (tmp_path / FILE).unlink()
    write(tmp_path, [(KEYS[1], REPLIES[0])])
    with log.adding():
        assert log[KEYS[0]] == ()
        assert log[KEYS[1]] == (REPLIES[0],)
