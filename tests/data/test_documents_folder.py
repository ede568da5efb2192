"""The folder of `harness prepare`, read."""

import hashlib
import json

import pytest
from documents_folders import lines

from harness.data.documents_folder import DocumentsFolder
from harness.data.spans import Span
from harness.errors import BadInput

TEXT = "해달은 조개를 돌로 깨 먹는다.\n문어는 다리가 여덟이다.\n"
ID = hashlib.sha256(TEXT.encode()).hexdigest()[:20]
ROW = {
    "docid": "a1",
    "title": "바다",
    "content": TEXT[:17],
    "src": "sea.txt",
    "spans": [{"text": ID, "start": 0, "end": 17}],
}


def folder_of(path, rows=(ROW,), manifest='{"version": 1}', files=({"path": "sea.txt", "text": ID},)):
    (path / "texts").mkdir(parents=True)
    (path / "texts" / f"{ID}.txt").write_bytes(TEXT.encode())
    for name, content in {"documents.jsonl": rows, "files.jsonl": files}.items():
        (path / name).write_text("".join(json.dumps(row) + "\n" for row in content))
    if manifest is not None:
        (path / "manifest.json").write_text(manifest)
    return path


def test_documents_with_their_places(tmp_path):
    folder = DocumentsFolder(folder_of(tmp_path / "docs"))
    [chunk] = folder.chunks()
    assert (chunk.document.doc_id, chunk.document.title, chunk.document.source) == ("a1", "바다", "sea.txt")
    assert chunk.spans == (Span(ID, 0, 17),)
    assert folder.text(ID)[0:17] == chunk.document.text
    assert folder.paths() == {ID: "sea.txt"}
    assert folder.fingerprint == hashlib.sha256((tmp_path / "docs" / "documents.jsonl").read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"manifest": None}, "this folder is not finished"),
        ({"manifest": '{"version": 2}'}, "reads version 1"),
        ({"rows": [ROW | {"spans": []}]}, "at least one place"),
        ({"rows": [ROW | {"spans": [7]}]}, "is not a span"),
        ({"rows": [ROW | {"spans": [{"text": ID, "start": 3, "end": 3}]}]}, "start < end"),
        ({"rows": [ROW | {"spans": [{"text": ID, "start": True, "end": 3}]}]}, "whole numbers"),
        ({"rows": [ROW | {"spans": [{"text": "../../etc/passwd", "start": 0, "end": 3}]}]}, "hexadecimal"),
        ({"files": [{"path": "sea.txt"}]}, "text is missing"),
    ],
)
def test_what_is_refused(tmp_path, change, message):
    path = folder_of(tmp_path / "docs", **change)

    def read():
        folder = DocumentsFolder(path)
        return list(folder.chunks()), folder.paths()

    with pytest.raises(BadInput, match=message):
        read()


def test_a_folder_that_is_none(tmp_path):
    (tmp_path / "file").write_text("")
    for name, message in {"nowhere": "no such folder", "file": "this is a file"}.items():
        with pytest.raises(BadInput, match=message):
            DocumentsFolder(tmp_path / name)


def test_an_edited_text_is_found_out(tmp_path):
    folder = DocumentsFolder(folder_of(tmp_path / "docs"))
    (tmp_path / "docs" / "texts" / f"{ID}.txt").write_text(TEXT + "!")
    with pytest.raises(BadInput, match="has changed"):
        folder.text(ID)


def test_near_duplicates_are_grouped(tmp_path):
    """b repeats a and d repeats c; e repeats b and c, which joins all of them. f repeats g."""
    folder = DocumentsFolder(folder_of(tmp_path / "docs"))
    assert folder.near_duplicates() == {}
    pairs = [("a", "b"), ("c", "d"), ("g", "f"), ("b", "e"), ("c", "e"), ("d", "a")]
    rows = [{"a": a, "b": b, "similarity": 0.9} for a, b in pairs]
    (folder.path / "near_duplicates.jsonl").write_text(lines(rows))
    assert folder.near_duplicates() == dict.fromkeys("abcde", tuple("abcde")) | dict.fromkeys("fg", ("f", "g"))
    (folder.path / "near_duplicates.jsonl").write_text(lines([{"a": "a", "b": 3}]))
    with pytest.raises(BadInput, match=r"near_duplicates\.jsonl:1: b is 3, but must be text"):
        folder.near_duplicates()
