"""Lines, JSON and CSV are read and written as documented; text is written atomically."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.data import files
from harness.errors import BadInput

LINE = '{"docid": "d1", "content": "달"}'


def test_lines_are_numbered_from_one_and_blank_ones_skipped(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"\xef\xbb\xbf\r\na\r\n \t\r\nb\xc2\x85c\n\nd")  # NEL does not end a line
    assert list(files.numbered_lines(path)) == [(2, "a"), (4, "b\x85c"), (6, "d")]


@pytest.mark.parametrize("name", ["f.jsonl.gz", "f.jsonl"])
@pytest.mark.parametrize("content", [gzip.compress(LINE.encode(), mtime=0), LINE.encode()])
def test_gzip_is_detected_by_content(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert list(files.json_lines(tmp_path / name)) == [(1, json.loads(LINE))]


def test_a_line_without_end_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LONGEST_LINE", 1 << 20)
    path = tmp_path / "f.jsonl"
    path.write_bytes(gzip.compress(b'{"a": "' + b"x" * (1 << 22) + b'"}\n'))
    with pytest.raises(BadInput, match=r"f\.jsonl:1: the line has more than 1 MB"):
        next(files.json_lines(path))
    monkeypatch.setattr(files, "LONGEST_JSON", 1 << 20)
    with pytest.raises(BadInput, match=r"f\.jsonl: the file has more than 1,048,576 bytes"):
        files.json_file(path)


def test_a_file_that_unpacks_to_more_than_texts_do_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "UNPACKED_FREELY", 1 << 16)
    path = tmp_path / "f.jsonl"
    path.write_bytes(gzip.compress(b"{}\n" * (1 << 16)))
    with pytest.raises(BadInput, match=r"f\.jsonl unpacks to more than 65,536 bytes and more than 200 times"):
        list(files.json_lines(path))
    with pytest.raises(BadInput, match="unpacks to more"):
        files.sha256_of(path)
    monkeypatch.setattr(files, "UNPACKED_FREELY", 1 << 10)
    path.write_bytes(gzip.compress("".join(f"{number * 7919 % 104_729}\n" for number in range(1000)).encode()))
    assert sum(1 for _ in files.numbered_lines(path)) == 1000, "as texts are packed"


def test_lines_are_read_one_at_a_time(tmp_path):
    """The first row comes before the last one, which is broken, is read: no reader needs the whole file in memory."""
    path = tmp_path / "f"
    path.write_bytes(b'{"a": 1}\n' * 20_000 + b"\xff")
    rows = files.json_lines(path)
    assert next(rows) == (1, {"a": 1})
    with pytest.raises(BadInput, match=r"f:20001: byte 0xff is not UTF-8"):
        list(rows)


@given(
    st.lists(st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text()))),
    st.booleans(),
    st.sampled_from(["\n", "\r\n", "\n\n"]),
)
def test_any_json_lines_come_back(tmp_path, rows, ascii_only, end):
    path = tmp_path / "f.jsonl"
    path.write_bytes("".join(json.dumps(row, ensure_ascii=ascii_only) + end for row in rows).encode())
    assert [row for _, row in files.json_lines(path)] == rows


def test_objects_in_lines_and_in_an_array(tmp_path):
    path = tmp_path / "f.json"
    path.write_text('{"a": 1}\n\n{"b": 2}\n')
    assert list(files.json_objects(path)) == [(f"{path}:1", {"a": 1}), (f"{path}:3", {"b": 2})]
    path.write_text('\ufeff[{"a": 1},\n{"b": 2}]', "utf-8")
    assert list(files.json_objects(path)) == [(f"{path}: item 1", {"a": 1}), (f"{path}: item 2", {"b": 2})]
    path.write_bytes(gzip.compress(b'\xef\xbb\xbf{\r\n"a": [1]}'))
    assert files.json_file(path) == {"a": [1]}
    path.write_text('[{"a": 1}, 2]')
    with pytest.raises(BadInput, match=r"f\.json: item 2: 2 is not a JSON object"):
        list(files.json_objects(path))
