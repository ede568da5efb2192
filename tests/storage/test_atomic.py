"""Files are written whole or not at all."""

import errno
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.errors import BadInput
from harness.storage.atomic import create_text, write_parts, write_text


def test_a_failed_write_changes_nothing(tmp_path):
    """The earlier file stays as it was, and no temporary file is left."""
    path = tmp_path / "s"
    write_text(path, "one\r\n한\n")
    assert path.read_bytes() == "one\r\n한\n".encode()
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "\ud800")
    assert path.read_bytes() == "one\r\n한\n".encode()
    (tmp_path / "folder").mkdir()
    with pytest.raises(BadInput, match="is not a file"):
        write_text(tmp_path / "folder", "x")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["folder", "s"]


def test_of_many_that_create_a_file_one_does(tmp_path):
    """And its file is whole whenever it is there; nothing else is left."""
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: create_text(tmp_path / "a.csv", f"{n}\n" * 10_000), range(8)))
    [winner] = [n for n, one in enumerate(made) if one]
    assert (tmp_path / "a.csv").read_text() == f"{winner}\n" * 10_000
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_a_file_is_created_where_there_are_no_hard_links(tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    assert create_text(tmp_path / "a.csv", "a")
    assert not create_text(tmp_path / "a.csv", "b")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.csv", "a")]


def test_a_file_in_parts_is_whole_or_absent(tmp_path):
    write_parts(tmp_path / "a", (f"{n}\n" for n in range(3)))
    assert (tmp_path / "a").read_text() == "0\n1\n2\n"
    with pytest.raises(ZeroDivisionError):
        write_parts(tmp_path / "a", (str(1 // n) for n in (1, 0)))
    assert (tmp_path / "a").read_text() == "0\n1\n2\n"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
