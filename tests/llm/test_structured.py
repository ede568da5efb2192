"""Structured replies and prompt files."""

import hashlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import BadInput
from harness.llm.structured import MOST, PromptText, Schema, WrongReply, json_value, read_prompt, without_thought

FIELDS = {
    "question": {"type": "string"},
    "kind": {"type": "string", "enum": ["fact", "search"]},
    "score": {"type": "number"},
    "rank": {"type": ["integer", "null"]},
    "sure": {"type": "boolean"},
}
ITEM = {"type": "object", "properties": FIELDS, "required": ["question", "kind"], "additionalProperties": False}
LIST = Schema(
    "drafts", {"type": "object", "properties": {"drafts": {"type": "array", "items": ITEM}}, "required": ["drafts"]}
)
GOOD = {"question": "왜?", "kind": "fact", "score": 1, "rank": None, "sure": True}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        (' \n[1, "나"]\n', [1, "나"]),
        ("```json\n{}\n```", {}),
        ("\n```JSON \n[\n1\n]\n  ```  ", [1]),
        ("<think>\n\n</think>```json\n5\n```", 5),
        ('"```"', "```"),
    ],
)
def test_json_is_found(text, value):
    assert json_value(text) == value


NO_JSON = ["", " ", "{", "Sure! {}", "{} or so", "NaN", '{"a": Infinity}', "<think>{}", "```json\n{}", "{'a': 1}"]


@pytest.mark.parametrize("text", [*NO_JSON, "[" * 9**5], ids=len)
def test_what_is_no_json_is_refused_and_quoted(text):
    with pytest.raises(WrongReply, match=r"the reply is .* instead of JSON") as caught:
        json_value(text)
    assert len(str(caught.value)) < 300


def test_a_reply_that_keeps_to_its_schema():
    assert without_thought("<think>a</think>b<think>c</think>") == "b<think>c</think>"
    assert without_thought("b <think>a</think>") == "b <think>a</think>"
    for value in ({"drafts": [GOOD], "more": 1}, {"drafts": []}):
        assert LIST.read(json.dumps(value)) == value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], r"the reply is '\[\]', not object"),
        ({}, "the reply lacks drafts"),
        ({"drafts": [5]}, "the reply, drafts, item 1 is '5', not object"),
        ({"drafts": [GOOD, {"question": "x"}]}, "the reply, drafts, item 2 lacks kind"),
        ({"drafts": [GOOD | {"kind": "poem"}]}, "item 1, kind is 'poem', which is none of fact, search"),
        ({"drafts": [GOOD | {"note": 1}]}, "item 1 has 'note', which was not asked for"),
        ({"drafts": [GOOD | {"rank": 1.5}]}, "rank is '1.5', not integer or null"),
        ({"drafts": [GOOD | {"rank": True}]}, "rank is 'true', not integer or null"),
    ],
)
def test_a_reply_that_does_not(value, message):
    with pytest.raises(WrongReply, match=message):
        LIST.read(json.dumps(value))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["drafts", *FIELDS, "x"]), inner),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(JSON)
def test_it_agrees_with_another_checker(value):
    """On whatever value, with the reference implementation of JSON Schema."""
    jsonschema = pytest.importorskip("jsonschema")
    valid = jsonschema.Draft202012Validator(LIST.document).is_valid(value)
    try:
        LIST.read(json.dumps(value))
        assert valid
    except WrongReply:
        # a number without a fraction, such as 2.0, is an integer for JSON Schema and none here
        assert not valid or ".0" in json.dumps(value) or "e" in json.dumps(value)


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
        ("", "query.prompt={path}: the prompt is empty. Describe the model's task."),
        ("Rewrite it.", "the prompt lacks {talk}, which the harness fills in. Add it."),
        ("{talk} {tlak}", "unknown name {tlak}. Did you mean 'talk'? Known: {talk}, {language}."),
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
    with pytest.raises(BadInput, match=r"Did you mean 'prompt\.txt'"):
        read_prompt(tmp_path / "promt.txt", ["talk"])
