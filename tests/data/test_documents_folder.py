"""The folder of `harness prepare`, read."""

import hashlib
import json
import shutil

import pytest
from documents_folders import documents_folder, lines, text_id

from harness.data.documents_folder import DocumentsFolder
from harness.data.spans import Span
from harness.errors import BadInput
from retrievers.base import Document

TEXT = "해달은 조개를 돌로 깨 먹는다.\n문어는 다리가 여덟이다.\n"
ID = text_id(TEXT)


@pytest.fixture
def docs(tmp_path):
    return documents_folder(tmp_path / "docs", {"sea.txt": TEXT}, lambda text: [(0, 17)])


def test_documents_with_their_places(docs):
    folder = DocumentsFolder(docs)
    [chunk] = folder.chunks()
    assert chunk.document == Document(text_id(f"sea.txt\0{TEXT[:17]}"), TEXT[:17], "sea.txt", "sea.txt")
    assert chunk.spans == (Span(ID, 0, 17),)
    assert folder.text(ID) == TEXT
    assert folder.paths() == {ID: "sea.txt"}
    assert folder.fingerprint == hashlib.sha256((docs / "documents.jsonl").read_bytes()).hexdigest()


def spans(*changed):
    """A change of the spans of the document."""

    def change(docs):
        [row] = map(json.loads, (docs / "documents.jsonl").read_text("utf-8").splitlines())
        (docs / "documents.jsonl").write_text(lines([row | {"spans": changed}]))

    return change


def write(name, content):
    return lambda docs: (docs / name).write_text(content)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (shutil.rmtree, "no such folder"),
        (lambda docs: shutil.rmtree(docs) or docs.touch(), "this is a file"),
        (lambda docs: (docs / "manifest.json").unlink(), "this folder is not finished"),
        (write("manifest.json", '{"version": 2}'), "reads version 1"),
        (spans(), "at least one place"),
        (spans(7), "is not a span"),
        (spans({"text": ID, "start": 3, "end": 3}), "start < end"),
        (spans({"text": ID, "start": True, "end": 3}), "whole numbers"),
        (spans({"text": "../../etc/passwd", "start": 0, "end": 3}), "hexadecimal"),
        (write("files.jsonl", '{"path": "sea.txt"}'), "text is missing"),
        (write(f"texts/{ID}.txt", TEXT + "!"), "has changed"),
    ],
)
def test_what_is_refused(docs, change, message):
    change(docs)

    def read():
        folder = DocumentsFolder(docs)
        return list(folder.chunks()), folder.paths(), folder.text(ID)

    with pytest.raises(BadInput, match=message):
        read()


def test_near_duplicates_are_grouped(docs):
    """b repeats a and d repeats c; e repeats b and c, which joins all of them. f repeats g."""
    folder = DocumentsFolder(docs)
    assert folder.near_duplicates() == {}
    pairs = [("a", "b"), ("c", "d"), ("g", "f"), ("b", "e"), ("c", "e"), ("d", "a")]
    rows = [{"a": a, "b": b, "similarity": 0.9} for a, b in pairs]
    (folder.path / "near_duplicates.jsonl").write_text(lines(rows))
    assert folder.near_duplicates() == dict.fromkeys("abcde", tuple("abcde")) | dict.fromkeys("fg", ("f", "g"))
    (folder.path / "near_duplicates.jsonl").write_text(lines([{"a": "a", "b": 3}]))
    with pytest.raises(BadInput, match=r"near_duplicates\.jsonl:1: b is 3, but must be text"):
        folder.near_duplicates()
