"""What a model is asked to reply with for each kind of query, as JSON schemas, and how such replies are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.llm.structured import Schema, WrongReply
from retrievers.base import Turn

LENGTHS = (3, 5)  # messages of a conversation in which the user speaks two or three times


@dataclass(frozen=True)
class ReplyItem:
    """One query of a reply.

    quotes: what the model gives as evidence. missing: of `unanswerable`, the information that an answer would need.
    """

    turns: tuple[Turn, ...]
    answer: str = ""
    quotes: tuple[str, ...] = ()
    missing: str = ""


def schema(kind: str) -> Schema:
    """The JSON schema of a reply: an object whose `items` are queries of this kind."""
    text = {"type": "string"}
    turn = _object({"role": {"type": "string", "enum": ["user", "assistant"]}, "content": text})
    answered = {"answer": text, "evidence": {"type": "array", "items": text}}
    properties: dict[str, dict[str, Any]] = {
        "fact": {"question": text, **answered},
        "search": {"question": text, **answered},
        "conversation": {"turns": {"type": "array", "items": turn}, **answered},
        "none": {"question": text},
        "unanswerable": {"question": text, "missing": text},
    }
    return Schema(f"{kind}_queries", _object({"items": {"type": "array", "items": _object(properties[kind])}}))


def read_as(kind: str) -> Callable[[str], list[ReplyItem]]:
    """The function that reads a reply: its queries, none for an empty list.

    It raises WrongReply unless the reply keeps to the schema, no text is blank, and in a conversation the user begins,
    ends and speaks two or three times, in turn with the assistant.
    """
    expected = schema(kind)

    def read(text: str) -> list[ReplyItem]:
        items = expected.read(text)["items"]
        return [_item(one, f"item {number}") for number, one in enumerate(items, start=1)]

    return read


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def _item(value: Mapping[str, Any], where: str) -> ReplyItem:
    """A query. value: keeps to the schema."""
    for name in ("question", "answer", "missing"):
        if name in value and not value[name].strip():
            raise WrongReply(f"{name} of {where} is blank")
    turns = _conversation(value["turns"], where) if "turns" in value else (Turn("user", value["question"].strip()),)
    quotes = tuple(value.get("evidence", ()))
    return ReplyItem(turns, value.get("answer", "").strip(), quotes, value.get("missing", "").strip())


def _conversation(turns: list[Mapping[str, str]], where: str) -> tuple[Turn, ...]:
    roles = [turn["role"] for turn in turns]
    if len(roles) not in LENGTHS or roles != (["user", "assistant"] * len(roles))[: len(roles)]:
        raise WrongReply(f"the turns of {where} are {', '.join(roles) or 'none'}, not user, assistant, user")
    if not all(turn["content"].strip() for turn in turns):
        raise WrongReply(f"a turn of {where} is blank")
    return tuple(Turn(turn["role"], turn["content"].strip()) for turn in turns)
