"""The contract of append-only logs: nothing acknowledged is lost, nothing torn or edited is taken for a row."""

import contextlib
import gzip
import itertools
import json
import multiprocessing
import os
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from interruptions import exit_codes, full_disk

from harness.errors import BadInput
from harness.storage.append_log import START, AppendLog, Shortened


@dataclass(frozen=True)
class Inner:
    value: float
    words: Sequence[str] = ()


@dataclass(frozen=True)
class Row:
    name: str
    number: int = 0
    scores: Mapping[str, float] = field(default_factory=dict)
    inner: Inner | None = None


KINDS = {"strict": {"sync": "row"}, "lenient": {"sync": "end", "lenient": True}, "chained": {"chained": True}}
ROWS = [Row("달\n", 1), Row('"}', 2, {"nan": float("inf")}), Row("\ud800 c\x85", 3, inner=Inner(0.5, ("x",)))]
kinds = pytest.mark.parametrize("kind", KINDS)
numbers = st.floats()
rows = st.builds(
    Row, st.text(), st.integers(-(2**62), 2**62), st.dictionaries(st.text(), numbers),
    st.none() | st.builds(Inner, numbers, st.lists(st.text()).map(tuple)),
)  # fmt: skip


def opened(folder, kind="strict"):
    return AppendLog(folder / "rows.log", Row, **KINDS[kind])


def written(folder, kind, several=ROWS):
    """A log with these rows, and the content of its file."""
    log = opened(folder, kind)
    log.append(several)
    return log, log.path.read_bytes()


@kinds
def test_what_is_appended_is_read_and_without_rows_there_is_no_file(tmp_path_factory, kind):
    @given(st.lists(st.lists(rows, max_size=3), max_size=3))
    def check(batches):
        log = opened(tmp_path_factory.mktemp("log"), kind)
        for batch in batches:
            log.append(batch)
        assert log.path.exists() == any(batches)
        assert repr(log.read()) == repr([one for batch in batches for one in batch])  # NaN is not itself
        assert repr(log.since(START)[0]) == repr(log.read())

    check()


@kinds
def test_a_line_torn_at_any_byte_is_neither_read_nor_continued(tmp_path_factory, kind):
    """Lines that were finished stay, one that lacks only its end counts, and what comes next is whole."""
    _, content = written(tmp_path_factory.mktemp("whole"), kind)
    ends = [n for n, byte in enumerate(content) if byte == ord("\n")]

    @given(st.integers(0, len(content)))
    def check(cut):
        log = opened(tmp_path_factory.mktemp("torn"), kind)
        log.path.write_bytes(content[:cut])
        complete = sum(end <= cut for end in ends)
        if complete and kind == "chained":
            log.path.with_suffix(".last").write_text(json.loads(content.splitlines()[complete - 1])["check"])
        assert log.read() == ROWS[:complete]
        assert len(log.since(START)[0]) == sum(end < cut for end in ends)
        log.append([Row("next")])
        assert log.read() == [*ROWS[:complete], Row("next")]

    check()


def test_a_torn_line_is_removed_with_a_warning_that_names_it(tmp_path, caplog):
    log, content = written(tmp_path, "strict", [Row("x" * 100_000)] * 2)
    log.path.write_bytes(content[:-1000])
    log.append([Row("next")])
    assert [row.name[0] for row in log.read()] == ["x", "n"]
    assert f"{log.path}:2: an incomplete line was removed" in caplog.text


@kinds
def test_a_changed_byte_is_refused_with_its_line_or_costs_no_other(tmp_path_factory, kind):
    _, content = written(tmp_path_factory.mktemp("whole"), kind)

    @given(st.integers(0, len(content) - 2), st.integers(0, 255))
    def check(at, byte):
        log, _ = written(tmp_path_factory.mktemp("changed"), kind)
        changed = bytearray(content)
        changed[at] = byte
        log.path.write_bytes(changed)
        line = content[:at].count(b"\n")
        if changed == content:
            assert log.read() == ROWS
        elif kind == "lenient":
            assert set(map(repr, log.read())) <= set(map(repr, ROWS))
            spared = [row for n, row in enumerate(ROWS) if n not in (line, line + 1)]  # a lost end joins two lines
            assert all(row in log.read() for row in spared)
        else:
            with pytest.raises(BadInput, match=rf"rows\.log:{line + 1}: "):
                log.read()

    check()


def test_damaged_lines_of_a_lenient_log_are_counted(tmp_path, caplog):
    log, content = written(tmp_path, "lenient")
    log.path.write_bytes(content.replace(b'"number": 2', b'"number": 9') + b"[[[[\n")
    assert log.read() == [ROWS[0], ROWS[2]]
    assert "2 damaged lines, the first in line 2, are left out" in caplog.text


@pytest.mark.parametrize("content", [gzip.compress(b"{}", mtime=0), b"[[[", b"\xef\xbb\xbf{"])
def test_a_file_of_something_else_is_refused_and_not_shortened(tmp_path, content):
    log = opened(tmp_path)
    log.path.write_bytes(content)
    for use in (log.read, lambda: log.append(ROWS)):
        with pytest.raises(BadInput, match=r"rows\.log:1: this line was edited or is damaged"):
            use()
    assert log.path.read_bytes() == content


ELSE = {
    "a folder": lambda path: path.mkdir(),
    "a pipe": os.mkfifo,
    "a circle of links": lambda path: path.symlink_to(path),
    "a link to nothing": lambda path: path.symlink_to("nothing"),
}


