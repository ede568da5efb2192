"""Prompt files: what is filled in, and what is refused."""

import hashlib

import pytest

from harness.errors import BadInput
from harness.llm.structured import MOST, PromptText, read_prompt


def test_a_prompt_is_filled_once(tmp_path):
    """Values may hold braces and names of other places: they are not filled in again."""
    text = '\ufeff대화:\r\n{talk}\r\n\r\nReply with {"query": "…"} {} {1} in {language}, {talk}\r\n\n'
    (tmp_path / "prompt.txt").write_text(text, newline="")
    prompt = read_prompt(tmp_path / "prompt.txt", ["talk"], ["language"])
    assert prompt.places == ("talk", "language")
    filled = prompt.filled(talk="{language} {unknown}", language="한국어", unused="x")
    expected = '대화:\n{language} {unknown}\n\nReply with {"query": "…"} {} {1} in 한국어, {language} {unknown}'
    assert filled == expected
    assert prompt.sha256 == hashlib.sha256(prompt.text.encode()).hexdigest()
    assert PromptText("{a}", ("a",)).filled(a="\\1") == "\\1"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "query.prompt={path}: the prompt is empty. Write what the model is asked to do."),
        (" \r\n\t", "the prompt is empty"),
        ("Rewrite it.", "the prompt lacks {talk}, which the harness fills in. Add it."),
        ("{talk} {tlak}", "unknown name {tlak}. Did you mean 'talk'? Known: {talk}, {language}."),
        ("{talk} {zzz}", "unknown name {zzz}. Known: {talk}, {language}."),
        ("첫 줄\n".encode() + "둘째".encode("cp949"), "prompt.txt:2: byte 0xb5 is not UTF-8. Save the file as UTF-8."),
        ("{talk}" + "x" * MOST, "the file has more than 200,000 bytes, which is too long. Is it the right one?"),
    ],
)  # fmt: skip
def test_unusable_prompts_are_refused(content, complaint, tmp_path):
    path = tmp_path / "prompt.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(BadInput) as refused:
        read_prompt(path, ["talk"], ["language"], "query.prompt")
    assert complaint.replace("{path}", str(path)) in str(refused.value)
    assert str(refused.value).startswith("query.prompt")


def test_a_missing_prompt_and_a_folder_are_refused(tmp_path):
    (tmp_path / "rewrite.txt").write_text("{talk}")
    for name, complaint in {"rewrit.txt": "Did you mean 'rewrite.txt'?", ".": "is a folder"}.items():
        with pytest.raises(BadInput, match=complaint):
            read_prompt(tmp_path / name, ["talk"])
