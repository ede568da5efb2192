"""The commands that a command's output asks its reader to type."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

HARNESS = r"(?:'[^'\n]*/harness'|(?:[^\s`'\"]*/)?harness)"  # as printed: by name, or by a path that may be quoted
LISTED = re.compile(rf"^[ \t]+({HARNESS} [a-z].*)$", re.M)  # a line of its own, under "Next:" or "To try:"
QUOTED = re.compile(rf"`({HARNESS} [a-z][^`]*=[^`]*)`")
ASKED = re.compile(rf"\b(?:run|use|with|by|repeat) `({HARNESS} [a-z][^`=]*)`", re.I)  # others only mention a command
CLOSING = re.compile(rf": ({HARNESS} [a-z][a-z]+ .*?)\.?$", re.M)  # "Export one: harness export ..."
REMEDY = re.compile(r"\b(?:set|add) ([a-z_]+(?:\.[a-z_0-9]+)*=[^\s,;()]*[^\s,;().])", re.I)
PLACEHOLDER = re.compile(r"(?<![\w.$-])(?:[A-Z]{2,}|[AB](?=[,\]]))(?![\w-])|(?<!\S|['\"])\.\.\.(?=\s|$)|=\.\.\.")
CHOICE = re.compile(r"(?:retriever|gate|fusion|encoder|rerank|tokenizer|sweep|dataset|task)=")


@dataclass(frozen=True)
class Hint:
    """A command as it was printed, and the command that printed it."""

    text: str
    of: str

    @property
    def words(self) -> list[str]:
        """Without the program and comments."""
        return shlex.split(self.text, comments=True)[1:]

    @property
    def kind(self) -> str:
        """The verb, and the keys and choices that it adds to the command which printed it."""
        verb, *words = self.words
        added = [word for word in words if word not in shlex.split(self.of, comments=True)]
        return " ".join([verb, *sorted(word if CHOICE.match(word) else word.partition("=")[0] for word in added)])


def hints(output: str, command: str) -> Iterator[Hint]:
    """The hints in the output of a command, each once, in the order in which they are printed."""
    found: dict[int, Hint] = {}
    for pattern in (LISTED, QUOTED, ASKED, CLOSING):
        found |= {match.start(1): Hint(match[1].strip(), command) for match in pattern.finditer(output)}
    for match in REMEDY.finditer(output):
        found.setdefault(match.start(1), Hint(with_word(command, match[1].strip("`'\"")), command))
    yield from {hint.text: hint for _, hint in sorted(found.items())}.values()


def with_word(command: str, word: str) -> str:
    """The command with another value of a key."""
    program, *words = shlex.split(command, comments=True)
    key = word.partition("=")[0]
    return shlex.join([program, *[one for one in words if one.partition("=")[0] != key], word])