@pytest.mark.parametrize("made", ELSE)
def test_what_is_not_a_file_is_refused(tmp_path, made):
    log = opened(tmp_path)
    ELSE[made](log.path)
    for use in (log.read, lambda: log.since(START), lambda: log.append(ROWS)):
        with pytest.raises(BadInput, match=r"rows\.log is not a file"):
            use()


def test_a_row_of_another_type_is_refused_with_its_line(tmp_path):
    log, _ = written(tmp_path, "strict")
    text = b'{"name": "a", "inner": {"value": "x"}'
    with log.path.open("ab") as file:
        file.write(text + f', "check": "{log._checksum(text, "")}"}}\n'.encode())
    with pytest.raises(BadInput, match=r"rows\.log:4: inner\.value is 'x', but must be a number"):
        log.read()


def test_a_log_that_grows_is_followed_line_by_line(tmp_path):
    log, content = written(tmp_path, "strict", ROWS[:1])
    found, position = log.since(START)
    assert (found, position.size, position.lines) == (ROWS[:1], len(content), 1)
    with log.path.open("ab") as file:
        file.write(b'{"name": "torn')
    assert log.since(position) == ([], position)
    log.append(ROWS[1:])
    found, position = log.since(position)
    assert (found, position.lines) == (ROWS[1:], 3)
    with log.path.open("ab") as file:
        file.write(b"[]\n")
    with pytest.raises(BadInput, match=r"rows\.log:4: this line was edited or is damaged"):
        log.since(position)
    log.path.write_bytes(b"")
    with pytest.raises(Shortened, match="was shortened"):
        log.since(position)


@kinds
def test_a_full_disk_names_the_file_and_leaves_whole_lines(tmp_path, kind):
    log, content = written(tmp_path, kind)
    with full_disk(len(content) + 50), pytest.raises(OSError, match="File too large") as raised:
        log.append(ROWS)  # only a part of them fits
    assert raised.value.filename == str(log.path)
    assert log.path.read_bytes() == content
    log.append(ROWS)
    assert log.read() == ROWS * 2


@kinds
def test_processes_that_append_at_once_lose_nothing(tmp_path, kind):
    def append(name):
        log = opened(tmp_path, kind)
        for n in range(15):
            log.append([Row(name, n, {"x" * 3000: 0.0}), Row("filler")])

    assert exit_codes(*(partial(append, name) for name in "abc")) == [0, 0, 0]
    read = opened(tmp_path, kind).read()
    assert len(read) == 3 * 15 * 2
    for name in "abc":  # each in its own order
        assert [row.number for row in read if row.name == name] == [*range(15)]


def _append_endlessly(folder, kind, told):
    log = opened(folder, kind)
    for n in itertools.count(len(log.read())):
        log.append([Row("x" * 20_000, n)])
        told.send(n)


@kinds
def test_a_kill_costs_at_most_the_line_that_was_being_written(tmp_path, kind):
    drawn, context = random.Random(0), multiprocessing.get_context("fork")
    for _ in range(3):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_append_endlessly, args=(tmp_path, kind, sender))
        process.start()
        sender.close()
        told = [receiver.recv()]
        time.sleep(drawn.uniform(0, 0.05))
        process.kill()
        with contextlib.suppress(EOFError):
            while True:
                told.append(receiver.recv())
        process.join()
        read = [row.number for row in opened(tmp_path, kind).read()]
        assert read == [*range(len(read))]
        assert told[-1] < len(read) <= told[-1] + 2


EDITED = {
    "a line": (lambda lines: [*lines[:1], lines[1].replace(b'"number": 2', b'"number": 9'), lines[2]], ":2: this line"),
    "an order": (lambda lines: [lines[0], lines[2], lines[1]], ":2: this line does not follow"),
    "the first line removed": (lambda lines: lines[1:], ":1: this line does not follow"),
    "a line removed": (lambda lines: [lines[0], lines[2]], ":2: this line does not follow"),
    "the last line removed": (lambda lines: lines[:2], ": the last line was edited or removed"),
    "all lines removed": (lambda lines: [], ": the last line was edited or removed"),
}


@pytest.mark.parametrize("edit", EDITED)
def test_a_line_of_a_chain_that_was_edited_moved_or_removed_is_noticed(tmp_path, edit):
    log, content = written(tmp_path, "chained")
    change, said = EDITED[edit]
    log.path.write_bytes(b"".join(change(content.splitlines(keepends=True))))
    for use in (log.read, lambda: log.append(ROWS)):
        with pytest.raises(BadInput, match=rf"rows\.log{said}.*Put the file back as it was"):
            use()
    log.path.write_bytes(content)
    assert log.read() == ROWS


def test_a_process_that_is_killed_between_a_line_and_its_repetition(tmp_path, monkeypatch):
    log, _ = written(tmp_path, "chained", ROWS[:1])
    with monkeypatch.context() as patch:
        patch.setattr("harness.storage.append_log.write_text", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            log.append(ROWS[1:2])
    assert log.read() == ROWS[:2]
    log.append(ROWS[2:])
    assert log.read() == ROWS


@pytest.mark.parametrize("made", ["", *ELSE])
def test_the_repetition_of_the_last_checksum_is_needed(tmp_path, made):
    log, _ = written(tmp_path, "chained")
    last = tmp_path / "rows.last"
    last.unlink()
    if made:
        ELSE[made](last)
    with pytest.raises(BadInput, match=r"rows\.last is not a file" if made else "the last line was edited or removed"):
        log.read()
