"""The formats of `harness prepare`: notes, tokenizers, its own unfinished work, and folders of documents."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from fuzzing.formats import Files, Format, Wrong, reads, same
from harness.corpus import preparation
from harness.corpus.chunking import Chunking
from harness.corpus.files import find_files
from harness.corpus.notes import Note
from harness.corpus.output import prepare_output
from harness.corpus.preparation import prepare
from harness.corpus.units import load_tokenizer

DOCUMENTS: dict[str, Format] = {}
TEXTS = {"one.txt": "가나다. 라마바. 사아자차카타.\n", "two.txt": "라마바. 파하거너. 끝."}
CHUNKING = Chunking(size=9, overlap=5)


@contextlib.contextmanager
def _at(folder: Path) -> Iterator[None]:
    """The working folder."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Without near-duplicates, whose kernels take seconds to compile."""
    with mock.patch.object(preparation.near_duplicates, "find", return_value=[]):
        yield


def _sources(folder: Path) -> None:
    (folder / "in").mkdir()
    for name, text in TEXTS.items():
        (folder / "in" / name).write_text(text, "utf-8")


def _held(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in sorted(folder.rglob("*")) if one.is_file()}


@functools.cache
def _finished() -> Files:
    with tempfile.TemporaryDirectory() as name, _at(Path(name)), _alone():
        _sources(Path(name))
        prepare(find_files("in/*"), CHUNKING, Path("docs"))
        return {f"docs/{one}": content for one, content in _held(Path("docs")).items()}


def _stopped() -> Files:
    """What is left of a preparation whose documents could not be written."""
    with tempfile.TemporaryDirectory() as name, _at(Path(name)):
        _sources(Path(name))
        failing = mock.patch.object(preparation, "_write", side_effect=Wrong("stopped", ""))
        with failing, mock.patch.object(Chunking, "is_slow", True), contextlib.suppress(Wrong):
            prepare(find_files("in/*"), CHUNKING, Path("docs"))
        return {f"docs/{one}": content for one, content in _held(Path("docs")).items()}


@reads("unfinished documents", _stopped, DOCUMENTS, changes=True)
def _unfinished(folder: Path) -> None:
    with _at(folder), _alone(), mock.patch.object(Chunking, "is_slow", True):
        _sources(folder)
        prepare(find_files("in/*"), CHUNKING, Path("docs"))
    same(_finished(), {f"docs/{one}": content for one, content in _held(folder / "docs").items()}, "the documents")


@reads("finished documents", _finished, DOCUMENTS, changes=True)
def _documents(folder: Path) -> None:
    with _at(folder), _alone():
        _sources(folder)
        prepared, _ = prepare_output(find_files("in/*"), CHUNKING, Path("docs"))
        same(prepare_output(find_files("in/*"), CHUNKING, Path("docs")), (prepared, False), "what was prepared")


@reads("note", {"note.txt": "이 문서는 '{name}'에 대한 {{정보}}이다: {stem}, {path}\n".encode()}, DOCUMENTS)
def _note(folder: Path) -> None:
    note = Note.read(folder / "note.txt").of("a/Tesla_KR.txt")
    note.encode()


TOKENIZER = {
    "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": {"type": "NFKC"},
    "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
    "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "가": 1}, "unk_token": "[UNK]"},
}  # fmt: skip


@reads("tokenizer", {"tokenizer.json": json.dumps(TOKENIZER).encode()}, DOCUMENTS)
def _tokenizer(folder: Path) -> None:
    load_tokenizer.cache_clear()
    text = TEXTS["one.txt"]
    spans = Chunking(size=3, overlap=1, unit="tokens", tokenizer=str(folder / "tokenizer.json")).spans(text)
    assert "".join(text[start:end] for start, end in spans)
