"""Replies of a model: what is read, and what is refused."""

import json

import pytest

from harness.llm.structured import WrongReply
from harness.testset.draft.drafting import ReplyItem, read_as, schema
from harness.testset.draft.drafts import KINDS
from retrievers.base import Turn

FACT = {"question": " 달은 무엇인가? ", "answer": "달은 위성이다.", "evidence": ["위성"]}
USER, ASSISTANT = {"role": "user", "content": "달은?"}, {"role": "assistant", "content": "위성이다."}


def talk(*turns):
    return {"turns": list(turns), "answer": "그렇다.", "evidence": ["위성"]}


def reply(*items):
    return json.dumps({"items": items})


def test_each_kind_is_read():
    asked = (Turn("user", "달은 무엇인가?"),)
    assert read_as("fact")(reply(FACT)) == [ReplyItem(asked, "달은 위성이다.", ("위성",))]
    assert read_as("search")(reply(FACT, FACT))[1] == ReplyItem(asked, "달은 위성이다.", ("위성",))
    assert read_as("none")(reply({"question": "안녕"})) == [ReplyItem((Turn("user", "안녕"),))]
    assert read_as("unanswerable")(reply({"question": "q", "missing": "m"})) == [
        ReplyItem((Turn("user", "q"),), missing="m")
    ]
    [found] = read_as("conversation")(reply(talk(USER, ASSISTANT, USER, ASSISTANT, USER)))
    assert [turn.role for turn in found.turns] == ["user", "assistant", "user", "assistant", "user"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_list_is_no_mistake(kind):
    assert read_as(kind)(reply()) == []
    assert schema(kind).document["properties"]["items"]["items"]["additionalProperties"] is False


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("fact", "[]"),
        ("fact", "no JSON"),
        ("fact", '{"items": [{"question": "달'),  # cut off
        ("fact", '{"items": null}'),
        ("fact", reply("달은 무엇인가?")),
        ("fact", reply({"question": "q", "answer": "a"})),
        ("fact", reply(FACT | {"answer": " "})),
        ("fact", reply(FACT | {"question": ""})),
        ("fact", reply(FACT | {"evidence": "위성"})),
        ("fact", reply(FACT | {"evidence": [7]})),
        ("none", reply(FACT)),
        ("unanswerable", reply({"question": "q", "missing": ""})),
        ("conversation", reply(FACT)),
        ("conversation", reply(talk())),
        ("conversation", reply(talk(USER))),
        ("conversation", reply(talk(USER, USER, USER))),
        ("conversation", reply(talk(ASSISTANT, USER, ASSISTANT))),
        ("conversation", reply(talk(USER, ASSISTANT, USER, ASSISTANT))),
        ("conversation", reply(talk(*[USER, ASSISTANT] * 3, USER))),
        ("conversation", reply(talk(USER, ASSISTANT | {"content": " "}, USER))),
    ],
)
def test_wrong_shapes(kind, text):
    with pytest.raises(WrongReply):
        read_as(kind)(text)
