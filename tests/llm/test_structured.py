"""Structured replies: the JSON in them, and the part of JSON Schema that is checked."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.llm.structured import Schema, WrongReply, json_value, without_thought

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
        ("```\n{}\n```\n", {}),
        ("\n```JSON \n[\n1\n]\n  ```  ", [1]),
        ("<think>Is it {}? No.</think>\n{}", {}),
        ("<think>\n\n</think>```json\n5\n```", 5),
        ('"```"', "```"),
    ],
)
def test_json_is_found(text, value):
    assert json_value(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        "Sure! {}",
        "{} or so",
        "NaN",
        '{"a": Infinity}',
        "<think>{}",
        "```json\n{}",
        "{'a': 1}",
        "[" * 9**5,
    ],
)
def test_what_is_no_json_is_refused_and_quoted(text):
    with pytest.raises(WrongReply, match=r"the reply is .* instead of JSON") as caught:
        json_value(text)
    assert len(str(caught.value)) < 300


def test_thoughts_are_left_out():
    assert without_thought("<think>a</think>b<think>c</think>") == "b<think>c</think>"
    assert without_thought("b <think>a</think>") == "b <think>a</think>"


def test_a_reply_that_keeps_to_its_schema():
    assert LIST.read(json.dumps({"drafts": [GOOD], "more": 1})) == {"drafts": [GOOD], "more": 1}
    assert LIST.read('{"drafts": []}') == {"drafts": []}


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
