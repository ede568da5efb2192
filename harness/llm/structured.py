"""Structured replies of language models: the JSON in a reply, and the part of JSON Schema that prompts use."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_THOUGHT = re.compile(r"\s*<think>.*?</think>", re.DOTALL)
_FENCE = re.compile(r"```[a-zA-Z]*\s*")
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "integer": (int,), "number": (int, float),
    "boolean": (bool,), "null": (type(None),),
}  # fmt: skip


class WrongReply(Exception):
    """A reply that is not what was asked for; the message says why, without a full stop."""


@dataclass(frozen=True)
class Schema:
    """What a reply must be.

    name:     of letters, digits, `_` and `-`, as endpoints demand it.
    document: a JSON Schema of an object. Servers that follow it strictly want all properties in `required`, and
              `additionalProperties: false`, at each level. `read` checks type, properties, required,
              additionalProperties, items and enum; other keywords bind the server alone.
    """

    name: str
    document: Mapping[str, Any]

    def read(self, text: str) -> Any:
        """The JSON in a reply that keeps to the schema; WrongReply, which says where it does not."""
        value = json_value(text)
        _check(value, self.document, "the reply")
        return value


def without_thought(text: str) -> str:
    """A reply without the <think>…</think> block at its beginning."""
    thought = _THOUGHT.match(text)
    return text[thought.end() :] if thought else text


def json_value(text: str) -> Any:
    """The parsed JSON of a reply, alone or in a fenced block; a leading <think>…</think> is skipped.

    WrongReply for anything else, numbers that are not finite included.
    """
    text = without_thought(text)
    try:
        return json.loads(_unfenced(text.strip()), parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise WrongReply(f"the reply is {quoted(text)} instead of JSON") from None


def _unfenced(text: str) -> str:
    """What is in a fenced block, if the text is one."""
    first, line_end, others = text.partition("\n")
    return others[:-3] if line_end and _FENCE.fullmatch(first) and others.endswith("```") else text


def quoted(text: str) -> str:
    """The beginning of a reply, on one line and in quotation marks, for messages."""
    words = " ".join(text.split())
    return repr(words if len(words) <= 200 else f"{words[:200]}…")


def _refuse(name: str) -> Any:
    raise ValueError(name)


def _check(value: Any, schema: Mapping[str, Any], where: str) -> None:
    """WrongReply unless a value keeps to the schema. where: its place in the reply."""
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_is(value, kind) for kind in kinds):
        raise WrongReply(f"{where} is {quoted(json.dumps(value, ensure_ascii=False))}, not {' or '.join(kinds)}")
    if "enum" in schema and value not in schema["enum"]:
        known = ", ".join(map(str, schema["enum"]))
        raise WrongReply(f"{where} is {quoted(str(value))}, which is none of {known}")
    if isinstance(value, list):
        for number, item in enumerate(value, start=1):
            _check(item, schema.get("items", {}), f"{where}, item {number}")
    if isinstance(value, dict):
        known = schema.get("properties", {})
        if lacking := [name for name in schema.get("required", ()) if name not in value]:
            raise WrongReply(f"{where} lacks {', '.join(lacking)}")
        extra = [name for name in value if name not in known]
        if extra and schema.get("additionalProperties") is False:
            raise WrongReply(f"{where} has {quoted(extra[0])}, which was not asked for")
        for name in value.keys() & known.keys():
            _check(value[name], known[name], f"{where}, {name}")


def _is(value: Any, kind: str) -> bool:
    """Whether a value has a JSON type; true and false are no numbers."""
    return isinstance(value, _TYPES[kind]) and (not isinstance(value, bool) or kind == "boolean")
