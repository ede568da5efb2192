"""Prompt files, and structured replies. `Schema` checks replies against a part of JSON Schema.

A prompt file is a UTF-8 text with placeholders `{name}` for values. Other braces, as in JSON, are plain text.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.data.files import text_file
from harness.errors import BadInput, did_you_mean

_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_FENCE = re.compile(r"```[a-zA-Z]*\s*")
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "integer": (int,), "number": (int, float),
    "boolean": (bool,), "null": (type(None),),
}  # fmt: skip


class WrongReply(Exception):
    """A reply is unusable. The message says why, without a full stop."""


@dataclass(frozen=True)
class Schema:
    """The form of a reply.

    Strict servers demand, at each level, that `required` lists all properties and that `additionalProperties` is false.
    `read` checks type, properties, required, additionalProperties, items and enum; only the server checks other keys.

    name: letters, digits, `_` and `-`, as endpoints demand.
    document: a JSON Schema of an object.
    """

    name: str
    document: Mapping[str, Any]

    def read(self, text: str) -> Any:
        """Return the JSON value in a reply. Raise WrongReply, which names the place, if the value breaks the schema."""
        value = json_value(text)
        _check(value, self.document, "the reply")
        return value


def without_thought(text: str) -> str:
    """Return a reply without a leading <think>…</think> block."""
    return _THOUGHT.sub("", text, count=1)


def json_value(text: str) -> Any:
    """Return the JSON value of a reply. The JSON may stand in a fenced block, and may follow <think>…</think>. Raise
    WrongReply for anything else, including NaN and infinite numbers."""
    text = without_thought(text)
    try:
        return json.loads(_unfenced(text.strip()), parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise WrongReply(f"the reply is {quoted_reply(text)} instead of JSON") from None


def _unfenced(text: str) -> str:
    first, line_end, others = text.partition("\n")
    return others[:-3] if line_end and _FENCE.fullmatch(first) and others.endswith("```") else text


def quoted_reply(text: str) -> str:
    """Return the beginning of a reply, in quotation marks and on one line."""
    words = " ".join(text.split())
    return repr(words if len(words) <= 200 else f"{words[:200]}…")


def _refuse(name: str) -> Any:
    raise ValueError(name)


def _check(value: Any, schema: Mapping[str, Any], where: str) -> None:
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    of_kind = (isinstance(value, _TYPES[one]) and (one == "boolean" or not isinstance(value, bool)) for one in kinds)
    if kinds and not any(of_kind):
        raise WrongReply(f"{where} is {quoted_reply(json.dumps(value, ensure_ascii=False))}, not {' or '.join(kinds)}")
    if "enum" in schema and value not in schema["enum"]:
        known = ", ".join(map(str, schema["enum"]))
        raise WrongReply(f"{where} is {quoted_reply(str(value))}, which is none of {known}")
    if isinstance(value, list):
        for number, item in enumerate(value, start=1):
            _check(item, schema.get("items", {}), f"{where}, item {number}")
    if isinstance(value, dict):
        known = schema.get("properties", {})
        if lacking := [name for name in schema.get("required", ()) if name not in value]:
            raise WrongReply(f"{where} lacks {', '.join(lacking)}")
        extra = [name for name in value if name not in known]
        if extra and schema.get("additionalProperties") is False:
            raise WrongReply(f"{where} has {quoted_reply(extra[0])}, which was not asked for")
        for name in value.keys() & known.keys():
            _check(value[name], known[name], f"{where}, {name}")


MOST = 200_000  # maximum size of a prompt file, in bytes
_PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True)
class PromptText:
    """The text of a prompt file, checked by `read_prompt`. places: the names that occur in it as `{name}`."""

    text: str
    places: tuple[str, ...]

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    def filled(self, **values: str) -> str:
        """Return the text with its placeholders filled. Ignore values without a placeholder; keep braces in values."""
        return _PLACE.sub(lambda found: values[found[1]], self.text)


def read_prompt(path: Path, needed: Sequence[str], optional: Sequence[str] = (), key: str = "") -> PromptText:
    """Read a prompt file. Raise BadInput if it is empty or too long, lacks a needed name, or has an unknown name.

    needed: names that must occur as `{name}`. optional: names that may occur.
    key: the config key with the path of the file; "": the file was not named by a config key.
    """
    where = f"{key}={path}" if key else str(path)
    try:
        text = text_file(path, MOST).strip()
    except BadInput as error:
        raise BadInput(f"{key}: {error}" if key else str(error)) from None
    if not text:
        raise BadInput(f"{where}: the prompt is empty. Describe the model's task.")
    found = tuple(dict.fromkeys(_PLACE.findall(text)))
    known = [*needed, *optional]
    for name in found:
        if name not in known:
            names = ", ".join(f"{{{one}}}" for one in known)
            raise BadInput(f"{where}: unknown name {{{name}}}.{did_you_mean(name, known)} Known: {names}.")
    if lacking := [f"{{{name}}}" for name in needed if name not in found]:
        raise BadInput(f"{where}: the prompt lacks {', '.join(lacking)}, which the harness fills in. Add it.")
    return PromptText(text, found)
