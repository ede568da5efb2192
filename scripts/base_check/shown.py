"""The commands in the code blocks of a document, and the commands that an output tells its reader to type."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

FENCE = re.compile(r"^\s*```(\w*)\s*$")
SHELL = ("bash", "sh", "")  # languages of blocks with commands; a block without a language may also show output
PROGRAM = re.compile(r"(?:[A-Z_]+=\S+ +)*(?:harness|make|pip|ray|mlflow|curl|export) ")
HARNESS = r"(?:'[^'\n]*/harness'|(?:[^\s`'\"]*/)?harness)"  # as printed: by name, or by a path that may be quoted
LISTED = re.compile(rf"^[ \t]+({HARNESS} [a-z].*)$", re.M)  # an indented line, under "Next:" or "To try:"
QUOTED = re.compile(rf"`({HARNESS} [a-z][^`]*=[^`]*)`")
ASKED = re.compile(rf"\b(?:run|use|with|by|repeat) `({HARNESS} [a-z][^`=]*)`", re.I)  # others mention commands
CLOSING = re.compile(rf": ({HARNESS} [a-z][a-z]+ .*?)\.?$", re.M)  # "Export one: harness export ..."
REMEDY = re.compile(r"\b(?:set|add) ([a-z_]+(?:\.[a-z_0-9]+)*=[^\s,;()]*[^\s,;().])", re.I)
PLACEHOLDER = re.compile(r"(?<![\w.$-])(?:[A-Z]{2,}|[AB](?=[,\]]))(?![\w-])|(?<!\S|['\"])\.\.\.(?=\s|$)|=\.\.\.")
CHOICE = re.compile(r"(?:retriever|gate|fusion|encoder|rerank|tokenizer|sweep|dataset|task)=")


@dataclass(frozen=True)
class Shown:
    """A command in a document. line: its first. refused: whether it is a mistake. section: the `##` heading above."""

    document: str
    line: int
    text: str
    refused: bool = False
    section: str = ""

    @property
    def place(self) -> str:
        return f"{self.document}:{self.line}"


def commands(path: Path, document: str) -> Iterator[Shown]:
    """Yield the commands of a Markdown file. Lines that end in a backslash are joined, comments left out."""
    language: str | None = None
    section = ""
    begun: Shown | None = None
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if fence := FENCE.match(line):
            language = fence[1] if language is None else None
        elif language is None and line.startswith("## "):
            section = line.removeprefix("## ")
        elif language in SHELL:
            if begun:
                begun = replace(begun, text=f"{begun.text} {line.strip()}")
            elif PROGRAM.match(line) or (language and line.strip() and not line.startswith("#")):
                begun = Shown(document, number, line.strip(), section=section)
            if begun and begun.text.endswith("\\"):
                begun = replace(begun, text=begun.text[:-1].rstrip())
            elif begun:
                yield begun
                begun = None


@dataclass(frozen=True)
class Hint:
    """A printed command. of: the command that printed it."""

    text: str
    of: str

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text, comments=True)[1:]

    @property
    def kind(self) -> str:
        """The verb, and the keys and choices that it adds to the printing command."""
        verb, *words = self.words
        added = [word for word in words if word not in shlex.split(self.of, comments=True)]
        return " ".join([verb, *sorted(word if CHOICE.match(word) else word.partition("=")[0] for word in added)])


def hints(output: str, command: str) -> Iterator[Hint]:
    """Yield the hints in a command's output, each once, in printed order."""
    found: dict[int, Hint] = {}
    for pattern in (LISTED, QUOTED, ASKED, CLOSING):
        found |= {match.start(1): Hint(match[1].strip(), command) for match in pattern.finditer(output)}
    for match in REMEDY.finditer(output):
        program, *words = shlex.split(command, comments=True)
        word = match[1].strip("`'\"")
        others = [one for one in words if one.partition("=")[0] != word.partition("=")[0]]
        found.setdefault(match.start(1), Hint(shlex.join([program, *others, word]), command))
    yield from {hint.text: hint for _, hint in sorted(found.items())}.values()
