"""The commands in the code blocks of a document."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

FENCE = re.compile(r"^\s*```(\w*)\s*$")
SHELL = ("bash", "sh", "")  # languages of blocks with commands; a block without a language may also show output
PROGRAM = re.compile(r"(?:[A-Z_]+=\S+ +)*(?:harness|make|pip|ray|mlflow|curl|export) ")


@dataclass(frozen=True)
class Shown:
    """A command as a document shows it, and the number of its first line.

    refused: whether it is a mistake. section: the heading of the second level above it.
    """

    document: str
    line: int
    text: str
    refused: bool = False
    section: str = ""

    @property
    def place(self) -> str:
        return f"{self.document}:{self.line}"


def commands(path: Path, document: str) -> Iterator[Shown]:
    """Yield the commands of a Markdown file; lines that end in a backslash are joined, comments are left out."""
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
