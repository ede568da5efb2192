"""Notes of documents: what a template says about a file, and which templates are refused."""

import pytest

from harness.corpus.chunking import Note
from harness.errors import BadInput


@pytest.mark.parametrize(
    ("template", "path", "note"),
    [
        ("이 문서는 '{name}'에 대한 정보이다.", "data/Tesla_KR.txt", "이 문서는 'Tesla'에 대한 정보이다."),
        ("{name}", "data/Tesla.txt", "Tesla"),
        ("{name}", "a/_hidden_.txt", "_hidden_"),  # nothing before the underscore
        ("{name}|{stem}|{path}", "a/b_c.tar.txt", "b|b_c.tar|a/b_c.tar.txt"),
        ("{{{stem}}} {{x}}", "b.txt", "{b} {x}"),
        ("{name}", "\u1100\u1161.txt", "가"),  # a decomposed name
        ("no place", "b.txt", "no place"),
    ],
)  # fmt: skip
def test_notes(tmp_path, template, path, note):
    file = tmp_path / "note.txt"
    file.write_text(f"\n {template}\n", "utf-8")
    assert Note.read(file).of(path) == note


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("", "the note is empty"),
        (" \n\n", "the note is empty"),
        ("{nmae}", r"there is no placeholder \{nmae\}. Did you mean 'name'"),
        ("{}", r"there is no placeholder \{\}"),
        ("{0}", r"there is no placeholder \{0\}"),
        ("{name.__class__}", r"there is no placeholder \{name.__class__\}"),
        ("{name[0]}", "there is no placeholder"),
        ("{name!r}", r"there is no placeholder \{name!r\}"),
        ("{name:>99999999}", "there is no placeholder"),
        ("{name", "expected '}' before end of string"),
        ("name}", "Single '}' encountered"),
        ("x" * 2001, "the note has 2,001 characters"),
        ("a\x07b", "the control character"),
    ],
)
def test_templates_that_cannot_be_used(tmp_path, template, message):
    file = tmp_path / "note.txt"
    file.write_text(template, "utf-8")
    with pytest.raises(BadInput, match=message) as refused:
        Note.read(file)
    assert str(refused.value).startswith(str(file))


def test_a_missing_note_is_named(tmp_path):
    (tmp_path / "note.txt").write_text("x")
    with pytest.raises(BadInput, match=r"Did you mean 'note\.txt'"):
        Note.read(tmp_path / "notes.txt")
