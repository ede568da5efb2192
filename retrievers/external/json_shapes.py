"""Templates of JSON bodies and addresses, and places in JSON replies."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from retrievers.base import BadInput, did_you_mean

NAMES = ("query", "quoted_query", "k", "vector")
_NAMED = re.compile(r"\{(" + "|".join(NAMES) + r")\}")
_STEP = re.compile(
    r"""(?:^|\.)(?P<name>[^.\[\]'"\s?*]+)(?P<optional>\??)"""
    r"""|\['(?P<quoted>[^']+)'\](?P<also_optional>\??)"""
    r"""|\[(?P<index>\d{1,6}|\*)\]"""
)


def names_in(template: Any) -> set[str]:
    """The names in braces that a template contains. BadInput for a text that is another name in braces."""
    found = set()
    for text in _texts(template):
        found |= set(_NAMED.findall(text))
        whole = re.fullmatch(r"\{(\w+)\}", text)
        if whole and whole[1] not in NAMES:
            known = ", ".join(f"{{{name}}}" for name in NAMES)
            raise BadInput(f"body has {text}, which stands for nothing.{did_you_mean(whole[1], NAMES)} Known: {known}.")
    return found


def filled(template: Any, values: Mapping[str, Any]) -> Any:
    """A template with values for its names in braces.

    A text that is one name alone becomes the value itself, such as a number; inside a longer text stands the value as
    text, of anything but a text as JSON.
    """
    if isinstance(template, Mapping):
        return {key: filled(value, values) for key, value in template.items()}
    if isinstance(template, Sequence) and not isinstance(template, str):
        return [filled(value, values) for value in template]
    if not isinstance(template, str):
        return template
    if whole := _NAMED.fullmatch(template):
        return values[whole[1]]
    return _NAMED.sub(lambda name: _as_text(values[name[1]]), template)


def filled_address(template: str, values: Mapping[str, Any]) -> str:
    """An address with values for its names in braces, percent-encoded."""
    return _NAMED.sub(lambda name: quote(_as_text(values[name[1]]), safe="", errors="replace"), template)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _texts(template: Any) -> Iterator[str]:
    if isinstance(template, str):
        yield template
    elif isinstance(template, Mapping | list | tuple):
        for inner in template.values() if isinstance(template, Mapping) else template:
            yield from _texts(inner)


class Missing(LookupError):
    """A reply has nothing at a place; the message says where it ends."""


@dataclass(frozen=True)
class _Step:
    """A name of an object, an index of a list, or all of a list (None). optional: whether the name may be absent."""

    key: str | int | None
    optional: bool = False

    def of(self, value: Any, path: str) -> Iterator[tuple[Any, str]]:
        """(what is there, its path) for each value that the step leads to."""
        where = path or "the reply"
        if isinstance(self.key, str):
            if not isinstance(value, dict) or value.get(self.key) is None:
                if self.optional and isinstance(value, dict):
                    return
                others = [key for key in value if key != self.key] if isinstance(value, dict) else []
                raise Missing(f"{where} has no {self.key!r}.{did_you_mean(self.key, others)}")
            yield value[self.key], f"{path}.{self.key}".lstrip(".")
        elif not isinstance(value, list):
            raise Missing(f"{where} is not a list.")
        elif self.key is None:
            yield from ((inner, f"{path}[{i}]") for i, inner in enumerate(value))
        elif self.key >= len(value):
            raise Missing(f"{where} has no element {self.key}.")
        else:
            yield value[self.key], f"{path}[{self.key}]"


@dataclass(frozen=True)
class Place:
    """A place in a reply as JSONPath writes it: `hits[*].id`, `ids[0][*]`, `hits[*]['a.b']`.

    A name with a question mark may be absent: `root.children?[*].id`. What is null is absent.
    """

    text: str
    steps: tuple[_Step, ...]

    @classmethod
    def parse(cls, text: str, key: str) -> Place:
        """key: the config key, for the BadInput that a text that is no place raises."""
        path = text.removeprefix("$").removeprefix(".")
        steps: list[_Step] = []
        end = 0
        while step := _STEP.match(path, end):
            end = step.end()
            name, index = step["name"] or step["quoted"], step["index"]
            optional = bool(step["optional"] or step["also_optional"])
            steps.append(_Step(name or (None if index == "*" else int(index)), optional))
        if end < len(path) or not any(step.key is None for step in steps):
            raise BadInput(
                f"{key}={text!r} is no place of a value for each result. Write the names on the way to it, with [*] "
                "for every element of a list, such as hits.hits[*]._id."
            )
        return cls(text, tuple(steps))

    def values(self, content: Any) -> list[Any]:
        """What a reply has there, in its order; Missing where it ends before."""
        found = [(content, "")]
        for step in self.steps:
            found = [inner for value, path in found for inner in step.of(value, path)]
        return [value for value, _ in found]
